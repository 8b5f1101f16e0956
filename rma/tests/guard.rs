//! The guard around the engine (`src/runtime/guard.rs` and its lock, compiled here over loom's threads, locks and atomics): in every
//! interleaving, and with every value that the memory model lets a thread see, one thread at a time is inside and sees
//! what the one before it did.

#[path = "../src/runtime/guard.rs"]
mod guard;
#[path = "../src/runtime/lock.rs"]
mod lock;

/// What the guard stands on, as the model checker has it.
mod platform {
    use std::time::Duration;

    use loom::sync::atomic::fence;
    use loom::sync::{Condvar, Mutex};

    pub(crate) use loom::hint::spin_loop as hint_spin;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    pub(crate) use loom::thread::yield_now;

    pub(crate) type ThreadMark = loom::thread::ThreadId;

    pub(crate) fn this_thread() -> ThreadMark {
        loom::thread::current().id()
    }

    pub(crate) fn is_this_thread(mark: ThreadMark) -> bool {
        this_thread() == mark
    }

    pub(crate) fn can_fence_all() -> bool {
        true
    }

    /// The kernel's fence in all threads is modelled as one in each of both: loom has none that reaches other threads.
    /// In the owner it stands where the processor may be when the kernel interrupts it last.
    pub(crate) fn fence_all() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn fence_own() {
        fence(Ordering::SeqCst);
    }

    pub(crate) const SPINS: u32 = 1;

    /// The kernel compares the word and falls asleep in one step, as far as those are concerned who wake.
    #[derive(Debug)]
    pub(crate) struct Parking {
        sleeping: Mutex<()>,
        woken: Condvar,
    }

    impl Parking {
        pub(crate) fn new() -> Self {
            Self { sleeping: Mutex::new(()), woken: Condvar::new() }
        }

        pub(crate) fn wait(&self, word: &AtomicU32, value: u32, _longest: Option<Duration>) {
            let sleeping = self.sleeping.lock().unwrap();
            if word.load(Ordering::Relaxed) == value {
                drop(self.woken.wait(sleeping).unwrap());
            }
        }

        pub(crate) fn wake_one(&self, _word: &AtomicU32) {
            drop(self.sleeping.lock().unwrap());
            self.woken.notify_one();
        }

        pub(crate) fn wake_all(&self, _word: &AtomicU32) {
            drop(self.sleeping.lock().unwrap());
            self.woken.notify_all();
        }
    }

    pub(crate) fn sleep(_length: Duration) {
        yield_now();
    }
}

use std::time::Duration;

use guard::{Guard, Held};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::Arc;
use loom::thread;

use lock::Lock;
use platform::Parking;

/// A number whose accesses loom watches: two at a time, or one that does not see the last, are an error.
type Number = UnsafeCell<u32>;

fn add(held: &mut Held<'_, Number>) {
    // SAFETY: who holds the guard is alone, which is what is tested.
    held.with_mut(|number| unsafe { *number += 1 });
}

fn value(held: &Held<'_, Number>) -> u32 {
    // SAFETY: as above.
    held.with(|number| unsafe { *number })
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

#[test]
fn the_owner_and_another_thread_take_turns() {
    model(|| {
        let guard = Arc::new(Guard::new(Number::new(0)));
        let other = Arc::clone(&guard);
        let thread = thread::spawn(move || add(&mut other.lock()));
        add(&mut guard.lock());
        add(&mut guard.lock());
        thread.join().unwrap();
        assert_eq!(value(&guard.lock()), 3);
    });
}

#[test]
fn a_guest_is_alone_and_the_owner_has_its_privilege_again() {
    model(|| {
        let guard = Arc::new(Guard::new(Number::new(0)));
        let other = Arc::clone(&guard);
        let thread = thread::spawn(move || {
            let mut came = 0;
            for _ in 0..2 {
                if let Some(mut held) = other.try_lock_as_guest() {
                    add(&mut held);
                    came += 1;
                }
            }
            came
        });
        add(&mut guard.lock());
        add(&mut guard.lock());
        let came = thread.join().unwrap();
        assert_eq!(value(&guard.lock()), 2 + came);
        assert!(format!("{guard:?}").contains("owned"), "{guard:?}");
    });
}

#[test]
fn a_guest_and_a_thread_that_stays_and_the_owner() {
    model(|| {
        let guard = Arc::new(Guard::new(Number::new(0)));
        let (first, second) = (Arc::clone(&guard), Arc::clone(&guard));
        let guest = thread::spawn(move || match first.try_lock_as_guest() {
            Some(mut held) => {
                add(&mut held);
                1
            }
            None => 0,
        });
        let stays = thread::spawn(move || add(&mut second.lock()));
        add(&mut guard.lock());
        stays.join().unwrap();
        let came = guest.join().unwrap();
        assert_eq!(value(&guard.lock()), 2 + came);
    });
}

#[test]
fn who_tries_is_alone_or_not_in() {
    model(|| {
        let guard = Arc::new(Guard::new(Number::new(0)));
        let other = Arc::clone(&guard);
        let thread = thread::spawn(move || match other.try_lock() {
            Some(mut held) => {
                add(&mut held);
                1
            }
            None => 0,
        });
        let mut came = 0;
        for _ in 0..2 {
            if let Some(mut held) = guard.try_lock() {
                add(&mut held);
                came += 1;
            }
        }
        came += thread.join().unwrap();
        assert_eq!(value(&guard.lock()), came);
    });
}

/// The first try finds the owner inside, and takes its privilege away; the second must not pass it.
#[test]
fn who_tries_again_is_alone_too() {
    model(|| {
        let guard = Arc::new(Guard::new(Number::new(0)));
        let other = Arc::clone(&guard);
        let thread = thread::spawn(move || {
            let mut came = 0;
            for _ in 0..2 {
                if let Some(mut held) = other.try_lock() {
                    add(&mut held);
                    came += 1;
                }
            }
            came
        });
        add(&mut guard.lock());
        let came = thread.join().unwrap();
        assert_eq!(value(&guard.lock()), 1 + came);
    });
}

/// As a thread that sleeps until it is told, with whatever the memory model lets it see of the number.
#[test]
fn who_waits_for_news_is_told() {
    model(|| {
        let guard = Arc::new(Guard::new(Number::new(0)));
        let news = Arc::new((AtomicU32::new(0), Parking::new()));
        let (other, its_news) = (Arc::clone(&guard), Arc::clone(&news));
        let thread = thread::spawn(move || loop {
            let held = other.lock();
            if value(&held) > 0 {
                break;
            }
            let told = its_news.0.load(Ordering::Relaxed);
            drop(held);
            its_news.1.wait(&its_news.0, told, Some(Duration::from_secs(1)));
        });
        let mut held = guard.lock();
        add(&mut held);
        news.0.fetch_add(1, Ordering::Relaxed);
        news.1.wake_all(&news.0);
        drop(held);
        thread.join().unwrap();
    });
}

/// Three that want the lock at the same time: who sleeps is woken, and nobody is forgotten.
#[test]
fn who_waits_for_the_lock_gets_it() {
    model(|| {
        let lock = Arc::new((Lock::new(), Number::new(0)));
        let count = |lock: &(Lock, Number)| {
            lock.0.take();
            // SAFETY: who has the lock is alone, which is what is tested.
            lock.1.with_mut(|number| unsafe { *number += 1 });
            lock.0.give();
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || count(&lock))
            })
            .collect();
        count(&lock);
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(lock.0.try_take());
        // SAFETY: as above.
        assert_eq!(lock.1.with(|number| unsafe { *number }), 3);
    });
}

/// As a signal's handler does in the owner's thread.
#[test]
fn the_owner_does_not_enter_twice() {
    model(|| {
        let guard = Arc::new(Guard::new(Number::new(0)));
        let held = guard.lock();
        assert!(guard.try_lock().is_none());
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(guard.lock())));
        assert!(again.is_err(), "it would be inside twice");
        drop(held);
        let other = Arc::clone(&guard);
        let was_there = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&was_there);
        let thread = thread::spawn(move || {
            drop(other.lock());
            its.store(true, Ordering::Release);
        });
        let held = guard.lock();
        assert!(guard.try_lock().is_none());
        drop(held);
        thread.join().unwrap();
        assert!(was_there.load(Ordering::Acquire));
    });
}
