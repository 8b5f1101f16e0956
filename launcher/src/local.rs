//! The ranks that run on this host: their processes, connections and pipes. What happens to them comes out as
//! [`Up`], what is to be done about it goes in as [`Down`], whether the one who decides is in this process or on
//! another host.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rma_bootstrap::control::{Control, ControlError, Relay};
use rma_bootstrap::environment::Place;
use rma_bootstrap::tree::{Down, Exit, Up, CHUNK_BYTES_MAX};
use rma_bootstrap::wire::Request;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{kill_process_group, waitid, Pid, Signal, WaitId, WaitIdOptions};

use crate::escapees::Escapees;
use crate::job::SIGKILL;
use crate::keeper::Keeper;
use crate::spawn::{self, Own, Program, Started};

/// Messages taken from one rank before the others have their turn.
const MESSAGES_PER_TURN: u32 = 64;

/// Messages taken from a rank that has exited: more than its socket can have held.
const LAST_MESSAGES_MAX: u32 = 65_536;

/// Bytes taken from one stream before the others have their turn.
const READ_BYTES: usize = 64 * 1024;

/// Output of one stream of all ranks of a host that may be on its way, in bytes. A rank that writes more waits until
/// somebody has read, and the others' messages do not wait behind it.
pub(crate) const ROOM_BYTES: usize = 64 * 1024;

/// Input that may be on its way to one rank, in bytes.
pub(crate) const INPUT_BYTES_MAX: usize = 64 * 1024;

/// How long killed processes that have left their group may take to go: they only do not while the kernel is busy with
/// them.
const ESCAPEES_PATIENCE: Duration = Duration::from_secs(5);

/// What a poll watches here.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Watched {
    Control(usize),
    Pmi(usize),
    Stream(usize, usize),
    Input(usize),
}

/// What is held of one rank.
#[derive(Debug)]
struct Rank {
    rank: u32,
    process: Pid,
    control: Option<Control>,
    pmi: Option<Relay>,
    /// Standard output, then standard error.
    streams: [Option<OwnedFd>; 2],
    input: Option<Input>,
    has_exited: bool,
}

/// The way to a rank's standard input.
#[derive(Debug)]
struct Input {
    fd: OwnedFd,
    queue: VecDeque<u8>,
    /// Nothing comes behind what is queued.
    is_last: bool,
}

/// The ranks of this host.
#[derive(Debug)]
pub(crate) struct LocalRanks {
    ranks: Vec<Rank>,
    /// Where each rank is in `ranks`.
    indices: BTreeMap<u32, usize>,
    keeper: Option<Keeper>,
    escapees: Escapees,
    /// How many bytes of each stream may be sent before more room is made.
    room: [usize; 2],
    events: VecDeque<Up>,
}

impl LocalRanks {
    /// A host without ranks.
    pub(crate) fn new(keeper: Option<Keeper>) -> Self {
        let (ranks, indices, events) = (Vec::new(), BTreeMap::new(), VecDeque::new());
        Self { ranks, indices, keeper, escapees: Escapees::default(), room: [ROOM_BYTES; 2], events }
    }

    /// The next thing that happened, in order.
    pub(crate) fn poll_event(&mut self) -> Option<Up> {
        self.events.pop_front()
    }

    /// Whether this rank runs here.
    pub(crate) fn has(&self, rank: u32) -> bool {
        self.indices.contains_key(&rank)
    }

    /// Starts a rank.
    ///
    /// # Errors
    /// As [`spawn::start`].
    pub(crate) fn start(&mut self, program: &Program, place: &Place, own: &Own) -> io::Result<()> {
        self.keeper.iter().for_each(|keeper| keeper.tell_rank(place.rank));
        self.escapees.add(place);
        let Started { process, control, pmi, stdin, stdout, stderr } =
            spawn::start(program, place, own, self.keeper.as_ref())?;
        let rank = place.rank;
        self.indices.insert(rank, self.ranks.len());
        self.events.push_back(Up::Started { rank, process: process.as_raw_nonzero().get().unsigned_abs() });
        let input = stdin.map(|fd| Input { fd, queue: VecDeque::new(), is_last: false });
        let (control, pmi, streams) = (Some(control), Some(pmi), [Some(stdout), Some(stderr)]);
        self.ranks.push(Rank { rank, process, control, pmi, streams, input, has_exited: false });
        Ok(())
    }

    /// What to poll. Streams only with `takes_output`, and as far as there is room.
    pub(crate) fn poll_list(&self, takes_output: bool) -> Vec<(Watched, PollFd<'_>)> {
        let mut list = Vec::new();
        let read = |has_unsent| if has_unsent { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        for (index, rank) in self.ranks.iter().enumerate() {
            if let Some(control) = &rank.control {
                let flags = read(control.has_unsent());
                list.push((Watched::Control(index), PollFd::from_borrowed_fd(control.as_fd(), flags)));
            }
            if let Some(pmi) = &rank.pmi {
                let flags = read(pmi.has_unsent());
                list.push((Watched::Pmi(index), PollFd::from_borrowed_fd(pmi.as_fd(), flags)));
            }
            for (which, stream) in rank.streams.iter().enumerate() {
                if let Some(fd) = stream.as_ref().filter(|_| takes_output && self.room[which] > 0) {
                    let fd = PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN);
                    list.push((Watched::Stream(index, which), fd));
                }
            }
            if let Some(input) = rank.input.as_ref().filter(|input| !input.queue.is_empty()) {
                let fd = PollFd::from_borrowed_fd(input.fd.as_fd(), PollFlags::OUT);
                list.push((Watched::Input(index), fd));
            }
        }
        list
    }

    /// Deals with what a poll has found.
    pub(crate) fn on_ready(&mut self, watched: Watched) {
        match watched {
            Watched::Control(index) => self.read_control(index, MESSAGES_PER_TURN),
            Watched::Pmi(index) => self.read_pmi(index, MESSAGES_PER_TURN),
            Watched::Stream(index, which) => self.read_stream(index, which),
            Watched::Input(index) => self.write_input(index),
        }
    }

    /// Does what is to be done; what is for ranks elsewhere is not done.
    pub(crate) fn obey(&mut self, down: Down) {
        match down {
            Down::Reply { rank, reply } => {
                let Some(index) = self.index(rank) else { return };
                let sent = self.ranks[index].control.as_mut().map(|control| control.send(&reply));
                if let Some(Err(error)) = sent {
                    self.end_control(index, &error);
                }
            }
            Down::Pmi { rank, bytes } => {
                let Some(index) = self.index(rank) else { return };
                let sent = self.ranks[index].pmi.as_mut().map(|pmi| pmi.send(&bytes));
                if let Some(Err(error)) = sent {
                    self.end_pmi(index, &error);
                }
            }
            Down::Close { rank } => self.with(rank, |rank| rank.control = None),
            Down::ClosePmi { rank } => self.with(rank, |rank| rank.pmi = None),
            Down::Input { rank, bytes } => self.on_input(rank, &bytes),
            Down::EndInput { rank } => self.with(rank, |rank| {
                if let Some(input) = &mut rank.input {
                    input.is_last = true;
                }
                rank.input.take_if(|input| input.queue.is_empty());
            }),
            Down::CloseStream { rank, stream } => {
                self.with(rank, |rank| rank.streams[usize::from(stream)] = None);
            }
            Down::Room { stream, count, .. } => {
                let room = &mut self.room[usize::from(stream)];
                *room = room.saturating_add(count as usize).min(ROOM_BYTES);
            }
            Down::Signal { number } => self.signal(i32::from(number)),
            Down::Leave => self.signal(SIGKILL),
            // It is for the agent.
            Down::Ask { .. } => {}
        }
    }

    /// Finds the ranks that have exited. They are not reaped, so that the numbers of their process
    /// groups stay theirs until this process ends.
    pub(crate) fn collect_exits(&mut self) {
        let indices = 0..self.ranks.len();
        let mut exited: Vec<_> =
            indices.filter_map(|index| Some((index, self.exit_status(index)?))).collect();
        // Who broke its connection off went first: the others may have failed for want of it.
        exited.sort_by_key(|(index, _)| self.ranks[*index].control.is_some());
        for (index, exit) in exited {
            // What it said and wrote before comes first: it may have finalized, or named its error.
            self.read_control(index, LAST_MESSAGES_MAX);
            self.read_pmi(index, LAST_MESSAGES_MAX);
            self.read_stream(index, 0);
            self.read_stream(index, 1);
            let rank = &mut self.ranks[index];
            rank.input = None;
            rank.has_exited = true;
            self.events.push_back(Up::Exited { rank: rank.rank, exit });
        }
    }

    /// The job is over, or lost: what is left of it on this host is killed, and the keeper has nothing more to do.
    pub(crate) fn end(&mut self) {
        self.signal(SIGKILL);
        if let Some(keeper) = self.keeper.take() {
            keeper.dismiss();
        }
    }

    fn index(&self, rank: u32) -> Option<usize> {
        self.indices.get(&rank).copied()
    }

    fn with(&mut self, rank: u32, change: impl FnOnce(&mut Rank)) {
        if let Some(index) = self.index(rank) {
            change(&mut self.ranks[index]);
        }
    }

    fn read_control(&mut self, index: usize, messages_max: u32) {
        for _ in 0..messages_max {
            let rank = &mut self.ranks[index];
            let Some(control) = &mut rank.control else { return };
            match control.flush().and_then(|()| control.receive::<Request>()) {
                Ok(Some(request)) => {
                    if let (Request::Hello { process, .. }, Some(keeper)) = (&request, &self.keeper) {
                        // Before the answer, for which the rank waits before it opens anything.
                        tell_process(keeper, rank.process, *process);
                    }
                    self.events.push_back(Up::Said { rank: rank.rank, request });
                }
                Ok(None) => return,
                Err(error) => return self.end_control(index, &error),
            }
        }
    }

    fn end_control(&mut self, index: usize, error: &ControlError) {
        let rank = &mut self.ranks[index];
        rank.control = None;
        self.events.push_back(Up::ControlEnded { rank: rank.rank, why: blame(error) });
    }

    fn read_pmi(&mut self, index: usize, messages_max: u32) {
        for _ in 0..messages_max {
            let rank = &mut self.ranks[index];
            let Some(pmi) = &mut rank.pmi else { return };
            match pmi.flush().and_then(|()| pmi.receive(CHUNK_BYTES_MAX)) {
                Ok(Some(bytes)) => self.events.push_back(Up::Pmi { rank: rank.rank, bytes }),
                Ok(None) => return,
                Err(error) => return self.end_pmi(index, &error),
            }
        }
    }

    fn end_pmi(&mut self, index: usize, error: &ControlError) {
        let rank = &mut self.ranks[index];
        rank.pmi = None;
        self.events.push_back(Up::PmiEnded { rank: rank.rank, why: blame(error) });
    }

    fn read_stream(&mut self, index: usize, which: usize) {
        let rank = &mut self.ranks[index];
        let Some(fd) = &rank.streams[which] else { return };
        let mut bytes = [0; READ_BYTES];
        let stream = which as u8;
        match rustix::io::read(fd, &mut bytes) {
            Ok(count @ 1..) => {
                self.room[which] = self.room[which].saturating_sub(count);
                for chunk in bytes[..count].chunks(CHUNK_BYTES_MAX) {
                    let wrote = Up::Wrote { rank: rank.rank, stream, bytes: chunk.to_vec() };
                    self.events.push_back(wrote);
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Ok(0) | Err(_) => {
                rank.streams[which] = None;
                self.events.push_back(Up::StreamEnded { rank: rank.rank, stream });
            }
        }
    }

    fn on_input(&mut self, rank: u32, bytes: &[u8]) {
        let Some(index) = self.index(rank) else { return };
        let Some(input) = &mut self.ranks[index].input else { return };
        if input.queue.len() + bytes.len() <= INPUT_BYTES_MAX {
            input.queue.extend(bytes);
        }
    }

    fn write_input(&mut self, index: usize) {
        let rank = &mut self.ranks[index];
        let Some(input) = &mut rank.input else { return };
        let (head, _) = input.queue.as_slices();
        match rustix::io::write(&input.fd, head) {
            Ok(count) => {
                input.queue.drain(..count);
                self.events.push_back(Up::TookInput { rank: rank.rank, count: count as u32 });
                rank.input.take_if(|input| input.is_last && input.queue.is_empty());
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            // The rank does not read any more, which is its good right.
            Err(_) => {
                rank.input = None;
                self.events.push_back(Up::InputClosed { rank: rank.rank });
            }
        }
    }

    /// How the process of a rank ended, if it has and nobody was told yet.
    fn exit_status(&self, index: usize) -> Option<Exit> {
        let rank = &self.ranks[index];
        if rank.has_exited {
            return None;
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(rank.process), options).ok()??;
        Some(match status.terminating_signal() {
            Some(number) => Exit::Signal(number as u8),
            // The kernel keeps 8 bits of an exit status.
            None => Exit::Code(status.exit_status().unwrap_or(0) as u8),
        })
    }

    fn signal(&self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        for rank in &self.ranks {
            // The dead are not reaped, so their groups may be signalled too: with SIGKILL it is wanted.
            if number == SIGKILL || !rank.has_exited {
                let _ = kill_process_group(rank.process, signal);
            }
        }
        if number == SIGKILL {
            self.escapees.kill(ESCAPEES_PATIENCE);
        }
    }
}

/// Tells of the process that speaks as a rank, if it is not the one that was `started`.
fn tell_process(keeper: &Keeper, started: Pid, speaks: u32) {
    let speaks = i32::try_from(speaks).ok().and_then(Pid::from_raw);
    if let Some(process) = speaks.filter(|process| *process != started) {
        keeper.tell_process(process);
    }
}

/// What the rank did wrong, if it was the rank.
fn blame(error: &ControlError) -> Option<String> {
    let is_to_blame =
        matches!(error, ControlError::Wire(_) | ControlError::Pmi(_) | ControlError::Overflow(_));
    is_to_blame.then(|| error.to_string())
}
