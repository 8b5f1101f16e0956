//! Jobs of one rank, without a launcher: what a developer's first program is.

use std::panic::{catch_unwind, AssertUnwindSafe};

use rma::{
    Call, Error, ErrorClass, Job, LockType, Options, Progress, Rank, ReduceOp, Request, RmaError, Rule,
};

const SELF: Rank = Rank(0);

#[test]
fn a_program_without_a_launcher_is_a_job_of_one_rank() -> Result<(), Error> {
    let job = Job::init()?;
    assert_eq!((job.rank(), job.size(), job.local_rank(), job.local_size()), (SELF, 1, 0, 1));
    job.barrier()?;
    assert!(job.provider_description().contains("chosen"), "{}", job.provider_description());
    assert!(job.shared_bytes() > 0);
    job.finalize()
}

#[test]
fn memory_moves_in_and_comes_back() -> Result<(), Error> {
    let job = Job::init()?;
    let window = job.create(vec![1u32, 2, 3])?;
    window.lock(SELF, LockType::Exclusive, |epoch| epoch.put(1, &[7]))?;
    assert_eq!(window.local().to_vec()?, [1, 7, 3]);
    assert_eq!(window.free()?, [1, 7, 3]);
    let boxed: Box<[f64]> = Box::new([0.5, 1.5]);
    let window = job.create(boxed)?;
    window.fence(|epoch| epoch.accumulate(SELF, 0, &[2.0, 2.0], ReduceOp::Prod))?;
    assert_eq!(window.free()?, [1.0, 3.0]);
    let nothing = job.create(Vec::<i8>::new())?;
    assert!(nothing.local().is_empty());
    assert_eq!(nothing.free()?, []);
    job.finalize()
}

/// Shows: MPI_PROC_NULL.
#[test]
fn values_to_no_rank_go_nowhere() -> Result<(), Error> {
    let job = Job::init()?;
    let window = job.allocate::<i64>(1)?;
    window.lock_all(|epoch| {
        epoch.put_value(Rank::NULL, 0, -5)?;
        assert_eq!(epoch.get_value(Rank::NULL, 0)?, 0);
        assert_eq!(epoch.fetch_and_op(Rank::NULL, 0, 3, ReduceOp::Sum)?, 0);
        assert_eq!(epoch.compare_and_swap(Rank::NULL, 0, 0, 10)?, 0);
        let error = epoch.flush(Rank::NULL).unwrap_err().to_string();
        assert!(error.contains(" at rank 0: flush: no rank was given"), "{error}");
        assert_eq!(Rank::NULL.to_string(), "no rank");
        epoch.put_value(SELF, 0, 7)
    })?;
    assert_eq!(window.local().to_vec()?, [7]);
    window.free()?;
    job.finalize()
}

/// Shows: MPI_Win_get_group.
#[test]
fn a_windows_group_is_all_ranks() -> Result<(), Error> {
    let job = Job::init()?;
    let window = job.allocate::<u64>(1)?;
    let group = window.group();
    assert_eq!(group, job.group(&[SELF])?);
    let exposure = window.post(&group)?;
    window.start(&group, |epoch| epoch.put(SELF, 0, &[5]))?;
    exposure.wait()?;
    assert_eq!(window.local().to_vec()?, [5]);
    window.free()?;
    job.finalize()
}

#[test]
fn values_come_back_within_the_epoch() -> Result<(), Error> {
    let job = Job::init()?;
    let window = job.allocate::<i64>(4)?;
    window.lock(SELF, LockType::Exclusive, |epoch| {
        let error = epoch.put_value(4, -5).unwrap_err().to_string();
        assert!(error.contains(" at rank 0: put_value: 8 bytes at byte offset 32"), "{error}");
        epoch.put_value(0, -5)?;
        assert_eq!(epoch.get_value(0)?, -5);
        assert_eq!(epoch.fetch_and_op(0, 3, ReduceOp::Sum)?, -5);
        assert_eq!(epoch.compare_and_swap(0, -2, 10)?, -2);
        assert_eq!(epoch.compare_and_swap(0, -2, 11)?, 10);
        epoch.flush()
    })?;
    window.lock_all(|epoch| {
        assert_eq!(epoch.get_value(SELF, 0)?, 10);
        assert_eq!(epoch.fetch_and_op(SELF, 1, 6, ReduceOp::Max)?, 0);
        epoch.flush(SELF)?;
        epoch.flush_all()
    })?;
    assert_eq!(window.local().to_vec()?, [10, 6, 0, 0]);
    window.free()?;
    job.finalize()
}

/// One job knows nothing of another one's requests, and must not say that they are done.
#[test]
fn requests_of_two_jobs_are_not_waited_for_together() -> Result<(), Error> {
    let (one, two) = (Job::init()?, Job::init()?);
    let (first, second) = (one.allocate::<u64>(1)?, two.allocate::<u64>(1)?);
    let (mut seen, mut other) = ([1], [1]);
    first.lock_all(|outer| {
        second.lock_all(|inner| {
            let mut requests = [outer.rget(SELF, 0, &mut seen)?, inner.rget(SELF, 0, &mut other)?];
            let refused = Request::wait_all(&mut requests).unwrap_err();
            assert!(refused.to_string().contains("different jobs"), "{refused}");
            assert!(Request::wait_any(&mut requests).is_err() && Request::test_all(&mut requests).is_err());
            let [from_first, from_second] = requests;
            assert_eq!((from_first.wait()?, from_second.wait()?), ([0].as_mut_slice(), [0].as_mut_slice()));
            Ok(())
        })
    })?;
    first.free()?;
    second.free()?;
    two.finalize()?;
    one.finalize()
}

#[test]
fn a_batch_gives_its_buffers_back() -> Result<(), Error> {
    let job = Job::init()?;
    let window = job.allocate::<u16>(4)?;
    let (mut source, mut seen) = ([1, 2, 3, 4], [0; 4]);
    window.lock(SELF, LockType::Shared, |epoch| {
        for round in 0..3 {
            epoch.batch(|batch| batch.put(0, &source))?;
            epoch.batch(|batch| batch.get(0, &mut seen))?;
            assert_eq!(seen, source);
            source[0] += round;
        }
        Ok(())
    })?;
    window.lock_all(|epoch| {
        epoch.batch(|batch| batch.put(SELF, 0, &source))?;
        epoch.batch(|batch| batch.get_accumulate(SELF, 0, &[0; 4], &mut seen, ReduceOp::NoOp))?;
        assert_eq!(seen, source);
        Ok(())
    })?;
    window.free()?;
    job.finalize()
}

fn rule(result: Result<(), Error>) -> Option<Rule> {
    match result.unwrap_err().rma() {
        Some(RmaError::Epoch { rule, .. }) => Some(*rule),
        _ => None,
    }
}

#[test]
fn scopes_refuse_to_nest_where_epochs_do() -> Result<(), Error> {
    let job = Job::init()?;
    let window = job.allocate::<u8>(4)?;
    window.fence(|_| {
        assert_eq!(rule(window.fence(|_| Ok(()))), Some(Rule::OtherEpochOpen));
        assert_eq!(rule(window.lock_all(|_| Ok(()))), Some(Rule::OtherEpochOpen));
        assert_eq!(rule(window.lock(SELF, LockType::Shared, |_| Ok(()))), Some(Rule::OtherEpochOpen));
        Ok(())
    })?;
    window.lock(SELF, LockType::Shared, |_| {
        assert_eq!(rule(window.fence(|_| Ok(()))), Some(Rule::OtherEpochOpen));
        assert_eq!(rule(window.lock_all(|_| Ok(()))), Some(Rule::OtherEpochOpen));
        assert_eq!(rule(window.lock(SELF, LockType::Shared, |_| Ok(()))), Some(Rule::AlreadyLocked));
        let message = window.fence(|_| Ok(())).unwrap_err().to_string();
        assert!(message.contains("in window state PerTarget: "), "{message}");
        Ok(())
    })?;
    // Nothing of it has left a trace.
    window.fence(|epoch| epoch.put(SELF, 0, &[1]))?;
    window.lock_all(|epoch| epoch.put(SELF, 1, &[2]))?;
    assert_eq!(window.local().to_vec()?, [1, 2, 0, 0]);
    window.free()?;
    job.finalize()
}

#[test]
fn errors_of_the_body_and_panics_close_the_epoch() -> Result<(), Error> {
    let job = Job::init()?;
    let window = job.allocate::<u64>(2)?;
    let failed = window.lock(SELF, LockType::Exclusive, |epoch| {
        epoch.put(0, &[1])?;
        epoch.put(9, &[1])
    });
    assert!(matches!(failed.unwrap_err().rma(), Some(RmaError::Range { offset_bytes: 72, .. })));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        window.fence(|epoch| {
            epoch.put(SELF, 1, &[2])?;
            if epoch.put(SELF, 0, &[3]).is_ok() {
                panic!("on purpose");
            }
            Ok(())
        })
    }));
    assert!(panicked.is_err());
    window.lock_all(|_| Ok(()))?;
    assert_eq!(window.local().to_vec()?, [3, 2]);
    window.free()?;
    job.finalize()
}

#[test]
fn the_local_part_is_copied_and_bounded() -> Result<(), Error> {
    let job = Job::init()?;
    let window = job.allocate::<f32>(3)?;
    let local = window.local();
    local.fill(1.5)?;
    local.set(1, 2.5)?;
    local.write(2, &[3.5])?;
    let mut two = [0.0; 2];
    local.read(1, &mut two)?;
    assert_eq!((two, local.get(0)?, local.len()), ([2.5, 3.5], 1.5, 3));
    for outside in [local.get(3).map(drop), local.set(usize::MAX, 0.0), local.read(2, &mut two)] {
        assert!(outside.unwrap_err().to_string().contains("12 bytes"));
    }
    window.free()?;
    job.finalize()
}

#[test]
fn calls_after_finalize_are_refused_and_say_so() -> Result<(), Error> {
    let job = Job::init()?;
    let window = job.allocate::<u8>(1)?;
    job.clone().finalize()?;
    for (name, refused) in [
        ("barrier", job.barrier()),
        ("fence", window.fence(|_| Ok(()))),
        ("free", window.free().map(drop)),
        ("allocate", job.allocate::<u8>(1).map(drop)),
    ] {
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(&format!("{name}: the job is finalized")), "{message}");
    }
    Ok(())
}

/// Shows: MPI_ERR_RMA_SYNC.
#[test]
fn finalizing_within_an_epoch_is_refused_and_loses_nothing() -> Result<(), Error> {
    let job = Job::init()?;
    let (other, window) = (job.allocate::<u8>(1)?, job.allocate::<u8>(1)?);
    let refused = |begins: &str| {
        let error = job.clone().finalize().unwrap_err();
        let Some(&RmaError::Unclosed { call: Call::Finalize, window: named, state }) = error.rma() else {
            panic!("{error}");
        };
        assert!(named == window.id() && state.starts_with(begins), "{error}");
        assert_eq!(error.class(), ErrorClass::RmaSync);
        assert!(error.to_string().starts_with("finalize: window 1 is in state "), "{error}");
    };
    window.lock_all(|epoch| {
        epoch.put(SELF, 0, &[1])?;
        refused("LockAllCalled");
        Ok(())
    })?;
    window.lock(SELF, LockType::Exclusive, |_| {
        refused("PerTarget");
        Ok(())
    })?;
    window.fence(|epoch| {
        epoch.put(SELF, 0, &[2])?;
        refused("Fence");
        Ok(())
    })?;
    let exposure = window.post(&job.group(&[SELF])?)?;
    refused("Exposed");
    window.start(&job.group(&[SELF])?, |epoch| {
        epoch.put(SELF, 0, &[3])?;
        refused("Pscw");
        Ok(())
    })?;
    exposure.wait()?;
    assert_eq!(window.local().to_vec()?, [3]);
    job.clone().finalize()?;
    drop((other, window));
    Ok(())
}

#[test]
fn dropping_everything_is_fine() -> Result<(), Error> {
    let job = Job::init()?;
    let window = job.create(vec![1u8; 10])?;
    drop(job);
    window.fence(|_| Ok(()))?;
    drop(window);
    drop(Job::init()?);
    Ok(())
}

#[test]
fn an_agent_may_be_asked_for_and_does_no_harm() -> Result<(), Error> {
    let mut options = Options::load()?;
    options.progress = Progress::Thread;
    options.config.coalesce = false;
    let job = Job::init_with(options)?;
    assert!(!job.config().coalesce);
    job.set_switches(&rma::Config::default());
    assert!(job.config().coalesce);
    let window = job.allocate::<u64>(1)?;
    for round in 0..1000 {
        window.lock_all(|epoch| {
            assert_eq!(epoch.fetch_and_op(SELF, 0, 1, ReduceOp::Sum)?, round);
            Ok(())
        })?;
    }
    // Where the fabric executes atomics, one's own are its, too.
    let counters = job.counters();
    assert!(counters.self_operations + counters.native_atomics >= 1000);
    window.free()?;
    job.finalize()
}

#[test]
fn windows_move_between_threads() -> Result<(), Error> {
    let job = Job::init()?;
    let window = job.allocate::<u32>(1)?;
    let window = std::thread::scope(|scope| {
        scope
            .spawn(move || window.lock_all(|epoch| epoch.put_value(SELF, 0, 5)).map(|()| window))
            .join()
            .unwrap()
    })?;
    assert_eq!(window.local().get(0)?, 5);
    window.free()?;
    job.finalize()
}
