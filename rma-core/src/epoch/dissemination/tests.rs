//! Barriers among ranks in one thread, their packets in any order.

use super::*;
use alloc::vec::Vec;

fn drive<const K: usize>(ranks: &mut [Dissemination<K>], order: &mut impl FnMut(usize) -> usize) {
    let mut wire: Vec<Round<K>> = Vec::new();
    loop {
        for rank in ranks.iter_mut() {
            while let Some(round) = rank.poll_send() {
                rank.on_sent(round.sequence);
                wire.push(round);
            }
        }
        if wire.is_empty() {
            return;
        }
        let round = wire.swap_remove(order(wire.len()));
        assert!(ranks[round.to.index()].on_round(round.sequence, round.round, round.purposes, round.values));
    }
}

#[test]
fn the_maximum_and_all_bits_reach_everybody_for_any_size() {
    for size in 1..40u32 {
        let mut ranks: Vec<_> = (0..size).map(|rank| Dissemination::<2>::new(Rank(rank), size)).collect();
        let mut state = u64::from(size);
        for sequence in 1..4u32 {
            for (index, rank) in ranks.iter_mut().enumerate() {
                let values = [index as u64 * u64::from(sequence), 1 << (index as u64 + u64::from(sequence))];
                assert_eq!(rank.start(Purposes::NONE, values), Some(sequence));
            }
            drive(&mut ranks, &mut |len| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                (state >> 33) as usize % len
            });
            for rank in &ranks {
                assert!(rank.is_complete(sequence));
                let all_bits = ((1 << size) - 1) << sequence;
                assert_eq!(rank.values(), &[u64::from((size - 1) * sequence), all_bits]);
            }
        }
    }
}

/// Nobody's sequence is taken for another's.
#[test]
fn who_has_left_begins_none() {
    let mut rank = Dissemination::<0>::new(Rank(1), 2);
    let sequence = rank.start(Purposes::NONE, []).unwrap();
    rank.leave();
    assert!(
        rank.on_round(sequence, 0, Purposes::NONE, []) && rank.on_round(sequence + 1, 0, Purposes::NONE, [])
    );
    rank.on_sent(sequence);
    assert!(rank.is_complete(sequence), "what was begun goes on");
    assert_eq!(rank.start(Purposes::NONE, []), None);
    assert!(!rank.is_complete(sequence + 1));
}

#[test]
fn later_rounds_of_a_held_sequence_wait_for_its_release() {
    let mut rank = Dissemination::<0>::new(Rank(1), 4);
    let sequence = rank.start_held(Purposes::NONE, []).unwrap();
    let first = rank.poll_send().unwrap();
    assert_eq!((first.to, first.round), (Rank(2), 0));
    rank.on_sent(sequence);
    assert!(rank.on_round(sequence, 0, Purposes::NONE, []) && rank.on_round(sequence, 1, Purposes::NONE, []));
    assert_eq!(rank.poll_send(), None);
    assert!(!rank.is_complete(sequence));
    rank.release(sequence);
    assert_eq!(rank.poll_send().unwrap().to, Rank(3));
    rank.on_sent(sequence);
    assert!(rank.is_complete(sequence));
    // Of another sequence nothing was held.
    let next = rank.start(Purposes::NONE, []).unwrap();
    rank.on_sent(next);
    assert!(rank.on_round(next, 0, Purposes::NONE, []));
    assert_eq!(rank.poll_send().unwrap().round, 1);
}

/// Shows: seed: PROC_SYNC.
#[test]
fn nobody_completes_before_the_last_one_starts() {
    let mut ranks: Vec<_> = (0..5).map(|rank| Dissemination::<1>::new(Rank(rank), 5)).collect();
    for rank in &mut ranks[..4] {
        assert_eq!(rank.start(Purposes::NONE, [1]), Some(1));
        assert_eq!(rank.start(Purposes::NONE, [1]), Some(2));
        assert_eq!(rank.start(Purposes::NONE, [1]), None, "a third one has to wait");
    }
    drive(&mut ranks, &mut |_| 0);
    assert!(ranks.iter().all(|rank| !rank.is_complete(1)));
    assert_eq!(ranks[4].start(Purposes::NONE, [1]), Some(1));
    drive(&mut ranks, &mut |_| 0);
    assert!(ranks.iter().all(|rank| rank.is_complete(1) && !rank.is_complete(2)));
}

#[test]
fn who_is_awaited_is_who_tells_next() {
    for size in 1..20u32 {
        let mut ranks: Vec<_> = (0..size).map(|rank| Dissemination::<0>::new(Rank(rank), size)).collect();
        assert!(ranks.iter().all(|rank| rank.awaited().is_none()), "nothing is started");
        ranks.iter_mut().for_each(|rank| assert_eq!(rank.start(Purposes::NONE, []), Some(1)));
        while !ranks[0].is_complete(1) {
            let awaited: Vec<_> = ranks.iter().map(Dissemination::awaited).collect();
            for at in 0..ranks.len() {
                let round = ranks[at].poll_send().unwrap();
                ranks[at].on_sent(round.sequence);
                let to = round.to.index();
                assert_eq!(awaited[to], Some(Rank(at as u32)), "rank {to} of {size}");
                assert!(ranks[to].on_round(round.sequence, round.round, Purposes::NONE, []));
            }
        }
        assert!(ranks.iter().all(|rank| rank.is_complete(1)));
    }
}

#[test]
fn nonsense_is_refused() {
    let mut rank = Dissemination::<1>::new(Rank(0), 4);
    assert!(!rank.on_round(0, 0, Purposes::NONE, [0]));
    assert!(!rank.on_round(1 + SLOTS as u32, 0, Purposes::NONE, [0]));
    assert!(!rank.on_round(1, 2, Purposes::NONE, [0]));
    assert!(!rank.on_round(1, 40, Purposes::NONE, [0]));
    assert!(rank.on_round(1, 1, Purposes::NONE, [0]));
    assert!(!rank.on_round(1, 1, Purposes::NONE, [0]), "twice");
}

/// Some partners are told by words, which the others look at now and then, and some by packets: nobody is through before
/// everybody has come, and everybody gets through.
#[test]
fn words_and_packets_are_one_barrier() {
    let mut random = 1u64;
    let mut chance = |of: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        (random >> 33) % of
    };
    for size in 2..20u32 {
        let mut ranks: Vec<_> = (0..size).map(|rank| Dissemination::<0>::new(Rank(rank), size)).collect();
        let near = 1 + chance(size.into()) as u32;
        let mut words = alloc::vec![[0u64; 5]; size as usize];
        let (mut started, mut wire) = (alloc::vec![0u32; size as usize], Vec::<Round<0>>::new());
        while ranks.iter().any(|rank| rank.progress() != (6, 6)) {
            let at = chance(size.into()) as usize;
            if started[at] < 6 && chance(2) == 0 {
                started[at] += u32::from(ranks[at].start(Purposes::NONE, []).is_some());
            }
            ranks[at].hear(|round| words[at][usize::from(round)]);
            while let Some(round) = ranks[at].poll_send() {
                ranks[at].on_sent(round.sequence);
                if at as u32 / near == round.to.0 / near {
                    words[round.to.index()][usize::from(round.round)] += 1;
                } else {
                    wire.push(round);
                }
            }
            if !wire.is_empty() && chance(2) == 0 {
                let round = wire.swap_remove(chance(wire.len() as u64) as usize);
                assert!(ranks[round.to.index()].on_round(round.sequence, round.round, Purposes::NONE, []));
            }
            let last = ranks.iter().map(|rank| rank.progress().1).max();
            assert!(last <= started.iter().min().copied(), "through before everybody has come");
        }
    }
}

/// A rank hears its words, and tells: its neighbours, `near` ranks in a row, by words, the others by packets.
fn hear_and_tell(
    ranks: &mut [Dissemination<0>],
    at: usize,
    near: u32,
    words: &mut [[u64; 5]],
    wire: &mut Vec<Round<0>>,
) {
    ranks[at].hear(|round| words[at][usize::from(round)]);
    while let Some(round) = ranks[at].poll_send() {
        if at as u32 / near == round.to.0 / near {
            words[round.to.index()][usize::from(round.round)] = ranks[at].told_of(round.round);
        } else {
            wire.push(round);
        }
        ranks[at].on_sent(round.sequence);
    }
}

/// Some come for a fence and some to free the window, told by words and by packets, with sequences ahead of that: all know it
/// when the sequence is complete, and nobody sees it where all have come for one thing.
#[test]
fn who_has_come_for_something_else_is_known_to_all() {
    let mut random = 7u64;
    let mut chance = |of: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        (random >> 33) % of
    };
    for _ in 0..3000 {
        let size = 2 + chance(9) as u32;
        let mut ranks: Vec<_> = (0..size).map(|rank| Dissemination::<0>::new(Rank(rank), size)).collect();
        let near = 1 + chance(size.into()) as u32;
        let mut words = alloc::vec![[0u64; 5]; size as usize];
        let mut wire = Vec::<Round<0>>::new();
        let (fences, is_mixed) = (chance(4), chance(2) == 0);
        // Who frees after so many fences, and who begins one more.
        let (first, some) = (chance(size.into()), 1 + chance(u64::from(size) - 1));
        let frees = |at: usize| !is_mixed || (at as u64 + u64::from(size) - first) % u64::from(size) < some;
        while ranks.iter().any(|rank| u64::from(rank.progress().1) <= fences) {
            let at = chance(size.into()) as usize;
            let begun = u64::from(ranks[at].progress().0);
            let is_last = begun == fences;
            if chance(2) == 0 && (begun < fences || is_last) {
                let purpose = if is_last && frees(at) { Purposes::FREE } else { Purposes::FENCE };
                ranks[at].start(purpose, []);
            } else if chance(3) == 0 && begun == fences + 1 && !frees(at) {
                // A fence that waits for nobody is behind it.
                ranks[at].start(Purposes::FENCE, []);
            }
            hear_and_tell(&mut ranks, at, near, &mut words, &mut wire);
            if !wire.is_empty() && chance(2) == 0 {
                let round = wire.swap_remove(chance(wire.len() as u64) as usize);
                let to = &mut ranks[round.to.index()];
                assert!(to.on_round(round.sequence, round.round, round.purposes, []));
            }
            let early = ranks.iter().any(|rank| rank.is_mixed() && u64::from(rank.progress().1) <= fences);
            assert!(!early, "known before the sequence is complete");
        }
        assert!(ranks.iter().all(|rank| rank.is_mixed() == is_mixed), "{size} ranks, {fences} fences");
        assert!(ranks.iter_mut().all(|rank| !is_mixed || rank.start(Purposes::FENCE, []).is_none()));
    }
}

/// Whose partner tells it by packets has a word that says what it said long ago, or nothing.
#[test]
fn no_word_is_heard_when_sequences_begin_again() {
    for stale in [0, 2] {
        let mut rank = Dissemination::<0>::new(Rank(0), 2);
        let first = (1 << 32) - 6;
        (rank.started, rank.completed) = (first, first);
        for sequence in first + 1..first + 16 {
            assert_eq!(rank.start(Purposes::NONE, []), Some(sequence as u32));
            while let Some(round) = rank.poll_send() {
                rank.on_sent(round.sequence);
            }
            assert_eq!(rank.hear(|_| stale), 0, "sequence {sequence:#x}, the word says {stale}");
            assert!(!rank.is_complete(sequence as u32));
            match sequence % 2 {
                0 => assert!(rank.on_round(sequence as u32, 0, Purposes::NONE, [])),
                _ => assert_eq!(rank.hear(|_| sequence), 1, "sequence {sequence:#x}"),
            }
            assert!(rank.is_complete(sequence as u32) && !rank.is_running());
        }
    }
}

#[test]
fn whatever_words_say_is_bounded() {
    let mut rank = Dissemination::<0>::new(Rank(0), 4);
    assert_eq!(rank.hear(|_| 1), 0, "nothing is started");
    rank.start(Purposes::NONE, []);
    for nonsense in [0, 1 + SLOTS as u64, 1 << 32 | 1, u64::MAX, 1 << 63] {
        assert_eq!(rank.hear(|_| nonsense), 0);
    }
    assert_eq!(rank.hear(|_| 4), 2, "who is ahead has told of this one, too");
    assert_eq!(rank.hear(|_| 4), 0, "once");
    while let Some(round) = rank.poll_send() {
        rank.on_sent(round.sequence);
    }
    assert_eq!(rank.progress(), (1, 1), "nothing that was not started is complete");
}

/// A rank is lost to one, which ends its part and is silent from there on: the others come to an end
/// and know which one it is, whatever they had told, if who hears it tells all its partners.
#[test]
fn all_come_to_an_end_when_a_rank_is_lost_to_one() {
    let mut random = 11u64;
    let mut chance = |of: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        (random >> 33) % of
    };
    for _ in 0..3000 {
        let size = 2 + chance(9) as u32;
        let mut ranks: Vec<_> = (0..size).map(|rank| Dissemination::<0>::new(Rank(rank), size)).collect();
        let near = 1 + chance(size.into()) as u32;
        let mut words = alloc::vec![[0u64; 5]; size as usize];
        let (mut wire, mut losses) = (Vec::<Round<0>>::new(), Vec::<(Rank, Rank)>::new());
        // One is slow: nobody passes what it has not come to.
        let (slow, mut began) = (chance(size.into()) as usize, alloc::vec![0u32; size as usize]);
        let (loser, mut steps) = (chance(size.into()) as usize, 1 + chance(60));
        let lost = Rank(chance(size.into()) as u32);
        let mut turns = 0;
        while (0..size as usize).any(|at| at != loser && !ranks[at].is_broken()) {
            turns += 1;
            assert!(turns < 20_000, "somebody waits for ever: {size} ranks, near {near}, loser {loser}");
            let at = chance(size.into()) as usize;
            if at == loser && steps == 0 {
                continue;
            }
            steps -= u64::from(at == loser);
            let hears = losses.iter().position(|(to, _)| to.index() == at);
            let said = hears.filter(|_| chance(3) == 0).map(|hears| losses.swap_remove(hears).1);
            if let Some(said) = said.or_else(|| (at == loser && steps == 0).then_some(lost)) {
                if ranks[at].lose(said) {
                    losses.extend((0..ranks[at].rounds()).map(|round| (ranks[at].partner(round), said)));
                }
            }
            if chance(if at == slow { 40 } else { 2 }) == 0 {
                began[at] += u32::from(ranks[at].start(Purposes::FENCE, []).is_some());
            }
            hear_and_tell(&mut ranks, at, near, &mut words, &mut wire);
            if !wire.is_empty() && chance(2) == 0 {
                let round = wire.swap_remove(chance(wire.len() as u64) as usize);
                let to = &mut ranks[round.to.index()];
                assert!(to.on_round(round.sequence, round.round, round.purposes, []));
            }
            let (least, passed) = (began.iter().min(), ranks.iter().map(|rank| rank.progress().1).max());
            assert!(passed.as_ref() <= least, "through before everybody has come: {size} ranks, near {near}");
        }
        assert!(ranks.iter().all(|rank| !rank.is_running() && rank.lost() == Some(lost)));
    }
}
