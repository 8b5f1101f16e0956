//! What one rank of a run with deaths does, drawn by seed.

use crate::random::Random;

/// One step of a rank's program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Task {
    Lock {
        window: usize,
        target: u32,
        is_exclusive: bool,
    },
    Unlock {
        window: usize,
        target: u32,
    },
    LockAll {
        window: usize,
    },
    UnlockAll {
        window: usize,
    },
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
    Fence {
        no_precede: bool,
        no_succeed: bool,
    },
    Operate {
        window: usize,
        target: u32,
        what: What,
    },
    Flush {
        window: usize,
        target: Option<u32>,
        is_local: bool,
    },
    /// The flush that nobody waits for, and the wait for its request.
    IFlush {
        window: usize,
        target: Option<u32>,
    },
    Order {
        window: usize,
        target: Option<u32>,
    },
    /// Waits until so many notifications have come.
    AwaitNotes {
        until: u64,
    },
    /// Attaches memory that nobody else knows of, and detaches it.
    Region,
    /// What several threads do at one time.
    Fork {
        threads: Vec<Vec<Self>>,
    },
}

impl Task {
    /// The window that the task opens an epoch of, and whose it is if it is one target's.
    pub(super) fn opens(&self) -> Option<(usize, Option<u32>)> {
        match *self {
            Self::Lock { window, target, .. } => Some((window, Some(target))),
            Self::LockAll { window } => Some((window, None)),
            Self::Start { .. } => Some((EXPOSED, None)),
            Self::Fence { .. } => Some((FENCED, None)),
            _ => None,
        }
    }

    /// Whether it is about all targets of a window.
    pub(super) fn is_for_all(&self) -> bool {
        matches!(
            self,
            Self::Flush { target: None, .. }
                | Self::IFlush { target: None, .. }
                | Self::Order { target: None, .. }
        )
    }

    /// Whether the task is of no use when that epoch was not opened, and whether it is the last of those.
    pub(super) fn follows(&self, (opened, of): (usize, Option<u32>)) -> (bool, bool) {
        match self {
            Self::Unlock { window, target } => {
                let is_it = *window == opened && Some(*target) == of;
                (is_it, is_it)
            }
            Self::UnlockAll { window } => (*window == opened, *window == opened),
            Self::Complete => (opened == EXPOSED, opened == EXPOSED),
            // Of a window whose fence failed nothing is of use any more.
            Self::Fence { .. } => (opened == FENCED, false),
            Self::Operate { window, target, .. } => {
                (*window == opened && of.is_none_or(|of| of == *target), false)
            }
            Self::Flush { window, target, .. }
            | Self::IFlush { window, target }
            | Self::Order { window, target } => {
                (*window == opened && (of.is_none() || target.is_none_or(|target| of == Some(target))), false)
            }
            Self::Fork { .. } => (of.is_none() && opened != FENCED, false),
            _ => (false, false),
        }
    }
}

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct What {
    pub(super) verb: Verb,
    pub(super) by_request: bool,
    /// It is described by layouts with gaps, where it has more than one word.
    pub(super) has_layouts: bool,
}

/// What an operation does. The origin's part of the target's window is the words that only this origin accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    /// Adds 1 to the target's counter.
    Count,
    /// The same, and fetches it: one element, or an array of one.
    FetchCount { is_single: bool },
    /// Compares the counter with what it never is, and swaps.
    Swap,
    /// Writes a number to all words of the origin's part of the target's window.
    Put(u64),
    /// The same by accumulates.
    Replace(u64),
    /// The same, and fetches what was there.
    GetReplace(u64),
    /// Puts it, and notifies.
    Notify(u64),
    /// Reads that part.
    Get,
}

/// Windows of a run: one that is locked, one that is exposed, and in those that use everything one that is dynamic,
/// and locked, and one that is fenced.
pub(super) const LOCKED: usize = 0;
pub(super) const EXPOSED: usize = 1;
pub(super) const DYNAMIC: usize = 2;
pub(super) const FENCED: usize = 3;

/// The tasks of every rank. Epochs of post and start match; the others need nobody's help.
pub(super) fn draw(ranks: u32, random: &mut Random) -> Vec<Vec<Task>> {
    let mut tasks = vec![Vec::new(); ranks as usize];
    for turn in 1..=random.between(2, 10) {
        match random.index(3) {
            0 => draw_exposure(ranks, random, &mut tasks, |target, random, own| {
                operate(EXPOSED, target, turn, random, own);
            }),
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
pub(super) fn another(ranks: u32, rank: u32, random: &mut Random) -> u32 {
    (rank + 1 + random.below(u64::from(ranks) - 1) as u32) % ranks
}

/// Operations to one target: none that conflicts with another one.
fn operate(window: usize, target: u32, turn: u64, random: &mut Random, own: &mut Vec<Task>) {
    let by_request = window == LOCKED && random.chance(300);
    for _ in 0..random.below(3) {
        let what = What { verb: Verb::Count, by_request: false, has_layouts: false };
        own.push(Task::Operate { window, target, what });
    }
    let verb = match random.index(3) {
        0 => Verb::Get,
        _ => Verb::Put(turn),
    };
    own.push(Task::Operate { window, target, what: What { verb, by_request, has_layouts: false } });
}

fn flush(target: u32, random: &mut Random, own: &mut Vec<Task>) {
    let target = random.chance(600).then_some(target);
    match random.index(4) {
        0 => own.push(Task::Flush { window: LOCKED, target, is_local: random.chance(500) }),
        1 => own.push(Task::IFlush { window: LOCKED, target }),
        _ => {}
    }
}

fn draw_lock(ranks: u32, rank: u32, turn: u64, random: &mut Random, own: &mut Vec<Task>) {
    for _ in 0..random.below(3) {
        let target = another(ranks, rank, random);
        own.push(Task::Lock { window: LOCKED, target, is_exclusive: random.chance(500) });
        operate(LOCKED, target, turn, random, own);
        flush(target, random, own);
        own.push(Task::Unlock { window: LOCKED, target });
    }
}

fn draw_lock_all(ranks: u32, rank: u32, turn: u64, random: &mut Random, own: &mut Vec<Task>) {
    own.push(Task::LockAll { window: LOCKED });
    let first = another(ranks, rank, random);
    let count = random.between(1, u64::from(ranks) - 1) as u32;
    for target in (0..count).map(|step| (first + step) % ranks).filter(|target| *target != rank) {
        operate(LOCKED, target, turn, random, own);
        flush(target, random, own);
    }
    own.push(Task::UnlockAll { window: LOCKED });
}

/// `operate` draws what an origin does to a target.
pub(super) fn draw_exposure(
    ranks: u32,
    random: &mut Random,
    tasks: &mut [Vec<Task>],
    operate: impl Fn(u32, &mut Random, &mut Vec<Task>),
) {
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
            targets.iter().for_each(|&target| operate(target, random, own));
            own.push(Task::Complete);
        }
        if is_exposed {
            own.push(Task::Wait { by_test: random.chance(300) });
        }
    }
}
