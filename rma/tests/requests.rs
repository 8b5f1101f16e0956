//! Requests, notified puts, nonblocking flushes and order with types, between ranks.

mod common;

use common::*;
use rma::{Change, Error, Job, LockType, Notification, Rank, ReduceOp, Request, RmaError};

/// Elements of a transfer: small ones are copied, large ones are not.
const LENGTHS: [usize; 3] = [1, 200, 50_000];

fn next(job: &Job) -> Rank {
    Rank((job.rank().0 + 1) % job.size())
}

fn before(job: &Job) -> u64 {
    u64::from((job.rank().0 + job.size() - 1) % job.size())
}

/// Shows: MPI_Rput, MPI_Rget, MPI_Raccumulate, MPI_Rget_accumulate.
#[test]
fn buffers_come_back_when_requests_are_done() {
    ranks("buffers_come_back_when_requests_are_done", 3, |job| {
        for len in LENGTHS {
            let window = job.allocate::<u64>(2 * len)?;
            let (target, second, own) = (next(job), len as u64, u64::from(job.rank().0));
            let (mut source, mut seen) = (vec![100 + own; len], vec![0; len]);
            window.lock_all(|epoch| {
                let source = epoch.rput(target, 0, &mut source)?.wait()?;
                source.fill(200 + own);
                epoch.raccumulate(target, second, &*source, ReduceOp::Sum)?.wait()?;
                epoch.flush(target)?;
                let seen = epoch.rget(target, 0, &mut seen)?.wait()?;
                assert!(seen.iter().all(|element| *element == 100 + own), "{len}");
                let (_, seen) =
                    epoch.rget_accumulate(target, second, &*source, seen, ReduceOp::Max)?.wait()?;
                assert!(seen.iter().all(|element| *element == 200 + own), "{len}");
                Ok(())
            })?;
            job.barrier()?;
            let local = window.local();
            assert_eq!([local.get(0)?, local.get(2 * len - 1)?], [100 + before(job), 200 + before(job)]);
            window.free()?;
        }
        Ok(())
    });
}

#[test]
fn any_and_all_of_several_requests() {
    const BLOCKS: usize = 6;
    const LEN: usize = 3000;
    ranks("any_and_all_of_several_requests", 2, |job| {
        let window = job.allocate::<u64>(BLOCKS * LEN)?;
        for (index, value) in (0..BLOCKS * LEN).zip(1000 * u64::from(job.rank().0)..) {
            window.local().set(index, value)?;
        }
        job.barrier()?;
        let (mut one, mut two) = (vec![0; BLOCKS * LEN], vec![0; BLOCKS * LEN]);
        window.lock(next(job), LockType::Shared, |epoch| {
            let mut requests = Vec::new();
            for (block, part) in one.chunks_mut(LEN).enumerate() {
                requests.push(epoch.rget((block * LEN) as u64, part)?);
            }
            let mut found = [false; BLOCKS];
            while let Some(index) = Request::wait_any(&mut requests)? {
                assert!(!found[index], "{index} was reported twice");
                found[index] = true;
                assert!(requests[index].test()?);
            }
            assert_eq!(found, [true; BLOCKS]);
            let blocks = requests.into_iter().map(Request::wait).collect::<Result<Vec<_>, _>>()?;
            assert!(blocks.iter().all(|block| block.len() == LEN));

            let mut requests = Vec::new();
            for (block, part) in two.chunks_mut(LEN).enumerate() {
                requests.push(epoch.rget((block * LEN) as u64, part)?);
            }
            Request::wait_all(&mut requests)?;
            assert!(Request::test_all(&mut requests)?);
            assert_eq!(Request::wait_any(&mut requests)?, None);
            Ok(())
        })?;
        let expected: Vec<u64> = (1000 * u64::from(next(job).0)..).take(BLOCKS * LEN).collect();
        assert_eq!(one, expected);
        assert_eq!(two, expected);
        assert_eq!(Request::<()>::wait_any(&mut [])?, None);
        window.free().map(drop)
    });
}

/// Requests that nobody waits for, dropped or leaked, are completed by the scope's end.
#[test]
fn the_scope_completes_what_was_leaked() {
    ranks("the_scope_completes_what_was_leaked", 2, |job| {
        let window = job.allocate::<u64>(2000)?;
        let (own, mut seen) = (vec![7 + u64::from(job.rank().0); 1000], vec![0; 1000]);
        let target = next(job);
        window.local().fill(3)?;
        job.barrier()?;
        window.lock_all(|epoch| {
            drop(epoch.rput(target, 0, &own)?);
            Box::leak(Box::new(epoch.rget(target, 1000, &mut seen)?));
            drop(epoch.iflush_all()?);
            Ok(())
        })?;
        assert_eq!(seen, [3; 1000]);
        job.barrier()?;
        assert_eq!(window.local().get(999)?, 7 + before(job));
        window.free().map(drop)
    });
}

#[test]
fn a_failed_request_keeps_its_buffer_and_says_why() {
    ranks("a_failed_request_keeps_its_buffer_and_says_why", 2, |job| {
        let window = job.allocate::<u64>(if job.rank() == Rank(0) { 0 } else { 4 })?;
        let mut seen = [0; 4];
        if job.rank() == Rank(0) {
            let outcome = window.lock(Rank(1), LockType::Shared, |epoch| {
                let outcome = epoch.rget(2, &mut seen).and_then(Request::wait);
                assert!(matches!(outcome.unwrap_err().rma(), Some(RmaError::Range { window_bytes: 32, .. })));
                Ok(())
            });
            // The scope reports it too, if the operation has left before it was found to be wrong.
            if let Err(error) = outcome {
                assert!(matches!(error.rma(), Some(RmaError::Range { .. })), "{error}");
            }
            let outcome =
                window.lock_all(|epoch| epoch.rput(Rank(9), 0, &[1]).and_then(Request::wait).map(drop));
            assert!(matches!(outcome.unwrap_err().rma(), Some(RmaError::Rank { .. })));
        }
        job.barrier()?;
        window.free().map(drop)
    });
}

/// Shows: ours: iflush, ours: iflush_all, ours: flush_targets.
#[test]
fn flushes_that_nobody_waits_for_and_of_several_ranks() {
    ranks("flushes_that_nobody_waits_for_and_of_several_ranks", 4, |job| {
        let window = job.allocate::<u64>(8)?;
        let flags = job.allocate::<u64>(1)?;
        let own = [1 + u64::from(job.rank().0)];
        let others: Vec<Rank> = (0..job.size()).map(Rank).filter(|rank| *rank != job.rank()).collect();
        let disp = u64::from(job.rank().0);
        window.lock_all(|epoch| {
            for &target in &others {
                epoch.put(target, disp, &own)?;
            }
            epoch.flush_targets(&others)?;
            for &target in &others {
                assert_eq!(epoch.get_value(target, disp)?, own[0]);
                epoch.put(target, 4 + disp, &own)?;
            }
            let mut flushed = [epoch.iflush(others[0])?, epoch.iflush_all()?];
            Request::wait_all(&mut flushed)
        })?;
        // Each says that its second puts are complete; whoever has heard it of all finds them.
        let all = others.iter().copied().chain([job.rank()]);
        flags.lock_all(|epoch| {
            for target in all {
                epoch.fetch_and_op(target, 0, 1, ReduceOp::Sum)?;
            }
            Ok(())
        })?;
        while flags.local().get(0)? < u64::from(job.size()) {
            job.progress();
        }
        for rank in &others {
            assert_eq!(window.local().get(4 + rank.0 as usize)?, 1 + u64::from(rank.0));
        }
        flags.free()?;
        window.free().map(drop)
    });
}

/// Shows: ours: put_notify, ours: wait_notification, ours: test_notification, ours: order.
#[test]
fn notified_data_are_there_in_every_kind_of_scope() {
    const LEN: usize = 900;
    ranks("notified_data_are_there_in_every_kind_of_scope", 3, |job| {
        let window = job.allocate::<u64>(LEN + 1)?;
        let (arrived, target) = (LEN as u64, next(job));
        let partners = [job.group(&[Rank(before(job) as u32)])?, job.group(&[target])?];
        for round in 1..=12u64 {
            let data = [round * 10 + u64::from(job.rank().0); LEN];
            let note = Notification { disp: arrived, change: Change::Set(round) };
            let check = || -> Result<(), Error> {
                assert!(window.wait_notification(arrived, round)? >= round);
                assert_eq!(window.test_notification(arrived)?, round);
                let mut seen = [0; LEN];
                window.local().read(0, &mut seen)?;
                assert_eq!(seen, [round * 10 + before(job); LEN]);
                Ok(())
            };
            match round % 4 {
                0 => window.fence(|epoch| {
                    epoch.put_notify(target, 0, &data, note)?;
                    check()
                })?,
                1 => window.lock(target, LockType::Shared, |epoch| {
                    epoch.put(0, &data)?;
                    epoch.order()?;
                    epoch.put_notify(0, &data[..1], note)?;
                    check()
                })?,
                2 => window.lock_all(|epoch| {
                    epoch.put_notify(target, 0, &data, note)?;
                    check()
                })?,
                _ => {
                    let exposure = window.post(&partners[0])?;
                    window.start(&partners[1], |epoch| {
                        epoch.put(target, 0, &data)?;
                        epoch.order_all()?;
                        epoch.put_notify(target, 1, &data[1..2], note)?;
                        check()
                    })?;
                    exposure.wait()?;
                }
            }
            job.barrier()?;
        }
        window.free().map(drop)
    });
}

#[test]
fn a_notified_word_outside_of_the_window_is_refused() {
    ranks("a_notified_word_outside_of_the_window_is_refused", 2, |job| {
        let window = job.allocate::<u32>(4)?;
        assert!(window.test_notification(4).is_err());
        // Displacements count elements of 4 bytes; the word has 8, and an address that is a multiple.
        assert!(window.test_notification(1).is_err());
        assert_eq!(window.test_notification(2)?, 0);
        let outcome = window.lock(next(job), LockType::Shared, |epoch| {
            epoch.put_notify(0, &[1], Notification { disp: 4, change: Change::Add(1) })
        });
        assert!(outcome.is_err());
        job.barrier()?;
        window.free().map(drop)
    });
}
