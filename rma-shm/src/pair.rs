//! Two words of 8 bytes that lie beside each other, exchanged in one step where the processor can: half of what two exchanges
//! take.
//!
//! Others change either word by itself meanwhile: an exchange of x86 holds the line of the cache that both are in, whatever
//! its width, so it is atomic towards theirs.

/// Exchanges both words if both are as expected, and says what they were; that is a full fence. `None`: it cannot be done in
/// one step, and nothing has happened.
///
/// # Safety
/// Both are aligned words in memory that can be written, and all who change them at one time do so by atomics.
#[inline]
pub(crate) unsafe fn swap(places: [*mut u64; 2], from: [u64; 2], into: [u64; 2]) -> Option<[u64; 2]> {
    #[cfg(all(target_arch = "x86_64", not(words_one_by_one)))]
    {
        let [first, second] = places;
        // What is not aligned to both words the processor refuses with a signal.
        let is_pair = first.addr() % PAIR == 0 && second.addr() == first.addr() + size_of::<u64>();
        if is_pair && std::arch::is_x86_feature_detected!("cmpxchg16b") {
            // SAFETY: the processor has the instruction, and the place is aligned for it and inside of the caller's words.
            return Some(unsafe { in_one_step(first, from, into) });
        }
    }
    let _ = (places, from, into);
    None
}

#[cfg(all(target_arch = "x86_64", not(words_one_by_one)))]
const PAIR: usize = 2 * size_of::<u64>();

/// # Safety
/// As for [`swap`], of 16 bytes that are aligned to as many; and the processor has the instruction.
#[cfg(all(target_arch = "x86_64", not(words_one_by_one)))]
#[inline]
unsafe fn in_one_step(place: *mut u64, from: [u64; 2], into: [u64; 2]) -> [u64; 2] {
    let [mut low, mut high] = from;
    // SAFETY: it accesses the 16 bytes alone, which is the caller's promise, and the register that the compiler keeps for
    // itself has its value again. The standard library's function for this is one that the compiler does not inline right.
    unsafe {
        core::arch::asm!(
            "xchg rsi, rbx",
            "lock cmpxchg16b xmmword ptr [rdi]",
            "mov rbx, rsi",
            in("rdi") place,
            inout("rsi") into[0] => _,
            in("rcx") into[1],
            inout("rax") low,
            inout("rdx") high,
            options(nostack),
        );
    }
    [low, high]
}

#[cfg(all(test, target_arch = "x86_64", not(words_one_by_one)))]
mod tests {
    use super::*;

    #[repr(align(16))]
    struct Words([u64; 3]);

    #[test]
    fn both_are_exchanged_or_neither() {
        let mut words = Words([1, 2, 3]);
        let at = |words: &mut Words, index: usize| words.0.as_mut_ptr().wrapping_add(index);
        let pair = |words: &mut Words, first: usize, second: usize| [at(words, first), at(words, second)];
        let both = pair(&mut words, 0, 1);
        let has_it = std::arch::is_x86_feature_detected!("cmpxchg16b");
        let was = has_it.then_some([1, 2]);
        for unexpected in [[1, 9], [9, 2], [2, 1]] {
            // SAFETY: they are this test's alone; so for all of these.
            assert_eq!(unsafe { swap(both, unexpected, [7, 8]) }, was, "{unexpected:?}");
            assert_eq!(words.0, [1, 2, 3]);
        }
        // SAFETY: as above.
        assert_eq!(unsafe { swap(both, [1, 2], [7, 8]) }, was);
        assert_eq!(words.0, if has_it { [7, 8, 3] } else { [1, 2, 3] });
    }

    #[test]
    fn what_is_no_pair_is_left_to_others() {
        let mut words = Words([5; 3]);
        let at = |words: &mut Words, index: usize| words.0.as_mut_ptr().wrapping_add(index);
        for (first, second) in [(1, 2), (1, 0), (0, 2), (0, 0)] {
            let places = [at(&mut words, first), at(&mut words, second)];
            // SAFETY: they are this test's alone.
            assert_eq!(unsafe { swap(places, [5, 5], [6, 6]) }, None, "{first} {second}");
        }
        assert_eq!(words.0, [5; 3]);
    }
}
