//! Locks that are words of memory in reach: the engine's machine (`rma_core::lock::words`) over the checker's words, with the
//! orderings with which this provider changes them (`crate::atomics`). Whoever is alone inside writes, whoever shares reads,
//! and the checker fails where both are inside.

use core::convert::Infallible;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{fence, AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;
use rma_core::ids::Rank;
use rma_core::lock::words::{take_everywhere, Atomic, Claim, Memo, Ran, Swap, Tickets, Word, WordLock};

use super::{check, check_with, Door};
use crate::bell;

/// The two words, as the processor exchanges them.
enum Words {
    /// One after the other.
    Apart([AtomicU64; 2]),
    /// Both in one step, where they are swapped together. The checker has no exchange of 16 bytes: what little these programs
    /// make of them is in one of eight.
    Together(AtomicU64),
}

/// Both words, of which each number is small here, as one.
fn pack([tickets, holder]: [u64; 2]) -> u64 {
    let tickets = Tickets(tickets);
    let numbers =
        [tickets.admitted(), tickets.next(), tickets.served(), (holder >> 32) as u32, holder as u32];
    numbers.into_iter().fold(0, |packed, number| packed << 8 | u64::from(number & 0xff))
}

fn unpack(packed: u64) -> [u64; 2] {
    let number = |place: u32| packed >> (8 * place) & 0xff;
    [number(2) << 43 | number(3) << 21 | number(4), number(1) << 32 | number(0)]
}

/// What an atomic makes of a word.
fn after(old: u64, atomic: Atomic) -> u64 {
    match atomic {
        Atomic::Add(number) => old.wrapping_add(number),
        Atomic::Swap(compare, new) if old == compare => new,
        Atomic::Swap(..) => old,
    }
}

struct Lock {
    words: Words,
    inside: UnsafeCell<u32>,
    /// Of those behind the words, the place in which the one that waits here is written down.
    waiter: AtomicU64,
    /// The bell of whoever that is.
    door: Arc<Door>,
}

impl Lock {
    fn new(is_together: bool) -> Arc<Self> {
        let words = [Tickets::free(0).0, 0];
        let words = match is_together {
            true => Words::Together(AtomicU64::new(pack(words))),
            false => Words::Apart(words.map(AtomicU64::new)),
        };
        let (inside, waiter) = (UnsafeCell::new(0), AtomicU64::new(0));
        Arc::new(Self { words, inside, waiter, door: Door::new() })
    }

    /// As `crate::atomics::execute`.
    fn change(&self, word: Word, atomic: Atomic) -> u64 {
        fence(Ordering::Release);
        let old = match &self.words {
            Words::Apart(words) => {
                let word = &words[word as usize];
                match atomic {
                    Atomic::Add(number) => word.fetch_add(number, Ordering::Relaxed),
                    Atomic::Swap(compare, new) => {
                        let swapped =
                            word.compare_exchange(compare, new, Ordering::Relaxed, Ordering::Relaxed);
                        swapped.unwrap_or_else(|other| other)
                    }
                }
            }
            Words::Together(both) => {
                let changed = both.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |packed| {
                    let mut words = unpack(packed);
                    words[word as usize] = after(words[word as usize], atomic);
                    Some(pack(words))
                });
                unpack(changed.unwrap_or_else(|packed| packed))[word as usize]
            }
        };
        fence(Ordering::Acquire);
        old
    }

    /// As `crate::atomics::swap_one_by_one`: how many were swapped.
    fn swap<const N: usize>(&self, swaps: [Swap; N]) -> usize {
        let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
        let count = match &self.words {
            Words::Apart(words) => swaps
                .iter()
                .take_while(|(word, from, into)| {
                    words[*word as usize].compare_exchange(*from, *into, success, failure).is_ok()
                })
                .count(),
            Words::Together(both) => {
                let swapped = both.fetch_update(success, failure, |packed| {
                    let mut words = unpack(packed);
                    swaps
                        .iter()
                        .all(|(word, from, into)| {
                            core::mem::replace(&mut words[*word as usize], *into) == *from
                        })
                        .then(|| pack(words))
                });
                if swapped.is_ok() {
                    N
                } else {
                    0
                }
            }
        };
        fence(Ordering::SeqCst);
        count
    }

    /// Lets the machine do what it can.
    fn run(&self, lock: &mut WordLock) {
        loop {
            match lock.run(|word, atomic| Ok::<_, Infallible>(self.change(word, atomic))) {
                Ran::Over => return,
                Ran::LetIn(ticket) => self.wake(ticket),
                Ran::Refused(_, _, refusal) => match refusal {},
            }
        }
    }

    /// Looks again, once.
    fn look(&self, lock: &mut WordLock) {
        for word in Word::BOTH {
            if let Some(turn) = lock.poll_again(word, false) {
                lock.on_posted(word, turn);
                if let Some(ticket) = lock.on_done(word, self.change(word, turn.atomic)) {
                    self.wake(ticket);
                }
            }
        }
        lock.on_round();
        self.run(lock);
    }

    /// Takes the lock, at once if nobody is in the way and `at_once`; by the machine otherwise.
    fn take(&self, claim: Claim, me: Rank, at_once: bool) -> WordLock {
        let free = Tickets::free(0);
        let (count, all) = match claim {
            _ if !at_once => (0, 1),
            Claim::Exclusive => free.take_alone(me).map_or((0, 2), |swaps| (self.swap(swaps), 2)),
            Claim::Shared => free.take_shared().map_or((0, 1), |swaps| (self.swap(swaps), 1)),
            Claim::Everywhere => take_everywhere(0).map_or((0, 1), |swaps| (self.swap(swaps), 1)),
        };
        if count == all {
            // Given back by the machine, which knows as much of it.
            return WordLock::resumed(claim, me, Memo::Held);
        }
        let mut lock = match count {
            0 => WordLock::asked(claim, me),
            // The ticket, whose turn has come, is kept.
            _ => WordLock::resumed(claim, me, Memo::Drawn),
        };
        self.run(&mut lock);
        while !(lock.is_held() && lock.is_settled()) {
            thread::yield_now();
            self.look(&mut lock);
        }
        lock
    }

    fn leave(&self, mut lock: WordLock) {
        lock.release();
        self.run(&mut lock);
        assert!(lock.is_idle());
    }

    /// Takes the lock, is inside, and leaves.
    fn visit(&self, claim: Claim, me: u32, at_once: bool) {
        let lock = self.take(claim, Rank(me), at_once);
        if claim == Claim::Exclusive {
            // SAFETY: the checker fails where another thread accesses it.
            self.inside.with_mut(|inside| unsafe { *inside += 1 });
        } else {
            // SAFETY: as above.
            self.inside.with(|inside| assert!(unsafe { *inside } < 3));
        }
        self.leave(lock);
    }

    /// Writes down who waits, as `write_down_waiter` of the engine's.
    fn write_down(&self, ticket: u32) {
        fence(Ordering::Release);
        self.waiter.swap(u64::from(ticket) << 32 | 1, Ordering::Relaxed);
        fence(Ordering::Acquire);
    }

    /// As `wake_waiter` of the engine's, and `crate::peer::Peer::notify`.
    fn wake(&self, ticket: u32) {
        fence(Ordering::Release);
        let waiter = self.waiter.fetch_add(0, Ordering::Relaxed);
        fence(Ordering::Acquire);
        if waiter == u64::from(ticket) << 32 | 1 {
            fence(Ordering::SeqCst);
            self.door.wake_if_asleep();
        }
    }
}

/// Every rank visits once; how many were alone is counted by those who were.
fn visits(claims: &'static [Claim]) {
    for (is_together, at_once) in [(false, false), (false, true), (true, true)] {
        // Of three there are too many for more.
        let switches = if claims.len() > 2 { 1 } else { 3 };
        check_with(switches, move || {
            let lock = Lock::new(is_together);
            let others: Vec<_> = (1u32..)
                .zip(&claims[1..])
                .map(|(rank, &claim)| {
                    let lock = Arc::clone(&lock);
                    thread::spawn(move || lock.visit(claim, rank, at_once))
                })
                .collect();
            lock.visit(claims[0], 0, at_once);
            others.into_iter().for_each(|other| other.join().unwrap());
            let alone = claims.iter().filter(|claim| **claim == Claim::Exclusive).count();
            // SAFETY: the other threads have ended.
            assert_eq!(lock.inside.with(|inside| unsafe { *inside }) as usize, alone);
            let gone = claims.iter().filter(|claim| **claim != Claim::Everywhere).count() as u64;
            assert_eq!(lock.change(Word::Holder, Atomic::Add(0)), 0);
            // Who tried to take it at once may have drawn one more.
            assert!(u64::from(Tickets(lock.change(Word::Tickets, Atomic::Add(0))).served()) >= gone);
        });
    }
}

#[test]
fn one_alone_at_a_time() {
    visits(&[Claim::Exclusive, Claim::Exclusive]);
}

#[test]
fn one_alone_keeps_out_who_shares() {
    visits(&[Claim::Exclusive, Claim::Shared]);
}

#[test]
fn one_alone_keeps_out_who_has_locked_all() {
    visits(&[Claim::Exclusive, Claim::Everywhere]);
}

#[test]
fn who_shares_is_in_beside_who_has_locked_all() {
    visits(&[Claim::Shared, Claim::Everywhere]);
}

#[test]
fn one_alone_keeps_out_both() {
    visits(&[Claim::Exclusive, Claim::Shared, Claim::Everywhere]);
}

/// Who waits, is written down, says that it sleeps, and looks once more: either it sees that its turn has come, or whoever
/// lets it in sees that it sleeps, and wakes it.
#[test]
fn whose_turn_has_come_does_not_sleep_on() {
    for held in [Claim::Exclusive, Claim::Shared] {
        check(move || {
            let lock = Lock::new(false);
            let holds = lock.take(held, Rank(1), false);
            let waiter = thread::spawn({
                let lock = Arc::clone(&lock);
                move || {
                    let mut waits = WordLock::asked(Claim::Exclusive, Rank(0));
                    lock.run(&mut waits);
                    if let Some(ticket) = waits.waits_with() {
                        lock.write_down(ticket);
                    }
                    let mut turn = 0;
                    // As the engine's `arm_wait`.
                    let may_sleep = waits.is_waiting() && bell::may_sleep(&*lock.door, &mut turn);
                    lock.look(&mut waits);
                    // Of who waits for the second word nobody is told, and it looks again by itself.
                    may_sleep && waits.waits_with().is_some()
                }
            });
            lock.leave(holds);
            let sleeps = waiter.join().unwrap();
            assert!(!sleeps || lock.door.is_rung(), "it sleeps, and nobody will wake it");
        });
    }
}

/// A word that neighbours tell each other by: who says that it sleeps and looks at it once more misses nothing.
#[test]
fn who_is_told_by_a_word_does_not_sleep_on() {
    check(|| {
        let (word, door) = (Arc::new(AtomicU64::new(0)), Door::new());
        let teller = thread::spawn({
            let (word, door) = (Arc::clone(&word), Arc::clone(&door));
            move || {
                for value in 1..=2 {
                    // As `crate::peer::Peer::tell_known`.
                    word.swap(value, Ordering::SeqCst);
                    fence(Ordering::SeqCst);
                    door.wake_if_asleep();
                }
            }
        });
        let (mut turn, mut sleeps) = (0, false);
        for _ in 0..2 {
            // As the engine's `arm_wait`.
            sleeps = bell::may_sleep(&*door, &mut turn) && word.load(Ordering::Acquire) != 2;
            if sleeps && !door.take_ring() {
                break;
            }
            sleeps = false;
        }
        teller.join().unwrap();
        assert!(!sleeps || door.is_rung(), "it sleeps, and nobody will wake it");
    });
}
