//! What `runtime` stands on here: what it stands on in the library, but for the engine, which is over the null fabric.

#[path = "../../../../rma/src/platform.rs"]
#[allow(dead_code, unreachable_pub)]
mod library;

use rma_bench::duo::NullEngine;

pub(crate) use library::*;

/// In the library's place.
pub(crate) type Engine = NullEngine;
