//! Where received packets are while the engine has them: memory of this process's, that no peer can change.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::{alloc_zeroed, dealloc};

use rma_core::provider::ProviderError;

use crate::error::refused;
use crate::head::CLASSES;
use crate::options::Options;

/// Receive buffers of both classes.
#[derive(Debug)]
pub(crate) struct Buffers {
    base: NonNull<u8>,
    layout: Layout,
    packet_bytes: usize,
    stride: usize,
    per_class: usize,
    /// By class; who came back last is lent first, so that few pages are touched.
    free: [Vec<u32>; CLASSES],
}

// SAFETY: the memory belongs to this value, and to whom its buffers are lent.
unsafe impl Send for Buffers {}

impl Buffers {
    pub(crate) fn new(options: &Options) -> Result<Self, ProviderError> {
        let per_class = options.receive_buffers;
        let stride = options.packet_bytes.next_multiple_of(LINE_BYTES);
        let bytes = CLASSES * per_class * stride;
        let no_memory = || refused(format!("there are no {bytes} bytes for receive buffers"));
        let layout = Layout::from_size_align(bytes, LINE_BYTES).map_err(|_| no_memory())?;
        // SAFETY: the size is not zero, as the options were checked.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(no_memory)?;
        let free = core::array::from_fn(|class| {
            let first = class * per_class;
            (first as u32..(first + per_class) as u32).rev().collect()
        });
        Ok(Self { base, layout, packet_bytes: options.packet_bytes, stride, per_class, free })
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// The buffer that would be lent next, to be filled.
    #[inline]
    pub(crate) fn next(&mut self, class: usize) -> Option<&mut [u8]> {
        let buffer = *self.free[class].last()?;
        let at = self.at(buffer);
        // SAFETY: within the allocation, initialised, and of a buffer that is not lent.
        Some(unsafe { core::slice::from_raw_parts_mut(at.as_ptr(), self.packet_bytes) })
    }

    /// Whether there is a buffer.
    #[inline]
    pub(crate) fn has_free(&self, class: usize) -> bool {
        !self.free[class].is_empty()
    }

    /// Lends the buffer of [`Self::next`].
    #[inline]
    pub(crate) fn lend(&mut self, class: usize) -> Option<(NonNull<u8>, u32)> {
        let buffer = self.free[class].pop()?;
        Some((self.at(buffer), buffer | BUFFERS))
    }

    /// Takes a buffer back: of which class it is.
    #[inline]
    pub(crate) fn take_back(&mut self, buffer: u32) -> usize {
        let buffer = buffer & !BUFFERS;
        let class = usize::from(buffer as usize >= self.per_class);
        self.free[class].push(buffer);
        class
    }

    #[inline]
    fn at(&self, buffer: u32) -> NonNull<u8> {
        debug_assert!((buffer as usize) < CLASSES * self.per_class);
        // SAFETY: within the allocation.
        unsafe { self.base.add(buffer as usize * self.stride) }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

const LINE_BYTES: usize = 64;
/// Set in the numbers of lent buffers, see [`crate::ShmEndpoint::is_packet`].
pub(crate) const BUFFERS: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_have_their_class_and_do_not_overlap() {
        let options = Options { receive_buffers: 3, packet_bytes: 520, ..Options::default() };
        let mut buffers = Buffers::new(&options).unwrap();
        let mut lent = Vec::new();
        for class in 0..CLASSES {
            while let Some(buffer) = buffers.next(class) {
                assert_eq!(buffer.len(), 520);
                buffer.fill(lent.len() as u8 + 1);
                lent.push((class, buffers.lend(class).unwrap()));
            }
            assert!(!buffers.has_free(class));
        }
        assert_eq!(lent.len(), 6);
        for (value, (class, (at, buffer))) in (1..).zip(lent) {
            // SAFETY: of a buffer that is lent.
            let bytes = unsafe { core::slice::from_raw_parts(at.as_ptr(), 520) };
            assert!(bytes.iter().all(|&byte| byte == value));
            assert_eq!(buffers.take_back(buffer), class);
        }
    }
}
