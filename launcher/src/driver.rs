//! The loop that carries a job: it feeds what happens to the [`Job`], on this host and on the others, and does what
//! the job says. One thread; nothing in it blocks but the poll.

mod last_output;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rma_bootstrap::pmi::wire::Message;
use rma_bootstrap::tree::{Down, Exit, Up, CHUNK_BYTES_MAX};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{kill_process, Signal};

use crate::branches::{self, Branches};
use crate::failure::Failure;
use crate::files::OutputFile;
use crate::host::HostRanks;
use crate::job::{Action, ExitStatus, Job, Report};
use crate::local::{self, LocalRanks};
use crate::output::Sink;
use crate::poll::poll;
use crate::report;
use crate::signals::{Meaning, Signals};
use crate::stdin::Stdin;
use crate::view::{Pmi, View};

/// How often a launcher in the background looks whether it has come to the foreground.
const FOREGROUND_INTERVAL: Duration = Duration::from_millis(500);

/// What the poll watches.
#[derive(Clone, Copy, Debug)]
enum Watched {
    Signals,
    Local(local::Watched),
    Branch(branches::Watched),
    Sink(usize),
    Stdin,
}

/// How the user wants to be told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Whether to say which process each rank is, and how it ended.
    pub(crate) is_verbose: bool,
    /// Whether to mark each line with the rank.
    pub(crate) tags_output: bool,
}

/// The parts of a job besides what decides about it.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The ranks of this host, none of them started.
    pub(crate) local: LocalRanks,
    /// The agents of the other hosts.
    pub(crate) branches: Branches,
    /// What is to be started on this host.
    pub(crate) ranks_here: Option<HostRanks>,
    /// The names of all hosts, by their numbers.
    pub(crate) hosts: Vec<String>,
    /// The host of each rank.
    pub(crate) hosts_of_ranks: Vec<u32>,
    /// The output files of each rank; none when output goes to the launcher's own.
    pub(crate) files: Vec<[OutputFile; 2]>,
}

/// A running job.
#[derive(Debug)]
pub(crate) struct Driver {
    job: Job,
    local: LocalRanks,
    branches: Branches,
    /// The number of this host, unless it has no ranks.
    own_host: Option<u32>,
    ranks_here: Option<HostRanks>,
    hosts: Vec<String>,
    hosts_of_ranks: Vec<u32>,
    views: Vec<View>,
    /// Ranks that have written the beginning of a line. Nothing that is done in each turn looks at all ranks.
    unfinished: BTreeSet<u32>,
    /// Standard output, then standard error.
    sinks: [Sink; 2],
    stdin: Stdin,
    signals: Signals,
    /// Output of (host, stream) that has been taken and whose room is not given back yet, in bytes.
    taken: BTreeMap<(u32, u8), u32>,
    /// Output has come, or the end of a stream.
    has_output: bool,
    started_at: Instant,
    manner: Manner,
}

/// Index of standard error among streams and sinks.
const STDERR: usize = 1;

impl Driver {
    /// A driver for a job.
    ///
    /// # Errors
    /// When standard output or standard error cannot be used.
    pub(crate) fn new(
        job: Job,
        parts: Parts,
        stdin: Stdin,
        signals: Signals,
        manner: Manner,
    ) -> io::Result<Self> {
        let Parts { local, branches, ranks_here, hosts, hosts_of_ranks, files } = parts;
        let sinks = [Sink::new(io::stdout().as_fd())?, Sink::new(io::stderr().as_fd())?];
        let tag = |rank: u32| manner.tags_output.then(|| format!("[{rank}] "));
        let mut files = files.into_iter();
        let views = (0..job.size()).map(|rank| View::new(tag(rank), files.next())).collect();
        let own_host = ranks_here.as_ref().map(HostRanks::host);
        let (taken, started_at) = (BTreeMap::new(), Instant::now());
        Ok(Self {
            job,
            local,
            branches,
            own_host,
            ranks_here,
            hosts,
            hosts_of_ranks,
            views,
            unfinished: BTreeSet::new(),
            sinks,
            stdin,
            signals,
            taken,
            has_output: false,
            started_at,
            manner,
        })
    }

    /// Carries the job to its end; returns its exit code.
    ///
    /// # Errors
    /// When a rank of this host cannot be started, or the operating system does not let the launcher wait for
    /// events. Nothing of the job is left.
    pub(crate) fn run(mut self) -> Result<u8, Failure> {
        let result = self.carry();
        self.local.end();
        self.branches.end();
        result
    }

    fn carry(&mut self) -> Result<u8, Failure> {
        let code = loop {
            self.take_events();
            // With other hosts, it takes one of them to know by which address this one is reached.
            let address = self.branches.address();
            if address.is_some() || !self.branches.is_starting() || self.job.is_ending() {
                self.start_here(address)?;
            }
            if self.job.is_ending() {
                self.branches.abandon_starting();
                self.take_events();
            }
            if let Some(code) = self.job.verdict() {
                break code;
            }
            self.turn(self.next_deadline()).map_err(Failure::system)?;
            self.job.on_time(self.now());
        };
        self.wind_up().map_err(Failure::system)?;
        Ok(code)
    }

    /// Starts the ranks of this host, once.
    fn start_here(&mut self, address: Option<IpAddr>) -> Result<(), Failure> {
        let Some(ranks) = self.ranks_here.take() else { return Ok(()) };
        if self.job.is_ending() {
            let now = self.now();
            for rank in ranks.numbers() {
                self.close_streams(rank);
                self.job.on_never_run(rank, now);
            }
            return Ok(());
        }
        let notes = ranks.start(&mut self.local, address).map_err(|(_, failure)| failure)?;
        notes.iter().for_each(|note| self.say(&format!("rmarun: {note}\n")));
        // A rank may have ended before its signal could be told from another's.
        self.local.collect_exits();
        self.take_events();
        Ok(())
    }

    /// Sleeps until something happens, at most until `deadline`, and deals with it. Returns whether a
    /// signal asked for the end.
    fn turn(&mut self, deadline: Option<Duration>) -> io::Result<bool> {
        // Before the ranks of this host are started nobody there takes it. Agents that are on their way are waited for.
        if self.ranks_here.is_none() {
            self.stdin.give().into_iter().for_each(|down| self.send(down));
        }
        self.give_room();
        self.branches.flush();
        self.take_events();
        let mut is_asked_to_end = false;
        let mut may_have_exits = false;
        for watched in self.wait(deadline)? {
            match watched {
                Watched::Signals => {
                    for meaning in self.signals.take() {
                        may_have_exits |= meaning == Meaning::Child;
                        is_asked_to_end |= matches!(meaning, Meaning::End(_));
                        self.on_signal(meaning);
                    }
                }
                Watched::Local(watched) => self.local.on_ready(watched),
                Watched::Branch(watched) => self.branches.on_ready(watched),
                Watched::Sink(which) => {
                    self.sinks[which].write_some();
                    self.close_streams_to_nowhere(which);
                }
                Watched::Stdin => self.stdin.read_some(),
            }
            self.take_events();
        }
        if may_have_exits {
            self.local.collect_exits();
            self.branches.collect_exits();
        }
        self.branches.on_time();
        self.take_events();
        self.flush_idle();
        Ok(is_asked_to_end)
    }

    fn wait(&self, deadline: Option<Duration>) -> io::Result<Vec<Watched>> {
        let watch = |watched, fd, flags| (watched, PollFd::from_borrowed_fd(fd, flags));
        let mut list = vec![watch(Watched::Signals, self.signals.as_fd(), PollFlags::IN)];
        let local = self.local.poll_list(true);
        list.extend(local.into_iter().map(|(watched, fd)| (Watched::Local(watched), fd)));
        let branches = self.branches.poll_list(true);
        list.extend(branches.into_iter().map(|(watched, fd)| (Watched::Branch(watched), fd)));
        for (which, sink) in self.sinks.iter().enumerate() {
            list.extend(sink.wants_to_write().map(|fd| watch(Watched::Sink(which), fd, PollFlags::OUT)));
        }
        if self.stdin.wants_to_read() {
            list.push(watch(Watched::Stdin, STDIN, PollFlags::IN));
        }
        poll(list, deadline.map(|deadline| deadline.saturating_sub(self.now())))
    }

    fn next_deadline(&self) -> Option<Duration> {
        let parked = self.stdin.is_parked().then(|| self.now() + FOREGROUND_INTERVAL);
        let of_branches = self.branches.deadline();
        let of_branches = of_branches.map(|deadline| deadline.saturating_duration_since(self.started_at));
        let deadlines = self.unfinished.iter().filter_map(|rank| self.views[*rank as usize].deadline());
        deadlines.chain(self.job.deadline()).chain(parked).chain(of_branches).min()
    }

    /// Passes on unfinished lines whose ends do not come.
    fn flush_idle(&mut self) {
        let (now, views, sinks) = (self.now(), &mut self.views, &mut self.sinks);
        self.unfinished.retain(|rank| {
            let view = &mut views[*rank as usize];
            view.flush_idle(now, sinks);
            view.deadline().is_some()
        });
    }

    /// Deals with all that has happened, and with what follows from it.
    fn take_events(&mut self) {
        loop {
            self.act();
            let Some(up) = self.local.poll_event().or_else(|| self.branches.poll_event()) else { return };
            self.on_up(up);
        }
    }

    fn on_up(&mut self, up: Up) {
        let now = self.now();
        match up {
            Up::Started { rank, process } => self.on_started(rank, process),
            Up::NotStarted { rank, code, why } => {
                self.close_streams(rank);
                self.job.on_not_started(rank, code, why, now);
            }
            Up::Said { rank, request } => {
                if self.views[rank as usize].may_speak {
                    self.job.on_request(rank, request, now);
                }
            }
            Up::ControlEnded { rank, why } => {
                if std::mem::take(&mut self.views[rank as usize].may_speak) {
                    self.job.on_control_ended(rank, why);
                }
            }
            Up::Pmi { rank, bytes } => self.on_pmi(rank, &bytes),
            Up::PmiEnded { rank, why } => {
                if self.views[rank as usize].pmi.take().is_some() {
                    self.job.on_pmi_ended(rank, why);
                }
            }
            Up::Wrote { rank, stream, bytes } => self.on_wrote(rank, stream, &bytes),
            Up::StreamEnded { rank, stream } => {
                self.has_output = true;
                self.views[rank as usize].close(usize::from(stream), &mut self.sinks);
            }
            Up::Exited { rank, exit } => {
                self.stdin.close(rank);
                let status = match exit {
                    Exit::Code(code) => ExitStatus::Code(code),
                    Exit::Signal(number) => ExitStatus::Signal(number.into()),
                };
                self.job.on_exit(rank, status, now);
                self.act();
                if self.manner.is_verbose {
                    self.say(&format!("rmarun: rank {rank} {}\n", report::status_text(status)));
                }
            }
            Up::TookInput { rank, count } => self.stdin.on_taken(rank, count),
            Up::InputClosed { rank } => self.stdin.close(rank),
            Up::HostLost { host, why } => self.on_host_lost(host, why),
            // It is for whoever asked.
            Up::Alive { .. } => {}
            Up::Note { host, text } => {
                let name = self.hosts[host as usize].clone();
                self.say(&format!("rmarun: host {name}: {text}\n"));
            }
        }
    }

    fn on_started(&mut self, rank: u32, process: u32) {
        self.views[rank as usize].process = process;
        if self.manner.is_verbose {
            let host = &self.hosts[self.hosts_of_ranks[rank as usize] as usize];
            let text = format!("rmarun: rank {rank} is process {process} on {host}\n");
            self.say(&text);
        }
    }

    fn on_host_lost(&mut self, host: u32, why: String) {
        let now = self.now();
        for rank in 0..self.job.size() {
            if self.hosts_of_ranks[rank as usize] != host {
                continue;
            }
            self.stdin.close(rank);
            self.close_streams(rank);
        }
        self.job.on_host_lost(host, why, now);
    }

    fn on_pmi(&mut self, rank: u32, mut bytes: &[u8]) {
        loop {
            let Some(pmi) = &mut self.views[rank as usize].pmi else { return };
            let taken = pmi.reader.push(bytes);
            bytes = &bytes[taken..];
            match pmi.reader.poll() {
                Ok(Some(message)) => {
                    let now = self.now();
                    self.job.on_pmi(rank, &message, now);
                    // A reply may change how the next message is read.
                    self.act();
                }
                Ok(None) if bytes.is_empty() => return,
                Ok(None) => {}
                Err(error) => return self.end_pmi(rank, error.to_string()),
            }
        }
    }

    fn end_pmi(&mut self, rank: u32, why: String) {
        self.views[rank as usize].pmi = None;
        self.send(Down::ClosePmi { rank });
        self.job.on_pmi_ended(rank, Some(why));
    }

    fn on_wrote(&mut self, rank: u32, stream: u8, bytes: &[u8]) {
        let now = self.now();
        self.has_output = true;
        let host = self.hosts_of_ranks[rank as usize];
        *self.taken.entry((host, stream)).or_default() += bytes.len() as u32;
        if let Err(why) = self.views[rank as usize].on_wrote(usize::from(stream), bytes, now, &mut self.sinks)
        {
            // The rank learns it as if it wrote there itself.
            self.send(Down::CloseStream { rank, stream });
            self.say(&format!("rmarun: {why}\n"));
        }
        if self.views[rank as usize].deadline().is_some() {
            self.unfinished.insert(rank);
        }
    }

    /// Nothing more comes from a rank.
    fn close_streams(&mut self, rank: u32) {
        let view = &mut self.views[rank as usize];
        [0, STDERR].into_iter().for_each(|which| view.close(which, &mut self.sinks));
    }

    /// Lets ranks write again as far as what they wrote has gone on its way.
    fn give_room(&mut self) {
        // Either all ranks have files or none has.
        let has_files = self.views.first().is_some_and(View::has_file);
        let is_full = [0, STDERR].map(|which| self.sinks[which].is_full() && !has_files);
        let (held, free): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.taken)
            .into_iter()
            .partition(|((_, stream), _)| is_full[usize::from(*stream)]);
        self.taken = held;
        for ((host, stream), count) in free {
            let room = Down::Room { host, stream, count };
            if self.own_host == Some(host) {
                self.local.obey(room);
            } else {
                self.branches.send(&room);
            }
        }
    }

    /// Does what the job says.
    fn act(&mut self) {
        while let Some(action) = self.job.poll_action() {
            match action {
                Action::Send(rank, reply) => self.send(Down::Reply { rank, reply }),
                Action::SendPmi(rank, message) => self.send_pmi(rank, &message),
                Action::SpeakPmi(rank, syntax) => self.with_pmi(rank, |pmi| pmi.set_syntax(syntax)),
                Action::ClosePmi(rank) => {
                    self.views[rank as usize].pmi = None;
                    self.send(Down::ClosePmi { rank });
                }
                Action::Close(rank) => {
                    self.views[rank as usize].may_speak = false;
                    self.send(Down::Close { rank });
                }
                Action::Signal(number) => self.send_signal(number),
                Action::Say(report) => self.report(&report),
            }
        }
    }

    fn send_pmi(&mut self, rank: u32, message: &Message) {
        let Some(pmi) = &self.views[rank as usize].pmi else { return };
        let mut bytes = Vec::new();
        match message.encode(pmi.syntax, &mut bytes) {
            Ok(()) => {
                for chunk in bytes.chunks(CHUNK_BYTES_MAX) {
                    self.send(Down::Pmi { rank, bytes: chunk.to_vec() });
                }
            }
            Err(error) => self.end_pmi(rank, error.to_string()),
        }
    }

    fn with_pmi(&mut self, rank: u32, change: impl FnOnce(&mut Pmi)) {
        if let Some(pmi) = &mut self.views[rank as usize].pmi {
            change(pmi);
        }
    }

    /// Sends what is for one rank where it runs, and what is for all everywhere.
    fn send(&mut self, down: Down) {
        if let Down::Signal { .. } | Down::Leave = down {
            self.branches.send(&down);
            return self.local.obey(down);
        }
        let is_here = down.rank().is_some_and(|rank| self.local.has(rank));
        if is_here {
            self.local.obey(down);
        } else {
            self.branches.send(&down);
        }
    }

    fn send_signal(&mut self, number: i32) {
        if let Ok(number) = u8::try_from(number) {
            self.send(Down::Signal { number });
        }
    }

    fn on_signal(&mut self, meaning: Meaning) {
        match meaning {
            Meaning::Child => {}
            Meaning::End(number) => self.job.on_signal(number, self.now()),
            Meaning::PassOn(number) => self.send_signal(number),
            Meaning::Stop => {
                self.send_signal(Signal::TSTP.as_raw());
                self.branches.flush();
                // The shell sees the launcher stop; its SIGCONT comes back as a signal to pass on.
                let _ = kill_process(rustix::process::getpid(), Signal::STOP);
            }
        }
    }

    /// When nobody reads the launcher's output any more, ranks learn it as if they wrote themselves.
    fn close_streams_to_nowhere(&mut self, which: usize) {
        if !self.sinks[which].is_broken() {
            return;
        }
        for rank in 0..self.job.size() {
            if self.views[rank as usize].leave(which) {
                self.send(Down::CloseStream { rank, stream: which as u8 });
            }
        }
    }

    fn report(&mut self, report: &Report) {
        let known = Known { views: &self.views, hosts: &self.hosts, hosts_of_ranks: &self.hosts_of_ranks };
        let text = report::text(report, &self.job, &known);
        self.say(&text);
    }

    /// Tells a user who wants to know what the agents have cost.
    fn say_traffic(&mut self) {
        let (hosts, traffic) = self.branches.traffic();
        if self.manner.is_verbose && hosts > 0 {
            let (sent, received) = (traffic.sent, traffic.received);
            self.say(&format!("rmarun: {sent} bytes to {hosts} other hosts, {received} bytes from them\n"));
        }
    }

    /// Tells the user.
    fn say(&mut self, text: &str) {
        self.sinks[STDERR].push(text.as_bytes());
    }

    fn now(&self) -> Duration {
        self.started_at.elapsed()
    }
}

/// What reports say about ranks.
struct Known<'a> {
    views: &'a [View],
    hosts: &'a [String],
    hosts_of_ranks: &'a [u32],
}

impl report::Ranks for Known<'_> {
    fn process_id(&self, rank: u32) -> u32 {
        self.views[rank as usize].process
    }

    fn host(&self, rank: u32) -> &str {
        self.host_name(self.hosts_of_ranks[rank as usize])
    }

    fn host_name(&self, host: u32) -> &str {
        self.hosts.get(host as usize).map_or("", String::as_str)
    }

    fn last_lines(&self, rank: u32) -> Vec<String> {
        self.views[rank as usize].last_lines()
    }
}

/// Standard input of the launcher, which stays open as long as the process.
const STDIN: BorrowedFd<'static> = rustix::stdio::stdin();
