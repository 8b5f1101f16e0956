//! Who sends on which lane of an endpoint.
//!
//! Senders claim lanes by themselves, with one compare-and-swap, and the owner is not asked. Who comes again
//! takes its own lane again, so that packets keep their order; a lane is another's only when it is empty and
//! its sender has closed it or died.

use core::sync::atomic::Ordering;

use crate::address::Identity;
use crate::guard::Busy;
use crate::head::{Claim, ClaimState, Head, Pipe};
use crate::process::own_number;

/// Claims a lane of the endpoint for `me`. `None`: all are in use.
pub(crate) fn claim(head: &Head, me: Identity, bell: Pipe) -> Option<usize> {
    let used = head.lanes_used();
    let is_mine = |claim: Claim| {
        // One of the same name that is open was a process's that has died.
        claim.by == me && matches!(claim.state, ClaimState::Open | ClaimState::Closed)
    };
    let is_free = |claim: Claim| claim.state == ClaimState::Free;
    let found = (0..used)
        .find_map(|lane| take(head, lane, me, is_mine))
        .or_else(|| (0..used).find_map(|lane| take(head, lane, me, is_free)))
        .or_else(|| {
            (used..head.shape.lanes).find_map(|lane| {
                head.use_lanes(lane + 1);
                take(head, lane, me, is_free)
            })
        })
        .or_else(|| (0..head.shape.lanes).find_map(|lane| take_over(head, lane, me)));
    let (lane, turn) = found?;
    // Of a sender that died during an access the word would stay odd. It may be any number.
    let busy = head.busy(lane);
    let word = busy.word();
    busy.set(word.wrapping_add(word & 1));
    head.set_sender_bell(lane, bell);
    head.set_sender_number(lane, turn, own_number());
    // Whoever begins here does nothing yet: a turn of this name is that of a process that has died.
    head.give_turns(me);
    Some(lane)
}

/// Takes a lane whose sender is gone and has left nothing.
fn take_over(head: &Head, lane: usize, me: Identity) -> Option<(usize, u16)> {
    let mut last = None;
    let taken = take(head, lane, me, |claim| {
        // Who has closed it lives on, and may have taken a turn elsewhere.
        last = (claim.state == ClaimState::Open).then_some(claim.by);
        let is_left = match claim.state {
            ClaimState::Closed => true,
            ClaimState::Open => !head.is_sender_running(lane, claim),
            ClaimState::Free | ClaimState::Broken => false,
        };
        if is_left && !head.is_drained(lane) {
            // What was published may have been left without a mark.
            crate::bell::Bell::mark(head, lane);
            return false;
        }
        is_left
    });
    if let (Some(_), Some(last)) = (taken, last) {
        // Who it was can be told from a later process of that number by its lane alone.
        head.give_turns(last);
    }
    taken
}

/// The lane, and the count of its changes.
fn take(head: &Head, lane: usize, me: Identity, may: impl FnOnce(Claim) -> bool) -> Option<(usize, u16)> {
    let word = head.claim(lane);
    let seen = word.load(Ordering::Acquire);
    let claim = Claim::decode(seen);
    let mine = Claim { state: ClaimState::Open, by: me, turn: claim.turn.wrapping_add(1) };
    let is_taken =
        may(claim) && word.compare_exchange(seen, mine.encode(), Ordering::AcqRel, Ordering::Relaxed).is_ok();
    is_taken.then_some((lane, mine.turn))
}

/// The sender leaves its lane.
pub(crate) fn close(head: &Head, lane: usize, me: Identity) {
    change(head, lane, |claim| claim.state == ClaimState::Open && claim.by == me, ClaimState::Closed);
}

/// The reader gives up a lane for ever.
pub(crate) fn break_off(head: &Head, lane: usize) -> Claim {
    change(head, lane, |_| true, ClaimState::Broken)
}

fn change(head: &Head, lane: usize, may: impl Fn(Claim) -> bool, state: ClaimState) -> Claim {
    let changed = head.claim(lane).fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
        let claim = Claim::decode(word);
        let next = Claim { state, turn: claim.turn.wrapping_add(1), ..claim };
        may(claim).then(|| next.encode())
    });
    Claim::decode(changed.unwrap_or_else(|word| word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bell::Bell;
    use crate::head::Shape;
    use crate::mapping::{new_file, Mapping};
    use crate::ring::{Reader, Writer};

    const BELL: Pipe = Pipe { fd: 3, inode: 4 };

    fn head(lanes: usize) -> Head {
        let shape = Shape { lanes, regions: 1, ring_bytes: 1024, packet_bytes: 512 };
        let file = new_file("rma-shm-test", shape.total_bytes()).unwrap();
        Head::new(Mapping::new(&file, 0, shape.total_bytes()).unwrap(), shape)
    }

    fn body(head: &Head, lane: usize) -> *mut u8 {
        head.mapping.at(head.shape.body_at(lane), head.shape.body_bytes())
    }

    /// The number of a process that has ended.
    fn ended() -> u32 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    #[test]
    fn who_comes_again_gets_its_own_lane() {
        let head = head(4);
        let [one, other] = [Identity::new(), Identity::new()];
        assert_eq!(claim(&head, one, BELL), Some(0));
        assert_eq!(claim(&head, other, BELL), Some(1));
        assert_eq!(head.lanes_used(), 2);
        close(&head, 0, other);
        assert_eq!(Claim::decode(head.claim(0).load(Ordering::Relaxed)).state, ClaimState::Open);
        close(&head, 0, one);
        close(&head, 1, other);
        assert_eq!(claim(&head, other, BELL), Some(1));
        assert_eq!(claim(&head, one, Pipe { fd: 9, inode: 9 }), Some(0));
        assert_eq!(head.sender_bell(0), Pipe { fd: 9, inode: 9 });
    }

    #[test]
    fn a_lane_is_anothers_when_it_is_empty() {
        let head = head(1);
        let [one, other] = [Identity::new(), Identity::new()];
        assert_eq!(claim(&head, one, BELL), Some(0));
        assert_eq!(claim(&head, other, BELL), None, "in use");
        let ring = head.ring(0, 1, body(&head, 0));
        assert_eq!(Writer::new(&ring).push(&ring, [b"left", b""]), Ok(true));
        close(&head, 0, one);
        assert_eq!(claim(&head, other, BELL), None, "not read");
        assert!(head.is_marked(), "what has no mark gets one");
        assert_eq!(Reader::new().pop(&ring, &mut [0; 512]), Ok(Some(4)));
        assert_eq!(claim(&head, other, BELL), Some(0));
    }

    /// A process that has the number of a dead one is not taken for it; and without what tells them apart the number counts.
    #[test]
    fn a_number_that_another_process_has_now_is_no_life() {
        let head = head(1);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = crate::process::watch(child.id()).unwrap();
        let Some(number) = crate::process::number_of(&process) else {
            // This kernel does not tell them apart.
            child.kill().unwrap();
            child.wait().unwrap();
            return;
        };
        let (sender, me) = (Identity { pid: child.id(), serial: 3 }, Identity::new());
        assert_eq!(claim(&head, sender, BELL), Some(0));
        let turn = Claim::decode(head.claim(0).load(Ordering::Relaxed)).turn;
        assert!(head.take_turn(sender));
        for (number, turn) in [(Some(number), turn), (None, turn), (Some(number - 1), turn.wrapping_sub(9))] {
            head.set_sender_number(0, turn, number);
            assert_eq!(claim(&head, me, BELL), None, "its sender runs");
            assert!(!head.take_turn(me));
        }
        // The sender was an earlier process.
        head.set_sender_number(0, turn, Some(number - 1));
        assert!(head.take_turn(me));
        head.give_turn(me);
        assert!(head.take_turn(sender));
        assert_eq!(claim(&head, me, BELL), Some(0));
        assert!(head.take_turn(me), "what it had is given back with its lane");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn lanes_of_the_dead_are_taken_over() {
        let head = head(1);
        let dead = Identity { pid: ended(), serial: 0 };
        assert_eq!(claim(&head, dead, BELL), Some(0));
        head.busy(0).set(7);
        let me = Identity::new();
        assert_eq!(claim(&head, me, BELL), Some(0));
        assert_eq!(head.busy(0).word(), 8, "no access is under way");
        // Whatever is found there.
        close(&head, 0, me);
        head.busy(0).set(u64::MAX);
        assert_eq!(claim(&head, me, BELL), Some(0));
        assert_eq!(head.busy(0).word(), 0);
        assert_eq!(break_off(&head, 0).by, me);
        close(&head, 0, me);
        assert_eq!(claim(&head, me, BELL), None, "broken for ever");
    }
}
