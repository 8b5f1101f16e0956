//! How the device gets at origin buffers, which nobody has registered.
//!
//! Small ones are copied: into the work request, or to and from a place of the endpoint's. Larger ones are
//! registered while operations on them are in flight ([`registrations`]).

use core::ffi::c_int;
use std::sync::Arc;

use rma_core::provider::registrations::{self, Taken};
use rma_core::provider::PostError;

use crate::error::errno_code;
use crate::list::PIECES_MAX;
use crate::objects::{Domain, Mr};
use crate::sys;

/// Where the bytes of an operation lie for the device, and what is to be given back when it is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holding {
    /// In the work request, or nowhere.
    Nothing,
    /// In this place of the endpoint's memory.
    Bounce(u32),
    /// In the caller's memory, by this registration.
    Registered(Taken),
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

/// Registrations of origin buffers that operations in flight use.
#[derive(Debug)]
pub(crate) struct Registrations {
    domain: Arc<Domain>,
    taken: registrations::Registrations<Mr>,
}

impl Registrations {
    pub(crate) fn new(domain: &Arc<Domain>) -> Self {
        Self { domain: Arc::clone(domain), taken: registrations::Registrations::new() }
    }

    /// Registers the buffer, or finds it registered: what to give back, and its key. The caller must [`Self::give_back`] it.
    ///
    /// # Safety
    /// The buffer is valid until it is given back.
    pub(crate) unsafe fn take(
        &mut self,
        base: *const u8,
        len: usize,
        is_written: bool,
    ) -> Result<(Taken, u32), PostError> {
        let access: c_int = if is_written { sys::IBV_ACCESS_LOCAL_WRITE } else { 0 };
        let domain = &self.domain;
        // There may be room when others are over.
        let others = self.taken.is_in_use_beside(core::iter::empty());
        let (taken, mr) = self.taken.take(base as usize, len, is_written, |_| {
            // SAFETY: by the caller's promise.
            unsafe { Mr::open(domain, base.cast_mut(), len, access) }.map_err(|code| match code {
                libc::ENOMEM if others => PostError::Again,
                code => PostError::Failed(errno_code(code)),
            })
        })?;
        Ok((taken, mr.lkey()))
    }

    /// An operation that used the registration is complete.
    pub(crate) fn give_back(&mut self, taken: Taken) {
        self.taken.give_back(taken);
    }
}
