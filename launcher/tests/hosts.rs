//! Jobs on several hosts. What starts their agents is a shell here, so that all hosts are this one by other names; with
//! real ones, and networks between them, see `ci/netns-tests.sh`.

mod common;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::*;
use rustix::process::{kill_process, Pid, Signal};

/// What starts an agent: it is called like ssh, with a host and a command line.
struct Cluster {
    folder: Folder,
}

impl Cluster {
    /// Hosts of any name, but those that `script` does something else for: a shell's lines, in front of what starts
    /// the agent, in which `$host` is the host.
    fn new(name: &str, script: &str) -> Self {
        let folder = Folder::new(&format!("cluster-{name}"));
        let start =
            format!("echo \"$host $$\" >> {}/started\nexec sh -c \"exec $*\"\n", folder.path.display());
        folder.program("agent", &format!("#!/bin/sh\nhost=$1; shift\n{script}\n{start}"));
        Self { folder }
    }

    /// `rmarun` on these hosts.
    fn rmarun(&self, hosts: &str, arguments: &[&str]) -> Command {
        let agent = self.folder.path.join("agent");
        let mut command = rmarun(["--launch-agent", agent.to_str().unwrap(), "--host", hosts]);
        command.args(arguments);
        command
    }

    fn run(&self, hosts: &str, arguments: &[&str]) -> Outcome {
        finish(self.rmarun(hosts, arguments))
    }

    /// The processes that have been started as agents, with the names of their hosts.
    fn agents(&self) -> Vec<(String, i32)> {
        let text = fs::read_to_string(self.folder.path.join("started")).unwrap_or_default();
        let pair = |line: &str| {
            let (host, pid) = line.split_once(' ').unwrap();
            (host.to_owned(), pid.parse().unwrap())
        };
        text.lines().map(pair).collect()
    }
}

fn sorted_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn ranks_on_four_hosts_find_each_other() {
    let cluster = Cluster::new("find", "");
    let outcome = cluster.run("a:2,b:2,c:2,d:2", &[RANK, "place", "publish", "exchange", "leave"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for rank in 0..8 {
        let local = rank % 2;
        for line in [
            format!("rank {rank} of 8, local {local} of 2, single host false"),
            format!("rank {rank} found all 8"),
            format!("rank {rank} left"),
        ] {
            assert!(outcome.stdout.lines().any(|said| said == line), "no '{line}' in {outcome:?}");
        }
    }
    assert_eq!(outcome.stderr, "");
    let mut hosts: Vec<String> = cluster.agents().into_iter().map(|(host, _)| host).collect();
    hosts.sort();
    assert_eq!(hosts, ["a", "b", "c", "d"]);
}

/// The launcher's own host takes ranks without an agent.
#[test]
fn this_host_may_be_one_of_them() {
    let cluster = Cluster::new("own", "");
    let outcome = cluster.run("localhost:2,b:2", &[RANK, "publish", "exchange", "finalize"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.stdout.matches("found all 4").count(), 4, "{outcome:?}");
    assert_eq!(cluster.agents().len(), 1);
}

/// More hosts than one process has agents: some agents are started by agents.
#[test]
fn forty_hosts_are_a_tree() {
    let cluster = Cluster::new("tree", "");
    let outcome = cluster.run("n[1-40]", &[RANK, "publish", "exchange", "leave"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.stdout.matches("found all 40").count(), 40, "{outcome:?}");
    assert_eq!(outcome.stdout.matches(" left").count(), 40, "{outcome:?}");
    assert_eq!(cluster.agents().len(), 40);
}

/// What rmarun says and is told for each host does not depend on how many there are, also where agents have agents.
#[test]
fn a_host_costs_as_much_however_many_there_are() {
    let bytes_per_host = |count: u32| {
        let cluster = Cluster::new(&format!("costs-{count}"), "");
        let steps = ["--verbose", RANK, "publish", "look-near", "finalize"];
        let outcome = cluster.run(&format!("n[01-{count:02}]"), &steps);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let traffic = |line: &str| {
            let (sent, rest) = line.strip_prefix("rmarun: ")?.split_once(" bytes to ")?;
            let (hosts, received) = rest.split_once(" other hosts, ")?;
            assert_eq!(hosts, count.to_string());
            let received = received.strip_suffix(" bytes from them")?;
            Some([sent, received].map(|bytes| bytes.parse::<u32>().unwrap() / count))
        };
        let traffic = outcome.stderr.lines().find_map(traffic);
        let bytes = traffic.unwrap_or_else(|| panic!("nothing about agents in {outcome:?}"));
        println!("{count} hosts: {bytes:?} bytes to and from each");
        bytes
    };
    let first = bytes_per_host(10);
    assert!(first.iter().all(|bytes| *bytes > 0), "{first:?}");
    for (bytes, first) in bytes_per_host(40).into_iter().zip(first) {
        assert!(10 * bytes <= 11 * first, "{bytes} bytes and not {first}");
    }
}

#[test]
fn ranks_take_hosts_as_they_are_told_to() {
    let cluster = Cluster::new("map", "");
    let script = "echo $RMA_RANK $RMA_LOCAL_RANK/$RMA_LOCAL_SIZE $RMA_LOCAL_RANKS";
    let outcome = cluster.run("a:2,b:1", &["--map-by", "node", "sh", "-c", script]);
    assert_eq!(sorted_lines(&outcome.stdout), ["0 0/2 0,2", "1 0/1 1", "2 1/2 0,2"], "{outcome:?}");
    let outcome = cluster.run("a,b", &["--ppn", "2", "sh", "-c", script]);
    let expected = ["0 0/2 0-1", "1 1/2 0-1", "2 0/2 2-3", "3 1/2 2-3"];
    assert_eq!(sorted_lines(&outcome.stdout), expected, "{outcome:?}");
    let outcome = cluster.run("a:1,b:1", &["-n", "3", "true"]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("the hosts have 2 slots"), "{outcome:?}");
}

#[test]
fn an_allocation_of_slurm_is_used() {
    let cluster = Cluster::new("slurm", "");
    let agent = cluster.folder.path.join("agent");
    let mut command = rmarun(["sh", "-c", "echo $RMA_RANK $RMA_LOCAL_SIZE"]);
    command.env("RMA_LAUNCH_AGENT", &agent).env("SLURM_JOB_NODELIST", "n[7-8]");
    command.env("SLURM_TASKS_PER_NODE", "2,1");
    let outcome = finish(command);
    assert_eq!(sorted_lines(&outcome.stdout), ["0 2", "1 2", "2 1"], "{outcome:?}");
    let mut hosts: Vec<String> = cluster.agents().into_iter().map(|(host, _)| host).collect();
    hosts.sort();
    assert_eq!(hosts, ["n7", "n8"]);
}

/// Named hosts of an allocation get their agents from srun, others from ssh.
#[test]
fn hosts_of_an_allocation_may_be_named() {
    let folder = Folder::new("cluster-named");
    let started = folder.path.join("started");
    for (name, words) in [("srun", 9), ("ssh", 5)] {
        let line = format!("echo {name} $1 >> {}\nshift\nexec sh -c \"exec $*\"\n", started.display());
        folder.program(name, &format!("#!/bin/sh\nshift {words}\n{line}"));
    }
    let file = folder.path.join("hosts");
    fs::write(&file, "n8\nn7\n").unwrap();
    let path = format!("{}:{}", folder.path.display(), std::env::var("PATH").unwrap());
    for (places, lines) in [
        (["--host", "n8:1"], ["srun n8"].as_slice()),
        (["--hostfile", file.to_str().unwrap()], &["srun n7", "srun n8"]),
        (["--host", "n7,elsewhere"], &["ssh elsewhere", "ssh n7"]),
    ] {
        let mut command = rmarun(places);
        command.arg("true").env("PATH", &path).env("SLURM_JOB_NODELIST", "n[7-8]");
        let outcome = finish(command);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!(sorted_lines(&fs::read_to_string(&started).unwrap()), lines);
        fs::remove_file(&started).unwrap();
    }
}

/// Variables, directory, programs and standard streams are as on one host.
#[test]
fn options_reach_other_hosts() {
    let cluster = Cluster::new("options", "export ONLY_HERE=$host; cd /");
    let out = cluster.folder.path.join("out");
    let line = "echo $RMA_RANK $ONLY_HERE ${A-unset} ${RMA_COALESCE-unset} $PWD; echo err$RMA_RANK >&2";
    let mut command = cluster.rmarun("a:1,b:2", &["-n", "1", "--output-dir", out.to_str().unwrap()]);
    command.args(["sh", "-c", line, ":", "-n", "2", "-x", "A=x y", "sh", "-c", line]);
    command.env("RMA_COALESCE", "0").current_dir(&cluster.folder.path);
    let outcome = finish(command);
    assert_eq!((outcome.code, &*outcome.stdout, &*outcome.stderr), (Some(0), "", ""));
    let folder = cluster.folder.path.display();
    let lines =
        [format!("0 a unset 0 {folder}"), format!("1 b x y 0 {folder}"), format!("2 b x y 0 {folder}")];
    for (rank, line) in lines.iter().enumerate() {
        let read = |ending: &str| fs::read_to_string(out.join(format!("rank-{rank}.{ending}"))).unwrap();
        assert_eq!((read("out"), read("err")), (format!("{line}\n"), format!("err{rank}\n")));
    }
}

#[test]
fn much_input_and_output_pass() {
    let cluster = Cluster::new("streams", "");
    let mut command =
        cluster.rmarun("a,b", &["--stdin", "all", "--tag-output", "sh", "-c", "tee /dev/stderr"]);
    command.stdin(Stdio::piped());
    let mut job = Running::start(command);
    let mut stdin = job.stdin();
    let text: String = (0..40_000).map(|n| format!("line {n}\n")).collect();
    let written = text.clone();
    let writer = std::thread::spawn(move || stdin.write_all(written.as_bytes()).unwrap());
    let outcome = job.finish();
    writer.join().unwrap();
    assert_eq!(outcome.code, Some(0));
    for said in [&outcome.stdout, &outcome.stderr] {
        for tag in ["[0] ", "[1] "] {
            let of_rank: String =
                said.lines().filter_map(|line| Some(line.strip_prefix(tag)?.to_owned() + "\n")).collect();
            assert!(of_rank == text, "{tag}: {} bytes of {}", of_rank.len(), text.len());
        }
    }
}

/// What comes before all agents are there waits for its reader, on this host and on a slow one: more than a pipe holds,
/// so that the launcher has read some of it; then what comes later, and the end.
#[test]
fn input_waits_for_ranks_that_are_not_started() {
    for reader in ["0", "1", "all"] {
        let name = format!("input-{reader}");
        let go = std::env::temp_dir().join(format!("rmarun-{name}-{}", std::process::id()));
        let slow = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
        let cluster = Cluster::new(&name, &slow);
        let mut command = cluster.rmarun("localhost,b", &["--stdin", reader, "md5sum"]);
        command.stdin(Stdio::piped());
        let mut job = Running::start(command);
        let mut stdin = job.stdin();
        let early: String = (0..14_000).map(|n| format!("{n:05}\n")).collect();
        assert!(early.len() > 80_000);
        stdin.write_all(early.as_bytes()).unwrap();
        fs::write(&go, "").unwrap();
        stdin.write_all(b"late\n").unwrap();
        drop(stdin);
        let outcome = job.finish();
        fs::remove_file(&go).unwrap();
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let of_nothing = "d41d8cd98f00b204e9800998ecf8427e  -";
        let readers = if reader == "all" { 2 } else { 1 };
        let sum = md5sum(&(early + "late\n"));
        let count = |line: &str| outcome.stdout.lines().filter(|said| *said == line).count();
        assert_eq!((count(&sum), count(of_nothing)), (readers, 2 - readers), "{reader}: {outcome:?}");
    }
}

/// The line that `md5sum` prints for a text.
fn md5sum(text: &str) -> String {
    let mut command = Command::new("md5sum");
    command.stdin(Stdio::piped());
    let mut run = Running::start(command);
    run.stdin().write_all(text.as_bytes()).unwrap();
    run.finish().stdout.trim_end().to_owned()
}

#[test]
fn input_that_ends_before_an_agent_is_there_ends_for_its_reader() {
    let cluster = Cluster::new("input-ends", "");
    let input = cluster.folder.path.join("input");
    for text in ["", "hallo\n"] {
        fs::write(&input, text).unwrap();
        let mut command = cluster.rmarun("localhost,b", &["cat"]);
        command.stdin(fs::File::open(&input).unwrap());
        let outcome = finish(command);
        assert_eq!((outcome.code, &*outcome.stdout), (Some(0), text), "{outcome:?}");
    }
}

#[test]
fn signals_and_the_time_limit_reach_other_hosts() {
    let cluster = Cluster::new("signals", "");
    let script = "trap 'echo got it; exit 0' USR1; echo ready; while :; do sleep 0.05; done";
    let mut job = Running::start(cluster.rmarun("a,b", &["sh", "-c", script]));
    assert_eq!((job.stdout_line(), job.stdout_line()), ("ready".into(), "ready".into()));
    job.signal(Signal::USR1);
    let outcome = job.finish();
    assert_eq!((outcome.code, &*outcome.stdout), (Some(0), "got it\ngot it\n"), "{outcome:?}");
    let outcome = cluster.run("a,b", &["--timeout", "1", "sh", "-c", &format!("exec {SLEEP}")]);
    assert_eq!(outcome.code, Some(124), "{outcome:?}");
    assert!(outcome.stderr.contains(", host b): running, has not joined the job"), "{outcome:?}");
}

#[test]
fn stop_and_continue_reach_other_hosts() {
    let cluster = Cluster::new("stops", "");
    let mut job = Running::start(cluster.rmarun("a", &["sh", "-c", &format!("echo $$; exec {SLEEP}")]));
    let rank: i32 = job.stdout_line().parse().unwrap();
    let launcher = job.pid().as_raw_nonzero().get();
    job.signal(Signal::TSTP);
    let is = |pid, state| process_state(pid) == Some(state);
    wait_until("both are stopped", || is(rank, 'T') && is(launcher, 'T'));
    job.signal(Signal::CONT);
    wait_until("both go on", || is(rank, 'S') && is(launcher, 'S'));
    job.signal(Signal::INT);
    let outcome = job.finish();
    assert_eq!(outcome.code, Some(130), "{outcome:?}");
}

/// Ranks elsewhere learn that nobody reads what they write, and do not fill anybody's memory before.
#[test]
fn a_reader_that_leaves_ends_writers_on_other_hosts() {
    let cluster = Cluster::new("reader", "");
    let mut job = Running::start(cluster.rmarun("a,b", &["yes"]));
    assert_eq!(job.stdout_line(), "y");
    let outcome = job.close_stdout();
    assert!(matches!(outcome.code, Some(141 | 1)), "{outcome:?}");
}

/// It is one host's address, so the others are not told to use it.
#[test]
fn agents_connect_by_the_address_that_is_named() {
    let cluster = Cluster::new("iface", "");
    let script = "echo ${FI_TCP_IFACE-unset} $RMA_HOST_ADDRESS";
    let outcome = cluster.run("localhost,b", &["--iface", "127.0.0.1", "sh", "-c", script]);
    assert_eq!(
        (outcome.code, &*outcome.stdout),
        (Some(0), "unset 127.0.0.1\n".repeat(2).as_str()),
        "{outcome:?}"
    );
    let outcome = cluster.run("b", &["--iface", "192.0.2.77", "true"]);
    assert!(outcome.stderr.contains("192.0.2.77"), "{outcome:?}");
}

#[test]
fn places_on_other_hosts_are_reported_and_checked() {
    let cluster = Cluster::new("places", "");
    let outcome = cluster.run("a", &["--bind-to", "core", "--report-bindings", "true"]);
    assert!(outcome.stderr.starts_with("rmarun: host a: rank 0 is bound to processors "), "{outcome:?}");
    assert_eq!((outcome.code, outcome.stderr.lines().count()), (Some(0), 1), "{outcome:?}");
    let outcome = cluster.run("a", &["--wdir", "/nonexistent", "true"]);
    assert_eq!(outcome.code, Some(126), "{outcome:?}");
    assert!(outcome.stderr.contains("host a: /nonexistent is no directory there"), "{outcome:?}");
    let outcome = cluster.run("a", &["-n", "60000", "--bind-to", "core", "true"]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(
        outcome.stderr.contains("cannot be started on host a: --bind-to core: 60000 ranks"),
        "{outcome:?}"
    );
}

#[test]
fn a_failing_rank_is_named_with_its_host() {
    let cluster = Cluster::new("fails", "");
    let script = format!("[ $RMA_RANK = 1 ] || exec {SLEEP}; echo 'disk full' >&2; kill -SEGV $$");
    let outcome = cluster.run("a,b", &["sh", "-c", &script]);
    assert_eq!(outcome.code, Some(139), "{outcome:?}");
    for part in ["rank 1 (pid ", ", host b) was killed by SIGSEGV", "| disk full"] {
        assert!(outcome.stderr.contains(part), "no '{part}' in {outcome:?}");
    }
    // The ranks that were not started because of the first one are not waited for: that would take the grace.
    let outcome = cluster.run("a:2,b:3", &["--grace", "300", "no-such-program"]);
    assert_eq!(outcome.code, Some(127), "{outcome:?}");
    assert!(outcome.stderr.contains("cannot be started on host"), "{outcome:?}");
    assert!(outcome.stderr.contains("program no-such-program not found"), "{outcome:?}");
}

#[test]
fn a_host_that_refuses_is_named_with_what_was_said() {
    let script =
        "[ $host != b ] || { echo 'ssh: connect to host b port 22: Connection refused' >&2; exit 255; }";
    let cluster = Cluster::new("refused", script);
    let outcome = cluster.run("a,b,c", &["sh", "-c", SLEEP]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    for part in [
        "host b is lost with 1 rank: no agent runs there: ",
        "status 255",
        "| ssh: connect to host b port 22",
    ] {
        assert!(outcome.stderr.contains(part), "no '{part}' in {outcome:?}");
    }
    let outcome = finish(rmarun(["--host", "a,b", "--launch-agent", "/nonexistent/ssh", "true"]));
    assert!(outcome.stderr.contains("/nonexistent/ssh cannot be run"), "{outcome:?}");
}

#[test]
fn a_host_that_does_not_answer_ends_the_job_within_the_bound() {
    let cluster = Cluster::new("silent", &format!("[ $host != b ] || exec {SLEEP}"));
    let mut command = cluster.rmarun("a,b", &["sh", "-c", SLEEP]);
    command.env("RMA_BOOTSTRAP_TIMEOUT", "10");
    let outcome = finish(command);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(
        outcome.stderr.contains("host b is lost with 1 rank: no agent has connected within 10 s"),
        "{outcome:?}"
    );
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn a_killed_agent_ends_the_job_and_leaves_nothing() {
    let cluster = Cluster::new("killed", "");
    let mark = format!("RMA_TEST_AGENT={}", std::process::id());
    let script = format!("echo ready; {SLEEP} & wait");
    let mut command = cluster.rmarun("a,b", &["sh", "-c", &script]);
    let (name, value) = mark.split_once('=').unwrap();
    command.env(name, value);
    let mut job = Running::start(command);
    assert_eq!((job.stdout_line(), job.stdout_line()), ("ready".into(), "ready".into()));
    wait_until("what is looked for later is there now", || processes_marked(&mark).len() >= 6);
    let agents = cluster.agents();
    let (_, of_b) = agents.iter().find(|(host, _)| host == "b").unwrap();
    kill(*of_b);
    let outcome = job.finish();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(
        outcome.stderr.contains("host b is lost with 1 rank: the connection to its agent ended"),
        "{outcome:?}"
    );
    wait_until("no process is left", || processes_marked(&mark).is_empty());
}

/// The kernel of its host keeps a stopped agent's connection; only the agent itself can say that it is there.
#[test]
fn a_stopped_agent_ends_the_job_within_the_bound() {
    let cluster = Cluster::new("stopped", "");
    let mark = format!("RMA_TEST_STOPPED={}", std::process::id());
    let mut command = cluster.rmarun("a,b", &["sh", "-c", &format!("echo ready; {SLEEP}")]);
    let (name, value) = mark.split_once('=').unwrap();
    command.env(name, value);
    let mut job = Running::start(command);
    assert_eq!((job.stdout_line(), job.stdout_line()), ("ready".into(), "ready".into()));
    let (_, of_b) = cluster.agents().into_iter().find(|(host, _)| host == "b").unwrap();
    kill_process(Pid::from_raw(of_b).unwrap(), Signal::STOP).unwrap();
    let outcome = job.finish();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(
        outcome.stderr.contains("host b is lost with 1 rank: its agent has said nothing for "),
        "{outcome:?}"
    );
    wait_until("no process is left", || processes_marked(&mark).is_empty());
}

#[test]
fn a_job_that_keeps_going_survives_a_host() {
    let cluster = Cluster::new("survives", "");
    let mut command = cluster.rmarun("a,b", &["--keep-going", RANK, "publish", "print=ready", "wait@1"]);
    command.args(["run@0=read line", "lookup@0=1", "print@0=went on", "finalize"]).stdin(Stdio::piped());
    let mut job = Running::start(command);
    assert_eq!((job.stdout_line(), job.stdout_line()), ("ready".into(), "ready".into()));
    let (_, of_b) = cluster.agents().into_iter().find(|(host, _)| host == "b").unwrap();
    kill(of_b);
    let line = job.stderr_line();
    assert!(line.contains("host b is lost with 1 rank") && line.contains("the job goes on"), "{line}");
    writeln!(job.stdin(), "on").unwrap();
    assert_eq!(job.stdout_line(), "went on");
    assert_eq!(job.finish().code, Some(1));
}

#[test]
fn a_killed_launcher_leaves_nothing_anywhere() {
    let cluster = Cluster::new("orphans", "");
    let mark = format!("RMA_TEST_ORPHANS={}", std::process::id());
    let (name, value) = mark.split_once('=').unwrap();
    let script = format!("echo ready; {SLEEP} & wait");
    // Forty hosts, so that some agents belong to agents.
    for hosts in ["a,b", "n[1-40]"] {
        let mut command = cluster.rmarun(hosts, &["sh", "-c", &script]);
        command.env(name, value);
        let mut job = Running::start(command);
        job.stdout_line();
        job.signal(Signal::KILL);
        wait_until("no process is left", || processes_marked(&mark).is_empty());
        assert_eq!(job.finish().code, None);
    }
}

/// Moments of a job's start are what is tested, hence the sleep: there is no event to wait for.
#[test]
fn whoever_is_killed_at_whatever_moment_nothing_is_left() {
    let rounds = std::env::var("RMA_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(8_u32);
    for round in 0..rounds {
        let cluster = Cluster::new(&format!("moments-{round}"), "");
        let mark = format!("RMA_TEST_MOMENT={}-{round}", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        let mut command =
            cluster.rmarun("localhost:2,b:2,c:2", &["sh", "-c", &format!("{SLEEP} & {SLEEP} & wait")]);
        command.env(name, value);
        let job = Running::start(command);
        let share = f64::from(round.wrapping_add(1).wrapping_mul(2_654_435_769)) / f64::from(u32::MAX);
        std::thread::sleep(Duration::from_millis(200).mul_f64(share));
        let is_launcher = round % 2 == 0;
        if is_launcher {
            job.signal(Signal::KILL);
        } else {
            wait_until("an agent runs", || !cluster.agents().is_empty());
            kill(cluster.agents()[0].1);
        }
        let outcome = job.finish();
        assert_eq!(outcome.code, (!is_launcher).then_some(1), "{outcome:?}");
        wait_until("no process is left", || processes_marked(&mark).is_empty());
    }
}

#[test]
fn a_rank_that_hangs_at_its_start_is_named_with_its_host() {
    let cluster = Cluster::new("hangs", "");
    // Rank 0 itself would wait for longer, so that it is always the launcher that says so.
    let waits = format!("RMA_BOOTSTRAP_TIMEOUT=300 exec {RANK} publish lookup=1 finalize");
    let script = format!("[ $RMA_RANK = 1 ] && exec {SLEEP}; {waits}");
    let mut command = cluster.rmarun("a,b", &["sh", "-c", &script]);
    command.env("RMA_BOOTSTRAP_TIMEOUT", "20");
    let outcome = finish(command);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    for part in ["rank 1 (pid ", ", host b) has not joined the job for 18 s", "rank 0 waits for it"] {
        assert!(outcome.stderr.contains(part), "no '{part}' in {outcome:?}");
    }
}

#[test]
fn programs_of_others_run_on_several_hosts() {
    let cluster = Cluster::new("pmi", "");
    let script = r#"
        say() { printf 'cmd=%s\n' "$1" >&$PMI_FD; }
        hear() { read -r line <&$PMI_FD; }
        say 'init pmi_version=1 pmi_subversion=1'; hear
        say "put kvsname=$RMA_JOB_ID key=k$PMI_RANK value=of-$PMI_RANK"; hear
        say barrier_in; hear
        say "get kvsname=$RMA_JOB_ID key=k$(( (PMI_RANK + 1) % PMI_SIZE ))"; hear; echo "$PMI_RANK ${line##*value=}"
        [ $PMI_RANK != 0 ] || { say "get kvsname=$RMA_JOB_ID key=PMI_process_mapping"; hear; echo "${line##*value=}"; }
        say finalize; hear"#;
    // A shell that reads and writes any descriptor by number.
    let outcome = cluster.run("a:2,b:2", &["bash", "-c", script]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let lines = ["(vector,(0,2,2))", "0 of-1", "1 of-2", "2 of-3", "3 of-0"];
    assert_eq!(sorted_lines(&outcome.stdout), lines, "{outcome:?}");
}

#[test]
fn an_agent_started_by_hand_says_what_it_is() {
    let mut command = rmarun(["--agent"]);
    command.stdin(Stdio::null());
    let outcome = finish(command);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("description of the job is incomplete"), "{outcome:?}");
}
