//! Dynamic windows (MPI-4.1 section 13.2.4): memory is attached and detached while the window exists.
//!
//! Operations are messages, and the target looks their address up in the table of attached regions at the moment
//! when it executes them; so an access to memory that was detached is an error of the origin. Large puts and
//! gets go natively: the origin asks for a record of the region, and keeps it until the target wants it back.
//! The registration is closed when everybody has given his records up, so that no fabric meets a stale key.
#![allow(unsafe_code)] // attached memory comes as a raw pointer

use core::ptr::NonNull;
use core::task::Poll;

use super::window::{check_span, sharing, Making};
use super::{Engine, Stage, SyncCall};
use crate::bootstrap::Bootstrap;
use crate::error::{Call, ErrorClass, RmaError, Rule};
use crate::ids::{RemoteKey, WindowId};
use crate::info::{Flavor, WindowOptions};
use crate::mem::{AttachError, WindowMemory};
use crate::mutation::Mutation;
use crate::provider::Endpoint;

/// Keys of regions: apart from those of windows, and within 32 bits, as some fabrics have no longer ones.
const REGION_KEY_BASE: u64 = 0x4000_0000;
const REGION_KEY_MASK: u32 = 0x3fff_ffff;

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
            is_allocated: false,
            disp_unit: 1,
            options,
            remote: None,
            error: None,
        })
    }

    /// Attaches `len` bytes at `base` to a dynamic window, at this rank. The others must learn of it by other
    /// means before they access it. May allocate, and registers large regions with the fabric, if that has room.
    ///
    /// Implements: MPI_Win_attach.
    ///
    /// # Safety
    /// Until the region is detached or the window freed without an error, or the engine gone: `base` stays valid for `len`
    /// bytes of reads and writes, and is accessed otherwise only as shared memory that others may change.
    ///
    /// # Errors
    /// When the window is not dynamic, the region overlaps one that is attached, or it cannot be.
    pub unsafe fn attach(&mut self, window: WindowId, base: *mut u8, len: usize) -> Result<(), RmaError> {
        let call = Call::Attach;
        let w = self.window(call, window)?;
        let dynamic = w.dynamic.as_ref().ok_or_else(|| not_dynamic(call))?;
        check_span(call, base, len)?;
        if base.is_null() {
            let what = "the base is null; give the address of the memory";
            return Err(RmaError::Invalid { call, class: ErrorClass::Base, what, rule: Rule::BaseThere });
        }
        let is_wanted = dynamic.wants_registration(len);
        let region = if is_wanted { self.register_region(base, len) } else { None };
        // The fabric executes no accumulates there.
        let sharing = sharing(region.as_ref(), false);
        // SAFETY: the caller's promise.
        let memory = unsafe { WindowMemory::new(base, len) }.shared(sharing);
        let dynamic = self.window(call, window)?.dynamic.as_mut().ok_or_else(|| not_dynamic(call))?;
        dynamic.attach(memory, region).map_err(|error| {
            let what = match error {
                AttachError::Overlap => {
                    "a part of the memory, or a region that begins where it does, is attached already; detach that region \
                     first"
                }
                AttachError::NoMemory => "there is no memory for another entry of the region table",
            };
            RmaError::Invalid { call, class: ErrorClass::RmaAttach, what, rule: Rule::AttachedOnce }
        })
    }

    /// The registration of a region; `None` where the fabric has no room for one more: messages do without.
    fn register_region(&mut self, base: *mut u8, len: usize) -> Option<E::Region> {
        let base = NonNull::new(base)?;
        let process = &mut self.process;
        process.regions_registered = process.regions_registered.wrapping_add(1);
        let key = RemoteKey(REGION_KEY_BASE | u64::from(process.regions_registered & REGION_KEY_MASK));
        // SAFETY: the memory is valid and shared until it is detached, by the promise of attach's caller, and
        // the region is dropped before detach is over, or with the window.
        unsafe { process.endpoint.register(base, len, key) }.ok()
    }

    /// Begins to detach the region that begins at `base`, at this rank. From now on operations that arrive are
    /// errors of their origins. Those that the fabric executes are waited for, and so are the ranks that might
    /// begin such: none, unless the region was accessed natively. The memory may be used otherwise, and go,
    /// when the call is done.
    ///
    /// Implements: MPI_Win_detach.
    ///
    /// # Errors
    /// When the window is not dynamic, or no attached region begins there.
    pub fn start_detach(&mut self, window: WindowId, base: *const u8) -> Result<SyncCall, RmaError> {
        let call = Call::Detach;
        let w = self.window(call, window)?;
        let dynamic = w.dynamic.as_mut().ok_or_else(|| not_dynamic(call))?;
        let Some(detached) = dynamic.detach(base.addr() as u64) else {
            let what = "no attached region begins at this address; give the base that was attached";
            return Err(RmaError::Invalid {
                call,
                class: ErrorClass::RmaAttach,
                what,
                rule: Rule::DetachAttached,
            });
        };
        let stage = detached.map_or(Stage::Done, |version| Stage::Detach { version });
        Ok(SyncCall::new(call, window, stage))
    }

    pub(super) fn poll_detach(&mut self, sync: &SyncCall, version: u32) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(sync.window) else {
            return Poll::Ready(Err(RmaError::Window { call: sync.call, window: sync.window }));
        };
        self.process.send_revokes(w);
        match w.dynamic.as_deref_mut() {
            Some(dynamic) if dynamic.holders.await_any(version) && !Mutation::DetachUnwaited.is_on() => {
                Poll::Pending
            }
            Some(dynamic) => {
                dynamic.close_until(version);
                Poll::Ready(Ok(()))
            }
            None => Poll::Ready(Err(not_dynamic(sync.call))),
        }
    }
}

fn not_dynamic(call: Call) -> RmaError {
    let what = "the window is not dynamic; make it with create_dynamic";
    RmaError::Invalid { call, class: ErrorClass::RmaFlavor, what, rule: Rule::DynamicWindow }
}
