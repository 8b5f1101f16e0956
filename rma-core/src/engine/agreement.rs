//! What all ranks say when a window is made, by one reduction, and what each does with what was said.

use crate::bootstrap::Bootstrap;
use crate::epoch::Dissemination;
use crate::error::{Call, ErrorClass, RmaError, Rule};
use crate::info::{Flavor, LockProtocol};
use crate::path::Paths;
use crate::progress::{Process, REDUCE_VALUES};
use crate::provider::Endpoint;
use crate::window::{Line, Window, Words, PROXIES};

/// What this rank brings to the agreement, and the index of each number's complement: equal everywhere
/// exactly when the maximum of the one is the complement of the maximum of the other.
const AGREED: usize = 8;

/// Index of the number that is not 0 when a rank cannot take part: the class of its error, and who it is.
pub(super) const FAILED: usize = 2 * AGREED;

/// The agreement's numbers by what they are.
const SIZE: usize = 0;
/// Above its lowest byte, which is the misalignment: equal as a whole, both are; equal above it, the unit is. In front of both
/// the window's number.
const DISP_UNIT: usize = 1;
const NUMBER_AT: u32 = 40;
const BASE: usize = 2;
const KEY: usize = 3;
const PATHS: usize = 4;
const OPTIONS: usize = 5;
/// 0 where the rank has none.
const WORDS: usize = 6;
/// The same.
const LINE: usize = 7;

/// The highest byte of [`OPTIONS`] says what a rank has come for: a kind of window, or one of these.
const COME_FOR: u32 = 56;

/// To meet the others, and nothing else.
pub(super) const BARRIER: u64 = 1 << 3 << COME_FOR;

/// For [`Engine::start_agree`].
pub(super) const AGREEMENT: u64 = 1 << 4 << COME_FOR;

/// What belongs to no window.
const NO_WINDOWS: u64 = BARRIER | AGREEMENT;

/// Options and flavor in one number: what MPI wants all ranks to say alike. Windows over the user's memory
/// and over the library's may be parts of one.
fn agreement<R>(w: &Window<R>) -> u64 {
    let kind = match w.flavor {
        Flavor::Create | Flavor::Allocate => 0,
        Flavor::Dynamic => 1,
        Flavor::Shared => 2,
    };
    w.options.agreement() | (kind | u64::from(w.is_served) << 2) << COME_FOR
}

/// The numbers of a rank that says only what it has come for.
pub(super) fn come_for(what: u64) -> [u64; REDUCE_VALUES] {
    let mut values = [0; REDUCE_VALUES];
    (values[OPTIONS], values[OPTIONS + AGREED]) = (what, !what);
    values
}

/// Whether what all ranks said belongs to one call. Every rank comes to the same end.
pub(super) fn all_came_for_one(call: Call, values: &[u64; REDUCE_VALUES]) -> Result<(), RmaError> {
    let (highest, lowest) = (values[OPTIONS], !values[OPTIONS + AGREED]);
    if (highest | lowest) & NO_WINDOWS == 0 || highest >> COME_FOR == lowest >> COME_FOR {
        return Ok(());
    }
    let what = "the ranks are in different collective calls: another one is at a barrier, finalizes, or makes a window \
                of another kind; make the same calls in the same order at every rank";
    Err(RmaError::Invalid { call, class: ErrorClass::RmaSync, what, rule: Rule::SameCalls })
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// A window's barrier is broken: ranks met in it, some in a fence and some to free the window, or a rank is lost to somebody. All
    /// of them say so, of this call and of all that would be such barriers later.
    #[cold]
    pub(super) fn broken(&self, call: Call, barrier: &Dissemination<0>) -> RmaError {
        let Some(target) = barrier.lost() else {
            let what = "some ranks are in a fence of the window where others free it, so it is not freed, and its memory \
                        stays the job's; make the same calls in the same order at every rank";
            return RmaError::Invalid { call, class: ErrorClass::RmaSync, what, rule: Rule::SameCalls };
        };
        self.lost_to_another(call, target)
    }
}

pub(super) fn creation_values<R>(w: &Window<R>) -> [u64; REDUCE_VALUES] {
    let mut own = [0; AGREED];
    own[SIZE] = w.own.size;
    let number = u64::from(w.id.0) << NUMBER_AT;
    own[DISP_UNIT] = number | u64::from(w.own.disp_unit) << 8 | u64::from(w.own.misalignment);
    own[BASE] = w.own.base;
    own[KEY] = w.own.key.0;
    own[PATHS] = w.paths.digest();
    own[OPTIONS] = agreement(w);
    own[WORDS] = w.words.as_ref().map_or(0, |words| words.digest());
    own[LINE] = w.line.as_ref().map_or(0, Line::digest);
    let mut values = [0; REDUCE_VALUES];
    for (index, value) in own.into_iter().enumerate() {
        values[index] = value;
        values[index + AGREED] = !value;
    }
    values
}

/// What all ranks said decides what this one does with its window from now on.
pub(super) fn agree<R>(
    w: &mut Window<R>,
    values: &[u64; REDUCE_VALUES],
) -> Result<(), (ErrorClass, Rule, &'static str)> {
    let same = |index: usize| values[index] == !values[index + AGREED];
    let is_same_unit = values[DISP_UNIT] >> 8 == !values[DISP_UNIT + AGREED] >> 8;
    if !same(OPTIONS) {
        // The numbers' highest bits tell the kinds apart, so one that all ranks share is the maximum's.
        if values[OPTIONS] >> COME_FOR != !values[OPTIONS + AGREED] >> COME_FOR {
            return Err((
                ErrorClass::RmaFlavor,
                Rule::SameCalls,
                "not every rank makes the same kind of window; make them all alike, and give all ranks the same \
                 RMA_PROGRESS",
            ));
        }
        w.options.disagree();
        w.paths.join_reductions();
    }
    if values[DISP_UNIT] >> NUMBER_AT != !values[DISP_UNIT + AGREED] >> NUMBER_AT {
        let what = "the ranks give the window different numbers, as some have made or freed another one meanwhile; make the \
                    collective calls of a job one after the other, by whichever threads, in the same order at every rank";
        return Err((ErrorClass::RmaSync, Rule::SameCalls, what));
    }
    if w.options.check == Some(true) {
        if w.options.same_size && !same(SIZE) {
            let what = "same_size was given, but not every rank has the same size";
            return Err((ErrorClass::Size, Rule::SameSize, what));
        }
        if w.options.same_disp_unit && !is_same_unit {
            let what = "same_disp_unit was given, but not every rank has the same unit";
            return Err((ErrorClass::Disp, Rule::SameUnit, what));
        }
    }
    let uniform = (w.options.same_size || same(SIZE)) && (w.options.same_disp_unit || is_same_unit);
    if uniform {
        w.uniform = Some(w.own);
        w.is_aligned_alike = same(DISP_UNIT);
        if same(BASE) && same(KEY) && w.is_aligned_alike {
            w.symmetric = Some(w.own);
        }
    }
    // Paths are everybody's or nobody's.
    if !same(PATHS) {
        w.paths = Paths::default();
    }
    if !Words::<R>::are_alike(values[WORDS], !values[WORDS + AGREED]) {
        w.words = None;
    }
    let mut protocol = LockProtocol::Message;
    if let Some(words) = &mut w.words {
        words.is_alike = same(WORDS);
        protocol = if words.reaches_all { words.choice } else { LockProtocol::Auto };
        w.lock.follow_words(PROXIES);
    }
    if !same(LINE) {
        w.line = None;
    }
    w.options.lock_protocol = Some(protocol);
    if w.options.no_locks {
        w.drop_lock();
    }
    w.usable = true;
    Ok(())
}
