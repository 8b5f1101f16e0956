//! One measured row, as it is stored, read again and compared.

use serde_json::{json, Map, Value};

use crate::environment::Environment;
use crate::series::Series;

/// What a row's values count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Microseconds; less is better.
    Microseconds,
    /// Millions of bytes a second, as OSU's MB/s; more is better.
    Megabytes,
    /// Operations a second; more is better.
    Operations,
    /// A share between 0 and 1; more is better.
    Share,
}

impl Unit {
    const ALL: [Self; 4] = [Self::Microseconds, Self::Megabytes, Self::Operations, Self::Share];

    /// As it is stored and printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Microseconds => "us",
            Self::Megabytes => "MB/s",
            Self::Operations => "op/s",
            Self::Share => "share",
        }
    }

    /// Whether a smaller value is a better one.
    pub const fn less_is_better(self) -> bool {
        matches!(self, Self::Microseconds)
    }

    /// Digits after the point in tables.
    pub const fn digits(self) -> usize {
        match self {
            Self::Microseconds | Self::Megabytes => 2,
            Self::Operations => 0,
            Self::Share => 3,
        }
    }
}

/// One row.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    /// What was measured: names and values, in the order of columns. Rows with the same are the same measurement.
    pub key: Map<String, Value>,
    /// What the values count.
    pub unit: Unit,
    /// A value for each round.
    pub series: Series,
    /// Further numbers about it, such as `p99`; in the row's unit.
    pub details: Map<String, Value>,
    /// Where it was measured.
    pub environment: Environment,
}

impl Record {
    /// One JSON object.
    pub fn to_json(&self) -> Value {
        let interval = self.series.interval();
        let mut row = self.key.clone();
        let own = json!({
            "unit": self.unit.name(),
            "median": rounded(self.series.median()),
            "low": rounded(interval.low),
            "high": rounded(interval.high),
            "confidence": rounded(interval.confidence),
            "rounds": self.series.rounds().iter().copied().map(rounded).collect::<Vec<_>>(),
        });
        row.extend(own.as_object().cloned().unwrap_or_default());
        row.extend(self.details.clone());
        row.insert("environment".to_owned(), self.environment.to_json());
        Value::Object(row)
    }

    /// From one JSON object.
    ///
    /// # Errors
    /// When it is not a row that this program has written.
    pub fn from_json(value: &Value) -> Result<Self, String> {
        let row = value.as_object().ok_or("no JSON object")?;
        let unit = row.get("unit").and_then(Value::as_str).ok_or("no \"unit\"")?;
        let unit = Unit::ALL.into_iter().find(|known| known.name() == unit);
        let unit = unit.ok_or("a \"unit\" that this version does not know")?;
        let rounds = row.get("rounds").and_then(Value::as_array).ok_or("no list \"rounds\"")?;
        let series = Series::new(rounds.iter().filter_map(Value::as_f64));
        if series.rounds().is_empty() {
            return Err("no number in \"rounds\"".to_owned());
        }
        let own = |name: &str| OWN.contains(&name);
        let key =
            row.iter().take_while(|(name, _)| !own(name)).map(|(name, value)| (name.clone(), value.clone()));
        let details = row.iter().skip_while(|(name, _)| !own(name)).filter(|(name, _)| !own(name));
        Ok(Self {
            key: key.collect(),
            unit,
            series,
            details: details.map(|(name, value)| (name.clone(), value.clone())).collect(),
            environment: Environment::from_json(row.get("environment").unwrap_or(&Value::Null)),
        })
    }

    /// A value of the key as text; empty when it has none of this name.
    pub fn text(&self, name: &str) -> String {
        self.key.get(name).map(plain).unwrap_or_default()
    }

    /// The key in one line: names and values but for `without`.
    pub fn title(&self, without: &[&str]) -> String {
        let pairs = self.key.iter().filter(|(name, _)| !without.contains(&name.as_str()));
        let pairs = pairs.map(|(name, value)| match name.as_str() {
            "benchmark" | "operation" => plain(value),
            _ => format!("{} {}", name.replace('_', " "), plain(value)),
        });
        pairs.collect::<Vec<_>>().join(", ")
    }
}

/// A value without JSON's quotes.
pub fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A number with the digits that mean something: six.
pub fn rounded(value: f64) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    format!("{value:.5e}").parse::<f64>().map_or(Value::Null, |value| json!(value))
}

/// Names that every row has behind its key.
const OWN: [&str; 7] = ["unit", "median", "low", "high", "confidence", "rounds", "environment"];

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn record(size: u64, rounds: &[f64]) -> Record {
        let key = json!({"benchmark": "latency", "operation": "put", "window": "allocate", "size": size});
        Record {
            key: key.as_object().cloned().unwrap(),
            unit: Unit::Microseconds,
            series: Series::new(rounds.iter().copied()),
            details: json!({"p99": 9.5}).as_object().cloned().unwrap(),
            environment: Environment::from_json(&json!({"host": "n1"})),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let record = record(8, &[1.0, 2.0, 1.5]);
        let text = record.to_json().to_string();
        let read = Record::from_json(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(read, record);
        assert_eq!(read.title(&["size"]), "latency, put, window allocate");
        assert_eq!(read.text("size"), "8");
    }

    #[test]
    fn other_objects_are_refused_with_the_reason() {
        for (wrong, reason) in [
            ("3", "no JSON object"),
            ("{}", "unit"),
            (r#"{"unit":"miles","rounds":[1]}"#, "does not know"),
            (r#"{"unit":"us"}"#, "rounds"),
            (r#"{"unit":"us","rounds":["x"]}"#, "no number"),
        ] {
            let error = Record::from_json(&serde_json::from_str(wrong).unwrap()).unwrap_err();
            assert!(error.contains(reason), "{wrong}: {error}");
        }
    }

    #[test]
    fn six_digits_are_kept() {
        assert_eq!(rounded(1.234_567_89), json!(1.23457));
        assert_eq!(rounded(123_456_789.0), json!(123_457_000.0));
        assert_eq!(rounded(f64::NAN), Value::Null);
    }
}
