//! What `rmarun` and its agents on other hosts say to each other once they are connected, as frames of
//! [`crate::wire`]. No socket in here.
//!
//! Each host has an agent; agents have agents of their own when there are many hosts. What goes up is for
//! `rmarun`, whichever agents it passes; what goes down is for a rank, for a host, or for all.

use crate::wire::{put_bytes, Fields, Message, Reply, Request, WireError, TEXT_BYTES_MAX};

/// Most bytes of output, input or PMI in one message.
pub const CHUNK_BYTES_MAX: usize = 3072;

/// Number of output streams of a rank: standard output is 0, standard error 1.
pub const STREAMS: u8 = 2;

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// By itself, with this status.
    Code(u8),
    /// Killed by the signal with this number.
    Signal(u8),
}

/// What comes from the hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Up {
    /// A rank runs.
    Started {
        /// Which rank.
        rank: u32,
        /// The number of its process, on its host.
        process: u32,
    },
    /// A rank cannot be started.
    NotStarted {
        /// Which rank.
        rank: u32,
        /// The exit code that the job should have.
        code: u8,
        /// Why, for people.
        why: String,
    },
    /// A rank said something over its control connection.
    Said {
        /// Which rank.
        rank: u32,
        /// What it said.
        request: Request,
    },
    /// A rank's control connection ended.
    ControlEnded {
        /// Which rank.
        rank: u32,
        /// What the rank did wrong, if it did.
        why: Option<String>,
    },
    /// Bytes from a rank's PMI connection.
    Pmi {
        /// Which rank.
        rank: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A rank's PMI connection ended.
    PmiEnded {
        /// Which rank.
        rank: u32,
        /// What the rank did wrong, if it did.
        why: Option<String>,
    },
    /// A rank wrote to an output stream.
    Wrote {
        /// Which rank.
        rank: u32,
        /// Which stream, below [`STREAMS`].
        stream: u8,
        /// What it wrote.
        bytes: Vec<u8>,
    },
    /// Nothing more comes from an output stream of a rank.
    StreamEnded {
        /// Which rank.
        rank: u32,
        /// Which stream, below [`STREAMS`].
        stream: u8,
    },
    /// A rank's process ended, after all that it said and wrote.
    Exited {
        /// Which rank.
        rank: u32,
        /// How.
        exit: Exit,
    },
    /// A rank's standard input took bytes.
    TookInput {
        /// Which rank.
        rank: u32,
        /// How many.
        count: u32,
    },
    /// A rank does not read its standard input any more.
    InputClosed {
        /// Which rank.
        rank: u32,
    },
    /// A host cannot be reached, or not any more; its ranks are lost.
    HostLost {
        /// Which host, by its number in the job.
        host: u32,
        /// Why, for people.
        why: String,
    },
    /// Something for the user to read.
    Note {
        /// Which host says it.
        host: u32,
        /// The text, without the end of a line.
        text: String,
    },
    /// The agent of a host is there and works: the answer to [`Down::Ask`].
    Alive {
        /// Which host.
        host: u32,
    },
}

/// What goes to the hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Down {
    /// Send this to that rank.
    Reply {
        /// Which rank.
        rank: u32,
        /// What to send.
        reply: Reply,
    },
    /// Send these bytes to that rank over its PMI connection.
    Pmi {
        /// Which rank.
        rank: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Close that rank's control connection.
    Close {
        /// Which rank.
        rank: u32,
    },
    /// Close that rank's PMI connection.
    ClosePmi {
        /// Which rank.
        rank: u32,
    },
    /// Give these bytes to that rank's standard input.
    Input {
        /// Which rank.
        rank: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// That rank's standard input ends here.
    EndInput {
        /// Which rank.
        rank: u32,
    },
    /// Close an output stream of that rank: nobody reads it.
    CloseStream {
        /// Which rank.
        rank: u32,
        /// Which stream, below [`STREAMS`].
        stream: u8,
    },
    /// Output of a host has been taken: as much again may be sent.
    Room {
        /// Which host, by its number in the job.
        host: u32,
        /// Which stream of its ranks, below [`STREAMS`].
        stream: u8,
        /// How many bytes.
        count: u32,
    },
    /// Send the signal with this number to every rank of every host.
    Signal {
        /// The signal.
        number: u8,
    },
    /// The job is over: every host ends what is left.
    Leave,
    /// Whoever has started the agent of this host has heard nothing of it for a while, and wants an answer.
    Ask {
        /// Which host, by its number in the job.
        host: u32,
    },
}

impl Down {
    /// The rank that this is for, if it is for one.
    #[must_use]
    pub fn rank(&self) -> Option<u32> {
        match self {
            Self::Reply { rank, .. }
            | Self::Pmi { rank, .. }
            | Self::Close { rank }
            | Self::ClosePmi { rank }
            | Self::Input { rank, .. }
            | Self::EndInput { rank }
            | Self::CloseStream { rank, .. } => Some(*rank),
            Self::Room { .. } | Self::Signal { .. } | Self::Leave | Self::Ask { .. } => None,
        }
    }
}

const KIND_STARTED: u8 = 1;
const KIND_NOT_STARTED: u8 = 2;
const KIND_SAID: u8 = 3;
const KIND_CONTROL_ENDED: u8 = 4;
const KIND_PMI_SAID: u8 = 5;
const KIND_PMI_ENDED: u8 = 6;
const KIND_WROTE: u8 = 7;
const KIND_STREAM_ENDED: u8 = 8;
const KIND_EXITED: u8 = 9;
const KIND_TOOK_INPUT: u8 = 10;
const KIND_INPUT_CLOSED: u8 = 11;
const KIND_HOST_LOST: u8 = 12;
const KIND_NOTE: u8 = 13;
const KIND_ALIVE: u8 = 14;
const KIND_REPLY: u8 = 129;
const KIND_PMI: u8 = 130;
const KIND_CLOSE: u8 = 131;
const KIND_CLOSE_PMI: u8 = 132;
const KIND_INPUT: u8 = 133;
const KIND_END_INPUT: u8 = 134;
const KIND_CLOSE_STREAM: u8 = 135;
const KIND_ROOM: u8 = 136;
const KIND_SIGNAL: u8 = 137;
const KIND_LEAVE: u8 = 138;
const KIND_ASK: u8 = 139;

/// In the place of a reason that is not given.
const NO_REASON: u8 = 0;
const A_REASON: u8 = 1;

const EXIT_CODE: u8 = 0;
const EXIT_SIGNAL: u8 = 1;

fn head(out: &mut Vec<u8>, kind: u8, whose: u32) {
    out.push(kind);
    out.extend_from_slice(&whose.to_le_bytes());
}

fn put_reason(out: &mut Vec<u8>, why: Option<&str>) -> Result<(), WireError> {
    match why {
        None => out.push(NO_REASON),
        Some(why) => {
            out.push(A_REASON);
            put_bytes(out, "why", why.as_bytes(), TEXT_BYTES_MAX)?;
        }
    }
    Ok(())
}

impl Message for Up {
    fn encode_body(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        match self {
            Self::Started { rank, process } => {
                head(out, KIND_STARTED, *rank);
                out.extend_from_slice(&process.to_le_bytes());
            }
            Self::NotStarted { rank, code, why } => {
                head(out, KIND_NOT_STARTED, *rank);
                out.push(*code);
                put_bytes(out, "why", why.as_bytes(), TEXT_BYTES_MAX)?;
            }
            Self::Said { rank, request } => {
                head(out, KIND_SAID, *rank);
                request.encode_body(out)?;
            }
            Self::ControlEnded { rank, why } => {
                head(out, KIND_CONTROL_ENDED, *rank);
                put_reason(out, why.as_deref())?;
            }
            Self::Pmi { rank, bytes } => {
                head(out, KIND_PMI_SAID, *rank);
                put_bytes(out, "bytes", bytes, CHUNK_BYTES_MAX)?;
            }
            Self::PmiEnded { rank, why } => {
                head(out, KIND_PMI_ENDED, *rank);
                put_reason(out, why.as_deref())?;
            }
            Self::Wrote { rank, stream, bytes } => {
                head(out, KIND_WROTE, *rank);
                out.push(*stream);
                put_bytes(out, "bytes", bytes, CHUNK_BYTES_MAX)?;
            }
            Self::StreamEnded { rank, stream } => {
                head(out, KIND_STREAM_ENDED, *rank);
                out.push(*stream);
            }
            Self::Exited { rank, exit } => {
                head(out, KIND_EXITED, *rank);
                out.extend_from_slice(&match exit {
                    Exit::Code(code) => [EXIT_CODE, *code],
                    Exit::Signal(number) => [EXIT_SIGNAL, *number],
                });
            }
            Self::TookInput { rank, count } => {
                head(out, KIND_TOOK_INPUT, *rank);
                out.extend_from_slice(&count.to_le_bytes());
            }
            Self::InputClosed { rank } => head(out, KIND_INPUT_CLOSED, *rank),
            Self::HostLost { host, why } => {
                head(out, KIND_HOST_LOST, *host);
                put_bytes(out, "why", why.as_bytes(), TEXT_BYTES_MAX)?;
            }
            Self::Note { host, text } => {
                head(out, KIND_NOTE, *host);
                put_bytes(out, "text", text.as_bytes(), TEXT_BYTES_MAX)?;
            }
            Self::Alive { host } => head(out, KIND_ALIVE, *host),
        }
        Ok(())
    }

    fn decode_body(body: &[u8]) -> Result<Self, WireError> {
        let mut fields = Fields { rest: body };
        let kind = fields.u8("kind")?;
        let whose = fields.u32("rank or host")?;
        let message = match kind {
            KIND_STARTED => Self::Started { rank: whose, process: fields.u32("process")? },
            KIND_NOT_STARTED => Self::NotStarted {
                rank: whose,
                code: fields.u8("code")?,
                why: fields.text("why", TEXT_BYTES_MAX)?,
            },
            // What is within is the rest.
            KIND_SAID => return Ok(Self::Said { rank: whose, request: Request::decode_body(fields.rest)? }),
            KIND_CONTROL_ENDED => Self::ControlEnded { rank: whose, why: reason(&mut fields)? },
            KIND_PMI_SAID => Self::Pmi { rank: whose, bytes: chunk(&mut fields)? },
            KIND_PMI_ENDED => Self::PmiEnded { rank: whose, why: reason(&mut fields)? },
            KIND_WROTE => {
                Self::Wrote { rank: whose, stream: stream(&mut fields)?, bytes: chunk(&mut fields)? }
            }
            KIND_STREAM_ENDED => Self::StreamEnded { rank: whose, stream: stream(&mut fields)? },
            KIND_EXITED => Self::Exited { rank: whose, exit: exit(&mut fields)? },
            KIND_TOOK_INPUT => Self::TookInput { rank: whose, count: fields.u32("count")? },
            KIND_INPUT_CLOSED => Self::InputClosed { rank: whose },
            KIND_HOST_LOST => Self::HostLost { host: whose, why: fields.text("why", TEXT_BYTES_MAX)? },
            KIND_NOTE => Self::Note { host: whose, text: fields.text("text", TEXT_BYTES_MAX)? },
            KIND_ALIVE => Self::Alive { host: whose },
            kind => return Err(WireError::UnknownKind(kind)),
        };
        fields.end()?;
        Ok(message)
    }
}

impl Message for Down {
    fn encode_body(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        match self {
            Self::Reply { rank, reply } => {
                head(out, KIND_REPLY, *rank);
                reply.encode_body(out)?;
            }
            Self::Pmi { rank, bytes } => {
                head(out, KIND_PMI, *rank);
                put_bytes(out, "bytes", bytes, CHUNK_BYTES_MAX)?;
            }
            Self::Close { rank } => head(out, KIND_CLOSE, *rank),
            Self::ClosePmi { rank } => head(out, KIND_CLOSE_PMI, *rank),
            Self::Input { rank, bytes } => {
                head(out, KIND_INPUT, *rank);
                put_bytes(out, "bytes", bytes, CHUNK_BYTES_MAX)?;
            }
            Self::EndInput { rank } => head(out, KIND_END_INPUT, *rank),
            Self::CloseStream { rank, stream } => {
                head(out, KIND_CLOSE_STREAM, *rank);
                out.push(*stream);
            }
            Self::Room { host, stream, count } => {
                head(out, KIND_ROOM, *host);
                out.push(*stream);
                out.extend_from_slice(&count.to_le_bytes());
            }
            Self::Signal { number } => out.extend_from_slice(&[KIND_SIGNAL, *number]),
            Self::Leave => out.push(KIND_LEAVE),
            Self::Ask { host } => head(out, KIND_ASK, *host),
        }
        Ok(())
    }

    fn decode_body(body: &[u8]) -> Result<Self, WireError> {
        let mut fields = Fields { rest: body };
        let kind = fields.u8("kind")?;
        let message = match kind {
            KIND_REPLY => {
                let rank = whose(&mut fields)?;
                return Ok(Self::Reply { rank, reply: Reply::decode_body(fields.rest)? });
            }
            KIND_PMI => Self::Pmi { rank: whose(&mut fields)?, bytes: chunk(&mut fields)? },
            KIND_CLOSE => Self::Close { rank: whose(&mut fields)? },
            KIND_CLOSE_PMI => Self::ClosePmi { rank: whose(&mut fields)? },
            KIND_INPUT => Self::Input { rank: whose(&mut fields)?, bytes: chunk(&mut fields)? },
            KIND_END_INPUT => Self::EndInput { rank: whose(&mut fields)? },
            KIND_CLOSE_STREAM => {
                Self::CloseStream { rank: whose(&mut fields)?, stream: stream(&mut fields)? }
            }
            KIND_ROOM => Self::Room {
                host: whose(&mut fields)?,
                stream: stream(&mut fields)?,
                count: fields.u32("count")?,
            },
            KIND_SIGNAL => Self::Signal { number: fields.u8("number")? },
            KIND_LEAVE => Self::Leave,
            KIND_ASK => Self::Ask { host: whose(&mut fields)? },
            kind => return Err(WireError::UnknownKind(kind)),
        };
        fields.end()?;
        Ok(message)
    }
}

fn whose(fields: &mut Fields<'_>) -> Result<u32, WireError> {
    fields.u32("rank or host")
}

fn chunk(fields: &mut Fields<'_>) -> Result<Vec<u8>, WireError> {
    fields.bytes("bytes", CHUNK_BYTES_MAX).map(<[u8]>::to_vec)
}

fn stream(fields: &mut Fields<'_>) -> Result<u8, WireError> {
    match fields.u8("stream")? {
        stream if stream < STREAMS => Ok(stream),
        stream => Err(WireError::UnknownKind(stream)),
    }
}

fn reason(fields: &mut Fields<'_>) -> Result<Option<String>, WireError> {
    match fields.u8("reason")? {
        NO_REASON => Ok(None),
        A_REASON => fields.text("why", TEXT_BYTES_MAX).map(Some),
        kind => Err(WireError::UnknownKind(kind)),
    }
}

fn exit(fields: &mut Fields<'_>) -> Result<Exit, WireError> {
    match (fields.u8("exit")?, fields.u8("status")?) {
        (EXIT_CODE, code) => Ok(Exit::Code(code)),
        (EXIT_SIGNAL, number) => Ok(Exit::Signal(number)),
        (kind, _) => Err(WireError::UnknownKind(kind)),
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
