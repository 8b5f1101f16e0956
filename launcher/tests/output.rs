//! What goes in and comes out of a job.

mod common;

use std::io::Write;
use std::process::Stdio;

use common::*;

#[test]
fn lines_are_marked_on_request_and_streams_kept_apart() {
    let outcome = finish(shell(3, &["--tag-output"], "echo out; printf 'a\\nb' >&2"));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&outcome.stdout), ["[0] out", "[1] out", "[2] out"]);
    assert_eq!(sorted(&outcome.stderr), ["[0] a", "[0] b", "[1] a", "[1] b", "[2] a", "[2] b"]);
}

#[test]
fn without_marks_bytes_stay_as_they_are() {
    let outcome = finish(shell(1, &[], "printf 'a\\r\\n\\377 half'"));
    assert_eq!(outcome.stdout, "a\r\n\u{fffd} half");
}

#[test]
fn a_question_appears_before_its_answer() {
    let mut command = shell(1, &[], "printf 'name? '; read name; echo \"hello $name\"");
    command.stdin(Stdio::piped());
    let mut job = Running::start(command);
    let mut stdin = job.stdin();
    assert_eq!(job.stdout_bytes(6), b"name? ");
    stdin.write_all(b"you\n").unwrap();
    assert_eq!(job.stdout_line(), "hello you");
    assert_eq!(job.finish().code, Some(0));
}

#[test]
fn standard_input_goes_to_rank_0() {
    let mut command = shell(3, &["--tag-output"], "cat; echo end");
    command.stdin(Stdio::piped());
    let mut job = Running::start(command);
    let mut stdin = job.stdin();
    let writer = std::thread::spawn(move || (0..20_000).for_each(|n| writeln!(stdin, "line {n}").unwrap()));
    let outcome = job.finish();
    writer.join().unwrap();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let from_0: String = outcome
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("[0] "))
        .map(|l| format!("{l}\n"))
        .collect();
    let expected: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
    assert_eq!(from_0, expected + "end\n");
    for rank in [1, 2] {
        let mine = outcome.stdout.lines().filter(|line| line.starts_with(&format!("[{rank}]")));
        assert_eq!(mine.collect::<Vec<_>>(), [format!("[{rank}] end")]);
    }
}

#[test]
fn ranks_do_not_tear_each_others_lines() {
    let script = "i=0; while [ $i -lt 3000 ]; do printf '%s<%0120d>\\n' $RMA_RANK $i; i=$((i+1)); done";
    let outcome = finish(shell(4, &[], script));
    assert_eq!(outcome.code, Some(0));
    for rank in 0..4 {
        let mine = outcome.stdout.lines().filter(|line| line.starts_with(&rank.to_string()));
        let expected = (0..3000).map(|n| format!("{rank}<{n:0120}>"));
        assert!(mine.eq(expected), "rank {rank}");
    }
    assert_eq!(outcome.stdout.lines().count(), 4 * 3000);
}

#[test]
fn a_reader_that_goes_away_ends_who_writes() {
    let mut job = Running::start(shell(2, &[], "exec yes"));
    assert_eq!(job.stdout_line(), "y");
    let outcome = job.close_stdout();
    // `yes` is killed by SIGPIPE, or says that it cannot write where that signal is ignored.
    assert!(matches!(outcome.code, Some(141 | 1)), "{outcome:?}");
}

/// What ranks wrote before they exited arrives, also when its reader begins only afterwards.
#[test]
fn a_late_reader_gets_everything() {
    // More than the launcher's queue holds, less than queue and pipes together.
    const BYTES: usize = 1024 * 1024 + 90_000;
    let script = format!("head -c {BYTES} /dev/zero | tr '\\000' x");
    let mut job = Running::start(shell(1, &["--verbose"], &script));
    while !job.stderr_line().contains("exited with status 0") {}
    let outcome = job.finish();
    assert_eq!((outcome.code, outcome.stdout.len()), (Some(0), BYTES));
}

/// Output that nobody reads stops the writer, not the job's control: it still ends in time.
#[test]
fn a_reader_that_does_not_read_holds_up_nothing_else() {
    let mut command = shell(2, &["--timeout", "0.5", "--grace", "0.2"], "exec yes");
    let (unread, write_end) = std::io::pipe().unwrap();
    command.stdout(write_end);
    let mut job = Running::start_keeping_stdout(command);
    let line = job.stderr_line();
    assert!(line.contains("time limit"), "{line}");
    drop(unread);
    assert_eq!(job.finish().code, Some(124));
}

/// It is listened to for a while, since nobody knows that what comes is not the end of a rank's own output.
#[test]
fn a_daemon_that_writes_for_ever_does_not_hold_the_job() {
    let folder = Folder::new("daemon");
    let daemon = ": > $READY; while echo more; do sleep 0.05; done 2>/dev/null";
    let starts =
        format!("env -u RMA_JOB_ID setsid sh -c '{daemon}' & until [ -e $READY ]; do sleep 0.01; done");
    let mut command = shell(1, &[], &starts);
    command.env("READY", folder.path.join("ready"));
    let outcome = finish(command);
    assert_eq!((outcome.code, outcome.stdout.contains("more\n")), (Some(0), true), "{outcome:?}");
}
