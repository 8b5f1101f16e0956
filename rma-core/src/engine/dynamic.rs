//! Dynamic windows (MPI-4.1 section 13.2.4): memory is attached and detached while the window exists.
//!
//! Every operation is a message: the target looks its address up in the table of attached regions, at the
//! moment when it executes. So an access to memory that was detached is an error of the origin whatever it
//! has remembered, and no key that a fabric might still honour, or choke on, is ever given out.
#![allow(unsafe_code)] // attached memory comes as a raw pointer

use super::window::{check_span, Making};
use super::{Engine, SyncCall};
use crate::bootstrap::Bootstrap;
use crate::error::{Call, ErrorClass, RmaError};
use crate::ids::WindowId;
use crate::info::{Flavor, WindowOptions};
use crate::mem::{AttachError, WindowMemory};
use crate::provider::Endpoint;

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Begins to make a window without memory (MPI-4.1 section 13.2.4). Collective. A displacement in it is
    /// an address at the target: what the target's pointer to the byte says.
    ///
    /// Implements: MPI_Win_create_dynamic.
    ///
    /// # Errors
    /// When the endpoint is broken.
    pub fn start_create_dynamic(
        &mut self,
        options: &WindowOptions,
    ) -> Result<(WindowId, SyncCall), RmaError> {
        let (call, flavor) = (Call::CreateDynamic, Flavor::Dynamic);
        // SAFETY: no byte.
        let memory = unsafe { WindowMemory::new(core::ptr::null_mut(), 0) };
        self.start_window(Making {
            call,
            flavor,
            memory,
            owned: None,
            disp_unit: 1,
            options,
            remote: None,
            error: None,
        })
    }

    /// Attaches `len` bytes at `base` to a dynamic window, at this rank. The others must learn of it by other
    /// means before they access it. May allocate.
    ///
    /// Implements: MPI_Win_attach.
    ///
    /// # Safety
    /// Until the region is detached or the window freed: `base` stays valid for `len` bytes of reads and
    /// writes, and is accessed otherwise only as shared memory that others may change.
    ///
    /// # Errors
    /// When the window is not dynamic, the region overlaps one that is attached, or it cannot be.
    pub unsafe fn attach(&mut self, window: WindowId, base: *mut u8, len: usize) -> Result<(), RmaError> {
        let call = Call::Attach;
        let w = self.window(call, window)?;
        let regions = w.regions.as_mut().ok_or_else(|| not_dynamic(call))?;
        check_span(call, base, len)?;
        if base.is_null() {
            let what = "the base is null; give the address of the memory";
            return Err(RmaError::Invalid { call, class: ErrorClass::Base, what });
        }
        // SAFETY: the caller's promise.
        let memory = unsafe { WindowMemory::new(base, len) };
        regions.attach(memory).map_err(|error| {
            let what = match error {
                AttachError::Overlap => "a part of the memory is attached already; detach that region first",
                AttachError::NoMemory => "there is no memory for another entry of the region table",
            };
            RmaError::Invalid { call, class: ErrorClass::RmaAttach, what }
        })
    }

    /// Detaches the region that begins at `base`, at this rank. Waits for nobody: operations that arrive
    /// later are errors of their origins.
    ///
    /// Implements: MPI_Win_detach.
    ///
    /// # Errors
    /// When the window is not dynamic, or no attached region begins there.
    pub fn detach(&mut self, window: WindowId, base: *const u8) -> Result<(), RmaError> {
        let call = Call::Detach;
        let w = self.window(call, window)?;
        let regions = w.regions.as_mut().ok_or_else(|| not_dynamic(call))?;
        match regions.detach(base.addr() as u64) {
            Some(_) => Ok(()),
            None => {
                let what = "no attached region begins at this address; give the base that was attached";
                Err(RmaError::Invalid { call, class: ErrorClass::RmaAttach, what })
            }
        }
    }
}

fn not_dynamic(call: Call) -> RmaError {
    let what = "the window is not dynamic; make it with create_dynamic";
    RmaError::Invalid { call, class: ErrorClass::RmaFlavor, what }
}
