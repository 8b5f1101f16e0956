//! Newtypes for every integer that has a meaning, so that mixing two of them does not compile.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub $inner);
    };
}

macro_rules! number {
    ($($name:ident)+) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )+};
}

number! { PeerAddr WindowId RemoteKey Tag }

id! {
    /// A process of the job, counted from 0 (MPI's rank in the window's group).
    Rank(u32)
}
id! {
    /// A provider-level address, valid on one endpoint only. A rank is not a peer.
    PeerAddr(u64)
}
id! {
    /// A window of the job; all ranks of the window use the same number.
    WindowId(u32)
}
id! {
    /// The key with which a remote endpoint may access a registered memory region.
    RemoteKey(u64)
}
id! {
    /// What identifies a tracked operation in its completion. Opaque to the provider.
    Tag(u64)
}

impl Rank {
    /// No rank (`MPI_PROC_NULL`): every operation to it, in every form, succeeds and does nothing.
    ///
    /// Implements: MPI_PROC_NULL.
    pub const NULL: Self = Self(u32::MAX);

    /// The rank as an index into nothing in particular: arithmetic on ranks wants `usize`.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NULL {
            return f.pad("no rank");
        }
        fmt::Display::fmt(&self.0, f)
    }
}
