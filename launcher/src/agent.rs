//! `rmarun --agent`: what runs on each other host of a job. It is told what to do over its standard input, connects to
//! whom it belongs to, starts the ranks of its host and the agents behind it, and hands on what they say. It decides
//! nothing; when its connection ends, everything ends.

use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rma_bootstrap::control::Control;
use rma_bootstrap::description::{Description, HEAD_BYTES};
use rma_bootstrap::tree::{Down, Up};
use rma_bootstrap::wire::fit_text;
use rustix::event::{PollFd, PollFlags};

use crate::branches::{self, Branches, UNSENT_BYTES_MAX};
use crate::cache::Cache;
use crate::failure::Failure;
use crate::host::{start_keeper, HostRanks};
use crate::local::{self, LocalRanks};
use crate::poll::poll;
use crate::reach::{connect, Candidate, Secret};
use crate::signals::{Meaning, Signals};

/// How long the description may take to arrive.
const DESCRIPTION_PATIENCE: Duration = Duration::from_secs(60);

/// How long the agents behind this one may take to leave when the job is over.
const LEAVE_PATIENCE: Duration = Duration::from_secs(2);

/// What may wait to be sent up before ranks and agents behind this one are no longer listened to, in bytes.
const WAITING_BYTES_MAX: usize = 256 * 1024;

/// Messages taken from above before others have their turn.
const MESSAGES_PER_TURN: u32 = 256;

/// What a poll watches.
#[derive(Clone, Copy, Debug)]
enum Watched {
    Signals,
    Above,
    Local(local::Watched),
    Branch(branches::Watched),
}

/// Why an agent ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The job is over.
    Told,
    /// Nobody is above any more, or a signal came.
    Lost,
}

/// The agent.
#[derive(Debug)]
struct Agent {
    host: u32,
    above: Control,
    local: LocalRanks,
    branches: Branches,
    cache: Cache,
    signals: Signals,
    end: Option<End>,
}

/// Runs the agent of this host to the end of its job.
///
/// # Errors
/// When it is told nothing sensible, or cannot reach whom it belongs to.
pub(crate) fn run() -> Result<(), Failure> {
    let Description { secret, candidates, patience_ms, job, hosts } =
        read_description().map_err(Failure::system)?;
    let secret =
        Secret::from_hex(&secret).ok_or_else(|| Failure::system("the description's secret is none"))?;
    let candidates: Vec<Candidate> = candidates.iter().filter_map(|text| text.parse().ok()).collect();
    let patience = Duration::from_millis(patience_ms.into());
    let mut hosts = hosts.into_iter();
    let own = hosts.next().ok_or_else(|| Failure::system("the description has no host"))?;
    let behind: Vec<_> = hosts.collect();
    let signals = Signals::new().map_err(Failure::system)?;

    let connected = connect(&candidates, &secret, own.host, patience).map_err(Failure::system)?;
    let above = Control::with_unsent_max(OwnedFd::from(connected.stream), UNSENT_BYTES_MAX);
    let above = above.map_err(Failure::system)?;
    let keeper = start_keeper(true, &job.job_id, |why| eprintln!("rmarun: {why}"));
    let branches = Branches::start(&secret, &job, &behind, patience, keeper.as_ref());
    let (branches, failure) = match branches {
        Ok(branches) => (branches, None),
        Err(why) => (Branches::none(patience), Some(why)),
    };
    let (host, local) = (own.host, LocalRanks::new(keeper));
    let mut agent = Agent { host, above, local, branches, cache: Cache::default(), signals, end: None };
    if let Some(why) = failure {
        behind.iter().for_each(|host| agent.send_up(Up::HostLost { host: host.host, why: why.clone() }));
    }
    let numbers: Vec<u32> = own.ranks.iter().map(|task| task.rank).collect();
    match HostRanks::prepare(&job, own, branches::FAN_OUT.min(behind.len()), 0) {
        Ok(ranks) => agent.start(ranks, connected.local),
        Err(failure) => agent.not_started(&numbers, &failure),
    }
    agent.carry().map_err(Failure::system)
}

/// Reads the description, not waiting for ever.
fn read_description() -> Result<Description, String> {
    let (sender, receiver) = mpsc::channel();
    // A thread, since standard input may be of any kind; it ends with the process at the latest.
    std::thread::spawn(move || {
        let _ = sender.send(read_whole(&mut io::stdin().lock()));
    });
    receiver.recv_timeout(DESCRIPTION_PATIENCE).unwrap_or_else(|_| {
        Err("no description of a job has come over standard input; rmarun starts agents itself".into())
    })
}

fn read_whole(input: &mut impl Read) -> Result<Description, String> {
    let incomplete = |error: io::Error| format!("the description of the job is incomplete: {error}");
    let mut head = [0; HEAD_BYTES];
    input.read_exact(&mut head).map_err(incomplete)?;
    let len = Description::body_len(&head)?;
    let mut body = Vec::new();
    input.take(len as u64).read_to_end(&mut body).map_err(incomplete)?;
    Description::decode(&body)
}

impl Agent {
    fn start(&mut self, ranks: HostRanks, address: IpAddr) {
        match ranks.start(&mut self.local, Some(address)) {
            Ok(notes) => {
                for text in notes {
                    self.send_up(Up::Note { host: self.host, text });
                }
            }
            Err((ranks, failure)) => self.not_started(&ranks, &failure),
        }
    }

    fn not_started(&mut self, ranks: &[u32], failure: &Failure) {
        let why = fit_text(&failure.message);
        for rank in ranks {
            self.send_up(Up::NotStarted { rank: *rank, code: failure.code, why: why.to_owned() });
        }
    }

    /// Hands on until the job is over or nobody is above.
    fn carry(mut self) -> io::Result<()> {
        // A rank may have ended before its signal could be told from another's.
        self.local.collect_exits();
        self.branches.collect_exits();
        while self.end.is_none() {
            self.turn(None)?;
        }
        self.local.end();
        if self.end == Some(End::Told) {
            self.leave()?;
        }
        self.branches.end();
        Ok(())
    }

    /// Lets the agents behind this one end by themselves, for a while.
    fn leave(&mut self) -> io::Result<()> {
        let ends_at = Instant::now() + LEAVE_PATIENCE;
        while !self.branches.is_over() && Instant::now() < ends_at {
            self.turn(Some(ends_at))?;
        }
        Ok(())
    }

    fn turn(&mut self, ends_at: Option<Instant>) -> io::Result<()> {
        self.pass_on();
        self.branches.flush();
        if self.above.flush().is_err() {
            self.end.get_or_insert(End::Lost);
            return Ok(());
        }
        let mut may_have_exits = false;
        for watched in self.wait(ends_at)? {
            match watched {
                Watched::Signals => {
                    for meaning in self.signals.take() {
                        may_have_exits |= meaning == Meaning::Child;
                        if matches!(meaning, Meaning::End(_)) {
                            self.end.get_or_insert(End::Lost);
                        }
                    }
                }
                Watched::Above => self.read_above(),
                Watched::Local(watched) => self.local.on_ready(watched),
                Watched::Branch(watched) => self.branches.on_ready(watched),
            }
        }
        if may_have_exits {
            self.local.collect_exits();
            self.branches.collect_exits();
        }
        self.branches.on_time();
        Ok(())
    }

    fn wait(&self, ends_at: Option<Instant>) -> io::Result<Vec<Watched>> {
        let watch = |watched, fd, flags| (watched, PollFd::from_borrowed_fd(fd, flags));
        let unsent = if self.above.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
        let mut list = vec![watch(Watched::Signals, self.signals.as_fd(), PollFlags::IN)];
        if self.end.is_none() {
            list.push(watch(Watched::Above, self.above.as_fd(), PollFlags::IN | unsent));
        }
        let has_room = self.above.unsent_len() < WAITING_BYTES_MAX;
        let local = self.local.poll_list(has_room);
        list.extend(local.into_iter().map(|(watched, fd)| (Watched::Local(watched), fd)));
        let behind = self.branches.poll_list(has_room);
        list.extend(behind.into_iter().map(|(watched, fd)| (Watched::Branch(watched), fd)));
        let deadline = ends_at.into_iter().chain(self.branches.deadline()).min();
        poll(list, deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())))
    }

    /// Hands up what has happened on this host and behind it.
    fn pass_on(&mut self) {
        loop {
            if let Some(up) = self.local.poll_event() {
                match self.cache.on_up(&up) {
                    Some(answer) => self.local.obey(answer),
                    None => self.send_up(up),
                }
            } else if let Some(up) = self.branches.poll_event() {
                match self.cache.on_up(&up) {
                    Some(answer) => self.branches.send(&answer),
                    None => self.send_up(up),
                }
            } else {
                return;
            }
        }
    }

    fn send_up(&mut self, up: Up) {
        let up = match up {
            // What was said on the way to the host may be much.
            Up::HostLost { host, why } => Up::HostLost { host, why: fit_text(&why).to_owned() },
            up => up,
        };
        if self.above.queue(&up).is_err() {
            self.end.get_or_insert(End::Lost);
        }
    }

    fn read_above(&mut self) {
        for _ in 0..MESSAGES_PER_TURN {
            match self.above.flush().and_then(|()| self.above.receive::<Down>()) {
                Ok(Some(down)) => self.obey(down),
                Ok(None) => return,
                Err(_) => {
                    self.end.get_or_insert(End::Lost);
                    return;
                }
            }
        }
    }

    fn obey(&mut self, down: Down) {
        self.cache.on_down(&down);
        match &down {
            Down::Leave => {
                self.branches.send(&down);
                self.end.get_or_insert(End::Told);
            }
            Down::Signal { .. } => {
                self.branches.send(&down);
                self.local.obey(down);
            }
            Down::Room { host, .. } if *host == self.host => self.local.obey(down),
            Down::Ask { host } if *host == self.host => self.send_up(Up::Alive { host: self.host }),
            Down::Room { .. } | Down::Ask { .. } => self.branches.send(&down),
            Down::Reply { rank, .. }
            | Down::Pmi { rank, .. }
            | Down::Close { rank }
            | Down::ClosePmi { rank }
            | Down::Input { rank, .. }
            | Down::EndInput { rank }
            | Down::CloseStream { rank, .. } => {
                if self.local.has(*rank) {
                    self.local.obey(down);
                } else {
                    self.branches.send(&down);
                }
            }
        }
    }
}
