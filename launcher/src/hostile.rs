//! Ranks that send any bytes, over both of their connections, and end in any order: the launcher's pure part
//! never panics, never keeps more than its limits, and the job ends. Fed by `fuzz/fuzz_targets/launcher.rs`,
//! and by the tests below with the corpus.

use std::time::Duration;

use rma_bootstrap::pmi::wire::{Reader, Syntax};
use rma_bootstrap::wire::{encode_frame, FrameReader, Request};

use crate::job::{Action, ExitStatus, Job, Wishes};

/// Ranks of the job.
const RANKS: u32 = 3;

/// Bytes of a step's head: what happens, to whom, and how many bytes follow.
const HEAD_BYTES: usize = 3;

/// What the driver keeps for each rank.
#[derive(Default)]
struct Link {
    frames: FrameReader,
    lines: Reader,
    is_open: bool,
    speaks_pmi: bool,
    has_exited: bool,
}

/// A job, and the connections of its ranks.
struct World {
    job: Job,
    links: [Link; RANKS as usize],
    now: Duration,
}

/// Takes `input` for a sequence of steps. Panics when the launcher would.
pub(crate) fn feed(input: &[u8]) {
    let grace = Duration::from_secs(2);
    let (job_id, timeout, hosts) = ("j".into(), Some(100 * grace), vec![0, 1, 1]);
    let wishes = Wishes { size: RANKS, job_id, timeout, grace, keep_going: false, patience: grace, hosts };
    let mut links: [Link; RANKS as usize] = Default::default();
    for link in &mut links {
        (link.is_open, link.speaks_pmi) = (true, true);
    }
    let mut world = World { job: Job::new(wishes), links, now: Duration::from_secs(1) };
    let mut rest = input;
    while let Some((&[what, whose, len], tail)) = rest.split_first_chunk::<HEAD_BYTES>() {
        let (bytes, tail) = tail.split_at(usize::from(len).min(tail.len()));
        rest = tail;
        world.step(what, u32::from(whose) % RANKS, bytes);
        world.act();
    }
    for rank in 0..RANKS {
        world.exit(rank, ExitStatus::Code(0));
        world.act();
    }
    assert!(world.job.verdict().is_some(), "all ranks have ended and the job has not");
}

impl World {
    fn step(&mut self, what: u8, rank: u32, bytes: &[u8]) {
        match what % 8 {
            // A job has no host of the number 2.
            0 if what >= 240 => self.lose_host(rank),
            0..=2 => self.control(rank, bytes),
            3 | 4 => self.pmi(rank, bytes),
            5 => {
                if std::mem::take(&mut self.links[rank as usize].is_open) {
                    self.job.on_control_ended(rank, None);
                }
            }
            6 => self.exit(rank, if bytes.is_empty() { ExitStatus::Code(0) } else { ExitStatus::Signal(9) }),
            _ => {
                self.now += Duration::from_secs(bytes.len() as u64);
                self.job.on_time(self.now);
            }
        }
    }

    fn control(&mut self, rank: u32, mut bytes: &[u8]) {
        let link = &mut self.links[rank as usize];
        while link.is_open && !link.has_exited {
            let taken = link.frames.push(bytes);
            bytes = &bytes[taken..];
            match link.frames.poll::<Request>() {
                Ok(Some(request)) => self.job.on_request(rank, request, self.now),
                Ok(None) if bytes.is_empty() => return,
                Ok(None) => assert!(link.frames.room() > 0, "a full buffer without a message"),
                Err(error) => {
                    link.is_open = false;
                    self.job.on_control_ended(rank, Some(error.to_string()));
                }
            }
        }
    }

    fn pmi(&mut self, rank: u32, mut bytes: &[u8]) {
        while self.links[rank as usize].speaks_pmi && !self.links[rank as usize].has_exited {
            let link = &mut self.links[rank as usize];
            let taken = link.lines.push(bytes);
            bytes = &bytes[taken..];
            match link.lines.poll() {
                Ok(Some(message)) => {
                    self.job.on_pmi(rank, &message, self.now);
                    // A reply may change how the next message is read.
                    self.act();
                }
                Ok(None) if bytes.is_empty() => return,
                Ok(None) => assert!(link.lines.room() > 0, "a full buffer without a message"),
                Err(error) => {
                    link.speaks_pmi = false;
                    self.job.on_pmi_ended(rank, Some(error.to_string()));
                }
            }
        }
    }

    fn lose_host(&mut self, host: u32) {
        self.job.on_host_lost(host, "gone".into(), self.now);
        for (rank, link) in (0..).zip(&mut self.links) {
            link.has_exited |= self.job.status(rank) == Some(ExitStatus::Lost);
        }
    }

    fn exit(&mut self, rank: u32, status: ExitStatus) {
        if !std::mem::replace(&mut self.links[rank as usize].has_exited, true) {
            self.job.on_exit(rank, status, self.now);
        }
    }

    /// Does what the job wants done, as far as there is anything to see.
    fn act(&mut self) {
        while let Some(action) = self.job.poll_action() {
            match action {
                Action::Send(_, reply) => {
                    let mut frame = Vec::new();
                    encode_frame(&reply, &mut frame).expect("a reply fits its frame");
                }
                Action::SendPmi(rank, message) => {
                    assert!(rank < RANKS);
                    let mut bytes = Vec::new();
                    for syntax in [Syntax::Lines, Syntax::Counted] {
                        // What a syntax cannot carry is an error there, and no panic.
                        let _ = message.encode(syntax, &mut bytes);
                    }
                }
                Action::SpeakPmi(rank, syntax) => self.links[rank as usize].lines.set_syntax(syntax),
                Action::ClosePmi(rank) => self.links[rank as usize].speaks_pmi = false,
                Action::Close(rank) => self.links[rank as usize].is_open = false,
                Action::Signal(_) | Action::Say(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::feed;

    #[test]
    fn the_corpus_is_harmless() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/launcher");
        let mut count = 0;
        for entry in std::fs::read_dir(corpus).expect("the corpus is part of the repository") {
            feed(&std::fs::read(entry.expect("it can be listed").path()).expect("it can be read"));
            count += 1;
        }
        assert!(count > 5, "only {count} inputs");
    }
}
