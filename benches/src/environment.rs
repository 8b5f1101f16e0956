//! Where something was measured: without it a number says nothing a week later.

use std::time::{SystemTime, UNIX_EPOCH};

use rma::Job;
use serde_json::{json, Map, Value};

/// What is stored with every row.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Environment {
    values: Map<String, Value>,
}

impl Environment {
    /// Of this job. `settings` are those that are not at their defaults, `places` host and processors of each rank.
    pub fn of(job: &Job, settings: &[(String, String)], places: &[String]) -> Self {
        let provider = job.provider();
        let libfabric = provider.libfabric.as_ref();
        let settings: Map<String, Value> =
            settings.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let values = json!({
            "time": utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())),
            "version": env!("CARGO_PKG_VERSION"),
            "build": if cfg!(debug_assertions) { "debug" } else { "release" },
            "host": first_line("/proc/sys/kernel/hostname"),
            "kernel": first_line("/proc/sys/kernel/osrelease"),
            "processor": processor(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            "processors": std::thread::available_parallelism().map_or(0, usize::from),
            "provider": provider.provider,
            "domain": provider.domain,
            "nic": provider.nic,
            "libfabric": libfabric.map(|((major, minor), _)| format!("{major}.{minor}")),
            "libfabric_file": libfabric.map(|(_, file)| file.display().to_string()),
            "target_progress_needed": provider.limits.needs_target_progress,
            "launcher": job.launcher(),
            "ranks": job.size(),
            "ranks_on_host": job.local_size(),
            "places": places,
            "settings": settings,
        });
        let Value::Object(values) = values else { return Self::default() };
        Self { values }
    }

    /// From a stored row.
    pub fn from_json(value: &Value) -> Self {
        Self { values: value.as_object().cloned().unwrap_or_default() }
    }

    /// As it is stored.
    pub fn to_json(&self) -> Value {
        Value::Object(self.values.clone())
    }

    /// A value as text; empty when it is not known.
    pub fn text(&self, name: &str) -> String {
        match self.values.get(name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(items)) => {
                items.iter().map(|item| item.as_str().unwrap_or_default()).collect::<Vec<_>>().join("; ")
            }
            Some(Value::Object(items)) => {
                let pair = |(name, value): (&String, &Value)| {
                    format!("{name}={}", value.as_str().unwrap_or_default())
                };
                items.iter().map(pair).collect::<Vec<_>>().join(" ")
            }
            Some(other) => other.to_string(),
        }
    }

    /// Names and values, for people, without what is empty.
    pub fn lines(&self) -> Vec<(String, String)> {
        let pairs = self.values.keys().map(|name| (name.replace('_', " "), self.text(name)));
        pairs.filter(|(_, text)| !text.is_empty()).collect()
    }

    /// What differs between two, the time apart: names, and both values.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let line =
            |name: &str| format!("{}: {} / {}", name.replace('_', " "), self.text(name), other.text(name));
        self.differing(other).map(line).collect()
    }

    /// Whether two runs measured the same, so that rounds of one may be counted with those of the other: they differ in
    /// when they ran, and on which hosts and processors of the kind, and in nothing else.
    pub fn is_alike(&self, other: &Self) -> bool {
        self.differing(other).all(|name| ["host", "places"].contains(&name))
    }

    /// The names of values that are not the same, the time apart.
    fn differing<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a str> {
        let names =
            self.values.keys().chain(other.values.keys().filter(|name| !self.values.contains_key(*name)));
        names.map(String::as_str).filter(|name| *name != "time" && self.text(name) != other.text(name))
    }
}

/// This process's host and the processors that it may use.
pub fn place() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    format!("{} processors {}", first_line("/proc/sys/kernel/hostname"), allowed.unwrap_or("?").trim())
}

fn first_line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

fn processor(cpuinfo: &str) -> String {
    let named = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    named.map_or_else(
        || std::env::consts::ARCH.to_owned(),
        |line| line.trim_matches([' ', '\t', ':']).to_owned(),
    )
}

/// Seconds since 1970 as a date and time of day (Howard Hinnant's `civil_from_days`).
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_767_225_599), "2025-12-31T23:59:59Z");
    }

    #[test]
    fn differences_are_named_and_the_time_is_none() {
        let of = |value: Value| Environment::from_json(&value);
        let one = of(json!({"time": "a", "host": "n1", "settings": {"RMA_COALESCE": "0"}, "nic": null}));
        let other = of(json!({"time": "b", "host": "n2", "settings": {"RMA_COALESCE": "0"}}));
        assert_eq!(one.differences(&other), ["host: n1 / n2"]);
        assert!(one.differences(&one).is_empty());
        assert!(one.is_alike(&other), "another host of the kind");
        let over = of(json!({"time": "a", "host": "n1", "settings": {}, "provider": "tcp"}));
        assert!(!one.is_alike(&over) && !over.is_alike(&one), "over another provider, with another setting");
        assert_eq!(one.text("settings"), "RMA_COALESCE=0");
        assert!(one.lines().iter().all(|(name, _)| name != "nic"));
        assert_eq!(Environment::from_json(&one.to_json()), one);
    }

    #[test]
    fn the_processor_is_named_where_the_host_says_so() {
        assert_eq!(processor("processor\t: 0\nmodel name\t: A B\n"), "A B");
        assert_eq!(processor(""), std::env::consts::ARCH);
        assert!(place().contains("processors"));
    }
}
