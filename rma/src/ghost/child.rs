//! What the ghost does: executes what other ranks ask of its rank's windows, and sleeps while there is nothing.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

use rma_core::config::Config;
use rma_core::engine::Engine;
use rma_core::ghost::{Introduced, Mapping, Registered, Wanted};
use rma_core::ids::Rank;
use rma_core::provider::Endpoint;
use rma_shm::Memory;

use super::wire::{framed, take_frame, Answer, Request};
use crate::error::Result;
use crate::fabric::{self, FabricEndpoint, FabricOptions, Opened, Place};
use crate::options::Options;
use crate::platform::{block_signals, Descriptors, Event, Sleeper};

/// Longest sleep: what the descriptors cannot tell waits no longer.
const SLEEP: Duration = Duration::from_millis(20);

/// Naps where the fabric has no descriptor, from the first to the longest.
const NAP_FIRST: Duration = Duration::from_micros(50);
const NAP_LONGEST: Duration = Duration::from_millis(1);

/// Most rounds of progress between two looks at the socket.
const ROUNDS: u32 = 64;

/// Windows of one rank have numbers below this.
const WINDOWS_MAX: u32 = 1 << 24;

/// Status of a ghost that could not go on.
const FAILED: i32 = 1;

/// The ghost, from the fork to its end. Nothing of the program's that was there before is used.
pub(super) fn run(socket: UnixStream, options: &Options, parent: u32) -> ! {
    let ended = catch_unwind(AssertUnwindSafe(|| {
        leave_the_program(&socket);
        serve(socket, options, parent)
    }));
    let status = if matches!(ended, Ok(Ok(()))) { 0 } else { FAILED };
    // SAFETY: ends this process at once. What the program wants done at its exit is the parent's to do, and the
    // kernel takes back the rest.
    unsafe { libc::_exit(status) }
}

/// Gives back what was inherited of the program: signals, descriptors, its name. Standard error stays, for panics.
fn leave_the_program(socket: &UnixStream) {
    // Whoever ends the job ends the rank, and the ghost by that.
    block_signals();
    let _ = rustix::thread::set_name(c"rma-ghost");
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
    }
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<i32> = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for descriptor in open {
        if descriptor > 2 && descriptor != socket.as_raw_fd() {
            // SAFETY: it belongs to a value of the program's, which this process never uses again.
            unsafe { libc::close(descriptor) };
        }
    }
}

/// A rank's ghost at work.
struct Server {
    socket: UnixStream,
    /// What was read of a frame that is not whole yet.
    read: Vec<u8>,
    parent: u32,
}

/// Waits until the job is known, and serves until the rank is gone.
fn serve(socket: UnixStream, options: &Options, parent: u32) -> Result<()> {
    let mut server = Server { socket, read: Vec::new(), parent };
    let Some(Request::Join { rank, size, local_rank, local_size, address }) = server.wait_for_job() else {
        return Ok(());
    };
    // A ghost has no handlers.
    let at = Place { size, local_rank, local_size, has_ghost: true, in_handlers: false };
    let mut fabric = options.fabric.clone();
    fabric.host_address = address.map(|address| address.to_string()).or(fabric.host_address);
    match open(&options.config, &fabric, rank, &at) {
        Ok(mut engine) => {
            if server.answer(&Answer::Address(Box::new(engine.ghost_address()))).is_ok() {
                server.work(&mut engine)?;
            }
        }
        Err(error) => drop(server.answer(&Answer::Failed(error.to_string()))),
    }
    Ok(())
}

fn open(
    config: &Config,
    fabric: &FabricOptions,
    rank: u32,
    at: &Place,
) -> Result<Engine<FabricEndpoint, Introduced>> {
    // Its rank has tried the addresses, if there was a choice.
    let Opened { endpoint, .. } = fabric::open(fabric, at, |_| Ok(None))?;
    Ok(Engine::serve(endpoint, Rank(rank), at.size, config))
}

impl Server {
    /// The first request; `None`: the rank is gone.
    fn wait_for_job(&mut self) -> Option<Request> {
        loop {
            if let Some(frame) = take_frame(&mut self.read).ok()? {
                return Request::decode(&frame);
            }
            if !self.read_some().ok()? {
                return None;
            }
        }
    }

    /// Reads what is there. `false`: the rank has closed its end.
    fn read_some(&mut self) -> io::Result<bool> {
        let mut more = [0; 256];
        loop {
            match self.socket.read(&mut more) {
                Ok(len) => {
                    self.read.extend(&more[..len]);
                    return Ok(len > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn answer(&mut self, answer: &Answer) -> io::Result<()> {
        let bytes = framed(&answer.encode());
        self.socket.write_all(&bytes)
    }

    /// Serves until the rank is gone.
    fn work(&mut self, engine: &mut Engine<FabricEndpoint, Introduced>) -> Result<()> {
        let failed = |error| crate::Error::system("the ghost's socket", &error);
        self.socket.set_nonblocking(true).map_err(failed)?;
        // Nobody rings it: the socket says all.
        let bell = Event::new("the ghost's event")?;
        let (wait_fd, settles) = (engine.endpoint().wait_fd(), engine.endpoint().wait_fd_settles());
        let other = Some(self.socket.as_raw_fd());
        let watched = |of_fabric| Descriptors { of_fabric, settles, other };
        let sleeper = wait_fd.map(|fd| Sleeper::new(&watched(fd), &bell)).transpose()?;
        let mut nap = NAP_FIRST;
        loop {
            let mut rounds = 0;
            while rounds < ROUNDS && engine.progress() > 0 {
                rounds += 1;
            }
            if !self.listen(engine).map_err(failed)? {
                return Ok(());
            }
            match &sleeper {
                Some(sleeper) if rounds < ROUNDS && engine.arm_wait() => {
                    sleeper.sleep(SLEEP);
                }
                None if rounds < ROUNDS => {
                    nap = if rounds > 0 { NAP_FIRST } else { (2 * nap).min(NAP_LONGEST) };
                    std::thread::sleep(nap);
                }
                _ => {}
            }
        }
    }

    /// Does what the rank asks for. `false`: it is gone.
    fn listen(&mut self, engine: &mut Engine<FabricEndpoint, Introduced>) -> io::Result<bool> {
        loop {
            match self.read_some() {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        while let Some(frame) = take_frame(&mut self.read)? {
            match Request::decode(&frame) {
                Some(Request::Serve { wanted, descriptor }) => {
                    let answer = match self.add(engine, &wanted, descriptor) {
                        Ok(registered) => Answer::Served(registered),
                        Err(message) => Answer::Failed(message),
                    };
                    self.answer(&answer)?;
                }
                Some(Request::Release { window, alone }) => engine.drop_window(window, alone),
                Some(Request::Lost { rank }) => engine.lose(Rank(rank)),
                Some(Request::Join { .. }) | None => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Ok(true)
    }

    /// Maps and registers a window.
    fn add(
        &self,
        engine: &mut Engine<FabricEndpoint, Introduced>,
        wanted: &Wanted,
        descriptor: u32,
    ) -> std::result::Result<Registered, String> {
        if wanted.window.0 >= WINDOWS_MAX {
            return Err(format!("window {} is one too many", wanted.window));
        }
        let (base, mapping): (_, Box<dyn Mapping>) = if wanted.len == 0 {
            (std::ptr::null_mut(), Box::new(()))
        } else {
            let path = format!("/proc/{}/fd/{descriptor}", self.parent);
            let file = File::options().read(true).write(true).open(&path);
            let file = file.map_err(|error| format!("{path} of its rank cannot be opened: {error}"))?;
            let memory = Memory::of_file(&file, wanted.len, 0).map_err(|error| error.message)?;
            (memory.base().as_ptr(), Box::new(memory))
        };
        // SAFETY: mapped until the mapping is dropped; the rank uses its own mapping as shared memory.
        unsafe { engine.add_window(wanted, base, mapping) }.map_err(|error| error.to_string())
    }
}
