//! Counts compared with those in a file.

use std::fmt;
use std::path::Path;

use serde_json::{json, Map, Value};

use crate::cases::CASES;

/// How far a count is from the one in the file.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Verdict {
    Same,
    Lower,
    Higher,
    /// Higher, but by no more than another compiler may make of the same source.
    Tolerated,
    New,
    /// Of the file only.
    Missing,
}

impl Verdict {
    fn is_failure(self) -> bool {
        matches!(self, Self::Higher | Self::New | Self::Missing)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Same => "",
            Self::Lower => "lower: update the file",
            Self::Higher => "HIGHER",
            Self::Tolerated => "higher, tolerated (other compiler)",
            Self::New => "NOT IN THE FILE",
            Self::Missing => "NOT MEASURED",
        })
    }
}

/// Counts every case and compares with the file, or writes it. `false`: something costs more, is not in the file, or
/// only there.
pub(crate) fn check(file: &Path, update: bool, compiler: &str) -> Result<bool, String> {
    let mut counts = Vec::new();
    for case in CASES {
        counts.push((case.name, crate::per_call(&crate::profile(case)?)));
    }
    if update {
        write(file, compiler, &counts)?;
        println!("{} written:", file.display());
        for (name, count) in counts {
            println!("{count:>8}  {name}");
        }
        return Ok(true);
    }
    let (recorded_with, recorded) = read(file)?;
    let same_compiler = recorded_with == compiler;
    if !same_compiler {
        println!("counted with {compiler}, the file with {recorded_with}: small rises are tolerated");
    }
    println!("{:>8} {:>8}  case", "file", "now");
    let rows = compare(&recorded, &counts, same_compiler);
    let show = |count: Option<f64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    for (name, before, now, verdict) in &rows {
        println!("{:>8} {:>8}  {name:<24} {verdict}", show(*before), show(*now));
    }
    let has_failed = rows.iter().any(|(.., verdict)| verdict.is_failure());
    if has_failed {
        println!(
            "instructions rose, are new or were not measured: see `rma-icount show CASE`; \
             where it is meant, run ci/icount.sh --update"
        );
    } else if rows.iter().any(|(.., verdict)| *verdict == Verdict::Lower) {
        println!("update the file: ci/icount.sh --update");
    }
    Ok(!has_failed)
}

/// The name of a case, its count in the file, and now.
type Row<'a> = (&'a str, Option<f64>, Option<f64>, Verdict);

/// A row for every count of either side.
fn compare<'a>(
    recorded: &'a Map<String, Value>,
    counts: &[(&'a str, f64)],
    same_compiler: bool,
) -> Vec<Row<'a>> {
    let measured = counts.iter().map(|&(name, now)| {
        let before = recorded.get(name).and_then(Value::as_f64);
        (name, before, Some(now), judge(before, now, same_compiler))
    });
    let gone = recorded.iter().filter(|(name, _)| counts.iter().all(|(measured, _)| measured != name));
    let gone = gone.map(|(name, before)| (name.as_str(), before.as_f64(), None, Verdict::Missing));
    measured.chain(gone).collect()
}

fn judge(before: Option<f64>, now: f64, same_compiler: bool) -> Verdict {
    let Some(before) = before else { return Verdict::New };
    let tolerated = (before * OTHER_COMPILER_SHARE).max(OTHER_COMPILER_LEAST);
    if now == before {
        Verdict::Same
    } else if now < before {
        Verdict::Lower
    } else if !same_compiler && now - before <= tolerated {
        Verdict::Tolerated
    } else {
        Verdict::Higher
    }
}

fn write(file: &Path, compiler: &str, counts: &[(&str, f64)]) -> Result<(), String> {
    let number = |count: f64| if count.fract() == 0.0 { json!(count as u64) } else { json!(count) };
    let instructions: Map<String, Value> =
        counts.iter().map(|&(name, count)| (name.to_owned(), number(count))).collect();
    let document = json!({
        "compiler": compiler,
        "machine": std::env::consts::ARCH,
        "instructions": instructions,
    });
    std::fs::write(file, format!("{document:#}\n")).map_err(|error| format!("{}: {error}", file.display()))
}

fn read(file: &Path) -> Result<(String, Map<String, Value>), String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("{}: {error}; --update makes it", file.display()))?;
    let wrong = |what: &str| format!("{}: {what}; --update makes it anew", file.display());
    let document: Value = serde_json::from_str(&text).map_err(|error| wrong(&error.to_string()))?;
    let machine = document["machine"].as_str().ok_or_else(|| wrong("no \"machine\""))?;
    if machine != std::env::consts::ARCH {
        return Err(format!("counts of {machine} say nothing about {}", std::env::consts::ARCH));
    }
    let compiler = document["compiler"].as_str().ok_or_else(|| wrong("no \"compiler\""))?;
    let instructions = document["instructions"].as_object().ok_or_else(|| wrong("no \"instructions\""))?;
    Ok((compiler.to_owned(), instructions.clone()))
}

/// Another compiler may cost this share, or this many instructions, more.
const OTHER_COMPILER_SHARE: f64 = 0.05;
const OTHER_COMPILER_LEAST: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rise_is_higher_unless_another_compiler_explains_it() {
        assert_eq!(judge(Some(40.0), 40.0, true), Verdict::Same);
        assert_eq!(judge(Some(40.0), 41.0, true), Verdict::Higher);
        assert_eq!(judge(Some(40.0), 44.0, false), Verdict::Tolerated);
        assert_eq!(judge(Some(40.0), 45.0, false), Verdict::Higher);
        assert_eq!(judge(Some(400.0), 420.0, false), Verdict::Tolerated);
        assert_eq!(judge(Some(40.0), 39.0, false), Verdict::Lower);
        assert_eq!(judge(None, 1.0, true), Verdict::New);
    }

    #[test]
    fn what_only_one_side_has_fails() {
        let file = json!({ "put": 40.0, "get": 41, "flush": "many" });
        let file = file.as_object().unwrap();
        let verdicts = |counts: &[(&'static str, f64)]| -> Vec<_> {
            let rows = compare(file, counts, true).into_iter();
            rows.map(|(name, .., verdict)| (name.to_owned(), verdict)).collect()
        };
        let row = |name: &str, verdict| (name.to_owned(), verdict);
        assert_eq!(
            verdicts(&[("put", 40.0), ("flush", 1.0), ("lock", 2.0)]),
            [
                row("put", Verdict::Same),
                row("flush", Verdict::New),
                row("lock", Verdict::New),
                row("get", Verdict::Missing)
            ]
        );
        let failures = [Verdict::Higher, Verdict::New, Verdict::Missing].map(Verdict::is_failure);
        let others = [Verdict::Same, Verdict::Lower, Verdict::Tolerated].map(Verdict::is_failure);
        assert_eq!((failures, others), ([true; 3], [false; 3]));
    }

    #[test]
    fn what_was_written_is_read_back() {
        let file = std::env::temp_dir().join(format!("rma-icount-gate.{}.json", std::process::id()));
        write(&file, "rustc 1.0", &[("put", 40.0), ("get", 41.5)]).unwrap();
        let (compiler, counts) = read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(compiler, "rustc 1.0");
        assert_eq!((counts["put"].as_f64(), counts["get"].as_f64()), (Some(40.0), Some(41.5)));
        assert!(read(&file).unwrap_err().contains("--update"));
    }
}
