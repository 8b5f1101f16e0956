//! Memory that peers may access.

use core::ptr::NonNull;
use std::sync::Arc;

use ofi_sys as fi;
use rma_core::ids::RemoteKey;
use rma_core::provider::{MemoryRegion, ProviderError};

use crate::endpoint::Live;
use crate::error::registration_failed;
use crate::handles::{Domain, Mr};

/// A registered region; deregistered when dropped.
#[derive(Debug)]
pub struct OfiRegion {
    _mr: Mr,
    base: u64,
    /// What peers must present, in the engine's terms.
    key: RemoteKey,
    /// Where regions are bound to the endpoint, the endpoint must be closed after them.
    _live: Option<Arc<Live>>,
}

impl OfiRegion {
    /// Registers for all kinds of remote access.
    ///
    /// # Safety
    /// See [`rma_core::provider::Endpoint::register`].
    pub(crate) unsafe fn open(
        live: &Arc<Live>,
        base: NonNull<u8>,
        len: usize,
        key: RemoteKey,
    ) -> Result<Self, ProviderError> {
        let access = fi::FI_REMOTE_READ | fi::FI_REMOTE_WRITE | fi::FI_READ | fi::FI_WRITE;
        // SAFETY: by the caller's promise.
        let mr = unsafe { register(&live.domain, base, len, access, key.0 ^ live.key_salt()) }?;
        let bound = live.mr_mode & fi::FI_MR_ENDPOINT != 0;
        if bound {
            mr.attach(&live.links.target.ep).map_err(|code| registration_failed(len, code))?;
        }
        let base = if live.mr_mode & fi::FI_MR_VIRT_ADDR != 0 { base.as_ptr() as u64 } else { 0 };
        let key = RemoteKey(mr.key() ^ live.key_salt());
        Ok(Self { _mr: mr, base, key, _live: bound.then(|| Arc::clone(live)) })
    }
}

/// Registers memory; the error names the limit and the remedy.
///
/// # Safety
/// The memory stays valid until the region is dropped.
pub(crate) unsafe fn register(
    domain: &Arc<Domain>,
    base: NonNull<u8>,
    len: usize,
    access: u64,
    key: u64,
) -> Result<Mr, ProviderError> {
    // SAFETY: by the caller's promise.
    unsafe { Mr::open(domain, base, len, access, key) }.map_err(|code| registration_failed(len, code))
}

impl MemoryRegion for OfiRegion {
    fn remote_key(&self) -> RemoteKey {
        self.key
    }

    fn remote_base(&self) -> u64 {
        self.base
    }
}
