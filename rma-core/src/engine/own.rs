//! Operations of this process on its own window: loads and stores.
#![allow(unsafe_code)] // user buffers come as raw pointers

use super::Operation;
use crate::mem::{AccumulateError, WindowMemory};
use crate::wire::OpKind;

/// Executes an operation on this process's own window.
///
/// # Safety
/// The operation's buffers are valid.
pub(super) unsafe fn apply(
    memory: &WindowMemory,
    operation: &Operation,
    offset: u64,
) -> Result<(), AccumulateError> {
    let &Operation { kind, dtype, op, len, origin, result, compare, .. } = operation;
    // SAFETY (all three): valid for the lengths by the caller's promise; null is replaced where a kind
    // does not use the buffer.
    let bytes = |pointer: *const u8, len: usize| -> &[u8] {
        if pointer.is_null() || len == 0 {
            return &[];
        }
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts(pointer, len) }
    };
    let result_bytes = |len: usize| -> &mut [u8] {
        if result.is_null() || len == 0 {
            return &mut [];
        }
        // SAFETY: as above; the user does not touch the result buffer meanwhile.
        unsafe { core::slice::from_raw_parts_mut(result, len) }
    };
    match kind {
        // SAFETY: valid by the caller's promise; the buffer may lie in the window itself.
        OpKind::Put => unsafe { memory.write_from_ptr(offset, origin, len) }.map_err(Into::into),
        // SAFETY: as for put.
        OpKind::Get => unsafe { memory.read_to_ptr(offset, result, len) }.map_err(Into::into),
        OpKind::Accumulate => memory.accumulate(offset, dtype, op, bytes(origin, len)),
        OpKind::GetAccumulate => {
            memory.get_accumulate(offset, dtype, op, bytes(origin, len), result_bytes(len))
        }
        OpKind::CompareAndSwap => {
            memory.compare_and_swap(offset, dtype, bytes(compare, len), bytes(origin, len), result_bytes(len))
        }
    }
}
