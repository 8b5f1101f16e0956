//! Which family of IP addresses a job uses: an endpoint speaks IPv4 or IPv6, so all ranks have the same. Each rank says
//! what it has found out about both, and what all have said is put together along a tree of ranks: nobody asks for more
//! than a few values, however many ranks there are.

use std::fs;
use std::net::IpAddr;

use rma_core::bootstrap::BootstrapError;
use rma_core::ids::Rank;

use crate::member::Sharing;
use crate::reach::await_values;

/// A family of addresses, the one that is preferred first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    V4,
    V6,
}

/// All of them, in the order of indices.
pub(crate) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

impl Family {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

/// What is known about a family. Of several ranks the least counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Chance {
    /// It does not serve.
    None,
    /// There are addresses, and nothing has got through in the time in which the other family did.
    Open,
    /// It serves, or nobody has a reason to say that it does not.
    Good,
}

/// What one rank says, or several together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ballot {
    chances: [Chance; 2],
    /// Why a family does not serve: the first reason that somebody gave.
    reasons: [String; 2],
}

/// Longest reason, in bytes: both fit a value.
const REASON_BYTES_MAX: usize = 240;

/// How many ranks' ballots one of them puts together at a time. They are asked for at once, and there are as many
/// requests.
const FAN: u32 = 32;

impl Ballot {
    /// What nobody has a reason against.
    pub(crate) fn blank() -> Self {
        Self { chances: [Chance::Good; 2], reasons: Default::default() }
    }

    /// Says what is known about a family. The reason is read where there is no chance.
    pub(crate) fn say(&mut self, family: Family, chance: Chance, reason: &str) {
        self.chances[family as usize] = chance;
        if chance == Chance::None {
            let end =
                (0..=REASON_BYTES_MAX.min(reason.len())).rev().find(|&end| reason.is_char_boundary(end));
            self.reasons[family as usize] = reason[..end.unwrap_or(0)].to_owned();
        }
    }

    fn add(&mut self, other: Self) {
        for (index, reason) in other.reasons.into_iter().enumerate() {
            self.chances[index] = self.chances[index].min(other.chances[index]);
            if self.reasons[index].is_empty() {
                self.reasons[index] = reason;
            }
        }
    }

    /// The family that serves all, IPv4 where both do.
    ///
    /// # Errors
    /// When none does; the message says who has not got which.
    pub(crate) fn verdict(&self) -> Result<Family, String> {
        let best = self.chances[0].max(self.chances[1]);
        match FAMILIES.into_iter().find(|family| self.chances[*family as usize] == best) {
            Some(family) if best != Chance::None => Ok(family),
            _ => Err(format!(
                "an endpoint speaks IPv4 or IPv6, and neither serves all hosts of the job:\n  IPv4: {}\n  IPv6: {}\n\
                 give all hosts addresses of one of them, or leave out those that have not got it",
                self.reasons[0], self.reasons[1]
            )),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.chances.iter().map(|chance| *chance as u8).collect();
        for reason in &self.reasons {
            bytes.push(reason.len() as u8);
            bytes.extend(reason.as_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (chances, mut rest) = bytes.split_first_chunk::<2>()?;
        let chance =
            |byte: u8| [Chance::None, Chance::Open, Chance::Good].into_iter().find(|it| *it as u8 == byte);
        let mut ballot =
            Self { chances: [chance(chances[0])?, chance(chances[1])?], reasons: Default::default() };
        for reason in &mut ballot.reasons {
            let (len, more) = rest.split_first()?;
            let (text, more) = more.split_at_checked(usize::from(*len))?;
            // For people: what is none of it is shown as such.
            *reason = String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).collect();
            rest = more;
        }
        rest.is_empty().then_some(ballot)
    }
}

/// What all ranks have said together. Every rank calls it; blocks until all have.
///
/// # Errors
/// When the launcher is gone, or a rank does not call it within the time limit.
pub(crate) fn agree(member: &mut dyn Sharing, own: Ballot) -> Result<Ballot, BootstrapError> {
    let (rank, size) = (member.rank().0, member.size());
    let mut all = own;
    let mut stride = 1;
    while stride < size {
        let above = stride.saturating_mul(FAN);
        let key = format!("{KEY}-{stride}");
        let speaks = rank % stride == 0 && rank % above != 0;
        member.share(&key, speaks.then(|| all.encode()).as_deref())?;
        if rank % above == 0 {
            let below: Vec<Rank> = (1..FAN)
                .map_while(|index| rank.checked_add(stride.checked_mul(index)?).filter(|below| *below < size))
                .map(Rank)
                .collect();
            for value in await_values(member, &below, &key)? {
                all.add(decode(&value)?);
            }
        }
        stride = above;
    }
    member.share(KEY, (rank == 0).then(|| all.encode()).as_deref())?;
    // Rank 0 as well: behind the look-up the barrier is over, where there is one.
    decode(&await_values(member, &[Rank(0)], KEY)?.concat())
}

fn decode(value: &[u8]) -> Result<Ballot, BootstrapError> {
    Ballot::decode(value).ok_or_else(|| BootstrapError {
        message: "what another rank says about its addresses is malformed; do all ranks use the same version of this \
                  program?"
            .to_owned(),
    })
}

/// The key of what all have said; with a number behind it, of what some have.
const KEY: &str = "family";

/// How this host is called, for people.
pub(crate) fn name_of_host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ballot(v4: Chance, v6: Chance, name: &str) -> Ballot {
        let mut ballot = Ballot::blank();
        ballot.say(Family::V4, v4, &format!("{name} has no IPv4"));
        ballot.say(Family::V6, v6, &format!("{name} has no IPv6"));
        ballot
    }

    fn together(ballots: &[Ballot]) -> Result<Family, String> {
        let mut all = Ballot::blank();
        ballots.iter().for_each(|ballot| all.add(ballot.clone()));
        all.verdict()
    }

    #[test]
    fn the_family_that_serves_all_is_taken() {
        use Chance::{Good, None, Open};
        let both = ballot(Good, Good, "a");
        assert_eq!(together(&[both.clone(), both.clone()]), Ok(Family::V4));
        assert_eq!(together(&[both.clone(), ballot(None, Good, "b"), both.clone()]), Ok(Family::V6));
        assert_eq!(together(&[both.clone(), ballot(Good, None, "b")]), Ok(Family::V4));
        // What has got through at all comes before what may; that, before nothing.
        assert_eq!(together(&[both.clone(), ballot(Open, Good, "b")]), Ok(Family::V6));
        assert_eq!(together(&[ballot(None, Open, "b"), ballot(Good, Good, "c")]), Ok(Family::V6));
    }

    #[test]
    fn where_none_serves_all_those_who_have_not_got_it_are_named() {
        use Chance::{Good, None};
        let error = together(&[ballot(Good, Good, "a"), ballot(None, Good, "b"), ballot(Good, None, "c")]);
        let error = error.unwrap_err();
        assert!(error.contains("IPv4: b has no IPv4\n  IPv6: c has no IPv6\n"), "{error}");
    }

    #[test]
    fn ballots_survive_the_trip_and_others_are_none() {
        let mut some = ballot(Chance::None, Chance::Open, "b");
        some.say(Family::V6, Chance::None, &"ü".repeat(200));
        let bytes = some.encode();
        assert_eq!(Ballot::decode(&bytes), Some(some));
        assert!(bytes.len() <= crate::wire::VALUE_BYTES_MAX);
        (0..bytes.len()).for_each(|len| assert_eq!(Ballot::decode(&bytes[..len]), None, "{len}"));
        assert_eq!(Ballot::decode(&[bytes, vec![0]].concat()), None);
        assert_eq!(Ballot::decode(&[3, 0, 0, 0]), None);
    }
}
