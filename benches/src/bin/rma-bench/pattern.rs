//! Who accesses whom.

use rma::Rank;

/// How ranks are matched.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pattern {
    /// Rank i of the lower half accesses rank i of the upper half
    Pairs,
    /// Rank 0 accesses all others
    OneToAll,
    /// All others access rank 0
    AllToOne,
    /// Each rank accesses the one before and the one behind it, in a ring
    Neighbours,
    /// As pairs, and both ranks of a pair access each other at the same time
    #[value(skip)]
    Exchange,
}

impl Pattern {
    /// As it is given and stored.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Pairs => "pairs",
            Self::OneToAll => "one-to-all",
            Self::AllToOne => "all-to-one",
            Self::Neighbours => "neighbours",
            Self::Exchange => "exchange",
        }
    }
}

/// On which side of an exchange a rank is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// It accesses.
    Origin,
    /// It is accessed.
    Target,
    /// It accesses and is accessed.
    Both,
    /// It takes part in what is collective.
    Neither,
}

/// What one rank does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) side: Side,
    /// The ranks that it accesses, or is accessed by, or both.
    pub(crate) partners: Vec<Rank>,
}

impl Part {
    /// The part of `rank` among `ranks`, of whom at most `pairs` pairs are active in patterns of pairs.
    pub(crate) fn new(pattern: Pattern, rank: Rank, ranks: u32, pairs: u32) -> Self {
        let others = |leaves_out: Rank| (0..ranks).map(Rank).filter(|&other| other != leaves_out).collect();
        let half = ranks / 2;
        let active = pairs.min(half);
        let (side, partners) = match pattern {
            Pattern::Pairs | Pattern::Exchange => {
                let sides = if pattern == Pattern::Pairs {
                    (Side::Origin, Side::Target)
                } else {
                    (Side::Both, Side::Both)
                };
                if rank.0 < active {
                    (sides.0, vec![Rank(rank.0 + half)])
                } else if rank.0 >= half && rank.0 - half < active {
                    (sides.1, vec![Rank(rank.0 - half)])
                } else {
                    (Side::Neither, Vec::new())
                }
            }
            Pattern::OneToAll if rank.0 == 0 => (Side::Origin, others(rank)),
            Pattern::OneToAll => (Side::Target, vec![Rank(0)]),
            Pattern::AllToOne if rank.0 == 0 => (Side::Target, others(rank)),
            Pattern::AllToOne => (Side::Origin, vec![Rank(0)]),
            Pattern::Neighbours => {
                let mut partners = vec![Rank((rank.0 + ranks - 1) % ranks), Rank((rank.0 + 1) % ranks)];
                partners.sort_unstable();
                partners.dedup();
                (Side::Both, partners)
            }
        };
        Self { side, partners }
    }

    /// Whether the rank accesses others.
    pub(crate) fn is_origin(&self) -> bool {
        matches!(self.side, Side::Origin | Side::Both)
    }

    /// At which place of its partner's window `rank` works: no two partners share one.
    pub(crate) fn place_at(&self, rank: Rank) -> usize {
        self.partners.iter().position(|&partner| partner == rank).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Pattern; 5] =
        [Pattern::Pairs, Pattern::OneToAll, Pattern::AllToOne, Pattern::Neighbours, Pattern::Exchange];

    #[test]
    fn every_access_has_its_other_side() {
        for (pattern, ranks) in ALL.into_iter().flat_map(|pattern| (2..8).map(move |ranks| (pattern, ranks)))
        {
            for rank in (0..ranks).map(Rank) {
                let part = Part::new(pattern, rank, ranks, u32::MAX);
                for &partner in &part.partners {
                    let other = Part::new(pattern, partner, ranks, u32::MAX);
                    assert_ne!(partner, rank);
                    assert!(other.partners.contains(&rank), "{pattern:?} {ranks}: {rank} {partner}");
                    let fits = match part.side {
                        Side::Origin => other.side == Side::Target,
                        Side::Target => other.side == Side::Origin,
                        Side::Both => other.side == Side::Both,
                        Side::Neither => false,
                    };
                    assert!(fits, "{pattern:?} {ranks}: {rank} {partner}");
                }
            }
        }
    }

    #[test]
    fn partners_work_at_places_of_their_own() {
        let target = Part::new(Pattern::AllToOne, Rank(0), 4, 1);
        let places: Vec<usize> = [1, 2, 3].map(|rank| target.place_at(Rank(rank))).to_vec();
        assert_eq!(places, [0, 1, 2]);
        assert_eq!(Part::new(Pattern::Neighbours, Rank(1), 2, 1).partners, [Rank(0)]);
    }

    #[test]
    fn pairs_beyond_those_asked_for_and_an_odd_rank_only_join_in() {
        let side = |rank| Part::new(Pattern::Pairs, Rank(rank), 5, 1).side;
        assert_eq!(
            [0, 1, 2, 3, 4].map(side),
            [Side::Origin, Side::Neither, Side::Target, Side::Neither, Side::Neither]
        );
    }
}
