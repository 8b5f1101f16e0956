//! Bad input: each gives an error that names the call, the state and the remedy; nothing hangs, and the
//! window works afterwards.

mod common;

use std::process::Command;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use common::*;
use rma::raw::RawWindow;
use rma::{
    Dtype, Error, ErrorKind, FenceAssert, Job, LockType, Options, PostAssert, Rank, ReduceOp, RmaError, Rule,
    StartAssert, Window,
};

const TARGET: Rank = Rank(1);

/// The rule that a call broke, which the message names along with the window, the rank and the state.
fn rule(result: Result<(), Error>) -> Rule {
    let error = result.unwrap_err();
    match error.rma() {
        Some(RmaError::Epoch { rule, state, .. }) => {
            is_named(&error, *rule, &[state]);
            *rule
        }
        other => panic!("{other:?}"),
    }
}

/// The message begins with the window and the rank that called, and has these words and the rule.
fn is_named(error: &Error, rule: Rule, words: &[&str]) {
    let message = error.to_string();
    assert_eq!(error.rma().and_then(RmaError::rule), Some(rule), "{message}");
    assert!(message.starts_with("window ") && message.contains(" at rank "), "{message}");
    assert!(message.contains(rule.text()) && message.contains(rule.section()), "{message}");
    assert!(words.iter().all(|word| message.contains(word)), "{words:?} in: {message}");
}

/// A put of `len` bytes, of which the origin has that many.
fn put(window: &RawWindow, target: Rank, disp: u64, len: usize) -> Result<(), Error> {
    static SOURCE: [u8; 64] = [1; 64];
    assert!(len <= SOURCE.len());
    // SAFETY: the source is as long, and lives for ever.
    unsafe { window.put(SOURCE.as_ptr(), len, target, disp) }
}

/// A range that is outside is found by the operation or by the call that completes it.
fn outside(window: &RawWindow, target: Rank, disp: u64, len: usize) -> Option<u64> {
    window.lock(LockType::Shared, target, false).unwrap();
    let posted = put(window, target, disp, len);
    let result = window.unlock(target).and(posted);
    let error = result.unwrap_err();
    match error.rma() {
        Some(RmaError::Range { window_bytes, target: at, .. }) if *at == target => {
            let has = [format!("rank {target}"), format!("has {window_bytes} bytes")];
            is_named(&error, Rule::InsideWindow, &[&has[0], &has[1]]);
            Some(*window_bytes)
        }
        _ => None,
    }
}

fn ranges_and_ranks(job: &Job, window: &RawWindow) -> Result<(), Error> {
    // Units are 2 bytes at the target, whose window has 8.
    for (disp, len) in [(4, 1), (3, 3), (0, 9), (u64::MAX, 1), (u64::MAX / 2, 2), (1 << 40, 4)] {
        assert_eq!(outside(window, TARGET, disp, len), Some(8), "{disp} {len}");
    }
    // Rank 0's own window is empty, which is legal; its last byte is at 0 of 0.
    assert_eq!(outside(window, job.rank(), 0, 1), Some(0));
    window.lock_all(false)?;
    put(window, job.rank(), 0, 0)?;
    put(window, TARGET, 4, 0)?;
    for target in [Rank(job.size()), Rank(u32::MAX - 1)] {
        let error = put(window, target, 0, 1).unwrap_err();
        assert!(matches!(error.rma(), Some(RmaError::Rank { size: 2, .. })), "{error}");
        assert!(window.flush(target).is_err());
        is_named(&error, Rule::RankOfWindow, &[&format!("rank {target}"), "ranks are 0 to 1"]);
    }
    window.unlock_all()?;
    let error = window.lock(LockType::Shared, Rank(2), false).unwrap_err();
    assert!(matches!(error.rma(), Some(RmaError::Rank { .. })), "{error}");
    Ok(())
}

fn epochs(window: &RawWindow) -> Result<(), Error> {
    assert_eq!(rule(put(window, TARGET, 0, 1)), Rule::NoEpoch);
    assert_eq!(rule(window.unlock(TARGET)), Rule::NoSuchEpoch);
    assert_eq!(rule(window.unlock_all()), Rule::NoSuchEpoch);
    assert_eq!(rule(window.flush(TARGET)), Rule::FlushOutsidePassive);
    window.lock(LockType::Exclusive, TARGET, false)?;
    let again = window.lock(LockType::Shared, TARGET, false);
    let message = again.as_ref().unwrap_err().to_string();
    let place = format!(
        "window {} at rank 0: lock: target rank 1: not possible in window state PerTarget",
        window.id()
    );
    assert!(message.starts_with(&place), "{message}");
    assert_eq!(rule(again), Rule::AlreadyLocked);
    assert_eq!(rule(window.lock_all(false)), Rule::OtherEpochOpen);
    assert_eq!(rule(window.fence(FenceAssert::default())), Rule::OtherEpochOpen);
    assert_eq!(rule(put(window, Rank(0), 0, 0)), Rule::NotLocked);
    assert_eq!(rule(window.unlock(Rank(0))), Rule::NoSuchEpoch);
    put(window, TARGET, 0, 1)?;
    window.unlock(TARGET)?;
    window.lock_all(false)?;
    assert_eq!(rule(window.lock_all(false)), Rule::OtherEpochOpen);
    assert_eq!(rule(window.lock(LockType::Shared, TARGET, false)), Rule::OtherEpochOpen);
    window.unlock_all()
}

fn types(window: &RawWindow) -> Result<(), Error> {
    let (value, mut result) = (1.0f32, 0.0f32);
    let (origin, found) = ((&raw const value).cast(), (&raw mut result).cast());
    window.lock(LockType::Shared, TARGET, false)?;
    // SAFETY: the buffers live until unlock.
    let band = unsafe { window.accumulate(origin, 1, Dtype::F32, TARGET, 0, ReduceOp::BitAnd) };
    is_named(&band.unwrap_err(), Rule::DefinedReduction, &["accumulate", "band is not defined for f32"]);
    // SAFETY: as above.
    let swap = unsafe { window.compare_and_swap(origin, origin, found, Dtype::F32, TARGET, 0) };
    is_named(&swap.unwrap_err(), Rule::SwapType, &["compare_and_swap is not defined for f32"]);
    // SAFETY: nothing is read, because so many elements are refused.
    let many = unsafe { window.accumulate(origin, usize::MAX, Dtype::F64, TARGET, 0, ReduceOp::Sum) };
    is_named(&many.unwrap_err(), Rule::BuffersFit, &["accumulate", "more elements than memory"]);
    window.unlock(TARGET)
}

#[test]
fn every_misuse_is_named_and_does_no_harm() {
    ranks("every_misuse_is_named_and_does_no_harm", 2, |job| {
        let len = if job.rank() == TARGET { 8 } else { 0 };
        let window = RawWindow::allocate(job, len, 2)?;
        if job.rank() == Rank(0) {
            ranges_and_ranks(job, &window)?;
            epochs(&window)?;
            types(&window)?;
            window.lock(LockType::Exclusive, TARGET, false)?;
            put(&window, TARGET, 3, 2)?;
            window.unlock(TARGET)?;
        }
        job.barrier()?;
        if job.rank() == TARGET {
            // SAFETY: the window's own memory, which nobody writes now.
            let found = unsafe { std::slice::from_raw_parts(window.base(), 8) };
            assert_eq!(found, [1, 0, 0, 0, 0, 0, 1, 1]);
        }
        let second = Job::init().unwrap_err().to_string();
        assert!(second.contains("has joined its job already") && second.contains("first call"), "{second}");
        assert!(RawWindow::allocate(job, 8, 0).unwrap_err().class() == rma::ErrorClass::Disp);
        // Of one rank; the others learn of it.
        let elements = if job.rank() == TARGET { usize::MAX } else { 8 };
        let error = job.allocate::<u64>(elements).unwrap_err();
        assert!(error.class() == rma::ErrorClass::NoMemory, "{error}");
        assert!(matches!(error.rma(), Some(RmaError::Memory { .. })) == (job.rank() == TARGET), "{error}");
        window.fence(FenceAssert::default())?;
        window.free()
    });
}

fn init(change: impl FnOnce(&mut Options)) -> Error {
    let mut options = Options::load().unwrap();
    change(&mut options);
    Job::init_with(options).unwrap_err()
}

#[test]
fn a_provider_that_does_not_exist_is_an_error_that_lists_those_that_do() {
    let error = init(|options| options.fabric.provider = Some("carrier-pigeon".to_owned()));
    assert!(matches!(error.kind(), ErrorKind::Provider(_)));
    for part in ["carrier-pigeon", "tcp;ofi_rxm", "RMA_PROVIDER"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn no_libfabric_is_an_error_with_the_remedy() {
    let error = init(|options| {
        options.fabric.library = Some("/nonexistent".into());
        options.fabric.provider = Some("ofi".to_owned());
    });
    assert!(error.to_string().contains("/nonexistent"), "{error}");
    assert!(error.to_string().contains("apt install libfabric1"), "{error}");
}

/// Runs the test `name` of this binary in a job of two ranks; it must fail, soon, and say these words.
fn fails(name: &str, variables: &[(&str, &str)], words: &[&str]) {
    let begun = Instant::now();
    let output = launch(name, 2, "net", variables);
    let text = text(&output);
    assert!(!output.status.success(), "{text}");
    assert_ne!(output.status.code(), Some(124), "ran into its time limit: {text}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{text}");
    for word in words {
        assert!(text.contains(word), "'{word}' missing in: {text}");
    }
}

#[test]
fn a_job_with_a_wrong_setting_fails_and_says_which() {
    if is_rank() {
        return run_body(|_| Ok(()));
    }
    let name = "a_job_with_a_wrong_setting_fails_and_says_which";
    fails(name, &[("RMA_LIBFABRIC", "/nonexistent")], &["/nonexistent"]);
    fails(name, &[("RMA_TARGET_POOL", "99999999999")], &["RMA_TARGET_POOL=99999999999", "from 1 to"]);
}

#[test]
fn a_rank_that_fails_while_others_wait_for_it_ends_the_job() {
    if is_rank() {
        return run_body(|job| {
            let window = job.allocate::<u8>(1)?;
            if job.rank() == TARGET {
                // What a program does that returns an error from main: everything is dropped.
                return window.lock(Rank(7), LockType::Shared, |_| Ok(()));
            }
            window.fence(|_| Ok(()))
        });
    }
    fails("a_rank_that_fails_while_others_wait_for_it_ends_the_job", &[], &["there is no rank 7"]);
}

#[test]
fn a_rank_that_leaves_without_finalize_ends_the_job() {
    if is_rank() {
        let job = Job::init().unwrap();
        let window = job.allocate::<u8>(1).unwrap();
        if job.rank() == TARGET {
            return;
        }
        window.fence(|_| Ok(())).unwrap();
        return;
    }
    fails("a_rank_that_leaves_without_finalize_ends_the_job", &[], &["without Job::finalize"]);
}

#[test]
fn a_rank_that_leaves_while_another_is_in_a_barrier_ends_the_job() {
    if is_rank() {
        let job = Job::init().unwrap();
        let window = job.allocate::<u8>(1).unwrap();
        if job.rank() == TARGET {
            return;
        }
        // Meets the barrier of the other's end, and is alone from then on.
        job.barrier().unwrap();
        window.fence(|_| Ok(())).unwrap();
        return;
    }
    let name = "a_rank_that_leaves_while_another_is_in_a_barrier_ends_the_job";
    fails(name, &[], &["without Job::finalize"]);
}

#[test]
fn a_call_that_others_never_make_ends_at_the_time_limit() {
    if is_rank() {
        return run_body(|job| {
            let window = job.allocate::<u8>(1)?;
            if job.rank() == TARGET {
                loop {
                    std::thread::park();
                }
            }
            window.fence(|_| Ok(()))
        });
    }
    // The ranks start apart on a busy machine, and wait for each other in allocate as long.
    let limit = [("RMA_TIMEOUT", "15")];
    let words = ["fence", "the other ranks to reach the fence", "RMA_TIMEOUT"];
    fails("a_call_that_others_never_make_ends_at_the_time_limit", &limit, &words);
}

/// A window that [`TARGET`] has locked, and does not come back from that.
fn locked_for_ever(job: &Job) -> Result<Window<u64>, Error> {
    let window = job.allocate(1)?;
    if job.rank() == TARGET {
        window.lock(TARGET, LockType::Exclusive, |_| {
            job.barrier()?;
            loop {
                std::thread::park();
            }
        })?;
    }
    job.barrier()?;
    Ok(window)
}

/// An operation of an epoch that is posted inside of a later one, which ends well: the buffer stays lent until the first ends,
/// which takes too long, so that the process ends rather than give it back.
#[test]
fn a_buffer_of_an_outer_epoch_is_not_given_back_by_the_end_of_an_inner_one() {
    if is_rank() {
        return run_body(|job| {
            let window = locked_for_ever(job)?;
            let mut buffer = [0];
            let slot = &mut buffer;
            let ended = window.lock(TARGET, LockType::Shared, |outer| {
                window.lock(job.rank(), LockType::Shared, move |_| outer.get(0, slot))
            });
            panic!("the buffer is back while the target may still answer: {ended:?}")
        });
    }
    let name = "a_buffer_of_an_outer_epoch_is_not_given_back_by_the_end_of_an_inner_one";
    fails(
        name,
        &[("RMA_TIMEOUT", "15")],
        &["may still access the program's buffers, so the process ends here"],
    );
}

/// The same where nobody can be told why: the message finds no reader, which is no panic that lets the buffer go.
#[test]
fn a_process_that_cannot_say_why_ends_all_the_same() {
    if is_rank() {
        return run_body(|job| {
            let window = locked_for_ever(job)?;
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let kept = rustix::io::dup(std::io::stderr()).unwrap();
            rustix::stdio::dup2_stderr(&writer).unwrap();
            let mut buffer = [0];
            let ended = window.lock(TARGET, LockType::Shared, |epoch| epoch.get(0, &mut buffer));
            rustix::stdio::dup2_stderr(&kept).unwrap();
            panic!("the buffer is back while the target may still answer: {ended:?}")
        });
    }
    let name = "a_process_that_cannot_say_why_ends_all_the_same";
    fails(name, &[("RMA_TIMEOUT", "15")], &["killed by SIGABRT"]);
}

#[test]
fn a_wrong_setting_without_a_launcher_is_an_error_too() {
    if std::env::var_os("RMA_SLOTS").is_some() {
        let error = Job::init().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Settings(_)));
        return assert!(error.to_string().contains("RMA_SLOTS=many"), "{error}");
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    without_settings(&mut command);
    command.args(["a_wrong_setting_without_a_launcher_is_an_error_too", "--exact", "--nocapture"]);
    let output = command.env("RMA_SLOTS", "many").output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

/// Where [`repeat`] lets results go: memory that is there as long as the window.
static RESULT: AtomicU64 = AtomicU64::new(0);

/// Puts to one target, the later ones of which the fabric gets without a question, and a get.
fn repeat(window: &RawWindow, target: Rank) -> Result<(), Error> {
    for disp in 0..8 {
        put(window, target, disp, 8)?;
    }
    for _ in 0..4 {
        // SAFETY: the result's 8 bytes are never looked at, nor freed.
        unsafe { window.get(RESULT.as_ptr().cast(), 8, target, 8) }?;
    }
    Ok(())
}

/// What was allowed within an epoch is not allowed behind it, however often it was done.
#[test]
fn what_is_repeated_ends_with_its_epoch() {
    ranks("what_is_repeated_ends_with_its_epoch", 2, |job| {
        let window = RawWindow::allocate(job, 256, 8)?;
        let other = Rank(1 - job.rank().0);
        let over = |window: &RawWindow| {
            assert_eq!(rule(put(window, other, 0, 8)), Rule::NoEpoch);
            // Nor later, when whatever was left behind has gone.
            job.barrier()?;
            assert_eq!(rule(put(window, other, 0, 8)), Rule::NoEpoch);
            job.barrier()
        };
        for _ in 0..3 {
            window.fence(FenceAssert { no_precede: true, ..Default::default() })?;
            repeat(&window, other)?;
            window.fence(FenceAssert::default())?;
            repeat(&window, other)?;
            window.fence(FenceAssert { no_succeed: true, ..Default::default() })?;
            over(&window)?;
            window.lock(LockType::Shared, other, false)?;
            repeat(&window, other)?;
            window.flush(other)?;
            repeat(&window, other)?;
            window.unlock(other)?;
            over(&window)?;
            window.lock_all(false)?;
            repeat(&window, other)?;
            window.flush_all()?;
            repeat(&window, other)?;
            window.unlock_all()?;
            over(&window)?;
            let group = job.group(&[other])?;
            window.post(&group, PostAssert::default())?;
            window.start(&group, StartAssert::default())?;
            repeat(&window, other)?;
            window.complete()?;
            over(&window)?;
            window.wait()?;
            job.barrier()?;
        }
        window.free()
    });
}
