//! The only source of chance in a simulation: a small seeded generator (xoshiro256** seeded by
//! splitmix64), so that a seed means the same run on every machine and with every compiler.

/// A deterministic random number generator. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The generator that `seed` names. Nearby seeds give unrelated sequences.
    pub fn new(seed: u64) -> Self {
        let mut mixed = seed;
        let state = [(); 4].map(|()| split_mix(&mut mixed));
        Self { state }
    }

    /// A generator of its own for one part of a simulation, so that drawing more numbers in one part
    /// does not change what another part draws.
    pub fn fork(&mut self) -> Self {
        Self::new(self.bits())
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let [_, s1, ..] = self.state;
        let out = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = s1 << 17;
        self.state[2] ^= self.state[0];
        self.state[3] ^= self.state[1];
        self.state[1] ^= self.state[2];
        self.state[0] ^= self.state[3];
        self.state[2] ^= shifted;
        self.state[3] = self.state[3].rotate_left(45);
        out
    }

    /// A number in `0..bound`; 0 when `bound` is 0. The bias of the multiplication is far below what
    /// a simulation could notice.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// An index of something that has `len` entries; 0 when there are none.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number in `low..=high`.
    #[inline]
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        debug_assert!(low <= high, "an empty range has no member");
        low + self.below((high - low).saturating_add(1))
    }

    /// True `per_mille` times out of 1000.
    #[inline]
    pub fn chance(&mut self, per_mille: u32) -> bool {
        per_mille != 0 && self.below(1000) < u64::from(per_mille)
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// When there is nothing to choose from.
    #[inline]
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.bits().to_le_bytes()[..chunk.len()]);
        }
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_one_sequence() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [random.bits(), random.bits(), random.bits()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut random = Random::new(1);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            seen[random.index(5)] = true;
            assert!((3..=4).contains(&random.between(3, 4)));
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(random.below(0), 0);
        assert!(!random.chance(0));
        assert!(random.chance(1000));
    }
}
