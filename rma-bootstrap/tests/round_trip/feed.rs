//! Any bytes, taken for what a launcher or a rank says. Shared by the tests and by the fuzz targets.

use rma_bootstrap::pmi::mapping::Mapping;
use rma_bootstrap::pmi::wire::{Reader, Syntax};
use rma_bootstrap::wire::{encode_frame, FrameReader, Message, Reply, Request};

/// Takes `input` for the stream of a control connection, in pieces of the size that its first byte says,
/// once as what a rank and once as what the launcher says. What was understood is written again as it came.
pub(crate) fn control(input: &[u8]) {
    let Some((&piece, stream)) = input.split_first() else { return };
    understood::<Request>(usize::from(piece) + 1, stream);
    understood::<Reply>(usize::from(piece) + 1, stream);
}

fn understood<M: Message>(piece: usize, stream: &[u8]) {
    let mut reader = FrameReader::default();
    let mut written = Vec::new();
    for mut bytes in stream.chunks(piece) {
        while !bytes.is_empty() {
            let taken = reader.push(bytes);
            bytes = &bytes[taken..];
            loop {
                match reader.poll::<M>() {
                    Ok(Some(message)) => encode_frame(&message, &mut written).expect("it came in a frame"),
                    Ok(None) => break,
                    Err(_) => {
                        assert!(stream.starts_with(&written), "written otherwise than read");
                        return;
                    }
                }
            }
            assert!(taken > 0 || bytes.is_empty(), "the reader takes nothing and has nothing to say");
        }
    }
    assert!(stream.starts_with(&written), "written otherwise than read");
}

/// Takes `input` for the stream of a PMI connection, in the syntax that its first byte says.
pub(crate) fn pmi(input: &[u8]) {
    let Some((&head, mut bytes)) = input.split_first() else { return };
    let syntax = if head % 2 == 0 { Syntax::Lines } else { Syntax::Counted };
    let mut reader = Reader::default();
    reader.set_syntax(syntax);
    while !bytes.is_empty() {
        let take = bytes.len().min(usize::from(head / 2) + 1);
        let taken = reader.push(&bytes[..take]);
        bytes = &bytes[taken..];
        loop {
            match reader.poll() {
                Ok(Some(message)) => again(&message, syntax),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(taken > 0, "the reader takes nothing and has nothing to say");
    }
}

/// What is written can be read, and is the same.
fn again(message: &rma_bootstrap::pmi::wire::Message, syntax: Syntax) {
    if let Some(text) = message.get("value") {
        if let Some(mapping) = Mapping::parse(text) {
            for rank in [0, 1, 7, u32::MAX] {
                let _ = mapping.place(rank, 8);
            }
        }
    }
    let mut written = Vec::new();
    if message.encode(syntax, &mut written).is_err() {
        return;
    }
    let mut reader = Reader::default();
    reader.set_syntax(syntax);
    let mut bytes = written.as_slice();
    while !bytes.is_empty() {
        let taken = reader.push(bytes);
        bytes = &bytes[taken..];
    }
    let read = reader.poll().expect("what was written can be read");
    assert_eq!(read.as_ref(), Some(message), "read otherwise than written");
}
