//! What every way to be part of a job offers beside [`Bootstrap`].

use std::fmt::Debug;
use std::net::TcpListener;
use std::time::Duration;

use rma_core::bootstrap::{Bootstrap, BootstrapError};
use rma_core::ids::Rank;

use crate::Fetch;

/// One rank's membership in its job. [`crate::JobBootstrap`] documents each call.
pub(crate) trait Member: Bootstrap + Debug {
    fn local_rank(&self) -> u32;
    fn local_size(&self) -> u32;
    /// In order; empty: nobody has said them.
    fn local_ranks(&self) -> &[u32];
    fn job_id(&self) -> &str;
    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError>;
    fn get(&mut self, rank: Rank, key: &str) -> Result<Fetch, BootstrapError>;
    fn wait_readable(&mut self, timeout: Duration) -> Result<bool, BootstrapError>;
    fn receive(&mut self);
    fn wait_fd(&self) -> Option<i32>;
    fn finalize(&mut self) -> Result<(), BootstrapError>;
    fn poll_all_finalized(&mut self) -> Result<bool, BootstrapError>;
    fn abort(&mut self, code: i32, message: &str) -> Result<(), BootstrapError>;
}

/// A membership by which ranks tell each other something before they publish their addresses.
pub(crate) trait Sharing: Member {
    /// Puts a value, if there is one, that can be asked for before this rank publishes its address: where that takes a
    /// barrier, behind one of its own, so all ranks do it, and as often.
    fn share(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), BootstrapError>;

    /// Keeps these open at least until all ranks have published.
    fn keep_open(&mut self, listeners: Vec<TcpListener>);
}
