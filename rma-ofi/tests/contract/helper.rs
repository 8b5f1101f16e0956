//! A second process: the test executable runs itself, and the two talk through pipes until the
//! fabric works.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rma_core::bootstrap::AddressBytes;
use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::provider::{Accepted, Endpoint, MemoryRegion, PostError, RemoteAddr, SendClass};

use crate::world::{Node, Window};
use crate::Setup;

/// Bytes of the helper's window.
pub(crate) const WINDOW_BYTES: usize = 1 << 16;

/// What the helper prints is found by this, among what the test harness prints.
const MARK: &str = "@helper ";
/// What its parent writes to a helper that is to stop.
const PAUSE: &str = "pause";
/// Set for a helper that must not be stopped inside of a call.
pub(crate) const BETWEEN_POLLS: &str = "RMA_TEST_HELPER_PAUSES_BETWEEN_POLLS";
/// A helper whose parent forgets it ends by itself, when the test that it is of would have been ended.
const LIFETIME: Duration = Duration::from_secs(2 * crate::LIMIT_S);

/// A helper, from outside. Killed when dropped.
pub(crate) struct Helper {
    process: Child,
    stdin: Option<ChildStdin>,
    pub(crate) address: AddressBytes,
    pub(crate) window: RemoteAddr,
}

impl Helper {
    /// Starts a helper that serves until it is killed; `others` are connected as its peers, in order.
    pub(crate) fn start(setup: &Setup, others: &[AddressBytes]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["helper_process", "--exact", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        setup.tell(&mut command);
        let mut process = command.spawn().unwrap();
        let mut stdin = process.stdin.take().unwrap();
        for other in others {
            writeln!(stdin, "{}", to_hex(other.as_slice())).unwrap();
        }
        writeln!(stdin, "go").unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line =
            lines.by_ref().map(Result::unwrap).find(|line| line.contains(MARK)).expect("the helper starts");
        // The rest of its output is not interesting, but must go somewhere.
        std::thread::spawn(move || lines.for_each(drop));
        let words: Vec<&str> = line.split(MARK).nth(1).unwrap().split(' ').collect();
        let address = AddressBytes::new(&from_hex(words[0])).unwrap();
        let window =
            RemoteAddr { addr: words[1].parse().unwrap(), key: RemoteKey(words[2].parse().unwrap()) };
        Self { process, stdin: Some(stdin), address, window }
    }

    /// Ends it without a word to anybody.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Has it stop where it is, or between two polls where [`BETWEEN_POLLS`] was set, and waits until it has.
    pub(crate) fn pause(&mut self) {
        writeln!(self.stdin.as_mut().unwrap(), "{PAUSE}").unwrap();
        let mut status = 0;
        // SAFETY: waits for a change of our own child, which has not been waited for; the status is ours.
        let changed = unsafe { libc::waitpid(self.pid(), &raw mut status, libc::WUNTRACED) };
        assert!(changed == self.pid() && libc::WIFSTOPPED(status), "{changed}: {status:#x}");
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        // SAFETY: sends a signal to our own child, which has not been waited for.
        let result = unsafe { libc::kill(self.pid(), libc::SIGCONT) };
        assert_eq!(result, 0);
    }

    fn pid(&self) -> libc::pid_t {
        self.process.id() as libc::pid_t
    }

    /// Ends it in order.
    pub(crate) fn finish(mut self) {
        drop(self.stdin.take());
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a packet asks a helper to do. The answer goes to the helper's first peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Send these bytes back.
    Echo(u64),
    /// Read 8 bytes from the second peer with `get`, and send them.
    ReadFromOther(RemoteAddr),
}

impl Ask {
    pub(crate) fn encode(self) -> [u8; 24] {
        let (kind, first, second) = match self {
            Self::Echo(value) => (0, value, 0),
            Self::ReadFromOther(at) => (1, at.addr, at.key.0),
        };
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&u64::to_le_bytes(kind));
        bytes[8..16].copy_from_slice(&first.to_le_bytes());
        bytes[16..].copy_from_slice(&second.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        match word(0) {
            0 => Self::Echo(word(8)),
            _ => Self::ReadFromOther(RemoteAddr { addr: word(8), key: RemoteKey(word(16)) }),
        }
    }
}

/// What the helper's parent wants of it.
#[derive(Default)]
struct Wishes {
    pause: AtomicBool,
    end: AtomicBool,
}

/// The helper itself.
pub(crate) fn serve() {
    let Some(setup) = Setup::of_helper() else { return };
    let mut node = Node::new(setup.endpoint());
    let window = Window::new(&mut node.ep, WINDOW_BYTES, 1);
    let mut lines = BufReader::new(std::io::stdin()).lines();
    for line in lines.by_ref().map(Result::unwrap).take_while(|line| line != "go") {
        node.peers.push(node.ep.connect(&AddressBytes::new(&from_hex(&line)).unwrap()).unwrap());
    }
    let (base, key) = (window.region.remote_base(), window.region.remote_key());
    println!("{MARK}{} {base} {key}", to_hex(node.ep.address().as_slice()));
    let wishes = Arc::new(Wishes::default());
    let told = Arc::clone(&wishes);
    let is_between = std::env::var_os(BETWEEN_POLLS).is_some();
    std::thread::spawn(move || {
        for _ in lines.map(Result::unwrap).filter(|line| line == PAUSE) {
            if is_between {
                told.pause.store(true, Ordering::Relaxed);
            } else {
                stop_here();
            }
        }
        told.end.store(true, Ordering::Relaxed);
    });
    let deadline = Instant::now() + LIFETIME;
    while !wishes.end.load(Ordering::Relaxed) && Instant::now() < deadline {
        if node.poll() == 0 {
            std::thread::yield_now();
        }
        if wishes.pause.swap(false, Ordering::Relaxed) {
            stop_here();
        }
        while let Some(packet) = node.packets.pop_front() {
            answer(&mut node, Ask::decode(&packet));
        }
    }
}

/// Stops this process, whose parent lets it go on or kills it.
fn stop_here() {
    // SAFETY: a signal to this process, for which there are no handlers.
    unsafe { libc::kill(std::process::id() as libc::pid_t, libc::SIGSTOP) };
}

fn answer<E: Endpoint>(node: &mut Node<E>, ask: Ask) {
    let value = match ask {
        Ask::Echo(value) => value,
        Ask::ReadFromOther(at) => {
            let mut value = 0u64;
            let (from, into) = (node.peers[1], &raw mut value);
            node.outcomes.clear();
            // SAFETY: the value lives until the tag has come back.
            let accepted = retry(node, |node| unsafe { node.ep.get(from, into.cast(), 8, at, Tag(1)) });
            while accepted == Ok(Accepted::Tracked) && node.outcomes.is_empty() {
                node.poll();
            }
            if let Some((_, outcome)) = node.outcomes.first() {
                outcome.expect("the get succeeds");
            }
            value
        }
    };
    let to: PeerAddr = node.peers[0];
    // A parent that is gone wants no answer.
    let _ = retry(node, |node| node.ep.send(to, &value.to_le_bytes(), b"", SendClass::Reply));
}

/// Posts until it is accepted, or fails.
fn retry<E: Endpoint, T>(
    node: &mut Node<E>,
    mut post: impl FnMut(&mut Node<E>) -> Result<T, PostError>,
) -> Result<T, PostError> {
    loop {
        match post(node) {
            Err(PostError::Again) => node.poll(),
            done => return done,
        };
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|index| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).unwrap())
        .collect()
}
