//! The header that every packet begins with.

use super::{Purposes, Reader, WireError};
use crate::ids::{Rank, WindowId};

/// What a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PacketKind {
    /// Origin to target: lock, operations, done, unlock, in any combination.
    Batch = 0,
    /// Target to origin: grant, results, acknowledgements, in any combination.
    Reply = 1,
    /// A round of a window's barrier.
    Barrier = 2,
    /// A round of the reduction with which windows are made.
    Reduce = 3,
    /// Origin asks for base, size, key and displacement unit of the target's window.
    MetadataRequest = 4,
    /// The answer.
    MetadataReply = 5,
    /// Target to origin: the window is exposed to you (post), or: it was when you asked.
    Post = 6,
    /// Origin asks whether the target's window is exposed to it.
    PostQuery = 7,
    /// Origin to a ghost, before anything else: where to answer.
    Introduction = 8,
    /// Origin asks how it may access a region of the target's dynamic window natively.
    RegionQuery = 9,
    /// The answer: a record, or nothing, then it may not.
    RegionReply = 10,
    /// Target to origin: give up the records that are older than the token says.
    Revoke = 11,
    /// The answer, when nothing uses them any more.
    RevokeReply = 12,
    /// Origin to a ghost: ranks whose processes have ended, as the launcher says.
    Losses = 13,
}

impl PacketKind {
    /// How many kinds there are.
    pub const COUNT: usize = 14;

    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Batch,
        Self::Reply,
        Self::Barrier,
        Self::Reduce,
        Self::MetadataRequest,
        Self::MetadataReply,
        Self::Post,
        Self::PostQuery,
        Self::Introduction,
        Self::RegionQuery,
        Self::RegionReply,
        Self::Revoke,
        Self::RevokeReply,
        Self::Losses,
    ];

    /// Name for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Reply => "reply",
            Self::Barrier => "barrier",
            Self::Reduce => "reduce",
            Self::MetadataRequest => "metadata-request",
            Self::MetadataReply => "metadata-reply",
            Self::Post => "post",
            Self::PostQuery => "post-query",
            Self::Introduction => "introduction",
            Self::RegionQuery => "region-query",
            Self::RegionReply => "region-reply",
            Self::Revoke => "revoke",
            Self::RevokeReply => "revoke-reply",
            Self::Losses => "losses",
        }
    }

    /// Whether a packet of this kind goes the way of those that are answered, and so may have to wait for room.
    pub const fn is_request(self) -> bool {
        matches!(
            self,
            Self::Batch
                | Self::MetadataRequest
                | Self::PostQuery
                | Self::Introduction
                | Self::RegionQuery
                | Self::Revoke
                | Self::Losses
        )
    }

    /// The kind of a packet that is not decoded yet, by its first byte.
    ///
    /// # Errors
    /// When there is no such kind.
    #[inline]
    pub fn of_first_byte(byte: u8) -> Result<Self, WireError> {
        let code = byte & KIND_MASK;
        Self::ALL.get(code as usize).copied().ok_or(WireError::Kind(code))
    }
}

/// The low bits of the first byte are the kind; those above are flags 8 to 11.
const KIND_MASK: u8 = 0x0f;

/// Bits that a header has for flags.
const FLAG_BITS: u32 = 12;

/// The flags that have a meaning in packets of each kind.
const KNOWN_FLAGS: [u16; PacketKind::COUNT] = {
    let mut known = [0; PacketKind::COUNT];
    known[PacketKind::Batch as usize] = BatchFlags::ALL.0;
    known[PacketKind::Reply as usize] = ReplyFlags::ALL.0;
    known[PacketKind::Post as usize] = PostFlags::ALL.0;
    known[PacketKind::PostQuery as usize] = QueryFlags::ALL.0;
    known[PacketKind::Barrier as usize] = Purposes::ALL.bits();
    known
};

macro_rules! flags {
    ($(#[$meta:meta])* $name:ident { $($(#[$flag_meta:meta])* $flag:ident = $value:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct $name(pub u16);

        impl $name {
            $($(#[$flag_meta])* pub const $flag: Self = Self($value);)+
            /// Every flag that has a meaning.
            pub const ALL: Self = Self($($value)|+);

            /// Whether every bit of `other` is set.
            #[inline]
            pub const fn has(self, other: Self) -> bool { self.0 & other.0 == other.0 }

            /// Whether any bit of `other` is set.
            #[inline]
            pub const fn any(self, other: Self) -> bool { self.0 & other.0 != 0 }
        }

        impl core::ops::BitOr for $name {
            type Output = Self;
            #[inline]
            fn bitor(self, other: Self) -> Self { Self(self.0 | other.0) }
        }

        impl core::ops::BitOrAssign for $name {
            #[inline]
            fn bitor_assign(&mut self, other: Self) { self.0 |= other.0; }
        }
    };
}

flags! {
    /// What a batch asks for besides its operations.
    BatchFlags {
        /// Acquire the window's lock shared before the operations.
        LOCK_SHARED = 1,
        /// Acquire the window's lock exclusive before the operations.
        LOCK_EXCLUSIVE = 2,
        /// Release the lock after the operations, and acknowledge.
        UNLOCK = 4,
        /// Acknowledge when everything sent so far is done (the design's RMA_DONE, a flush).
        DONE = 8,
        /// The last operation has a result: send acknowledgements with it.
        ACK_WITH_RESULT = 16,
        /// The origin keeps no target element for this: the answer counts for the window.
        DETACHED = 32,
        /// Send the window's metadata with the grant.
        WANT_METADATA = 64,
        /// With LOCK_SHARED: the origin may hold locks of other ranks, as under lock_all, and so must not
        /// wait for requests that only wait themselves.
        OVERTAKE = 128,
        /// The origin's access epoch is over (complete): nothing of it follows.
        COMPLETE = 256,
        /// For the checker, with [`BatchFlags::PASSIVE`] or [`BatchFlags::FENCE`]: what comes is ordered behind what came before.
        ORDERED = 512,
        /// For the checker: an epoch of fences; with [`BatchFlags::PASSIVE`] the odd ones.
        FENCE = 1024,
        /// For the checker: without [`BatchFlags::FENCE`] an epoch of locks.
        PASSIVE = 2048,
    }
}

flags! {
    /// What a reply says besides its results.
    ReplyFlags {
        /// The lock is yours.
        GRANT = 1,
        /// Operations done, lock released.
        UNLOCK_ACK = 2,
        /// Operations done.
        DONE_ACK = 4,
        /// The lock queue was full and nothing was done: ask again.
        RETRY = 8,
        /// The lock is yours, but the operations that came with the request were not kept: send them again.
        NOT_EXECUTED = 16,
        /// Echo of [`BatchFlags::DETACHED`].
        DETACHED = 32,
        /// The window's metadata follows the header.
        METADATA = 64,
        /// An error record follows (after the metadata, if both).
        ERROR = 128,
        /// The sender has freed its part of the window, because a rank died: nothing will be answered.
        GONE = 256,
        /// To a question with [`QueryFlags::COMING`]: the sender does not post any more.
        NO_POST = 512,
        /// To one with [`QueryFlags::BEHIND_REQUESTS`]: what it has not completed by now it will not.
        NO_COMPLETE = 1024,
    }
}

flags! {
    /// What a [`PacketKind::PostQuery`] asks, if not whether the window is exposed to the sender.
    QueryFlags {
        /// Only whether the window is there: nothing is answered as long as it is.
        PRESENCE = 1,
        /// With PRESENCE: the sender waits for a post or COMPLETE, which does not come either of who has left the job and still
        /// has the window.
        COMING = 2,
        /// With PRESENCE: the sender waits for COMPLETE, and what is answered must not overtake that.
        BEHIND_REQUESTS = 4,
    }
}

flags! {
    /// What the notice of a post says besides that.
    PostFlags {
        /// It answers the [`PacketKind::PostQuery`] with the same token.
        ANSWER = 1,
        /// The window's metadata follows the header.
        METADATA = 2,
    }
}

/// The first 16 bytes of every packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What follows.
    pub kind: PacketKind,
    /// [`BatchFlags`], [`ReplyFlags`], [`PostFlags`], [`QueryFlags`] or [`Purposes`]; 0 in other kinds. At most 12 bits.
    pub flags: u16,
    /// Records in the packet; the round of a barrier or reduction.
    pub count: u16,
    /// The window.
    pub window: WindowId,
    /// Who sends it.
    pub sender: Rank,
    /// Echoed in the answer; the sequence number of a barrier or reduction, or the rank that is lost to somebody.
    pub token: u32,
}

impl Header {
    /// Bytes of an encoded header.
    pub const BYTES: usize = 16;

    /// The header as bytes.
    #[inline]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        debug_assert!(self.flags >> FLAG_BITS == 0, "flags that the header has no room for");
        bytes[0] = self.kind as u8 | (self.flags >> 8 << 4) as u8;
        bytes[1] = self.flags as u8;
        bytes[2..4].copy_from_slice(&self.count.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.window.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.sender.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.token.to_le_bytes());
        bytes
    }

    /// Takes a header off the front.
    ///
    /// # Errors
    /// When there are too few bytes, the kind is unknown, or the flags contradict each other.
    #[inline]
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let [first, flags, c0, c1, w0, w1, w2, w3, s0, s1, s2, s3, token @ ..] = reader.array::<16>()?;
        let header = Self {
            kind: PacketKind::of_first_byte(first)?,
            flags: u16::from(first >> 4) << 8 | u16::from(flags),
            count: u16::from_le_bytes([c0, c1]),
            window: WindowId(u32::from_le_bytes([w0, w1, w2, w3])),
            sender: Rank(u32::from_le_bytes([s0, s1, s2, s3])),
            token: u32::from_le_bytes(token),
        };
        if header.has_sound_flags() {
            Ok(header)
        } else {
            Err(WireError::Flags(header.flags))
        }
    }

    /// Whether all flags have a meaning in a packet of this kind, and none contradicts another.
    #[inline]
    fn has_sound_flags(&self) -> bool {
        let known = KNOWN_FLAGS[self.kind as usize];
        let flags = BatchFlags(self.flags);
        let locks = flags.any(BatchFlags::LOCK_SHARED | BatchFlags::LOCK_EXCLUSIVE);
        let both = flags.has(BatchFlags::LOCK_SHARED | BatchFlags::LOCK_EXCLUSIVE);
        let stray =
            flags.has(BatchFlags::OVERTAKE) && !flags.any(BatchFlags::LOCK_SHARED | BatchFlags::UNLOCK);
        // A lock belongs to a passive-target epoch, complete ends one of another kind.
        let mixed = flags.has(BatchFlags::COMPLETE) && (locks || flags.has(BatchFlags::UNLOCK));
        let unordered = flags.has(BatchFlags::ORDERED) && !flags.any(BatchFlags::FENCE | BatchFlags::PASSIVE);
        let contradicts = self.kind == PacketKind::Batch && (both || stray || mixed || unordered);
        let query = QueryFlags(self.flags);
        let is_vague = self.kind == PacketKind::PostQuery
            && query != QueryFlags::default()
            && !query.has(QueryFlags::PRESENCE);
        self.flags & !known == 0 && !contradicts && !is_vague
    }
}
