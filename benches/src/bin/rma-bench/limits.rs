//! `rma-bench limits`: what is below the engine, by loops of our own: the kernel's TCP, and the fabric's packets, writes
//! and reads over the job's own endpoint, one after the other and many writes at once. What no runtime over them can beat,
//! measured the way it is measured.

use std::io::{ErrorKind, Read, Write};
use std::mem::ManuallyDrop;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::time::Instant;

use rma::{FabricEndpoint, FabricRegion, Job, Rank};
use rma_bench::record::{Record, Unit};
use rma_core::ids::RemoteKey;
use rma_core::provider::{Allocation, Endpoint, Mapping, MemoryRegion, RemoteAddr};
use serde_json::{json, Map, Value};

use crate::bandwidth::outstanding;
use crate::cli::Limits;
use crate::exchange::{Batches, Times};
use crate::measure::{self, Measured, Subject};
use crate::raw::{self, Access, ANSWER_BYTES, PATIENCE};
use crate::session::{self, Reporter};
use crate::team::Team;
use crate::Outcome;

/// The rank that measures, and the one that answers.
const ASKING: Rank = Rank(0);
const ANSWERING: Rank = Rank(1);

/// A wish, beside those of the engine, which count from lower and from higher ones.
const KEY: RemoteKey = RemoteKey(0x2000_0000);

/// What can be measured.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    /// Bytes over a socket, and up to 16 back, both sides polling: the kernel's TCP
    Tcp,
    /// A packet over the job's endpoint, and up to 16 bytes back, without the engine
    Packet,
    /// A write of the fabric's own, until it is in the target's memory
    Write,
    /// A read of the fabric's own
    Read,
    /// Writes of the fabric's own, several at once, a second
    Rate,
    /// The same in bytes
    Bandwidth,
}

impl Limit {
    /// As it is stored.
    const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp_round_trip",
            Self::Packet => "packet_round_trip",
            Self::Write => "fabric_write",
            Self::Read => "fabric_read",
            Self::Rate => "fabric_write_rate",
            Self::Bandwidth => "fabric_write_bandwidth",
        }
    }

    /// Whether several are under way at once.
    const fn is_of_many(self) -> bool {
        matches!(self, Self::Rate | Self::Bandwidth)
    }
}

/// One row.
#[derive(Clone, Copy, Debug)]
struct Row {
    limit: Limit,
    size: usize,
    /// At once.
    outstanding: usize,
}

impl Row {
    fn new(limit: Limit, size: usize, wanted: usize) -> Self {
        Self { limit, size, outstanding: if limit.is_of_many() { outstanding(wanted, size) } else { 1 } }
    }

    /// Of an epoch.
    fn bytes(&self) -> usize {
        self.size * self.outstanding
    }

    /// What tells it apart, how it is counted, and the values of its rounds.
    fn told(&self, measured: &Measured) -> (Map<String, Value>, Unit, Vec<f64>) {
        let mut key =
            session::key(json!({ "benchmark": "limits", "operation": self.limit.name(), "size": self.size }));
        let (unit, each) = match self.limit {
            Limit::Rate => (Unit::Operations, self.outstanding as f64),
            Limit::Bandwidth => (Unit::Megabytes, self.bytes() as f64 / 1e6),
            _ => return (key, Unit::Microseconds, measured.times.clone()),
        };
        key.insert("outstanding".to_owned(), json!(self.outstanding));
        (key, unit, measured.rates.iter().map(|rate| rate * each).collect())
    }
}

/// Runs the command.
pub(crate) fn run(options: &Limits) -> Outcome<()> {
    session::run("limits", 2, &options.output, |team, reporter| measure(team, reporter, options))
}

fn measure(team: &Team<'_>, reporter: &mut Reporter, options: &Limits) -> Outcome<()> {
    let sizes = options.range.sizes.all();
    let rows_of = |limit: Limit| sizes.iter().map(move |&size| Row::new(limit, size, options.outstanding));
    let bytes = options.limit.iter().flat_map(|&limit| rows_of(limit)).map(|row| row.bytes());
    let mut below = Below::new(team, options, bytes.max().ok_or("no size to measure")?)?;
    for &limit in &options.limit {
        let rows: Vec<Row> = rows_of(limit).filter(|row| below.offers(limit, row.size)).collect();
        let measured = measure::rows(&mut below, &rows, &options.amount.effort())?;
        let record = |(row, measured): (&Row, &Measured)| -> Record {
            let (key, unit, values) = row.told(measured);
            let details =
                if limit.is_of_many() { session::counts(measured) } else { session::details(measured) };
            reporter.record(key, unit, values, details)
        };
        let records: Vec<Record> = rows.iter().zip(&measured).map(record).collect();
        reporter.group(&records, if limit.is_of_many() { &["size", "outstanding"] } else { &["size"] })?;
    }
    below.free()
}

/// Zeros to begin with, where the fabric reaches them best.
struct Bytes {
    base: NonNull<u8>,
    len: usize,
    _kept: Box<dyn Mapping>,
}

impl Bytes {
    fn new(job: &Job, len: usize) -> Outcome<Self> {
        // SAFETY: the endpoint stays in its place, and nothing is taken from it.
        match unsafe { job.with_endpoint(|endpoint| endpoint.allocate(len, 0)) } {
            Allocation::Here { base, mapping } => Ok(Self { base, len, _kept: mapping }),
            Allocation::Anywhere => {
                let mut memory = vec![0_u8; len];
                let base = NonNull::new(memory.as_mut_ptr()).ok_or("no memory")?;
                Ok(Self { base, len, _kept: Box::new(memory) })
            }
            Allocation::OutOfMemory => Err(format!("there are no {len} bytes of memory").into()),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: they belong to this value. Who lets others write them reads them by `read_volatile`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

/// What ranks 0 and 1 have below the engine.
struct Below<'a> {
    team: &'a Team<'a>,
    /// A connection to the other rank, where TCP is measured.
    stream: Option<TcpStream>,
    /// What the region below names, or what is written from and read to. Freed after the region; never where an
    /// operation fails, as the fabric may still use it.
    memory: ManuallyDrop<Bytes>,
    /// Rank 1's memory, for the fabric.
    region: Option<FabricRegion>,
    /// Where that is, for rank 0.
    at: RemoteAddr,
    /// Fills the memory, different in neighbouring batches.
    batches: u8,
}

impl<'a> Below<'a> {
    /// Collective.
    fn new(team: &'a Team<'a>, options: &Limits, bytes_max: usize) -> Outcome<Self> {
        let memory = ManuallyDrop::new(Bytes::new(team.job(), bytes_max)?);
        let mut said = [0; 2];
        let mut region = None;
        if team.job().rank() == ANSWERING {
            let base = memory.base;
            let register = |endpoint: &mut FabricEndpoint| {
                // SAFETY: the memory outlives the region, and is accessed as bytes that others may change.
                unsafe { endpoint.register(base, bytes_max, KEY) }
            };
            // SAFETY: the endpoint stays in its place, and nothing is taken from it.
            let opened = unsafe { team.job().with_endpoint(register) };
            let opened = opened.map_err(|error| error.message)?;
            said = [opened.remote_base(), opened.remote_key().0];
            region = Some(opened);
        }
        let said = [team.share(said[0])?, team.share(said[1])?];
        let of = |at: usize| said[at].get(ANSWERING.0 as usize).copied().unwrap_or_default();
        let at = RemoteAddr { addr: of(0), key: RemoteKey(of(1)) };
        let stream = if options.limit.contains(&Limit::Tcp) { connect(team, options.address)? } else { None };
        Ok(Self { team, stream, memory, region, at, batches: 0 })
    }

    /// Collective.
    fn free(self) -> Outcome<()> {
        self.team.job().barrier()?;
        drop(self.region);
        drop(ManuallyDrop::into_inner(self.memory));
        Ok(())
    }

    /// Whether there is such a thing.
    fn offers(&self, limit: Limit, size: usize) -> bool {
        let limits = self.team.job().provider().limits;
        match limit {
            Limit::Tcp => true,
            Limit::Packet => (raw::MARK_BYTES..=limits.send_bytes_max).contains(&size),
            Limit::Write | Limit::Read | Limit::Rate | Limit::Bandwidth => size <= limits.message_bytes_max,
        }
    }

    /// Rank 0's side.
    fn ask(&mut self, row: Row, batches: Batches) -> Outcome<Vec<u64>> {
        let job = self.team.job();
        let access = match row.limit {
            Limit::Tcp => return self.ask_tcp(row.size, batches),
            Limit::Packet => {
                let count = usize::try_from(batches.count * batches.epochs)?;
                let times = raw::ask(job, ANSWERING, row.size, count)?;
                let epochs = usize::try_from(batches.epochs)?;
                return Ok(times.chunks(epochs).map(|batch| batch.iter().sum()).collect());
            }
            Limit::Write | Limit::Rate | Limit::Bandwidth => Access::Write,
            Limit::Read => Access::Read,
        };
        let memory = &mut self.memory[..row.bytes()];
        // SAFETY: the memory is freed only where no operation has failed, and used here only.
        unsafe { raw::access(job, ANSWERING, access, (memory, row.size), self.at, batches) }
    }

    fn ask_tcp(&mut self, size: usize, batches: Batches) -> Outcome<Vec<u64>> {
        let stream = self.stream.as_mut().ok_or("there is no connection")?;
        let mut answer = [0; ANSWER_BYTES];
        let answer = &mut answer[..size.min(ANSWER_BYTES)];
        let mut times = Vec::with_capacity(usize::try_from(batches.count)?);
        for _ in 0..batches.count {
            let begun = Instant::now();
            for _ in 0..batches.epochs {
                send(stream, &self.memory[..size])?;
                receive(stream, answer)?;
            }
            times.push(u64::try_from(begun.elapsed().as_nanos())?);
        }
        Ok(times)
    }

    /// Rank 1's side.
    fn answer(&mut self, row: Row, batches: Batches) -> Outcome<()> {
        let count = batches.count * batches.epochs;
        match row.limit {
            Limit::Tcp => {
                let stream = self.stream.as_mut().ok_or("there is no connection")?;
                for _ in 0..count {
                    receive(stream, &mut self.memory[..row.size])?;
                    send(stream, &self.memory[..row.size.min(ANSWER_BYTES)])?;
                }
                Ok(())
            }
            Limit::Packet => raw::answer(self.team.job(), ASKING, row.size, usize::try_from(count)?),
            // In the barrier that follows the library makes progress, for fabrics that need it.
            Limit::Write | Limit::Read | Limit::Rate | Limit::Bandwidth => Ok(()),
        }
    }

    /// What memory holds that is about to be sent, written or read.
    fn fill(&mut self, row: Row) {
        self.batches = self.batches.wrapping_add(1);
        let rank = self.team.job().rank();
        let is_source = rank == if row.limit == Limit::Read { ANSWERING } else { ASKING };
        // Volatile, as the fabric reads and writes it behind the compiler's back.
        for byte in &mut self.memory[..row.bytes()] {
            let value = if is_source { self.batches } else { !self.batches };
            // SAFETY: a reference is valid.
            unsafe { std::ptr::from_mut(byte).write_volatile(value) };
        }
    }

    /// Whether both memories hold what was to be moved.
    fn check(&self, row: Row) -> Outcome<()> {
        if row.limit == Limit::Packet {
            return Ok(());
        }
        for byte in &self.memory[..row.bytes()] {
            // SAFETY: a reference is valid.
            if unsafe { std::ptr::from_ref(byte).read_volatile() } != self.batches {
                return Err(format!("{} of {} bytes brought a wrong one", row.limit.name(), row.size).into());
            }
        }
        Ok(())
    }
}

impl Subject for Below<'_> {
    type Row = Row;

    fn team(&self) -> &Team<'_> {
        self.team
    }

    fn threads(&self) -> usize {
        1
    }

    fn turns(&self) -> f64 {
        1.0
    }

    fn segment(&mut self, row: &Row, batches: Batches) -> Outcome<Times> {
        let (job, mut times) = (self.team.job(), Times::default());
        self.fill(*row);
        job.barrier()?;
        if job.rank() == ASKING {
            let wall = Instant::now();
            times.batches = self.ask(*row, batches)?;
            times.wall = u64::try_from(wall.elapsed().as_nanos())?;
        } else if job.rank() == ANSWERING {
            self.answer(*row, batches)?;
        }
        job.barrier()?;
        if job.rank() == ASKING || job.rank() == ANSWERING {
            self.check(*row)?;
        }
        Ok(times)
    }
}

/// A connection between ranks 0 and 1, none at others. Collective.
fn connect(team: &Team<'_>, address: Option<IpAddr>) -> Outcome<Option<TcpStream>> {
    let job = team.job();
    let address = match address {
        Some(address) => address,
        None if job.local_size() == job.size() => Ipv4Addr::LOCALHOST.into(),
        None => return Err("ranks are on several hosts: --address says where rank 0 finds rank 1".into()),
    };
    let is_answering = job.rank() == ANSWERING;
    let listener = if is_answering { Some(TcpListener::bind((address, 0))?) } else { None };
    let port = listener.as_ref().map(TcpListener::local_addr).transpose()?.map_or(0, |own| own.port());
    let ports = team.share(port.into())?;
    let port = u16::try_from(ports.get(ANSWERING.0 as usize).copied().unwrap_or_default())?;
    let stream = match listener {
        Some(listener) => accept(&listener)?,
        None if job.rank() == ASKING => TcpStream::connect_timeout(&(address, port).into(), PATIENCE)?,
        None => return Ok(None),
    };
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(Some(stream))
}

fn accept(listener: &TcpListener) -> Outcome<TcpStream> {
    listener.set_nonblocking(true)?;
    patiently("connection", || listener.accept().map(|(stream, _)| stream))
}

fn send(stream: &mut TcpStream, mut bytes: &[u8]) -> Outcome<()> {
    while !bytes.is_empty() {
        let sent = patiently("room in the socket", || stream.write(bytes))?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

fn receive(stream: &mut TcpStream, mut bytes: &mut [u8]) -> Outcome<()> {
    while !bytes.is_empty() {
        match patiently("byte over the socket", || stream.read(bytes))? {
            0 => return Err("the other rank has closed the connection".into()),
            received => bytes = &mut bytes[received..],
        }
    }
    Ok(())
}

/// Tries until it no longer would block, giving way to others now and then, as ranks may outnumber processors.
#[inline]
fn patiently<T>(what: &str, mut call: impl FnMut() -> std::io::Result<T>) -> Outcome<T> {
    let mut begun = None;
    for tries in 1_u32.. {
        match call() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            outcome => return Ok(outcome?),
        }
        if tries % TRIES == 0 {
            if begun.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                break;
            }
            std::thread::yield_now();
        }
    }
    Err(format!("no {what} for {} s", PATIENCE.as_secs()).into())
}

/// Tries between two looks at the clock.
const TRIES: u32 = 64;
