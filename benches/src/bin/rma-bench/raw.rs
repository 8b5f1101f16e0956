//! The reference: a ping-pong of packets over the job's own endpoint, below the engine.

use std::time::{Duration, Instant};

use rma::{Engine, Job, Rank};
use rma_core::provider::{Completion, CompletionBatch, Endpoint, PostError, SendClass};

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

/// How long a packet may be under way.
const PATIENCE: Duration = Duration::from_secs(20);

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
    question[..2].copy_from_slice(&[MARK, BALL]);
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
    answer[..2].copy_from_slice(&[MARK, BALL]);
    borrow(job, |line| {
        line.announce(origin)?;
        for _ in 0..count {
            line.receive(bytes)?;
            line.send(origin, &answer[..bytes.min(ANSWER_BYTES)], SendClass::Reply)?;
        }
        Ok(())
    })
}

fn borrow(job: &Job, body: impl FnOnce(&mut Line<'_>) -> Outcome<()>) -> Outcome<()> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let spin = if job.local_size() as usize <= processors { SPIN } else { Duration::ZERO };
    let body = |engine: &mut Engine| {
        let batch = CompletionBatch::new();
        let mut line = Line { engine, batch, spin, is_other_ready: false, ball: None };
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
}

impl Line<'_> {
    fn send(&mut self, to: Rank, packet: &[u8], class: SendClass) -> Outcome<()> {
        let peer = self
            .engine
            .peer(to)
            .ok_or_else(|| format!("rank {to} has not been contacted before the ping-pong"))?;
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
        let mut start = None;
        let mut polls = 0_u32;
        loop {
            self.poll()?;
            match self.ball.take() {
                Some(len) if len == bytes => return Ok(()),
                Some(len) => return Err(format!("a raw packet of {len} bytes came, not {bytes}").into()),
                None => polls += 1,
            }
            if polls % POLLS == 0 {
                match start.get_or_insert_with(Instant::now).elapsed() {
                    waited if waited > PATIENCE => return Err(late("raw packet")),
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
