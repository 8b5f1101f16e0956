//! Times of several hosts on one scale, that of rank 0's host.
//!
//! The processes of a host have one clock. Between hosts a reduction is all there is: whoever has left it knows that
//! all others had entered it. So rank 0's time of entry is earlier than anybody's time of exit, and its time of exit
//! later than anybody's time of entry, and both bound how much a host's clock is behind. A few reductions, and all
//! ranks of a host, make the bounds narrow: about half of the time that the shortest of them took.

/// What is to be added to the times of this host.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Alignment {
    /// Nanoseconds.
    pub(crate) offset: i64,
    /// Nanoseconds by which it may be wrong, when it was found out.
    pub(crate) uncertainty: i64,
}

/// What the offset lies between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    least: i64,
    most: i64,
}

impl Bounds {
    /// Anything.
    pub(crate) const NONE: Self = Self { least: i64::MIN, most: i64::MAX };

    /// Takes in one reduction: when it was entered and left here, and when by rank 0, each by the own clock.
    pub(crate) fn narrow(&mut self, (entered, left): (u64, u64), (first_entered, first_left): (u64, u64)) {
        self.least = self.least.max((first_entered as i64).saturating_sub(left as i64));
        self.most = self.most.min((first_left as i64).saturating_sub(entered as i64));
    }

    /// As two numbers the larger of which, of all ranks of a host, are the bounds of the host.
    pub(crate) fn to_reduce(self) -> [u64; 2] {
        [ordered(self.least), !ordered(self.most)]
    }

    /// The bounds from those.
    pub(crate) fn reduced([least, most]: [u64; 2]) -> Self {
        Self { least: unordered(least), most: unordered(!most) }
    }

    /// The middle.
    pub(crate) fn alignment(self) -> Alignment {
        let half = self.most.saturating_sub(self.least) / 2;
        Alignment { offset: self.least.saturating_add(half), uncertainty: half.max(0) }
    }
}

/// The number of this host's clock: that of its kernel's start, which containers share as they share the clock. Never 0.
pub(crate) fn host_number() -> u64 {
    let of_file = |path| std::fs::read_to_string(path).ok();
    let text = of_file("/proc/sys/kernel/random/boot_id").unwrap_or_else(host_name);
    // FNV-1a.
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, hash) | 1
}

/// The name of this host, for people.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Some(name.trim()).filter(|name| !name.is_empty()).unwrap_or("unknown host").to_owned()
}

/// A number without sign in the same order.
fn ordered(number: i64) -> u64 {
    number as u64 ^ SIGN
}

fn unordered(number: u64) -> i64 {
    (number ^ SIGN) as i64
}

const SIGN: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reductions_bound_the_offset_from_both_sides() {
        // This host's clock is 1000 behind. The first reduction lasts from 5000 to 5100 there, and 40 to 60 here are
        // before and after it.
        let mut bounds = Bounds::NONE;
        bounds.narrow((4010, 4120), (5000, 5100));
        assert_eq!(bounds, Bounds { least: 880, most: 1090 });
        bounds.narrow((5000, 5040), (6010, 6030));
        assert_eq!(bounds, Bounds { least: 970, most: 1030 });
        assert_eq!(bounds.alignment(), Alignment { offset: 1000, uncertainty: 30 });
    }

    #[test]
    fn the_larger_numbers_are_the_narrower_bounds() {
        let ranks = [Bounds { least: -900, most: -100 }, Bounds { least: -800, most: 5 }];
        let [first, second] = ranks.map(Bounds::to_reduce);
        let host = Bounds::reduced([first[0].max(second[0]), first[1].max(second[1])]);
        assert_eq!(host, Bounds { least: -800, most: -100 });
        // Who is of another host gives zeros.
        let [least, most] = host.to_reduce();
        assert!(least > 0 && most > 0);
        assert_eq!(Bounds::reduced(Bounds::NONE.to_reduce()), Bounds::NONE);
    }

    #[test]
    fn the_number_of_a_host_stays() {
        assert_eq!(host_number(), host_number());
        assert_ne!(host_number(), 0);
    }
}
