//! What a rank and its ghost say to each other: frames of a length and fields of fixed size, little-endian. Both
//! ends are one program, but neither believes what it reads.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use rma_core::bootstrap::AddressBytes;
use rma_core::ghost::{Registered, Wanted};
use rma_core::ids::WindowId;

/// Longest frame, bytes: that of an error's text.
pub(super) const FRAME_BYTES_MAX: usize = 4096;

/// Bytes of a frame's length.
pub(super) const LENGTH_BYTES: usize = 4;

/// What a rank says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// This is the job: open an endpoint, where other hosts are by the address by which they reach this one.
    Join { rank: u32, size: u32, local_rank: u32, local_size: u32, address: Option<IpAddr> },
    /// Serve this window, whose memory is the file behind this descriptor of the rank's.
    Serve { wanted: Wanted, descriptor: u32 },
    /// Serve it no more.
    Release { window: WindowId, alone: bool },
    /// The process of this rank has ended.
    Lost { rank: u32 },
}

/// What a ghost answers.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// The endpoint is open.
    Address(Box<AddressBytes>),
    /// The window is served.
    Served(Registered),
    /// It cannot be done, for this reason.
    Failed(String),
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        match *self {
            Self::Join { rank, size, local_rank, local_size, address } => {
                out.push(1);
                out.extend(rank.to_le_bytes());
                out.extend(size.to_le_bytes());
                out.extend(local_rank.to_le_bytes());
                out.extend(local_size.to_le_bytes());
                out.push(address.is_some().into());
                let address = address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
                out.extend(match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    IpAddr::V6(address) => address.octets(),
                });
            }
            Self::Serve { wanted, descriptor } => {
                out.push(2);
                out.extend(wanted.window.0.to_le_bytes());
                out.extend((wanted.len as u64).to_le_bytes());
                out.extend(wanted.disp_unit.to_le_bytes());
                out.push(wanted.is_registered.into());
                out.extend(descriptor.to_le_bytes());
            }
            Self::Release { window, alone } => {
                out.push(3);
                out.extend(window.0.to_le_bytes());
                out.push(alone.into());
            }
            Self::Lost { rank } => {
                out.push(4);
                out.extend(rank.to_le_bytes());
            }
        }
        out
    }

    pub(super) fn decode(frame: &[u8]) -> Option<Self> {
        let (kind, fields) = frame.split_first()?;
        let mut fields = Fields(fields);
        let request = match kind {
            1 => {
                let (rank, size, local_rank) = (fields.u32()?, fields.u32()?, fields.u32()?);
                let local_size = fields.u32()?;
                let has_address = fields.flag()?;
                let address = IpAddr::from(fields.array::<16>()?).to_canonical();
                let address = has_address.then_some(address);
                Self::Join { rank, size, local_rank, local_size, address }
            }
            2 => {
                let window = WindowId(fields.u32()?);
                let (len, disp_unit) = (usize::try_from(fields.u64()?).ok()?, fields.u32()?);
                let wanted = Wanted { window, len, disp_unit, alignment: 0, is_registered: fields.flag()? };
                Self::Serve { wanted, descriptor: fields.u32()? }
            }
            3 => Self::Release { window: WindowId(fields.u32()?), alone: fields.flag()? },
            4 => Self::Lost { rank: fields.u32()? },
            _ => return None,
        };
        fields.0.is_empty().then_some(request)
    }
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        match self {
            Self::Address(address) => {
                out.push(1);
                out.extend(address.as_slice());
            }
            Self::Served(registered) => {
                out.push(2);
                out.extend(registered.base.to_le_bytes());
                out.extend(registered.key.to_le_bytes());
            }
            Self::Failed(message) => {
                out.push(3);
                out.extend(&message.as_bytes()[..message.len().min(FRAME_BYTES_MAX - 1)]);
            }
        }
        out
    }

    pub(super) fn decode(frame: &[u8]) -> Option<Self> {
        let (kind, rest) = frame.split_first()?;
        match kind {
            1 => AddressBytes::new(rest).map(|address| Self::Address(Box::new(address))),
            2 => {
                let mut fields = Fields(rest);
                let registered = Registered { base: fields.u64()?, key: fields.u64()? };
                fields.0.is_empty().then_some(Self::Served(registered))
            }
            3 => Some(Self::Failed(String::from_utf8_lossy(rest).into_owned())),
            _ => None,
        }
    }
}

/// Fields that are left of a frame.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.array()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

/// The frame as it is written.
pub(super) fn framed(frame: &[u8]) -> Vec<u8> {
    let mut bytes = (frame.len() as u32).to_le_bytes().to_vec();
    bytes.extend(frame);
    bytes
}

/// Takes the first whole frame from what was read so far.
///
/// # Errors
/// When its length is none of a frame.
pub(super) fn take_frame(read: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let Some(length) = read.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let len = u32::from_le_bytes(*length) as usize;
    if len > FRAME_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {len} bytes")));
    }
    if read.len() < LENGTH_BYTES + len {
        return Ok(None);
    }
    let frame = read[LENGTH_BYTES..LENGTH_BYTES + len].to_vec();
    read.drain(..LENGTH_BYTES + len);
    Ok(Some(frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let wanted =
            Wanted { window: WindowId(7), len: 1 << 33, disp_unit: 8, alignment: 0, is_registered: true };
        let requests = [
            Request::Join { rank: 3, size: 9, local_rank: 1, local_size: 2, address: None },
            Request::Join {
                rank: 3,
                size: 9,
                local_rank: 0,
                local_size: 1,
                address: Some([10, 0, 0, 7].into()),
            },
            Request::Serve { wanted, descriptor: 12 },
            Request::Release { window: WindowId(7), alone: true },
            Request::Lost { rank: 258 },
        ];
        let mut read = Vec::new();
        for request in requests {
            read.extend(framed(&request.encode()));
        }
        for request in requests {
            let frame = take_frame(&mut read).unwrap().unwrap();
            assert_eq!(Request::decode(&frame), Some(request));
            for len in 0..frame.len() {
                assert_eq!(Request::decode(&frame[..len]), None);
            }
        }
        assert!(read.is_empty() && take_frame(&mut read).unwrap().is_none());
    }

    #[test]
    fn answers_are_understood_and_nonsense_is_not() {
        let registered = Registered { base: 1, key: u64::MAX };
        let frame = Answer::Served(registered).encode();
        assert!(matches!(Answer::decode(&frame), Some(Answer::Served(same)) if same == registered));
        assert!(Answer::decode(&frame[..9]).is_none() && Answer::decode(&[]).is_none());
        let frame = Answer::Failed("x".repeat(2 * FRAME_BYTES_MAX)).encode();
        assert_eq!(frame.len(), FRAME_BYTES_MAX);
        assert!(take_frame(&mut u32::MAX.to_le_bytes().to_vec()).is_err());
        assert!(Request::decode(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 2]).is_none(), "neither true nor false");
    }
}
