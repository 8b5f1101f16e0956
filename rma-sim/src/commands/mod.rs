//! The subcommands that have more to them than a loop.

pub(crate) mod explore;
#[cfg(feature = "mutations")]
pub(crate) mod mutations;
pub(crate) mod scale;
