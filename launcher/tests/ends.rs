//! How jobs end: exit codes, signals, time limits, and that nothing is left behind.

mod common;

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use common::*;
use rustix::process::Signal;

#[test]
fn the_first_failing_rank_gives_the_exit_code() {
    let script = format!("[ $RMA_RANK = 1 ] || exec {SLEEP}; echo some; echo 'disk full' >&2; exit 3");
    let outcome = finish(shell(3, &[], &script));
    assert_eq!(outcome.code, Some(3), "{outcome:?}");
    for part in ["rank 1 (pid ", ", host ", "exited with status 3", "| disk full"] {
        assert!(outcome.stderr.contains(part), "no '{part}' in {}", outcome.stderr);
    }
}

#[test]
fn a_rank_that_is_killed_gives_128_and_the_signal() {
    let outcome = finish(shell(2, &[], &format!("[ $RMA_RANK = 0 ] || exec {SLEEP}; kill -SEGV $$")));
    assert_eq!(outcome.code, Some(139), "{outcome:?}");
    assert!(outcome.stderr.contains("rank 0 (pid ") && outcome.stderr.contains("was killed by SIGSEGV"));
}

#[test]
fn a_job_without_failures_gives_0() {
    assert_eq!(finish(shell(3, &[], "exit 0")).code, Some(0));
}

#[test]
fn the_time_limit_gives_124_and_says_where_every_rank_was() {
    let mut command = rmarun(["-n", "3", "--timeout", "15", RANK]);
    command.args(["publish", "print@0=got here", "finalize@1", "exit@1=0", "wait"]);
    let outcome = finish(command);
    assert_eq!(outcome.code, Some(124), "{outcome:?}");
    let line = |rank: &str| outcome.stderr.lines().find(|line| line.contains(rank)).unwrap_or_default();
    assert!(line("rank 0").contains("has joined the job; last line: got here"), "{outcome:?}");
    assert!(line("rank 1").contains("exited with status 0"), "{outcome:?}");
    assert!(line("rank 2").contains("running, has joined the job"), "{outcome:?}");
    assert!(outcome.stderr.contains("time limit of 15 s"), "{outcome:?}");
}

#[test]
fn ranks_that_ignore_the_request_are_killed_after_the_grace() {
    // Rank 0 fails on demand, when rank 1 is known to ignore what comes.
    let script =
        "[ $RMA_RANK = 0 ] && read line && exit 5; trap '' TERM; echo ready; while :; do sleep 1; done";
    let mut command = shell(2, &["--grace", "0.3"], script);
    command.stdin(std::process::Stdio::piped());
    let mut job = Running::start(command);
    let mut stdin = job.stdin();
    assert_eq!(job.stdout_line(), "ready");
    stdin.write_all(b"fail\n").unwrap();
    let outcome = job.finish();
    assert_eq!(outcome.code, Some(5), "{outcome:?}");
    assert!(outcome.stderr.contains("1 rank not ended after being asked to; killing now"), "{outcome:?}");
}

#[test]
fn leaving_without_finalize_is_a_failure_while_others_are_at_work() {
    let outcome = finish(ranks(2, &["publish", "exit@1=0", "wait"]));
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(
        outcome.stderr.contains("rank 1") && outcome.stderr.contains("without finalizing"),
        "{outcome:?}"
    );
    assert_eq!(finish(ranks(1, &["publish"])).code, Some(0));
    assert_eq!(finish(ranks(2, &["publish", "finalize"])).code, Some(0));
}

#[test]
fn an_abort_ends_the_job_with_its_code_and_message() {
    let outcome = finish(ranks(3, &["abort@2=mesh is empty", "exit@2=3", "wait"]));
    assert_eq!(outcome.code, Some(7), "{outcome:?}");
    assert!(outcome.stderr.contains("rank 2") && outcome.stderr.contains("mesh is empty"), "{outcome:?}");
}

#[test]
fn a_rank_that_aborts_may_say_why_before_the_others_are_ended() {
    let script = "trap 'echo asked to end >&2; exit 0' TERM; echo one; while :; do sleep 0.05; done";
    for _ in 0..10 {
        let steps = ["abort@2=m", "run@2=echo last words >&2", "exit@2=3", &format!("run={script}")];
        let outcome = finish(ranks(3, &steps));
        assert_eq!(outcome.code, Some(7), "{outcome:?}");
        let at = |part: &str| outcome.stderr.find(part);
        assert!(at("last words").is_some(), "{outcome:?}");
        assert!(at("last words") < at("rank 2 (pid ") && at("   | last words").is_some(), "{outcome:?}");
        assert!(at("asked to end").is_none_or(|asked| at("last words") < Some(asked)), "{outcome:?}");
    }
}

#[test]
fn a_rank_that_aborts_and_stays_is_ended_with_the_others() {
    let outcome = finish(ranks(2, &["abort@1=mesh is empty", "wait"]));
    assert_eq!(outcome.code, Some(7), "{outcome:?}");
    assert!(outcome.stderr.contains("mesh is empty"), "{outcome:?}");
}

const CATCHES_INTERRUPTS: &str = "trap 'echo caught; exit 0' INT; echo ready; while :; do sleep 0.05; done";

#[test]
fn one_interrupt_asks_the_ranks_to_end() {
    // It is not waited for: the test's own limit is shorter.
    let mut job = Running::start(shell(2, &["--grace", "300"], CATCHES_INTERRUPTS));
    assert_eq!((job.stdout_line(), job.stdout_line()), ("ready".into(), "ready".into()));
    job.signal(Signal::INT);
    let outcome = job.finish();
    assert_eq!(outcome.code, Some(130), "{outcome:?}");
    assert_eq!(outcome.stdout, "caught\ncaught\n");
}

#[test]
fn a_second_interrupt_kills() {
    let mut job = Running::start(shell(
        2,
        &["--grace", "300"],
        "trap '' INT TERM; echo ready; while :; do sleep 0.05; done",
    ));
    assert_eq!((job.stdout_line(), job.stdout_line()), ("ready".into(), "ready".into()));
    job.signal(Signal::INT);
    let line = job.stderr_line();
    assert!(line.contains("SIGINT: asking 2 ranks to end"), "{line}");
    job.signal(Signal::INT);
    let outcome = job.finish();
    assert_eq!(outcome.code, Some(130), "{outcome:?}");
    assert!(outcome.stderr.contains("killing now"), "{outcome:?}");
}

#[test]
fn terminate_and_hang_up_end_the_job() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let job = heeds_hang_up(&shell(2, &[], &format!("echo ready; exec {SLEEP}")));
        let mut job = Running::start(job);
        job.stdout_line();
        job.signal(signal);
        assert_eq!(job.finish().code, Some(code));
    }
}

/// The same, where SIGHUP counts although whoever runs the tests has it ignored, as nohup(1) does.
fn heeds_hang_up(job: &Command) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP").arg(job.get_program()).args(job.get_args());
    without_settings(&mut command);
    command
}

#[test]
fn user_signals_reach_the_ranks() {
    let script = "trap 'echo got it; exit 0' USR1; echo ready; while :; do sleep 0.05; done";
    let mut job = Running::start(shell(2, &[], script));
    assert_eq!((job.stdout_line(), job.stdout_line()), ("ready".into(), "ready".into()));
    job.signal(Signal::USR1);
    let outcome = job.finish();
    assert_eq!((outcome.code, &*outcome.stdout), (Some(0), "got it\ngot it\n"), "{outcome:?}");
}

#[test]
fn stop_and_continue_reach_the_ranks() {
    let mut job = Running::start(shell(1, &[], &format!("echo $$; exec {SLEEP}")));
    let rank: i32 = job.stdout_line().parse().unwrap();
    let launcher = job.pid().as_raw_nonzero().get();
    job.signal(Signal::TSTP);
    wait_until("both are stopped", || {
        process_state(rank) == Some('T') && process_state(launcher) == Some('T')
    });
    job.signal(Signal::CONT);
    wait_until("both go on", || process_state(rank) == Some('S') && process_state(launcher) == Some('S'));
    job.signal(Signal::TERM);
    assert_eq!(job.finish().code, Some(143));
}

/// Ctrl-C typed at a terminal, by way of script(1), which makes one.
#[test]
fn a_terminal_reaches_the_job() {
    let program = format!(
        "{} -n 2 sh -c 'trap \"exit 0\" INT; echo $RMA_RANK watched $RMA_STDERR_IS_TERMINAL; while :; do sleep 0.05; done'",
        env!("CARGO_BIN_EXE_rmarun")
    );
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &program, "/dev/null"]);
    without_settings(&mut command);
    command.stdin(std::process::Stdio::piped());
    let mut job = Running::start(command);
    let mut keyboard = job.stdin();
    let mut lines = [job.stdout_line(), job.stdout_line()];
    lines.sort();
    assert_eq!(lines, ["0 watched 1", "1 watched 0"]);
    keyboard.write_all(b"\x03").unwrap();
    let outcome = job.finish();
    assert_eq!(outcome.code, Some(130), "{outcome:?}");
}

/// Ranks and the programs they started, and the launcher's own helper, which all share a mark in
/// their environment.
#[test]
fn a_killed_launcher_leaves_no_process() {
    let mark = format!("RMA_TEST_MARK=killed-{}", std::process::id());
    let mut command = shell(3, &[], &format!("{SLEEP} & echo ready; wait"));
    let (name, value) = mark.split_once('=').unwrap();
    command.env(name, value);
    let mut job = Running::start(command);
    for _ in 0..3 {
        job.stdout_line();
    }
    wait_until("what is looked for later is there now", || processes_marked(&mark).len() > 3 + 3);
    job.signal(Signal::KILL);
    wait_until("nothing is left", || processes_marked(&mark).is_empty());
    drop(job.finish());
}

/// The same at moments from before the first rank to after the last.
#[test]
fn a_launcher_killed_at_any_moment_leaves_no_process() {
    for cycle in 0..25 {
        let mark = format!("RMA_TEST_MARK=cycle-{cycle}-{}", std::process::id());
        let mut command = shell(4, &[], &format!("{SLEEP} & wait"));
        let (name, value) = mark.split_once('=').unwrap();
        command.env(name, value);
        let job = Running::start(command);
        // Not a wait for anything: the moment is what is varied.
        std::thread::sleep(Duration::from_micros(400 * cycle));
        job.signal(Signal::KILL);
        drop(job.finish());
        wait_until("nothing is left", || processes_marked(&mark).is_empty());
    }
}

#[test]
fn what_ranks_leave_running_ends_with_the_job() {
    let mark = format!("RMA_TEST_MARK=left-{}", std::process::id());
    let mut command = shell(2, &[], &format!("{SLEEP} & exit 0"));
    let (name, value) = mark.split_once('=').unwrap();
    command.env(name, value);
    assert_eq!(finish(command).code, Some(0));
    wait_until("nothing is left", || processes_marked(&mark).is_empty());
}
