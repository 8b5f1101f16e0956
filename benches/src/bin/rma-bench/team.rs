//! What ranks tell each other about a measurement, between the parts that are timed.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rma::raw::RawWindow;
use rma::{Job, LockType, Rank, Window};

use crate::Outcome;

/// The rank that decides and prints.
pub(crate) const LEADER: Rank = Rank(0);

/// Words that a rank says at once.
const WORDS: usize = 32;

/// Longest time that a rank stays away from the library, all its pieces together, until the others are done with it.
const PATIENCE: Duration = Duration::from_secs(3600);

/// How long a target that computes or sleeps does so before it calls the library again.
const AWAY: Duration = Duration::from_millis(20);

/// All ranks of the job.
pub(crate) struct Team<'a> {
    job: &'a Job,
    /// A place for the words of each rank.
    words: Window<u64>,
    /// A word for each rank, in which it says how far it is. Looked at without a call to the library.
    signs: RawWindow,
    /// The same at all ranks.
    step: Cell<u64>,
}

/// What a target does while it is accessed.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TargetKind {
    /// Sleeps outside of the library, 20 ms at a time
    Idle,
    /// Computes outside of the library, 20 ms at a time
    Busy,
    /// Is inside of the library, in a barrier
    Polling,
}

impl TargetKind {
    /// As it is given and stored.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Polling => "polling",
        }
    }
}

impl<'a> Team<'a> {
    /// Collective.
    pub(crate) fn new(job: &'a Job) -> Outcome<Self> {
        let ranks = job.size() as usize;
        Ok(Self {
            job,
            words: job.allocate(ranks * WORDS)?,
            signs: RawWindow::allocate(job, ranks * size_of::<u64>(), 8)?,
            step: Cell::new(0),
        })
    }

    /// Collective.
    pub(crate) fn free(self) -> Outcome<()> {
        self.words.free()?;
        Ok(self.signs.free()?)
    }

    /// The job.
    pub(crate) const fn job(&self) -> &'a Job {
        self.job
    }

    /// Whether this rank decides and prints.
    pub(crate) fn leads(&self) -> bool {
        self.job.rank() == LEADER
    }

    /// What every rank says, for the leader; the others get nothing. At most [`WORDS`] words. Collective.
    pub(crate) fn gather(&self, said: &[f64]) -> Outcome<Vec<Vec<f64>>> {
        let said: Vec<u64> = said.iter().map(|value| value.to_bits()).collect();
        let said = self.gather_words(&said)?;
        Ok(said.into_iter().map(|words| words.into_iter().map(f64::from_bits).collect()).collect())
    }

    /// The same with words.
    pub(crate) fn gather_words(&self, said: &[u64]) -> Outcome<Vec<Vec<u64>>> {
        let said = &said[..said.len().min(WORDS)];
        let place = self.job.rank().0 as usize * WORDS;
        self.words.lock(LEADER, LockType::Shared, |epoch| epoch.put(place as u64, said))?;
        self.job.barrier()?;
        let mut all = Vec::new();
        if self.leads() {
            let words = self.words.local().to_vec()?;
            all = words.chunks(WORDS).map(|words| words[..said.len()].to_vec()).collect();
        }
        // Nobody says the next before the leader has read this.
        self.job.barrier()?;
        Ok(all)
    }

    /// What the leader says, at every rank. All give as many words. Collective.
    pub(crate) fn tell<const N: usize>(&self, said: [u64; N]) -> Outcome<[u64; N]> {
        if self.leads() {
            self.words.lock_all(|epoch| {
                (1..self.job.size()).try_for_each(|rank| epoch.put(Rank(rank), 0, &said))
            })?;
        }
        self.job.barrier()?;
        let mut heard = said;
        if !self.leads() {
            self.words.local().read(0, &mut heard)?;
        }
        self.job.barrier()?;
        Ok(heard)
    }

    /// What each rank says, at every rank. Collective.
    pub(crate) fn share(&self, said: u64) -> Outcome<Vec<u64>> {
        let mut all: Vec<u64> = self.gather_words(&[said])?.into_iter().flatten().collect();
        all.resize(self.job.size() as usize, 0);
        for value in &mut all {
            [*value] = self.tell([*value])?;
        }
        Ok(all)
    }

    /// A short text of every rank, for the leader. Collective.
    pub(crate) fn gather_text(&self, text: &str) -> Outcome<Vec<String>> {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(text.as_bytes().chunks(8)) {
            let mut filled = [0; 8];
            filled[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(filled);
        }
        let said = self.gather_words(&words)?;
        let text = |words: &Vec<u64>| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
        };
        Ok(said.iter().map(text).collect())
    }

    /// The next step that ranks tell each other to have done. Collective.
    pub(crate) fn next_step(&self) -> u64 {
        self.step.set(self.step.get() + 1);
        self.step.get()
    }

    /// Tells `target` that this rank is as far as `step`.
    pub(crate) fn sign(&self, target: Rank, step: u64) -> Outcome<()> {
        self.signs.lock(LockType::Shared, target, false)?;
        let (word, place) = (std::ptr::from_ref(&step).cast(), u64::from(self.job.rank().0));
        // SAFETY: the word lives until unlock has completed the operation; where that fails the call below, the
        // process ends before its stack is used again.
        unsafe { self.signs.put(word, size_of::<u64>(), target, place) }?;
        if let Err(error) = self.signs.unlock(target) {
            eprintln!("rma-bench: rank {}: {error}", self.job.rank());
            std::process::abort();
        }
        Ok(())
    }

    /// Does what a target of this kind does until all of `origins` are as far as `step`.
    pub(crate) fn rest(&self, kind: TargetKind, origins: &[Rank], step: u64) -> Outcome<()> {
        let begun = Instant::now();
        while kind != TargetKind::Polling && !origins.iter().all(|&origin| self.has_signed(origin, step)) {
            if begun.elapsed() > PATIENCE {
                return Err(format!("no word from {origins:?} for {} s", PATIENCE.as_secs()).into());
            }
            let away = Instant::now();
            if kind == TargetKind::Idle {
                std::thread::sleep(AWAY);
            }
            while away.elapsed() < AWAY {
                compute(STEPS);
            }
            self.job.progress();
        }
        Ok(())
    }

    /// Waits, making progress, until `other` is as far as `step`.
    pub(crate) fn wait_for_sign(&self, other: Rank, step: u64) -> Outcome<()> {
        let begun = Instant::now();
        while !self.has_signed(other, step) {
            if self.job.progress() == 0 {
                std::thread::yield_now();
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("no word from rank {other} for {} s", PATIENCE.as_secs()).into());
            }
        }
        Ok(())
    }

    /// Whether `origin` is as far as `step`.
    pub(crate) fn has_signed(&self, origin: Rank, step: u64) -> bool {
        let word = self.signs.base().cast::<AtomicU64>().wrapping_add(origin.0 as usize);
        // SAFETY: the window has an aligned word for each rank, which others write whole.
        unsafe { &*word }.load(Ordering::SeqCst) >= step
    }
}

/// Steps of a computation between two looks at the clock.
const STEPS: u64 = 1000;

/// A computation outside of the library.
#[inline(never)]
pub(crate) fn compute(steps: u64) {
    let mut state = 1_u64;
    for _ in 0..steps {
        state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}
