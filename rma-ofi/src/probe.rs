//! Finding out that a peer is gone where the provider does not say so.
//!
//! The tcp providers answer a post to a peer whose process has ended with "no resources now", for ever:
//! they try to connect again and keep the refusal to themselves. So after many such answers the
//! endpoint itself asks the kernel whether anybody still listens at the peer's address. Asking never
//! waits, and a peer that is only busy is not harmed: it sees a connection that closes at once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Refusals of posts to one peer before it is asked after for the first time.
const REFUSALS_FIRST: u32 = 4096;
/// Most refusals between one question and the next; they become rarer up to this.
const REFUSALS_BETWEEN_MAX: u32 = 65_536;

/// Counts refusals and says when to ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspicion {
    refusals: u32,
    asks_at: u32,
}

impl Suspicion {
    pub(crate) const NONE: Self = Self { refusals: 0, asks_at: REFUSALS_FIRST };

    /// One more refusal. Whether it is time to ask.
    pub(crate) fn grow(&mut self) -> bool {
        self.refusals = self.refusals.saturating_add(1);
        let is_time = self.refusals >= self.asks_at;
        if is_time {
            self.asks_at = self.refusals.saturating_add(self.refusals.min(REFUSALS_BETWEEN_MAX));
        }
        is_time
    }
}

/// What is known about somebody's listening.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// Somebody listens.
    Listens,
    /// Nobody does, or no way leads there; the error number.
    Refused(i32),
    /// Not known yet.
    Pending,
}

/// A question on its way.
#[derive(Debug)]
pub(crate) struct Probe {
    socket: OwnedFd,
    /// Index of the peer that is asked after.
    pub(crate) peer: usize,
}

impl Probe {
    /// Asks. `None` when this process has no means to: the question is then left for later.
    pub(crate) fn start(peer: usize, address: SocketAddr) -> Option<(Self, Answer)> {
        let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: takes numbers only.
        let descriptor = unsafe { libc::socket(family, kind, 0) };
        if descriptor < 0 {
            return None;
        }
        // SAFETY: just made, and owned by nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let answer = match connect(&socket, address) {
            Ok(()) => Answer::Listens,
            Err(error) => match error.raw_os_error() {
                Some(libc::EINPROGRESS | libc::EAGAIN | libc::EINTR) | None => Answer::Pending,
                Some(code) => Answer::Refused(code),
            },
        };
        Some((Self { socket, peer }, answer))
    }

    /// What has become of the question.
    pub(crate) fn answer(&self) -> Answer {
        let mut wait = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one entry, valid during the call, which does not wait.
        if unsafe { libc::poll(&mut wait, 1, 0) } <= 0 {
            return Answer::Pending;
        }
        let mut code: libc::c_int = 0;
        let mut len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the socket is open, and the option is one int.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                (&raw mut code).cast(),
                &mut len,
            )
        };
        match code {
            0 if result == 0 => Answer::Listens,
            0 => Answer::Pending,
            code => Answer::Refused(code),
        }
    }
}

fn connect(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    let result = match address {
        SocketAddr::V4(address) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            let len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            // SAFETY: the address is as long as said, and read during the call.
            unsafe { libc::connect(socket.as_raw_fd(), (&raw const raw).cast(), len) }
        }
        SocketAddr::V6(address) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            let len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            // SAFETY: as above.
            unsafe { libc::connect(socket.as_raw_fd(), (&raw const raw).cast(), len) }
        }
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use super::*;

    fn ask(address: SocketAddr) -> Answer {
        let (probe, mut answer) = Probe::start(0, address).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while answer == Answer::Pending && Instant::now() < deadline {
            answer = probe.answer();
        }
        answer
    }

    #[test]
    fn a_listener_is_told_from_nobody() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else { continue };
            let address = listener.local_addr().unwrap();
            assert_eq!(ask(address), Answer::Listens, "{any}");
            drop(listener);
            assert_eq!(ask(address), Answer::Refused(libc::ECONNREFUSED), "{any}");
        }
    }

    #[test]
    fn questions_become_rarer_and_never_stop() {
        let mut suspicion = Suspicion::NONE;
        let asked: Vec<u32> = (1..=1_000_000).filter(|_| suspicion.grow()).collect();
        assert_eq!(asked[..3], [4096, 8192, 16384]);
        assert!(asked.windows(2).all(|pair| pair[1] - pair[0] <= REFUSALS_BETWEEN_MAX));
        assert!(1_000_000 - asked.last().unwrap() <= REFUSALS_BETWEEN_MAX);
    }
}
