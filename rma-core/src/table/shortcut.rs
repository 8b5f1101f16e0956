//! The way of the puts and gets that a program repeats: all that an operation to the target used last takes, in one
//! place, so that the next one asks for nothing else.
//!
//! It is a copy, taken when an operation went natively and nothing stood against it. Whatever could stand against the
//! next one ends it: the element's leave is taken back or the element itself, the epoch ends, the fabric refuses.

use super::Direct;
use crate::dtype::Dtype;
use crate::ids::{PeerAddr, Rank, RemoteKey, Tag, WindowId};
use crate::op::ReduceOp;
use crate::pool::NONE;
use crate::provider::{RemoteAddr, RemotePiece};
use crate::wire::OpKind;

/// What an atomic does, to which type, and by which reduction.
pub(crate) type AtomicKind = (OpKind, Dtype, ReduceOp);

/// The last target of native puts and gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shortcut {
    /// The window, for puts and for gets; none where one of those has not gone this way.
    put: WindowId,
    get: WindowId,
    /// The same of a target whose operations are complete at once: nobody is both.
    near_put: WindowId,
    near_get: WindowId,
    /// And for atomics of one element there that were complete at once, and what they were.
    near_atomic: WindowId,
    atomic: AtomicKind,
    rank: Rank,
    /// The target's element; none of a neighbour that needs none.
    pub(crate) target: u32,
    pub(crate) peer: PeerAddr,
    pub(crate) put_tag: Tag,
    pub(crate) get_tag: Tag,
    /// The first length that is not one message within the window.
    len_end: usize,
    /// Numbers with a sign, so that a product that is too large for them, or for any window, is found at once.
    disp_unit: i64,
    size: u64,
    base: u64,
    key: RemoteKey,
    /// The window, if a flush of the target had nothing to do when it looked last, and no element was used since.
    flushed: WindowId,
    /// Bytes of the operation that the fabric is being asked to take, or was last; 0: none since that flush.
    pub(crate) offered: usize,
    /// The passage that is kept leads to the target.
    pub(crate) has_passage: bool,
    /// Operations that went this way, and would have gone by a passage.
    gone: u8,
}

impl Shortcut {
    /// None.
    pub(crate) const NONE: Self = Self {
        put: WindowId(NONE),
        get: WindowId(NONE),
        near_put: WindowId(NONE),
        near_get: WindowId(NONE),
        near_atomic: WindowId(NONE),
        atomic: (OpKind::Put, Dtype::U8, ReduceOp::Replace),
        rank: Rank(NONE),
        target: NONE,
        peer: PeerAddr(0),
        put_tag: Tag(0),
        get_tag: Tag(0),
        len_end: 0,
        disp_unit: 0,
        size: 0,
        base: 0,
        key: RemoteKey(0),
        flushed: WindowId(NONE),
        offered: usize::MAX,
        has_passage: false,
        gone: 0,
    };

    /// Operations behind which a passage is worth what it costs.
    const PASSAGE_BEHIND: u8 = 8;

    /// The way to `rank`, whose element `target` may be accessed directly by messages of at most `message_bytes_max`.
    fn to(rank: Rank, target: u32, direct: &Direct, message_bytes_max: usize) -> Self {
        let Direct { peer, metadata, .. } = *direct;
        // No memory is larger than what has a sign.
        let size =
            usize::try_from(metadata.size).ok().filter(|size| *size <= isize::MAX as usize).unwrap_or(0);
        Self {
            rank,
            target,
            peer,
            len_end: message_bytes_max.min(size),
            disp_unit: metadata.disp_unit.into(),
            size: metadata.size,
            base: metadata.base,
            key: metadata.key,
            ..Self::NONE
        }
    }

    /// The same, with what is known of the same target and window.
    fn again(&self, window: WindowId, (rank, target): (Rank, u32), direct: &Direct, most: usize) -> Self {
        let way = Self::to(rank, target, direct, most);
        if self.is_open(window, (rank, target)) {
            let Self { put, get, near_put, near_get, near_atomic, atomic, put_tag, get_tag, .. } = *self;
            let way = Self { gone: self.gone, ..way };
            return Self { put, get, near_put, near_get, near_atomic, atomic, put_tag, get_tag, ..way };
        }
        way
    }

    /// A put with the tag has gone to `rank` of the window.
    #[inline]
    pub(crate) fn learn_put(
        &mut self,
        window: WindowId,
        rank: Rank,
        (target, tag): (u32, Tag),
        direct: &Direct,
        message_bytes_max: usize,
    ) {
        *self = self.again(window, (rank, target), direct, message_bytes_max);
        self.put_tag = tag;
        if direct.at_once {
            self.near_put = window;
        } else {
            self.put = window;
        }
    }

    /// A get has.
    #[inline]
    pub(crate) fn learn_get(
        &mut self,
        window: WindowId,
        rank: Rank,
        (target, tag): (u32, Tag),
        direct: &Direct,
        message_bytes_max: usize,
    ) {
        *self = self.again(window, (rank, target), direct, message_bytes_max);
        self.get_tag = tag;
        if direct.at_once {
            self.near_get = window;
        } else {
            self.get = window;
        }
    }

    /// An atomic of one element was complete at once.
    #[inline]
    pub(crate) fn learn_atomic(
        &mut self,
        window: WindowId,
        rank: Rank,
        (target, atomic): (u32, AtomicKind),
        direct: &Direct,
        message_bytes_max: usize,
    ) {
        *self = self.again(window, (rank, target), direct, message_bytes_max);
        (self.near_atomic, self.atomic) = (window, atomic);
    }

    /// Whether some operations go this way to the target.
    fn is_open(&self, window: WindowId, (rank, target): (Rank, u32)) -> bool {
        self.target == target && self.rank == rank && self.is_of(window)
    }

    /// The same of any.
    fn is_of(&self, window: WindowId) -> bool {
        [self.put, self.get, self.near_put, self.near_get, self.near_atomic].contains(&window)
    }

    /// Whose memory of which window operations that are complete at once go to.
    pub(crate) fn near_target(&self) -> Option<(WindowId, Rank, PeerAddr)> {
        let windows = [self.near_put, self.near_get, self.near_atomic];
        let window = windows.into_iter().find(|window| *window != WindowId(NONE))?;
        Some((window, self.rank, self.peer))
    }

    /// That memory.
    pub(crate) fn memory(&self) -> Option<RemotePiece> {
        let at = RemoteAddr { addr: self.base, key: self.key };
        Some(RemotePiece { at, len: usize::try_from(self.size).ok()? })
    }

    /// How far behind its first byte a place is.
    #[inline]
    pub(crate) fn offset_of(&self, at: RemoteAddr) -> u64 {
        at.addr.wrapping_sub(self.base)
    }

    /// Counts an operation that might have gone by a passage; whether it is time for one.
    pub(crate) fn wants_passage(&mut self) -> bool {
        self.gone = self.gone.saturating_add(1);
        self.gone == Self::PASSAGE_BEHIND
    }

    /// Forgets the way, if it is that to this element.
    #[inline]
    pub(crate) fn forget(&mut self, target: u32) {
        if self.target == target {
            *self = Self::NONE;
        }
    }

    /// The same by the rank, of a target without element: it gets one, or its lock is given back.
    #[inline]
    pub(crate) fn forget_rank(&mut self, window: WindowId, rank: Rank) {
        if self.rank == rank && (self.flushed == window || self.is_of(window)) {
            *self = Self::NONE;
        }
    }

    /// The same of all ways into the window.
    #[inline]
    pub(crate) fn forget_window(&mut self, window: WindowId) {
        if self.flushed == window || self.is_of(window) {
            *self = Self::NONE;
        }
    }

    /// The same of all of these.
    pub(crate) fn forget_without_element(&mut self) {
        self.forget(NONE);
    }

    /// A flush of `rank`, whose element is `target`, had nothing to do.
    #[inline]
    pub(crate) fn note_flushed(&mut self, window: WindowId, (rank, target): (Rank, u32)) {
        if self.is_open(window, (rank, target)) {
            (self.flushed, self.offered) = (window, 0);
        } else if self.target == NONE {
            *self = Self { rank, target, flushed: window, offered: 0, ..Self::NONE };
        }
        // The way to another target's element is worth more.
    }

    /// Something was posted that did not go this way.
    #[inline]
    pub(crate) fn note_posted(&mut self) {
        self.flushed = WindowId(NONE);
    }

    /// Whether nothing was posted since a flush of the same target had nothing to do, and the way is still open.
    #[inline]
    pub(crate) fn is_flushed(&self, window: WindowId, rank: Rank) -> bool {
        self.flushed == window && self.rank == rank && self.offered == 0
    }

    /// Where a put of `len` bytes goes; `None`: not this way.
    #[inline]
    pub(crate) fn put_at(&self, window: WindowId, rank: Rank, disp: u64, len: usize) -> Option<RemoteAddr> {
        if self.put != window || self.rank != rank {
            return None;
        }
        self.locate(disp, len)
    }

    /// Where a get does.
    #[inline]
    pub(crate) fn get_at(&self, window: WindowId, rank: Rank, disp: u64, len: usize) -> Option<RemoteAddr> {
        if self.get != window || self.rank != rank {
            return None;
        }
        self.locate(disp, len)
    }

    /// Where a put goes that is complete at once.
    #[inline]
    pub(crate) fn near_put_at(
        &self,
        window: WindowId,
        rank: Rank,
        disp: u64,
        len: usize,
    ) -> Option<RemoteAddr> {
        if self.near_put != window || self.rank != rank {
            return None;
        }
        self.locate(disp, len)
    }

    /// Where such a get does.
    #[inline]
    pub(crate) fn near_get_at(
        &self,
        window: WindowId,
        rank: Rank,
        disp: u64,
        len: usize,
    ) -> Option<RemoteAddr> {
        if self.near_get != window || self.rank != rank {
            return None;
        }
        self.locate(disp, len)
    }

    /// Whether such atomics are known to go this way.
    #[inline]
    pub(crate) fn knows_atomic(&self, window: WindowId, rank: Rank, atomic: AtomicKind) -> bool {
        self.near_atomic == window && self.rank == rank && self.atomic == atomic
    }

    /// Where such an atomic goes, if nothing was posted since a flush of the same target had nothing to do but others of
    /// them.
    #[inline]
    pub(crate) fn near_atomic_at(
        &self,
        window: WindowId,
        rank: Rank,
        disp: u64,
        atomic: AtomicKind,
    ) -> Option<RemoteAddr> {
        if !self.knows_atomic(window, rank, atomic) || !self.is_flushed(window, rank) {
            return None;
        }
        self.locate(disp, atomic.1.size())
    }

    /// The location of 1 to `len_end` bytes at `disp`, if they are inside of the window.
    #[inline]
    fn locate(&self, disp: u64, len: usize) -> Option<RemoteAddr> {
        if len.wrapping_sub(1) >= self.len_end {
            return None;
        }
        // A displacement or an offset that only fits without a sign is a large number, and outside; the length is at
        // most the size.
        let offset = (disp as i64).checked_mul(self.disp_unit)? as u64;
        if offset > self.size.wrapping_sub(len as u64) {
            return None;
        }
        Some(RemoteAddr { addr: self.base.wrapping_add(offset), key: self.key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Metadata;

    fn direct(size: u64, disp_unit: u32) -> Direct {
        let metadata = Metadata { base: 16, size, disp_unit, key: RemoteKey(9), misalignment: 0 };
        Direct { peer: PeerAddr(4), metadata, at_once: false }
    }

    #[test]
    fn it_goes_where_the_elements_way_goes() {
        let (window, rank, most) = (WindowId(3), Rank(7), 40);
        let values = [0, 1, 2, 8, 12, 24, 39, 40, 41, 96, 100, u64::MAX / 8, u64::MAX / 8 + 1, u64::MAX];
        for (size, unit) in [(0, 1), (8, 8), (41, 1), (100, 8), (u64::MAX >> 1, 1), (100, u32::MAX)] {
            let direct = direct(size, unit);
            let mut shortcut = Shortcut::NONE;
            shortcut.learn_put(window, rank, (5, Tag(5)), &direct, most);
            for disp in values {
                for len in values.map(|len| len as usize) {
                    let expected = direct.metadata.locate(disp, len as u64).ok();
                    let expected = expected.filter(|_| (1..=most).contains(&len));
                    let at = shortcut.put_at(window, rank, disp, len).map(|at| at.addr);
                    assert_eq!(at, expected.map(|offset| 16 + offset), "{size} {unit} {disp} {len}");
                }
            }
        }
    }

    #[test]
    fn it_is_for_one_target_and_what_has_gone_there() {
        let (direct, mut shortcut) = (direct(8, 8), Shortcut::NONE);
        let ways = |shortcut: &Shortcut, window, rank| {
            let (window, rank) = (WindowId(window), Rank(rank));
            let put = shortcut.put_at(window, rank, 0, 8).is_some();
            (put, shortcut.get_at(window, rank, 0, 8).is_some())
        };
        assert_eq!(ways(&shortcut, NONE, NONE), (false, false));
        shortcut.learn_put(WindowId(1), Rank(2), (3, Tag(30)), &direct, 8);
        assert_eq!(ways(&shortcut, 1, 2), (true, false));
        assert_eq!((ways(&shortcut, 1, 4), ways(&shortcut, 0, 2)), ((false, false), (false, false)));
        shortcut.learn_get(WindowId(1), Rank(2), (3, Tag(31)), &direct, 8);
        assert_eq!(ways(&shortcut, 1, 2), (true, true));
        assert_eq!((shortcut.put_tag, shortcut.get_tag), (Tag(30), Tag(31)));
        shortcut.learn_get(WindowId(0), Rank(2), (4, Tag(41)), &direct, 8);
        assert_eq!((ways(&shortcut, 0, 2), ways(&shortcut, 1, 2)), ((false, true), (false, false)));
        shortcut.forget(3);
        assert_eq!(ways(&shortcut, 0, 2), (false, true));
        shortcut.forget(4);
        assert_eq!(shortcut, Shortcut::NONE);
    }

    #[test]
    fn what_was_flushed_is_known_until_something_is_posted() {
        let (window, rank, direct) = (WindowId(1), Rank(2), direct(8, 8));
        let mut shortcut = Shortcut::NONE;
        assert!(!shortcut.is_flushed(WindowId(NONE), Rank(NONE)), "nothing is known of no window");
        shortcut.note_flushed(window, (rank, 3));
        assert!(shortcut.is_flushed(window, rank) && shortcut.put_at(window, rank, 0, 8).is_none());
        let learnt = |shortcut: &mut Shortcut| {
            shortcut.learn_put(window, rank, (3, Tag(30)), &direct, 8);
            assert!(!shortcut.is_flushed(window, rank), "the put that it was learnt from");
            shortcut.note_flushed(window, (rank, 3));
            assert!(shortcut.is_flushed(window, rank));
        };
        learnt(&mut shortcut);
        assert!(!shortcut.is_flushed(WindowId(0), rank) && !shortcut.is_flushed(window, Rank(4)));
        shortcut.offered = 8;
        assert!(!shortcut.is_flushed(window, rank), "a put by the shortcut");
        learnt(&mut shortcut);
        shortcut.note_posted();
        assert!(!shortcut.is_flushed(window, rank), "an operation with an element");
        learnt(&mut shortcut);
        shortcut.learn_get(window, rank, (3, Tag(31)), &direct, 8);
        assert!(!shortcut.is_flushed(window, rank), "a get");
        shortcut.note_flushed(window, (Rank(4), 4));
        assert!(!shortcut.is_flushed(window, rank) && !shortcut.is_flushed(window, Rank(4)));
        assert!(shortcut.put_at(window, rank, 0, 8).is_some(), "the way to another target is kept");
        learnt(&mut shortcut);
        shortcut.forget(3);
        assert!(!shortcut.is_flushed(window, rank));
    }

    #[test]
    fn targets_without_element_are_told_apart_by_their_ranks() {
        let mut near = direct(8, 8);
        near.at_once = true;
        let (window, most) = (WindowId(1), 8);
        let (first, second) = (Rank(2), Rank(4));
        let add = (OpKind::GetAccumulate, Dtype::U64, ReduceOp::Sum);
        let mut shortcut = Shortcut::NONE;
        shortcut.learn_put(window, first, (NONE, Tag(0)), &near, most);
        shortcut.note_flushed(window, (first, NONE));
        shortcut.learn_atomic(window, first, (NONE, add), &near, most);
        assert!(shortcut.near_put_at(window, first, 0, 8).is_some());
        assert!(shortcut.near_atomic_at(window, first, 0, add).is_none(), "it was posted since the flush");
        shortcut.note_flushed(window, (first, NONE));
        assert!(shortcut.near_atomic_at(window, first, 0, add).is_some());
        let other = (OpKind::GetAccumulate, Dtype::I64, ReduceOp::Sum);
        assert!(shortcut.near_atomic_at(window, first, 0, other).is_none());
        assert!(shortcut.near_atomic_at(window, first, 1, add).is_none(), "it is outside");
        shortcut.note_flushed(window, (second, NONE));
        assert!(shortcut.is_flushed(window, second));
        assert!(shortcut.near_put_at(window, second, 0, 8).is_none(), "that was the first one's memory");
        assert!(shortcut.near_atomic_at(window, second, 0, add).is_none());
        shortcut.learn_put(window, second, (NONE, Tag(0)), &near, most);
        shortcut.forget_rank(window, first);
        shortcut.forget_rank(WindowId(0), second);
        assert!(shortcut.near_put_at(window, second, 0, 8).is_some());
        shortcut.forget_rank(window, second);
        assert_eq!(shortcut, Shortcut::NONE);
        shortcut.learn_put(window, second, (NONE, Tag(0)), &near, most);
        shortcut.forget_window(WindowId(0));
        assert!(shortcut.near_put_at(window, second, 0, 8).is_some());
        shortcut.forget_window(window);
        assert_eq!(shortcut, Shortcut::NONE);
    }

    #[test]
    fn what_is_complete_at_once_has_a_way_of_its_own() {
        let mut near = direct(8, 8);
        near.at_once = true;
        let (window, rank) = (WindowId(1), Rank(2));
        let mut shortcut = Shortcut::NONE;
        shortcut.learn_put(window, rank, (3, Tag(30)), &near, 8);
        assert!(shortcut.put_at(window, rank, 0, 8).is_none());
        assert!(shortcut.near_put_at(window, rank, 0, 8).is_some());
        assert!(shortcut.near_get_at(window, rank, 0, 8).is_none());
        shortcut.learn_get(window, rank, (3, Tag(31)), &near, 8);
        assert!(shortcut.near_put_at(window, rank, 0, 8).is_some());
        assert!(shortcut.near_get_at(window, rank, 0, 8).is_some());
        shortcut.learn_put(window, Rank(4), (5, Tag(50)), &direct(8, 8), 8);
        assert!(shortcut.near_get_at(window, rank, 0, 8).is_none());
        assert!(shortcut.put_at(window, Rank(4), 0, 8).is_some());
    }
}
