//! libfabric for Rust: bindings made from the 1.17 headers, and the library opened at run time.
//!
//! Building needs neither libfabric nor its headers nor libclang: the bindings are checked in
//! (`regenerate.sh` makes them, and says with `--check` whether they still agree with the headers),
//! and [`Library::open`] loads `libfabric.so.1` and takes the symbol versions of 1.17, whose
//! structure layouts every later release keeps alive. One binary so runs with 1.17 to 2.x.
//!
//! Only a handful of libfabric's functions are symbols; the data path is function tables reached
//! through the objects themselves. The headers wrap those in `static inline` functions; [`calls`] has
//! them as inline Rust functions.

pub mod calls;
mod library;
mod signals;

/// Generated declarations, named as in C.
#[allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    dead_code,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::use_self,
    clippy::missing_safety_doc
)]
mod bindings;

pub use bindings::*;
pub use library::{Library, LibraryError};

/// The version whose semantics and layouts the bindings describe: what to pass to `fi_getinfo`.
pub const API_VERSION: u32 = version(1, 17);

/// `FI_VERSION(major, minor)`.
pub const fn version(major: u32, minor: u32) -> u32 {
    (major << 16) | minor
}
