//! `tidy [ROOT]`: prints what breaks the rules below ROOT (the working directory if left out) and
//! exits with 1 if anything does, with 2 if it cannot tell.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    match tidy::check_repository(&root) {
        Ok(report) => {
            for finding in &report.findings {
                println!("{finding}");
            }
            println!("tidy: {} files, {} findings", report.file_count, report.findings.len());
            if report.findings.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("tidy: cannot read the files below {}: {error}", root.display());
            ExitCode::from(2)
        }
    }
}
