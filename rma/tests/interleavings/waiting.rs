//! Threads that wait: none sleeps on when its answer is there, none keeps another one from going on, and the
//! agent is there when nobody else is.

use std::task::Poll;

use rma_core::error::{Call, RmaError};
use rma_core::ids::WindowId;

use crate::platform::{Arc, AtomicBool, Engine, Ordering};
use crate::runtime::Awaited;
use crate::{check, job, Part, Rig};

const SCHEDULES: usize = 300;

fn part(body: impl FnOnce(&Rig) + Send + 'static) -> Part {
    Box::new(body)
}

/// A thread waits in a barrier that ends only when another thread of its rank has posted and flushed: it
/// gives the guard away although it polls all the time.
#[test]
fn who_waits_lets_others_post() {
    check(SCHEDULES, || {
        let waiter = part(Rig::barrier);
        let poster = part(|rig| {
            rig.core
                .run(Call::Lock, |engine| {
                    let exclusive = rma_core::lock::LockType::Exclusive;
                    engine.start_lock(rig.window, rma_core::ids::Rank(1), exclusive, false)
                })
                .unwrap();
            rig.add(1, 0);
            rig.flush(1).unwrap();
            rig.core
                .run(Call::Unlock, |engine| engine.start_unlock(rig.window, rma_core::ids::Rank(1)))
                .unwrap();
        });
        let peer = part(|rig| {
            while rig.own(0) == 0 {
                rig.core.progress(&mut rig.core.enter_anyway());
                shuttle::thread::yield_now();
            }
            rig.barrier();
        });
        job(false, vec![waiter, poster], peer);
    });
}

/// Three threads wait for different things, one of which is the last: whoever takes the completions from the
/// endpoint, everybody wakes, and when the one that watches the descriptors leaves, another one does.
#[test]
fn the_watch_is_handed_over() {
    check(2 * SCHEDULES, || {
        let meet = Arc::new(shuttle::sync::Barrier::new(3));
        let ticket = |tickets: u64| {
            let meet = Arc::clone(&meet);
            part(move |rig| {
                meet.wait();
                for _ in 0..tickets {
                    rig.ticket(1, 0);
                }
                meet.wait();
            })
        };
        let opener = {
            let meet = Arc::clone(&meet);
            part(move |rig| {
                rig.lock_all();
                meet.wait();
                rig.ticket(1, 1);
                meet.wait();
                rig.unlock_all().unwrap();
            })
        };
        job(false, vec![opener, ticket(1), ticket(3)], part(|_| {}));
    });
}

/// The target's program is outside of the library until its origin is done: only the agent can serve. Then
/// it is back, and the agent steps aside.
#[test]
fn the_agent_takes_over_and_steps_aside() {
    check(SCHEDULES / 2, || {
        let is_done = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&is_done);
        let origin = part(move |rig| {
            rig.lock_all();
            for value in 0..3 {
                assert_eq!(rig.ticket(1, 0), value);
            }
            rig.unlock_all().unwrap();
            tell.store(true, Ordering::SeqCst);
        });
        let target = part(move |rig| {
            while !is_done.load(Ordering::SeqCst) {
                shuttle::thread::yield_now();
            }
            assert_eq!(rig.own(0), 3);
        });
        job(true, vec![origin], target);
    });
}

/// What neighbours would tell by words, and is here that a packet was taken.
struct Told {
    received: u64,
    vain: u32,
}

impl Told {
    fn count(engine: &Engine) -> u64 {
        engine.counters().packets_received.iter().sum()
    }
}

impl Awaited for Told {
    fn poll(&mut self, engine: &mut Engine) -> Poll<Result<(), RmaError>> {
        if Self::count(engine) > self.received {
            return Poll::Ready(Ok(()));
        }
        self.vain = if engine.has_news() { self.vain + 1 } else { 0 };
        assert!(self.vain < 4, "what a peer has left is not looked at");
        Poll::Pending
    }

    fn call(&self) -> Call {
        Call::Wait
    }

    fn window(&self) -> Option<WindowId> {
        None
    }

    fn waiting_for(&self, _: &Engine) -> &'static str {
        "a packet"
    }

    fn is_told_by_words(&self, _: &mut Engine) -> bool {
        true
    }
}

/// Who looks at its neighbours' words only, as nothing else ends its wait, serves peers that have left something: they may
/// tell it what it waits for behind that.
#[test]
fn who_looks_at_words_serves_peers_meanwhile() {
    check(SCHEDULES, || {
        let is_there = Arc::new(AtomicBool::new(false));
        let come = Arc::clone(&is_there);
        let waiter = part(move |rig| {
            let received = Told::count(&rig.core.enter_anyway().engine);
            is_there.store(true, Ordering::SeqCst);
            while !rig.core.enter_anyway().engine.has_news() {
                shuttle::thread::yield_now();
            }
            let guarded = rig.core.enter(Call::Wait).unwrap();
            rig.core.wait(guarded, &mut Told { received, vain: 0 }, None).unwrap();
        });
        // It sends a packet when it leaves.
        let peer = part(move |_| {
            while !come.load(Ordering::SeqCst) {
                shuttle::thread::yield_now();
            }
        });
        job(false, vec![waiter], peer);
    });
}
