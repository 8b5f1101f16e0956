//! Calls of two threads that no program may make: one of them is told so, and nothing breaks.

use rma_core::error::{Call, RmaError, Rule};
use rma_core::lock::LockType;

use crate::error::Error;
use crate::platform::{Arc, Mutex};
use crate::{check, job, Part, Rig};

const SCHEDULES: usize = 300;

/// What each of two threads got from a call.
type Outcomes = Arc<Mutex<Vec<Result<(), Error>>>>;

/// Runs `call` in two threads at once, after `open`; then `judge` sees both outcomes, and `close` ends what may
/// be left open.
fn twice(open: fn(&Rig), call: fn(&Rig) -> Result<(), Error>, judge: fn(&Rig, Vec<Result<(), Error>>)) {
    check(SCHEDULES, move || {
        let outcomes: Outcomes = Arc::default();
        let meet = Arc::new(shuttle::sync::Barrier::new(2));
        let threads = (0..2)
            .map(|index| -> Part {
                let (outcomes, meet) = (Arc::clone(&outcomes), Arc::clone(&meet));
                Box::new(move |rig| {
                    if index == 0 {
                        open(rig);
                    }
                    meet.wait();
                    let outcome = call(rig);
                    outcomes.lock().unwrap().push(outcome);
                    meet.wait();
                    if index == 0 {
                        let outcomes = std::mem::take(&mut *outcomes.lock().unwrap());
                        judge(rig, outcomes);
                    }
                })
            })
            .collect();
        job(false, threads, Box::new(|_| {}));
    });
}

/// One call worked, and the other one broke one of these rules.
fn one_is_refused(outcomes: Vec<Result<(), Error>>, rules: &[Rule]) {
    let refused: Vec<Error> = outcomes.into_iter().filter_map(Result::err).collect();
    let [error] = &refused[..] else { panic!("not one refusal: {refused:?}") };
    match error.rma() {
        Some(RmaError::Epoch { rule, .. }) if rules.contains(rule) => {}
        _ => panic!("{error}"),
    }
}

fn lock(rig: &Rig) -> Result<(), Error> {
    rig.lock(1, LockType::Exclusive)
}

fn unlock(rig: &Rig) -> Result<(), Error> {
    rig.unlock(1)
}

/// Shows: MPI_Win_unlock, MPI_ERR_RMA_SYNC, MPI-4.1 13.5.3.
#[test]
fn two_unlocks() {
    let open = |rig: &Rig| {
        lock(rig).unwrap();
        rig.add(1, 0);
    };
    twice(open, unlock, |_, outcomes| one_is_refused(outcomes, &[Rule::Busy, Rule::NoSuchEpoch]));
}

/// Shows: MPI_Win_lock, MPI_ERR_RMA_SYNC, MPI-4.1 13.5.3.
#[test]
fn two_locks_of_one_target() {
    twice(
        |_| {},
        lock,
        |rig, outcomes| {
            one_is_refused(outcomes, &[Rule::AlreadyLocked]);
            unlock(rig).unwrap();
        },
    );
}

/// Shows: MPI_Win_unlock_all, MPI_ERR_RMA_SYNC, MPI-4.1 13.5.3.
#[test]
fn two_unlock_alls() {
    let open = |rig: &Rig| {
        rig.lock_all();
        rig.add(1, 0);
    };
    twice(open, Rig::unlock_all, |_, outcomes| one_is_refused(outcomes, &[Rule::Busy, Rule::NoSuchEpoch]));
}

/// An operation beside the unlock_all of its epoch is refused, or is part of the epoch; unlock_all ends.
#[test]
fn an_operation_beside_unlock_all() {
    check(SCHEDULES, || {
        let meet = Arc::new(shuttle::sync::Barrier::new(2));
        let poster: Part = {
            let meet = Arc::clone(&meet);
            Box::new(move |rig| {
                meet.wait();
                static ONE: u64 = 1;
                let origin = std::ptr::from_ref(&ONE).cast();
                let sum = rma_core::op::ReduceOp::Sum;
                let operation = crate::word(Call::Accumulate, rma_core::wire::OpKind::Accumulate, sum, 1, 0);
                let posted = rig.post(&rma_core::engine::Operation { origin, ..operation });
                if let Err(error) = posted {
                    assert!(matches!(error.rma(), Some(RmaError::Epoch { .. })), "{error}");
                }
            })
        };
        let closer: Part = Box::new(move |rig| {
            rig.lock_all();
            rig.add(1, 0);
            meet.wait();
            rig.unlock_all().unwrap();
        });
        job(false, vec![poster, closer], Box::new(|_| {}));
    });
}
