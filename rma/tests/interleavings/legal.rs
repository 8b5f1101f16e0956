//! The four interleavings of threads that the design calls legal: operation + operation, operation + fence,
//! operation + flush, flush + flush.

use rma_core::config::Config;
use rma_core::engine::FenceAssert;
use rma_core::ids::Rank;
use rma_core::lock::LockType;

use crate::platform::{Arc, AtomicBool, Mutex, Ordering};
use crate::{check, check_by_priority_too, job, job_of, Part, Rig};

/// Schedules of each program.
const SCHEDULES: usize = 300;

const OPEN: FenceAssert = FenceAssert { no_precede: true, no_succeed: false, no_store: false, no_put: false };
const CLOSE: FenceAssert =
    FenceAssert { no_precede: false, no_succeed: true, no_store: false, no_put: false };

/// All ranks.
const BOTH: [Rank; 2] = [Rank(0), Rank(1)];

fn nothing() -> Part {
    Box::new(|_| {})
}

fn part(body: impl FnOnce(&Rig) + Send + 'static) -> Part {
    Box::new(body)
}

/// Two threads post to one target; nothing is lost, and every ticket is given once.
///
/// Shows: MPI_Fetch_and_op, MPI-4.1 13.7.1, seed: PUT/GET/ACC + PUT/GET/ACC.
#[test]
fn operation_and_operation() {
    check_by_priority_too(SCHEDULES, || {
        let tickets = Arc::new(Mutex::new(Vec::new()));
        let draw = |tickets: &Arc<Mutex<Vec<u64>>>| {
            let tickets = Arc::clone(tickets);
            part(move |rig| {
                for _ in 0..2 {
                    let ticket = rig.ticket(1, 0);
                    tickets.lock().unwrap().push(ticket);
                    rig.add(1, 1);
                }
            })
        };
        let threads = vec![draw(&tickets), draw(&tickets)];
        passive(threads, |rig| assert_eq!([rig.own(0), rig.own(1)], [4, 4]));
        let mut tickets = tickets.lock().unwrap();
        tickets.sort_unstable();
        assert_eq!(*tickets, [0, 1, 2, 3]);
    });
}

/// A thread posts while another one fences: what it posts belongs to the epoch before or after the fence, and
/// is complete after the next one.
///
/// Shows: MPI_Win_fence, MPI-4.1 13.5.1, seed: PUT/GET/ACC + WIN_FENCE.
#[test]
fn operation_and_fence() {
    check_by_priority_too(SCHEDULES, || {
        let both_in = Arc::new(shuttle::sync::Barrier::new(2));
        let wait = Arc::clone(&both_in);
        let poster = part(move |rig| {
            wait.wait();
            for value in 1..4 {
                rig.add(1, 0);
                rig.put(1, 1, value);
            }
            wait.wait();
        });
        let fencer = part(move |rig| {
            rig.fence(OPEN);
            both_in.wait();
            rig.fence(FenceAssert::default());
            both_in.wait();
            rig.fence(CLOSE);
        });
        let peer = part(|rig| {
            rig.fence(OPEN);
            rig.fence(FenceAssert::default());
            rig.fence(CLOSE);
            assert_eq!([rig.own(0), rig.own(1)], [3, 3]);
        });
        job(false, vec![poster, fencer], peer);
    });
}

/// A thread posts while another one flushes. The flush ends, with or without the operations that come
/// meanwhile.
///
/// Shows: MPI_Win_flush, MPI-4.1 13.5.4, seed: PUT/GET/ACC + WIN_FLUSH.
#[test]
fn operation_and_flush() {
    check_by_priority_too(SCHEDULES, || {
        let poster = part(|rig| {
            for value in 1..5 {
                rig.add(1, 0);
                rig.put(1, 1, value);
            }
        });
        let flusher = part(|rig| {
            rig.flush(1).unwrap();
            rig.flush_all();
            rig.flush_local(1);
        });
        passive(vec![poster, flusher], |rig| assert_eq!([rig.own(0), rig.own(1)], [4, 4]));
    });
}

/// A thread posts without pause until another one's flush is over. Schedules at random let it catch its breath, so that even a flush
/// which waited for what comes later would end (that it does not, the behaviour `a_flush_ends_while_others_post` shows);
/// here no order of steps may hang or lose an operation.
///
/// Shows: MPI_Win_flush, ours: flush_targets, MPI-4.1 13.5.4, seed: PUT/GET/ACC + WIN_FLUSH.
#[test]
fn flush_beside_who_never_stops() {
    for kind in 0..4 {
        check(SCHEDULES / 12, move || {
            let is_over = Arc::new(AtomicBool::new(false));
            let seen = Arc::clone(&is_over);
            let poster = part(move |rig| {
                while !seen.load(Ordering::SeqCst) {
                    rig.put(1, 1, 3);
                    rig.add(1, 0);
                }
            });
            let flusher = part(move |rig| {
                rig.add(1, 0);
                match kind {
                    0 => rig.flush(1).unwrap(),
                    1 => rig.flush_all(),
                    2 => rig.flush_targets(&BOTH),
                    _ => rig.flush_local(1),
                }
                is_over.store(true, Ordering::SeqCst);
            });
            passive(vec![poster, flusher], |rig| assert!(rig.own(0) > 0));
        });
    }
}

/// Threads flush one target at the same time, each after an operation of its own, and a third one posts: each
/// flush ends, although another one ends first and an operation comes in between that nothing else sends.
///
/// Shows: MPI_Win_flush, MPI-4.1 13.5.4, seed: WIN_FLUSH + WIN_FLUSH.
#[test]
fn flush_and_flush() {
    check_by_priority_too(2 * SCHEDULES, || {
        let flusher = |kind: usize| {
            part(move |rig| {
                rig.add(1, 0);
                match kind {
                    0 => rig.flush(1).unwrap(),
                    1 => rig.flush_all(),
                    _ => {
                        rig.put(1, 1, 7);
                        rig.flush_local(1);
                    }
                }
            })
        };
        let threads = vec![flusher(0), flusher(0), flusher(1), flusher(2), part(|rig| rig.add(1, 0))];
        passive(threads, |rig| assert_eq!(rig.own(0), 5));
    });
}

/// A thread posts while another one flushes a few ranks together.
///
/// Shows: ours: flush_targets, seed: PUT/GET/ACC + WIN_FLUSH.
#[test]
fn operation_and_flush_of_several() {
    check(SCHEDULES, || {
        let poster = part(|rig| {
            for value in 1..5 {
                rig.add(1, 0);
                rig.put(1, 1, value);
            }
        });
        let flusher = part(|rig| {
            rig.flush_targets(&BOTH);
            rig.add(1, 0);
            rig.flush_targets(&BOTH);
        });
        passive(vec![poster, flusher], |rig| assert_eq!([rig.own(0), rig.own(1)], [5, 4]));
    });
}

/// A flush of a few ranks together ends although other flushes, of all kinds, end before it and take back
/// what they had asked for, and what it waits for was posted meanwhile.
///
/// Shows: ours: flush_targets, seed: WIN_FLUSH + WIN_FLUSH.
#[test]
fn flush_and_flush_of_several() {
    check(2 * SCHEDULES, || {
        let flusher = |kind: usize| {
            part(move |rig| {
                rig.add(1, 0);
                match kind {
                    0 => rig.flush(1).unwrap(),
                    1 => rig.flush_all(),
                    _ => rig.flush_targets(&BOTH),
                }
            })
        };
        let threads = vec![flusher(0), flusher(1), flusher(2), flusher(2), part(|rig| rig.add(1, 0))];
        passive(threads, |rig| assert_eq!(rig.own(0), 5));
    });
}

/// Flushes of one rank while agents stand by and take over.
#[test]
fn flush_and_flush_beside_agents() {
    check(SCHEDULES / 6, || {
        let thread = || {
            part(|rig| {
                rig.ticket(1, 0);
            })
        };
        let threads = in_lock_all(vec![thread(), thread()]);
        job(true, threads, nothing());
    });
}

/// Threads lock a rank each, with fewer elements than threads: each lock stands from its call to its unlock, whatever
/// the others do, no thread waits for ever for an element, and every lock is free in the end.
///
/// Shows: MPI_Win_lock, MPI_Win_unlock, rule: lock-several, seed: RESTORE_TARGET_ELEM_RESOURCES.
#[test]
fn locks_of_threads_with_few_elements() {
    for lazy_targets in [true, false] {
        check(SCHEDULES, move || {
            let config = Config { target_pool: 1, target_pool_global: 0, lazy_targets, ..Config::default() };
            let all_done = Arc::new(shuttle::sync::Barrier::new(3));
            let locker = |target: u32| {
                let all_done = Arc::clone(&all_done);
                part(move |rig| {
                    for round in 0..2 {
                        rig.lock(target, LockType::Exclusive).unwrap();
                        rig.add(target, 0);
                        if round == 0 {
                            rig.flush(target).unwrap();
                            rig.put(target, 1, 7);
                        }
                        rig.unlock(target).unwrap();
                    }
                    if all_done.wait().is_leader() {
                        rig.barrier();
                    }
                })
            };
            let threads = [1, 2, 3].map(locker);
            let peers = [1, 2, 3].map(|rank| {
                part(move |rig| {
                    let next = rank % 3 + 1;
                    rig.lock(next, LockType::Exclusive).unwrap();
                    rig.add(next, 0);
                    rig.unlock(next).unwrap();
                    rig.barrier();
                    assert_eq!([rig.own(0), rig.own(1)], [3, 7]);
                })
            });
            job_of(false, &config, threads.into(), peers.into());
        });
    }
}

/// Threads of rank 0 in one lock_all epoch; `look` sees what rank 1 has when all of it is complete.
fn passive(threads: Vec<Part>, look: impl Fn(&Rig) + Send + 'static) {
    let peer = part(move |rig| {
        rig.barrier();
        look(rig);
    });
    let mut threads = in_lock_all(threads);
    // The last of all threads to leave the epoch meets the peer.
    let leaver = threads.pop();
    threads.push(part(move |rig| {
        if let Some(leaver) = leaver {
            leaver(rig);
        }
        rig.barrier();
    }));
    job(false, threads, peer);
}

/// The threads, and one more that opens the epoch before them and closes it after them.
fn in_lock_all(threads: Vec<Part>) -> Vec<Part> {
    let meet = Arc::new(shuttle::sync::Barrier::new(threads.len() + 1));
    let mut parts: Vec<Part> = threads
        .into_iter()
        .map(|body| {
            let meet = Arc::clone(&meet);
            part(move |rig| {
                meet.wait();
                body(rig);
                meet.wait();
            })
        })
        .collect();
    parts.push(part(move |rig| {
        rig.lock_all();
        meet.wait();
        meet.wait();
        rig.unlock_all().unwrap();
    }));
    parts
}
