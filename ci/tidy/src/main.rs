//! `tidy [ROOT]`: prints what breaks the rules below ROOT (the working directory if left out) and
//! exits with 1 if anything does, with 2 if it cannot tell. `tidy coverage [--write] [ROOT]` does the same
//! for docs/mpi-coverage.md, or writes it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tidy::{coverage, Finding};

fn main() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let mut takes = |word: &str| {
        let found = arguments.first().is_some_and(|first| first == word);
        found.then(|| arguments.remove(0)).is_some()
    };
    let is_coverage = takes("coverage");
    let writes = is_coverage && takes("--write");
    let root = arguments.first().map_or_else(|| PathBuf::from("."), PathBuf::from);
    let result = if is_coverage { check_coverage(&root, writes) } else { check_style(&root) };
    match result {
        Ok(findings) if findings.is_empty() => ExitCode::SUCCESS,
        Ok(findings) => {
            for finding in findings {
                println!("{finding}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tidy: cannot read the files below {}: {error}", root.display());
            ExitCode::from(2)
        }
    }
}

fn check_style(root: &Path) -> io::Result<Vec<Finding>> {
    let report = tidy::check_repository(root)?;
    println!("tidy: {} files, {} findings", report.file_count, report.findings.len());
    Ok(report.findings)
}

fn check_coverage(root: &Path, writes: bool) -> io::Result<Vec<Finding>> {
    let (mut findings, page) = coverage::run(root)?;
    let path = root.join(coverage::PAGE);
    if writes {
        fs::write(&path, &page)?;
    } else if fs::read_to_string(&path).unwrap_or_default() != page {
        let message = "is stale: `cargo run -p tidy -- coverage --write` makes it anew".to_owned();
        findings.push(Finding { path: coverage::PAGE.to_owned(), line: 1, message });
    }
    println!("coverage: {} findings", findings.len());
    Ok(findings)
}
