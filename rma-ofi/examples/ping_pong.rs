//! Raw round trip of two endpoints in two threads, without any engine above: the floor that everything
//! else is compared with. `ping_pong [PROVIDER]`; the library comes from `RMA_LIBFABRIC`.

use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Instant;

use rma_core::bootstrap::AddressBytes;
use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::provider::{
    Accepted, Completion, CompletionBatch, Endpoint, MemoryRegion, PostError, ProviderError, RemoteAddr,
    SendClass,
};
use rma_ofi::{Ofi, OfiEndpoint, Options};

const WARM_UP: usize = 1_000;
const ROUNDS: usize = 20_000;

fn main() -> ExitCode {
    let options = Options { provider: std::env::args().nth(1), single_host: true, ..Options::from_env() };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ping_pong: {error}");
            ExitCode::FAILURE
        }
    }
}

fn open(options: &Options) -> Result<OfiEndpoint, ProviderError> {
    OfiEndpoint::open(&Ofi::discover(options)?, options)
}

fn run(options: &Options) -> Result<(), ProviderError> {
    let mut ep = open(options)?;
    println!("{}", ep.description());
    let own = ep.address();
    let theirs = options.clone();
    let (say, hear) = mpsc::channel();
    let echo = std::thread::spawn(move || serve(&theirs, &own, &say));
    let Ok((address, window)) = hear.recv() else {
        return echo
            .join()
            .unwrap_or_else(|_| Err(ProviderError { message: "the echo panicked".to_owned() }));
    };
    let peer = ep.connect(&address)?;
    report("send and answer, 8 B", || send_and_wait(&mut ep, peer, &[1; 8]))?;
    for len in [8, 4096] {
        let src = vec![7u8; len];
        report(&format!("put, {len} B, visible at the target"), || {
            put_and_wait(&mut ep, peer, &src, window)
        })?;
    }
    send_and_wait(&mut ep, peer, b"")?;
    echo.join().unwrap_or_else(|_| Err(ProviderError { message: "the echo panicked".to_owned() }))
}

/// The other side: answers every packet, until an empty one.
fn serve(
    options: &Options,
    other: &AddressBytes,
    say: &mpsc::Sender<(AddressBytes, RemoteAddr)>,
) -> Result<(), ProviderError> {
    let mut ep = open(options)?;
    let peer = ep.connect(other)?;
    let mut memory = vec![0u64; 512];
    let base = std::ptr::NonNull::from(memory.as_mut_slice()).cast();
    // SAFETY: the memory outlives the region, and is not looked at before that is gone.
    let region = unsafe { ep.register(base, 4096, RemoteKey(1)) }?;
    let window = RemoteAddr { addr: region.remote_base(), key: region.remote_key() };
    // Nobody listens any more if the other side has failed.
    let _ = say.send((ep.address(), window));
    loop {
        let len = next_packet(&mut ep)?;
        post(&mut ep, |ep| ep.send(peer, &[1; 8], b"", SendClass::Reply))?;
        if len == 0 {
            return drain(&mut ep, peer);
        }
    }
}

/// Leaves the last answer time to go out.
fn drain(ep: &mut OfiEndpoint, peer: PeerAddr) -> Result<(), ProviderError> {
    // Nobody waits for it: what it covers has left by then.
    post(ep, |ep| ep.flush(peer, Tag(0)))?;
    for _ in 0..1000 {
        ep.poll(&mut CompletionBatch::new());
    }
    Ok(())
}

fn report(
    what: &str,
    mut round_trip: impl FnMut() -> Result<(), ProviderError>,
) -> Result<(), ProviderError> {
    for _ in 0..WARM_UP {
        round_trip()?;
    }
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        round_trip()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    println!("{what}: median {:?}, least {:?}", times[ROUNDS / 2], times[0]);
    Ok(())
}

fn send_and_wait(ep: &mut OfiEndpoint, to: PeerAddr, packet: &[u8]) -> Result<(), ProviderError> {
    post(ep, |ep| ep.send(to, packet, b"", SendClass::Request))?;
    next_packet(ep).map(drop)
}

fn put_and_wait(ep: &mut OfiEndpoint, to: PeerAddr, src: &[u8], at: RemoteAddr) -> Result<(), ProviderError> {
    // SAFETY: the source is borrowed until the tag has come back.
    if post(ep, |ep| unsafe { ep.put(to, src.as_ptr(), src.len(), at, Tag(1)) })? == Accepted::Complete {
        return Ok(());
    }
    wait_for(ep, |completion| matches!(completion, Completion::Done(_)).then_some(()))
}

/// Waits for a packet and gives its buffer back. Returns its length.
fn next_packet(ep: &mut OfiEndpoint) -> Result<usize, ProviderError> {
    let packet = wait_for(ep, |completion| match completion {
        Completion::Packet(packet) => Some(packet),
        _ => None,
    })?;
    let len = packet.len;
    ep.release(packet);
    Ok(len)
}

fn wait_for<T>(
    ep: &mut OfiEndpoint,
    mut wanted: impl FnMut(Completion) -> Option<T>,
) -> Result<T, ProviderError> {
    let mut batch = CompletionBatch::new();
    loop {
        ep.poll(&mut batch);
        while let Some(completion) = batch.pop() {
            if let Completion::Failed(_, code)
            | Completion::PeerDown(_, code)
            | Completion::EndpointDown(code) = &completion
            {
                return Err(ProviderError { message: format!("the other side is gone: {code}") });
            }
            if let Some(found) = wanted(completion) {
                return Ok(found);
            }
        }
        std::hint::spin_loop();
    }
}

fn post<T>(
    ep: &mut OfiEndpoint,
    mut post: impl FnMut(&mut OfiEndpoint) -> Result<T, PostError>,
) -> Result<T, ProviderError> {
    let mut batch = CompletionBatch::new();
    loop {
        match post(ep) {
            Ok(accepted) => return Ok(accepted),
            Err(PostError::Again) => {
                ep.poll(&mut batch);
            }
            Err(PostError::Failed(code)) => {
                return Err(ProviderError { message: format!("posting failed: {code}") })
            }
        }
    }
}
