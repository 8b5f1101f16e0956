//! The loop that carries a job: it owns the sockets, pipes and processes, feeds what happens to the
//! [`Job`], and does what the job says. One thread; nothing in it blocks but the poll.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rma_bootstrap::control::{Control, ControlError};
use rma_bootstrap::pmi::channel::Channel;
use rma_bootstrap::wire::Request;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{kill_process, kill_process_group, waitid, Pid, Signal, WaitId, WaitIdOptions};

use crate::files::OutputFile;
use crate::job::{Action, ExitStatus, Job, Report, SIGKILL};
use crate::keeper::Keeper;
use crate::output::{Lines, Sink};
use crate::report;
use crate::session::State;
use crate::signals::{Meaning, Signals};
use crate::spawn::Started;
use crate::stdin::Stdin;

/// How often a launcher in the background looks whether it has come to the foreground.
const FOREGROUND_INTERVAL: Duration = Duration::from_millis(500);

/// How long output may still come from processes that outlived their rank, once all ranks ended.
const LAST_OUTPUT_PATIENCE: Duration = Duration::from_millis(200);

/// Messages taken from one rank before the others have their turn.
const MESSAGES_PER_TURN: u32 = 64;

/// Messages taken from a rank that has exited: more than its socket can have held.
const LAST_MESSAGES_MAX: u32 = 65_536;

/// Bytes taken from one stream before the others have their turn.
const READ_BYTES: usize = 64 * 1024;

/// What the launcher holds of one rank.
#[derive(Debug)]
struct Rank {
    process: Pid,
    control: Option<Control>,
    pmi: Option<Channel>,
    streams: [Stream; 2],
}

/// One output stream of a rank.
#[derive(Debug)]
struct Stream {
    fd: Option<OwnedFd>,
    lines: Lines,
    /// Where it goes, if not to the launcher's own stream.
    file: Option<OutputFile>,
}

/// What the poll watches.
#[derive(Clone, Copy, Debug)]
enum Watched {
    Signals,
    Control(usize),
    Pmi(usize),
    Stream(usize, usize),
    Sink(usize),
    StdinRead,
    StdinWrite(usize),
}

/// A running job.
#[derive(Debug)]
pub(crate) struct Driver {
    job: Job,
    ranks: Vec<Rank>,
    /// Standard output, then standard error, as in [`Rank::streams`].
    sinks: [Sink; 2],
    stdin: Stdin,
    signals: Signals,
    keeper: Option<Keeper>,
    started_at: Instant,
    host: String,
    is_verbose: bool,
}

/// Index of standard error among streams and sinks.
const STDERR: usize = 1;

impl Driver {
    /// A driver for a job whose ranks will be [added](Driver::add) at once.
    ///
    /// # Errors
    /// When standard output or standard error cannot be used.
    pub(crate) fn new(
        job: Job,
        signals: Signals,
        keeper: Option<Keeper>,
        is_verbose: bool,
    ) -> io::Result<Self> {
        let sinks = [Sink::new(io::stdout().as_fd())?, Sink::new(io::stderr().as_fd())?];
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let (ranks, stdin, started_at) = (Vec::new(), Stdin::new(), Instant::now());
        Ok(Self { job, ranks, sinks, stdin, signals, keeper, started_at, host, is_verbose })
    }

    /// The keeper, if it runs.
    pub(crate) fn keeper(&self) -> Option<&Keeper> {
        self.keeper.as_ref()
    }

    /// Takes over the next rank; its lines are marked with `tag`, and its output goes to `files`, if these are given.
    pub(crate) fn add(&mut self, started: Started, tag: Option<String>, files: Option<[OutputFile; 2]>) {
        let Started { process, control, pmi, stdin, stdout, stderr } = started;
        if self.is_verbose {
            let rank = self.ranks.len();
            self.say(&format!(
                "rmarun: rank {rank} is process {} on {}\n",
                process.as_raw_nonzero(),
                self.host
            ));
        }
        if let Some(stdin) = stdin {
            self.stdin.add(self.ranks.len(), stdin);
        }
        let [out_file, err_file] = files.map_or([None, None], |files| files.map(Some));
        let stream = |fd, tag, file| Stream { fd: Some(fd), lines: Lines::new(tag), file };
        let streams = [stream(stdout, tag.clone(), out_file), stream(stderr, tag, err_file)];
        self.ranks.push(Rank { process, control: Some(control), pmi: Some(pmi), streams });
    }

    /// Carries the job to its end; returns its exit code.
    ///
    /// # Errors
    /// When the operating system does not let the launcher wait for events.
    pub(crate) fn run(mut self) -> io::Result<u8> {
        // A rank may have ended before its signal could be told from another's.
        self.collect_exits();
        let code = loop {
            self.act();
            if let Some(code) = self.job.verdict() {
                break code;
            }
            self.turn(self.next_deadline())?;
            self.job.on_time(self.now());
        };
        self.wind_up()?;
        Ok(code)
    }

    /// Kills everything that was started: the job cannot be carried.
    pub(crate) fn give_up(self) {
        self.kill_groups();
        if let Some(keeper) = self.keeper {
            keeper.dismiss();
        }
    }

    /// After the last rank: what ranks left running is killed, and all output is handed on.
    fn wind_up(&mut self) -> io::Result<()> {
        self.kill_groups();
        let mut patience = LAST_OUTPUT_PATIENCE;
        let has_open_stream = |driver: &Self| {
            driver.ranks.iter().any(|rank| rank.streams.iter().any(|stream| stream.fd.is_some()))
        };
        while has_open_stream(self) && !patience.is_zero() {
            // A reader that takes its time delays the rest of the output and must not cost it.
            let is_held_up = self.sinks.iter().any(Sink::is_full);
            let begun = self.now();
            if self.turn((!is_held_up).then_some(begun + patience))? {
                break;
            }
            if !is_held_up {
                patience = patience.saturating_sub(self.now() - begun);
            }
        }
        for index in 0..self.ranks.len() {
            self.close_stream(index, 0);
            self.close_stream(index, STDERR);
        }
        // Only a signal ends the wait for a reader that takes its time.
        while self.sinks.iter().any(|sink| sink.wants_to_write().is_some()) {
            if self.turn(None)? {
                break;
            }
        }
        if let Some(keeper) = self.keeper.take() {
            keeper.dismiss();
        }
        Ok(())
    }

    /// Sleeps until something happens, at most until `deadline`, and deals with it. Returns whether a
    /// signal asked for the end.
    fn turn(&mut self, deadline: Option<Duration>) -> io::Result<bool> {
        let ready = self.wait(deadline)?;
        let mut is_asked_to_end = false;
        let mut may_have_exits = false;
        for watched in ready {
            match watched {
                Watched::Signals => {
                    for meaning in self.signals.take() {
                        may_have_exits |= meaning == Meaning::Child;
                        is_asked_to_end |= matches!(meaning, Meaning::End(_));
                        self.on_signal(meaning);
                    }
                }
                Watched::Control(index) => self.read_control(index, MESSAGES_PER_TURN),
                Watched::Pmi(index) => self.read_pmi(index, MESSAGES_PER_TURN),
                Watched::Stream(index, which) => self.read_stream(index, which),
                Watched::Sink(which) => {
                    self.sinks[which].write_some();
                    self.close_streams_to_nowhere(which);
                }
                Watched::StdinRead => self.stdin.read_some(),
                Watched::StdinWrite(index) => self.stdin.write_some(index),
            }
        }
        if may_have_exits {
            self.collect_exits();
        }
        let now = self.now();
        for rank in &mut self.ranks {
            for (stream, sink) in rank.streams.iter_mut().zip(&mut self.sinks) {
                stream.lines.flush_idle(now, sink);
            }
        }
        Ok(is_asked_to_end)
    }

    fn wait(&self, deadline: Option<Duration>) -> io::Result<Vec<Watched>> {
        let (watched, mut fds): (Vec<Watched>, Vec<PollFd<'_>>) = self.poll_list().into_iter().unzip();
        let timeout = deadline.map(|deadline| deadline.saturating_sub(self.now()));
        // One millisecond more, so that the deadline has passed when the sleep ends.
        let timeout = timeout.map(|timeout| timespec(timeout + Duration::from_millis(1)));
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        Ok(watched.into_iter().zip(&fds).filter(|(_, fd)| is_ready(fd)).map(|(watched, _)| watched).collect())
    }

    fn poll_list(&self) -> Vec<(Watched, PollFd<'_>)> {
        let watch = |watched, fd, flags| (watched, PollFd::from_borrowed_fd(fd, flags));
        let mut list = vec![watch(Watched::Signals, self.signals.as_fd(), PollFlags::IN)];
        for (index, rank) in self.ranks.iter().enumerate() {
            if let Some(control) = &rank.control {
                let unsent = if control.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
                list.push(watch(Watched::Control(index), control.as_fd(), PollFlags::IN | unsent));
            }
            if let Some(pmi) = &rank.pmi {
                let unsent = if pmi.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
                list.push(watch(Watched::Pmi(index), pmi.as_fd(), PollFlags::IN | unsent));
            }
            for (which, stream) in rank.streams.iter().enumerate() {
                let has_room = stream.file.is_some() || !self.sinks[which].is_full();
                if let Some(fd) = stream.fd.as_ref().filter(|_| has_room) {
                    list.push(watch(Watched::Stream(index, which), fd.as_fd(), PollFlags::IN));
                }
            }
        }
        for (which, sink) in self.sinks.iter().enumerate() {
            list.extend(sink.wants_to_write().map(|fd| watch(Watched::Sink(which), fd, PollFlags::OUT)));
        }
        if self.stdin.wants_to_read() {
            list.push(watch(Watched::StdinRead, STDIN, PollFlags::IN));
        }
        let readers = self.stdin.wants_to_write();
        list.extend(readers.map(|(index, fd)| watch(Watched::StdinWrite(index), fd, PollFlags::OUT)));
        list
    }

    fn next_deadline(&self) -> Option<Duration> {
        let streams = self.ranks.iter().flat_map(|rank| &rank.streams);
        let parked = self.stdin.is_parked().then(|| self.now() + FOREGROUND_INTERVAL);
        let deadlines = streams.filter_map(|stream| stream.lines.deadline());
        deadlines.chain(self.job.deadline()).chain(parked).min()
    }

    /// Does what the job says.
    fn act(&mut self) {
        while let Some(action) = self.job.poll_action() {
            match action {
                Action::Send(rank, reply) => {
                    let sent = self.ranks[rank as usize].control.as_mut().map(|control| control.send(&reply));
                    if let Some(Err(error)) = sent {
                        self.end_control(rank as usize, &error);
                    }
                }
                Action::SendPmi(rank, message) => {
                    let sent = self.ranks[rank as usize].pmi.as_mut().map(|pmi| pmi.send(&message));
                    if let Some(Err(error)) = sent {
                        self.end_pmi(rank as usize, &error);
                    }
                }
                Action::SpeakPmi(rank, syntax) => {
                    if let Some(pmi) = &mut self.ranks[rank as usize].pmi {
                        pmi.set_syntax(syntax);
                    }
                }
                Action::ClosePmi(rank) => self.ranks[rank as usize].pmi = None,
                Action::Close(rank) => self.ranks[rank as usize].control = None,
                Action::Signal(number) => self.signal_ranks(number),
                Action::Say(report) => self.report(&report),
            }
        }
    }

    fn on_signal(&mut self, meaning: Meaning) {
        match meaning {
            Meaning::Child => {}
            Meaning::End(number) => self.job.on_signal(number, self.now()),
            Meaning::PassOn(number) => self.signal_ranks(number),
            Meaning::Stop => {
                self.signal_ranks(Signal::TSTP.as_raw());
                // The shell sees the launcher stop; its SIGCONT comes back as a signal to pass on.
                let _ = kill_process(rustix::process::getpid(), Signal::STOP);
            }
        }
    }

    fn read_control(&mut self, index: usize, messages_max: u32) {
        for _ in 0..messages_max {
            let Some(control) = &mut self.ranks[index].control else { return };
            let received = control.flush().and_then(|()| control.receive::<Request>());
            match received {
                Ok(Some(request)) => self.job.on_request(index as u32, request, self.now()),
                Ok(None) => return,
                Err(error) => return self.end_control(index, &error),
            }
            self.act();
        }
    }

    fn end_control(&mut self, index: usize, error: &ControlError) {
        self.ranks[index].control = None;
        let is_to_blame = matches!(error, ControlError::Wire(_) | ControlError::Overflow);
        self.job.on_control_ended(index as u32, is_to_blame.then(|| error.to_string()));
    }

    fn read_pmi(&mut self, index: usize, messages_max: u32) {
        for _ in 0..messages_max {
            let Some(pmi) = &mut self.ranks[index].pmi else { return };
            match pmi.flush().and_then(|()| pmi.receive()) {
                Ok(Some(message)) => self.job.on_pmi(index as u32, &message, self.now()),
                Ok(None) => return,
                Err(error) => return self.end_pmi(index, &error),
            }
            self.act();
        }
    }

    fn end_pmi(&mut self, index: usize, error: &ControlError) {
        self.ranks[index].pmi = None;
        let is_to_blame = matches!(error, ControlError::Pmi(_) | ControlError::Overflow);
        self.job.on_pmi_ended(index as u32, is_to_blame.then(|| error.to_string()));
    }

    fn read_stream(&mut self, index: usize, which: usize) {
        let now = self.now();
        let stream = &mut self.ranks[index].streams[which];
        let Some(fd) = &stream.fd else { return };
        let mut bytes = [0; READ_BYTES];
        match rustix::io::read(fd, &mut bytes) {
            Ok(0) => self.close_stream(index, which),
            Ok(count) => match &mut stream.file {
                None => stream.lines.push(&bytes[..count], now, &mut self.sinks[which]),
                Some(file) => {
                    stream.lines.remember(&bytes[..count]);
                    if let Err(why) = file.write(&bytes[..count]) {
                        // The rank learns it as if it wrote there itself.
                        stream.fd = None;
                        self.say(&format!("rmarun: {why}\n"));
                    }
                }
            },
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.close_stream(index, which),
        }
    }

    fn close_stream(&mut self, index: usize, which: usize) {
        let stream = &mut self.ranks[index].streams[which];
        if stream.fd.take().is_some() {
            stream.lines.finish(&mut self.sinks[which]);
        }
    }

    /// When nobody reads the launcher's output any more, ranks learn it as if they wrote themselves.
    fn close_streams_to_nowhere(&mut self, which: usize) {
        if self.sinks[which].is_broken() {
            for rank in &mut self.ranks {
                let stream = &mut rank.streams[which];
                if stream.file.is_none() {
                    stream.fd = None;
                }
            }
        }
    }

    /// Finds the ranks that have exited. They are not reaped, so that the numbers of their process
    /// groups stay theirs until the launcher ends.
    fn collect_exits(&mut self) {
        let indices = 0..self.ranks.len();
        let mut exited: Vec<_> =
            indices.filter_map(|index| Some((index, self.exit_status(index)?))).collect();
        // Who broke its connection off went first: the others may have failed for want of it.
        exited.sort_by_key(|(index, _)| self.job.state(*index as u32) != State::Severed);
        for (index, status) in exited {
            let rank = index as u32;
            // What it said and wrote before comes first: it may have finalized, or named its error.
            self.read_control(index, LAST_MESSAGES_MAX);
            self.read_pmi(index, LAST_MESSAGES_MAX);
            self.read_stream(index, 0);
            self.read_stream(index, STDERR);
            self.stdin.close(index);
            self.job.on_exit(rank, status, self.now());
            self.act();
            if self.is_verbose {
                self.say(&format!("rmarun: rank {rank} {}\n", report::status_text(status)));
            }
        }
    }

    /// How the process of a rank ended, if it has and the job does not know it yet.
    fn exit_status(&self, index: usize) -> Option<ExitStatus> {
        if self.job.state(index as u32) == State::Ended {
            return None;
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.ranks[index].process), options).ok()??;
        Some(match status.terminating_signal() {
            Some(number) => ExitStatus::Signal(number),
            // The kernel keeps 8 bits of an exit status.
            None => ExitStatus::Code(status.exit_status().unwrap_or(0) as u8),
        })
    }

    fn signal_ranks(&self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        for (index, rank) in self.ranks.iter().enumerate() {
            // The dead are not reaped, so their groups may be signalled too: with SIGKILL it is wanted.
            if number == SIGKILL || self.job.state(index as u32) != State::Ended {
                let _ = kill_process_group(rank.process, signal);
            }
        }
    }

    fn kill_groups(&self) {
        self.signal_ranks(SIGKILL);
    }

    fn report(&mut self, report: &Report) {
        let text = report::text(report, &self.job, &self.ranks.as_slice(), &self.host);
        self.say(&text);
    }

    /// Tells the user.
    pub(crate) fn say(&mut self, text: &str) {
        self.sinks[STDERR].push(text.as_bytes());
    }

    fn now(&self) -> Duration {
        self.started_at.elapsed()
    }
}

impl report::Ranks for &[Rank] {
    fn process_id(&self, rank: u32) -> i32 {
        self[rank as usize].process.as_raw_nonzero().get()
    }

    fn last_lines(&self, rank: u32) -> Vec<String> {
        let [stdout, stderr] = &self[rank as usize].streams;
        let lines = stderr.lines.last_lines();
        if lines.is_empty() {
            stdout.lines.last_lines()
        } else {
            lines
        }
    }
}

/// Standard input of the launcher, which stays open as long as the process.
const STDIN: BorrowedFd<'static> = rustix::stdio::stdin();

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
