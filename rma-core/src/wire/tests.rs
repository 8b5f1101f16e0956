use super::*;
use crate::dtype::Dtype;
use crate::ids::{Rank, RemoteKey, WindowId};
use crate::layout::Run;
use crate::op::ReduceOp;

fn put_8() -> Record {
    Record {
        kind: OpKind::Put,
        dtype: Dtype::U8,
        op: ReduceOp::Replace,
        len: 8,
        disp: 3,
        offset: 0,
        handle: 0,
        generation: 0,
        notifies: Notifies::No,
    }
}

#[test]
fn lock_put_unlock_is_forty_bytes_and_these() {
    let flags = BatchFlags::LOCK_EXCLUSIVE | BatchFlags::UNLOCK;
    let header = Header {
        kind: PacketKind::Batch,
        flags: flags.0,
        count: 1,
        window: WindowId(2),
        sender: Rank(7),
        token: 9,
    };
    let mut buffer = [0; 64];
    let mut out = Writer::new(&mut buffer, 0);
    assert!(out.put(&header.encode()) && put_8().encode(&mut out) && out.put(&[0xab; 8]));
    let len = out.len();
    assert_eq!(len, 40);
    #[rustfmt::skip]
    let golden = [
        0, 6, 1, 0,  2, 0, 0, 0,  7, 0, 0, 0,  9, 0, 0, 0,
        0, 4, 10, 0, 8, 0, 0, 0,  3, 0, 0, 0, 0, 0, 0, 0,
        0xab, 0xab, 0xab, 0xab, 0xab, 0xab, 0xab, 0xab,
    ];
    assert_eq!(&buffer[..len], &golden);
    let mut reader = Reader::new(&buffer[..len]);
    assert_eq!(Header::decode(&mut reader), Ok(header));
    let (record, runs, payload) = Record::decode(&mut reader).unwrap();
    assert_eq!((record, runs.is_none(), payload), (put_8(), true, &[0xab; 8][..]));
    assert_eq!(reader.remaining(), 0);
}

#[test]
fn flags_above_eight_share_the_first_byte_with_the_kind() {
    let header = Header {
        kind: PacketKind::Batch,
        flags: (BatchFlags::COMPLETE | BatchFlags::DONE).0,
        count: 0,
        window: WindowId(0),
        sender: Rank(1),
        token: 0,
    };
    let bytes = header.encode();
    assert_eq!(bytes[..2], [0x10, 8]);
    assert_eq!(Header::decode(&mut Reader::new(&bytes)), Ok(header));
    let post = Header { kind: PacketKind::Post, flags: PostFlags::METADATA.0, ..header };
    assert_eq!(post.encode()[..2], [6, 2]);
    assert_eq!(Header::decode(&mut Reader::new(&post.encode())), Ok(post));
}

#[test]
fn regions_are_asked_for_and_answered_in_these_bytes() {
    let query = RegionQuery { address: 0x1122, len: 3 };
    assert_eq!(query.to_bytes(), [0x22, 0x11, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(RegionQuery::decode(&mut Reader::new(&query.to_bytes())), Ok(query));
    let record = RegionRecord { base: 0x1000, len: 64, addr: 5, key: RemoteKey(6), version: 7 };
    let mut buffer = [0; RegionRecord::BYTES];
    assert!(record.encode(&mut Writer::new(&mut buffer, 0)));
    #[rustfmt::skip]
    let golden = [
        0, 0x10, 0, 0, 0, 0, 0, 0,  64, 0, 0, 0, 0, 0, 0, 0,
        5, 0, 0, 0, 0, 0, 0, 0,  6, 0, 0, 0, 0, 0, 0, 0,  7, 0, 0, 0,
    ];
    assert_eq!(buffer, golden);
    assert_eq!(RegionRecord::decode(&mut Reader::new(&buffer)), Ok(record));
    assert_eq!(RegionRecord::decode(&mut Reader::new(&buffer[1..])), Err(WireError::Truncated));
    assert!(record.holds(0x1000, 64) && record.holds(0x1040, 0) && record.holds(0x103f, 1));
    assert!(!record.holds(0xfff, 1) && !record.holds(0x1001, 64) && !record.holds(u64::MAX, 1));
    let endless = RegionRecord { len: u64::MAX, ..record };
    assert!(endless.holds(u64::MAX, 1), "what a peer claims of its own memory does no harm here");
}

#[test]
fn flags_that_have_no_meaning_or_contradict_are_refused() {
    let header =
        |kind, flags| Header { kind, flags, count: 0, window: WindowId(0), sender: Rank(1), token: 0 };
    let both = BatchFlags::LOCK_SHARED | BatchFlags::LOCK_EXCLUSIVE;
    let refused = [
        (PacketKind::Batch, BatchFlags::ORDERED.0),
        (PacketKind::Batch, both.0),
        (PacketKind::Batch, BatchFlags::OVERTAKE.0),
        (PacketKind::Batch, (BatchFlags::COMPLETE | BatchFlags::UNLOCK).0),
        (PacketKind::Batch, (BatchFlags::COMPLETE | BatchFlags::LOCK_SHARED).0),
        (PacketKind::Reply, 0x800),
        (PacketKind::Post, 4),
        (PacketKind::PostQuery, 2),
        (PacketKind::PostQuery, 4),
        (PacketKind::PostQuery, 8),
        (PacketKind::Barrier, 8),
    ];
    for (kind, flags) in refused {
        let bytes = header(kind, flags).encode();
        assert_eq!(Header::decode(&mut Reader::new(&bytes)), Err(WireError::Flags(flags)), "{kind:?}");
    }
    assert_eq!(PacketKind::of_first_byte(0xf6), Ok(PacketKind::Post));
    assert_eq!(PacketKind::of_first_byte(14), Err(WireError::Kind(14)));
}

#[test]
fn every_record_survives_the_wire() {
    for kind in [OpKind::Put, OpKind::Get, OpKind::Accumulate, OpKind::GetAccumulate, OpKind::CompareAndSwap]
    {
        for (offset, notifies) in [(0, Notifies::No), (4096, Notifies::Yes), (0, Notifies::After)] {
            let has_result = kind.has_result();
            let record = Record {
                kind,
                dtype: Dtype::U32,
                op: ReduceOp::Sum,
                len: 4,
                disp: u64::MAX,
                offset,
                handle: if has_result { 5 } else { 0 },
                generation: if has_result { 6 } else { 0 },
                notifies,
            };
            let mut buffer = [0; 64];
            let mut out = Writer::new(&mut buffer, 0);
            assert!(record.encode(&mut out));
            assert_eq!(out.len(), record.header_bytes());
            assert!(record.header_bytes() <= RECORD_BYTES_MAX);
            let end = out.len() + record.payload_bytes();
            let (back, runs, payload) = Record::decode(&mut Reader::new(&buffer[..end])).unwrap();
            assert!(runs.is_none());
            assert_eq!((back, payload.len()), (record, record.payload_bytes()));
        }
    }
}

/// Whether these bytes are one atomic of one element and nothing else, without a flag, read in the general way.
fn is_element(bytes: &[u8]) -> Option<(Record, &[u8])> {
    let mut reader = Reader::new(bytes);
    let (record, runs, payload) = Record::decode(&mut reader).ok()?;
    let is_atomic = !matches!(record.kind, OpKind::Put | OpKind::Get);
    let is_plain = record.offset == 0 && record.notifies == Notifies::No && runs.is_none();
    let is_one = record.len as usize == record.dtype.size() && reader.remaining() == 0 && bytes[3] == 0;
    (is_atomic && is_plain && is_one).then_some((record, payload))
}

#[test]
fn an_atomic_of_one_element_is_read_in_both_ways_alike() {
    let kinds = [OpKind::Put, OpKind::Get, OpKind::Accumulate, OpKind::GetAccumulate, OpKind::CompareAndSwap];
    let mut table = RunTable::new();
    assert!(table.push(&Run { offset: 8, len: 1, count: 1, stride: 0 }, 64));
    let mut found = 0;
    for (kind, dtype) in kinds.into_iter().flat_map(|kind| Dtype::ALL.map(|dtype| (kind, dtype))) {
        let size = dtype.size();
        for (op, len, (offset, notifies), table) in [
            (ReduceOp::Sum, size, (0, Notifies::No), &[][..]),
            (ReduceOp::NoOp, size, (0, Notifies::No), &[]),
            (ReduceOp::Sum, size, (16, Notifies::No), &[]),
            (ReduceOp::Sum, size, (0, Notifies::Yes), &[]),
            (ReduceOp::Sum, 2 * size, (0, Notifies::No), &[]),
            (ReduceOp::Sum, size, (0, Notifies::No), table.bytes()),
        ] {
            let (handle, generation) = if kind.has_result() { (5, 6) } else { (0, 0) };
            let (len, disp) = (len as u32, 7);
            let record = Record { kind, dtype, op, len, disp, offset, handle, generation, notifies };
            let mut buffer: [u8; 128] = core::array::from_fn(|index| index as u8 ^ 0x5a);
            let mut out = Writer::new(&mut buffer, 0);
            assert!(record.encode_with(table, &mut out));
            let end = out.len() + record.payload_bytes();
            // Whole, cut off, and one byte more; then with each byte in turn another one.
            for end in 0..=end + 1 {
                let bytes = &buffer[..end];
                assert_eq!(
                    Record::decode_element(&Reader::new(bytes)),
                    is_element(bytes),
                    "{record:?}, {end}"
                );
                found += u32::from(is_element(bytes).is_some());
            }
            for at in 0..end.min(32) {
                for other in [0, 1, 2, 4, 8, 16, 0x5a, 0xff] {
                    let mut bytes = buffer;
                    bytes[at] = other;
                    let bytes = &bytes[..end];
                    assert_eq!(Record::decode_element(&Reader::new(bytes)), is_element(bytes), "{bytes:?}");
                }
            }
        }
    }
    assert_eq!(
        found,
        2 * 3 * Dtype::ALL.len() as u32,
        "each kind and type of atomics, with and without operand"
    );
}

#[test]
fn replies_survive_the_wire() {
    let metadata = Metadata { size: 1, base: 2, key: RemoteKey(3), disp_unit: 4, misalignment: 5 };
    let result = ResultRecord { handle: 1, generation: 2, len: 3, offset: 4 };
    let errors = [
        ErrorRecord::Range { offset: 1, len: 2, size: 3 },
        ErrorRecord::Refused,
        ErrorRecord::NotHeld,
        ErrorRecord::NotAttached { address: 4, len: 5 },
        ErrorRecord::NotExposed,
        ErrorRecord::UnalignedWord,
    ];
    let mut buffer = [0; 256];
    let mut out = Writer::new(&mut buffer, 0);
    assert!(metadata.encode(&mut out) && result.encode(&mut out) && out.put(b"abc"));
    assert!(errors.iter().all(|error| error.encode(&mut out)));
    let len = out.len();
    let mut reader = Reader::new(&buffer[..len]);
    assert_eq!(Metadata::decode(&mut reader), Ok(metadata));
    assert_eq!(ResultRecord::decode(&mut reader), Ok((result, &b"abc"[..])));
    for error in errors {
        assert_eq!(ErrorRecord::decode(&mut reader), Ok(error));
    }
}

#[test]
fn what_does_not_fit_is_not_written() {
    let mut buffer = [0; 20];
    let mut out = Writer::new(&mut buffer, 0);
    assert!(!put_8().encode(&mut out), "record fits but its payload does not");
    assert_eq!(out.len(), 0);
}

#[test]
fn random_bytes_never_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..200_000 {
        let mut bytes = [0u8; 48];
        for byte in &mut bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (state >> 56) as u8 & if state & 2 == 0 { 0x0f } else { 0xff };
        }
        let len = (state >> 33) as usize % bytes.len();
        let mut reader = Reader::new(&bytes[..len]);
        if Header::decode(&mut reader).is_ok() {
            while Record::decode(&mut reader).is_ok() {}
        }
        let mut reader = Reader::new(&bytes[..len]);
        let _ = Metadata::decode(&mut reader);
        let _ = ErrorRecord::decode(&mut reader);
        while ResultRecord::decode(&mut reader).is_ok() {}
    }
}

#[test]
fn locate_refuses_overflow_and_the_byte_past_the_end() {
    let metadata = Metadata { size: 64, base: 0, key: RemoteKey(0), disp_unit: 8, misalignment: 0 };
    assert_eq!(metadata.locate(7, 8), Ok(56));
    assert_eq!(metadata.locate(7, 9), Err(56));
    assert_eq!(metadata.locate(8, 0), Ok(64));
    assert_eq!(metadata.locate(u64::MAX, 1), Err(i64::MAX as u64));
    assert_eq!(metadata.locate(1, u64::MAX), Err(8));
}

#[test]
fn words_are_aligned_by_address() {
    for misalignment in 0..8 {
        let metadata = Metadata { size: 64, base: 0, key: RemoteKey(0), disp_unit: 1, misalignment };
        for disp in 0..=56 {
            let is_aligned = (disp + u64::from(misalignment)) % 8 == 0;
            let expected = if is_aligned { Ok(disp) } else { Err(ErrorRecord::UnalignedWord) };
            assert_eq!(metadata.locate_word(disp), expected);
        }
        let outside = ErrorRecord::Range { offset: 57, len: 8, size: 64 };
        assert_eq!(metadata.locate_word(57), Err(outside));
        let mut bytes = metadata.to_bytes();
        assert_eq!(Metadata::decode(&mut Reader::new(&bytes)), Ok(metadata));
        bytes[28] += 8;
        assert!(Metadata::decode(&mut Reader::new(&bytes)).is_err());
    }
}

#[test]
fn data_are_these_numbers_or_do_not_fit() {
    let encode = |flags, window, sender, bytes| encode_data(flags, WindowId(window), Rank(sender), bytes);
    let (unlock, complete) = (BatchFlags::UNLOCK, BatchFlags::COMPLETE);
    assert_eq!(encode(unlock, 3, 5, 4), Some(1 | 3 << 2 | 5 << 12));
    assert_eq!(encode(complete, 3, 5, 4), Some(2 | 3 << 2 | 5 << 12));
    assert_eq!(encode(unlock, 3, 5, 8), Some(1 | 3 << 8 | 5 << 32));
    assert_eq!(encode(complete, (1 << 10) - 1, (1 << 20) - 1, 4), Some(0xffff_fffe));
    assert_eq!(encode(unlock, (1 << 24) - 1, u32::MAX, 8), Some(0xffff_ffff_ffff_ff01));
    for (window, sender, bytes) in [(1 << 10, 0, 4), (0, 1 << 20, 4), (1 << 24, 0, 8), (0, 0, 0), (0, 0, 16)]
    {
        assert_eq!(encode(unlock, window, sender, bytes), None);
    }
    for flags in [BatchFlags::DONE, unlock | BatchFlags::DONE, BatchFlags::default()] {
        assert_eq!(encode(flags, 0, 0, 8), None);
    }
}

#[test]
fn data_are_a_batch_without_operations_whatever_their_bytes() {
    for (bytes, most) in [(4, ((1 << 10) - 1, (1 << 20) - 1)), (8, ((1 << 24) - 1, u32::MAX))] {
        let of_lock_all = BatchFlags::UNLOCK | BatchFlags::OVERTAKE;
        for (flags, window, sender) in [
            (BatchFlags::UNLOCK, 0, 0),
            (BatchFlags::COMPLETE, 7, 9),
            (BatchFlags::UNLOCK, most.0, most.1),
            (of_lock_all, most.0, most.1),
        ] {
            let (window, sender) = (WindowId(window), Rank(sender));
            let data = encode_data(flags, window, sender, bytes).unwrap();
            let header =
                Header { kind: PacketKind::Batch, flags: flags.0, count: 0, window, sender, token: 0 };
            assert_eq!(decode_data(&data.to_le_bytes()[..bytes]), Ok(header));
            assert!(is_data(bytes) && bytes < Header::BYTES);
        }
    }
    assert_eq!(decode_data(&[0; 4]), Err(WireError::Kind(0)));
    assert_eq!(decode_data(&[4, 0, 0, 0, 0, 0, 0, 0]), Err(WireError::Kind(4)));
    assert_eq!(decode_data(&[0xff; 8]), Err(WireError::Kind(0xff)));
    for bytes in [&[][..], &[1; 3], &[1; 5], &[1; 16]] {
        assert_eq!(decode_data(bytes), Err(WireError::Truncated));
    }
}
