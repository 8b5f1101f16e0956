//! Fences.

use rma::{FenceAssert, Job, ReduceOp};

use super::behaviours;
use crate::failure::{same, Outcome};
use crate::window::{barrier, Words};

behaviours![
    fence_puts_to_the_next,
    fence_gets_from_the_next,
    fence_accumulates_of_all,
    fences_in_a_row,
    fence_with_assertions,
    fence_of_stores,
    fences_without_operations,
    fence_of_many_operations,
];

fn next(job: &Job) -> u32 {
    (job.rank().0 + 1) % job.size()
}

fn previous(job: &Job) -> u32 {
    (job.rank().0 + job.size() - 1) % job.size()
}

/// Shows: MPI_Win_fence, MPI_Put, rule: fence-completes-target.
fn fence_puts_to_the_next(job: &Job) -> Outcome {
    let window = Words::allocate(job, 4)?;
    window.fence()?;
    window.put(next(job), 1, &[100 + u64::from(job.rank().0), 7])?;
    window.fence_end()?;
    same!([0, 1, 2, 3].map(|index| window.own(index)), [0, 100 + u64::from(previous(job)), 7, 0]);
    Ok(window.free()?)
}

/// Shows: MPI_Win_fence, MPI_Get, rule: fence-completes-origin, rule: private-to-public.
fn fence_gets_from_the_next(job: &Job) -> Outcome {
    let window = Words::allocate(job, 2)?;
    window.store(0, u64::from(job.rank().0) + 50);
    window.fence()?;
    let got = window.get(next(job), 0, 2)?;
    window.fence_end()?;
    same!(got.values(), [u64::from(next(job)) + 50, 0]);
    Ok(window.free()?)
}

/// Shows: MPI_Accumulate, rule: concurrent-accumulates, rule: target-completion-fence.
fn fence_accumulates_of_all(job: &Job) -> Outcome {
    let window = Words::allocate(job, 2)?;
    window.fence()?;
    for target in 0..job.size() {
        window.accumulate(target, 0, &[u64::from(job.rank().0) + 1, 1], ReduceOp::Sum)?;
    }
    window.fence_end()?;
    let size = u64::from(job.size());
    same!([window.own(0), window.own(1)], [size * (size + 1) / 2, size]);
    Ok(window.free()?)
}

/// Shows: MPI_Win_fence, rule: fence-closes, rule: fence-opens, rule: public-to-private.
fn fences_in_a_row(job: &Job) -> Outcome {
    let window = Words::allocate(job, 2)?;
    window.fence()?;
    for round in 0..40u64 {
        // Two elements in turn: one is put to while the other is read.
        let index = round % 2;
        window.put(next(job), index, &[1000 * round + u64::from(job.rank().0)])?;
        window.fence()?;
        same!(window.own(index as usize), 1000 * round + u64::from(previous(job)));
    }
    window.fence_end()?;
    Ok(window.free()?)
}

/// Shows: MPI_MODE_NOPRECEDE, MPI_MODE_NOSUCCEED, MPI_MODE_NOSTORE/fence, MPI_MODE_NOPUT/fence, rule: asserts-are-hints.
fn fence_with_assertions(job: &Job) -> Outcome {
    let window = Words::allocate(job, 1)?;
    let none = FenceAssert::default();
    for round in 1..10u64 {
        window.fence_with(FenceAssert { no_precede: true, ..none })?;
        window.put(next(job), 0, &[round])?;
        window.fence_with(FenceAssert { no_store: true, ..none })?;
        same!(window.own(0), round);
        let got = window.get(next(job), 0, 1)?;
        window.fence_with(FenceAssert { no_store: true, no_put: true, no_succeed: true, ..none })?;
        same!(got.value(), round);
        // Everybody has looked before anybody puts again.
        barrier(job)?;
    }
    Ok(window.free()?)
}

/// Shows: rule: private-to-public, rule: loads-in-epochs, seed: MEM_SYNC.
fn fence_of_stores(job: &Job) -> Outcome {
    let window = Words::allocate(job, 2)?;
    for round in 1..20u64 {
        window.store(0, round);
        window.fence()?;
        // The other element may be stored to meanwhile.
        window.store(1, round + 1);
        let got = window.get(next(job), 0, 1)?;
        window.fence_end()?;
        same!(got.value(), round);
        same!(window.own(1), round + 1);
        barrier(job)?;
    }
    Ok(window.free()?)
}

/// Shows: MPI_Win_fence.
fn fences_without_operations(job: &Job) -> Outcome {
    let window = Words::allocate(job, 0)?;
    for _ in 0..30 {
        window.fence()?;
    }
    window.fence_end()?;
    Ok(window.free()?)
}

/// Shows: MPI_Win_fence, rule: disjoint-updates, seed: RESTORE_OP_ELEM_RESOURCES.
fn fence_of_many_operations(job: &Job) -> Outcome {
    let (rank, size) = (u64::from(job.rank().0), u64::from(job.size()));
    let window = Words::allocate(job, 512 * job.size() as usize)?;
    window.fence()?;
    for index in 0..512 {
        for target in 0..job.size() {
            window.put(target, rank * 512 + index, &[rank * 1000 + index])?;
        }
    }
    window.fence_end()?;
    for origin in 0..size {
        for index in 0..512 {
            same!(window.own((origin * 512 + index) as usize), origin * 1000 + index);
        }
    }
    Ok(window.free()?)
}
