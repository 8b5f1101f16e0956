//! The agent as a process: a child of the rank, forked before libfabric and the launcher's connection are
//! touched, which owns the rank's target role ([`rma_core::ghost`]). Nobody else knows of it: it is no rank, the
//! launcher does not count it, and the rank publishes its address with its own.
//!
//! A socket connects both. The rank asks over it when windows are made and freed; when it is closed, however
//! the rank ended, the ghost ends.

mod child;
mod wire;

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rma_core::bootstrap::AddressBytes;
use rma_core::ghost::{Ghost, GhostError, Part, Registered, Wanted};
use rma_core::ids::{Rank, WindowId};
use rma_shm::Memory;

use crate::error::{Error, ErrorKind, Result};
use crate::fabric::Place;
use crate::options::Options;
use crate::segment::reserved_file;
use wire::{framed, take_frame, Answer, Request};

/// Longest time that the ghost may take to open its endpoint or to register memory.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest time that it may take to end.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// The child process, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    socket: Option<UnixStream>,
    pid: libc::pid_t,
}

impl Child {
    /// Forks. The child never returns from here.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn fork(options: &Options) -> Result<Self> {
        let failed =
            |error| Error::system("no ghost process can be made (RMA_PROGRESS=thread does without)", &error);
        let (own, its) = UnixStream::pair().map_err(failed)?;
        own.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        own.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        let parent = std::process::id();
        // SAFETY: the child uses nothing but its socket, the options, and what it makes itself; the C library
        // sees to its own locks. Locks that other threads of the program hold stay held there, and are not asked
        // for.
        match unsafe { libc::fork() } {
            -1 => Err(failed(io::Error::last_os_error())),
            0 => child::run(its, options, parent),
            pid => Ok(Self { socket: Some(own), pid }),
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Tells it which rank of which job it serves; what the rank speaks to it with from now on.
    ///
    /// # Errors
    /// When it cannot open an endpoint.
    pub(crate) fn join(mut self, rank: u32, at: &Place, host_address: Option<&str>) -> Result<Link> {
        let failed = |message| Error::new(ErrorKind::Provider(message));
        let address = host_address.and_then(|address| address.parse().ok());
        let Place { size, local_rank, local_size, .. } = *at;
        match self.ask(&Request::Join { rank, size, local_rank, local_size, address }).map_err(failed)? {
            Answer::Address(address) => Ok(Link { child: self, address: *address }),
            Answer::Failed(message) => Err(failed(format!("the ghost process: {message}"))),
            Answer::Served(_) => Err(failed(out_of_order())),
        }
    }

    fn ask(&mut self, request: &Request) -> std::result::Result<Answer, String> {
        let answer = self.tell(request).and_then(read_answer);
        answer.map_err(|error| format!("the ghost process does not answer: {error}; was it killed?"))
    }

    fn tell(&mut self, request: &Request) -> io::Result<&mut UnixStream> {
        let socket = self.socket.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let written = socket.write_all(&framed(&request.encode()));
        if written.is_err() {
            // Half of a request may be on the way: nothing can follow it.
            self.socket = None;
        }
        written?;
        self.socket.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

fn read_answer(socket: &mut UnixStream) -> io::Result<Answer> {
    let (mut read, mut more) = (Vec::new(), [0; 256]);
    loop {
        if let Some(frame) = take_frame(&mut read)? {
            return Answer::decode(&frame).ok_or_else(|| io::ErrorKind::InvalidData.into());
        }
        match socket.read(&mut more) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => read.extend(&more[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn out_of_order() -> String {
    "the ghost process answers something that was not asked".to_owned()
}

impl Drop for Child {
    fn drop(&mut self) {
        // It ends when nobody holds the other end.
        self.socket = None;
        let begun = Instant::now();
        loop {
            // SAFETY: no status is asked for. Another's wait may have been there first, which is as good.
            let waited = unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::WNOHANG) };
            match waited {
                0 if begun.elapsed() < END_PATIENCE => std::thread::sleep(Duration::from_micros(200)),
                0 => {
                    // SAFETY: it is a child that nobody has waited for, so the number is still its own.
                    unsafe { libc::kill(self.pid, libc::SIGKILL) };
                    // SAFETY: as above.
                    unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
                    return;
                }
                _ => return,
            }
        }
    }
}

/// A ghost that serves.
#[derive(Debug)]
pub(crate) struct Link {
    child: Child,
    address: AddressBytes,
}

impl Link {
    fn register(&mut self, wanted: &Wanted, descriptor: i32) -> std::result::Result<Registered, GhostError> {
        let request = Request::Serve { wanted: *wanted, descriptor: descriptor.max(0) as u32 };
        match self.child.ask(&request).map_err(GhostError::Other)? {
            Answer::Served(registered) => Ok(registered),
            Answer::Failed(message) => Err(GhostError::Other(format!("the ghost process: {message}"))),
            Answer::Address(_) => Err(GhostError::Other(out_of_order())),
        }
    }
}

impl Ghost for Link {
    fn address(&self) -> AddressBytes {
        self.address
    }

    fn makes_allocated(&self) -> bool {
        true
    }

    fn serve(&mut self, wanted: &Wanted) -> std::result::Result<Part, GhostError> {
        if wanted.len == 0 {
            let remote = self.register(wanted, 0)?;
            return Ok(Part { base: std::ptr::null_mut(), mapping: Box::new(()), remote });
        }
        let file = reserved_file(wanted.len).ok_or(GhostError::Memory)?;
        let memory = Memory::of_file(&file, wanted.len, wanted.alignment).map_err(|_| GhostError::Memory)?;
        let remote = self.register(wanted, file.as_raw_fd())?;
        Ok(Part { base: memory.base().as_ptr(), mapping: Box::new(memory), remote })
    }

    fn release(&mut self, window: WindowId, alone: bool) {
        // One that is gone serves nothing any more.
        let _ = self.child.tell(&Request::Release { window, alone });
    }

    fn lost(&mut self, rank: Rank) {
        // As above.
        let _ = self.child.tell(&Request::Lost { rank: rank.0 });
    }
}
