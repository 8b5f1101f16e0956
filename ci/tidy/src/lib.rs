//! The repository's style, as far as no compiler or linter checks it.
//!
//! * [`size`]: Rust files and functions stay short;
//! * [`leftovers`]: nothing is left for later without a reason;
//! * [`coverage`]: docs/mpi-coverage.md, from citations in the code;
//! * [`floors`]: inside of `rma-core` a module uses only modules on its own floor or below.
//!
//! Each check takes text and yields [`Finding`]s, so that its tests need no files;
//! [`check_repository`] applies all of them to the files below a folder.

pub mod coverage;
pub mod floors;
pub mod leftovers;
pub mod size;
pub mod source;
pub mod suite;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use source::Source;

/// Something that breaks a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The file, relative to the root of the repository.
    pub path: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The rule, and what to do.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// What [`check_repository`] saw.
#[derive(Debug)]
pub struct Report {
    /// How many files were read.
    pub file_count: usize,
    /// What is wrong with them, by path and line.
    pub findings: Vec<Finding>,
}

/// Checks every text file below `root`, except for build outputs and hidden folders other than `.ci`.
///
/// # Errors
/// When a folder or file cannot be read.
pub fn check_repository(root: &Path) -> io::Result<Report> {
    let files = text_files(root)?;
    let mut findings = Vec::new();
    let mut core_files = Vec::new();
    for (name, text) in &files {
        findings.extend(leftovers::check_text(name, text));
        if name.ends_with(".rs") && !name.ends_with("/bindings.rs") {
            let source = Source::new(text);
            findings.extend(size::check(name, &source));
            findings.extend(leftovers::check_code(name, &source));
            if let Some(inside) = name.strip_prefix(floors::ROOT) {
                core_files.push((inside.to_owned(), source));
            }
        }
    }
    findings.extend(floors::check(&core_files));
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    Ok(Report { file_count: files.len(), findings })
}

/// The text files below `root`, by name, with what is in them.
fn text_files(root: &Path) -> io::Result<Vec<(String, String)>> {
    let mut paths = Vec::new();
    collect(root, &mut paths)?;
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        files.push((name, fs::read_to_string(&path)?));
    }
    Ok(files)
}

/// Appends the text files below `folder`.
fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if name != "target" && (!name.starts_with('.') || name == ".ci") {
                collect(&entry.path(), paths)?;
            }
        } else if kind.is_file() && is_text(&name) {
            paths.push(entry.path());
        }
    }
    Ok(())
}

fn is_text(name: &str) -> bool {
    const EXTENSIONS: [&str; 8] = ["rs", "toml", "md", "sh", "yml", "yaml", "c", "h"];
    match name.rsplit_once('.') {
        Some((_, extension)) => EXTENSIONS.contains(&extension),
        None => matches!(name, "Dockerfile" | "run"),
    }
}
