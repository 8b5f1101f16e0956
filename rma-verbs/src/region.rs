//! Memory that peers may access.

use core::ptr::NonNull;
use std::sync::Arc;

use rma_core::ids::RemoteKey;
use rma_core::provider::{MemoryRegion, ProviderError};

use crate::error::registration_failed;
use crate::objects::{Domain, Mr};
use crate::sys;

/// A registered region; deregistered when dropped.
#[derive(Debug)]
pub struct VerbsRegion {
    /// Nothing is registered where there are no bytes.
    mr: Option<Mr>,
    base: u64,
}

impl VerbsRegion {
    /// Registers for all kinds of remote access.
    ///
    /// # Safety
    /// See [`rma_core::provider::Endpoint::register`].
    pub(crate) unsafe fn open(
        domain: &Arc<Domain>,
        base: NonNull<u8>,
        len: usize,
    ) -> Result<Self, ProviderError> {
        let access = sys::IBV_ACCESS_LOCAL_WRITE
            | sys::IBV_ACCESS_REMOTE_WRITE
            | sys::IBV_ACCESS_REMOTE_READ
            | sys::IBV_ACCESS_REMOTE_ATOMIC;
        let mr = if len == 0 {
            None
        } else {
            // SAFETY: by the caller's promise.
            let mr = unsafe { Mr::open(domain, base.as_ptr(), len, access) };
            Some(mr.map_err(|code| registration_failed(len, code))?)
        };
        Ok(Self { mr, base: base.as_ptr() as u64 })
    }
}

impl MemoryRegion for VerbsRegion {
    fn remote_key(&self) -> RemoteKey {
        RemoteKey(self.mr.as_ref().map_or(0, |mr| u64::from(mr.rkey())))
    }

    fn remote_base(&self) -> u64 {
        self.base
    }
}
