//! MPI's error classes (MPI-4.1 sections 9.4 and 13.6).

use core::fmt;

use super::RmaError;

macro_rules! classes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// What kind of error it is, in MPI's terms: for programs and bindings that return MPI's codes.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum ErrorClass { $($(#[$doc])* $variant),+ }

        impl ErrorClass {
            /// Every class, in wire order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// MPI's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

classes! {
    /// There is no such window.
    ///
    /// Implements: MPI_ERR_WIN.
    Window = "MPI_ERR_WIN",
    /// A base address that cannot be.
    ///
    /// Implements: MPI_ERR_BASE.
    Base = "MPI_ERR_BASE",
    /// A size that cannot be.
    ///
    /// Implements: MPI_ERR_SIZE.
    Size = "MPI_ERR_SIZE",
    /// A displacement or displacement unit that cannot be.
    ///
    /// Implements: MPI_ERR_DISP.
    Disp = "MPI_ERR_DISP",
    /// No lock type.
    ///
    /// Implements: MPI_ERR_LOCKTYPE.
    LockType = "MPI_ERR_LOCKTYPE",
    /// No assertion, or one that does not hold.
    ///
    /// Implements: MPI_ERR_ASSERT.
    Assert = "MPI_ERR_ASSERT",
    /// Accesses that conflict.
    ///
    /// Implements: MPI_ERR_RMA_CONFLICT.
    RmaConflict = "MPI_ERR_RMA_CONFLICT",
    /// The call does not fit the epoch.
    ///
    /// Implements: MPI_ERR_RMA_SYNC.
    RmaSync = "MPI_ERR_RMA_SYNC",
    /// The target's memory does not reach as far.
    ///
    /// Implements: MPI_ERR_RMA_RANGE.
    RmaRange = "MPI_ERR_RMA_RANGE",
    /// Memory cannot be attached, or is not.
    ///
    /// Implements: MPI_ERR_RMA_ATTACH.
    RmaAttach = "MPI_ERR_RMA_ATTACH",
    /// Memory cannot be shared.
    ///
    /// Implements: MPI_ERR_RMA_SHARED.
    RmaShared = "MPI_ERR_RMA_SHARED",
    /// The window was made in another way than the call needs.
    ///
    /// Implements: MPI_ERR_RMA_FLAVOR.
    RmaFlavor = "MPI_ERR_RMA_FLAVOR",
    /// Another argument that cannot be.
    ///
    /// Implements: MPI_ERR_ARG.
    Argument = "MPI_ERR_ARG",
    /// No rank of the window.
    ///
    /// Implements: MPI_ERR_RANK.
    Rank = "MPI_ERR_RANK",
    /// A reduction that is not defined.
    ///
    /// Implements: MPI_ERR_OP.
    Op = "MPI_ERR_OP",
    /// A type that cannot be.
    ///
    /// Implements: MPI_ERR_TYPE.
    Type = "MPI_ERR_TYPE",
    /// A count that cannot be.
    ///
    /// Implements: MPI_ERR_COUNT.
    Count = "MPI_ERR_COUNT",
    /// An info value that cannot be.
    ///
    /// Implements: MPI_ERR_INFO_VALUE.
    InfoValue = "MPI_ERR_INFO_VALUE",
    /// Memory could not be had.
    ///
    /// Implements: MPI_ERR_NO_MEM.
    NoMemory = "MPI_ERR_NO_MEM",
    /// The fabric, the launcher, a process that ended, a time limit.
    ///
    /// Implements: MPI_ERR_OTHER.
    Other = "MPI_ERR_OTHER",
}

impl ErrorClass {
    /// The class with this place in [`ErrorClass::ALL`]; what a peer says is not believed to be one.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl RmaError {
    /// MPI's class of the error.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Epoch { .. } | Self::Unclosed { .. } | Self::NotHeld { .. } | Self::NotExposed { .. } => {
                ErrorClass::RmaSync
            }
            Self::Range { .. } | Self::NotAttached { .. } => ErrorClass::RmaRange,
            Self::Conflict { .. } => ErrorClass::RmaConflict,
            Self::Rank { .. } => ErrorClass::Rank,
            Self::Argument { .. } | Self::Setting { .. } => ErrorClass::Argument,
            Self::Invalid { class, .. } | Self::Elsewhere { class, .. } => *class,
            Self::Info { .. } => ErrorClass::InfoValue,
            Self::Operation { .. } => ErrorClass::Op,
            Self::Window { .. } => ErrorClass::Window,
            Self::Shared { .. } => ErrorClass::RmaShared,
            Self::Memory { .. } => ErrorClass::NoMemory,
            Self::Refused { .. }
            | Self::Peer { .. }
            | Self::LockLost { .. }
            | Self::Endpoint { .. }
            | Self::Provider { .. }
            | Self::Bootstrap { .. }
            | Self::Reported { .. }
            | Self::Stalled { .. } => ErrorClass::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: MPI_ERR_LOCKTYPE, MPI_ERR_ASSERT, MPI_ERR_TYPE, MPI_ERR_COUNT.
    #[test]
    fn classes_that_no_call_returns_have_names_for_bindings() {
        use ErrorClass::{Assert, Count, LockType, Type};
        let names = [LockType, Assert, Type, Count].map(ErrorClass::name);
        assert_eq!(names, ["MPI_ERR_LOCKTYPE", "MPI_ERR_ASSERT", "MPI_ERR_TYPE", "MPI_ERR_COUNT"]);
    }

    #[test]
    fn codes_are_places_and_nothing_else_is_a_code() {
        for (code, class) in ErrorClass::ALL.iter().enumerate() {
            assert_eq!(ErrorClass::from_code(code as u8), Some(*class));
        }
        assert_eq!(ErrorClass::from_code(ErrorClass::ALL.len() as u8), None);
    }
}
