//! The subcommands that have more to them than a loop.

pub(crate) mod explore;
