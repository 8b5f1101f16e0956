//! How the device gets at origin buffers, which nobody has registered.
//!
//! Small ones are copied: into the work request, or to and from a place of the endpoint's. Larger ones are
//! registered while operations on them are in flight, and not longer: the registration of memory that is unmapped
//! and mapped again still names the old pages, and nothing would tell.

use core::ffi::c_int;
use std::sync::Arc;

use rma_core::provider::PostError;

use crate::error::errno_code;
use crate::list::PIECES_MAX;
use crate::objects::{Domain, Mr};
use crate::sys;

/// Origin buffers that may be registered at one time.
const REGISTRATIONS: usize = 64;

/// Where the bytes of an operation lie for the device, and what is to be given back when it is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holding {
    /// In the work request, or nowhere.
    Nothing,
    /// In this place of the endpoint's memory.
    Bounce(u32),
    /// In the caller's memory, by this registration.
    Registered(u32),
    /// In several places; this entry of [`Bundles`] has them.
    Bundle(u32),
}

/// Where one piece of a vector lies for the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) holding: Holding,
    /// Where bytes go from a bounce buffer; null where none go.
    pub(crate) into: *mut u8,
    pub(crate) len: u32,
}

/// Vectors under way at one time; others wait.
const BUNDLES: usize = 64;

/// What the vectors under way hold.
#[derive(Debug)]
pub(crate) struct Bundles {
    entries: Vec<Vec<Part>>,
    free: Vec<u32>,
}

impl Bundles {
    pub(crate) fn new() -> Self {
        let entries = (0..BUNDLES).map(|_| Vec::with_capacity(PIECES_MAX)).collect();
        Self { entries, free: (0..BUNDLES as u32).collect() }
    }

    /// An empty entry, if one is free.
    pub(crate) fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Adds a part, of at most [`PIECES_MAX`].
    pub(crate) fn add(&mut self, bundle: u32, part: Part) {
        self.entries[bundle as usize].push(part);
    }

    pub(crate) fn remove(&mut self, bundle: u32) -> Option<Part> {
        self.entries[bundle as usize].pop()
    }

    pub(crate) fn give_back(&mut self, bundle: u32) {
        self.free.push(bundle);
    }
}

#[derive(Debug)]
struct Registration {
    base: usize,
    len: usize,
    is_writable: bool,
    users: u32,
    mr: Option<Mr>,
}

/// Registrations of origin buffers that operations in flight use.
#[derive(Debug)]
pub(crate) struct Registrations {
    domain: Arc<Domain>,
    entries: Vec<Registration>,
}

impl Registrations {
    pub(crate) fn new(domain: &Arc<Domain>) -> Self {
        let entry = || Registration { base: 0, len: 0, is_writable: false, users: 0, mr: None };
        Self { domain: Arc::clone(domain), entries: (0..REGISTRATIONS).map(|_| entry()).collect() }
    }

    /// Registers the buffer, or finds it registered: where, and its key. The caller must [`Self::give_back`] it.
    ///
    /// # Safety
    /// The buffer is valid until it is given back.
    pub(crate) unsafe fn take(
        &mut self,
        base: *const u8,
        len: usize,
        is_written: bool,
    ) -> Result<(u32, u32), PostError> {
        let start = base as usize;
        let covers = |entry: &Registration| {
            entry.users > 0
                && entry.base <= start
                && start - entry.base + len <= entry.len
                && (entry.is_writable || !is_written)
        };
        if let Some(index) = self.entries.iter().position(covers) {
            let entry = &mut self.entries[index];
            entry.users += 1;
            let lkey = entry.mr.as_ref().map_or(0, Mr::lkey);
            return Ok((index as u32, lkey));
        }
        let Some(index) = self.entries.iter().position(|entry| entry.users == 0) else {
            return Err(PostError::Again);
        };
        let access: c_int = if is_written { sys::IBV_ACCESS_LOCAL_WRITE } else { 0 };
        // SAFETY: by the caller's promise.
        let mr = unsafe { Mr::open(&self.domain, base.cast_mut(), len, access) }
            .map_err(|code| PostError::Failed(errno_code(code)))?;
        let lkey = mr.lkey();
        self.entries[index] =
            Registration { base: start, len, is_writable: is_written, users: 1, mr: Some(mr) };
        Ok((index as u32, lkey))
    }

    /// An operation that used the registration is complete.
    pub(crate) fn give_back(&mut self, index: u32) {
        let Some(entry) = self.entries.get_mut(index as usize) else { return };
        entry.users = entry.users.saturating_sub(1);
        if entry.users == 0 {
            entry.mr = None;
        }
    }
}
