//! The hosts behind this process: it starts an agent on each (or on the first of each group of hosts, whose agent then
//! starts the others), waits for them to connect, and hands messages up and down. Nothing in it blocks.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rma_bootstrap::control::{Control, ControlError, Traffic};
use rma_bootstrap::description::{Description, HostTask, JobTask};
use rma_bootstrap::tree::{Down, Up};
use rustix::event::{PollFd, PollFlags};

use crate::helper::Helper;
use crate::job::SIGKILL;
use crate::keeper::Keeper;
use crate::launch_agent;
use crate::reach::{Arrival, Listener, Secret};

/// Most agents that one process starts itself; they start the others.
pub(crate) const FAN_OUT: usize = 32;

/// Messages taken from one agent before the others have their turn.
const MESSAGES_PER_TURN: u32 = 1024;

/// What may wait to be sent to an agent, in bytes. An agent reads always, so this fills only when its host is gone or
/// the network cannot keep up.
pub(crate) const UNSENT_BYTES_MAX: usize = 64 << 20;

/// Silence of an agent after which it is asked whether it is there: for one that has been stopped, the kernel of its host
/// goes on to answer.
const ASK_AFTER: Duration = Duration::from_secs(5);

/// How long its answer may take. A host may be very busy.
const ANSWER_PATIENCE: Duration = Duration::from_secs(15);

/// How many of the addresses to which nobody has connected are shown.
const PLACES_SHOWN: usize = 4;

/// What a poll watches here.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Watched {
    /// The listening sockets, and connections that have not proven anything yet.
    Listener,
    /// The standard input of what starts an agent.
    Input(usize),
    /// Its standard error.
    Errors(usize),
    /// The connection of an agent.
    Link(usize),
}

/// An agent that this process has started.
#[derive(Debug)]
struct Branch {
    /// Numbers and names of its hosts, its own first.
    hosts: Vec<(u32, String)>,
    helper: Helper,
    state: State,
    heard_at: Instant,
    /// When it was asked whether it is there, unless it has said something since.
    asked_at: Option<Instant>,
}

/// Where an agent stands.
#[derive(Debug)]
enum State {
    /// It has not connected. What has to be sent waits.
    Starting(Vec<Down>),
    Linked(Control),
    /// It is gone, or not wanted any more.
    Over,
}

/// All agents that this process has started.
#[derive(Debug)]
pub(crate) struct Branches {
    branches: Vec<Branch>,
    /// The branch of each rank.
    of_ranks: BTreeMap<u32, usize>,
    /// The branch of each host.
    of_hosts: BTreeMap<u32, usize>,
    /// Closed when nobody is waited for any more.
    listener: Option<Listener>,
    events: VecDeque<Up>,
    /// Until when agents have to connect.
    connected_by: Instant,
    patience: Duration,
    /// This host's address, as an agent has reached it.
    address: Option<IpAddr>,
    /// What has passed the connections that are closed.
    passed: Traffic,
    is_leaving: bool,
}

impl Branches {
    /// Starts agents for `hosts`, none of which is this one.
    ///
    /// # Errors
    /// When nothing can be listened on, or the job cannot be described.
    pub(crate) fn start(
        secret: &Secret,
        job: &JobTask,
        hosts: &[HostTask],
        patience: Duration,
        keeper: Option<&Keeper>,
    ) -> Result<Self, String> {
        let mut branches = Self::none(patience);
        if hosts.is_empty() {
            return Ok(branches);
        }
        let iface = Some(job.iface.as_str()).filter(|iface| !iface.is_empty());
        let listener = Listener::open(secret, iface, false)?;
        let candidates: Vec<String> = listener.candidates().iter().map(ToString::to_string).collect();
        branches.listener = Some(listener);
        let mut of_agents = job.clone();
        // An address of this host is none of theirs.
        if job.iface.parse::<IpAddr>().is_ok() {
            of_agents.iface.clear();
        }
        for group in groups(hosts) {
            // Less than this side waits, so that an agent's list of what it has tried arrives.
            let patience_ms = u32::try_from(patience.as_millis() * 3 / 4).unwrap_or(u32::MAX);
            let description = Description {
                secret: secret.to_hex(),
                candidates: candidates.clone(),
                patience_ms,
                job: of_agents.clone(),
                hosts: group.to_vec(),
            };
            branches.add(&description, keeper)?;
        }
        Ok(branches)
    }

    /// No host but this one.
    pub(crate) fn none(patience: Duration) -> Self {
        Self {
            branches: Vec::new(),
            of_ranks: BTreeMap::new(),
            of_hosts: BTreeMap::new(),
            listener: None,
            events: VecDeque::new(),
            connected_by: Instant::now() + patience,
            patience,
            address: None,
            passed: Traffic::default(),
            is_leaving: false,
        }
    }

    fn add(&mut self, description: &Description, keeper: Option<&Keeper>) -> Result<(), String> {
        let index = self.branches.len();
        let (job, hosts) = (&description.job, &description.hosts);
        let Some(head) = hosts.first() else { return Ok(()) };
        for host in hosts {
            self.of_hosts.insert(host.host, index);
            self.of_ranks.extend(host.ranks.iter().map(|task| (task.rank, index)));
        }
        let command = launch_agent::command(&job.launch_agent, &head.name, &job.agent_command)
            .ok_or("the command that starts agents has no words")?;
        let helper = Helper::start(command, description.encode()?, keeper);
        let hosts = hosts.iter().map(|host| (host.host, host.name.clone())).collect();
        let (state, heard_at) = (State::Starting(Vec::new()), Instant::now());
        self.branches.push(Branch { hosts, helper, state, heard_at, asked_at: None });
        Ok(())
    }

    /// The next thing that happened, in order.
    pub(crate) fn poll_event(&mut self) -> Option<Up> {
        self.events.pop_front()
    }

    /// This host's address, as an agent has reached it.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// Number of the hosts behind this process, and what has passed between it and them once their agents had
    /// connected.
    pub(crate) fn traffic(&self) -> (usize, Traffic) {
        let links = self.branches.iter().filter_map(|branch| match &branch.state {
            State::Linked(link) => Some(link.traffic()),
            State::Starting(_) | State::Over => None,
        });
        (self.of_hosts.len(), links.fold(self.passed, sum))
    }

    /// Whether no agent is there or expected any more.
    pub(crate) fn is_over(&self) -> bool {
        self.branches.iter().all(|branch| matches!(branch.state, State::Over))
    }

    /// Whether an agent is still expected.
    pub(crate) fn is_starting(&self) -> bool {
        self.branches.iter().any(|branch| matches!(branch.state, State::Starting(_)))
    }

    /// When [`Branches::on_time`] has something to do, if ever.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let starting = self.is_starting().then_some(self.connected_by);
        let of_listener = self.listener.as_ref().and_then(Listener::deadline);
        let of_silent = self.branches.iter().filter(|_| !self.is_leaving).filter_map(Branch::deadline);
        starting.into_iter().chain(of_listener).chain(of_silent).min()
    }

    /// What to poll. Messages of agents only with `takes_messages`.
    pub(crate) fn poll_list(&self, takes_messages: bool) -> Vec<(Watched, PollFd<'_>)> {
        let mut list = Vec::new();
        if let Some(listener) = &self.listener {
            let watch = |fd| (Watched::Listener, PollFd::from_borrowed_fd(fd, PollFlags::IN));
            list.extend(listener.fds().map(watch));
        }
        for (index, branch) in self.branches.iter().enumerate() {
            if let Some(fd) = branch.helper.wants_to_write() {
                list.push((Watched::Input(index), PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
            }
            if let Some(fd) = branch.helper.errors() {
                list.push((Watched::Errors(index), PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            }
            let State::Linked(link) = &branch.state else { continue };
            let mut flags = if takes_messages { PollFlags::IN } else { PollFlags::empty() };
            flags.set(PollFlags::OUT, link.has_unsent());
            list.push((Watched::Link(index), PollFd::from_borrowed_fd(link.as_fd(), flags)));
        }
        list
    }

    /// Deals with what a poll has found.
    pub(crate) fn on_ready(&mut self, watched: Watched) {
        match watched {
            Watched::Listener => self.accept(),
            Watched::Input(index) => self.branches[index].helper.write_some(),
            Watched::Errors(index) => drop(self.branches[index].helper.read_some()),
            Watched::Link(index) => self.read_link(index),
        }
    }

    /// The time of [`Branches::deadline`] may have come.
    pub(crate) fn on_time(&mut self) {
        self.accept();
        let now = Instant::now();
        if !self.is_leaving {
            (0..self.branches.len()).for_each(|index| self.look_after(index, now));
        }
        if now < self.connected_by {
            return;
        }
        let limit = self.patience.as_secs_f64();
        let listener = self.listener.as_ref();
        let places = listener.iter().flat_map(|listener| listener.candidates()).map(ToString::to_string);
        let places: Vec<String> = places.take(PLACES_SHOWN).collect();
        let places = places.join(", ");
        let mut why = format!("no agent has connected within {limit} s (RMA_BOOTSTRAP_TIMEOUT) to {places}");
        let refused = listener.map_or(0, Listener::refused);
        if refused > 0 {
            why += &format!("; {refused} connections without the secret of the job were refused");
        }
        self.lose_starting(|_| Some(why.clone()));
    }

    /// Asks a silent agent whether it is there, and loses one that does not answer.
    fn look_after(&mut self, index: usize, now: Instant) {
        if self.branches[index].deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        // It is this process that may not have listened: it was stopped, or could not hand on what it would have heard.
        self.read_link(index);
        let branch = &mut self.branches[index];
        if branch.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        match (branch.asked_at, branch.hosts.first()) {
            (None, Some((host, _))) => {
                let host = *host;
                branch.asked_at = Some(now);
                self.send_to(index, &Down::Ask { host });
            }
            _ => {
                let silence = now.saturating_duration_since(branch.heard_at).as_secs();
                self.lose(
                    index,
                    format!(
                        "its agent has said nothing for {silence} s (is it stopped, or the host overloaded?)"
                    ),
                );
            }
        }
    }

    /// Looks for agents that ended before they connected.
    pub(crate) fn collect_exits(&mut self) {
        self.lose_starting(|branch| {
            let end = branch.helper.end()?;
            Some(format!("no agent runs there: {end}"))
        });
    }

    /// Agents that have not connected are not waited for: the job ends.
    pub(crate) fn abandon_starting(&mut self) {
        self.lose_starting(|_| Some("the job ended before its agent had connected".into()));
    }

    /// Sends down what is for a rank or host behind this process, or for all.
    pub(crate) fn send(&mut self, down: &Down) {
        let index = match down {
            Down::Signal { .. } | Down::Leave => None,
            Down::Room { host, .. } | Down::Ask { host } => match self.of_hosts.get(host) {
                Some(index) => Some(*index),
                None => return,
            },
            of_rank => match of_rank.rank().and_then(|rank| self.of_ranks.get(&rank)) {
                Some(index) => Some(*index),
                None => return,
            },
        };
        self.is_leaving |= *down == Down::Leave;
        let indices = index.map_or(0..self.branches.len(), |index| index..index + 1);
        indices.for_each(|index| self.send_to(index, down));
    }

    /// Sends what waits, as far as the connections take it.
    pub(crate) fn flush(&mut self) {
        for index in 0..self.branches.len() {
            let State::Linked(link) = &mut self.branches[index].state else { continue };
            if let Err(error) = link.flush() {
                self.lose_link(index, &error);
            }
        }
    }

    /// Ends what is left of the agents and what started them.
    pub(crate) fn end(&mut self) {
        self.listener = None;
        for branch in &mut self.branches {
            branch.state = State::Over;
            branch.helper.kill();
        }
    }

    fn send_to(&mut self, index: usize, down: &Down) {
        let branch = &mut self.branches[index];
        match &mut branch.state {
            State::Starting(_) if *down == Down::Leave => {
                branch.state = State::Over;
                branch.helper.kill();
                self.close_listener();
            }
            State::Starting(_) if *down == (Down::Signal { number: SIGKILL as u8 }) => {
                self.abandon_starting()
            }
            State::Starting(waiting) => waiting.push(down.clone()),
            State::Linked(link) => {
                if let Err(error) = link.queue(down) {
                    self.lose_link(index, &error);
                }
            }
            State::Over => {}
        }
    }

    fn accept(&mut self) {
        let Some(listener) = &mut self.listener else { return };
        for Arrival { id, stream, local, .. } in listener.progress(Instant::now()) {
            // A number that is not expected, or comes again, is nobody's: the connection is dropped.
            let Some(&index) = self.of_hosts.get(&id) else { continue };
            let branch = &mut self.branches[index];
            let is_head = branch.hosts.first().is_some_and(|(host, _)| *host == id);
            let State::Starting(waiting) = &mut branch.state else { continue };
            if !is_head {
                continue;
            }
            let Ok(mut link) = Control::with_unsent_max(OwnedFd::from(stream), UNSENT_BYTES_MAX) else {
                continue;
            };
            // What cannot be queued here is found when it is sent.
            let queued = waiting.iter().try_for_each(|down| link.queue(down));
            self.address.get_or_insert(local);
            (branch.state, branch.heard_at) = (State::Linked(link), Instant::now());
            if let Err(error) = queued {
                self.lose_link(index, &error);
            }
        }
        self.close_listener();
    }

    /// Nothing listens when nobody is waited for.
    fn close_listener(&mut self) {
        if !self.is_starting() {
            self.listener = None;
        }
    }

    fn read_link(&mut self, index: usize) {
        let now = Instant::now();
        for _ in 0..MESSAGES_PER_TURN {
            let State::Linked(link) = &mut self.branches[index].state else { return };
            match link.flush().and_then(|()| link.receive::<Up>()) {
                Ok(Some(up)) if self.is_of(index, &up) => {
                    let branch = &mut self.branches[index];
                    (branch.heard_at, branch.asked_at) = (now, None);
                    if !matches!(up, Up::Alive { .. }) {
                        self.events.push_back(up);
                    }
                }
                Ok(Some(_)) => return self.lose(index, "its agent spoke for others".into()),
                Ok(None) => return,
                Err(error) => return self.lose_link(index, &error),
            }
        }
    }

    /// Whether what comes from an agent is about its ranks and hosts.
    fn is_of(&self, index: usize, up: &Up) -> bool {
        let of = match up {
            Up::Started { rank, .. }
            | Up::NotStarted { rank, .. }
            | Up::Said { rank, .. }
            | Up::ControlEnded { rank, .. }
            | Up::Pmi { rank, .. }
            | Up::PmiEnded { rank, .. }
            | Up::Wrote { rank, .. }
            | Up::StreamEnded { rank, .. }
            | Up::Exited { rank, .. }
            | Up::TookInput { rank, .. }
            | Up::InputClosed { rank } => self.of_ranks.get(rank),
            Up::HostLost { host, .. } | Up::Note { host, .. } | Up::Alive { host } => self.of_hosts.get(host),
        };
        of == Some(&index)
    }

    fn lose_starting(&mut self, why: impl Fn(&mut Branch) -> Option<String>) {
        for index in 0..self.branches.len() {
            let branch = &mut self.branches[index];
            if !matches!(branch.state, State::Starting(_)) {
                continue;
            }
            if let Some(why) = why(branch) {
                self.lose(index, why);
            }
        }
        self.close_listener();
    }

    fn lose_link(&mut self, index: usize, error: &ControlError) {
        let why = match error {
            ControlError::Closed => {
                "the connection to its agent ended (was it killed, or did the host go down?)".into()
            }
            ControlError::System(error) => format!("the connection to its agent is lost: {error}"),
            error => format!("the connection to its agent is of no use any more: {error}"),
        };
        self.lose(index, why);
    }

    fn lose(&mut self, index: usize, why: String) {
        let branch = &mut self.branches[index];
        if let State::Linked(link) = &branch.state {
            self.passed = sum(self.passed, link.traffic());
        }
        branch.state = State::Over;
        let why = branch.helper.last_lines().iter().fold(why, |why, line| why + "\n" + line);
        branch.helper.kill();
        if self.is_leaving {
            return;
        }
        let mut hosts = branch.hosts.iter();
        let Some((head, name)) = hosts.next() else { return };
        self.events.push_back(Up::HostLost { host: *head, why });
        for (host, _) in hosts {
            let why = format!("it was reached through host {name}, which is lost");
            self.events.push_back(Up::HostLost { host: *host, why });
        }
    }
}

fn sum(a: Traffic, b: Traffic) -> Traffic {
    Traffic { sent: a.sent + b.sent, received: a.received + b.received }
}

impl Branch {
    /// Until when it has to be heard of, or to be asked.
    fn deadline(&self) -> Option<Instant> {
        let until = self.asked_at.map_or(self.heard_at + ASK_AFTER, |asked_at| asked_at + ANSWER_PATIENCE);
        matches!(self.state, State::Linked(_)).then_some(until)
    }
}

/// The hosts in at most [`FAN_OUT`] groups of nearly the same size, neighbours together.
fn groups(hosts: &[HostTask]) -> impl Iterator<Item = &[HostTask]> {
    let count = hosts.len().min(FAN_OUT);
    let begin = move |group: usize| group * hosts.len() / count.max(1);
    (0..count).map(move |group| &hosts[begin(group)..begin(group + 1)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_hosts_are_a_tree() {
        let lens = |count: u32| {
            let hosts: Vec<HostTask> =
                (0..count).map(|host| HostTask { host, ..HostTask::default() }).collect();
            let flat: Vec<u32> = groups(&hosts).flatten().map(|host| host.host).collect();
            assert_eq!(flat, (0..count).collect::<Vec<_>>(), "each host once, in order");
            groups(&hosts).map(<[HostTask]>::len).collect::<Vec<_>>()
        };
        assert_eq!(lens(0), []);
        assert_eq!(lens(3), [1, 1, 1]);
        assert_eq!(lens(32), [1; 32]);
        let forty = lens(40);
        assert_eq!((forty.len(), forty.iter().min(), forty.iter().max()), (32, Some(&1), Some(&2)));
        assert!(lens(2000).iter().all(|len| (62..=63).contains(len)));
    }
}
