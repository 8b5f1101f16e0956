//! Programs of all that the library has: every kind of epoch, window, operation and request, and threads.

use super::tasks::{another, draw_exposure, Task, Verb, What, DYNAMIC, EXPOSED, FENCED, LOCKED};
use crate::random::Random;

/// Most threads of a rank.
pub(super) const THREADS_MAX: usize = 3;

/// Most operations under one lock.
pub(super) const OPERATIONS_MAX: u32 = 4;

/// The tasks of every rank. Epochs of fence, and of post and start, match; the others need nobody's help.
pub(super) fn draw(ranks: u32, random: &mut Random) -> Vec<Vec<Task>> {
    let mut tasks = vec![Vec::new(); ranks as usize];
    let mut notes = 0;
    for turn in 1..=random.between(2, 10) {
        match random.index(7) {
            0 => draw_exposure(ranks, random, &mut tasks, |target, random, own| {
                operate(EXPOSED, target, turn, random, own);
                order(EXPOSED, target, random, own);
            }),
            1 => draw_fences(ranks, turn, random, &mut tasks),
            2 => {
                notes += 1;
                draw_notes(ranks, turn, notes, random, &mut tasks);
            }
            kind => {
                for (rank, own) in (0..).zip(&mut tasks) {
                    let window = if random.chance(400) { DYNAMIC } else { LOCKED };
                    match kind {
                        3 => draw_locks(window, ranks, rank, turn, random, own),
                        4 => draw_lock_all(window, ranks, rank, turn, random, own),
                        5 => draw_threads(window, ranks, rank, turn, random, own),
                        _ => own.push(Task::Region),
                    }
                }
            }
        }
    }
    tasks
}

/// Operations to one target: none that conflicts with another one.
fn operate(window: usize, target: u32, turn: u64, random: &mut Random, own: &mut Vec<Task>) {
    let may_request = window == LOCKED || window == DYNAMIC;
    let mut push = |verb, random: &mut Random| {
        let by_request = may_request && random.chance(300);
        let what = What { verb, by_request, has_layouts: random.chance(400) };
        own.push(Task::Operate { window, target, what });
    };
    for _ in 0..random.below(3) {
        let verb = random.pick(&[
            Verb::Count,
            Verb::FetchCount { is_single: true },
            Verb::FetchCount { is_single: false },
            Verb::Swap,
        ]);
        push(verb, random);
    }
    let verb = random.pick(&[
        Verb::Put(turn),
        Verb::Put(turn),
        Verb::Replace(turn),
        Verb::GetReplace(turn),
        Verb::Notify(turn),
        Verb::Get,
    ]);
    push(verb, random);
}

fn order(window: usize, target: u32, random: &mut Random, own: &mut Vec<Task>) {
    if random.chance(200) {
        let target = random.chance(500).then_some(target);
        own.push(Task::Order { window, target });
        let what = What { verb: Verb::Count, by_request: false, has_layouts: false };
        own.extend(target.map(|target| Task::Operate { window, target, what }));
    }
}

fn flush(window: usize, target: u32, random: &mut Random, own: &mut Vec<Task>) {
    order(window, target, random, own);
    let target = random.chance(600).then_some(target);
    match random.index(4) {
        0 => own.push(Task::Flush { window, target, is_local: random.chance(500) }),
        1 => own.push(Task::IFlush { window, target }),
        _ => {}
    }
}

fn draw_locks(window: usize, ranks: u32, rank: u32, turn: u64, random: &mut Random, own: &mut Vec<Task>) {
    for _ in 0..random.below(3) {
        draw_lock(window, another(ranks, rank, random), turn, random, own);
    }
}

fn draw_lock(window: usize, target: u32, turn: u64, random: &mut Random, own: &mut Vec<Task>) {
    own.push(Task::Lock { window, target, is_exclusive: random.chance(500) });
    operate(window, target, turn, random, own);
    flush(window, target, random, own);
    own.push(Task::Unlock { window, target });
}

/// Some of the other ranks, each once.
fn targets(ranks: u32, rank: u32, random: &mut Random) -> Vec<u32> {
    let first = another(ranks, rank, random);
    let count = random.between(1, u64::from(ranks) - 1) as u32;
    (0..count).map(|step| (first + step) % ranks).filter(|target| *target != rank).collect()
}

fn draw_lock_all(window: usize, ranks: u32, rank: u32, turn: u64, random: &mut Random, own: &mut Vec<Task>) {
    own.push(Task::LockAll { window });
    for target in targets(ranks, rank, random) {
        operate(window, target, turn, random, own);
        flush(window, target, random, own);
    }
    own.push(Task::UnlockAll { window });
}

/// Threads within an epoch of all, or each with locks of its own. No two have a target in common.
fn draw_threads(window: usize, ranks: u32, rank: u32, turn: u64, random: &mut Random, own: &mut Vec<Task>) {
    let is_one_epoch = random.chance(500);
    let mut threads = vec![Vec::new(); THREADS_MAX];
    for (index, target) in targets(ranks, rank, random).into_iter().take(4 * THREADS_MAX).enumerate() {
        let thread = &mut threads[index % THREADS_MAX];
        if is_one_epoch {
            operate(window, target, turn, random, thread);
            flush(window, target, random, thread);
        } else {
            // One that waited for the operations of all threads would wait for their locks while it holds its own.
            let mut tasks = Vec::new();
            draw_lock(window, target, turn, random, &mut tasks);
            tasks.retain(|task| !task.is_for_all());
            thread.extend(tasks);
        }
    }
    if is_one_epoch {
        own.push(Task::LockAll { window });
    }
    own.push(Task::Fork { threads });
    if is_one_epoch {
        own.push(Task::UnlockAll { window });
    }
}

/// Epochs between fences, in which some have operations.
fn draw_fences(ranks: u32, turn: u64, random: &mut Random, tasks: &mut [Vec<Task>]) {
    let epochs = random.between(1, 3);
    let is_first = |epoch| epoch == 0;
    for epoch in 0..=epochs {
        for (rank, own) in (0..).zip(tasks.iter_mut()) {
            own.push(Task::Fence { no_precede: is_first(epoch), no_succeed: epoch == epochs });
            if epoch < epochs && random.chance(600) {
                let target = another(ranks, rank, random);
                operate(FENCED, target, 10 * turn + epoch, random, own);
                order(FENCED, target, random, own);
            }
        }
    }
}

/// Each rank notifies the next, and waits for what the one before has to say.
fn draw_notes(ranks: u32, turn: u64, until: u64, random: &mut Random, tasks: &mut [Vec<Task>]) {
    for (rank, own) in (0..).zip(tasks) {
        let (window, target) = (LOCKED, (rank + 1) % ranks);
        let what = What { verb: Verb::Notify(turn), by_request: false, has_layouts: false };
        let operation = Task::Operate { window, target, what };
        if random.chance(500) {
            let is_exclusive = random.chance(300);
            own.extend([
                Task::Lock { window, target, is_exclusive },
                operation,
                Task::Unlock { window, target },
            ]);
        } else {
            own.extend([Task::LockAll { window }, operation, Task::UnlockAll { window }]);
        }
        own.push(Task::AwaitNotes { until });
    }
}
