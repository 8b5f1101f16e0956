//! Which ranks are on a host, as text: `0-3,8` are five.

use std::fmt::Write;
use std::sync::Arc;

use rma_core::ids::Rank;

/// Most ranks of a host: Linux has no more processes.
pub const NEIGHBOURS_MAX: u32 = 1 << 22;

/// The text for these ranks, which are in order.
pub fn describe(ranks: &[u32]) -> String {
    let mut text = String::new();
    for run in ranks.chunk_by(|rank, next| rank.checked_add(1) == Some(*next)) {
        let (first, last) = (run[0], run[run.len() - 1]);
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string does not fail.
        let _ = match run.len() {
            1 => write!(text, "{comma}{first}"),
            _ => write!(text, "{comma}{first}-{last}"),
        };
    }
    text
}

/// The ranks in a text of [`describe`], if they are in order and `count`, of which there are at most
/// [`NEIGHBOURS_MAX`].
pub fn parse(text: &str, count: u32) -> Option<Arc<[u32]>> {
    let left = |ranks: &[u32]| (count.min(NEIGHBOURS_MAX) as usize).checked_sub(ranks.len());
    let mut ranks: Vec<u32> = Vec::new();
    for run in text.split(',') {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let (first, last) = (number(first)?, number(last)?);
        let is_behind = ranks.last().is_none_or(|before| *before < first);
        let len = u64::from(last.checked_sub(first)?) + 1;
        if !is_behind || len > left(&ranks)? as u64 {
            return None;
        }
        ranks.extend(first..=last);
    }
    (ranks.len() == count as usize).then(|| ranks.into())
}

/// The ranks on the host of `rank`, of which there are `count`: what a launcher has `said`, if it can be and is
/// necessary.
pub(crate) fn of_job(rank: u32, size: u32, count: u32, said: &[u32]) -> Option<Vec<Rank>> {
    if count > NEIGHBOURS_MAX {
        return None;
    }
    if count == size {
        return Some((0..size).map(Rank).collect());
    }
    if count == 1 {
        return Some(vec![Rank(rank)]);
    }
    let is_ordered = said.is_sorted_by(|one, next| one < next);
    let is_of_job = said.last().is_some_and(|last| *last < size) && said.binary_search(&rank).is_ok();
    let fits = is_ordered && is_of_job && said.len() == count as usize;
    fits.then(|| said.iter().copied().map(Rank).collect())
}

/// Digits only: no sign.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_described_is_understood() {
        for (ranks, text) in [
            (&[0, 1, 2, 3, 8][..], "0-3,8"),
            (&[7], "7"),
            (&[0, 2, 4], "0,2,4"),
            (&[5, 6], "5-6"),
            (&[u32::MAX - 1, u32::MAX], "4294967294-4294967295"),
        ] {
            assert_eq!(describe(ranks), text);
            assert_eq!(parse(text, ranks.len() as u32).as_deref(), Some(ranks));
            assert_eq!(parse(text, ranks.len() as u32 + 1), None);
            assert_eq!(parse(text, ranks.len() as u32 - 1), None);
        }
    }

    #[test]
    fn what_is_no_list() {
        for text in
            ["", ",", "1,", "3-1", "1-", "-1", "+1", "a", "1,1", "2,1", "0-1,1", "0-1-2", "4294967296"]
        {
            for count in 0..4 {
                assert_eq!(parse(text, count), None, "{text}");
            }
        }
        assert_eq!(parse("0-4294967294", u32::MAX), None, "more than a host has");
    }

    #[test]
    fn the_launcher_is_believed_where_it_is_needed_and_can_be_right() {
        let of = |rank, size, count, said: &[u32]| {
            of_job(rank, size, count, said).map(|ranks| ranks.iter().map(|rank| rank.0).collect::<Vec<_>>())
        };
        assert_eq!(of(2, 4, 4, &[]), Some(vec![0, 1, 2, 3]));
        assert_eq!(of(2, 4, 1, &[]), Some(vec![2]));
        assert_eq!(of(2, 4, 2, &[0, 2]), Some(vec![0, 2]));
        for said in [&[][..], &[0, 1], &[2, 0], &[2, 2], &[0, 1, 2], &[2, 4]] {
            assert_eq!(of(2, 4, 2, said), None, "{said:?}");
        }
        assert_eq!(of(0, u32::MAX, u32::MAX, &[]), None);
    }
}
