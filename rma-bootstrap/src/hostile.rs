//! Bytes of any kind, to everything that takes bytes from the other side of a connection: they are refused or
//! understood, and nothing panics or grows. For the fuzzer and the tests that replay its corpus.

use crate::description::{Description, HEAD_BYTES};
use crate::pmi::mapping::Mapping;
use crate::pmi::wire::{Message, Reader, Syntax, MESSAGE_BYTES_MAX};
use crate::pmi::Session;
use crate::tree::{Down, Up};
use crate::wire::{encode_frame, FrameReader, Message as Frame, Reply, Request};

/// Most messages that one input is taken for.
const MESSAGES_MAX: usize = 1000;

/// Takes the first byte of `input` for what it is to be fed to, and feeds it the rest. Panics when something
/// that was understood is not the same after it is encoded and decoded again, or a limit does not hold.
pub fn feed(input: &[u8]) {
    let Some((&choice, bytes)) = input.split_first() else { return };
    // In pieces of different lengths, so that every boundary is met sooner or later.
    let piece = usize::from(choice >> 3).max(1) * 7;
    match choice & 7 {
        0 => pmi(Syntax::Lines, bytes, piece),
        1 => pmi(Syntax::Counted, bytes, piece),
        2 => frames(bytes, piece),
        3 => mapping(&String::from_utf8_lossy(bytes)),
        6 => tree(bytes, piece),
        7 => description(bytes),
        choice => session(choice, bytes, piece),
    }
}

/// All messages in `bytes`, up to what is none.
fn pmi(syntax: Syntax, bytes: &[u8], piece: usize) {
    let mut reader = Reader::default();
    reader.set_syntax(syntax);
    let mut count = 0;
    for piece in bytes.chunks(piece) {
        if reader.push(piece) < piece.len() {
            return;
        }
        loop {
            match reader.poll() {
                Ok(Some(message)) => again(syntax, &message),
                Ok(None) => break,
                Err(_) => return,
            }
            count += 1;
            if count == MESSAGES_MAX {
                return;
            }
        }
        assert!(reader.room() > 0, "a reader that takes nothing and gives nothing");
    }
}

/// A message that can be encoded is the same when it is decoded.
fn again(syntax: Syntax, message: &Message) {
    let mut encoded = Vec::new();
    if message.encode(syntax, &mut encoded).is_err() {
        assert!(encoded.is_empty(), "half a message");
        return;
    }
    assert!(encoded.len() <= MESSAGE_BYTES_MAX + 6);
    let mut reader = Reader::default();
    reader.set_syntax(syntax);
    assert_eq!(reader.push(&encoded), encoded.len());
    // A command of several lines may have fields whose names mean something else on one line.
    if message.is_plain() {
        assert_eq!(reader.poll(), Ok(Some(message.clone())));
    }
}

fn frames(bytes: &[u8], piece: usize) {
    let mut readers = (FrameReader::default(), FrameReader::default());
    for piece in bytes.chunks(piece) {
        readers.0.push(piece);
        while let Ok(Some(request)) = readers.0.poll::<Request>() {
            encode_frame(&request, &mut Vec::new()).expect("what was decoded fits");
        }
        readers.1.push(piece);
        while let Ok(Some(reply)) = readers.1.poll::<Reply>() {
            encode_frame(&reply, &mut Vec::new()).expect("what was decoded fits");
        }
    }
}

/// What agents and their launcher say to each other.
fn tree(bytes: &[u8], piece: usize) {
    let mut readers = (FrameReader::default(), FrameReader::default());
    for piece in bytes.chunks(piece) {
        readers.0.push(piece);
        while let Ok(Some(up)) = readers.0.poll::<Up>() {
            frame_again(&up);
        }
        readers.1.push(piece);
        while let Ok(Some(down)) = readers.1.poll::<Down>() {
            frame_again(&down);
        }
    }
}

/// A frame that was decoded is the same when it is encoded and decoded again.
fn frame_again<M: Frame + PartialEq + std::fmt::Debug>(message: &M) {
    let mut body = Vec::new();
    message.encode_body(&mut body).expect("what was decoded fits");
    assert_eq!(M::decode_body(&body).as_ref(), Ok(message));
}

fn description(bytes: &[u8]) {
    if let Some(head) = bytes.first_chunk::<HEAD_BYTES>() {
        let _ = Description::body_len(head);
    }
    let Ok(description) = Description::decode(bytes) else { return };
    let encoded = description.encode().expect("what was decoded fits");
    assert_eq!(Description::decode(&encoded[HEAD_BYTES..]), Ok(description));
}

fn mapping(text: &str) {
    let Some(mapping) = Mapping::parse(text) else { return };
    let size = 1 + (text.len() as u32) % 97;
    let mut firsts = 0;
    for rank in 0..size {
        let (local_rank, local_size) = mapping.place(rank, size).expect("every rank has a host");
        assert!(local_rank < local_size && local_size <= size);
        let neighbours = mapping.neighbours(rank, size);
        assert_eq!((neighbours.len(), neighbours[local_rank as usize]), (local_size as usize, rank));
        firsts += u32::from(local_rank == 0);
    }
    assert!((1..=size).contains(&firsts));
    assert_eq!(mapping.place(size, size), None);
}

/// Replies to a client that asks for everything there is.
fn session(choice: u8, bytes: &[u8], piece: usize) {
    let place = (choice & 1 == 0).then_some((1, 4));
    let mut session = Session::new(None, place, 2);
    let mut reader = Reader::default();
    let mut is_joined = false;
    for piece in bytes.chunks(piece) {
        if reader.push(piece) < piece.len() {
            return;
        }
        loop {
            reader.set_syntax(session.syntax());
            session.poll_request();
            let Ok(message) = reader.poll() else { return };
            let Some(message) = message else { break };
            if session.on_reply(&message).is_err() {
                return;
            }
            if session.is_idle() && !is_joined {
                is_joined = true;
                // Values that cannot be put are refused, whatever the server says its limits are.
                let _ = session.put("address", &[7; 256]);
                session.commit();
                (0..4).for_each(|rank| session.get(rank, rank, "address"));
                session.finalize();
            }
            while session.poll_answer().is_some() {}
        }
    }
}
