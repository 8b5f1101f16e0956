//! What a rank and its launcher say to each other, as bytes. No socket in here.
//!
//! A frame is a 32-bit little-endian length followed by that many bytes: one byte that says which
//! message it is, then its fields. Integers are little-endian; text and byte fields carry a 16-bit
//! length. Every length is checked before anything is copied, so a peer cannot make the reader hold
//! more than [`FRAME_BYTES_MAX`] bytes.

use std::fmt;

/// Version of this protocol. Both sides must speak the same one.
pub const VERSION: u16 = 3;

/// Longest frame body, in bytes (the length word not counted).
pub const FRAME_BYTES_MAX: usize = 4096;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64;

/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1024;

/// Longest text for people (job names, reasons, messages), in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;

/// The first four bytes of a hello, so that anything else on the connection is recognised at once.
const MAGIC: [u8; 4] = *b"RMAc";

/// Bytes of the length word before each frame body.
const LENGTH_BYTES: usize = 4;

/// A message with a fixed layout: what [`FrameReader`] decodes and [`encode_frame`] encodes.
pub trait Message: Sized {
    /// Appends the frame body.
    ///
    /// # Errors
    /// When a field is longer than the protocol allows.
    fn encode_body(&self, out: &mut Vec<u8>) -> Result<(), WireError>;

    /// The message that a frame body holds.
    ///
    /// # Errors
    /// When the body is not exactly one well-formed message.
    fn decode_body(body: &[u8]) -> Result<Self, WireError>;
}

/// What a rank says to its launcher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// The first message of a connection.
    Hello {
        /// The protocol version that the rank speaks.
        version: u16,
        /// Which rank speaks.
        rank: u32,
        /// The number of its process, which need not be the one that the launcher has started: a shell may stand
        /// in between.
        process: u32,
        /// The job that the rank believes to be part of.
        job: String,
    },
    /// Makes a value visible to all ranks under (this rank, `key`).
    Put {
        /// Comes back if the launcher refuses.
        request: u32,
        /// What the value is called.
        key: String,
        /// The value.
        value: Vec<u8>,
    },
    /// Asks for the value of (`rank`, `key`); the answer comes when the value exists.
    Get {
        /// Comes back with the answer.
        request: u32,
        /// Whose value.
        rank: u32,
        /// What the value is called.
        key: String,
    },
    /// The rank has finished in an orderly way and publishes nothing more.
    Finalize,
    /// The rank asks for the whole job to be ended.
    Abort {
        /// The exit code that the job should have.
        code: i32,
        /// Why, for people.
        message: String,
    },
}

/// What the launcher says to a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The answer to a hello.
    Welcome {
        /// The protocol version that the launcher speaks.
        version: u16,
        /// Number of ranks in the job.
        size: u32,
    },
    /// The value that a get asked for.
    Value {
        /// The get's number.
        request: u32,
        /// The value.
        value: Vec<u8>,
    },
    /// The value that a get asked for can never exist.
    Missing {
        /// The get's number.
        request: u32,
        /// Why, for people.
        reason: String,
    },
    /// A hello, put or get broke a rule or a limit.
    Refused {
        /// The number of the put or get; 0 for a hello.
        request: u32,
        /// Which rule, for people.
        reason: String,
    },
    /// Every rank of the job has finalized or ended: nobody needs this one any more.
    AllFinalized,
    /// The process of this rank ended before its time, and the job goes on without it.
    Lost {
        /// Which rank.
        rank: u32,
    },
}

/// Why bytes are not a message, or a message cannot become bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireError {
    /// The frame's length word is 0 or above [`FRAME_BYTES_MAX`].
    FrameLength(u32),
    /// No message has this first byte.
    UnknownKind(u8),
    /// The frame ends inside this field.
    Truncated(&'static str),
    /// This many bytes follow the last field.
    TrailingBytes(usize),
    /// This field should be UTF-8 text and is not.
    NotText(&'static str),
    /// This field has more bytes than the protocol allows.
    FieldTooLong {
        /// Which field.
        field: &'static str,
        /// How many bytes it has.
        len: usize,
        /// How many it may have.
        max: usize,
    },
    /// A hello that does not begin as every hello does: the other side speaks something else.
    NotOurProtocol,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FrameLength(len) => write!(f, "frame length {len} is not within 1 to {FRAME_BYTES_MAX}"),
            Self::UnknownKind(kind) => write!(f, "unknown kind of message {kind}"),
            Self::Truncated(field) => write!(f, "frame ends inside the field '{field}'"),
            Self::TrailingBytes(count) => write!(f, "{count} bytes follow the last field"),
            Self::NotText(field) => write!(f, "field '{field}' is not UTF-8 text"),
            Self::FieldTooLong { field, len, max } => {
                write!(f, "field '{field}' has {len} bytes, more than the {max} allowed")
            }
            Self::NotOurProtocol => f.write_str("the other side does not speak this control protocol"),
        }
    }
}

impl std::error::Error for WireError {}

const KIND_HELLO: u8 = 1;
const KIND_PUT: u8 = 2;
const KIND_GET: u8 = 3;
const KIND_FINALIZE: u8 = 4;
const KIND_ABORT: u8 = 5;
const KIND_WELCOME: u8 = 129;
const KIND_VALUE: u8 = 130;
const KIND_MISSING: u8 = 131;
const KIND_REFUSED: u8 = 132;
const KIND_ALL_FINALIZED: u8 = 133;
const KIND_LOST: u8 = 134;

impl Message for Request {
    fn encode_body(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        match self {
            Self::Hello { version, rank, process, job } => {
                out.push(KIND_HELLO);
                out.extend_from_slice(&MAGIC);
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&rank.to_le_bytes());
                out.extend_from_slice(&process.to_le_bytes());
                put_bytes(out, "job", job.as_bytes(), TEXT_BYTES_MAX)
            }
            Self::Put { request, key, value } => {
                out.push(KIND_PUT);
                out.extend_from_slice(&request.to_le_bytes());
                put_bytes(out, "key", key.as_bytes(), KEY_BYTES_MAX)?;
                put_bytes(out, "value", value, VALUE_BYTES_MAX)
            }
            Self::Get { request, rank, key } => {
                out.push(KIND_GET);
                out.extend_from_slice(&request.to_le_bytes());
                out.extend_from_slice(&rank.to_le_bytes());
                put_bytes(out, "key", key.as_bytes(), KEY_BYTES_MAX)
            }
            Self::Finalize => {
                out.push(KIND_FINALIZE);
                Ok(())
            }
            Self::Abort { code, message } => {
                out.push(KIND_ABORT);
                out.extend_from_slice(&code.to_le_bytes());
                put_bytes(out, "message", message.as_bytes(), TEXT_BYTES_MAX)
            }
        }
    }

    fn decode_body(body: &[u8]) -> Result<Self, WireError> {
        let mut fields = Fields { rest: body };
        let message = match fields.u8("kind")? {
            KIND_HELLO => {
                if fields.array::<4>("magic")? != MAGIC {
                    return Err(WireError::NotOurProtocol);
                }
                let (version, rank) = (fields.u16("version")?, fields.u32("rank")?);
                let process = fields.u32("process")?;
                Self::Hello { version, rank, process, job: fields.text("job", TEXT_BYTES_MAX)? }
            }
            KIND_PUT => Self::Put {
                request: fields.u32("request")?,
                key: fields.text("key", KEY_BYTES_MAX)?,
                value: fields.bytes("value", VALUE_BYTES_MAX)?.to_vec(),
            },
            KIND_GET => Self::Get {
                request: fields.u32("request")?,
                rank: fields.u32("rank")?,
                key: fields.text("key", KEY_BYTES_MAX)?,
            },
            KIND_FINALIZE => Self::Finalize,
            KIND_ABORT => Self::Abort {
                code: i32::from_le_bytes(fields.array("code")?),
                message: fields.text("message", TEXT_BYTES_MAX)?,
            },
            kind => return Err(WireError::UnknownKind(kind)),
        };
        fields.end()?;
        Ok(message)
    }
}

impl Message for Reply {
    fn encode_body(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        match self {
            Self::Welcome { version, size } => {
                out.push(KIND_WELCOME);
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&size.to_le_bytes());
                Ok(())
            }
            Self::Value { request, value } => {
                out.push(KIND_VALUE);
                out.extend_from_slice(&request.to_le_bytes());
                put_bytes(out, "value", value, VALUE_BYTES_MAX)
            }
            Self::Missing { request, reason } => {
                out.push(KIND_MISSING);
                out.extend_from_slice(&request.to_le_bytes());
                put_bytes(out, "reason", reason.as_bytes(), TEXT_BYTES_MAX)
            }
            Self::Refused { request, reason } => {
                out.push(KIND_REFUSED);
                out.extend_from_slice(&request.to_le_bytes());
                put_bytes(out, "reason", reason.as_bytes(), TEXT_BYTES_MAX)
            }
            Self::AllFinalized => {
                out.push(KIND_ALL_FINALIZED);
                Ok(())
            }
            Self::Lost { rank } => {
                out.push(KIND_LOST);
                out.extend_from_slice(&rank.to_le_bytes());
                Ok(())
            }
        }
    }

    fn decode_body(body: &[u8]) -> Result<Self, WireError> {
        let mut fields = Fields { rest: body };
        let message = match fields.u8("kind")? {
            KIND_WELCOME => Self::Welcome { version: fields.u16("version")?, size: fields.u32("size")? },
            KIND_VALUE => Self::Value {
                request: fields.u32("request")?,
                value: fields.bytes("value", VALUE_BYTES_MAX)?.to_vec(),
            },
            KIND_MISSING => Self::Missing {
                request: fields.u32("request")?,
                reason: fields.text("reason", TEXT_BYTES_MAX)?,
            },
            KIND_REFUSED => Self::Refused {
                request: fields.u32("request")?,
                reason: fields.text("reason", TEXT_BYTES_MAX)?,
            },
            KIND_ALL_FINALIZED => Self::AllFinalized,
            KIND_LOST => Self::Lost { rank: fields.u32("rank")? },
            kind => return Err(WireError::UnknownKind(kind)),
        };
        fields.end()?;
        Ok(message)
    }
}

/// Appends `message` to `out` as one frame. On error `out` is as it was.
///
/// # Errors
/// When a field is longer than the protocol allows.
pub fn encode_frame(message: &impl Message, out: &mut Vec<u8>) -> Result<(), WireError> {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    if let Err(error) = message.encode_body(out) {
        out.truncate(start);
        return Err(error);
    }
    // The field limits keep every body far below FRAME_BYTES_MAX, hence within 32 bits.
    let len = (out.len() - start - LENGTH_BYTES) as u32;
    out[start..start + LENGTH_BYTES].copy_from_slice(&len.to_le_bytes());
    Ok(())
}

/// `text` cut to at most [`TEXT_BYTES_MAX`] bytes at a character boundary, so that it fits a message.
pub fn fit_text(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Puts a stream of bytes back together into messages.
#[derive(Debug, Default)]
pub struct FrameReader {
    buffer: Vec<u8>,
    consumed: usize,
}

impl FrameReader {
    /// How many more bytes [`FrameReader::push`] takes now. Zero never lasts: when the buffer is full
    /// a whole frame is in it, or its length word is wrong.
    pub fn room(&self) -> usize {
        LENGTH_BYTES + FRAME_BYTES_MAX - (self.buffer.len() - self.consumed)
    }

    /// Takes bytes from the stream, at most [`FrameReader::room`] of them; returns how many.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        self.buffer.extend_from_slice(&bytes[..taken]);
        taken
    }

    /// The next whole message, if there is one.
    ///
    /// # Errors
    /// When the bytes are no message. The stream cannot be trusted after that: close it.
    pub fn poll<M: Message>(&mut self) -> Result<Option<M>, WireError> {
        let pending = &self.buffer[self.consumed..];
        let Some((length, rest)) = pending.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length);
        let len = length as usize;
        if len == 0 || len > FRAME_BYTES_MAX {
            return Err(WireError::FrameLength(length));
        }
        let Some(body) = rest.get(..len) else {
            return Ok(None);
        };
        let message = M::decode_body(body)?;
        self.consumed += LENGTH_BYTES + len;
        Ok(Some(message))
    }
}

pub(crate) fn put_bytes(
    out: &mut Vec<u8>,
    field: &'static str,
    bytes: &[u8],
    max: usize,
) -> Result<(), WireError> {
    if bytes.len() > max {
        return Err(WireError::FieldTooLong { field, len: bytes.len(), max });
    }
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}

/// A frame body that is being read field by field.
pub(crate) struct Fields<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(WireError::Truncated(field))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, WireError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, WireError> {
        self.array(field).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, WireError> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(crate) fn bytes(&mut self, field: &'static str, max: usize) -> Result<&'a [u8], WireError> {
        let len = usize::from(self.u16(field)?);
        if len > max {
            return Err(WireError::FieldTooLong { field, len, max });
        }
        let (head, rest) = self.rest.split_at_checked(len).ok_or(WireError::Truncated(field))?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn text(&mut self, field: &'static str, max: usize) -> Result<String, WireError> {
        let bytes = self.bytes(field, max)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| WireError::NotText(field))
    }

    pub(crate) fn end(&self) -> Result<(), WireError> {
        match self.rest.len() {
            0 => Ok(()),
            count => Err(WireError::TrailingBytes(count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<Request> {
        vec![
            Request::Hello { version: VERSION, rank: 7, process: 70_000, job: "j1".into() },
            Request::Put { request: 1, key: "address".into(), value: vec![1, 2, 3] },
            Request::Get { request: 0x0102_0304, rank: 9, key: "address".into() },
            Request::Finalize,
            Request::Abort { code: -1, message: "disk full".into() },
        ]
    }

    fn replies() -> Vec<Reply> {
        vec![
            Reply::Welcome { version: VERSION, size: 64 },
            Reply::Value { request: 3, value: vec![0xff; VALUE_BYTES_MAX] },
            Reply::Missing { request: 4, reason: "rank 2 has ended".into() },
            Reply::Refused { request: 0, reason: "wrong job".into() },
            Reply::AllFinalized,
            Reply::Lost { rank: 258 },
        ]
    }

    fn frame(message: &impl Message) -> Vec<u8> {
        let mut out = Vec::new();
        encode_frame(message, &mut out).unwrap();
        out
    }

    #[test]
    fn golden_bytes() {
        let hello = frame(&Request::Hello { version: 1, rank: 7, process: 258, job: "j1".into() });
        assert_eq!(hello, b"\x13\0\0\0\x01RMAc\x01\0\x07\0\0\0\x02\x01\0\0\x02\0j1");
        let put = frame(&Request::Put { request: 1, key: "a".into(), value: vec![9, 8] });
        assert_eq!(put, b"\x0c\0\0\0\x02\x01\0\0\0\x01\0a\x02\0\x09\x08");
        let get = frame(&Request::Get { request: 2, rank: 258, key: "a".into() });
        assert_eq!(get, b"\x0c\0\0\0\x03\x02\0\0\0\x02\x01\0\0\x01\0a");
        assert_eq!(frame(&Request::Finalize), b"\x01\0\0\0\x04");
        let abort = frame(&Request::Abort { code: -1, message: "x".into() });
        assert_eq!(abort, b"\x08\0\0\0\x05\xff\xff\xff\xff\x01\0x");
        let welcome = frame(&Reply::Welcome { version: 1, size: 64 });
        assert_eq!(welcome, b"\x07\0\0\0\x81\x01\0\x40\0\0\0");
        let value = frame(&Reply::Value { request: 3, value: vec![5] });
        assert_eq!(value, b"\x08\0\0\0\x82\x03\0\0\0\x01\0\x05");
        let missing = frame(&Reply::Missing { request: 4, reason: "no".into() });
        assert_eq!(missing, b"\x09\0\0\0\x83\x04\0\0\0\x02\0no");
        let refused = frame(&Reply::Refused { request: 0, reason: "no".into() });
        assert_eq!(refused, b"\x09\0\0\0\x84\0\0\0\0\x02\0no");
        assert_eq!(frame(&Reply::AllFinalized), b"\x01\0\0\0\x85");
        assert_eq!(frame(&Reply::Lost { rank: 258 }), b"\x05\0\0\0\x86\x02\x01\0\0");
    }

    #[test]
    fn every_message_survives_any_cut_of_the_stream() {
        let stream: Vec<u8> = requests().iter().flat_map(frame).collect();
        for step in 1..=stream.len() {
            let mut reader = FrameReader::default();
            let mut seen = Vec::new();
            for piece in stream.chunks(step) {
                let mut rest = piece;
                while !rest.is_empty() {
                    rest = &rest[reader.push(rest)..];
                    while let Some(message) = reader.poll::<Request>().unwrap() {
                        seen.push(message);
                    }
                }
            }
            assert_eq!(seen, requests(), "pieces of {step} bytes");
        }
        let mut reader = FrameReader::default();
        for reply in replies() {
            reader.push(&frame(&reply));
            assert_eq!(reader.poll::<Reply>(), Ok(Some(reply)));
        }
    }

    #[test]
    fn refuses_what_is_not_a_message() {
        let decode = |bytes: &[u8]| {
            let mut reader = FrameReader::default();
            reader.push(bytes);
            reader.poll::<Request>()
        };
        assert_eq!(decode(b"\0\0\0\0"), Err(WireError::FrameLength(0)));
        assert_eq!(decode(b"GET / HTTP/1.1"), Err(WireError::FrameLength(0x2054_4547)));
        assert_eq!(decode(b"\x01\0\0\0\x63"), Err(WireError::UnknownKind(0x63)));
        assert_eq!(decode(b"\x03\0\0\0\x02\x01\0"), Err(WireError::Truncated("request")));
        assert_eq!(decode(b"\x02\0\0\0\x04\x04"), Err(WireError::TrailingBytes(1)));
        assert_eq!(decode(b"\x05\0\0\0\x01RMAx"), Err(WireError::NotOurProtocol));
        assert_eq!(decode(b"\x08\0\0\0\x05\0\0\0\0\x01\0\xff"), Err(WireError::NotText("message")));
        assert_eq!(
            decode(b"\x07\0\0\0\x02\0\0\0\0\xff\xff"),
            Err(WireError::FieldTooLong { field: "key", len: 65535, max: KEY_BYTES_MAX })
        );
    }

    #[test]
    fn a_field_that_is_too_long_leaves_no_half_frame() {
        let mut out = vec![42];
        let long = Request::Put { request: 0, key: "k".repeat(KEY_BYTES_MAX + 1), value: Vec::new() };
        assert!(encode_frame(&long, &mut out).is_err());
        assert_eq!(out, [42]);
        assert_eq!(fit_text(&"é".repeat(TEXT_BYTES_MAX)).len(), TEXT_BYTES_MAX);
    }

    /// Random bytes, and valid frames with random damage: the reader answers, and what it accepts
    /// encodes back to the same bytes.
    #[test]
    fn random_bytes_never_panic() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let valid: Vec<Vec<u8>> = requests().iter().map(frame).chain(replies().iter().map(frame)).collect();
        let mut accepted = 0;
        for round in 0..20_000 {
            let mut bytes = if round % 2 == 0 {
                (0..random() % 64).map(|_| random() as u8).collect()
            } else {
                valid[random() as usize % valid.len()].clone()
            };
            if round % 4 == 1 && !bytes.is_empty() {
                let at = random() as usize % bytes.len();
                bytes[at] ^= 1 << (random() % 8);
            }
            bytes.truncate(LENGTH_BYTES + FRAME_BYTES_MAX);
            accepted += usize::from(check_reencodes::<Request>(&bytes))
                + usize::from(check_reencodes::<Reply>(&bytes));
        }
        assert!(accepted > 5_000, "the undamaged frames must have been accepted, were {accepted}");
    }

    fn check_reencodes<M: Message>(bytes: &[u8]) -> bool {
        let mut reader = FrameReader::default();
        assert_eq!(reader.push(bytes), bytes.len());
        let Ok(Some(message)) = reader.poll::<M>() else { return false };
        let again = frame(&message);
        assert_eq!(again, bytes[..again.len()]);
        true
    }
}
