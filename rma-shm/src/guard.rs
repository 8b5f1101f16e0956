//! Accesses to a peer's region, and its end: whoever accesses says so first and then looks whether the region
//! is still there; the owner takes it away and then waits for those that said so. With a full fence between
//! at both sides ([`crate::fences`] says who makes them), either the access sees that the region is gone, or the owner
//! waits for its end.
//!
//! An access is a copy in one call of a provider, or a bounded number of atomics, so that the wait is as long as that; that of a process
//! that has died is over.

/// One peer's word in the owner's memory: odd during an access.
pub(crate) trait Busy {
    /// The word; what an access did before it said that it was over is seen then.
    fn word(&self) -> u64;
    /// Sets it with `Release`.
    fn set(&self, word: u64);
    /// The accessing side's full fence: `fence(SeqCst)`, or less where the owner's is for both.
    fn fence(&self);
}

/// Runs `access`, which looks first whether the region is there.
#[inline]
pub(crate) fn with<T>(busy: &impl Busy, access: impl FnOnce() -> T) -> T {
    begin(busy);
    let done = access();
    end(busy);
    done
}

/// Begins an access: the word is the peer's alone. Whatever it says, it is right again behind the next access.
#[inline(always)]
pub(crate) fn begin(busy: &impl Busy) {
    busy.set(busy.word() | 1);
    busy.fence();
}

/// Ends it.
#[inline(always)]
pub(crate) fn end(busy: &impl Busy) {
    busy.set((busy.word() | 1).wrapping_add(1));
}

/// Waits until no access that could have seen the region is under way. The owner has made it disappear, and
/// fenced. `pause` returns whether to go on, as the process of the word still runs. `false`: it did not, and the access may
/// be under way.
pub(crate) fn wait(busy: &impl Busy, mut pause: impl FnMut() -> bool) -> bool {
    let first = busy.word();
    loop {
        if first & 1 == 0 || busy.word() != first {
            return true;
        }
        if !pause() {
            return false;
        }
    }
}
