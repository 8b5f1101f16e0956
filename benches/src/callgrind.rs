//! Counts instructions with valgrind's callgrind.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// Instructions of one run, inside the counted functions only.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Profile {
    /// Instructions in the counted functions and all that they called.
    pub total: u64,
    /// The part of it inside functions of the null fabric (`null_*`) and all that they called.
    pub in_fabric: u64,
    /// Instructions by function, without what it called.
    pub by_function: BTreeMap<String, u64>,
}

impl Profile {
    /// Instructions above the fabric.
    pub fn above_fabric(&self) -> u64 {
        self.total - self.in_fabric
    }
}

/// Runs `program` with `arguments` under callgrind, which counts while the function `counted` runs.
/// `scratch` names a file for callgrind's output.
///
/// # Errors
/// When valgrind is not there, the program fails, or the output makes no sense; in words for users.
pub fn count(program: &Path, arguments: &[&str], counted: &str, scratch: &Path) -> Result<Profile, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no", "--dump-line=no"])
        .arg(format!("--toggle-collect={counted}"))
        .arg(format!("--callgrind-out-file={}", scratch.display()))
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run valgrind: {error}; ci/install.sh installs it"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("valgrind ended with {}:\n{said}", output.status));
    }
    let text = std::fs::read_to_string(scratch)
        .map_err(|error| format!("callgrind left nothing to read in {}: {error}", scratch.display()))?;
    parse(&text).ok_or_else(|| format!("callgrind's output in {} makes no sense", scratch.display()))
}

/// Reads a callgrind profile with one event and uncompressed names and positions.
fn parse(text: &str) -> Option<Profile> {
    let mut profile = Profile::default();
    let mut function = "";
    let mut callee = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = name;
        } else if let Some(name) = line.strip_prefix("cfn=") {
            callee = Some(name);
        } else if let Some(total) = line.strip_prefix("totals: ") {
            profile.total = total.trim().parse().ok()?;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) && !function.is_empty() {
            let cost: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
            match callee.take() {
                // The line after a call says what the callee cost with all that it called.
                Some(callee) if callee.starts_with("null_") => profile.in_fabric += cost,
                Some(_) => {}
                None => *profile.by_function.entry(function.to_owned()).or_default() += cost,
            }
        }
    }
    (profile.total > 0).then_some(profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fabric_is_told_from_what_is_above_it() {
        let text = "version: 1\npositions: line\nevents: Ir\nsummary: 70\n\nob=/x\nfl=a.rs\nfn=icount_put\n\
                    0 30\ncfi=b.rs\ncfn=null_operation\ncalls=10 0\n0 25\ncfn=helper\ncalls=10 0\n0 15\n\n\
                    fn=null_operation\n0 25\n\nfn=helper\n0 15\n\ntotals: 70\n";
        let profile = parse(text).unwrap();
        assert_eq!((profile.total, profile.in_fabric, profile.above_fabric()), (70, 25, 45));
        assert_eq!(profile.by_function["icount_put"], 30);
        assert_eq!(profile.by_function["helper"], 15);
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("fn=a\n0\n"), None);
        assert_eq!(parse("totals: many\n"), None);
    }
}
