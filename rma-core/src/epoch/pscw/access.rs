//! start to complete, at the origin.

use super::current::CurrentGroup;
use super::members::Members;
use crate::group::Group;
use crate::ids::Rank;
use crate::mutation::Mutation;

/// What a post notice means to an origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostSeen {
    /// The epoch was waiting for it: operations to the member may leave.
    Granted,
    /// It is about an epoch that was not started yet.
    Early,
    /// The member said so before, and its exposure epoch cannot be over: this makes no sense.
    Repeated,
}

/// The access epoch of one window. It lasts from start until every member's COMPLETE has gone, which may be
/// after the call of complete has returned (weak synchronization).
#[derive(Debug)]
pub struct Access {
    group: CurrentGroup,
    sequence: u32,
    no_check: bool,
    is_completing: bool,
    /// Who called complete has left it, as its time was over.
    is_complete_left: bool,
    /// Members that have posted, and those to which COMPLETE was sent, or cannot be sent any more.
    posted: Members,
    closed: Members,
    /// Where the question "have you posted for me?" goes on; past the end when nobody is to be asked.
    asking: usize,
}

impl Access {
    /// No epoch; room for groups of `members`.
    pub fn with_room(members: usize) -> Self {
        Self {
            group: CurrentGroup::default(),
            sequence: 0,
            no_check: false,
            is_completing: false,
            is_complete_left: false,
            posted: Members::with_room(members),
            closed: Members::with_room(members),
            asking: usize::MAX,
        }
    }

    /// start. With `no_check` every member has posted, by the user's word. `sequence` tells the epoch from
    /// others in answers.
    #[inline]
    pub fn open(&mut self, group: &Group, no_check: bool, sequence: u32) {
        self.posted.clear(group.len());
        self.closed.clear(group.len());
        if no_check {
            self.posted.fill(group.len());
        }
        (self.no_check, self.sequence) = (no_check, sequence);
        (self.is_completing, self.is_complete_left, self.asking) = (false, false, usize::MAX);
        self.group.open(group);
    }

    /// Whether an epoch is open, or something of it is left.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.group.is_open()
    }

    /// What tells the epoch from others.
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Whether every member has posted by the user's word alone.
    #[inline]
    pub fn is_unchecked(&self) -> bool {
        self.no_check
    }

    /// complete was called.
    pub fn complete(&mut self) {
        self.is_completing = true;
    }

    /// Whether complete was called.
    #[inline]
    pub fn is_completing(&self) -> bool {
        self.is_completing
    }

    /// Who called complete does not wait for its end any more.
    pub fn leave_complete(&mut self) {
        self.is_complete_left = true;
    }

    /// It is called again. Whether nobody else waits for its end.
    pub fn resume_complete(&mut self) -> bool {
        core::mem::take(&mut self.is_complete_left)
    }

    #[inline]
    fn place(&self, rank: Rank) -> Option<usize> {
        self.group.get()?.place(rank)
    }

    /// Whether the rank is in the epoch's group.
    pub fn contains(&self, rank: Rank) -> bool {
        self.place(rank).is_some()
    }

    /// Whether operations may go to the rank.
    #[inline]
    pub fn is_granted(&self, rank: Rank) -> bool {
        let is_early = Mutation::OperationsBeforePost.is_on();
        self.place(rank).is_some_and(|place| is_early || self.posted.contains(place))
    }

    /// Whether an epoch of at most so many members is open.
    #[inline]
    pub fn has_at_most(&self, most: usize) -> bool {
        self.group.get().is_some_and(|group| group.len() <= most)
    }

    /// The first member that has not posted.
    pub fn awaited(&self) -> Option<Rank> {
        let group = self.group.get()?;
        group.at((0..group.len()).find(|&place| !self.posted.contains(place))?)
    }

    /// Whether the rank is a member that has not posted.
    pub fn is_awaited(&self, rank: Rank) -> bool {
        self.place(rank).is_some_and(|place| !self.posted.contains(place))
    }

    /// The members that have not posted.
    pub fn unposted(&self) -> impl Iterator<Item = Rank> + '_ {
        let group = self.group.get().into_iter();
        group.flat_map(|group| {
            (0..group.len()).filter(|&place| !self.posted.contains(place)).filter_map(|place| group.at(place))
        })
    }

    /// Whether they may go to every member.
    #[inline]
    pub fn all_granted(&self) -> bool {
        self.group.get().is_some_and(|group| self.posted.count() == group.len())
    }

    /// A member's notice arrived. At most one notice of a target can be unmatched, so one that comes after
    /// COMPLETE was sent to the target is about its next exposure epoch.
    pub fn on_post(&mut self, rank: Rank) -> PostSeen {
        match self.place(rank) {
            Some(place) if !self.closed.contains(place) || Mutation::NextNoticeLost.is_on() => {
                if self.posted.insert(place) {
                    PostSeen::Granted
                } else {
                    PostSeen::Repeated
                }
            }
            _ => PostSeen::Early,
        }
    }

    /// Takes in which of the members have posted that had not before, as `has_posted` says, which is asked once for each: how
    /// many.
    #[inline]
    pub fn hear_posts(&mut self, mut has_posted: impl FnMut(Rank) -> bool) -> usize {
        let Some(group) = self.group.get() else { return 0 };
        let mut news = 0;
        for place in 0..group.len() {
            let Some(rank) = group.at(place) else { break };
            if !self.posted.contains(place) && has_posted(rank) {
                news += usize::from(self.posted.insert(place));
            }
        }
        news
    }

    /// The answer to a question of the epoch with this sequence number arrived. `false`: nobody waits for it.
    pub fn on_answer(&mut self, rank: Rank, sequence: u32) -> bool {
        let is_ours = sequence == self.sequence || Mutation::AnswerOfAnyEpoch.is_on();
        let place = self.place(rank).filter(|_| is_ours);
        place.is_some_and(|place| !self.closed.contains(place) && self.posted.insert(place))
    }

    /// Everybody who has not posted is to be asked.
    pub fn ask(&mut self) {
        self.asking = 0;
    }

    /// The member to ask next, if any; offered again until [`Access::on_asked`].
    pub fn poll_ask(&mut self) -> Option<Rank> {
        let group = self.group.get()?;
        while self.asking < group.len() && self.posted.contains(self.asking) {
            self.asking += 1;
        }
        group.at(self.asking)
    }

    /// The offered member was asked.
    pub fn on_asked(&mut self) {
        self.asking += 1;
    }

    /// The first member from `from` on that has posted and has not got COMPLETE: its place and rank.
    #[inline]
    pub fn poll_close(&self, from: usize) -> Option<(usize, Rank)> {
        let place = self.posted.next_without(&self.closed, from)?;
        Some((place, self.group.get()?.at(place)?))
    }

    /// Whether the member has got COMPLETE, or will never.
    pub fn is_closed(&self, rank: Rank) -> bool {
        self.place(rank).is_some_and(|place| self.closed.contains(place))
    }

    /// COMPLETE was sent to the member.
    #[inline]
    pub fn on_closed(&mut self, rank: Rank) {
        if let Some(place) = self.place(rank) {
            self.closed.insert(place);
        }
    }

    /// The rank cannot be reached any more. `false`: it is no member, or is not needed any more.
    pub fn on_lost(&mut self, rank: Rank) -> bool {
        let Some(place) = self.place(rank) else { return false };
        self.posted.insert(place);
        self.closed.insert(place)
    }

    /// Whether every member has got its COMPLETE.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.group.get().is_some_and(|group| self.closed.count() == group.len())
    }

    /// Nothing of the epoch is left.
    #[inline]
    pub fn end(&mut self) {
        self.group.close();
    }

    /// Bytes held beyond the structure itself.
    pub fn heap_bytes(&self) -> usize {
        self.posted.heap_bytes() + self.closed.heap_bytes()
    }
}
