//! Counts compared with those in a file, and the table of a page with the file.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde_json::{Map, Value};

use crate::{table, Measured, SYSTEM_CALLS};

/// Compares with the file. `false`: something costs more, was not counted or is not in the file, or the page is not the
/// file's; with `skip_nothing` also, that something cannot be compared here.
pub(crate) fn check(
    file: &Path,
    page: Option<&Path>,
    measured: &Measured,
    skip_nothing: bool,
) -> Result<bool, String> {
    let recorded = read(file)?;
    let skipped = skipped(&recorded, measured);
    let (_, reason) = &skipped;
    if let Some(reason) = reason {
        let failed = if skip_nothing { "FAILED, as nothing may be skipped here" } else { "skipped" };
        println!("{failed}: {reason}");
    }
    let epochs = recorded["epochs"].as_object().ok_or_else(|| wrong(file, "no \"epochs\""))?;
    let differences = compare(epochs, &measured.counts, skipped.0);
    print!("{}", differences.text);
    if differences.failures > 0 {
        println!(
            "{} counts rose, are new or were not measured; where it is meant, run ci/counts.sh --update",
            differences.failures
        );
    } else if !differences.text.is_empty() {
        println!("update the file: ci/counts.sh --update");
    } else if reason.is_some() {
        println!("all other counts of {} epochs are those of {}", epochs_of(epochs), file.display());
    } else {
        println!("all counts of {} epochs are those of {}", epochs_of(epochs), file.display());
    }
    let mut is_fine = differences.failures == 0 && (reason.is_none() || !skip_nothing);
    if let Some(page) = page {
        let (text, expected) = page_with(page, epochs)?;
        if text != expected {
            println!(
                "the table of {} is not that of {}: ci/counts.sh --update",
                page.display(),
                file.display()
            );
            is_fine = false;
        }
    }
    Ok(is_fine)
}

/// Counts of the file that are not compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Skipped {
    Nothing,
    /// System calls, over this fabric or all.
    SystemCalls(Option<&'static str>),
}

impl Skipped {
    fn has(self, fabric: &str, name: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::SystemCalls(over) => name == SYSTEM_CALLS && over.is_none_or(|over| over == fabric),
        }
    }
}

/// What cannot be compared here, and why.
fn skipped(recorded: &Value, measured: &Measured) -> (Skipped, Option<String>) {
    let (now, then) = (&measured.libfabric, &recorded["libfabric"]);
    match &measured.calls {
        Err(reason) => (Skipped::SystemCalls(None), Some(format!("system calls are not compared: {reason}"))),
        // What the library does for a packet is the library's.
        Ok(_) if then != now.as_str() => (
            Skipped::SystemCalls(Some("tcp")),
            Some(format!(
                "system calls over tcp are not compared: of libfabric {now}, in the file of {then}"
            )),
        ),
        Ok(_) => (Skipped::Nothing, None),
    }
}

fn epochs_of(fabrics: &Map<String, Value>) -> usize {
    fabrics.values().filter_map(Value::as_object).map(Map::len).sum()
}

/// What is not as it was.
#[derive(Debug, Default, PartialEq, Eq)]
struct Differences {
    /// A line for each.
    text: String,
    /// Those that are not falls.
    failures: usize,
}

/// Compares every count of either side.
fn compare(file: &Map<String, Value>, now: &Map<String, Value>, skipped: Skipped) -> Differences {
    let (then, now) = (flat(file), flat(now));
    let gone = then.keys().filter(|key| !now.contains_key(*key));
    let mut differences = Differences::default();
    for &key in now.keys().chain(gone) {
        let (fabric, epoch, name) = key;
        let (then, now) = (then.get(&key), now.get(&key));
        if skipped.has(fabric, name) || then == now {
            continue;
        }
        let number = |count: Option<&&Value>| count.and_then(|count| count.as_u64());
        let verdict = match (number(then), number(now)) {
            (Some(then), Some(now)) if now < then => "lower",
            (Some(_), Some(_)) => "HIGHER",
            (None, Some(_)) => "NOT IN THE FILE",
            (_, None) => "NOT MEASURED",
        };
        differences.failures += usize::from(verdict != "lower");
        let show = |count: Option<&&Value>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        let what = format!("{epoch} over {fabric}");
        let (then, now) = (show(then), show(now));
        let _ = writeln!(differences.text, "{what:<46} {name:<18} {then:>5} -> {now:<5} {verdict}");
    }
    differences
}

/// The counts by fabric, epoch and name.
fn flat(fabrics: &Map<String, Value>) -> BTreeMap<(&str, &str, &str), &Value> {
    let mut counts = BTreeMap::new();
    for (fabric, epochs) in fabrics {
        for (epoch, of_epoch) in epochs.as_object().into_iter().flatten() {
            for (name, count) in of_epoch.as_object().into_iter().flatten() {
                counts.insert((fabric.as_str(), epoch.as_str(), name.as_str()), count);
            }
        }
    }
    counts
}

/// Writes the file, and the table of the page.
pub(crate) fn write(file: &Path, page: Option<&Path>, measured: &Measured) -> Result<(), String> {
    if let Err(reason) = &measured.calls {
        return Err(format!("the file has system calls, and they were not counted: {reason}"));
    }
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error| format!("{path}: {error}")
    };
    std::fs::write(file, document(measured)).map_err(failed(file))?;
    println!("{} written: {} epochs", file.display(), epochs_of(&measured.counts));
    if let Some(page) = page {
        let (_, text) = page_with(page, &measured.counts)?;
        std::fs::write(page, text).map_err(failed(page))?;
        println!("{} written", page.display());
    }
    Ok(())
}

/// A line for each epoch, so that a difference is one of lines that say what they are of.
fn document(measured: &Measured) -> String {
    let mut text = format!("{{\n  \"libfabric\": \"{}\",\n  \"epochs\": {{", measured.libfabric);
    for (index, (fabric, epochs)) in measured.counts.iter().enumerate() {
        let _ = write!(text, "{}\n    \"{fabric}\": {{", if index > 0 { "," } else { "" });
        for (index, (epoch, counts)) in epochs.as_object().into_iter().flatten().enumerate() {
            let _ = write!(text, "{}\n      \"{epoch}\": {counts}", if index > 0 { "," } else { "" });
        }
        text.push_str("\n    }");
    }
    text.push_str("\n  }\n}\n");
    text
}

fn read(file: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("{}: {error}; --update makes it", file.display()))?;
    serde_json::from_str(&text).map_err(|error| wrong(file, &error.to_string()))
}

fn wrong(file: &Path, what: &str) -> String {
    format!("{}: {what}; --update makes it anew", file.display())
}

/// The page as it is, and as it is with the table of these counts.
fn page_with(page: &Path, counts: &Map<String, Value>) -> Result<(String, String), String> {
    let text = std::fs::read_to_string(page).map_err(|error| format!("{}: {error}", page.display()))?;
    let with_table = table::into_page(&text, &table::of(counts))
        .ok_or_else(|| format!("{}: there are no marks for the table", page.display()))?;
    Ok((text, with_table))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn counts(fabric: &str, epoch: &str, bytes: u64, calls: u64) -> Map<String, Value> {
        let value = json!({ fabric: { epoch: { "bytes": bytes, "system_calls": calls } } });
        value.as_object().unwrap().clone()
    }

    const CALLS_OVER_TCP: Skipped = Skipped::SystemCalls(Some("tcp"));

    #[test]
    fn a_rise_counts_and_a_fall_is_told() {
        let file = counts("tcp", "put", 40, 6);
        assert_eq!(compare(&file, &file, Skipped::Nothing), Differences::default());
        let rise = compare(&file, &counts("tcp", "put", 41, 6), Skipped::Nothing);
        assert!(rise.failures == 1 && rise.text.contains("40 -> 41"), "{rise:?}");
        let fall = compare(&file, &counts("tcp", "put", 40, 5), Skipped::Nothing);
        assert!(fall.failures == 0 && fall.text.contains("lower"), "{fall:?}");
        let both = compare(&file, &counts("tcp", "put", 39, 7), Skipped::Nothing);
        assert_eq!((both.failures, both.text.lines().count()), (1, 2));
    }

    #[test]
    fn another_library_makes_other_calls() {
        let file = counts("tcp", "put", 40, 6);
        assert_eq!(compare(&file, &counts("tcp", "put", 40, 9), CALLS_OVER_TCP), Differences::default());
        let (then, now) = (counts("shm", "put", 8, 0), counts("shm", "put", 8, 1));
        assert_eq!(compare(&then, &now, CALLS_OVER_TCP).failures, 1);
    }

    #[test]
    fn a_count_that_is_not_measured_fails() {
        let file = counts("tcp", "put", 40, 6);
        let without = |pointer: &str, name: &str| {
            let mut now = Value::Object(file.clone());
            now.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove(name).unwrap();
            let differences = compare(&file, now.as_object().unwrap(), Skipped::Nothing);
            assert!(differences.text.lines().all(|line| line.contains("NOT MEASURED")), "{differences:?}");
            differences
        };
        let calls = without("/tcp/put", SYSTEM_CALLS);
        assert_eq!(calls.failures, 1);
        assert!(calls.text.starts_with("put over tcp") && calls.text.contains("system_calls"), "{calls:?}");
        assert_eq!(without("/tcp/put", "bytes").failures, 1);
        assert_eq!(without("/tcp", "put").failures, 2);
        assert_eq!(without("", "tcp").failures, 2);
        // Also one of a name that no count has any more.
        let then = json!({ "tcp": { "put": { "bytes": 40, "system_calls": 6, "copies": 1 } } });
        let differences = compare(then.as_object().unwrap(), &file, Skipped::Nothing);
        assert!(differences.failures == 1 && differences.text.contains("copies"), "{differences:?}");
    }

    #[test]
    fn only_a_column_that_is_skipped_may_be_missing() {
        let file = counts("tcp", "put", 40, 6);
        let now = json!({ "tcp": { "put": { "bytes": 40 } } });
        let failures = |skipped| compare(&file, now.as_object().unwrap(), skipped).failures;
        assert_eq!(failures(Skipped::SystemCalls(None)), 0);
        assert_eq!(failures(CALLS_OVER_TCP), 0);
        assert_eq!(failures(Skipped::SystemCalls(Some("shm"))), 1);
        assert_eq!(compare(&file, &Map::new(), Skipped::SystemCalls(None)).failures, 1);
    }

    #[test]
    fn a_count_that_is_not_in_the_file_fails() {
        let differences = compare(&counts("shm", "put", 8, 0), &counts("shm", "get", 8, 0), Skipped::Nothing);
        assert_eq!(differences.failures, 4);
        assert_eq!(differences.text.matches("get over shm").count(), 2);
        assert_eq!(differences.text.matches("NOT IN THE FILE").count(), 2);
        let no_number = json!({ "shm": { "put": { "bytes": "8", "system_calls": 0 } } });
        let then = no_number.as_object().unwrap();
        assert_eq!(compare(then, &counts("shm", "put", 8, 0), Skipped::Nothing).failures, 1);
    }

    #[test]
    fn what_cannot_be_compared_fails_where_nothing_may_be_skipped() {
        let file = std::env::temp_dir().join(format!("rma-counts-gate.{}.json", std::process::id()));
        let mut measured = Measured {
            counts: counts("tcp", "put", 40, 6),
            libfabric: "1.17".to_owned(),
            calls: Ok(BTreeMap::new()),
        };
        std::fs::write(&file, document(&measured)).unwrap();
        let mut outcomes = vec![check(&file, None, &measured, true)];
        measured.libfabric = "2.1".to_owned();
        outcomes.extend([false, true].map(|skip_nothing| check(&file, None, &measured, skip_nothing)));
        measured.calls = Err("not allowed".to_owned());
        measured.counts["tcp"]["put"].as_object_mut().unwrap().remove(SYSTEM_CALLS);
        outcomes.extend([false, true].map(|skip_nothing| check(&file, None, &measured, skip_nothing)));
        // Nothing else may be missing then.
        measured.counts = Map::new();
        outcomes.push(check(&file, None, &measured, false));
        std::fs::remove_file(&file).unwrap();
        let outcomes: Result<Vec<_>, _> = outcomes.into_iter().collect();
        assert_eq!(outcomes.unwrap(), [true, true, false, true, false, false]);
    }

    #[test]
    fn what_was_written_is_read_back() {
        let epochs =
            json!({ "sim": { "a": { "bytes": 1 }, "b": { "bytes": 2 } }, "shm": { "a": { "bytes": 3 } } });
        let measured = Measured {
            counts: epochs.as_object().unwrap().clone(),
            libfabric: "1.17".to_owned(),
            calls: Ok(BTreeMap::new()),
        };
        let text = document(&measured);
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, json!({ "libfabric": "1.17", "epochs": epochs }));
        assert!(text.lines().any(|line| line == "      \"b\": {\"bytes\":2}"), "{text}");
    }

    #[test]
    fn nothing_is_written_without_system_calls() {
        let measured = Measured {
            counts: Map::new(),
            libfabric: "1.17".to_owned(),
            calls: Err("not allowed".to_owned()),
        };
        let error = write(Path::new("/nonexistent"), None, &measured).unwrap_err();
        assert!(error.contains("not allowed"), "{error}");
    }
}
