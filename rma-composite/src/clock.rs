//! How long ago something was, roughly, at next to no cost.

/// A moment, in ticks of nobody knows exactly which length; compare by [`has_passed`] only.
#[inline]
pub(crate) fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has it.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::sync::OnceLock;
        use std::time::Instant;
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        let begun = BEGUN.get_or_init(Instant::now);
        // Some ticks for each nanosecond, as processors have.
        begun.elapsed().as_nanos() as u64 * 3
    }
}

/// Whether some ten microseconds lie between. Where the clock goes back, as between processors that do not agree, they do.
#[inline]
pub(crate) fn has_passed(from: u64, to: u64) -> bool {
    to.wrapping_sub(from) >= 1 << 15
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes() {
        let from = now();
        assert!(!has_passed(from, from));
        while !has_passed(from, now()) {}
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(has_passed(from, now()));
        assert!(has_passed(from, from.wrapping_sub(1)), "a clock that goes back");
    }
}
