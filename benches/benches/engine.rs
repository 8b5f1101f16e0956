//! Time of the engine's calls over the null fabric: what they cost beside the instruction counts.
#![allow(missing_docs)] // criterion's macros

use std::hint::black_box;

use criterion::{criterion_group, criterion_main, Criterion};

use rma_bench::duo::Duo;
use rma_bench::null;
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::error::RmaError;
use rma_core::ids::{Rank, WindowId};
use rma_core::op::ReduceOp;
use rma_core::wire::{BatchFlags, Header, Notifies, OpKind, PacketKind, Reader, Record, Writer};

/// A put of 8 bytes and the progress that meets its completion.
fn put(criterion: &mut Criterion) {
    let mut duo = Duo::new(null::all_native(), &Config::default()).and_then(open_epoch).expect("an epoch");
    criterion.bench_function("put 8 B + progress", |bencher| {
        bencher.iter(|| {
            // SAFETY: the bytes are a constant.
            unsafe { duo.put(black_box(&[7; 8])) }.expect("a put");
            duo.origin.progress()
        });
    });
}

/// Lock, put of 8 bytes, unlock: origin and target together.
fn lock_put_unlock(criterion: &mut Criterion) {
    let mut duo = Duo::new(null::all_native(), &Config::default()).expect("two engines");
    criterion.bench_function("lock, put 8 B, unlock", |bencher| {
        bencher.iter(|| single_operation(&mut duo).expect("an epoch"));
    });
}

/// Header and record of a put, there and back.
fn packet(criterion: &mut Criterion) {
    let header = Header {
        kind: PacketKind::Batch,
        flags: (BatchFlags::LOCK_SHARED | BatchFlags::UNLOCK).0,
        count: 1,
        window: WindowId(3),
        sender: Rank(1),
        token: 77,
    };
    let record = Record {
        kind: OpKind::Put,
        dtype: Dtype::U8,
        op: ReduceOp::Replace,
        len: 8,
        disp: 64,
        offset: 0,
        handle: 0,
        generation: 0,
        notifies: Notifies::No,
    };
    let mut bytes = [0; 64];
    criterion.bench_function("packet encode", |bencher| {
        bencher.iter(|| {
            let mut writer = Writer::new(black_box(&mut bytes), 0);
            writer.put(&black_box(&header).encode()) && black_box(&record).encode(&mut writer)
        });
    });
    criterion.bench_function("packet decode", |bencher| {
        bencher.iter(|| {
            let mut reader = Reader::new(black_box(&bytes));
            (Header::decode(&mut reader), Record::decode(&mut reader))
        });
    });
}

fn open_epoch(mut duo: Duo) -> Result<Duo, RmaError> {
    duo.lock()?;
    // SAFETY: the bytes are a constant.
    unsafe { duo.put(&[0; 8]) }?;
    duo.flush().map(|()| duo)
}

fn single_operation(duo: &mut Duo) -> Result<(), RmaError> {
    duo.lock()?;
    // SAFETY: the bytes are a constant.
    unsafe { duo.put(&[7; 8]) }?;
    duo.unlock()
}

criterion_group!(engine, put, lock_put_unlock, packet);
criterion_main!(engine);
