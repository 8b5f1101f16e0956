//! How the parts of a job's launcher on several hosts reach each other, by trying and not by guessing.
//!
//! One side [listens](Listener) on the addresses of the interfaces that may be used, each with a port of its
//! own, and tells the other one all of them. That side [tries](connect()) them one after the other, without
//! waiting long for any, and takes the first behind which a process proves that it knows the job's secret: the
//! address of a bridge that every host has (172.17.0.1 of docker) may well belong to somebody else. Then it
//! proves the same about itself ([`proof`]).
//!
//! Before the proof the listening side takes messages of a fixed size only, keeps at most
//! [`PENDING_MAX`](listen::PENDING_MAX) connections for at most [`HANDSHAKE_PATIENCE`], and accepts no faster
//! than [`ACCEPTED_PER_SECOND`](listen::ACCEPTED_PER_SECOND). What is said afterwards is not encrypted.

mod addresses;
mod connect;
#[cfg(test)]
mod hostile;
mod listen;
mod proof;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

pub(crate) use addresses::Candidate;
pub(crate) use connect::connect;
pub(crate) use listen::{Arrival, Listener};
pub(crate) use proof::Secret;

/// How long each side waits for the other to finish the mutual proof.
pub(crate) const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// Silence on an idle connection after which the kernel asks whether the other host is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);

/// Between one such question and the next.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// How long data or questions may stay unanswered before the kernel ends the connection.
const UNANSWERED_MAX: Duration = Duration::from_secs(10);

/// Makes a connection of a job as it has to be: small messages leave at once, and a host that is gone without a
/// word shows as an error after at most about [`KEEPALIVE_IDLE`] and [`UNANSWERED_MAX`].
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    let fd = stream.as_fd();
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(fd, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_user_timeout(fd, UNANSWERED_MAX.as_millis() as u32)?;
    Ok(())
}

/// This side's address.
fn local_address(stream: &TcpStream) -> io::Result<IpAddr> {
    Ok(stream.local_addr()?.ip())
}
