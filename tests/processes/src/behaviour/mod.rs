//! The behaviours, by subject. Every rank runs each of them.

mod active;
mod beyond;
mod broken;
mod groups;
mod kinds;
mod layouts;
mod losses;
mod operations;
mod passive;
mod progress;
mod threads;

use crate::Behaviour;

/// All of them, in the order in which they run.
pub(crate) fn all() -> impl Iterator<Item = &'static Behaviour> {
    let active = [active::ALL, groups::ALL];
    let passive = [passive::ALL, operations::ALL, layouts::ALL, kinds::ALL, progress::ALL, beyond::ALL];
    active.into_iter().chain(passive).chain([threads::ALL]).flatten()
}

/// Those that fail on purpose, or when somebody outside breaks something.
pub(crate) fn broken() -> impl Iterator<Item = &'static Behaviour> {
    [broken::ALL, losses::ALL].into_iter().flatten()
}

/// Makes the list of a file's behaviours.
macro_rules! behaviours {
    ($($name:ident),+ $(,)?) => {
        pub(super) const ALL: &[$crate::Behaviour] =
            &[$($crate::Behaviour { name: stringify!($name), body: $name }),+];
    };
}

pub(crate) use behaviours;
