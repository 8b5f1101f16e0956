//! This repository keeps its own rules, and the checks see broken ones in files.

use std::fs;
use std::path::{Path, PathBuf};

use tidy::check_repository;

#[test]
fn the_repository_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let report = check_repository(&root).unwrap();
    let findings: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    assert!(report.file_count > 20, "only {} files found", report.file_count);
}

#[test]
fn findings_come_from_the_right_files() {
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("untidy");
    let marker = concat!("FIX", "ME");
    let files = [
        ("rma-core/src/op.rs", "use crate::engine::Engine;\n".to_owned()),
        ("rma-core/src/ids.rs", format!("// {marker}\n")),
        ("ofi-sys/src/bindings.rs", "x;\n".repeat(1000)),
        ("ofi-sys/src/long.rs", "x;\n".repeat(1000)),
        (".ci/run", format!("# {marker}\n")),
        (".git/run", format!("# {marker}\n")),
        ("target/a.rs", format!("// {marker}\n")),
        ("picture.bin", format!("{marker}\n")),
    ];
    for (path, text) in &files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let report = check_repository(&root).unwrap();
    let found: Vec<_> = report.findings.iter().map(|finding| (finding.path.as_str(), finding.line)).collect();
    let expected = [
        (".ci/run", 1),
        ("ofi-sys/src/long.rs", 1000),
        ("rma-core/src/ids.rs", 1),
        ("rma-core/src/op.rs", 1),
    ];
    assert_eq!(found, expected);
    assert_eq!(report.file_count, 5);
}
