#![allow(unsafe_code)] // the window is memory of the test

use super::*;
use crate::dtype::Dtype;
use crate::ids::RemoteKey;
use crate::mem::WindowMemory;
use crate::op::ReduceOp;
use crate::wire::{Metadata, Notifies, OpKind, Reader, Record, ResultRecord, Writer};

const BYTES: usize = 64;

/// What a window of these bytes holds when `change` is over, and what that returns.
fn change<T>(change: impl FnOnce(&WindowMemory) -> T) -> ([u64; BYTES / 8], T) {
    let mut words: [u64; BYTES / 8] =
        core::array::from_fn(|index| 0x0101_0203_0508_0d15 * (index as u64 + 1));
    let base = core::ptr::from_mut(&mut words).cast::<u8>();
    // SAFETY: the words outlive the memory, and nothing else refers to them meanwhile.
    let memory = unsafe { WindowMemory::new(base, BYTES) };
    let result = change(&memory);
    (words, result)
}

#[test]
fn an_element_alone_is_executed_as_in_a_batch() {
    let mut swapped = 0;
    let kinds = [OpKind::Accumulate, OpKind::GetAccumulate, OpKind::CompareAndSwap];
    let codes = Dtype::ALL.into_iter().flat_map(|dtype| ReduceOp::ALL.map(|op| (dtype, op)));
    for ((dtype, op), kind) in codes.flat_map(|codes| kinds.map(|kind| (codes, kind))) {
        // At a multiple of its size, between two, half outside, and outside.
        for (disp, disp_unit) in [(4, 4), (3, 4), (15, 4), (16, 4), (u64::MAX, 4), (5, 1), (31, 1), (63, 1)] {
            let metadata =
                Metadata { size: BYTES as u64, base: 0, key: RemoteKey(1), disp_unit, misalignment: 0 };
            let (handle, generation) = if kind.has_result() { (8, 9) } else { (0, 0) };
            let (len, notifies) = (dtype.size() as u32, Notifies::No);
            let record = Record { kind, dtype, op, len, disp, offset: 0, handle, generation, notifies };
            let mut packet = [3; 128];
            let mut out = Writer::new(&mut packet, 0);
            assert!(record.encode(&mut out));
            let (first, end) = (out.len(), out.len() + record.payload_bytes());
            if kind == OpKind::CompareAndSwap && op == ReduceOp::Replace {
                // What is there, so that it is swapped.
                let at = disp.wrapping_mul(disp_unit.into());
                let _ = change(|memory| memory.read(at, &mut packet[first..first + dtype.size()]));
            }
            let mut answer = [0; 64];
            let (in_batch, executed) = change(|memory| {
                let (mut reader, mut out) = (Reader::new(&packet[..end]), Writer::new(&mut answer, 0));
                execute(memory, None, &metadata, None, 1, &mut reader, &mut out)
            });
            let mut result = [0; Dtype::SIZE_MAX];
            let result = if kind.has_result() { &mut result[..dtype.size()] } else { &mut [] };
            let (alone, done) = change(|memory| {
                let read = Record::decode_element(&Reader::new(&packet[..end]));
                let (record, payload) = read.expect("an atomic of one element");
                execute_element(memory, &metadata, &record, payload, result)
            });
            assert_eq!((alone, done.is_err()), (in_batch, executed.error.is_some()), "{record:?}");
            swapped += u32::from(kind == OpKind::CompareAndSwap && alone != change(|_| ()).0);
            if kind.has_result() && done.is_ok() {
                let (_, bytes) = ResultRecord::decode(&mut Reader::new(&answer)).expect("a result");
                assert_eq!(bytes, result, "{record:?}");
            }
        }
    }
    assert!(swapped > 50, "only {swapped} have changed what is there");
}
