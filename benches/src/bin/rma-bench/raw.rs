//! The reference: a ping-pong of packets, and writes and reads, over the job's own endpoint, below the engine.

use std::sync::atomic::{fence, Ordering};
use std::time::{Duration, Instant};

use rma::{Engine, FabricEndpoint, Job, Rank};
use rma_core::ids::{PeerAddr, Tag};
use rma_core::provider::{
    Accepted, Completion, CompletionBatch, CompletionScope, Endpoint, Post, PostError, RemoteAddr, SendClass,
};

use crate::exchange::Batches;
use crate::Outcome;

/// First byte of the ping-pong's packets: no kind of packet that the engine knows.
const MARK: u8 = 0xB7;

/// Second byte: the answering rank is there. The engine of a rank that is not yet here drops what it does
/// not know, so this is said again until the first question comes, and may come more than once.
const READY: u8 = 0;

/// Second byte of questions and answers.
const BALL: u8 = 1;

/// Time between two times that the answering rank says that it is there.
const READY_INTERVAL: Duration = Duration::from_millis(1);

/// Bytes of an answer: as many as the engine's shortest.
pub(crate) const ANSWER_BYTES: usize = 16;

/// Bytes that every packet of the ping-pong begins with.
pub(crate) const MARK_BYTES: usize = 2;

/// Tags of the raw accesses. The engine's have two bits of kind above 28 of generation, which leaves bits 60 and 61.
const ACCESS_TAG: Tag = Tag(3 << 60);
const FLUSH_TAG: Tag = Tag(3 << 60 | 1);

/// How long a packet may be under way.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Polls between two looks at the clock.
const POLLS: u32 = 32;

/// How long a polling loop spins before it gives way to other processes: as long as the library's calls
/// do, so that ranks which share a processor are compared fairly; and, as there, not at all when ranks
/// outnumber processors.
const SPIN: Duration = Duration::from_micros(50);

/// Bytes of the question that stands for an epoch with one operation of `size` bytes: the engine's
/// packet header, one record and its data, as far as the endpoint's packets go.
pub(crate) fn question_bytes(size: usize, packet_bytes_max: usize) -> usize {
    let records = rma_core::wire::Header::BYTES + OPERATION_HEADER_BYTES;
    records.saturating_add(size).min(packet_bytes_max)
}

/// Bytes of a put's record without its data.
const OPERATION_HEADER_BYTES: usize = 16;

/// Sends `count` questions of `bytes` bytes to `target` one after the other, and returns how long each
/// answer took, in nanoseconds.
pub(crate) fn ask(job: &Job, target: Rank, bytes: usize, count: usize) -> Outcome<Vec<u64>> {
    let mut question = vec![0; bytes];
    question[..MARK_BYTES].copy_from_slice(&[MARK, BALL]);
    let mut times = Vec::with_capacity(count);
    borrow(job, |line| {
        line.wait_for_other()?;
        for _ in 0..count {
            let start = Instant::now();
            line.send(target, &question, SendClass::Request)?;
            line.receive(bytes.min(ANSWER_BYTES))?;
            times.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(())
    })?;
    Ok(times)
}

/// Answers `count` questions of `bytes` bytes from `origin`.
pub(crate) fn answer(job: &Job, origin: Rank, bytes: usize, count: usize) -> Outcome<()> {
    let mut answer = [0; ANSWER_BYTES];
    answer[..MARK_BYTES].copy_from_slice(&[MARK, BALL]);
    borrow(job, |line| {
        line.announce(origin)?;
        for _ in 0..count {
            line.receive(bytes)?;
            line.send(origin, &answer[..bytes.min(ANSWER_BYTES)], SendClass::Reply)?;
        }
        Ok(())
    })
}

/// What a raw access does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Write,
    Read,
}

/// Writes `memory` to the target, or reads it from there, in accesses of `size` bytes at once, again and again, each time
/// until all are complete at the target. Nanoseconds of each batch.
///
/// # Safety
/// When this fails, `memory` stays valid, and unused, until the process ends.
pub(crate) unsafe fn access(
    job: &Job,
    target: Rank,
    access: Access,
    (memory, size): (&mut [u8], usize),
    at: RemoteAddr,
    batches: Batches,
) -> Outcome<Vec<u64>> {
    let mut times = Vec::with_capacity(usize::try_from(batches.count)?);
    borrow(job, |line| {
        let peer = line.peer(target)?;
        let must_flush =
            access == Access::Write && line.engine.limits().put_completes != CompletionScope::Remote;
        for _ in 0..batches.count {
            let start = Instant::now();
            for _ in 0..batches.epochs {
                let mut at = at;
                for piece in memory.chunks_exact_mut(size) {
                    let (bytes, len) = (piece.as_mut_ptr(), piece.len());
                    line.post(|endpoint| match access {
                        // SAFETY: the memory is borrowed until the tag has come back, or left alone by the caller.
                        Access::Write => unsafe { endpoint.put(peer, bytes, len, at, ACCESS_TAG) },
                        // SAFETY: as above.
                        Access::Read => unsafe { endpoint.get(peer, bytes, len, at, ACCESS_TAG) },
                    })?;
                    at.addr = at.addr.wrapping_add(len as u64);
                }
                line.complete()?;
                if must_flush {
                    line.post(|endpoint| endpoint.flush(peer, FLUSH_TAG))?;
                    line.complete()?;
                }
            }
            times.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(())
    })?;
    Ok(times)
}

fn borrow(job: &Job, body: impl FnOnce(&mut Line<'_>) -> Outcome<()>) -> Outcome<()> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let spin = if job.local_size() as usize <= processors { SPIN } else { Duration::ZERO };
    let body = |engine: &mut Engine| {
        let batch = CompletionBatch::new();
        let mut line = Line { engine, batch, spin, is_other_ready: false, ball: None, under_way: 0 };
        let outcome = body(&mut line);
        let emptied = line.empty();
        outcome.and(emptied)
    };
    // SAFETY: the line leaves the engine in its place and makes and frees no window; of what it takes
    // from the endpoint it keeps only its own packets, releases them, and hands back the rest.
    unsafe { job.with_engine(body) }
}

/// The endpoint while nobody else uses it.
struct Line<'a> {
    engine: &'a mut Engine,
    batch: CompletionBatch,
    /// How long a wait spins before it gives way.
    spin: Duration,
    /// The answering rank has said that it is there.
    is_other_ready: bool,
    /// Length of a question or answer that came and was not yet received.
    ball: Option<usize>,
    /// Raw accesses that were posted and have not completed.
    under_way: usize,
}

impl Line<'_> {
    fn peer(&mut self, rank: Rank) -> Outcome<PeerAddr> {
        let peer = self.engine.peer(rank);
        Ok(peer.ok_or_else(|| format!("rank {rank} has not been contacted before the raw loop"))?)
    }

    /// Posts a raw access, when there is room for it.
    #[inline]
    fn post(&mut self, mut post: impl FnMut(&mut FabricEndpoint) -> Post) -> Outcome<()> {
        let mut start = None;
        loop {
            match post(self.engine.endpoint()) {
                Ok(Accepted::Tracked) => {
                    self.under_way += 1;
                    return Ok(());
                }
                Ok(Accepted::Complete) => return Ok(()),
                Err(PostError::Again) if start.get_or_insert_with(Instant::now).elapsed() < PATIENCE => {
                    self.poll()?;
                }
                Err(error) => return Err(format!("raw access: {error:?}").into()),
            }
        }
    }

    /// Waits until all that were posted are complete.
    #[inline]
    fn complete(&mut self) -> Outcome<()> {
        if self.under_way > 0 {
            self.wait("completion of a raw access", |line| (line.under_way == 0).then_some(()))?;
        }
        // For those that were complete when their call returned.
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn send(&mut self, to: Rank, packet: &[u8], class: SendClass) -> Outcome<()> {
        let peer = self.peer(to)?;
        let start = Instant::now();
        loop {
            match self.engine.endpoint().send(peer, packet, &[], class) {
                Ok(()) => return Ok(()),
                Err(PostError::Again) if start.elapsed() < PATIENCE => self.poll()?,
                Err(error) => return Err(format!("raw send to rank {to}: {error:?}").into()),
            }
        }
    }

    /// Says that this rank is there until the first question has come.
    fn announce(&mut self, to: Rank) -> Outcome<()> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            self.send(to, &[MARK, READY], SendClass::Request)?;
            let said = Instant::now();
            while said.elapsed() < READY_INTERVAL {
                self.poll()?;
                if self.ball.is_some() {
                    return Ok(());
                }
                std::thread::yield_now();
            }
        }
        Err(late("raw question"))
    }

    /// Waits until the answering rank has said that it is there.
    fn wait_for_other(&mut self) -> Outcome<()> {
        let start = Instant::now();
        while !self.is_other_ready {
            if start.elapsed() > PATIENCE {
                return Err(late("sign of the answering rank"));
            }
            self.poll()?;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Waits for a question or answer of this length.
    #[inline]
    fn receive(&mut self, bytes: usize) -> Outcome<()> {
        match self.wait("raw packet", |line| line.ball.take())? {
            len if len == bytes => Ok(()),
            len => Err(format!("a raw packet of {len} bytes came, not {bytes}").into()),
        }
    }

    /// Polls until there is what is looked for.
    #[inline]
    fn wait<T>(&mut self, what: &str, mut look: impl FnMut(&mut Self) -> Option<T>) -> Outcome<T> {
        let mut start = None;
        let mut polls = 0_u32;
        loop {
            self.poll()?;
            if let Some(found) = look(self) {
                return Ok(found);
            }
            polls = polls.wrapping_add(1);
            if polls % POLLS == 0 {
                match start.get_or_insert_with(Instant::now).elapsed() {
                    waited if waited > PATIENCE => return Err(late(what)),
                    waited if waited > self.spin => std::thread::yield_now(),
                    _ => {}
                }
            }
            std::hint::spin_loop();
        }
    }

    /// Looks at what there is, up to the next question or answer.
    #[inline]
    fn poll(&mut self) -> Outcome<()> {
        if self.batch.is_empty() {
            self.engine.endpoint().poll(&mut self.batch);
        }
        while self.ball.is_none() {
            let Some(completion) = self.batch.pop() else { break };
            self.take(completion)?;
        }
        Ok(())
    }

    /// Keeps what is the ping-pong's. Everything else goes to the engine, whose it is: other ranks may be
    /// ahead of this one.
    fn take(&mut self, completion: Completion) -> Outcome<()> {
        let end = match completion {
            // SAFETY: the endpoint lent the packet to this line, which has not given it back.
            Completion::Packet(packet) if unsafe { packet.bytes() }.first() == Some(&MARK) => {
                // SAFETY: as above.
                match unsafe { packet.bytes() }.get(1) {
                    Some(&READY) => self.is_other_ready = true,
                    _ => self.ball = Some(packet.len),
                }
                self.engine.endpoint().release(packet);
                return Ok(());
            }
            Completion::Done(tag) if tag.0 & ACCESS_TAG.0 == ACCESS_TAG.0 => {
                self.under_way = self.under_way.saturating_sub(1);
                return Ok(());
            }
            Completion::Failed(tag, code) if tag.0 & ACCESS_TAG.0 == ACCESS_TAG.0 => {
                return Err(format!("a raw access failed: {code}").into());
            }
            Completion::PeerDown(_, code) => Some(format!("a rank is gone: {code}")),
            Completion::EndpointDown(code) => Some(format!("the endpoint is broken: {code}")),
            _ => None,
        };
        self.engine.hand_back(completion);
        end.map_or(Ok(()), |end| Err(end.into()))
    }

    /// Leaves nothing of the engine's behind.
    fn empty(&mut self) -> Outcome<()> {
        let mut outcome = Ok(());
        while let Some(completion) = self.batch.pop() {
            let taken = self.take(completion);
            outcome = outcome.and(taken);
        }
        outcome
    }
}

fn late(what: &str) -> Box<dyn std::error::Error> {
    format!("no {what} came for {} s", PATIENCE.as_secs()).into()
}
