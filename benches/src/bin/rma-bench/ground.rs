//! A window with the operations on it that are measured, and the proof that they did what they should.
//!
//! Each partner of an origin has a part of its window for that origin alone, with a place for each operation that is
//! outstanding at once. Every operation of a batch is the same; data differ from batch to batch.

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use rma::raw::RawWindow;
use rma::{Dtype, LockType, Rank, ReduceOp};

use crate::pattern::{Part, Pattern};
use crate::team::Team;
use crate::words::Words;
use crate::Outcome;

/// An operation that can be measured.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
#[value(rename_all = "snake_case")]
pub(crate) enum Operation {
    Put,
    Get,
    Accumulate,
    GetAccumulate,
    FetchAndOp,
    CompareAndSwap,
}

impl Operation {
    /// As it is given and stored.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::Accumulate => "accumulate",
            Self::GetAccumulate => "get_accumulate",
            Self::FetchAndOp => "fetch_and_op",
            Self::CompareAndSwap => "compare_and_swap",
        }
    }

    /// Which of these sizes it can have: elements are words of 8 bytes, and some operations have one.
    pub(crate) fn sizes(self, sizes: &[usize]) -> Vec<usize> {
        match self {
            Self::Put | Self::Get => sizes.to_vec(),
            Self::Accumulate | Self::GetAccumulate => {
                let whole: Vec<usize> = sizes.iter().copied().filter(|size| size % WORD == 0).collect();
                if whole.is_empty() {
                    vec![WORD]
                } else {
                    whole
                }
            }
            Self::FetchAndOp | Self::CompareAndSwap => vec![WORD],
        }
    }

    /// Whether it brings what was at the target before.
    const fn fetches(self) -> bool {
        matches!(self, Self::GetAccumulate | Self::FetchAndOp | Self::CompareAndSwap)
    }

    const fn moves_bytes(self) -> bool {
        matches!(self, Self::Put | Self::Get)
    }
}

/// How a window gets its memory.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WindowKind {
    /// The program's memory (MPI_Win_create)
    Create,
    /// The library's memory (MPI_Win_allocate)
    Allocate,
    /// Memory that is attached later (MPI_Win_create_dynamic)
    Dynamic,
    /// Memory that the ranks of a host share (MPI_Win_allocate_shared)
    Shared,
}

impl WindowKind {
    /// As it is given and stored.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Allocate => "allocate",
            Self::Dynamic => "dynamic",
            Self::Shared => "shared",
        }
    }
}

/// A window of a kind, with the memory that is not the library's.
pub(crate) struct Ground {
    pub(crate) window: RawWindow,
    /// Freed only after the window: when an error comes in between, the fabric may still use them.
    buffers: ManuallyDrop<Buffers>,
    /// Where each partner's part for this rank begins, as a displacement.
    pub(crate) partners: Vec<(Rank, u64)>,
    /// What making the window took, without the memory for operations.
    pub(crate) creation: Duration,
    is_attached: bool,
    size: usize,
    outstanding: usize,
    /// Epochs since the batch began.
    epochs: u64,
    batches: u64,
}

struct Buffers {
    /// Of the window, where it is not the library's.
    memory: Words,
    /// What one operation writes.
    source: Words,
    /// What operations bring, at a place for each.
    result: Words,
}

/// What a ground has to have room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) kind: WindowKind,
    pub(crate) pattern: Pattern,
    pub(crate) pairs: u32,
    /// Bytes of one operation at most.
    pub(crate) size_max: usize,
    /// Bytes of all operations to one partner that are outstanding at once, at most.
    pub(crate) bytes_max: usize,
}

impl Ground {
    /// Collective.
    pub(crate) fn new(team: &Team<'_>, part: &Part, room: &Room) -> Outcome<Self> {
        let (job, span) = (team.job(), room.bytes_max.next_multiple_of(LINE));
        let bytes = part.partners.len().checked_mul(span).ok_or("more bytes than memory can hold")?;
        let own = matches!(room.kind, WindowKind::Create | WindowKind::Dynamic);
        let mut buffers = ManuallyDrop::new(Buffers {
            memory: Words::new(if own { bytes / WORD } else { 0 }),
            source: Words::new(room.size_max.div_ceil(WORD)),
            result: Words::new(bytes / WORD),
        });
        let base = buffers.memory.as_mut_ptr().cast::<u8>();
        let options = rma::WindowOptions::DEFAULT;
        let begun = Instant::now();
        let window = match room.kind {
            WindowKind::Allocate => RawWindow::allocate(job, bytes, 1)?,
            WindowKind::Shared => RawWindow::allocate_shared(job, bytes, 1, &options)?,
            // SAFETY: the memory is freed after the window, or never, and not used otherwise.
            WindowKind::Create => unsafe { RawWindow::create(job, base, bytes, 1) }?,
            WindowKind::Dynamic => {
                let window = RawWindow::create_dynamic(job, &options)?;
                if bytes > 0 {
                    // SAFETY: as for a created window.
                    unsafe { window.attach(base, bytes) }?;
                }
                window
            }
        };
        let creation = begun.elapsed();
        let bases = match room.kind {
            WindowKind::Dynamic => team.share(base as u64)?,
            _ => vec![0; job.size() as usize],
        };
        let own = job.rank();
        let place = |rank: Rank| {
            let its = Part::new(room.pattern, rank, job.size(), room.pairs);
            (rank, bases[rank.0 as usize] + (its.place_at(own) * span) as u64)
        };
        let partners = part.partners.iter().map(|&rank| place(rank)).collect();
        let is_attached = room.kind == WindowKind::Dynamic && bytes > 0;
        Ok(Self {
            window,
            buffers,
            partners,
            creation,
            is_attached,
            size: 0,
            outstanding: 1,
            epochs: 0,
            batches: 0,
        })
    }

    /// What freeing the window took. Collective.
    pub(crate) fn free(self) -> Outcome<Duration> {
        let begun = Instant::now();
        if self.is_attached {
            self.window.detach(self.buffers.memory.as_ptr().cast())?;
        }
        self.window.free()?;
        let took = begun.elapsed();
        drop(ManuallyDrop::into_inner(self.buffers));
        Ok(took)
    }

    /// Makes the data of another batch, and brings what the partners hold to a state from which it can be told
    /// whether the batch has done its work.
    pub(crate) fn begin(&mut self, operation: Operation, size: usize, outstanding: usize) -> Outcome<()> {
        (self.size, self.outstanding, self.epochs) = (size, outstanding, 0);
        self.batches += 1;
        let seed = u64::from(self.window.job().rank().0) << 48 ^ self.batches << 24;
        let words = size.div_ceil(WORD);
        for (index, word) in self.buffers.source[..words].iter_mut().enumerate() {
            *word = if operation.moves_bytes() { stamp(seed, index) } else { 1 };
        }
        let used = (self.partners.len() * self.span()).div_ceil(WORD).min(self.buffers.result.len());
        self.buffers.result[..used].fill(0);
        let Self { window, buffers, partners, .. } = self;
        for &(rank, disp) in &*partners {
            window.lock(LockType::Shared, rank, false)?;
            match operation {
                Operation::Put => {}
                Operation::Get => {
                    for place in 0..outstanding {
                        let disp = disp + (place * size) as u64;
                        // SAFETY: the source lives longer than the epoch, and nobody writes it until the next batch.
                        unsafe { window.put(buffers.source.as_ptr().cast(), size, rank, disp) }?;
                    }
                }
                _ => {
                    let zeros = buffers.result.as_ptr().cast();
                    // SAFETY: as above; the results are zero, and written only by operations of later epochs.
                    unsafe { window.put(zeros, outstanding * size, rank, disp) }?;
                }
            }
            window.unlock(rank)?;
        }
        Ok(())
    }

    /// Another epoch follows: what compare_and_swap expects is counted by it.
    #[inline]
    pub(crate) fn next_epoch(&mut self) {
        self.epochs += 1;
    }

    /// Issues the operations of an epoch to each partner. One operation to one partner is issued as a program does that knows
    /// of no others: so is what it is compared with.
    #[inline(always)]
    pub(crate) fn issue_all(&mut self, operation: Operation) -> rma::Result<()> {
        match (self.partners.len(), self.outstanding) {
            (1, 1) => self.issue(operation, 0, 0),
            _ => self.issue_several(operation),
        }
    }

    #[inline(never)]
    fn issue_several(&mut self, operation: Operation) -> rma::Result<()> {
        for partner in 0..self.partners.len() {
            for place in 0..self.outstanding {
                self.issue(operation, partner, place)?;
            }
        }
        Ok(())
    }

    /// Issues one operation.
    #[inline(always)]
    fn issue(&mut self, operation: Operation, partner: usize, place: usize) -> rma::Result<()> {
        let (rank, first) = self.partners[partner];
        let (window, size, count) = (&self.window, self.size, self.size / WORD);
        let disp = first + (place * size) as u64;
        let source = self.buffers.source.as_ptr().cast::<u8>();
        let offset = partner * self.outstanding * size + place * size;
        let result = self.buffers.result.as_mut_ptr().cast::<u8>().wrapping_add(offset);
        match operation {
            // SAFETY: the source is written again only when a batch begins, after the end of this one's epochs.
            Operation::Put => unsafe { window.put(source, size, rank, disp) },
            // SAFETY: the place for the result is this operation's, and read when its batch is complete.
            Operation::Get => unsafe { window.get(result, size, rank, disp) },
            // SAFETY: as for put.
            Operation::Accumulate => unsafe {
                window.accumulate(source, count, Dtype::U64, rank, disp, ReduceOp::Sum)
            },
            // SAFETY: as for put and get.
            Operation::GetAccumulate => unsafe {
                window.get_accumulate(source, result, count, Dtype::U64, rank, disp, ReduceOp::Sum)
            },
            // SAFETY: as for put and get.
            Operation::FetchAndOp => unsafe {
                window.fetch_and_op(source, result, Dtype::U64, rank, disp, ReduceOp::Sum)
            },
            Operation::CompareAndSwap => {
                let (old, new) = (self.epochs - 1, self.epochs);
                let (old, new) = (std::ptr::from_ref(&old).cast(), std::ptr::from_ref(&new).cast());
                // SAFETY: both words live during the call; the result as for get.
                unsafe { window.compare_and_swap(new, old, result, Dtype::U64, rank, disp) }
            }
        }
    }

    /// Whether all epochs since the batch began have brought and left what they should have.
    pub(crate) fn check(&mut self, operation: Operation) -> Outcome<()> {
        if self.epochs == 0 {
            return Ok(());
        }
        if operation == Operation::Get || operation.fetches() {
            for partner in 0..self.partners.len() {
                self.compare(
                    operation,
                    partner,
                    self.epochs - 1,
                    "brought something else than the target held",
                )?;
            }
        }
        for partner in 0..self.partners.len() {
            let ((rank, disp), span) = (self.partners[partner], self.span());
            let result = self.buffers.result.as_mut_ptr().cast::<u8>().wrapping_add(partner * span);
            self.window.lock(LockType::Shared, rank, false)?;
            // SAFETY: the partner's results have as many bytes, and are read after the unlock.
            unsafe { self.window.get(result, span, rank, disp) }?;
            self.window.unlock(rank)?;
            self.compare(
                operation,
                partner,
                self.epochs,
                "left something else at the target than was meant",
            )?;
        }
        Ok(())
    }

    /// Compares a partner's results with the source of bytes, or with `count` in each word.
    fn compare(&self, operation: Operation, partner: usize, count: u64, what: &str) -> Outcome<()> {
        let span = self.span();
        let results = &bytes(&self.buffers.result)[partner * span..(partner + 1) * span];
        let source = &bytes(&self.buffers.source)[..self.size];
        let is_right = if operation.moves_bytes() {
            results.chunks(self.size).all(|result| result == source)
        } else {
            results.chunks(WORD).all(|word| word == count.to_ne_bytes())
        };
        if is_right {
            return Ok(());
        }
        let (name, size, (rank, _)) = (operation.name(), self.size, self.partners[partner]);
        Err(format!("{name} of {size} bytes with rank {rank} {what}").into())
    }

    /// Bytes of all operations to one partner that are outstanding at once.
    const fn span(&self) -> usize {
        self.outstanding * self.size
    }
}

/// The bytes of words.
fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: words are initialized bytes, as many as they take, for as long as they are borrowed.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// A word of data, different from those of other ranks, batches and places, and never zero.
const fn stamp(seed: u64, index: usize) -> u64 {
    // An odd factor, so that neighbours differ in every byte.
    (seed ^ index as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}

/// Bytes of the elements of accumulates.
const WORD: usize = 8;
/// Parts of different origins share no line of the processor's caches.
const LINE: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accumulates_have_whole_words_and_some_only_one() {
        let sizes = [1, 2, 4, 8, 16];
        assert_eq!(Operation::Get.sizes(&sizes), sizes);
        assert_eq!(Operation::Accumulate.sizes(&sizes), [8, 16]);
        assert_eq!(Operation::GetAccumulate.sizes(&sizes[..2]), [8]);
        assert_eq!(Operation::CompareAndSwap.sizes(&sizes), [8]);
    }

    #[test]
    fn data_differ_and_are_never_zero() {
        let words = [stamp(1 << 24, 0), stamp(1 << 24, 1), stamp(2 << 24, 0), stamp(1 << 48, 0)];
        assert!(words.iter().all(|&word| word != 0));
        assert!(words.iter().enumerate().all(|(at, word)| !words[..at].contains(word)));
    }
}
