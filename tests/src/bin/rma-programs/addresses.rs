//! Where the ranks' regions of a dynamic window are: each tells the others, by a window made for that.

use rma::raw::RawWindow;
use rma::{FenceAssert, Job, Rank, Result};

/// Bytes of an address.
const ADDRESS_BYTES: usize = 8;

/// Tells every rank an address, and returns those of all. Collective.
pub(crate) fn exchange(job: &Job, address: u64) -> Result<Vec<u64>> {
    let (rank, ranks) = (u64::from(job.rank().0), job.size());
    let window = RawWindow::allocate(job, ADDRESS_BYTES * ranks as usize, ADDRESS_BYTES as u32)?;
    let bytes = address.to_ne_bytes();
    window.fence(FenceAssert { no_precede: true, ..FenceAssert::default() })?;
    for target in (0..ranks).map(Rank) {
        // SAFETY: the bytes stay until the next fence has returned; after an error the process ends.
        unsafe { window.put(bytes.as_ptr(), ADDRESS_BYTES, target, rank) }?;
    }
    window.fence(FenceAssert { no_succeed: true, ..FenceAssert::default() })?;
    let mut addresses = vec![[0; ADDRESS_BYTES]; ranks as usize];
    // SAFETY: the window's memory, of which nobody puts anything any more; the vector is ours.
    unsafe {
        core::ptr::copy_nonoverlapping(
            window.base(),
            addresses.as_flattened_mut().as_mut_ptr(),
            ADDRESS_BYTES * ranks as usize,
        );
    }
    window.free()?;
    Ok(addresses.into_iter().map(u64::from_ne_bytes).collect())
}
