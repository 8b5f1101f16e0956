//! Memory of simulated processes: what a rank exposes, and the buffers of its operations. Engine and fabric
//! reach it through pointers at any time, so no reference to it ever exists.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, AtomicU8, Ordering::Relaxed};

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// The memory that one rank gives to one window.
#[derive(Clone, Copy, Debug)]
pub struct Exposed {
    base: Option<NonNull<u8>>,
    len: usize,
}

impl Exposed {
    /// No memory: not created yet, or empty.
    pub const NONE: Self = Self { base: None, len: 0 };

    /// `len` bytes at `base`.
    ///
    /// # Safety
    /// The memory stays readable and writable, by one thread, as long as the value is used.
    pub unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Self { base: Some(base), len }
    }

    /// The byte at `offset`, or the end; `None`: there is no memory, or less.
    pub fn place(self, offset: usize) -> Option<NonNull<u8>> {
        let base = self.base.filter(|_| offset <= self.len)?;
        // SAFETY: inside the memory or at its end, valid by the promise to `new`.
        Some(unsafe { base.add(offset) })
    }

    /// A copy of `len` bytes at `offset`.
    ///
    /// # Panics
    /// When they are not inside.
    pub fn read(self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len, "the plan stays inside the window");
        let mut bytes = vec![0; len];
        let Some(base) = self.base.filter(|_| len > 0) else { return bytes };
        // SAFETY: inside the memory, valid by the promise to `new`.
        let from = unsafe { base.as_ptr().add(offset) };
        // SAFETY: readable for `len` bytes; the vector is ours.
        unsafe { core::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), len) };
        bytes
    }

    /// The same by atomic loads, of words where there are some: for memory of which others may access other places.
    ///
    /// # Panics
    /// When they are not inside.
    pub fn load(self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len, "the plan stays inside the window");
        let mut bytes = vec![0; len];
        let mut rest = &mut bytes[..];
        while let Some(place) = self.place(offset + len - rest.len()).filter(|_| !rest.is_empty()) {
            if is_word(place, rest.len()) {
                // SAFETY: an aligned word inside the memory, valid by the promise to `new`.
                let word = unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) };
                rest[..WORD].copy_from_slice(&word.load(Relaxed).to_ne_bytes());
                rest = &mut rest[WORD..];
            } else {
                // SAFETY: inside the memory, valid by the promise to `new`.
                let byte = unsafe { AtomicU8::from_ptr(place.as_ptr()) };
                rest[0] = byte.load(Relaxed);
                rest = &mut rest[1..];
            }
        }
        bytes
    }

    /// Stores `bytes` at `offset`, in the same way.
    ///
    /// # Panics
    /// When they are not inside.
    pub fn store(self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len, "the plan stays inside the window");
        let mut rest = bytes;
        while let Some(place) = self.place(offset + bytes.len() - rest.len()).filter(|_| !rest.is_empty()) {
            if is_word(place, rest.len()) {
                let mut raw = [0; WORD];
                raw.copy_from_slice(&rest[..WORD]);
                // SAFETY: an aligned word inside the memory, valid by the promise to `new`.
                let word = unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) };
                word.store(u64::from_ne_bytes(raw), Relaxed);
                rest = &rest[WORD..];
            } else {
                // SAFETY: inside the memory, valid by the promise to `new`.
                let byte = unsafe { AtomicU8::from_ptr(place.as_ptr()) };
                byte.store(rest[0], Relaxed);
                rest = &rest[1..];
            }
        }
    }

    /// Stores `bytes` at `offset`.
    ///
    /// # Panics
    /// When they are not inside.
    pub fn write(self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len, "the plan stays inside the window");
        let Some(base) = self.base.filter(|_| !bytes.is_empty()) else { return };
        // SAFETY: inside the memory, valid by the promise to `new`.
        let to = unsafe { base.as_ptr().add(offset) };
        // SAFETY: writable for the bytes; they are ours.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}

/// Whether the next access may be one of a word.
fn is_word(place: NonNull<u8>, left: usize) -> bool {
    left >= WORD && place.addr().get() % WORD == 0
}

/// Owned memory, aligned for every element type, at an address that stays the same.
#[derive(Debug)]
pub struct Buffer {
    words: NonNull<[u64]>,
    len: usize,
}

impl Buffer {
    /// `len` zeroed bytes.
    pub fn new(len: usize) -> Self {
        let words = Box::leak(vec![0_u64; len.div_ceil(8)].into_boxed_slice());
        Self { words: NonNull::from(words), len }
    }

    /// A copy of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let buffer = Self::new(bytes.len());
        buffer.exposed().write(0, bytes);
        buffer
    }

    /// The first byte; not to be dereferenced when the buffer is empty.
    pub fn base(&self) -> NonNull<u8> {
        self.words.cast()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory as others see it; not to be used after the buffer is dropped.
    pub fn exposed(&self) -> Exposed {
        // SAFETY: the words are ours until `drop`; a simulation runs on one thread.
        unsafe { Exposed::new(self.base(), self.len) }
    }

    /// Overwrites it, so that who reads it too late reads nonsense.
    pub fn poison(&self) {
        self.exposed().write(0, &vec![0xee; self.len]);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the words came from a leaked box and are freed once.
        drop(unsafe { Box::from_raw(self.words.as_ptr()) });
    }
}
