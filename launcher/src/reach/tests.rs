//! Both sides over real sockets, and whoever else may connect or listen.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::connect::{Connected, Unreachable};
use super::listen::PENDING_MAX;
use super::*;

/// Far above what any of this takes on a busy machine.
const BOUND: Duration = Duration::from_secs(30);

const SECRET: Secret = Secret::of_bytes([7; 32]);
const OTHER: Secret = Secret::of_bytes([8; 32]);

fn listener(secret: &Secret) -> Listener {
    Listener::open(secret, None, true).unwrap()
}

/// Carries the listener on, as its owner does, until somebody arrives or `ends` says so.
fn serve(listener: &mut Listener, mut ends: impl FnMut(&Listener) -> bool) -> Vec<Arrival> {
    let begun = Instant::now();
    loop {
        let arrivals = listener.progress(Instant::now());
        if !arrivals.is_empty() || ends(listener) {
            return arrivals;
        }
        assert!(begun.elapsed() < BOUND, "nothing has come: {listener:?}");
        let mut fds: Vec<PollFd<'_>> =
            listener.fds().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 })).unwrap();
    }
}

fn arrives(listener: &mut Listener) -> Arrival {
    serve(listener, |_| false).pop().unwrap()
}

fn connects(
    candidates: Vec<Candidate>,
    secret: &'static Secret,
    bound: Duration,
) -> JoinHandle<Result<Connected, Unreachable>> {
    thread::spawn(move || connect(&candidates, secret, 5, bound))
}

/// The one at 127.0.0.1: others are the same and slower to write down.
fn address(listener: &Listener) -> SocketAddr {
    let candidate =
        listener.candidates().iter().map(Candidate::to_string).find(|text| text.starts_with("127."));
    candidate.unwrap().parse().unwrap()
}

fn candidate(address: SocketAddr) -> Candidate {
    address.to_string().parse().unwrap()
}

/// Somebody else, who listens and does what the function says with every connection.
fn foreigner(does: impl Fn(TcpStream) + Send + 'static) -> Candidate {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || socket.incoming().flatten().for_each(does));
    candidate(address)
}

/// Nobody listens there.
fn nobody() -> Candidate {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    candidate(socket.local_addr().unwrap())
}

/// Whether the other side closes the connection without a word.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(BOUND)).unwrap();
    match stream.read(&mut [0; 1]) {
        Ok(len) => len == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn both_sides_meet_and_speak() {
    let mut listener = listener(&SECRET);
    let connecting = connects(listener.candidates().to_vec(), &SECRET, BOUND);
    let mut arrival = arrives(&mut listener);
    let mut connected = connecting.join().unwrap().unwrap();
    assert_eq!(arrival.id, 5);
    assert_eq!(arrival.local, connected.stream.peer_addr().unwrap().ip());
    assert_eq!(connected.local, arrival.stream.peer_addr().unwrap().ip());
    connected.stream.write_all(b"hello").unwrap();
    let mut bytes = [0; 5];
    arrival.stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
    assert!(sockopt::tcp_nodelay(arrival.stream.as_fd()).unwrap());
    assert!(sockopt::tcp_user_timeout(connected.stream.as_fd()).unwrap() > 0);
    assert_eq!(listener.refused(), 0);
}

#[test]
fn the_right_listener_is_found_behind_wrong_ones() {
    let mut listener = listener(&SECRET);
    let silent = foreigner(std::mem::forget);
    let closes = foreigner(drop);
    let http = foreigner(|mut stream| {
        let _ = stream.write_all(&[b'x'; 4096]);
        std::mem::forget(stream);
    });
    let mut other_job = self::listener(&OTHER);
    let candidates =
        vec![nobody(), silent, closes, http, candidate(address(&other_job)), candidate(address(&listener))];
    let connecting = connects(candidates, &SECRET, BOUND);
    // Two jobs of one user, for example.
    thread::spawn(move || serve(&mut other_job, |other| other.refused() > 0));
    let arrival = arrives(&mut listener);
    let connected = connecting.join().unwrap().unwrap();
    assert_eq!(connected.stream.peer_addr().unwrap(), address(&listener));
    assert_eq!(arrival.stream.peer_addr().unwrap(), connected.stream.local_addr().unwrap());
}

#[test]
fn the_error_lists_what_was_tried_and_how_it_failed() {
    let mut other_job = listener(&OTHER);
    let (nobody, silent) = (nobody(), foreigner(std::mem::forget));
    let speaks = foreigner(|mut stream| {
        let _ = stream.write_all(&[b'x'; 4096]);
        std::mem::forget(stream);
    });
    let other = candidate(address(&other_job));
    // All are tried long before, and none twice for its silence.
    let bound = HANDSHAKE_PATIENCE.mul_f64(0.8);
    let connecting = connects(vec![nobody, silent, speaks, other], &SECRET, bound);
    let arrivals = serve(&mut other_job, |_| connecting.is_finished());
    assert!(arrivals.is_empty());
    let message = connecting.join().unwrap().unwrap_err().to_string();
    for (tried, how) in [
        (nobody, "refused"),
        (silent, "does not answer"),
        (speaks, "does not speak rmarun's protocol"),
        (other, "another job"),
    ] {
        let line = message.lines().find(|line| line.contains(&format!("{tried}:")));
        assert!(line.is_some_and(|line| line.contains(how)), "{tried}, {how}: {message}");
    }
    assert!(message.contains("any of 4 addresses") && message.contains("--iface"), "{message}");
}

#[test]
fn nothing_is_tried_again_when_all_belong_to_others() {
    let mut other_job = listener(&OTHER);
    let connecting = connects(other_job.candidates().to_vec(), &SECRET, 20 * BOUND);
    let arrivals = serve(&mut other_job, |_| connecting.is_finished());
    assert!(arrivals.is_empty() && other_job.refused() > 0);
    assert!(connecting.join().unwrap().is_err());
    assert_eq!(connect(&[], &SECRET, 1, BOUND).unwrap_err().to_string(), "there is no address to connect to");
}

#[test]
fn whoever_does_not_know_the_secret_is_closed_without_a_word() {
    let mut listener = listener(&SECRET);
    let address = address(&listener);
    let hostile: [&[u8]; 4] =
        [b"GET / HTTP/1.1\r\n\r\n and so on, for forty bytes", &[0; 40], &[0xff; 4096], b"rmarun"];
    for (count, bytes) in (1..).zip(hostile) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        if bytes.len() < 40 {
            // It says no more.
            drop(stream);
            assert!(serve(&mut listener, |listener| listener.refused() == count).is_empty());
            continue;
        }
        assert!(serve(&mut listener, |listener| listener.refused() == count).is_empty());
        assert!(is_closed(&mut stream), "{bytes:?}");
    }
}

#[test]
fn half_open_connections_are_bounded_and_keep_nobody_out() {
    let mut listener = listener(&SECRET);
    let address = address(&listener);
    let mut idle = Vec::new();
    for count in 1..=PENDING_MAX as u64 + 40 {
        idle.push(TcpStream::connect(address).unwrap());
        // Half of them begin to speak.
        if count % 2 == 0 {
            idle.last_mut().unwrap().write_all(b"rmarun").unwrap();
        }
        listener.progress(Instant::now());
    }
    serve(&mut listener, |listener| listener.refused() >= 40);
    assert!(listener.fds().count() <= PENDING_MAX + listener.candidates().len());
    assert!(is_closed(&mut idle[0]), "the oldest makes room");

    let connecting = connects(listener.candidates().to_vec(), &SECRET, BOUND);
    assert_eq!(arrives(&mut listener).id, 5);
    assert!(connecting.join().unwrap().is_ok());

    // In time all of them are closed.
    let later = Instant::now() + HANDSHAKE_PATIENCE + Duration::from_secs(1);
    // On a slow machine there may be none left by now.
    let has_pending = listener.fds().count() > listener.candidates().len();
    assert!(!has_pending || listener.deadline().is_some_and(|deadline| deadline < later));
    listener.progress(later);
    assert_eq!(listener.fds().count(), listener.candidates().len());
    assert!(idle.iter_mut().all(is_closed));
}

#[test]
fn a_flood_is_accepted_at_a_bounded_rate_and_keeps_nobody_out() {
    let mut listener = listener(&SECRET);
    let address = address(&listener);
    let begun = Instant::now();
    let flood = thread::spawn(move || {
        for _ in 0..600 {
            let Ok(mut stream) = TcpStream::connect_timeout(&address, BOUND) else { continue };
            let _ = stream.write_all(&[0xee; 64]);
        }
    });
    let connecting = connects(listener.candidates().to_vec(), &SECRET, BOUND);
    assert_eq!(arrives(&mut listener).id, 5);
    assert!(connecting.join().unwrap().is_ok());
    // One more when the job's own host has tried a second address meanwhile, and took it back.
    serve(&mut listener, |listener| flood.is_finished() && listener.refused() >= 600);
    let seconds = begun.elapsed().as_secs_f64();
    // 256 at once and as many a second, of which one belonged to the job.
    assert!(seconds > 1.2, "600 connections were accepted within {seconds} s");
}

#[test]
fn a_chosen_interface_is_the_only_one_that_listens() {
    let listener = Listener::open(&SECRET, Some("127.0.0.1"), false).unwrap();
    assert_eq!(listener.candidates().len(), 1);
    let port = address(&listener).port();
    for interface in rma_bootstrap::interfaces::interfaces().unwrap() {
        if interface.address.is_loopback() || !interface.address.is_ipv4() || !interface.is_running {
            continue;
        }
        let other = SocketAddr::new(interface.address, port);
        assert!(TcpStream::connect_timeout(&other, BOUND).is_err(), "{other} listens as well");
    }
    assert!(Listener::open(&SECRET, Some("nope0"), false).unwrap_err().contains("nope0"));
}
