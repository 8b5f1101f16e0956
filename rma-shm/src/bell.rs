//! How a process learns that there is something for it, awake or asleep.
//!
//! Each sender has a bit, set behind what it has published. Before the owner sleeps it says so, and then
//! looks at the bits once more; a sender sets its bit, and then looks whether the owner sleeps. With a full
//! fence between at both sides, one of the two sees the other. The sender wakes the owner first and takes the
//! word back after that, so that one that dies in between leaves an owner that others wake.

use core::sync::atomic::Ordering;

/// The shared words, as both sides see them.
pub(crate) trait Bell {
    /// Sets the sender's bit with [`Ordering::Release`].
    fn mark(&self, sender: usize);
    /// Whether any bit is set.
    fn is_marked(&self) -> bool;
    /// The word of the owner that sleeps; 0 while it is awake.
    fn sleeping(&self) -> u32;
    /// Sets it, by an exchange: all changes of the word stand in one row.
    fn set_sleeping(&self, word: u32);
    /// Takes it back, if it is still the same.
    fn take_back(&self, word: u32);
    /// A full fence behind [`Bell::mark`] or [`Bell::set_sleeping`]: `fence(SeqCst)`, or nothing where the change before it is
    /// one.
    fn fence(&self);
}

/// A sender has published something. `Some`: the owner sleeps and must be woken, and then told by
/// [`Bell::take_back`].
#[inline]
pub(crate) fn announce(bell: &impl Bell, sender: usize) -> Option<u32> {
    bell.mark(sender);
    bell.fence();
    Some(bell.sleeping()).filter(|&word| word != 0)
}

/// The owner wants to sleep. `false`: it must not, as there is something.
pub(crate) fn may_sleep(bell: &impl Bell, turn: &mut u32) -> bool {
    // Never 0, and another word each time: who wakes from the last sleep takes back nothing of this one.
    *turn = turn.wrapping_add(1).max(1);
    bell.set_sleeping(*turn);
    bell.fence();
    if bell.is_marked() {
        bell.set_sleeping(0);
        return false;
    }
    true
}

/// The order of the owner's own look at the bits.
pub(crate) const TAKE: Ordering = Ordering::AcqRel;
