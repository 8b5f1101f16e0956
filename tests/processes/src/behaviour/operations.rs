//! What operations do, and in which order.

use rma::LockType::{Exclusive, Shared};
use rma::{Dtype, ErrorClass, Job, Rank, ReduceOp};

use super::behaviours;
use crate::failure::{holds, same, Failure, Outcome};
use crate::watchdog::at;
use crate::window::{barrier, Words};

behaviours![
    puts_and_gets_of_all_sizes,
    tickets_are_unique,
    a_lock_of_compare_and_swap,
    get_accumulate_reads_atomically,
    replace_is_atomic,
    accumulates_of_one_origin_keep_their_order,
    sums_of_every_number_type,
    operations_on_oneself,
    nothing_to_do,
    megabytes,
    nobody_as_a_target,
    requests_of_all_kinds,
    requests_any_and_some,
    errors_leave_the_window_usable,
];

fn class_of<T>(result: Result<T, rma::Error>) -> Result<ErrorClass, Failure> {
    match result {
        Ok(_) => Err(Failure::new("an error was due".to_owned())),
        Err(error) => error
            .rma()
            .map(|error| error.class())
            .ok_or_else(|| Failure::new(format!("of another kind: {error}"))),
    }
}

/// Shows: MPI_Put, MPI_Get, rule: get-buffer.
fn puts_and_gets_of_all_sizes(job: &Job) -> Outcome {
    let window = Words::allocate(job, 20_000)?;
    let next = (job.rank().0 + 1) % job.size();
    for count in [1, 7, 8, 9, 500, 1000, 1500, 8000, 20_000] {
        let values: Vec<u64> = (0..count).map(|index| index * 3 + count).collect();
        window.lock(Exclusive, next)?;
        window.put(next, 0, &values)?;
        window.flush(next)?;
        let got = window.get(next, 0, count as usize)?;
        window.unlock(next)?;
        holds!(got.values() == values);
    }
    barrier(job)?;
    Ok(window.free()?)
}

/// Shows: MPI_Fetch_and_op, rule: atomic-fetch.
fn tickets_are_unique(job: &Job) -> Outcome {
    const TICKETS: u64 = 25;
    let all = TICKETS * u64::from(job.size());
    let window = Words::allocate(job, 1 + all as usize)?;
    window.lock_all()?;
    let mut last = None;
    for _ in 0..TICKETS {
        let ticket = window.fetch_and_op(0, 0, 1, ReduceOp::Sum)?;
        window.flush(0)?;
        holds!(last < Some(ticket.value()) && ticket.value() < all);
        last = Some(ticket.value());
        window.accumulate(0, 1 + ticket.value(), &[1], ReduceOp::Sum)?;
    }
    window.unlock_all()?;
    barrier(job)?;
    if job.rank() == Rank(0) {
        same!(window.own(0), all);
        holds!((1..=all as usize).all(|index| window.own(index) == 1));
    }
    Ok(window.free()?)
}

/// Shows: MPI_Compare_and_swap, rule: atomic-fetch.
fn a_lock_of_compare_and_swap(job: &Job) -> Outcome {
    let window = Words::allocate(job, 2)?;
    let mine = u64::from(job.rank().0) + 1;
    window.lock_all()?;
    for _ in 0..5 {
        loop {
            let held = window.compare_and_swap(0, 0, [0, mine])?;
            window.flush(0)?;
            if held.value() == 0 {
                break;
            }
            std::thread::yield_now();
        }
        let got = window.get(0, 1, 1)?;
        window.flush(0)?;
        window.put(0, 1, &[got.value() + 1])?;
        window.flush(0)?;
        let released = window.compare_and_swap(0, 0, [mine, 0])?;
        window.flush(0)?;
        same!(released.value(), mine);
    }
    window.unlock_all()?;
    barrier(job)?;
    if job.rank() == Rank(0) {
        same!([window.own(0), window.own(1)], [0, 5 * u64::from(job.size())]);
    }
    Ok(window.free()?)
}

/// Shows: MPI_Get_accumulate, MPI_NO_OP, rule: atomic-accumulate.
fn get_accumulate_reads_atomically(job: &Job) -> Outcome {
    const ROUNDS: u64 = 20;
    let window = Words::allocate(job, 1)?;
    window.lock_all()?;
    for _ in 0..ROUNDS {
        // Both halves of the word grow together, so a torn read would show.
        window.accumulate(0, 0, &[1 << 32 | 1], ReduceOp::Sum)?;
        let seen = window.get_accumulate(0, 0, &[0], ReduceOp::NoOp)?;
        window.flush(0)?;
        same!(seen.value() >> 32, seen.value() & 0xffff_ffff);
    }
    window.unlock_all()?;
    barrier(job)?;
    if job.rank() == Rank(0) {
        same!(window.own(0), (1 << 32 | 1) * ROUNDS * u64::from(job.size()));
    }
    Ok(window.free()?)
}

/// Shows: MPI_REPLACE, rule: atomic-accumulate, rule: concurrent-accumulates.
fn replace_is_atomic(job: &Job) -> Outcome {
    let window = Words::allocate(job, 2)?;
    let mine = (u64::from(job.rank().0) + 1) * 0x0101_0101_0101_0101;
    window.lock_all()?;
    for _ in 0..20 {
        window.accumulate(0, 0, &[mine], ReduceOp::Replace)?;
        let seen = window.get_accumulate(0, 0, &[mine], ReduceOp::Replace)?;
        window.flush(0)?;
        let byte = seen.value() & 0xff;
        holds!(byte >= 1 && byte <= u64::from(job.size()));
        same!(seen.value(), byte * 0x0101_0101_0101_0101);
    }
    window.unlock_all()?;
    barrier(job)?;
    Ok(window.free()?)
}

/// Shows: rule: order-default, MPI-4.1 13.7.2.
fn accumulates_of_one_origin_keep_their_order(job: &Job) -> Outcome {
    let window = Words::allocate(job, job.size() as usize)?;
    let (own, target) = (u64::from(job.rank().0), (job.rank().0 + 1) % job.size());
    window.lock_all()?;
    let mut seen = Vec::new();
    for value in 1..60u64 {
        window.accumulate(target, own, &[value], ReduceOp::Replace)?;
        seen.push((value, window.get_accumulate(target, own, &[0], ReduceOp::NoOp)?));
    }
    window.unlock_all()?;
    for (value, got) in seen {
        same!(got.value(), value);
    }
    barrier(job)?;
    let from = (job.rank().0 + job.size() - 1) % job.size();
    same!(window.own(from as usize), 59);
    barrier(job)?;
    Ok(window.free()?)
}

/// Shows: MPI_SUM, MPI_Accumulate.
fn sums_of_every_number_type(job: &Job) -> Outcome {
    let window = Words::allocate(job, 16)?;
    let types: [(Dtype, u64); 6] = [
        (Dtype::U8, 2),
        (Dtype::I16, 2),
        (Dtype::U32, 2),
        (Dtype::I64, 2),
        (Dtype::F32, u64::from(2f32.to_bits())),
        (Dtype::F64, 2f64.to_bits()),
    ];
    window.lock_all()?;
    for (index, (dtype, two)) in types.iter().enumerate() {
        let two = two.to_le_bytes();
        at("accumulate");
        // SAFETY: the buffer lives until the flush has returned.
        unsafe { window.raw().accumulate(two.as_ptr(), 1, *dtype, Rank(0), index as u64, ReduceOp::Sum) }?;
        window.flush(0)?;
    }
    window.unlock_all()?;
    barrier(job)?;
    if job.rank() == Rank(0) {
        let sum = 2 * u64::from(job.size());
        for index in 0..4 {
            same!(window.own(index), sum);
        }
        same!(f32::from_bits(window.own(4) as u32), sum as f32);
        same!(f64::from_bits(window.own(5)), sum as f64);
    }
    Ok(window.free()?)
}

/// Shows: rule: atomic-self, MPI_Put, MPI_Get, MPI_Fetch_and_op.
fn operations_on_oneself(job: &Job) -> Outcome {
    let window = Words::allocate(job, 2)?;
    let own = job.rank().0;
    window.lock_all()?;
    for _ in 0..20 {
        // One's own and another's at the same element.
        window.accumulate(own, 0, &[1], ReduceOp::Sum)?;
        let other = window.fetch_and_op((own + 1) % job.size(), 0, 1, ReduceOp::Sum)?;
        window.put(own, 1, &[5])?;
        window.flush(own)?;
        let got = window.get(own, 1, 1)?;
        window.flush(own)?;
        window.flush((own + 1) % job.size())?;
        same!(got.value(), 5);
        holds!(other.value() < 40);
    }
    window.unlock_all()?;
    barrier(job)?;
    same!(window.own(0), 40);
    barrier(job)?;
    Ok(window.free()?)
}

/// Shows: MPI_Put, MPI_Get, MPI-4.1 13.3.
fn nothing_to_do(job: &Job) -> Outcome {
    let window = Words::allocate(job, 1)?;
    window.lock_all()?;
    for target in 0..job.size() {
        window.put(target, 1, &[])?;
        window.get(target, 1, 0)?;
        window.accumulate(target, 0, &[], ReduceOp::Sum)?;
    }
    window.unlock_all()?;
    barrier(job)?;
    same!(window.own(0), 0);
    Ok(window.free()?)
}

/// Shows: MPI_Put, MPI_Get.
fn megabytes(job: &Job) -> Outcome {
    const COUNT: usize = 1 << 18;
    let window = Words::allocate(job, COUNT)?;
    let next = (job.rank().0 + 1) % job.size();
    let values: Vec<u64> = (0..COUNT as u64).map(|index| index ^ u64::from(job.rank().0) << 40).collect();
    window.lock(Exclusive, next)?;
    window.put(next, 0, &values)?;
    window.unlock(next)?;
    window.lock(Shared, next)?;
    let got = window.get(next, 0, COUNT)?;
    window.unlock(next)?;
    holds!(got.values() == values);
    barrier(job)?;
    Ok(window.free()?)
}

/// Shows: MPI_PROC_NULL.
fn nobody_as_a_target(job: &Job) -> Outcome {
    let window = Words::allocate(job, 1)?;
    window.lock_all()?;
    window.put(Rank::NULL.0, 0, &[1])?;
    let got = window.get(Rank::NULL.0, 0, 1)?;
    window.unlock_all()?;
    same!(got.value(), u64::MAX);
    barrier(job)?;
    same!(window.own(0), 0);
    Ok(window.free()?)
}

/// Shows: MPI_Rput, MPI_Rget, MPI-4.1 13.3.5.
fn requests_of_all_kinds(job: &Job) -> Outcome {
    let window = Words::allocate(job, 4096)?;
    let next = (job.rank().0 + 1) % job.size();
    window.lock(Shared, next)?;
    let values: Vec<u64> = (0..2000).collect();
    let mut requests = vec![window.rput(next, 0, &values)?, window.rput(next, 3000, &[7, 8, 9])?];
    at("wait_all");
    job.wait_all(&mut requests)?;
    window.flush(next)?;
    let (first, got) = window.rget(next, 0, 2000)?;
    let (second, few) = window.rget(next, 3000, 3)?;
    at("wait");
    for mut request in [second, first] {
        job.wait(&mut request)?;
    }
    holds!(got.values() == values);
    same!(few.values(), [7, 8, 9]);
    window.unlock(next)?;
    barrier(job)?;
    Ok(window.free()?)
}

/// Shows: MPI_Rget, MPI_Waitany.
fn requests_any_and_some(job: &Job) -> Outcome {
    let window = Words::allocate(job, 1)?;
    window.store(0, u64::from(job.rank().0) + 3);
    barrier(job)?;
    window.lock_all()?;
    let (mut requests, mut results) = (Vec::new(), Vec::new());
    for target in 0..job.size() {
        let (request, got) = window.rget(target, 0, 1)?;
        requests.push(request);
        results.push(got);
    }
    let mut order = Vec::new();
    at("wait_any");
    while let Some(index) = job.wait_any(&mut requests)? {
        same!(results[index].value(), index as u64 + 3);
        order.push(index);
    }
    order.sort_unstable();
    same!(order, (0..job.size() as usize).collect::<Vec<_>>());
    window.unlock_all()?;
    barrier(job)?;
    Ok(window.free()?)
}

/// Shows: MPI_ERR_RMA_SYNC, MPI_ERR_RMA_RANGE, MPI_ERR_RANK, MPI-4.1 13.6.
fn errors_leave_the_window_usable(job: &Job) -> Outcome {
    let window = Words::allocate(job, 1)?;
    let next = (job.rank().0 + 1) % job.size();
    same!(class_of(window.put(next, 0, &[1]))?, ErrorClass::RmaSync);
    same!(class_of(window.lock(Shared, job.size()))?, ErrorClass::Rank);
    window.lock(Shared, next)?;
    same!(class_of(window.lock(Shared, next))?, ErrorClass::RmaSync);
    let outside = window.put(next, 1, &[1]);
    let end = window.unlock(next);
    same!(class_of(outside.and(end))?, ErrorClass::RmaRange);
    window.lock(Shared, next)?;
    window.put(next, 0, &[4])?;
    window.unlock(next)?;
    barrier(job)?;
    same!(window.own(0), 4);
    Ok(window.free()?)
}
