//! The engine: one-sided communication (RMA) after MPICH's "New RMA Design", without a transport.
//!
//! This crate has no clock, no thread, no socket and no libc: time and chance are arguments, and a
//! [`provider::Endpoint`] moves the bytes. The same code runs over libfabric and in the simulator.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

pub mod bootstrap;
pub mod dtype;
pub mod ids;
pub mod mem;
pub mod op;
pub mod provider;
