//! The engine: one-sided communication (RMA) after MPICH's "New RMA Design", without a transport.
//!
//! This crate has no clock, no thread, no socket and no libc: time and chance are arguments, and a
//! [`provider::Endpoint`] moves the bytes. The same code runs over libfabric and in the simulator.
//!
//! Floors; a module uses only its own floor and those below (ARCHITECTURE.md):
//! 6 [`engine`]; 5 `progress`, `flush`, `restore`; 4 `window`, `table`, `path`; 3 `epoch`, `lock`,
//! `message`; 2 [`provider`], [`bootstrap`]; 1 `wire`, [`state`], `pool`, [`dtype`], [`op`], [`layout`],
//! [`config`], [`info`], [`check`], [`counters`], [`group`]; 0 [`ids`], [`error`], [`mutation`].
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

pub mod bootstrap;
pub mod check;
pub mod config;
pub mod counters;
pub mod dtype;
pub mod engine;
pub mod epoch;
pub mod error;
mod flush;
pub mod ghost;
pub mod group;
pub mod half;
pub mod ids;
pub mod info;
pub mod layout;
pub mod lock;
pub mod mem;
pub mod message;
pub mod mutation;
pub mod op;
pub mod path;
pub mod pool;
mod progress;
pub mod provider;
mod restore;
pub mod state;
mod table;
mod window;
pub mod wire;
