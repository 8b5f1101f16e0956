//! What is different between two sets of rows, beyond what differs by chance.

use serde_json::{Map, Value};

use crate::record::{rounded, Record};
use crate::series::Series;

/// Reads rows, one JSON object a line; lines that hold something else are counted and left out.
///
/// # Errors
/// When a line is no JSON at all; the error has its number.
pub fn read(text: &str) -> Result<(Vec<Record>, usize), String> {
    let (mut records, mut others) = (Vec::new(), 0);
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        let value: Value = serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))?;
        match Record::from_json(&value) {
            Ok(record) => records.push(record),
            Err(_) => others += 1,
        }
    }
    Ok((merged(records), others))
}

/// Rows of the same measurement become one with the rounds of all, in the order in which they first came. What was measured
/// over another provider, or in another way elsewhere, is another measurement.
fn merged(records: Vec<Record>) -> Vec<Record> {
    let mut merged: Vec<Record> = Vec::new();
    for record in records {
        let is_same = |other: &Record| {
            other.key == record.key
                && other.unit == record.unit
                && other.environment.is_alike(&record.environment)
        };
        match merged.iter_mut().find(|other| is_same(other)) {
            Some(first) => {
                let rounds = first.series.rounds().iter().chain(record.series.rounds()).copied();
                first.series = Series::new(rounds.collect::<Vec<_>>());
                merge_details(&mut first.details, &record.details);
            }
            None => merged.push(record),
        }
    }
    merged
}

/// Of several runs' numbers about a row those that are true of all of them together; the others stay the first run's.
fn merge_details(all: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (name, value) in all {
        let (Some(own), Some(other)) = (value.as_f64(), more.get(name).and_then(Value::as_f64)) else {
            continue;
        };
        // The 99th percentile of all lies between those of the runs: the greater is a bound.
        let merged = match name.as_str() {
            "min" => own.min(other),
            "max" | "p99" => own.max(other),
            "epochs" | "stale" | "warm_up" => {
                *value = Value::from((own + other) as u64);
                continue;
            }
            _ => continue,
        };
        *value = rounded(merged);
    }
}

/// What has become of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Less time, or more of what is better the more there is.
    Better,
    /// The other way.
    Worse,
    /// Nothing that could not be chance.
    Same,
}

impl Verdict {
    /// As it is printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Same => "same",
        }
    }
}

/// A row that both sets have.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    /// The row before.
    pub before: &'a Record,
    /// The row after.
    pub after: &'a Record,
    /// The median after by the median before.
    pub ratio: f64,
    /// Between what and what the ratio lies, by both intervals.
    pub range: (f64, f64),
    /// What has become of it.
    pub verdict: Verdict,
}

impl<'a> Change<'a> {
    fn new(before: &'a Record, after: &'a Record, at_least: f64) -> Self {
        let (old, new) = (before.series.interval(), after.series.interval());
        let ratio = after.series.median() / before.series.median();
        let range = (new.low / old.high, new.high / old.low);
        let is_apart = range.0 > 1.0 || range.1 < 1.0;
        let is_enough = (ratio - 1.0).abs() >= at_least;
        let verdict = match is_apart && is_enough {
            true if (ratio < 1.0) == before.unit.less_is_better() => Verdict::Better,
            true => Verdict::Worse,
            false => Verdict::Same,
        };
        Self { before, after, ratio, range, verdict }
    }
}

/// The rows that both have, and how many only one has. Where a set has the same measurement from several environments, each
/// row stands beside the one whose environment is most like its own.
///
/// `at_least` is the share by which a median has to differ, such as 0.02.
pub fn changes<'a>(before: &'a [Record], after: &'a [Record], at_least: f64) -> (Vec<Change<'a>>, usize) {
    let mut pairs: Vec<(usize, usize, usize)> = Vec::new();
    for (old, record) in before.iter().enumerate() {
        for (new, other) in after.iter().enumerate() {
            if record.key == other.key && record.unit == other.unit {
                pairs.push((record.environment.differences(&other.environment).len(), old, new));
            }
        }
    }
    // Those that have least between them first; what is taken is taken.
    pairs.sort_unstable();
    let (mut partners, mut is_taken) = (vec![None; before.len()], vec![false; after.len()]);
    for (_, old, new) in pairs {
        if partners[old].is_none() && !is_taken[new] {
            partners[old] = Some(new);
            is_taken[new] = true;
        }
    }
    let both = before.iter().zip(&partners).filter_map(|(old, new)| Some((old, &after[(*new)?])));
    let changes: Vec<Change<'a>> = both.map(|(old, new)| Change::new(old, new, at_least)).collect();
    let alone = before.len() + after.len() - 2 * changes.len();
    (changes, alone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;
    use crate::record::Unit;
    use serde_json::json;

    fn verdict(before: &[f64], after: &[f64], unit: Unit) -> Verdict {
        let of = |rounds: &[f64]| [Record { unit, ..record(8, rounds) }];
        let (before, after) = (of(before), of(after));
        let (changes, alone) = changes(&before, &after, 0.02);
        assert_eq!((changes.len(), alone), (1, 0));
        changes[0].verdict
    }

    const SLOW: [f64; 6] = [10.0, 10.1, 10.2, 10.0, 10.1, 10.3];
    const FAST: [f64; 6] = [9.0, 9.1, 9.2, 9.0, 9.1, 9.3];

    #[test]
    fn less_time_is_better_and_less_bandwidth_worse() {
        assert_eq!(verdict(&SLOW, &FAST, Unit::Microseconds), Verdict::Better);
        assert_eq!(verdict(&FAST, &SLOW, Unit::Microseconds), Verdict::Worse);
        assert_eq!(verdict(&SLOW, &FAST, Unit::Megabytes), Verdict::Worse);
        assert_eq!(verdict(&FAST, &SLOW, Unit::Operations), Verdict::Better);
    }

    #[test]
    fn noise_is_no_change() {
        // A machine with two speeds: the medians differ, the intervals hold each other.
        let noisy = [7.9, 11.4, 7.9, 11.5, 11.4, 8.0];
        assert_eq!(verdict(&SLOW, &noisy, Unit::Microseconds), Verdict::Same);
        assert_eq!(verdict(&SLOW, &SLOW, Unit::Microseconds), Verdict::Same);
        let tiny = SLOW.map(|value| value * 0.99);
        assert_eq!(verdict(&[10.0; 6], &[9.9; 6], Unit::Microseconds), Verdict::Same);
        assert_eq!(verdict(&SLOW, &tiny, Unit::Microseconds), Verdict::Same);
    }

    /// The same measurement over a provider.
    fn over(provider: &str, rounds: &[f64]) -> Record {
        let environment =
            crate::environment::Environment::from_json(&json!({"host": "n1", "provider": provider}));
        Record { environment, ..record(8, rounds) }
    }

    #[test]
    fn providers_are_not_mixed() {
        let text: String = ["shm", "tcp", "shm"]
            .iter()
            .map(|name| over(name, &[1.0]).to_json().to_string() + "\n")
            .collect();
        let (records, _) = read(&text).unwrap();
        let rounds: Vec<usize> = records.iter().map(|record| record.series.rounds().len()).collect();
        assert_eq!(rounds, [2, 1], "two rounds over shm, one over tcp");
    }

    #[test]
    fn each_row_stands_beside_the_one_that_is_most_like_it() {
        let (before, after) =
            ([over("shm", &[1.0]), over("tcp", &[8.0])], [over("tcp", &[9.0]), over("shm", &[2.0])]);
        let (both, alone) = changes(&before, &after, 0.0);
        let ratios: Vec<f64> = both.iter().map(|change| change.ratio).collect();
        assert_eq!((ratios, alone), (vec![2.0, 1.125], 0));
        let (one, alone) = changes(&before, &after[..1], 0.0);
        assert_eq!((one.len(), one[0].ratio, alone), (1, 1.125, 1), "shm has nothing beside it");
        let (other, _) = changes(&before[..1], &after[..1], 0.0);
        assert_eq!(other[0].ratio, 9.0, "who compares two providers compares two providers");
    }

    #[test]
    fn rows_of_several_runs_are_one() {
        let line = |size, rounds: &[f64]| record(size, rounds).to_json().to_string();
        let text =
            format!("{}\n\n{}\n{{\"epoch\":1}}\n{}\n", line(8, &[1.0]), line(16, &[2.0]), line(8, &[3.0]));
        let (records, others) = read(&text).unwrap();
        assert_eq!((records.len(), others), (2, 1));
        assert_eq!(records[0].series.rounds(), [1.0, 3.0]);
        let (changes, alone) = changes(&records, &records[..1], 0.0);
        assert_eq!((changes.len(), alone), (1, 1));
        let mut other = record(8, &[3.0]);
        other.details.extend([("p99".to_owned(), rounded(12.5)), ("min".to_owned(), rounded(0.5))]);
        let text = format!("{}\n{}\n", line(8, &[1.0]), other.to_json());
        let (records, _) = read(&text).unwrap();
        assert_eq!((&records[0].details["p99"], records[0].details.get("min")), (&rounded(12.5), None));
        assert!(read("{\n").unwrap_err().starts_with("line 1"));
    }
}
