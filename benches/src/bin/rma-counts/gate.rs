//! Counts compared with those in a file, and the table of a page with the file.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Map, Value};

use crate::counts::NAMES;
use crate::{table, Measured, SYSTEM_CALLS};

/// Compares with the file, or writes it. `false`: something costs more, or the page is not the file's.
pub(crate) fn check(
    file: &Path,
    page: Option<&Path>,
    update: bool,
    measured: &Measured,
) -> Result<bool, String> {
    if update {
        return write(file, page, measured).map(|()| true);
    }
    let recorded = read(file)?;
    let mut skips_tcp = false;
    match &measured.calls {
        Err(reason) => println!("system calls are not compared: {reason}"),
        // What the library does for a packet is the library's.
        Ok(_) if recorded["libfabric"] != measured.libfabric.as_str() => {
            skips_tcp = true;
            let (now, then) = (&measured.libfabric, &recorded["libfabric"]);
            println!("system calls over tcp are not compared: of libfabric {now}, in the file of {then}");
        }
        Ok(_) => {}
    }
    let epochs = recorded["epochs"].as_object().ok_or_else(|| wrong(file, "no \"epochs\""))?;
    let differences = compare(epochs, &measured.counts, skips_tcp);
    print!("{}", differences.text);
    if differences.rises > 0 {
        println!("{} counts rose; where it is meant, `ci/counts.sh --update`", differences.rises);
    } else if !differences.text.is_empty() {
        println!("update the file: ci/counts.sh --update");
    } else {
        println!("all counts of {} epochs are those of {}", epochs_of(epochs), file.display());
    }
    let mut is_fine = differences.rises == 0;
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

fn epochs_of(fabrics: &Map<String, Value>) -> usize {
    fabrics.values().filter_map(Value::as_object).map(Map::len).sum()
}

/// What is not as it was.
#[derive(Debug, Default, PartialEq, Eq)]
struct Differences {
    /// A line for each.
    text: String,
    rises: usize,
}

fn compare(file: &Map<String, Value>, now: &Map<String, Value>, skips_tcp: bool) -> Differences {
    let mut differences = Differences::default();
    for (fabric, epochs) in now {
        for (epoch, counts) in epochs.as_object().into_iter().flatten() {
            let recorded = file.get(fabric).and_then(|epochs| epochs.get(epoch));
            for &name in NAMES.iter().chain([&SYSTEM_CALLS]) {
                if skips_tcp && fabric == "tcp" && name == SYSTEM_CALLS {
                    continue;
                }
                let then = recorded.and_then(|counts| counts[name].as_u64());
                let Some(now) = counts[name].as_u64().filter(|&now| then != Some(now)) else { continue };
                let verdict = match then {
                    Some(then) if now > then => "HIGHER",
                    Some(_) => "lower",
                    None => "not in the file",
                };
                differences.rises += usize::from(verdict == "HIGHER");
                let then = then.map_or_else(|| "-".to_owned(), |then| then.to_string());
                let what = format!("{epoch} over {fabric}");
                let _ = writeln!(differences.text, "{what:<46} {name:<18} {then:>5} -> {now:<5} {verdict}");
            }
        }
    }
    for (fabric, epochs) in file {
        for epoch in epochs.as_object().into_iter().flat_map(Map::keys) {
            if now.get(fabric).and_then(|epochs| epochs.get(epoch)).is_none() {
                let _ = writeln!(differences.text, "{epoch} over {fabric}: only in the file");
            }
        }
    }
    differences
}

fn write(file: &Path, page: Option<&Path>, measured: &Measured) -> Result<(), String> {
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
    use std::collections::BTreeMap;

    use super::*;
    use serde_json::json;

    fn counts(fabric: &str, epoch: &str, bytes: u64, calls: u64) -> Map<String, Value> {
        let value = json!({ fabric: { epoch: { "bytes": bytes, "system_calls": calls } } });
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_rise_counts_and_a_fall_is_told() {
        let file = counts("tcp", "put", 40, 6);
        assert_eq!(compare(&file, &file, false), Differences::default());
        let rise = compare(&file, &counts("tcp", "put", 41, 6), false);
        assert!(rise.rises == 1 && rise.text.contains("40 -> 41"), "{rise:?}");
        let fall = compare(&file, &counts("tcp", "put", 40, 5), false);
        assert!(fall.rises == 0 && fall.text.contains("lower"), "{fall:?}");
        let both = compare(&file, &counts("tcp", "put", 39, 7), false);
        assert_eq!((both.rises, both.text.lines().count()), (1, 2));
    }

    #[test]
    fn another_library_makes_other_calls() {
        let file = counts("tcp", "put", 40, 6);
        assert_eq!(compare(&file, &counts("tcp", "put", 40, 9), true), Differences::default());
        assert_eq!(compare(&counts("shm", "put", 8, 0), &counts("shm", "put", 8, 1), true).rises, 1);
    }

    #[test]
    fn new_and_old_epochs_are_told() {
        let differences = compare(&counts("shm", "put", 8, 0), &counts("shm", "get", 8, 0), false);
        assert_eq!(differences.rises, 0);
        assert!(
            differences.text.contains("not in the file") && differences.text.contains("only in the file")
        );
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
