//! The behaviours, by subject. Every rank runs each of them.

mod active;
mod broken;
mod kinds;
mod operations;
mod passive;
mod progress;

use crate::Behaviour;

/// All of them, in the order in which they run.
pub(crate) fn all() -> impl Iterator<Item = &'static Behaviour> {
    [active::ALL, passive::ALL, operations::ALL, kinds::ALL, progress::ALL].into_iter().flatten()
}

/// Those that fail on purpose.
pub(crate) fn broken() -> impl Iterator<Item = &'static Behaviour> {
    broken::ALL.iter()
}

/// Makes the list of a file's behaviours.
macro_rules! behaviours {
    ($($name:ident),+ $(,)?) => {
        pub(super) const ALL: &[$crate::Behaviour] =
            &[$($crate::Behaviour { name: stringify!($name), body: $name }),+];
    };
}

pub(crate) use behaviours;
