//! Two words of 8 bytes that lie beside each other, exchanged in one step where the processor can: half of what two exchanges
//! take.
//!
//! Others change either word by itself meanwhile: an exchange of x86 holds the line of the cache that both are in, whatever
//! its width, so it is atomic towards theirs.

/// Both words' bytes.
#[cfg(all(target_arch = "x86_64", not(words_one_by_one)))]
const BYTES: usize = 2 * size_of::<u64>();

/// Whether [`swap_here`] can be done there.
#[inline]
pub(crate) fn can_swap(place: *mut u64) -> bool {
    #[cfg(all(target_arch = "x86_64", not(words_one_by_one)))]
    {
        // What is not aligned to both words the processor refuses with a signal.
        place.addr() % BYTES == 0 && std::arch::is_x86_feature_detected!("cmpxchg16b")
    }
    #[cfg(not(all(target_arch = "x86_64", not(words_one_by_one))))]
    {
        let _ = place;
        false
    }
}

/// Exchanges both words if both are as expected, and says what they were; that is a full fence. `None`: it cannot be done in
/// one step, and nothing has happened.
///
/// # Safety
/// Memory of both words that can be written, and all who change them at one time do so by atomics.
#[inline]
pub(crate) unsafe fn swap(place: *mut u64, from: [u64; 2], into: [u64; 2]) -> Option<[u64; 2]> {
    // SAFETY: it was asked whether it can be done, and the rest is the caller's promise.
    can_swap(place).then(|| unsafe { swap_here(place, from, into) })
}

/// The same where it can be done in one step.
///
/// # Safety
/// As for [`swap`]; and [`can_swap`] has said so.
#[inline(always)]
pub(crate) unsafe fn swap_here(place: *mut u64, from: [u64; 2], into: [u64; 2]) -> [u64; 2] {
    #[cfg(all(target_arch = "x86_64", not(words_one_by_one)))]
    {
        // SAFETY: the processor has the instruction, and the place is aligned for it; else by the caller's promise.
        unsafe { in_one_step(place, from, into) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(words_one_by_one))))]
    {
        // Nobody was told that this can be done. What was not expected is what nobody has swapped.
        let _ = (place, into);
        from.map(|word| !word)
    }
}

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
        let has_it = std::arch::is_x86_feature_detected!("cmpxchg16b");
        let was = has_it.then_some([1, 2]);
        for unexpected in [[1, 9], [9, 2], [2, 1]] {
            // SAFETY: they are this test's alone; so for all of these.
            assert_eq!(unsafe { swap(words.0.as_mut_ptr(), unexpected, [7, 8]) }, was, "{unexpected:?}");
            assert_eq!(words.0, [1, 2, 3]);
        }
        // SAFETY: as above.
        assert_eq!(unsafe { swap(words.0.as_mut_ptr(), [1, 2], [7, 8]) }, was);
        assert_eq!(words.0, if has_it { [7, 8, 3] } else { [1, 2, 3] });
    }

    #[test]
    fn what_no_instruction_can_do_is_left_to_others() {
        let mut words = Words([5; 3]);
        let second = words.0.as_mut_ptr().wrapping_add(1);
        // SAFETY: they are this test's alone.
        assert_eq!(unsafe { swap(second, [5, 5], [6, 6]) }, None);
        assert_eq!(words.0, [5; 3]);
    }
}
