//! The machine against two words: every atomic is done where the test wants it.

use alloc::vec::Vec;

use super::*;

/// The two words, and locks that change them.
struct Line {
    words: [u64; 2],
    locks: Vec<WordLock>,
}

impl Line {
    fn new(ticket: u32, ranks: u32) -> Self {
        Self { words: [Tickets::free(ticket).0, 0], locks: (0..ranks).map(|_| WordLock::NONE).collect() }
    }

    fn ask(&mut self, rank: u32, claim: Claim) {
        assert!(self.locks[rank as usize].is_idle());
        self.locks[rank as usize] = WordLock::asked(claim, Rank(rank));
    }

    /// Does the next atomic of a rank to one word. `false`: there is none.
    fn act(&mut self, rank: u32, word: Word) -> bool {
        self.act_mourning(rank, word, false)
    }

    fn act_mourning(&mut self, rank: u32, word: Word, is_mourning: bool) -> bool {
        let lock = &mut self.locks[rank as usize];
        let Some(turn) = lock.poll(word, is_mourning) else { return false };
        lock.on_posted(word, turn);
        assert_eq!(lock.poll(word, is_mourning), None, "one at a time");
        let old = self.words[word as usize];
        self.words[word as usize] = match turn.atomic {
            Atomic::Add(number) => old.wrapping_add(number),
            Atomic::Swap(compare, new) if old == compare => new,
            Atomic::Swap(..) => old,
        };
        lock.on_done(word, old);
        true
    }

    /// One round of a rank's atomics, a look among them.
    fn step(&mut self, rank: u32) {
        self.act(rank, Word::Tickets);
        self.act(rank, Word::Holder);
    }

    fn is_held(&self, rank: u32) -> bool {
        self.locks[rank as usize].is_held()
    }

    fn release(&mut self, rank: u32) {
        self.locks[rank as usize].release();
        for _ in 0..2 {
            self.step(rank);
        }
        assert!(self.locks[rank as usize].is_idle());
    }

    fn tickets(&self) -> Tickets {
        Tickets(self.words[0])
    }
}

#[test]
fn nobody_in_the_way_is_one_round_trip() {
    for claim in [Claim::Shared, Claim::Exclusive, Claim::Everywhere] {
        let mut line = Line::new(0, 1);
        line.ask(0, claim);
        line.step(0);
        assert!(line.is_held(0), "{claim:?}");
        line.step(0);
        line.release(0);
        let gone = u32::from(claim != Claim::Everywhere);
        assert_eq!(line.words, [Tickets::free(gone).0, 0]);
    }
}

/// Does an atomic, and says what the word was before.
fn change(words: &mut [u64; 2], word: Word, atomic: Atomic) -> u64 {
    let old = words[word as usize];
    words[word as usize] = match atomic {
        Atomic::Add(number) => old.wrapping_add(number),
        Atomic::Swap(compare, new) if old == compare => new,
        Atomic::Swap(..) => old,
    };
    old
}

/// What is done at one go is what is done step by step, to which the rest of the tests is held; who lets somebody in says
/// whom, and goes on.
#[test]
fn one_go_is_what_its_steps_are() {
    let claims = [Claim::Shared, Claim::Exclusive, Claim::Everywhere];
    let drawn = |ticket| Tickets(Tickets::free(ticket).0.wrapping_add(Tickets::DRAW)).0;
    for ticket in [0, 5, Tickets::LAST] {
        let tickets = [Tickets::free(ticket).0, drawn(ticket), drawn(ticket).wrapping_add(Tickets::DRAW)];
        let words =
            tickets.into_iter().flat_map(|tickets| [0, 1, line::alone(Rank(7))].map(|h| [tickets, h]));
        for (before, claim) in words.flat_map(|words| claims.map(|claim| (words, claim))) {
            let mut one = (WordLock::asked(claim, Rank(3)), before);
            let mut other = one;
            for round in 0..2 {
                let (mut let_in, mut expected) = (Vec::new(), Vec::new());
                loop {
                    let (lock, words) = &mut one;
                    match lock.run::<()>(|word, atomic| Ok(change(words, word, atomic))) {
                        Ran::Over => break,
                        Ran::LetIn(ticket) => let_in.push(ticket),
                        refused => panic!("{refused:?}"),
                    }
                }
                let (lock, words) = &mut other;
                while let Some((word, turn)) = lock.poll_first(false) {
                    lock.on_posted(word, turn);
                    expected.extend(lock.on_done(word, change(words, word, turn.atomic)));
                }
                assert_eq!((one, let_in), (other, expected), "{claim:?} {before:?} {round}");
                // Somebody else has drawn a ticket meanwhile.
                for (lock, words) in [&mut one, &mut other] {
                    words[0] = words[0].wrapping_add(Tickets::DRAW);
                    lock.release();
                }
            }
        }
    }
}

/// Where one step cannot be done it is the one to be posted, and nothing else has changed.
#[test]
fn one_go_ends_where_a_step_is_refused() {
    for claim in [Claim::Shared, Claim::Exclusive, Claim::Everywhere] {
        for allowed in 0..4 {
            let (mut lock, mut words) = (WordLock::asked(claim, Rank(3)), [Tickets::free(0).0, 0]);
            let mut left = allowed;
            let mut run = |lock: &mut WordLock, left: &mut u32| {
                lock.run(|word, atomic| {
                    *left = left.checked_sub(1).ok_or(word)?;
                    Ok(change(&mut words, word, atomic))
                })
            };
            let mut ran = run(&mut lock, &mut left);
            if ran == Ran::Over {
                lock.release();
                ran = run(&mut lock, &mut left);
            }
            match ran {
                Ran::Refused(word, turn, refused) => {
                    assert_eq!((word, Some((word, turn))), (refused, lock.poll_first(false)));
                    assert!(!lock.is_busy() && !lock.is_settled());
                }
                ran => assert_eq!((ran, lock.is_idle()), (Ran::Over, true), "{claim:?} {allowed}"),
            }
        }
    }
}

#[test]
fn first_come_first_served() {
    let mut line = Line::new(Tickets::LAST - 1, 4);
    let claims = [Claim::Shared, Claim::Exclusive, Claim::Shared, Claim::Shared];
    for (rank, claim) in (0..).zip(claims) {
        line.ask(rank, claim);
        line.act(rank, Word::Tickets);
    }
    assert!(line.is_held(0) && !line.is_held(1) && !line.is_held(2));
    for _ in 0..3 {
        (0..4).for_each(|rank| line.step(rank));
    }
    assert!(line.is_held(0) && !line.is_held(1) && !line.is_held(2), "nobody passes who waits to be alone");
    line.release(0);
    (1..4).for_each(|rank| line.step(rank));
    line.step(1);
    assert!(line.is_held(1) && !line.is_held(2));
    line.release(1);
    line.step(2);
    assert!(line.is_held(2));
    line.step(2);
    line.step(3);
    assert!(line.is_held(2) && line.is_held(3), "both share it");
    line.release(3);
    line.release(2);
    assert_eq!(line.words, [Tickets::free(2).0, 0]);
}

/// Every number begins again several times, whoever comes when it does.
#[test]
fn numbers_begin_again() {
    for first in Tickets::LAST - 4..=Tickets::LAST {
        for claims in 0..32_u32 {
            let mut line = Line::new(first, 5);
            let claim_of = |rank: u32| if claims >> rank & 1 == 0 { Claim::Shared } else { Claim::Exclusive };
            for rank in 0..5 {
                line.ask(rank, claim_of(rank));
                line.act(rank, Word::Tickets);
            }
            let mut gone = 0;
            while gone < 5 {
                (0..5).for_each(|rank| line.step(rank));
                let held: Vec<u32> = (0..5).filter(|&rank| line.is_held(rank)).collect();
                assert!(!held.is_empty(), "first {first}, claims {claims:b}: {:?}", line.tickets());
                assert!(held.len() == 1 || held.iter().all(|&rank| claim_of(rank) == Claim::Shared));
                assert_eq!(held.first(), Some(&gone), "in the order of their coming");
                line.release(gone);
                gone += 1;
            }
            let next = (first + 5) & Tickets::LAST;
            assert_eq!(line.words, [Tickets::free(next).0, 0], "nothing is left in the guard bit");
        }
    }
}

#[test]
fn who_has_locked_all_passes_those_who_wait() {
    let mut line = Line::new(0, 4);
    line.ask(0, Claim::Everywhere);
    line.step(0);
    line.ask(1, Claim::Exclusive);
    (0..3).for_each(|_| line.step(1));
    assert!(line.is_held(0) && !line.is_held(1));
    line.ask(2, Claim::Everywhere);
    line.step(2);
    assert!(line.is_held(2), "rank 1 only waits");
    line.ask(3, Claim::Shared);
    line.step(3);
    assert!(!line.is_held(3), "holds nothing elsewhere, and waits its turn");
    line.release(0);
    line.step(1);
    assert!(!line.is_held(1));
    line.release(2);
    line.step(1);
    assert!(line.is_held(1));
    line.ask(0, Claim::Everywhere);
    (0..3).for_each(|_| line.step(0));
    assert!(!line.is_held(0), "alone is alone");
    line.release(1);
    line.step(0);
    line.step(3);
    assert!(line.is_held(0) && line.is_held(3));
}

#[test]
fn a_word_that_came_early_is_given_back() {
    let mut line = Line::new(7, 3);
    line.ask(0, Claim::Shared);
    line.step(0);
    line.ask(1, Claim::Exclusive);
    line.ask(2, Claim::Exclusive);
    line.act(1, Word::Tickets);
    // The second has the word first.
    line.act(2, Word::Holder);
    line.act(2, Word::Tickets);
    line.act(1, Word::Holder);
    line.release(0);
    line.act(1, Word::Tickets);
    line.act(1, Word::Holder);
    assert!(!line.is_held(1));
    line.act(2, Word::Holder);
    assert_eq!(line.words[1], 0);
    line.act(1, Word::Holder);
    assert!(line.is_held(1));
    line.release(1);
    line.step(2);
    assert!(line.is_held(2));
}

#[test]
fn the_turn_that_comes_while_the_word_goes_back_is_kept() {
    let mut line = Line::new(0, 2);
    line.ask(0, Claim::Shared);
    line.step(0);
    line.ask(1, Claim::Exclusive);
    line.step(1);
    line.release(0);
    let lock = &mut line.locks[1];
    let back = lock.poll(Word::Holder, false).unwrap();
    lock.on_posted(Word::Holder, back);
    line.act(1, Word::Tickets);
    assert!(!line.is_held(1), "the word is on its way back");
    let old = core::mem::replace(&mut line.words[1], 0);
    line.locks[1].on_done(Word::Holder, old);
    line.step(1);
    assert!(line.is_held(1));
}

#[test]
fn what_is_remembered_is_enough_to_leave() {
    for ticket in [0, Tickets::LAST] {
        for claim in [Claim::Shared, Claim::Exclusive, Claim::Everywhere] {
            let mut line = Line::new(ticket, 1);
            line.ask(0, claim);
            line.step(0);
            line.step(0);
            assert!(line.locks[0].is_settled() && line.is_held(0));
            line.locks[0] = WordLock::resumed(claim, Rank(0), line.locks[0].memo());
            line.release(0);
            let gone = u32::from(claim != Claim::Everywhere);
            assert_eq!(line.words, [Tickets::free((ticket + gone) & Tickets::LAST).0, 0]);
        }
    }
    assert!(WordLock::resumed(Claim::Shared, Rank(0), WordLock::NONE.memo()).is_idle());
}

/// Wherever giving back stops, what is remembered then is what is left to be given back.
#[test]
fn what_is_remembered_of_half_a_release_is_the_other_half() {
    for ticket in [0, Tickets::LAST] {
        for (claim, allowed) in
            [(Claim::Shared, 0), (Claim::Everywhere, 0), (Claim::Exclusive, 0), (Claim::Exclusive, 1)]
        {
            let mut line = Line::new(ticket, 1);
            line.ask(0, claim);
            line.step(0);
            line.step(0);
            let lock = &mut line.locks[0];
            lock.release();
            let mut left = allowed;
            let ran = lock.run::<()>(|word, atomic| {
                left = u32::checked_sub(left, 1).ok_or(())?;
                Ok(change(&mut line.words, word, atomic))
            });
            assert!(matches!(ran, Ran::Refused(..)), "{claim:?}");
            let memo = lock.memo();
            assert_eq!(memo == Memo::Noted, allowed == 1);
            line.locks[0] = WordLock::resumed(claim, Rank(0), memo);
            assert!(line.is_held(0) && line.locks[0].is_settled() && line.locks[0].memo() == memo);
            line.release(0);
            let gone = u32::from(claim != Claim::Everywhere);
            assert_eq!(line.words, [Tickets::free((ticket + gone) & Tickets::LAST).0, 0]);
        }
    }
}

/// Who draws a ticket, and finds that somebody has locked all, waits with it.
#[test]
fn a_ticket_is_remembered() {
    let mut line = Line::new(3, 2);
    line.ask(1, Claim::Everywhere);
    line.step(1);
    line.words[0] = line.words[0].wrapping_add(Tickets::DRAW);
    line.locks[0] = WordLock::resumed(Claim::Exclusive, Rank(0), Memo::Drawn);
    (0..3).for_each(|_| line.step(0));
    assert!(line.locks[0].is_waiting() && line.is_held(1));
    line.release(1);
    line.step(0);
    assert!(line.is_held(0));
    line.release(0);
    assert_eq!(line.words, [Tickets::free(4).0, 0]);
    // Who cannot wait passes its turn on.
    line.words[0] = line.words[0].wrapping_add(Tickets::DRAW);
    line.locks[0] = WordLock::resumed(Claim::Exclusive, Rank(0), Memo::Drawn);
    line.locks[0].forgo();
    line.step(0);
    assert!(line.locks[0].is_idle());
    assert_eq!(line.words, [Tickets::free(5).0, 0]);
}

#[test]
fn who_no_longer_waits_leaves_when_the_turn_comes() {
    let mut line = Line::new(0, 3);
    line.ask(0, Claim::Exclusive);
    line.step(0);
    line.ask(1, Claim::Exclusive);
    line.step(1);
    line.locks[1].abandon();
    line.ask(2, Claim::Exclusive);
    line.step(2);
    line.release(0);
    (0..3).for_each(|_| line.step(1));
    assert!(line.locks[1].is_idle());
    line.step(2);
    assert!(line.is_held(2));
}

/// Looks of a rank that waits, until it knows that nobody will let it in. `None`: it goes on waiting.
fn looks_until_lost(line: &mut Line, rank: u32, dead: u32) -> Option<u32> {
    looks_until_lost_in(10, line, rank, dead)
}

fn looks_until_lost_in(looks: u32, line: &mut Line, rank: u32, dead: u32) -> Option<u32> {
    for look in 1..=looks {
        line.act_mourning(rank, Word::Tickets, true);
        line.act_mourning(rank, Word::Holder, true);
        line.locks[rank as usize].on_time(WordLock::PATIENCE);
        match line.locks[rank as usize].find_out(|rank| rank != Rank(dead)) {
            Verdict::Waits => {}
            Verdict::Late(_) => return Some(look),
            Verdict::Lost => {
                assert!(line.locks[rank as usize].is_lost());
                return Some(look);
            }
        }
    }
    None
}

/// The holder has gone, and the next one sleeps: whoever is behind it looks as often as it likes, and only time counts in
/// which it looked and nothing has changed.
#[test]
fn looks_are_no_time() {
    let mut line = Line::new(0, 3);
    line.ask(0, Claim::Exclusive);
    line.step(0);
    for rank in [1, 2] {
        line.ask(rank, Claim::Exclusive);
        line.step(rank);
    }
    line.release(0);
    let look = |line: &mut Line| {
        line.act_mourning(2, Word::Tickets, true);
        line.act_mourning(2, Word::Holder, true);
        line.locks[2].find_out(|rank| rank != Rank(9))
    };
    for _ in 0..1000 {
        assert_eq!(look(&mut line), Verdict::Waits);
    }
    // Time in which it does not look is not its time.
    (0..100).for_each(|_| line.locks[2].on_time(1));
    assert_eq!(look(&mut line), Verdict::Waits);
    for _ in 1..WordLock::PATIENCE - 1 {
        line.locks[2].on_time(1);
        assert_eq!(look(&mut line), Verdict::Waits);
    }
    line.locks[2].on_time(1);
    assert_eq!(look(&mut line), Verdict::Late(1), "rank 1 has that ticket");
    // It wakes, and all begins anew.
    (0..2).for_each(|_| line.step(1));
    assert!(line.is_held(1));
    (0..1000).for_each(|_| assert_eq!(look(&mut line), Verdict::Waits));
    line.locks[2].on_time(1);
    line.release(1);
    (0..3).for_each(|_| line.step(2));
    assert!(line.is_held(2));
}

/// A dead holder's ticket does not move because others come and go under lock_all.
#[test]
fn lock_all_is_no_sign_of_life_of_who_has_a_ticket() {
    let mut line = Line::new(0, 3);
    line.ask(0, Claim::Shared);
    line.step(0);
    line.ask(1, Claim::Exclusive);
    (0..3).for_each(|_| line.step(1));
    for _ in 0..4 {
        for is_coming in [true, false] {
            if is_coming {
                line.ask(2, Claim::Everywhere);
            } else {
                line.release(2);
            }
            line.step(2);
            if looks_until_lost_in(1, &mut line, 1, 0).is_some() {
                return;
            }
        }
    }
    panic!("it is waited for without end");
}

/// Even one that is known to live is not waited for without end: it may have given up itself.
#[test]
fn who_is_late_for_long_is_lost() {
    let mut line = Line::new(0, 2);
    line.ask(0, Claim::Shared);
    line.step(0);
    line.ask(1, Claim::Exclusive);
    line.step(1);
    let mut late = 0;
    for _ in 0..u8::MAX {
        line.act_mourning(1, Word::Tickets, true);
        line.act_mourning(1, Word::Holder, true);
        match line.locks[1].find_out(|rank| rank != Rank(0)) {
            Verdict::Waits => assert_eq!(late, 0),
            Verdict::Late(ticket) => {
                assert_eq!(ticket, 0);
                late += 1;
            }
            Verdict::Lost => break,
        }
        line.locks[1].on_time(1);
    }
    assert!(late > 0 && line.locks[1].is_lost());
}

#[test]
fn what_the_dead_hold_is_lost() {
    for held in [Claim::Shared, Claim::Exclusive, Claim::Everywhere] {
        for claim in [Claim::Shared, Claim::Exclusive, Claim::Everywhere] {
            let mut line = Line::new(0, 3);
            line.ask(0, held);
            line.step(0);
            line.ask(1, claim);
            line.step(1);
            let excludes = held == Claim::Exclusive || claim == Claim::Exclusive;
            let lost = if line.is_held(1) { None } else { looks_until_lost(&mut line, 1, 0) };
            let passes = held == Claim::Shared && claim == Claim::Shared;
            assert_eq!(lost.is_some(), excludes || passes, "{held:?} {claim:?}");
        }
    }
}

#[test]
fn the_living_are_waited_for() {
    let mut line = Line::new(0, 3);
    line.ask(0, Claim::Exclusive);
    line.step(0);
    for (rank, claim) in [(1, Claim::Exclusive), (2, Claim::Everywhere)] {
        line.ask(rank, claim);
        line.step(rank);
        assert_eq!(looks_until_lost(&mut line, rank, 99), None);
    }
    line.locks[2].lose();
    line.locks[2] = WordLock::NONE;
    line.words[1] -= 1;
    line.release(0);
    line.act_mourning(1, Word::Tickets, true);
    line.act_mourning(1, Word::Holder, true);
    line.act_mourning(1, Word::Holder, true);
    assert!(line.is_held(1));
}

/// Every rank asks again as soon as it has left: between two turns of one, every other one has had its own.
#[test]
fn nobody_is_passed_twice() {
    const RANKS: u32 = 5;
    for writers in 1..(1_u32 << RANKS) {
        let mut line = Line::new(Tickets::LAST - 20, RANKS);
        let claim_of = |rank: u32| if writers >> rank & 1 == 0 { Claim::Shared } else { Claim::Exclusive };
        let mut turns = [0_u32; RANKS as usize];
        (0..RANKS).for_each(|rank| line.ask(rank, claim_of(rank)));
        for _ in 0..200 {
            for rank in 0..RANKS {
                line.step(rank);
                if line.is_held(rank) {
                    turns[rank as usize] += 1;
                    line.release(rank);
                    line.ask(rank, claim_of(rank));
                }
                let (least, most) = (turns.iter().min(), turns.iter().max());
                let ahead = most.zip(least).map(|(most, least)| most - least);
                assert!(ahead.is_some_and(|ahead| ahead <= 2), "writers {writers:b}: {turns:?}");
            }
        }
        assert!(turns.iter().all(|&turns| turns > 10), "{turns:?}");
    }
}

#[test]
fn who_leaves_or_passes_says_whose_turn_may_have_come() {
    for ticket in [0, Tickets::LAST - 1, Tickets::LAST] {
        let after = |count: u32| (ticket + count) & Tickets::LAST;
        let mut line = Line::new(ticket, 4);
        let step = |line: &mut Line, rank: usize, word| {
            let turn = line.locks[rank].poll(word, false).unwrap();
            line.locks[rank].on_posted(word, turn);
            let old = line.words[word as usize];
            let Atomic::Add(number) = turn.atomic else { panic!("{turn:?}") };
            line.words[word as usize] = old.wrapping_add(number);
            line.locks[rank].on_done(word, old)
        };
        line.ask(0, Claim::Shared);
        assert_eq!(step(&mut line, 0, Word::Tickets), None);
        assert!(line.is_held(0));
        assert_eq!(step(&mut line, 0, Word::Tickets), None, "nobody has drawn the next ticket");
        line.ask(1, Claim::Shared);
        line.ask(2, Claim::Exclusive);
        line.ask(3, Claim::Exclusive);
        (1..4).for_each(|rank| assert_eq!(step(&mut line, rank, Word::Tickets), None));
        assert_eq!(line.locks[1].waits_with(), None);
        assert_eq!(line.locks[2].waits_with(), Some(after(2)));
        assert_eq!(step(&mut line, 1, Word::Tickets), Some(after(2)), "it lets the next in");
        // The one that came last goes first: the exclusive one's turn comes with the other.
        line.locks[1].release();
        assert_eq!(step(&mut line, 1, Word::Tickets), Some(after(1)));
        line.locks[0].release();
        assert_eq!(step(&mut line, 0, Word::Tickets), Some(after(2)));
        line.step(2);
        line.step(2);
        assert!(line.is_held(2));
        line.locks[2].release();
        assert_eq!(step(&mut line, 2, Word::Tickets), Some(after(3)));
    }
}
