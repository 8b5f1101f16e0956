//! The command line and the settings, as a person meets them.

mod common;

use std::process::Command;

use common::*;

fn run(arguments: &[&str]) -> Outcome {
    finish(rmarun(arguments))
}

#[test]
fn programs_that_cannot_run() {
    for (program, code, part) in [
        ("no-such-program", 127, "program no-such-program not found in PATH"),
        ("./no-such-program", 127, "program ./no-such-program not found"),
        ("/etc/passwd", 126, "chmod +x"),
        ("/", 126, "cannot run /"),
    ] {
        let outcome = run(&["-n", "2", program]);
        assert_eq!(outcome.code, Some(code), "{outcome:?}");
        assert!(outcome.stderr.contains(part), "{outcome:?}");
    }
}

#[test]
fn a_program_in_the_working_directory_and_a_missing_interpreter() {
    let folder = Folder::new("usage");
    folder.program("here", "#!/bin/sh\npwd\n");
    folder.program("orphan", "#!/no/such/interpreter\n");
    let wdir = folder.path.to_str().unwrap();
    let outcome = run(&["-n", "1", "--wdir", wdir, "here"]);
    assert_eq!(outcome.code, Some(127), "{outcome:?}");
    assert!(outcome.stderr.contains("write ./here"), "{outcome:?}");
    let outcome = run(&["-n", "1", "--wdir", wdir, "./orphan"]);
    assert_eq!(outcome.code, Some(126), "{outcome:?}");
    assert!(outcome.stderr.contains("interpreter"), "{outcome:?}");
    let outcome = run(&["-n", "1", "--wdir", wdir, "./here"]);
    assert_eq!((outcome.code, outcome.stdout.trim_end()), (Some(0), wdir), "{outcome:?}");
    let outcome = run(&["-n", "1", "--wdir", "/no/such/folder", "true"]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("/no/such/folder"), "{outcome:?}");
}

#[test]
fn wrong_command_lines() {
    for (arguments, part) in [
        (&["-n", "0", "true"][..], "at least 1 rank"),
        (&["-n", "many", "true"], "whole number"),
        (&["true"], "-n <N>"),
        (&["-n", "1"], "<PROGRAM>"),
        (&["-n", "1", "--tag-otput", "true"], "--tag-output"),
        (&["-n", "1", "--timeout", "never", "true"], "number of seconds"),
    ] {
        let outcome = run(arguments);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains(part), "no '{part}' in {outcome:?}");
    }
}

#[test]
fn more_ranks_than_open_files() {
    let script = format!("ulimit -n 40; exec {} -n 40 true", env!("CARGO_BIN_EXE_rmarun"));
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    without_settings(&mut command);
    let outcome = finish(command);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("ulimit -n 225"), "{outcome:?}");
}

#[test]
fn ranks_keep_the_limit_of_open_files() {
    let script = format!("ulimit -Sn 40; exec {} -n 20 sh -c 'ulimit -n'", env!("CARGO_BIN_EXE_rmarun"));
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    without_settings(&mut command);
    let outcome = finish(command);
    assert_eq!((outcome.code, &*outcome.stdout), (Some(0), &*"40\n".repeat(20)), "{outcome:?}");
}

#[test]
fn variables_and_flags_reach_the_ranks() {
    let outcome =
        finish(shell(1, &["--provider", "tcp", "-x", "GREETING=hello"], "echo $RMA_PROVIDER $GREETING"));
    assert_eq!(outcome.stdout, "tcp hello\n", "{outcome:?}");
    let outcome = run(&["-n", "1", "-x", "RMA_TEST_ABSENT", "true"]);
    assert_eq!(outcome.code, Some(0));
    assert!(outcome.stderr.contains("RMA_TEST_ABSENT"), "{outcome:?}");
    let outcome = run(&["-n", "1", "-x", "RMA_SLOT=3", "true"]);
    assert!(outcome.stderr.contains("did you mean RMA_SLOTS?"), "{outcome:?}");
}

#[test]
fn the_program_keeps_its_own_options() {
    let outcome = run(&["-np", "1", "echo", "-np", "2", "--", "--verbose"]);
    assert_eq!(outcome.stdout, "-np 2 -- --verbose\n", "{outcome:?}");
}

#[test]
fn misspelt_settings_warn_once_and_wrong_values_stop() {
    let mut command = rmarun(["-n", "3", RANK, "publish", "finalize"]);
    command.env("RMA_PROVIDR", "tcp");
    let outcome = finish(command);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.stderr.matches("did you mean RMA_PROVIDER?").count(), 1, "{outcome:?}");
    let mut command = rmarun(["-n", "3", "true"]);
    command.env("RMA_COALESCE", "maybe");
    let outcome = finish(command);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("RMA_COALESCE=maybe (environment): must be 0 or 1"), "{outcome:?}");
}

#[test]
fn sizes_out_of_range_are_said_once_and_before_anything_starts() {
    for (name, value, part) in [
        ("RMA_TARGET_POOL", "16777216", "from 1 to 1048576"),
        ("RMA_SLOTS", "0", "from 1 to 1048576"),
        ("RMA_PEERS", "1", "from 2 to 1048576"),
        ("RMA_SIGNAL", "3", "from 34 to 64"),
    ] {
        let mut command = rmarun(["-n", "3", "echo", "started"]);
        command.env(name, value);
        let outcome = finish(command);
        assert_eq!((outcome.code, &*outcome.stdout), (Some(2), ""), "{outcome:?}");
        assert_eq!(outcome.stderr.matches(&format!("{name}={value}")).count(), 1, "{outcome:?}");
        assert!(outcome.stderr.contains(part), "{outcome:?}");
    }
}

#[test]
fn the_list_of_settings_shows_values_and_sources() {
    let folder = Folder::new("settings");
    let file = folder.path.join("rma.conf");
    std::fs::write(&file, "RMA_SLOTS = 12\n").unwrap();
    let mut command = rmarun(["--help-env"]);
    command.env("RMA_CONFIG", &file).env("RMA_COALESCE", "0");
    let outcome = finish(command);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for setting in rma_bootstrap::settings::SETTINGS {
        assert!(outcome.stdout.contains(&format!("  {} ", setting.name)), "{}", setting.name);
    }
    assert!(outcome.stdout.contains(&format!("[12, from the {}:1]", file.display())), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("[0, from the environment]"), "{}", outcome.stdout);
}

#[test]
fn the_list_of_settings_shows_what_may_be_said_and_what_holds_otherwise() {
    let outcome = run(&["--help-env"]);
    for (name, part) in [
        ("RMA_PROGRESS", "; one of auto, none, thread, signal, ghost [auto]"),
        ("RMA_MEMORY_MODEL", "; one of unified, separate [unified]"),
        ("RMA_LOCK_PROTOCOL", "; one of message, nic, auto [auto]"),
        ("RMA_COALESCE", "; 0 or 1 [1]"),
        ("RMA_TIMEOUT", "(default: no limit); a number of seconds above 0"),
        ("RMA_BOOTSTRAP_TIMEOUT", "; a number of seconds above 0 [60]"),
        ("RMA_SLOTS", "; a whole number from 1 to 1048576 [64]"),
        (
            "RMA_EAGER_BYTES",
            "in bytes (8192 in shared memory alone); a whole number from 512 to 65536 [16368]",
        ),
        ("RMA_SIGNAL", "; a whole number from 34 to 64"),
    ] {
        let line = outcome.stdout.lines().find(|line| line.starts_with(&format!("  {name} ")));
        assert!(line.is_some_and(|line| line.contains(part)), "no '{part}' in {line:?}");
    }
}

#[test]
fn help_teaches_by_examples() {
    let outcome = run(&["--help"]);
    assert_eq!(outcome.code, Some(0));
    for part in ["Examples:", "rmarun -n 2", "--tag-output", "exit code", "--help-env"] {
        assert!(outcome.stdout.contains(part), "no '{part}' in {}", outcome.stdout);
    }
    let outcome = finish({
        let mut command = rmarun(["-n", "1", "--verbose", "true"]);
        command.env("RMA_TEST_ANYTHING", "1");
        command
    });
    assert!(outcome.stderr.contains("rank 0 is process") && outcome.stderr.contains("exited with status 0"));
}
