//! Options of windows through the public API, as types and as MPI's strings.

use rma::raw::RawWindow;
use rma::{
    AccumulateOrdering, Error, ErrorClass, Flavor, Job, LockType, MemoryModel, Rank, Request, WindowInfo,
    WindowOptions,
};

#[test]
fn what_is_set_is_in_force_and_reported() -> Result<(), Error> {
    let job = Job::init()?;
    let mut info = WindowInfo::new();
    info.set("no_locks", "true")?;
    info.set("accumulate_ordering", "none")?;
    info.set("alloc_shm", "true")?;
    let window = RawWindow::allocate_with(&job, 64, 4, &info.options())?;
    assert_eq!(window.info()?.get("no_locks").as_deref(), Some("true"));
    assert_eq!(window.info()?.get("accumulate_ordering").as_deref(), Some("none"));
    assert_eq!(window.info()?.get("alloc_shm"), None);
    let refused = window.lock_all(false).unwrap_err();
    assert_eq!(refused.class(), ErrorClass::RmaSync);
    assert!(refused.to_string().contains("no_locks"), "{refused}");
    info.set("accumulate_ordering", "rar,raw")?;
    info.set("no_locks", "false")?;
    window.set_info(&info)?;
    let options = window.options()?;
    assert_eq!(
        options.accumulate_ordering,
        AccumulateOrdering { war: false, waw: false, ..Default::default() }
    );
    assert!(options.no_locks, "decided when the window is made");
    let mut ops = WindowInfo::new();
    ops.set("accumulate_ops", "same_op")?;
    window.set_info(&ops)?;
    let ordering = |text: &str| -> Result<WindowInfo, Error> {
        let mut info = WindowInfo::new();
        info.set("accumulate_ordering", text)?;
        Ok(info)
    };
    assert_eq!(
        window.options()?.accumulate_ordering,
        options.accumulate_ordering,
        "not named, so not changed"
    );
    window.set_info(&ordering("none")?)?;
    window.set_info(&WindowInfo::new())?;
    assert_eq!(window.info()?.get("accumulate_ops").as_deref(), Some("same_op"));
    assert_eq!(window.info()?.get("accumulate_ordering").as_deref(), Some("none"));
    window.free()?;
    job.finalize()
}

/// Shows: MPI_Win_set_name, MPI_Win_get_name.
#[test]
fn errors_begin_with_the_name() -> Result<(), Error> {
    let job = Job::init()?;
    let (named, other) = (job.allocate::<u64>(2)?, job.allocate::<u64>(2)?);
    assert_eq!(named.name(), "");
    named.set_name("halo of the north");
    assert_eq!((named.name().as_str(), other.name().as_str()), ("halo of the north", ""));
    let (mut one, mut two) = ([0; 3], [0; 3]);
    let errors = [
        named.fence(|epoch| epoch.get(Rank(0), 0, &mut one)).unwrap_err(),
        named
            .lock_all(|epoch| epoch.rget(Rank(0), 0, &mut two).and_then(Request::wait).map(drop))
            .unwrap_err(),
        named.lock(Rank(7), LockType::Shared, |_| Ok(())).unwrap_err(),
        named.lock_all(|_| named.fence(|_| Ok(()))).unwrap_err(),
        named.local().set(2, 0).unwrap_err(),
        named.lock_all(|epoch| epoch.put_value(Rank(0), 2, 1)).unwrap_err(),
        named.test_notification(2).unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().starts_with("window 'halo of the north' at rank 0: "), "{error}");
        assert_eq!(error.window_name(), Some("halo of the north"));
    }
    assert!(format!("{named:?}").contains("halo of the north"), "{named:?}");
    assert_eq!(other.local().set(2, 0).unwrap_err().window_name(), None);
    named.set_name("");
    assert_eq!(named.local().set(2, 0).unwrap_err().window_name(), None);
    named.free()?;
    other.free()?;
    job.finalize()
}

#[test]
fn attributes_are_mpis() -> Result<(), Error> {
    let job = Job::init()?;
    let window = job.allocate_with::<u32>(5, &WindowOptions::default())?;
    let attributes = window.attributes()?;
    assert_eq!((attributes.len, attributes.disp_unit), (20, 4));
    assert_eq!((attributes.flavor, attributes.model), (Flavor::Allocate, MemoryModel::Unified));
    let mut byte = 1u8;
    // SAFETY: the byte outlives the window, and nobody else accesses it.
    let raw = unsafe { RawWindow::create(&job, &raw mut byte, 1, 1) }?;
    assert_eq!((raw.attributes()?.base, raw.attributes()?.flavor), (&raw mut byte, Flavor::Create));
    raw.free()?;
    window.free()?;
    job.finalize()
}

#[test]
fn errors_name_their_class() -> Result<(), Error> {
    let job = Job::init()?;
    // SAFETY: refused before anything is accessed.
    let null = unsafe { RawWindow::create(&job, std::ptr::null_mut(), 8, 1) }.unwrap_err();
    let classes = [
        (null, ErrorClass::Base),
        (RawWindow::allocate(&job, 8, 0).unwrap_err(), ErrorClass::Disp),
        (job.allocate::<u64>(usize::MAX / 16).unwrap_err(), ErrorClass::NoMemory),
        (WindowInfo::new().set("no_locks", "x").unwrap_err().into(), ErrorClass::InfoValue),
    ];
    for (error, class) in classes {
        assert_eq!(error.class(), class);
        assert!(error.to_string().contains(class.name()), "{error}");
    }
    job.finalize()
}
