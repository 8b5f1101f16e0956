//! A launcher that is killed at any moment leaves no process behind, neither ranks nor what these started, and no
//! shared memory; and a job that ends does not either.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::*;
use rustix::process::{kill_process, Pid, Signal};

/// Kills in a run of the tests; `RMA_TEST_KILLS` asks for more.
const KILLS: u32 = 12;

/// The latest moment of a kill after the start: by then all ranks run.
const LATEST_KILL: Duration = Duration::from_millis(60);

/// How long the kernel and the keeper may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Processes whose environment has `mark`, with their command lines; the dead have none.
fn marked(mark: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let paths = processes.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok());
    let has_mark = |environ: &[u8]| environ.windows(mark.len()).any(|part| part == mark.as_bytes());
    // A process may end while it is looked at; the environment of a dead one is empty.
    let is_marked =
        |path: &std::path::PathBuf| fs::read(path.join("environ")).is_ok_and(|bytes| has_mark(&bytes));
    let found = paths.map(|entry| entry.path()).filter(is_marked);
    found.map(|path| format!("{path:?} {:?}", fs::read_to_string(path.join("cmdline")))).collect()
}

/// A shell's commands that start what leaves the rank's process group: three processes.
fn escapees() -> String {
    format!("timeout 1000 {SLEEP} & setsid {SLEEP} &")
}

/// A number below 1, from a counter: the same in each run.
fn fraction(index: u32) -> f64 {
    f64::from(index.wrapping_add(1).wrapping_mul(2_654_435_769)) / f64::from(u32::MAX)
}

/// Looks until `is_so`, since nothing tells of the end of somebody else's processes.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_launcher_leaves_no_process() {
    let kills = std::env::var("RMA_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    for index in 0..kills {
        let mark = format!("RMA_TEST_MARK={}-{index}.", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        let mut command: Command = shell(3, &[], &format!("{SLEEP} & {} wait", escapees()));
        command.env(name, value).stdout(Stdio::null()).stderr(Stdio::null());
        let mut launcher = command.spawn().unwrap();
        let moment = LATEST_KILL.mul_f64(fraction(index));
        if index == 0 {
            // The first is killed when all run what is to be killed, which also shows that they would be found.
            let sleepers = || marked(&mark).iter().filter(|process| process.contains("sleep\\0300")).count();
            wait_until("the ranks do not run", || sleepers() == 12);
        } else {
            // The moment is what is tested: there is no event to wait for.
            std::thread::sleep(moment);
        }
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        wait_until(&format!("killed after {moment:?}, processes are left"), || marked(&mark).is_empty());
    }
}

/// A job that ends, by itself or by a failure, with processes that have left their rank's process group.
#[test]
fn what_has_left_its_group_ends_with_the_job() {
    let waits = "while ! [ -e $READY ]; do sleep 0.01; done";
    for (index, (code, last)) in [
        (0, "true".to_owned()),
        (3, format!("if [ $RMA_RANK = 1 ]; then {waits}; exit 3; fi; : > $READY; {SLEEP}")),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = Folder::new(&format!("left-{index}"));
        let mark = format!("RMA_TEST_MARK={}-left-{index}.", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        let mut command = shell(2, &["--grace", "0.1"], &format!("{} {last}", escapees()));
        command.env(name, value).env("READY", folder.path.join("ready"));
        let outcome = finish(command);
        assert_eq!(outcome.code, Some(code), "{outcome:?}");
        // They have been told to; nothing tells when they are gone, nor when the keeper is, which kills nobody here.
        wait_until("processes are left", || marked(&mark).is_empty());
    }
}

/// Kills the processes that have a mark when it is dropped.
struct Killer<'a>(&'a str);

impl Drop for Killer<'_> {
    fn drop(&mut self) {
        for process in processes_marked(self.0).into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

/// A job within a rank of another: when the outer is killed, nothing of the inner is left either. What was started
/// to outlive the job does.
#[test]
fn a_job_within_a_rank_ends_with_the_outer_one() {
    let mark = format!("RMA_TEST_MARK={}-inner.", std::process::id());
    let _killer = Killer(&mark);
    let (name, value) = mark.split_once('=').unwrap();
    let inner = format!("{} wait", escapees());
    let script =
        format!("env -u RMA_JOB_ID setsid sleep 400 & {} -n 2 sh -c '{inner}'", env!("CARGO_BIN_EXE_rmarun"));
    let mut command = shell(1, &[], &script);
    command.env(name, value).stdout(Stdio::null()).stderr(Stdio::null());
    let mut launcher = command.spawn().unwrap();
    let count = |text: &str| marked(&mark).iter().filter(|process| process.contains(text)).count();
    wait_until("the ranks do not run", || count("sleep\\0300") == 6 && count("\"sleep\\0400\\0\"") == 1);
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    wait_until("processes are left", || marked(&mark).len() == 1);
    assert_eq!(count("\"sleep\\0400\\0\""), 1, "what may stay was killed");
}

/// A rank behind a shell is not the process that the launcher has started. It is killed alone, or the launcher is.
#[test]
fn what_ranks_behind_a_shell_leave_in_shared_memory_is_removed() {
    for victim in ["rank", "launcher"] {
        let script = format!("{RANK} publish 'run=: > /dev/shm/$PPID:0:7; echo $PPID' wait; exit 5");
        let mut job = Running::start(shell(2, &["--grace", "0.1"], &script));
        let ranks = [job.stdout_line(), job.stdout_line()];
        let files = ranks.clone().map(|rank| Path::new("/dev/shm").join(format!("{rank}:0:7")));
        assert!(files.iter().all(|file| file.exists()), "{files:?}");
        match victim {
            "rank" => kill_process(Pid::from_raw(ranks[1].parse().unwrap()).unwrap(), Signal::KILL).unwrap(),
            _ => job.signal(Signal::KILL),
        }
        let outcome = job.finish();
        assert_eq!(outcome.code, (victim == "rank").then_some(5), "{outcome:?}");
        wait_until("files are left", || !files.iter().any(|file| file.exists()));
    }
}
