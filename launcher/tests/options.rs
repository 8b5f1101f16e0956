//! Options of a job on one host, seen from its ranks.

mod common;

use std::fs;
use std::io::Write;
use std::process::Stdio;

use common::*;

fn run(arguments: &[&str]) -> Outcome {
    finish(rmarun(arguments))
}

fn sorted_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Runs what must be refused before anything starts.
fn refused(arguments: &[&str], part: &str) {
    let outcome = run(arguments);
    assert_eq!((outcome.code, &*outcome.stdout), (Some(2), ""), "{arguments:?}: {outcome:?}");
    assert!(outcome.stderr.contains(part), "no '{part}' in {outcome:?}");
}

#[test]
fn several_programs_are_one_job() {
    let script =
        |name: &str| format!("echo {name} $RMA_RANK/$RMA_SIZE $RMA_LOCAL_RANK $PMI_RANK ${{A-unset}} $B");
    let (first, second) = (script("first"), script("second"));
    let (one, two): (&[&str], &[&str]) =
        (&["-n", "1", "-genv", "B", "all"], &["-np", "2", "-x", "A=2", "-wdir", "/"]);
    let words = [one, &["sh", "-c", &first, ":"], two, &["sh", "-c", &second]].concat();
    let outcome = run(&words);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let lines = ["first 0/3 0 0 unset all", "second 1/3 1 1 2 all", "second 2/3 2 2 2 all"];
    assert_eq!(sorted_lines(&outcome.stdout), lines);
    let outcome = run(&["-n", "2", RANK, "publish", "finalize", ":", "-n", "2", RANK, "publish", "finalize"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let outcome = run(&["-n", "1", "true", ":", "-n", "1", "no-such-program"]);
    assert_eq!(outcome.code, Some(127), "{outcome:?}");
}

#[test]
fn hosts_say_how_many_ranks() {
    let folder = Folder::new("hosts");
    let file = folder.path.join("hosts");
    fs::write(&file, "# this one\nlocalhost slots=3\n").unwrap();
    let path = file.to_str().unwrap();
    for (arguments, ranks) in [
        (&["--hostfile", path][..], 3),
        (&["-f", path, "-n", "2"], 2),
        (&["-host", "localhost:2"], 2),
        (&["-ppn", "4"], 4),
        (&["-host", "localhost", "-n", "3"], 3),
    ] {
        let outcome = run(&[arguments, &["echo", "here"]].concat());
        assert_eq!(
            (outcome.code, outcome.stdout.lines().count()),
            (Some(0), ranks),
            "{arguments:?} {outcome:?}"
        );
    }
    refused(&["-f", path, "-n", "4", "true"], "the hosts have 3 slots");
    refused(&["-host", "n[1-", "-n", "1", "true"], "brackets");
    refused(&["-f", "/nonexistent", "true"], "--hostfile /nonexistent");
    refused(&["-n", "4", "--ppn", "2", "true"], "need 2 hosts");
    fs::write(&file, "localhost\nlocalhost slots=none\n").unwrap();
    refused(&["-f", path, "true"], "line 2");
}

#[test]
fn ranks_are_bound_and_it_is_reported() {
    let script = "grep Cpus_allowed_list /proc/self/status | cut -f2";
    let free = finish(shell(1, &["--report-bindings"], script));
    assert!(free.stderr.contains("rank 0 is not bound"), "{free:?}");
    let bound = finish(shell(1, &["--bind-to", "core", "--report-bindings"], script));
    assert_eq!(bound.code, Some(0), "{bound:?}");
    let processors = bound.stdout.trim_end();
    let line = format!("rank 0 is bound to processors {processors} (a core of NUMA node ");
    assert!(bound.stderr.contains(&line), "{bound:?}");
    for place in ["numa", "socket"] {
        let outcome = finish(shell(3, &["--bind-to", place, "--map-by", "slot"], script));
        assert_eq!((outcome.code, outcome.stdout.lines().count()), (Some(0), 3), "{outcome:?}");
    }
    let outcome = finish(shell(1, &["--map-by", "core"], script));
    assert_eq!(outcome.stdout, bound.stdout, "mapping by cores binds to them");
    // A bound rank sees its own processors only, and is told how many all have together.
    let told = "echo ${RMA_HOST_PROCESSORS:-nothing}; nproc";
    let outcome = finish(shell(1, &["--bind-to", "core"], told));
    let [together, own] = outcome.stdout.lines().collect::<Vec<_>>()[..] else { panic!("{outcome:?}") };
    assert_eq!(together, own, "one rank's are all that there are");
    let outcome = finish(shell(1, &["--genv", "RMA_HOST_PROCESSORS", "7"], told));
    assert!(outcome.stdout.starts_with("nothing"), "{outcome:?}");
    refused(&["-n", "60000", "--bind-to", "core", "true"], "--bind-to core: 60000 ranks and");
    refused(&["-n", "1", "--bind-to", "moon", "true"], "possible values: none, core, numa, socket");
}

#[test]
fn no_library_installs_handlers_of_its_own_while_ranks_start() {
    let told = "echo ${IPATH_NO_BACKTRACE-handlers}";
    assert_eq!(finish(shell(1, &[], told)).stdout, "1\n");
    assert_eq!(
        finish(shell(1, &["-x", "IPATH_NO_BACKTRACE=0"], told)).stdout,
        "0\n",
        "whoever asks for another"
    );
}

#[test]
fn output_goes_to_a_file_for_each_stream() {
    let folder = Folder::new("output-dir");
    let out = folder.path.join("a/b");
    let path = out.to_str().unwrap();
    let outcome = finish(shell(2, &["--output-dir", path], "printf \"out $RMA_RANK\"; echo err >&2"));
    assert_eq!((outcome.code, &*outcome.stdout, &*outcome.stderr), (Some(0), "", ""), "{outcome:?}");
    for rank in 0..2 {
        let read = |ending: &str| fs::read_to_string(out.join(format!("rank-{rank}.{ending}"))).unwrap();
        assert_eq!((read("out"), read("err")), (format!("out {rank}"), "err\n".into()));
    }
    let outcome = finish(shell(1, &["--output-dir", path], "echo the reason >&2; exit 3"));
    assert!(outcome.stderr.contains("| the reason"), "a failure still shows its last lines: {outcome:?}");
    refused(&["-n", "1", "--output-dir", "/proc/nothing", "true"], "--output-dir /proc/nothing");
}

/// The kernel's own full disk.
#[test]
fn a_full_disk_is_named_and_stops_who_writes() {
    let folder = Folder::new("full");
    std::os::unix::fs::symlink("/dev/full", folder.path.join("rank-0.out")).unwrap();
    let outcome = finish(shell(1, &["--output-dir", folder.path.to_str().unwrap()], "exec yes"));
    assert!(matches!(outcome.code, Some(141 | 1)), "{outcome:?}");
    assert!(outcome.stderr.contains("rank-0.out: No space left on device"), "{outcome:?}");
}

#[test]
fn standard_input_goes_to_whom_it_is_given() {
    let sums = |who: &str| {
        let mut command = shell(3, &["--stdin", who, "--tag-output"], "cksum");
        command.stdin(Stdio::piped());
        let mut job = Running::start(command);
        let mut stdin = job.stdin();
        let writer = std::thread::spawn(move || {
            // With nobody to read it, what is written is not taken.
            let _ = (0..20_000).try_for_each(|n| writeln!(stdin, "line {n}"));
        });
        let outcome = job.finish();
        writer.join().unwrap();
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let bytes = |line: &String| line.split_whitespace().nth(2).unwrap().parse::<usize>().unwrap();
        sorted_lines(&outcome.stdout).iter().map(bytes).collect::<Vec<_>>()
    };
    let all: usize = (0..20_000).map(|n| format!("line {n}\n").len()).sum();
    assert_eq!(sums("2"), [0, 0, all]);
    assert_eq!(sums("all"), [all, all, all]);
    assert_eq!(sums("none"), [0, 0, 0]);
    refused(&["-n", "2", "--stdin", "2", "true"], "--stdin 2: the job has the ranks 0 to 1");
}

#[test]
fn the_interface_is_checked_and_handed_on() {
    let outcome = finish(shell(1, &["--iface", "lo"], "echo $FI_TCP_IFACE $FI_SOCKETS_IFACE"));
    assert_eq!(outcome.stdout, "lo lo\n", "{outcome:?}");
    refused(
        &["-n", "1", "--iface", "nosuch9", "true"],
        "--iface nosuch9: this host has no such interface or address, but",
    );
    let outcome = finish(shell(1, &["--iface", "127.0.0.1"], "echo ${FI_TCP_IFACE-unset}"));
    assert_eq!(outcome.stdout, "unset\n", "{outcome:?}");
    // An address for documents, which no host has.
    refused(&["-n", "1", "--iface", "192.0.2.77", "true"], "--iface 192.0.2.77: this host has no such");
}

#[test]
fn a_job_that_keeps_going_survives_its_ranks() {
    let script =
        "[ $RMA_RANK = 1 ] && exit 3; [ $RMA_RANK = 2 ] && kill -SEGV $$; read line; echo done $line";
    let mut command = shell(3, &["--keep-going"], script);
    command.stdin(Stdio::piped());
    let mut job = Running::start(command);
    let mut stdin = job.stdin();
    let lines = [job.stderr_line(), job.stderr_line()];
    assert!(lines
        .iter()
        .any(|line| line.contains("rank 1 (pid") && line.contains("status 3; the job goes on")));
    assert!(lines
        .iter()
        .any(|line| line.contains("rank 2 (pid") && line.contains("SIGSEGV; the job goes on")));
    stdin.write_all(b"well\n").unwrap();
    assert_eq!(job.stdout_line(), "done well");
    let outcome = job.finish();
    assert!(matches!(outcome.code, Some(3 | 139)), "the first failure: {outcome:?}");
}

/// Locks that are words are lost with a rank that has them. Who says how windows are locked is heeded.
#[test]
fn a_job_that_keeps_going_locks_by_messages_unless_told_otherwise() {
    let said = |arguments: &[&str], variable: Option<&str>| {
        let mut command = shell(1, arguments, "echo ${RMA_LOCK_PROTOCOL-unset}");
        command.envs(variable.map(|value| ("RMA_LOCK_PROTOCOL", value)));
        finish(command).stdout
    };
    assert_eq!(said(&[], None), "unset\n");
    assert_eq!(said(&["--keep-going"], None), "message\n");
    assert_eq!(said(&["--keep-going"], Some("auto")), "auto\n");
    assert_eq!(said(&["--keep-going", "--genv", "RMA_LOCK_PROTOCOL", "nic"], None), "nic\n");
    assert_eq!(said(&["--keep-going", "-x", "RMA_LOCK_PROTOCOL=auto"], None), "auto\n");
}

/// The larger the job, the fewer packets each rank has under way to another one. Who says how many is heeded.
#[test]
fn many_ranks_over_rxd_have_fewer_packets_under_way() {
    let said = |ranks: u32, arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = shell(ranks, arguments, "echo ${FI_OFI_RXD_MAX_UNACKED-unset}");
        command.envs(variables.iter().copied());
        let outcome = finish(command);
        outcome.stdout.lines().next().unwrap_or_default().to_owned()
    };
    const RXD: &str = "udp;ofi_rxd";
    assert_eq!(said(8, &[], &[]), "unset");
    assert_eq!(said(8, &["--provider", "net"], &[("FI_PROVIDER", "tcp")]), "unset");
    assert_eq!(said(8, &["--provider", RXD], &[]), "12");
    assert_eq!(said(2, &["--provider", RXD], &[]), "48");
    assert_eq!(said(8, &[], &[("RMA_PROVIDER", RXD)]), "12");
    assert_eq!(said(8, &["-x", "FI_PROVIDER=ofi_rxd"], &[]), "12");
    assert_eq!(said(8, &["--provider", RXD], &[("FI_OFI_RXD_MAX_UNACKED", "7")]), "7");
    assert_eq!(said(8, &["--provider", RXD, "-x", "FI_OFI_RXD_MAX_UNACKED=9"], &[]), "9");
}

/// Peers of a rank that is gone are answered, and do not wait for it.
#[test]
fn peers_of_a_lost_rank_get_errors() {
    let mut command = rmarun(["-n", "2", "--keep-going", RANK]);
    command.args(["exit@1=5", "publish", "lookup@0=1", "finalize"]);
    let outcome = finish(command);
    assert!(matches!(outcome.code, Some(5 | 1)), "{outcome:?}");
    assert!(outcome.stderr.contains("rank 1 will not publish it"), "{outcome:?}");
}

#[test]
fn manual_and_completions_come_from_the_definitions() {
    let outcome = run(&["--man"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for part in [".TH rmarun 1", "\\-\\-bind\\-to", "\\-\\-keep\\-going"] {
        assert!(outcome.stdout.contains(part), "no '{part}' in the man page");
    }
    for shell in ["bash", "zsh", "fish"] {
        let outcome = run(&["--completions", shell]);
        assert!(outcome.code == Some(0) && outcome.stdout.contains("report-bindings"), "{outcome:?}");
    }
    refused(&["--completions", "tea"], "possible values");
}
