//! The epochs, on memory that both sides check.

use rma::raw::RawWindow;
use rma::{Config, Dtype, FenceAssert, Job, LockProtocol, LockType, Path, WindowOptions};

use super::rows::{self, Offered, Row};
use super::TARGET;
use crate::cli::EpochKind;
use crate::Outcome;

/// What the target's window holds where it is only read.
const READ_PATTERN: u8 = 0xC3;

/// The windows and buffers of one rank.
///
/// A window has a place for each operation, and one more that is never written, for gets.
pub(super) struct Ground {
    /// On the path that the fabric offers.
    offered: RawWindow,
    /// By message, where the first is native.
    by_message: Option<RawWindow>,
    /// As the first, with locks that are words, where the fabric can and the first is native.
    nic_lock: Option<RawWindow>,
    operations: usize,
    size: usize,
    /// What the puts of one epoch write, one after the other.
    data: Vec<u8>,
    result: Vec<u8>,
    /// Epochs of this batch so far.
    epochs: u64,
    /// Batches so far, the same at all ranks.
    batches: u64,
}

impl Ground {
    /// Makes the windows, and lets origin and target get to know each other. Collective.
    pub(super) fn new(job: &Job, operations: usize, size: usize) -> Outcome<Self> {
        let bytes = operations.checked_add(1).and_then(|places| places.checked_mul(size));
        let bytes = bytes.ok_or("more operations and bytes than memory can hold")?;
        let settings = job.config();
        let offered = window(job, &settings, bytes, LockProtocol::Message)?;
        let is_native = offered.paths(Dtype::U8)[0] == Path::Native;
        let (mut by_message, mut nic_lock) = (None, None);
        if is_native {
            let forced = Config { force_message_path: true, ..settings.clone() };
            by_message = Some(window(job, &forced, bytes, LockProtocol::Message)?);
            // The next windows are offered what the fabric has again.
            let words = window(job, &settings, bytes, LockProtocol::Nic)?;
            if words.options()?.lock_protocol == Some(LockProtocol::Nic) {
                nic_lock = Some(words);
            } else {
                words.free()?;
            }
        }
        let mut ground = Self {
            offered,
            by_message,
            nic_lock,
            operations,
            size,
            data: vec![0; bytes - size],
            result: vec![0; size],
            epochs: 0,
            batches: 0,
        };
        for window in ground.windows() {
            // SAFETY: the last place of the window is inside of it, and nobody accesses it yet.
            let place = unsafe { window.base().add(operations * size) };
            // SAFETY: the place has `size` bytes.
            unsafe { place.write_bytes(READ_PATTERN, size) };
        }
        job.barrier()?;
        if job.rank() == super::ORIGIN {
            for window in ground.windows() {
                ground.lock_puts(window, 1)?;
            }
        }
        job.barrier()?;
        ground.prepare();
        Ok(ground)
    }

    /// What the windows could be had with, the same at all ranks.
    pub(super) fn offered(&self) -> Offered {
        Offered { is_native: self.by_message.is_some(), has_nic_locks: self.nic_lock.is_some() }
    }

    fn windows(&self) -> impl Iterator<Item = &RawWindow> {
        std::iter::once(&self.offered).chain(&self.by_message).chain(&self.nic_lock)
    }

    /// Frees the windows. Collective.
    pub(super) fn free(self) -> Outcome<()> {
        let Self { offered, by_message, nic_lock, .. } = self;
        for window in std::iter::once(offered).chain(by_message).chain(nic_lock) {
            window.free()?;
        }
        Ok(())
    }

    /// Another batch begins, at all ranks.
    pub(super) fn begin_batch(&mut self) {
        self.batches += 1;
        self.epochs = 0;
    }

    /// Makes the data of the next epoch, different from every other's.
    pub(super) fn prepare(&mut self) {
        self.epochs += 1;
        for place in 0..self.operations {
            let stamp = stamp(self.batches, self.epochs, place);
            let data = &mut self.data[place * self.size..(place + 1) * self.size];
            for (byte, value) in data.iter_mut().zip(stamp) {
                *byte = value;
            }
        }
        self.result.fill(0);
    }

    /// One epoch at the origin.
    pub(super) fn epoch(&mut self, row: &Row) -> Outcome<()> {
        let window = self.window(row);
        match row.epoch {
            EpochKind::LockPutUnlock => self.lock_puts(window, 1),
            EpochKind::LockPutsUnlock => self.lock_puts(window, self.operations),
            EpochKind::LockPutsGetUnlock => self.lock_puts_get(row),
            EpochKind::FencePutFence => {
                window.fence(OPENING)?;
                self.put(window, 0)?;
                Ok(window.fence(CLOSING)?)
            }
        }
    }

    /// The same epochs at the other ranks, as far as they take part.
    pub(super) fn take_part(&self, row: &Row, count: usize) -> Outcome<()> {
        if row.epoch == EpochKind::FencePutFence {
            let window = self.window(row);
            for _ in 0..count {
                window.fence(OPENING)?;
                window.fence(CLOSING)?;
            }
        }
        Ok(())
    }

    /// Operations in one epoch of the row.
    pub(super) const fn operations(epoch: EpochKind, several: usize) -> usize {
        match epoch {
            EpochKind::LockPutUnlock | EpochKind::FencePutFence => 1,
            EpochKind::LockPutsUnlock | EpochKind::LockPutsGetUnlock => several,
        }
    }

    fn window(&self, row: &Row) -> &RawWindow {
        let other = match row.path {
            rows::Path::Native => None,
            rows::Path::Message => self.by_message.as_ref(),
            rows::Path::NicLock => self.nic_lock.as_ref(),
        };
        other.unwrap_or(&self.offered)
    }

    fn lock_puts(&self, window: &RawWindow, count: usize) -> Outcome<()> {
        window.lock(LockType::Exclusive, TARGET, false)?;
        for place in 0..count {
            self.put(window, place)?;
        }
        Ok(window.unlock(TARGET)?)
    }

    /// The get comes second, so that there is something to move to the tail.
    fn lock_puts_get(&mut self, row: &Row) -> Outcome<()> {
        let (result, size, disp) = (self.result.as_mut_ptr(), self.size, self.operations * self.size);
        let window = self.window(row);
        window.lock(LockType::Exclusive, TARGET, false)?;
        self.put(window, 0)?;
        // SAFETY: the result has `size` bytes and is not touched until the unlock below is done.
        unsafe { window.get(result, size, TARGET, disp as u64) }?;
        for place in 1..self.operations - 1 {
            self.put(window, place)?;
        }
        Ok(window.unlock(TARGET)?)
    }

    #[inline]
    fn put(&self, window: &RawWindow, place: usize) -> Outcome<()> {
        let disp = place * self.size;
        let data = &self.data[disp..disp + self.size];
        // SAFETY: the data are written again only by `prepare`, after the end of the epoch.
        Ok(unsafe { window.put(data.as_ptr(), data.len(), TARGET, disp as u64) }?)
    }

    /// Whether the origin got what the target holds.
    pub(super) fn check_result(&self, row: &Row) -> Outcome<()> {
        if row.epoch == EpochKind::LockPutsGetUnlock && self.result.iter().any(|&byte| byte != READ_PATTERN) {
            return Err(wrong(row, "a get brought other bytes than the target holds"));
        }
        Ok(())
    }

    /// Whether the target's window holds what the last epoch of the batch wrote.
    pub(super) fn check_memory(&self, row: &Row, count: usize) -> Outcome<()> {
        let window = self.window(row);
        let puts = match row.epoch {
            EpochKind::LockPutsGetUnlock => self.operations - 1,
            epoch => Self::operations(epoch, self.operations),
        };
        for place in 0..puts {
            let stamp = stamp(self.batches, count as u64, place);
            for (offset, expected) in (0..self.size).zip(stamp.into_iter().chain(std::iter::repeat(0))) {
                // SAFETY: the place is inside of the window.
                let byte = unsafe { window.base().add(place * self.size + offset) };
                // SAFETY: the byte is valid; the origin is past its last epoch and does not write it now.
                if unsafe { byte.read_volatile() } != expected {
                    return Err(wrong(row, "a put did not arrive, or arrived wrong"));
                }
            }
        }
        Ok(())
    }
}

/// What tells the data of one operation from those of every other.
fn stamp(batch: u64, epoch: u64, place: usize) -> [u8; 8] {
    // An odd factor, so that neighbours differ in every byte.
    (batch << 40 ^ epoch << 16 ^ place as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn wrong(row: &Row, what: &str) -> Box<dyn std::error::Error> {
    let (epoch, switches, path) = (row.epoch.name(), row.switches.name(), row.path.name());
    format!("{epoch}, {switches}, {path}: {what}").into()
}

fn window(job: &Job, settings: &Config, bytes: usize, protocol: LockProtocol) -> Outcome<RawWindow> {
    job.set_switches(settings);
    let options = WindowOptions { lock_protocol: Some(protocol), ..WindowOptions::DEFAULT };
    Ok(RawWindow::allocate_with(job, bytes, 1, &options)?)
}

const OPENING: FenceAssert =
    FenceAssert { no_precede: true, no_succeed: false, no_store: false, no_put: false };
const CLOSING: FenceAssert =
    FenceAssert { no_precede: false, no_succeed: true, no_store: false, no_put: false };
