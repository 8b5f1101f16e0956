//! What operations and connections cost on an RDMA device, in perftest's terms: ci/softroce.sh compares.
//!
//!     measure latency [COUNT]     8-byte puts there and back, and fetch-and-adds: microseconds
//!     measure rate [COUNT]        8-byte puts, 128 under way: millions a second
//!     measure memory [PEERS]      what the system has given for each connection, while peers are touched in turn; fails
//!                                 where from 100 peers on it grows although the number of connections is bounded
//!
//! `RMA_TEST_VERBS_DEVICES` names the devices to take in turn, separated by commas.

use std::process::ExitCode;
use std::ptr::NonNull;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rma_core::bootstrap::AddressBytes;
use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{Completion, CompletionBatch, Endpoint, MemoryRegion, Post, PostError, RemoteAddr};
use rma_verbs::{Options, VerbsEndpoint, VerbsRegion};

type Outcome<T> = Result<T, String>;

/// As perftest has them under way.
const DEPTH: usize = 128;
/// Operations before those that are measured.
const WARM_UP: u64 = 100;
/// Nothing that works takes so long.
const LIMIT: Duration = Duration::from_secs(120);

/// One endpoint with a window of a few words.
struct Side {
    ep: VerbsEndpoint,
    batch: CompletionBatch,
    region: VerbsRegion,
    words: Box<[u64; 8]>,
    completed: u64,
    deadline: Instant,
}

impl Side {
    fn open(turn: usize, change: impl FnOnce(&mut Options)) -> Outcome<Self> {
        let devices = std::env::var("RMA_TEST_VERBS_DEVICES").unwrap_or_default();
        let devices: Vec<&str> = devices.split(',').filter(|name| !name.is_empty()).collect();
        let device = (!devices.is_empty()).then(|| devices[turn % devices.len()].to_owned());
        let mut options = Options { device, native_atomics: true, outstanding: DEPTH, ..Options::default() };
        change(&mut options);
        let mut ep = VerbsEndpoint::open(&options).map_err(|error| error.to_string())?;
        let mut words = Box::new([0u64; 8]);
        let base = NonNull::from(&mut *words).cast();
        // SAFETY: the words are as old as the side, whose region is dropped before them.
        let region = unsafe { ep.register(base, 64, RemoteKey(0)) }.map_err(|error| error.to_string())?;
        let deadline = Instant::now() + LIMIT;
        Ok(Self { ep, batch: CompletionBatch::new(), region, words, completed: 0, deadline })
    }

    fn connect(&mut self, address: &AddressBytes) -> Outcome<PeerAddr> {
        self.ep.connect(address).map_err(|error| error.to_string())
    }

    fn at(&self) -> RemoteAddr {
        RemoteAddr { addr: self.region.remote_base(), key: self.region.remote_key() }
    }

    /// The first word, which peers write.
    fn word(&self) -> u64 {
        // SAFETY: a word of ours; volatile because the device writes it.
        unsafe { (&raw const self.words[0]).read_volatile() }
    }

    fn poll(&mut self) -> Outcome<()> {
        self.ep.poll(&mut self.batch);
        while let Some(completion) = self.batch.pop() {
            match completion {
                Completion::Done(_) => self.completed += 1,
                Completion::Packet(packet) => self.ep.release(packet),
                Completion::Failed(_, code)
                | Completion::PeerDown(_, code)
                | Completion::EndpointDown(code) => return Err(code.to_string()),
            }
        }
        Ok(())
    }

    /// Polls until the condition holds.
    fn until(&mut self, mut holds: impl FnMut(&mut Self) -> Outcome<bool>) -> Outcome<()> {
        for turn in 0u32.. {
            if holds(self)? {
                break;
            }
            self.poll()?;
            if turn % 4096 == 4095 && Instant::now() > self.deadline {
                return Err("no end".to_owned());
            }
        }
        Ok(())
    }

    fn post(&mut self, mut post: impl FnMut(&mut VerbsEndpoint) -> Post) -> Outcome<()> {
        self.until(|side| match post(&mut side.ep) {
            Ok(_) => Ok(true),
            Err(PostError::Again) => Ok(false),
            Err(PostError::Failed(code)) => Err(code.to_string()),
        })
    }

    fn put(&mut self, to: PeerAddr, value: u64, at: RemoteAddr) -> Outcome<()> {
        let src = value.to_ne_bytes();
        // SAFETY: eight bytes go into the request, so that they are free when the post is accepted.
        self.post(|ep| unsafe { ep.put(to, src.as_ptr(), src.len(), at, Tag(value)) })
    }
}

/// Both sides write a word to each other in turn, each when it has seen the other's; half of the time it takes.
fn latency(count: u64) -> Outcome<()> {
    let mut side = Side::open(0, |_| ())?;
    let own = (side.ep.address(), side.at());
    let (tell, told) = mpsc::channel();
    let (finish, finished) = mpsc::channel::<()>();
    let other = std::thread::spawn(move || -> Outcome<()> {
        let mut side = Side::open(1, |_| ())?;
        let peer = side.connect(&own.0)?;
        tell.send((side.ep.address(), side.at())).map_err(|error| error.to_string())?;
        for value in 1..=WARM_UP + count {
            side.until(|side| Ok(side.word() >= value))?;
            side.put(peer, value, own.1)?;
        }
        side.until(|side| Ok(side.completed == WARM_UP + count))?;
        // Its device serves the atomics, as perftest's does while the program sleeps.
        let _ = finished.recv();
        Ok(())
    });
    let (address, at) = told.recv().map_err(|_| "the other side has failed".to_owned())?;
    let peer = side.connect(&address)?;
    let mut begun = Instant::now();
    for value in 1..=WARM_UP + count {
        if value == WARM_UP + 1 {
            begun = Instant::now();
        }
        side.put(peer, value, at)?;
        side.until(|side| Ok(side.word() >= value))?;
    }
    let put = begun.elapsed().as_secs_f64() * 1e6 / (2 * count) as f64;
    side.until(|side| Ok(side.completed == WARM_UP + count))?;
    let (mut old, one) = (0u64, 1u64);
    let mut begun = Instant::now();
    let add_at = RemoteAddr { addr: at.addr + 8, ..at };
    for value in 1..=WARM_UP + count {
        if value == WARM_UP + 1 {
            begun = Instant::now();
        }
        let (operand, result) = ((&raw const one).cast(), (&raw mut old).cast());
        // SAFETY: operand and result outlive the wait below.
        side.post(|ep| unsafe {
            ep.fetch_atomic(peer, operand, result, 1, add_at, Dtype::U64, ReduceOp::Sum, Tag(value))
        })?;
        side.until(|side| Ok(side.completed == WARM_UP + count + value))?;
    }
    let fetch_add = begun.elapsed().as_secs_f64() * 1e6 / count as f64;
    drop(finish);
    other.join().map_err(|_| "the other side has panicked".to_owned())??;
    println!("write_latency_us {put:.2}\nfetch_add_latency_us {fetch_add:.2}");
    Ok(())
}

/// One side writes as fast as it may; nobody needs to do anything at the other.
fn rate(count: u64) -> Outcome<()> {
    let (mut side, mut other) = (Side::open(0, |_| ())?, Side::open(1, |_| ())?);
    let (address, at) = (other.ep.address(), other.at());
    let peer = side.connect(&address)?;
    let src = 7u64.to_ne_bytes();
    side.until(|side| {
        other.poll()?;
        // SAFETY: eight bytes go into the request.
        Ok(unsafe { side.ep.put(peer, src.as_ptr(), src.len(), at, Tag(0)) }.is_ok())
    })?;
    side.until(|side| {
        other.poll()?;
        Ok(side.completed == 1)
    })?;
    let begun = Instant::now();
    for value in 1..=count {
        side.put(peer, value, at)?;
    }
    side.until(|side| Ok(side.completed == 1 + count))?;
    println!("write_rate_mops {:.4}", count as f64 / begun.elapsed().as_secs_f64() / 1e6);
    Ok(())
}

/// Kilobytes that the system could still give.
fn available() -> Outcome<i64> {
    let text = std::fs::read_to_string("/proc/meminfo").map_err(|error| error.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .ok_or_else(|| "no MemAvailable".to_owned())
}

/// One endpoint writes to many, one after the other, without and with a bound of its connections.
fn memory(peers: usize) -> Outcome<()> {
    const FEW: usize = 16;
    // What the peers after the first ones have taken.
    let mut grown = Vec::new();
    for bound in [peers, FEW] {
        let mut first = None;
        let small = |options: &mut Options| {
            (options.packet_bytes, options.receive_buffers, options.send_buffers) = (512, 8, 4);
            options.connections_max = bound;
        };
        let mut side = Side::open(0, small)?;
        let mut others = (0..peers).map(|turn| Side::open(turn + 1, small)).collect::<Outcome<Vec<_>>>()?;
        let before = available()?;
        for touched in 1..=peers {
            let (address, at) = (others[touched - 1].ep.address(), others[touched - 1].at());
            let peer = side.connect(&address)?;
            let src = (touched as u64).to_ne_bytes();
            let mut is_posted = false;
            let wanted = side.completed + 1;
            side.until(|side| {
                // All of them: who is asked to close its half must hear it.
                others.iter_mut().try_for_each(Side::poll)?;
                // SAFETY: eight bytes go into the request.
                is_posted = is_posted || unsafe { side.ep.put(peer, src.as_ptr(), 8, at, Tag(0)) }.is_ok();
                Ok(side.completed == wanted)
            })?;
            if touched % 20 == 0 || touched == peers {
                let used = before - available()?;
                let connections = side.ep.connections();
                println!("bound {bound} touched {touched} connections {connections} used_kb {used}");
                let first = *first.get_or_insert(used);
                if touched == peers {
                    grown.push(used - first);
                }
            }
        }
    }
    is_flat(peers, grown[0], grown[1])
}

/// Whether memory stays the same with the bound, beside what the same peers take without one: other programs take and give
/// back memory meanwhile, so a part of that is let pass.
fn is_flat(peers: usize, unbounded: i64, bounded: i64) -> Outcome<()> {
    let least = peers as i64 * KB_LEAST;
    if peers >= 100 && unbounded < least {
        return Err(format!(
            "{peers} peers have taken {unbounded} kB without a bound, and not even {least}: no measurement"
        ));
    }
    let limit = unbounded / FLAT_PART;
    if peers >= 100 && bounded > limit {
        return Err(format!(
            "from the 20th to the last peer memory has grown by {bounded} kB with a bound of connections, and may by \
             {limit} kB: a part of {FLAT_PART} of the {unbounded} kB without one"
        ));
    }
    Ok(())
}

/// With a bound, peers may take this part of what they take without.
const FLAT_PART: i64 = 8;
/// What a connected peer takes at least, kB: far less than was measured anywhere.
const KB_LEAST: i64 = 50;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |default| arguments.get(1).map_or(Ok(default), |text| text.parse::<u64>());
    let outcome = match (arguments.first().map(String::as_str), number(0)) {
        (Some("latency"), Ok(_)) => latency(number(2_000).unwrap_or_default()),
        (Some("rate"), Ok(_)) => rate(number(20_000).unwrap_or_default()),
        (Some("memory"), Ok(_)) => memory(number(200).unwrap_or_default() as usize),
        _ => Err("usage: measure latency|rate|memory [NUMBER]".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("measure: {reason}");
            ExitCode::FAILURE
        }
    }
}
