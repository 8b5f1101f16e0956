//! What can go wrong, as values that name the call, the state, the rule and the remedy.

mod call;
mod class;
mod rule;
#[cfg(test)]
mod tests;

use alloc::string::String;
use core::fmt;

use crate::ids::{Rank, WindowId};

pub use call::Call;
pub use class::ErrorClass;
pub use rule::Rule;

/// A number from the fabric that says why something failed, with the provider's text for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FabricCode {
    /// The provider's number (for libfabric a positive `FI_E*` value); 0: the fabric did not say it.
    pub code: i32,
    /// The provider's text.
    pub text: &'static str,
}

impl FabricCode {
    /// What it means for a peer: the fabric's number is a hint at the cause; without one the text is the cause.
    const fn guess(&self) -> &'static str {
        match self.code {
            0 => "",
            _ => "; its process probably ended",
        }
    }
}

impl fmt::Display for FabricCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            0 => f.write_str(self.text),
            code => write!(f, "{} (code {code})", self.text),
        }
    }
}

/// Everything that an RMA call can report.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RmaError {
    /// The call does not fit the window's epoch state (MPI's `MPI_ERR_RMA_SYNC`).
    Epoch {
        /// The call.
        call: Call,
        /// The target, of a call that names one.
        target: Option<Rank>,
        /// Name of the window's or target's state.
        state: &'static str,
        /// What was broken.
        rule: Rule,
    },
    /// The job cannot end while an epoch is open on a window (`MPI_ERR_RMA_SYNC`).
    Unclosed {
        /// The call.
        call: Call,
        /// The window; one of them, if there are several.
        window: WindowId,
        /// Name of its state.
        state: &'static str,
    },
    /// The access reaches outside the target's window (`MPI_ERR_RMA_RANGE`).
    Range {
        /// The call.
        call: Call,
        /// The target.
        target: Rank,
        /// First byte of the access in the window: before it, modulo 2^64; so far behind it that 64 bits do not count it,
        /// 2^63 - 1.
        offset_bytes: u64,
        /// Bytes accessed.
        len_bytes: u64,
        /// Bytes that the window has at the target.
        window_bytes: u64,
    },
    /// The access to a dynamic window is not inside of one attached region (`MPI_ERR_RMA_RANGE`).
    NotAttached {
        /// The call.
        call: Call,
        /// The target.
        target: Rank,
        /// Address of the first byte at the target.
        address: u64,
        /// Bytes accessed. Of an access that took several packets: what one of them had, as each is judged alone.
        len_bytes: u64,
    },
    /// Two accesses to the same bytes conflict (`MPI_ERR_RMA_CONFLICT`). Found while checking only; both were
    /// executed, in some order.
    Conflict {
        /// The call that reports it.
        call: Call,
        /// Whose window.
        target: Rank,
        /// What this process did.
        access: &'static str,
        /// What was done before.
        earlier: &'static str,
        /// By which rank.
        origin: Rank,
        /// First byte in the window that both access.
        offset_bytes: u64,
        /// Bytes that both access.
        len_bytes: u64,
    },
    /// The target is not a rank of the window (`MPI_ERR_RANK`).
    Rank {
        /// The call.
        call: Call,
        /// What was asked for.
        target: Rank,
        /// Ranks are 0 to `size - 1`.
        size: u32,
    },
    /// An argument makes no sense (`MPI_ERR_ARG`, `MPI_ERR_DISP`, `MPI_ERR_SIZE`).
    Argument {
        /// The call.
        call: Call,
        /// Which argument, what is wrong, what would be right.
        what: &'static str,
        /// What was broken.
        rule: Rule,
    },
    /// The same with a class of its own (`MPI_ERR_BASE`, `MPI_ERR_SIZE`, `MPI_ERR_DISP`, ...).
    Invalid {
        /// The call.
        call: Call,
        /// MPI's class.
        class: ErrorClass,
        /// Which argument, what is wrong, what would be right.
        what: &'static str,
        /// What was broken.
        rule: Rule,
    },
    /// A size in the settings is above its limit (`MPI_ERR_ARG`).
    Setting {
        /// The call.
        call: Call,
        /// The setting.
        name: &'static str,
        /// What was asked for.
        asked: usize,
        /// The limit.
        most: usize,
    },
    /// A known info key has a value that it cannot have (`MPI_ERR_INFO_VALUE`).
    Info {
        /// The call.
        call: Call,
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What it can be.
        wanted: &'static str,
    },
    /// A collective call could not be done because of another rank.
    Elsewhere {
        /// The call.
        call: Call,
        /// MPI's class of that rank's error.
        class: ErrorClass,
        /// The rank; one of them, if there are several.
        target: Rank,
    },
    /// The reduction is not defined for the type (`MPI_ERR_OP`).
    Operation {
        /// The call.
        call: Call,
        /// The reduction.
        op: &'static str,
        /// The element type.
        dtype: &'static str,
    },
    /// There is no such window (`MPI_ERR_WIN`).
    Window {
        /// The call.
        call: Call,
        /// What was asked for.
        window: WindowId,
    },
    /// The target reported that this origin does not hold the lock it released.
    NotHeld {
        /// The call.
        call: Call,
        /// The target.
        target: Rank,
    },
    /// The target reported that its window was not exposed to this origin when it completed its access epoch.
    NotExposed {
        /// The call.
        call: Call,
        /// The target.
        target: Rank,
    },
    /// The target could not understand a packet of this process.
    Refused {
        /// The call.
        call: Call,
        /// The target.
        target: Rank,
    },
    /// A process of the job cannot be reached any more.
    Peer {
        /// The call.
        call: Call,
        /// The rank.
        target: Rank,
        /// The fabric's reason.
        code: FabricCode,
    },
    /// A lock that is words of the target's memory will never be had: a rank has died, and nobody living is known to
    /// hold the lock or to let anybody in. It stays so; the window can be freed.
    LockLost {
        /// The call.
        call: Call,
        /// Whose window.
        target: Rank,
    },
    /// The endpoint is broken; nothing will succeed any more.
    Endpoint {
        /// The call.
        call: Call,
        /// The fabric's reason.
        code: FabricCode,
    },
    /// The provider could not do something at set-up.
    Provider {
        /// The call.
        call: Call,
        /// The provider's message, with the remedy.
        message: String,
    },
    /// The launcher could not help.
    Bootstrap {
        /// The call.
        call: Call,
        /// The message, with the remedy.
        message: String,
    },
    /// Memory cannot be shared among the ranks of the window (`MPI_ERR_RMA_SHARED`).
    Shared {
        /// The call.
        call: Call,
        /// Why, and what to do.
        message: String,
    },
    /// Memory could not be had.
    Memory {
        /// The call.
        call: Call,
        /// Bytes asked for.
        bytes: usize,
    },
    /// An operation with a request failed, and a synchronization call has said why.
    Reported {
        /// The call.
        call: Call,
        /// The target.
        target: Rank,
    },
    /// A blocking call took the longest time that the user allows. A lock or lock_all has opened no epoch
    /// then: what it has asked for is given back when it comes, and the next epoch to the same rank, or ranks, begins
    /// after that. Any other call goes on without its caller, and its epoch stays open: the typed layer's next call goes on
    /// waiting for the end of a scope; in the raw layer the window cannot be used or freed any more.
    Stalled {
        /// The call.
        call: Call,
        /// Whole seconds waited.
        seconds: u64,
        /// What was waited for.
        waiting_for: String,
    },
}

/// Does the same with the call of each kind of error.
macro_rules! of_every_kind {
    ($error:expr, $call:ident => $done:expr) => {
        match $error {
            RmaError::Epoch { $call, .. }
            | RmaError::Unclosed { $call, .. }
            | RmaError::Range { $call, .. }
            | RmaError::NotAttached { $call, .. }
            | RmaError::Conflict { $call, .. }
            | RmaError::Rank { $call, .. }
            | RmaError::Argument { $call, .. }
            | RmaError::Invalid { $call, .. }
            | RmaError::Setting { $call, .. }
            | RmaError::Info { $call, .. }
            | RmaError::Elsewhere { $call, .. }
            | RmaError::Operation { $call, .. }
            | RmaError::Window { $call, .. }
            | RmaError::NotHeld { $call, .. }
            | RmaError::NotExposed { $call, .. }
            | RmaError::Refused { $call, .. }
            | RmaError::Peer { $call, .. }
            | RmaError::LockLost { $call, .. }
            | RmaError::Endpoint { $call, .. }
            | RmaError::Provider { $call, .. }
            | RmaError::Bootstrap { $call, .. }
            | RmaError::Shared { $call, .. }
            | RmaError::Memory { $call, .. }
            | RmaError::Reported { $call, .. }
            | RmaError::Stalled { $call, .. } => $done,
        }
    };
}

impl RmaError {
    /// The call during which it was found.
    pub fn call(&self) -> Call {
        of_every_kind!(self, call => *call)
    }

    /// The same error of the call that the user made, where that is made of others.
    #[must_use]
    pub fn on_behalf_of(mut self, user: Call) -> Self {
        of_every_kind!(&mut self, call => *call = user);
        self
    }

    /// What was broken; `None` of what no program can help: the fabric, the launcher, processes that end.
    pub fn rule(&self) -> Option<Rule> {
        match self {
            Self::Epoch { rule, .. } | Self::Argument { rule, .. } | Self::Invalid { rule, .. } => Some(*rule),
            Self::Unclosed { .. } => Some(Rule::FreeBeforeEnd),
            Self::Range { call: Call::LocalRead | Call::LocalWrite, .. } => Some(Rule::OwnMemory),
            Self::Range { .. } => Some(Rule::InsideWindow),
            Self::NotAttached { .. } => Some(Rule::InsideRegion),
            Self::Conflict { earlier, .. } if *earlier == NO_PUT => Some(Rule::NoPutKept),
            Self::Conflict { .. } => Some(Rule::NoConflict),
            Self::Rank { call: Call::Group, .. } => Some(Rule::GroupOfRanks),
            Self::Rank { .. } => Some(Rule::RankOfWindow),
            Self::Setting { .. } => Some(Rule::SettingInLimits),
            Self::Info { .. } => Some(Rule::InfoValue),
            Self::Elsewhere { .. } => Some(Rule::AllRanksOrNone),
            Self::Operation { op: "compare_and_swap", .. } => Some(Rule::SwapType),
            Self::Operation { .. } => Some(Rule::DefinedReduction),
            Self::Window { .. } => Some(Rule::WindowExists),
            Self::NotHeld { .. } => Some(Rule::LockHeld),
            Self::NotExposed { .. } => Some(Rule::StartChecked),
            Self::Shared { .. } => Some(Rule::HostShares),
            Self::Memory { .. } => Some(Rule::MemoryThere),
            Self::Stalled { .. } => Some(Rule::OthersCall),
            Self::Refused { .. }
            | Self::Peer { .. }
            | Self::LockLost { .. }
            | Self::Endpoint { .. }
            | Self::Provider { .. }
            | Self::Bootstrap { .. }
            // Whoever reported it named the rule.
            | Self::Reported { .. } => None,
        }
    }
}

impl fmt::Display for RmaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.call())?;
        write_wrong(f, self)?;
        match (self, self.rule()) {
            // What it demands is said along with the state.
            (Self::Epoch { .. }, Some(rule)) => write!(f, " [{}, {}]", self.class(), rule.section()),
            (_, Some(rule)) => write!(f, "; rule: {} [{}, {}]", rule.text(), self.class(), rule.section()),
            (_, None) => write!(f, " [{}]", self.class()),
        }
    }
}

impl core::error::Error for RmaError {}

/// What is wrong, with its numbers, and what would be right.
fn write_wrong(f: &mut fmt::Formatter<'_>, error: &RmaError) -> fmt::Result {
    match error {
        RmaError::Epoch { target, state, rule, .. } => write_epoch(f, *target, state, *rule),
        RmaError::Unclosed { window, state, .. } => write!(f, "window {window} is in state {state}; {UNCLOSED}"),
        RmaError::Range { target, offset_bytes, len_bytes, window_bytes, .. } => {
            write!(f, "{len_bytes} bytes at ")?;
            write_offset(f, *offset_bytes)?;
            write!(
                f,
                " reach outside the window of rank {target}, which has {window_bytes} bytes there; check the displacement \
                 (in units of the target's disp_unit)"
            )
        }
        RmaError::NotAttached { target, address, len_bytes, .. } => write!(
            f,
            "{len_bytes} bytes at address {address:#x}, all of an access or what one packet had of it, are not in one \
             region that rank {target} has attached; attach the memory first, and keep it attached until the access \
             is complete there"
        ),
        RmaError::Conflict { target, access, earlier, origin, offset_bytes, len_bytes, .. } => write!(
            f,
            "{access} of {len_bytes} bytes at byte {offset_bytes} of the window of rank {target} conflicts with \
             {earlier} by rank {origin}: no synchronization lies between them"
        ),
        RmaError::Rank { target, size, .. } => write_rank(f, *target, *size),
        RmaError::Argument { what, .. } | RmaError::Invalid { what, .. } => f.write_str(what),
        RmaError::Setting { name, asked, most, .. } => write!(f, "{name} is {asked}, but must be at most {most}"),
        RmaError::Info { key, value, wanted, .. } => {
            write!(f, "info key {key} cannot be {value:?}; it can be {wanted}")
        }
        RmaError::Elsewhere { target, .. } => write!(f, "rank {target} {ELSEWHERE}"),
        RmaError::Operation { op, dtype, .. } => {
            let where_told = match *op {
                "compare_and_swap" => "Dtype::has_compare_and_swap",
                _ => "ReduceOp::is_defined_for",
            };
            write!(f, "{op} is not defined for {dtype}; see {where_told} for what is")
        }
        RmaError::Window { window, .. } => {
            write!(f, "window {window} does not exist at this rank: it was freed, or never made")
        }
        RmaError::NotHeld { target, .. } => write!(f, "rank {target} {NOT_HELD}"),
        RmaError::NotExposed { target, .. } => write!(f, "rank {target} {NOT_EXPOSED}"),
        RmaError::Refused { target, .. } => write!(f, "rank {target} {REFUSED}"),
        RmaError::Peer { target, code, .. } => {
            write!(f, "rank {target} cannot be reached any more: {code}{}", code.guess())
        }
        RmaError::LockLost { target, .. } => write!(f, "the lock of rank {target}'s window {LOCK_LOST}"),
        RmaError::Endpoint { code, .. } => write!(f, "the endpoint is broken: {code}"),
        RmaError::Provider { message, .. }
        | RmaError::Bootstrap { message, .. }
        | RmaError::Shared { message, .. } => f.write_str(message),
        RmaError::Memory { bytes, .. } => write!(f, "{bytes} bytes of memory could not be had"),
        RmaError::Reported { target, .. } => write!(f, "the operation to rank {target} {REPORTED}"),
        RmaError::Stalled { seconds, waiting_for, .. } => write!(
            f,
            "not complete after {seconds} s, still waiting for {waiting_for}; if that is expected raise RMA_TIMEOUT"
        ),
    }
}

/// What an operation conflicts with whose target has said NOPUT.
pub(crate) const NO_PUT: &str = "the assertion NOPUT";
const UNCLOSED: &str =
    "close the open epoch (unlock, unlock_all, complete, wait, or a fence with NOSUCCEED), and \
    free the window, before the job ends";
const ELSEWHERE: &str = "could not do its part, so that nobody did; its own message says why";
const NOT_HELD: &str =
    "says that its window is not locked by this process, which releases it; lock it first, once \
    for each unlock";
const NOT_EXPOSED: &str =
    "says that its window was not exposed to this process when an access epoch ended; start \
    with NOCHECK only what the target has posted (with NOCHECK, to this rank)";
const REFUSED: &str = "could not understand a packet; do both run the same version?";
const LOCK_LOST: &str = "was lost with a rank that has died, and cannot be had any more; lock by messages \
    (RMA_LOCK_PROTOCOL=message) in jobs that are to survive that";
const REPORTED: &str = "failed, and a synchronization call of its epoch has reported why";

/// The first byte of an access that is not inside of the window.
fn write_offset(f: &mut fmt::Formatter<'_>, offset_bytes: u64) -> fmt::Result {
    match offset_bytes as i64 {
        i64::MAX => f.write_str("byte offset 2^63 or more"),
        before @ ..0 => write!(f, "byte offset {before} (unsigned: {offset_bytes})"),
        offset => write!(f, "byte offset {offset}"),
    }
}

fn write_epoch(f: &mut fmt::Formatter<'_>, target: Option<Rank>, state: &str, rule: Rule) -> fmt::Result {
    if let Some(target) = target {
        write!(f, "target rank {target}: ")?;
    }
    write!(f, "not possible in window state {state}: {}", rule.text())
}

fn write_rank(f: &mut fmt::Formatter<'_>, target: Rank, size: u32) -> fmt::Result {
    let last = size.saturating_sub(1);
    match target {
        Rank::NULL => write!(f, "no rank was given (Rank::NULL), and this call needs one: 0 to {last}"),
        target => write!(f, "there is no rank {target}; ranks are 0 to {last}"),
    }
}
