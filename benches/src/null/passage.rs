//! The null fabric's passage: everything is at hand, as it is to who has found it, and costs nothing.

use std::sync::atomic::Ordering;

use rma_core::ids::PeerAddr;
use rma_core::provider::{Passage, RemoteAddr, Swapped, WordChange};

use super::NullEndpoint;

/// Where the words are, by their addresses.
#[derive(Debug)]
pub struct NullPassage {
    to: PeerAddr,
    words: Option<RemoteAddr>,
    memory: RemoteAddr,
}

/// So many bytes behind an address.
fn behind(at: RemoteAddr, bytes: u64) -> RemoteAddr {
    RemoteAddr { addr: at.addr.wrapping_add(bytes), ..at }
}

impl NullPassage {
    pub(super) fn new(to: PeerAddr, words: Option<RemoteAddr>, memory: RemoteAddr) -> Self {
        Self { to, words, memory }
    }
}

/// Swaps one word, or both of a lock. It is counted as the fabric's as a whole, so it calls none of its other functions.
#[inline(never)]
#[no_mangle]
fn null_passage_swap(
    passage: &NullPassage,
    endpoint: &mut NullEndpoint,
    first: usize,
    low: (u64, u64),
    high: Option<&(u64, u64)>,
) -> Option<Swapped> {
    let mut swapped = Swapped { count: 0, other: 0 };
    for (place, (from, into)) in (first..).zip([Some(&low), high].into_iter().flatten()) {
        let at = behind(passage.words?, 8 * place as u64);
        let word = endpoint.word(passage.to, at)?;
        if let Err(other) = word.compare_exchange(*from, *into, Ordering::SeqCst, Ordering::SeqCst) {
            swapped.other = other;
            break;
        }
        swapped.count += 1;
    }
    Some(swapped)
}

/// A put, a get, or what there is to be done of them behind a swap.
#[inline(never)]
#[no_mangle]
fn null_passage_bytes(passage: &NullPassage, bytes: *const u8, len: usize, offset: u64) -> bool {
    std::hint::black_box((passage, bytes, len, offset));
    true
}

/// Changes a word.
#[inline(never)]
#[no_mangle]
fn null_passage_change(
    passage: &NullPassage,
    endpoint: &mut NullEndpoint,
    change: &WordChange,
    offset: u64,
) -> Option<u64> {
    let word = endpoint.word(passage.to, behind(passage.memory, offset))?;
    Some(match *change {
        WordChange::Add(addend) | WordChange::Tell(addend) => word.fetch_add(addend, Ordering::SeqCst),
        WordChange::Swap(from, into) => word
            .compare_exchange(from, into, Ordering::SeqCst, Ordering::SeqCst)
            .unwrap_or_else(|other| other),
    })
}

impl Passage<NullEndpoint> for NullPassage {
    #[inline]
    unsafe fn swap<const N: usize>(
        &mut self,
        endpoint: &mut NullEndpoint,
        first: usize,
        swaps: [(u64, u64); N],
    ) -> Option<Swapped> {
        let low = *swaps.first()?;
        null_passage_swap(self, endpoint, first, low, swaps.get(1))
    }

    #[inline]
    unsafe fn swap_and_put<const N: usize>(
        &mut self,
        endpoint: &mut NullEndpoint,
        first: usize,
        swaps: [(u64, u64); N],
        (src, len): (*const u8, usize),
        offset: u64,
    ) -> Option<(Swapped, bool)> {
        // SAFETY: the caller's promise.
        let swapped = unsafe { self.swap(endpoint, first, swaps) }?;
        Some((swapped, swapped.count == N && null_passage_bytes(self, src, len, offset)))
    }

    #[inline]
    unsafe fn put(&mut self, _: &mut NullEndpoint, (src, len): (*const u8, usize), offset: u64) -> bool {
        null_passage_bytes(self, src, len, offset)
    }

    #[inline]
    unsafe fn get(&mut self, _: &mut NullEndpoint, (dst, len): (*mut u8, usize), offset: u64) -> bool {
        null_passage_bytes(self, dst, len, offset)
    }

    #[inline]
    unsafe fn change(&mut self, endpoint: &mut NullEndpoint, change: WordChange, offset: u64) -> Option<u64> {
        null_passage_change(self, endpoint, &change, offset)
    }
}
