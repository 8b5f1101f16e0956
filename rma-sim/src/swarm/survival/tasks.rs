//! What one rank of a run with deaths does, drawn by seed.

use crate::random::Random;

/// One step of a rank's program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Task {
    Lock {
        target: u32,
        is_exclusive: bool,
    },
    Unlock {
        target: u32,
    },
    LockAll,
    UnlockAll,
    Post {
        origins: Vec<u32>,
        no_check: bool,
    },
    Start {
        targets: Vec<u32>,
    },
    Complete,
    Wait {
        by_test: bool,
    },
    Operate {
        window: usize,
        target: u32,
        what: What,
    },
    Flush {
        target: Option<u32>,
        is_local: bool,
    },
    /// The flush that nobody waits for, and the wait for its request.
    IFlush {
        target: Option<u32>,
    },
}

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// Adds 1 to the target's counter.
    Count,
    /// Writes a number to all words of the origin's part of the target's window.
    Put { value: u64, by_request: bool },
    /// Reads that part.
    Get { by_request: bool },
}

/// Windows of a run: one that is locked, and one that is exposed.
pub(super) const LOCKED: usize = 0;
pub(super) const EXPOSED: usize = 1;

/// The tasks of every rank. Epochs of post and start match; the others need nobody's help.
pub(super) fn draw(ranks: u32, random: &mut Random) -> Vec<Vec<Task>> {
    let mut tasks = vec![Vec::new(); ranks as usize];
    for turn in 1..=random.between(2, 10) {
        match random.index(3) {
            0 => draw_exposure(ranks, turn, random, &mut tasks),
            is_single => {
                for (rank, own) in (0..).zip(&mut tasks) {
                    if is_single == 1 {
                        draw_lock(ranks, rank, turn, random, own);
                    } else {
                        draw_lock_all(ranks, rank, turn, random, own);
                    }
                }
            }
        }
    }
    tasks
}

/// Any rank but this one.
fn another(ranks: u32, rank: u32, random: &mut Random) -> u32 {
    (rank + 1 + random.below(u64::from(ranks) - 1) as u32) % ranks
}

/// Operations to one target: none that conflicts with another one.
fn operate(window: usize, target: u32, turn: u64, random: &mut Random, own: &mut Vec<Task>) {
    let by_request = window == LOCKED && random.chance(300);
    for _ in 0..random.below(3) {
        own.push(Task::Operate { window, target, what: What::Count });
    }
    let what = match random.index(3) {
        0 => What::Get { by_request },
        _ => What::Put { value: turn, by_request },
    };
    own.push(Task::Operate { window, target, what });
}

fn flush(target: u32, random: &mut Random, own: &mut Vec<Task>) {
    let target = random.chance(600).then_some(target);
    match random.index(4) {
        0 => own.push(Task::Flush { target, is_local: random.chance(500) }),
        1 => own.push(Task::IFlush { target }),
        _ => {}
    }
}

fn draw_lock(ranks: u32, rank: u32, turn: u64, random: &mut Random, own: &mut Vec<Task>) {
    for _ in 0..random.below(3) {
        let target = another(ranks, rank, random);
        own.push(Task::Lock { target, is_exclusive: random.chance(500) });
        operate(LOCKED, target, turn, random, own);
        flush(target, random, own);
        own.push(Task::Unlock { target });
    }
}

fn draw_lock_all(ranks: u32, rank: u32, turn: u64, random: &mut Random, own: &mut Vec<Task>) {
    own.push(Task::LockAll);
    let first = another(ranks, rank, random);
    let count = random.between(1, u64::from(ranks) - 1) as u32;
    for target in (0..count).map(|step| (first + step) % ranks).filter(|target| *target != rank) {
        operate(LOCKED, target, turn, random, own);
        flush(target, random, own);
    }
    own.push(Task::UnlockAll);
}

fn draw_exposure(ranks: u32, turn: u64, random: &mut Random, tasks: &mut [Vec<Task>]) {
    let accesses: Vec<Vec<bool>> = (0..ranks)
        .map(|origin| (0..ranks).map(|target| origin != target && random.chance(400)).collect())
        .collect();
    for (rank, own) in (0..).zip(tasks) {
        let others =
            |is_in: &dyn Fn(u32) -> bool| (0..ranks).filter(|&other| is_in(other)).collect::<Vec<_>>();
        let origins = others(&|origin| accesses[origin as usize][rank as usize]);
        let targets = others(&|target| accesses[rank as usize][target as usize]);
        let is_exposed = !origins.is_empty();
        if is_exposed {
            own.push(Task::Post { origins, no_check: false });
        }
        if !targets.is_empty() {
            own.push(Task::Start { targets: targets.clone() });
            targets.iter().for_each(|&target| operate(EXPOSED, target, turn, random, own));
            own.push(Task::Complete);
        }
        if is_exposed {
            own.push(Task::Wait { by_test: random.chance(300) });
        }
    }
}
