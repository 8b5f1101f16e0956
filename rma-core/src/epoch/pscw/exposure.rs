//! post to wait, at the target.

use super::current::CurrentGroup;
use super::members::Members;
use crate::error::FabricCode;
use crate::group::Group;
use crate::ids::Rank;
use crate::mutation::Mutation;

/// The exposure epoch of one window.
#[derive(Debug)]
pub struct Exposure {
    group: CurrentGroup,
    /// Members that were told: those before this place.
    noticed: usize,
    completed: Members,
    /// The first member that was lost before it completed.
    lost: Option<(Rank, FabricCode)>,
}

impl Exposure {
    /// No epoch; room for groups of `members`.
    pub fn with_room(members: usize) -> Self {
        Self {
            group: CurrentGroup::default(),
            noticed: 0,
            completed: Members::with_room(members),
            lost: None,
        }
    }

    /// post. With `no_check` nobody waits for a notice.
    #[inline]
    pub fn open(&mut self, group: &Group, no_check: bool) {
        self.completed.clear(group.len());
        self.noticed = if no_check { group.len() } else { 0 };
        self.lost = None;
        self.group.open(group);
    }

    /// Whether an epoch is open.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.group.is_open()
    }

    /// The member to be told next, if any; offered again until [`Exposure::on_noticed`].
    #[inline]
    pub fn poll_notice(&self) -> Option<Rank> {
        self.group.get()?.at(self.noticed)
    }

    /// The offered member was told.
    #[inline]
    pub fn on_noticed(&mut self) {
        self.noticed += 1;
    }

    /// The place of a member that was told and has not completed.
    fn place(&self, rank: Rank) -> Option<usize> {
        let place = self.group.get()?.place(rank)?;
        (place < self.noticed && !self.completed.contains(place)).then_some(place)
    }

    /// Whether the window is exposed to the rank, as an answer to its question. Who was not told yet will be;
    /// who has completed asks about the next epoch.
    pub fn is_exposed_to(&self, rank: Rank) -> bool {
        if Mutation::CompletedAnsweredAgain.is_on() {
            let place = self.group.get().and_then(|group| group.place(rank));
            return place.is_some_and(|place| place < self.noticed);
        }
        self.place(rank).is_some()
    }

    /// A COMPLETE arrived. `false`: it is none of a member's that was told and has not completed.
    pub fn on_complete(&mut self, rank: Rank) -> bool {
        if Mutation::CompleteNotCounted.is_on() {
            return true;
        }
        self.place(rank).is_some_and(|place| self.completed.insert(place))
    }

    /// Takes in which of the members have completed that were told and had not before, as `has_completed` says, which is asked
    /// once for each: how many.
    #[inline]
    pub fn hear_completes(&mut self, mut has_completed: impl FnMut(Rank) -> bool) -> usize {
        let Some(group) = self.group.get() else { return 0 };
        let mut news = 0;
        for place in 0..self.noticed.min(group.len()) {
            let Some(rank) = group.at(place) else { break };
            if !self.completed.contains(place) && has_completed(rank) && !Mutation::CompleteNotCounted.is_on()
            {
                news += usize::from(self.completed.insert(place));
            }
        }
        news
    }

    /// Whether an epoch of at most so many members is open, none of which was lost.
    #[inline]
    pub fn has_at_most(&self, most: usize) -> bool {
        self.group.get().is_some_and(|group| group.len() <= most) && self.lost.is_none()
    }

    /// The rank cannot be reached any more, and will not complete.
    pub fn on_lost(&mut self, rank: Rank, code: FabricCode) {
        let Some(place) = self.group.get().and_then(|group| group.place(rank)) else { return };
        if self.completed.insert(place) {
            self.lost.get_or_insert((rank, code));
        }
    }

    /// The first member that has neither completed nor was lost.
    pub fn awaited(&self) -> Option<Rank> {
        let group = self.group.get()?;
        group.at((0..group.len()).find(|&place| !self.completed.contains(place))?)
    }

    /// The members that were told and have neither completed nor were lost.
    pub fn uncompleted(&self) -> impl Iterator<Item = Rank> + '_ {
        let group = self.group.get().into_iter();
        group.flat_map(|group| {
            let told = 0..self.noticed.min(group.len());
            told.filter(|&place| !self.completed.contains(place)).filter_map(|place| group.at(place))
        })
    }

    /// Whether every member has completed, or was lost.
    #[inline]
    pub fn is_over(&self) -> bool {
        let missed = usize::from(Mutation::WaitMissesOne.is_on());
        self.group.get().is_some_and(|group| self.completed.count() + missed >= group.len())
    }

    /// The epoch is over: the member that was lost in it, if any.
    #[inline]
    pub fn end(&mut self) -> Option<(Rank, FabricCode)> {
        self.group.close();
        self.lost.take()
    }

    /// Bytes held beyond the structure itself.
    pub fn heap_bytes(&self) -> usize {
        self.completed.heap_bytes()
    }
}
