//! Rows of several programs that measured the same, side by side.

use crate::record::{Record, Unit};
use crate::series::Series;

/// A measurement of ours, and what another program's says beside it.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison<'a> {
    /// Ours.
    pub own: &'a Record,
    /// For each of the others; `None` where it has no such row.
    pub peers: Vec<Option<Standing<'a>>>,
}

/// How ours stands against another's: more than 1 is less time, or a higher rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Standing<'a> {
    /// The other's.
    pub peer: &'a Record,
    /// By medians over rounds.
    pub medians: f64,
    /// By the best rounds.
    pub best: f64,
    /// The median of the ratios of rounds with the same number: what is left when a machine changes its speed.
    pub rounds: f64,
}

/// Puts the rows beside each other; those of ours come first, in their order. The second list are those of others that
/// ours do not have.
pub fn side_by_side<'a>(
    own: &'a [Record],
    peers: &'a [Vec<Record>],
) -> (Vec<Comparison<'a>>, Vec<&'a Record>) {
    let is_same = |one: &Record, other: &Record| one.key == other.key && one.unit == other.unit;
    let compared = own
        .iter()
        .map(|own| {
            let standing = |rows: &'a Vec<Record>| {
                rows.iter().find(|row| is_same(row, own)).map(|peer| Standing::of(own, peer))
            };
            Comparison { own, peers: peers.iter().map(standing).collect() }
        })
        .collect();
    let is_alone = |row: &&Record| !own.iter().any(|own| is_same(own, row));
    (compared, peers.iter().flatten().filter(is_alone).collect())
}

/// The best of the rounds.
pub fn best(record: &Record) -> f64 {
    if record.unit.less_is_better() {
        record.series.least()
    } else {
        record.series.most()
    }
}

impl<'a> Standing<'a> {
    fn of(own: &Record, peer: &'a Record) -> Self {
        let ratio = |own_value: f64, its: f64| gain(own.unit, own_value, its);
        let rounds = own.series.rounds().iter().zip(peer.series.rounds());
        Self {
            peer,
            medians: ratio(own.series.median(), peer.series.median()),
            best: ratio(best(own), best(peer)),
            rounds: Series::new(rounds.map(|(own, its)| ratio(*own, *its))).median(),
        }
    }
}

fn gain(unit: Unit, own: f64, its: f64) -> f64 {
    if unit.less_is_better() {
        its / own
    } else {
        own / its
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn more_than_one_is_better_in_every_unit() {
        let own = [record(8, &[1.0, 2.0, 4.0]), record(16, &[5.0])];
        let mut rate = own.clone();
        rate[0].unit = Unit::Operations;
        let peers = vec![vec![record(8, &[3.0, 6.0, 12.0])]];
        let (compared, alone) = side_by_side(&own, &peers);
        let standing = compared[0].peers[0].unwrap();
        assert_eq!((standing.medians, standing.best, standing.rounds), (3.0, 3.0, 3.0));
        assert!(compared[1].peers[0].is_none() && alone.is_empty());
        let peers = vec![rate[..1].to_vec()];
        let (compared, alone) = side_by_side(&own, &peers);
        assert!(compared[0].peers[0].is_none(), "another unit is another measurement");
        assert_eq!(alone.len(), 1);
        assert_eq!(gain(Unit::Operations, 30.0, 10.0), 3.0);
        assert_eq!((best(&own[0]), best(&rate[0])), (1.0, 4.0));
    }

    #[test]
    fn ratios_of_rounds_do_not_see_a_machine_that_changes_its_speed() {
        let own = [record(8, &[1.0, 4.0, 4.0, 1.0, 4.0])];
        let peers = vec![vec![record(8, &[2.0, 8.0, 8.0, 2.0, 8.0])]];
        let (compared, _) = side_by_side(&own, &peers);
        assert_eq!(compared[0].peers[0].unwrap().rounds, 2.0);
    }
}
