//! libibverbs: checked-in declarations, and the library opened at run time, so that building needs no headers
//! and a machine without RDMA loses nothing.
#![allow(non_camel_case_types)] // C's names, so that its manual pages apply
#![allow(dead_code)] // members that only the library reads

#[cfg(test)]
pub(crate) mod emulated;
mod library;
#[cfg(test)]
mod network;
mod types;

pub(crate) use library::Library;
pub(crate) use types::*;
