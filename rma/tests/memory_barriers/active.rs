//! The tables of FENCE, and of POST, START, COMPLETE and WAIT/TEST.

use rma::{FenceAssert, Group, PostAssert, Rank, StartAssert};

use super::{are_all, load, on_one_host, rounds, store, store_all, Done, Ring, LOOSE, ROUNDS, SIZES, WORDS};

const FIRST: FenceAssert =
    FenceAssert { no_precede: true, no_succeed: false, no_store: false, no_put: false };
const LAST: FenceAssert = FenceAssert { no_precede: false, no_succeed: true, no_store: false, no_put: false };

/// The table's FENCE: SHM operations that are loads and stores, at both sides of each fence.
///
/// Shows: MPI_Win_fence, seed: MEM_SYNC, seed: SHM operations.
#[test]
fn fence_of_loads_and_stores() {
    on_one_host("active::fence_of_loads_and_stores", &SIZES, |job| {
        let ring = Ring::shared(job)?;
        let fence = |_| ring.window.fence(FenceAssert::default());
        ring.window.fence(FIRST)?;
        let write = |number| {
            store_all(ring.part(ring.next)?, number);
            Ok(())
        };
        // Also of parts that a third one has written.
        let read = |number| {
            let mut is_read = true;
            for rank in 0..job.size() {
                is_read &= are_all(ring.part(Rank(rank))?, number);
            }
            Ok(is_read)
        };
        rounds(write, read, (fence, fence))?;
        ring.window.fence(LAST)?;
        ring.window.free()
    });
}

/// The table's FENCE: local stores, then gets; puts, then local loads.
///
/// Shows: MPI_Win_fence, seed: MEM_SYNC, seed: SHM operations.
#[test]
fn fence_of_puts_and_gets() {
    on_one_host("active::fence_of_puts_and_gets", &SIZES, |job| {
        let ring = Ring::allocated(job)?;
        let fence = |_| ring.window.fence(FenceAssert::default());
        ring.window.fence(FIRST)?;
        let write = |number| {
            store(ring.own().wrapping_add(WORDS), number);
            ring.put(ring.next, number)
        };
        // What is got now is there behind the next fence.
        let read = |number| {
            let is_got = load(ring.result(number - 1)) == number - 1;
            ring.get(ring.next, WORDS, number)?;
            Ok(is_got && are_all(ring.own(), number))
        };
        rounds(write, read, (fence, fence))?;
        ring.window.fence(LAST)?;
        ring.window.free()
    });
}

/// One round of POST, START, COMPLETE and WAIT or TEST, with accesses to the next rank in it.
fn exposed(ring: &Ring<'_>, groups: &[Group; 2], is_test: bool, access: impl FnOnce() -> Done) -> Done {
    ring.window.post(&groups[0], PostAssert::default())?;
    ring.window.start(&groups[1], StartAssert::default())?;
    access()?;
    ring.window.complete()?;
    if !is_test {
        return ring.window.wait();
    }
    while !ring.window.test()? {
        std::thread::yield_now();
    }
    Ok(())
}

/// Local stores, POST to START, accesses, COMPLETE to WAIT or TEST, local loads; and all accesses in one epoch.
fn exposures(ring: &Ring<'_>, access: impl Fn(u64) -> Done, is_read: impl Fn(u64) -> bool) -> Done {
    let groups = [ring.job.group(&[ring.before])?, ring.job.group(&[ring.next])?];
    let write = |number| store(ring.own().wrapping_add(WORDS), number);
    for number in 1..=ROUNDS {
        write(number);
        exposed(ring, &groups, number % 2 == 0, || access(number))?;
        assert!(is_read(number), "a stale value in round {number}");
    }
    let mut stale = 0;
    exposed(ring, &groups, false, || {
        (ROUNDS + 1..=ROUNDS + LOOSE).try_for_each(|number| {
            write(number);
            access(number)?;
            stale += u64::from(!is_read(number));
            Ok(())
        })
    })?;
    assert_ne!(stale, 0, "nothing shows that the test can fail");
    Ok(())
}

/// The table's POST, START, COMPLETE and WAIT/TEST, with loads and stores in the epoch.
///
/// Shows: MPI_Win_post, MPI_Win_start, MPI_Win_complete, MPI_Win_wait, MPI_Win_test, seed: MEM_SYNC.
#[test]
fn post_to_wait_of_loads_and_stores() {
    on_one_host("active::post_to_wait_of_loads_and_stores", &SIZES, |job| {
        let ring = Ring::shared(job)?;
        let access = |number| {
            let part = ring.part(ring.next)?;
            store(ring.result(number), load(part.wrapping_add(WORDS)));
            store_all(part, number);
            Ok(())
        };
        let is_read = |number| load(ring.result(number)) == number && are_all(ring.own(), number);
        exposures(&ring, access, is_read)?;
        ring.window.free()
    });
}

/// The same table with put and get in the epoch.
///
/// Shows: MPI_Win_post, MPI_Win_start, MPI_Win_complete, MPI_Win_wait, MPI_Win_test, seed: MEM_SYNC.
#[test]
fn post_to_wait_of_puts_and_gets() {
    on_one_host("active::post_to_wait_of_puts_and_gets", &SIZES, |job| {
        let ring = Ring::allocated(job)?;
        let access = |number| {
            ring.get(ring.next, WORDS, number)?;
            ring.put(ring.next, number)
        };
        let is_read = |number| load(ring.result(number)) == number && are_all(ring.own(), number);
        exposures(&ring, access, is_read)?;
        ring.window.free()
    });
}
