use super::*;
use crate::wire::{encode_frame, FrameReader, FRAME_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};

fn ups() -> Vec<Up> {
    let rank = 0x0102_0304;
    let value = vec![0xff; VALUE_BYTES_MAX];
    let request = Request::Put { request: 1, key: "k".repeat(KEY_BYTES_MAX), value };
    vec![
        Up::Started { rank, process: 70_000 },
        Up::NotStarted { rank, code: 127, why: "not found".into() },
        Up::Said { rank, request },
        Up::Said { rank, request: Request::Finalize },
        Up::ControlEnded { rank, why: None },
        Up::ControlEnded { rank, why: Some("garbage".into()) },
        Up::Pmi { rank, bytes: b"cmd=init\n".to_vec() },
        Up::PmiEnded { rank, why: None },
        Up::Wrote { rank, stream: 1, bytes: vec![7; CHUNK_BYTES_MAX] },
        Up::StreamEnded { rank, stream: 0 },
        Up::Exited { rank, exit: Exit::Code(3) },
        Up::Exited { rank, exit: Exit::Signal(9) },
        Up::TookInput { rank, count: 5 },
        Up::InputClosed { rank },
        Up::HostLost { host: 2, why: "x".repeat(TEXT_BYTES_MAX) },
        Up::Note { host: 2, text: "hello".into() },
        Up::Alive { host: 2 },
    ]
}

fn downs() -> Vec<Down> {
    let rank = 9;
    vec![
        Down::Reply { rank, reply: Reply::Value { request: 3, value: vec![0; VALUE_BYTES_MAX] } },
        Down::Reply { rank, reply: Reply::AllFinalized },
        Down::Pmi { rank, bytes: vec![1; CHUNK_BYTES_MAX] },
        Down::Close { rank },
        Down::ClosePmi { rank },
        Down::Input { rank, bytes: b"in".to_vec() },
        Down::EndInput { rank },
        Down::CloseStream { rank, stream: 1 },
        Down::Room { host: 4, stream: 0, count: 65_536 },
        Down::Signal { number: 15 },
        Down::Leave,
        Down::Ask { host: 4 },
    ]
}

/// Every message comes out as it went in, and no prefix of one is taken for a message.
fn round_trip<M: Message + PartialEq + std::fmt::Debug>(messages: &[M]) {
    for message in messages {
        let mut frame = Vec::new();
        encode_frame(message, &mut frame).unwrap();
        assert!(frame.len() <= FRAME_BYTES_MAX, "{message:?}");
        let mut reader = FrameReader::default();
        reader.push(&frame);
        assert_eq!(reader.poll::<M>().unwrap().as_ref(), Some(message));
        for len in 0..frame.len() - 4 {
            let cut = M::decode_body(&frame[4..4 + len]);
            assert!(cut.is_err(), "{message:?} cut to {len} bytes is {cut:?}");
        }
        frame.push(0);
        assert!(M::decode_body(&frame[4..]).is_err(), "{message:?} with a byte more");
    }
}

#[test]
fn messages_come_out_as_they_went_in() {
    round_trip(&ups());
    round_trip(&downs());
}

#[test]
fn fields_out_of_range_are_refused() {
    let wrong_stream = [KIND_WROTE, 0, 0, 0, 0, STREAMS, 0, 0];
    assert_eq!(Up::decode_body(&wrong_stream), Err(WireError::UnknownKind(STREAMS)));
    assert!(Up::decode_body(&[KIND_EXITED, 0, 0, 0, 0, 2, 0]).is_err());
    assert!(Up::decode_body(&[KIND_CONTROL_ENDED, 0, 0, 0, 0, 2]).is_err());
    assert!(Up::decode_body(&[0, 0, 0, 0, 0]).is_err());
    assert!(Down::decode_body(&[KIND_STARTED, 0, 0, 0, 0]).is_err(), "what goes up does not come down");
    let too_long = Up::Wrote { rank: 0, stream: 0, bytes: vec![0; CHUNK_BYTES_MAX + 1] };
    let mut out = Vec::new();
    assert!(encode_frame(&too_long, &mut out).is_err() && out.is_empty());
}
