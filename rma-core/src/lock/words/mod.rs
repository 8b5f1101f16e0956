//! Locks that are two words of the target's memory: the origin's side, which is all there is, as the fabric's atomics
//! change the words and nobody computes at the target (docs/locks.md).

mod line;
mod now;
#[cfg(test)]
mod tests;
mod vigil;

use vigil::Vigil;

pub use line::{holder_of, Tickets};
pub use now::{leave_everywhere, take_everywhere, Swap};
pub use vigil::Verdict;

use super::LockType;
use crate::ids::Rank;
use crate::mutation::Mutation;

/// What a lock is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// One rank, together with other shared holders.
    Shared,
    /// One rank, alone.
    Exclusive,
    /// Every rank, of which this is one: shared, and it passes those who wait to be alone.
    Everywhere,
}

impl Claim {
    /// That of a lock of this type, under lock_all or not.
    pub fn of(lock_type: LockType, is_lock_all: bool) -> Self {
        match lock_type {
            _ if is_lock_all => Self::Everywhere,
            LockType::Shared => Self::Shared,
            LockType::Exclusive => Self::Exclusive,
        }
    }
}

/// One of the two words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// Who comes when: [`Tickets`].
    Tickets,
    /// Who is alone, and how many have locked all ranks.
    Holder,
}

impl Word {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Tickets, Self::Holder];
}

/// What is to be done to a word. The value before comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atomic {
    /// Adds, modulo 2^64; 0 only looks.
    Add(u64),
    /// Puts the second in the place of the first, if that is there.
    Swap(u64, u64),
}

/// Why something is done to a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Draws a ticket.
    Draw,
    Look,
    /// A shared holder lets the next shared one in.
    Pass,
    /// Wants to be the holder.
    Seize,
    /// Is counted as one who has locked all ranks.
    Count,
    /// Is holder, or counted, no more.
    GiveBack,
    /// Lets the next one in, and goes.
    Leave,
}

/// An atomic to be posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    step: Step,
    /// It will see what the dead have left.
    is_fresh: bool,
    /// What is to be posted.
    pub atomic: Atomic,
    /// It was done before, in vain.
    pub is_again: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Idle,
    Waiting,
    Held,
    Leaving,
    /// It will never be held.
    Lost,
}

/// One rank's lock on another's window, or its way to it. At most one atomic is under way on each word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WordLock {
    phase: Phase,
    claim: Claim,
    me: Rank,
    ticket: Option<u32>,
    /// Nobody who came before is in the way.
    has_turn: bool,
    has_passed: bool,
    /// The holder's word names or counts this rank.
    is_noted: bool,
    has_tried: bool,
    is_abandoned: bool,
    under_way: [Option<(Step, bool)>; 2],
    /// It has had its look at the word in this round, in which others may not have had theirs.
    has_looked: [bool; 2],
    vigil: Vigil,
}

impl WordLock {
    /// No lock.
    pub const NONE: Self = Self {
        phase: Phase::Idle,
        claim: Claim::Shared,
        me: Rank(0),
        ticket: None,
        has_turn: false,
        has_passed: false,
        is_noted: false,
        has_tried: false,
        is_abandoned: false,
        under_way: [None; 2],
        has_looked: [false; 2],
        vigil: Vigil::NONE,
    };

    /// A lock that `me` begins to wait for.
    pub fn asked(claim: Claim, me: Rank) -> Self {
        Self { phase: Phase::Waiting, claim, me, ..Self::NONE }
    }

    /// A lock of `me`'s, of which [`WordLock::memo`] was kept.
    pub fn resumed(claim: Claim, me: Rank, memo: Memo) -> Self {
        let phase = match memo {
            Memo::None => Phase::Idle,
            Memo::Held | Memo::LastTicket | Memo::Noted => Phase::Held,
            Memo::Drawn => Phase::Waiting,
            Memo::Lost => Phase::Lost,
        };
        let ticket = match memo {
            Memo::LastTicket => Some(Tickets::LAST),
            Memo::Noted => None,
            _ => (claim != Claim::Everywhere).then_some(0),
        };
        let (is_noted, has_tried) = (claim != Claim::Shared && memo != Memo::Drawn, memo == Memo::Drawn);
        let new = Self::asked(claim, me);
        Self { phase, ticket, has_turn: true, has_passed: true, is_noted, has_tried, ..new }
    }

    /// What has to be remembered of a lock that is [settled](WordLock::is_settled), or of one that is being given back and
    /// of which nothing is under way.
    pub fn memo(&self) -> Memo {
        match (self.phase, self.ticket) {
            (Phase::Held | Phase::Leaving, Some(Tickets::LAST)) => Memo::LastTicket,
            (Phase::Held | Phase::Leaving, None) if self.claim == Claim::Exclusive => Memo::Noted,
            (Phase::Held | Phase::Leaving, _) => Memo::Held,
            _ => Memo::None,
        }
    }

    /// Whether it is held.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.phase == Phase::Held
    }

    /// Whether there is none, and nothing under way.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle && !self.is_busy()
    }

    /// Whether it is waited for.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.phase == Phase::Waiting
    }

    /// Whether it will never be held.
    pub fn is_lost(&self) -> bool {
        self.phase == Phase::Lost
    }

    /// Whether the fabric has something of it.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.under_way.iter().any(Option::is_some)
    }

    /// Whether something will have to be posted without any further call.
    #[inline]
    pub fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Waiting | Phase::Leaving) || (self.is_held() && self.owes_pass())
    }

    /// Whether nothing is under way and nothing will be: it is held, or there is none.
    #[inline]
    pub fn is_settled(&self) -> bool {
        !self.is_busy() && !self.is_active()
    }

    /// What is held is given up.
    #[inline]
    pub fn release(&mut self) {
        if self.phase == Phase::Held {
            self.phase = Phase::Leaving;
        }
    }

    /// Nobody waits for it any more: it is given up as soon as it is held.
    pub fn abandon(&mut self) {
        self.is_abandoned = self.phase == Phase::Waiting;
        self.release();
    }

    /// Its turn has come, and is passed on: what was drawn is given back.
    pub fn forgo(&mut self) {
        if self.phase == Phase::Waiting && self.has_turn && !self.is_busy() {
            self.phase = Phase::Leaving;
        }
    }

    /// Its target is gone, or whoever was to let it in.
    pub fn lose(&mut self) {
        if self.phase != Phase::Idle {
            self.phase = Phase::Lost;
        }
    }

    /// What is to be done to a word now. `is_mourning`: some rank has died, and what it held it keeps.
    pub fn poll(&self, word: Word, is_mourning: bool) -> Option<Turn> {
        let step = self.next(word, is_mourning)?;
        let is_again = step == Step::Look || (step == Step::Seize && self.has_tried);
        Some(Turn { step, is_fresh: is_mourning, atomic: self.atomic(step), is_again })
    }

    /// What was done in vain and may be done again now: once in a round of all locks that this process waits for. Who
    /// has nothing else to do looks for ever, and must not keep others from what they have to do.
    pub fn poll_again(&self, word: Word, is_mourning: bool) -> Option<Turn> {
        self.poll(word, is_mourning).filter(|turn| turn.is_again && !self.has_looked[word as usize])
    }

    /// A new round begins.
    pub fn on_round(&mut self) {
        self.has_looked = [false; 2];
    }

    /// It was posted.
    pub fn on_posted(&mut self, word: Word, turn: Turn) {
        self.under_way[word as usize] = Some((turn.step, turn.is_fresh));
        self.has_looked[word as usize] |= turn.is_again;
    }

    /// Whether its place in the line is still to be drawn.
    pub fn wants_ticket(&self) -> bool {
        self.is_waiting() && self.ticket.is_none() && self.claim != Claim::Everywhere
    }

    /// What it is for.
    pub fn claim(&self) -> Claim {
        self.claim
    }

    /// The ticket with which it waits for its turn.
    pub fn waits_with(&self) -> Option<u32> {
        self.ticket.filter(|_| self.is_waiting() && !self.has_turn)
    }

    /// What was posted is done, and the word was `old` before. Returns the ticket whose turn may have come by it, if
    /// somebody has drawn that.
    pub fn on_done(&mut self, word: Word, old: u64) -> Option<u32> {
        let (step, is_fresh) = self.under_way[word as usize].take()?;
        if is_fresh {
            self.vigil.see(word, old);
        }
        self.take_in(step, word, old)
    }

    /// Does what is to be done and was not done in vain before, where nobody has died and `change` does an atomic within
    /// the call and says what the word was before. Nothing is under way.
    #[inline]
    pub fn run<R>(&mut self, mut change: impl FnMut(Word, Atomic) -> Result<u64, R>) -> Ran<R> {
        // What is first, without a look at what else there could be.
        let first = match (self.phase, self.claim) {
            (Phase::Waiting, Claim::Exclusive) if self.ticket.is_none() && !self.has_tried => {
                let drawn = self.step(Step::Draw, Word::Tickets, &mut change);
                drawn.and_then(|()| self.step(Step::Seize, Word::Holder, &mut change))
            }
            (Phase::Waiting, Claim::Shared) if self.ticket.is_none() => {
                let drawn = self.step(Step::Draw, Word::Tickets, &mut change);
                match drawn {
                    Ok(()) if self.is_held() && self.owes_pass() => {
                        self.step(Step::Pass, Word::Tickets, &mut change)
                    }
                    drawn => drawn,
                }
            }
            (Phase::Waiting, Claim::Everywhere) if !self.is_noted => {
                self.step(Step::Count, Word::Holder, &mut change)
            }
            (Phase::Leaving, Claim::Exclusive) if self.ticket.is_some() && self.is_noted => {
                let left = self.step(Step::Leave, Word::Tickets, &mut change);
                left.and_then(|()| self.step(Step::GiveBack, Word::Holder, &mut change))
            }
            (Phase::Leaving, Claim::Everywhere) if self.is_noted => {
                self.step(Step::GiveBack, Word::Holder, &mut change)
            }
            _ => Ok(()),
        };
        if let Err(stopped) = first {
            return stopped;
        }
        while !self.is_settled() {
            let Some((word, turn)) = self.poll_first(false) else { break };
            if let Err(stopped) = self.step(turn.step, word, &mut change) {
                return stopped;
            }
        }
        Ran::Over
    }

    #[inline(always)]
    fn step<R>(
        &mut self,
        step: Step,
        word: Word,
        change: &mut impl FnMut(Word, Atomic) -> Result<u64, R>,
    ) -> Result<(), Ran<R>> {
        let atomic = self.atomic(step);
        match change(word, atomic) {
            Ok(old) => self.take_in(step, word, old).map_or(Ok(()), |ticket| Err(Ran::LetIn(ticket))),
            Err(refusal) => {
                let turn = Turn { step, is_fresh: false, atomic, is_again: false };
                Err(Ran::Refused(word, turn, refusal))
            }
        }
    }

    /// What is to be done first that was not done in vain before, and to which word.
    #[inline]
    pub fn poll_first(&self, is_mourning: bool) -> Option<(Word, Turn)> {
        let turn_of =
            |word| self.poll(word, is_mourning).filter(|turn| !turn.is_again).map(|turn| (word, turn));
        turn_of(Word::Tickets).or_else(|| turn_of(Word::Holder))
    }

    #[inline(always)]
    fn take_in(&mut self, step: Step, word: Word, old: u64) -> Option<u32> {
        let mut next = None;
        match step {
            Step::Draw => {
                self.ticket = Some(Tickets(old).next());
                self.look_at_tickets(Tickets(old));
            }
            Step::Look if word == Word::Tickets => self.look_at_tickets(Tickets(old)),
            Step::Look => self.look_at_holder(old),
            Step::Pass => {
                self.has_passed = true;
                next = Tickets(old).drawn_behind(Tickets(old).admitted());
            }
            Step::Seize => {
                self.has_tried = true;
                self.is_noted = old == 0;
            }
            Step::Count => {
                self.is_noted = true;
                self.look_at_holder(old);
            }
            Step::GiveBack => self.is_noted = false,
            Step::Leave => {
                self.ticket = None;
                next = Tickets(old).drawn_behind(Tickets(old).served());
            }
        }
        self.settle();
        next
    }

    /// What was posted will never be done: the target is gone.
    pub fn on_failed(&mut self, word: Word) {
        self.under_way[word as usize] = None;
        self.lose();
    }

    /// Whether anybody living will let this one in, as far as can be told. To be asked when something is done, once a rank
    /// has died. A rank that `is_alive` and is named as the one alone is waited for; one of whose own locks none is, is in
    /// the word for this one, which waits.
    pub fn find_out(&mut self, is_alive: impl Fn(Rank) -> bool) -> Verdict {
        let waits_for_turn = self.claim != Claim::Everywhere && !self.has_turn;
        let verdict = match self.phase {
            Phase::Waiting => self.vigil.judge(self.me, waits_for_turn, is_alive),
            _ => Verdict::Waits,
        };
        if verdict == Verdict::Lost {
            self.phase = Phase::Lost;
        }
        verdict
    }

    /// Parts of the time of [`WordLock::PATIENCE`] have passed. They count where the words were looked at since the last did.
    pub fn on_time(&mut self, parts: u8) {
        if self.phase == Phase::Waiting {
            self.vigil.on_time(parts);
        }
    }

    /// For so many parts of time nothing must have changed before a lock is lost of which nobody knows who has it.
    pub const PATIENCE: u8 = vigil::PATIENCE;

    fn look_at_tickets(&mut self, tickets: Tickets) {
        let turn = if self.claim == Claim::Exclusive { tickets.served() } else { tickets.admitted() };
        self.has_turn |= self.ticket == Some(turn);
    }

    fn look_at_holder(&mut self, holder: u64) {
        if self.claim == Claim::Everywhere {
            self.has_turn |= holder_of(holder).is_none() || Mutation::WordHolderIgnored.is_on();
        }
    }

    #[inline(always)]
    fn settle(&mut self) {
        let stays = self.is_noted && self.under_way[Word::Holder as usize].is_none();
        let is_granted = self.has_turn && (self.claim != Claim::Exclusive || stays);
        match self.phase {
            Phase::Waiting if is_granted && self.is_abandoned => self.phase = Phase::Leaving,
            Phase::Waiting if is_granted => self.phase = Phase::Held,
            Phase::Leaving if self.ticket.is_none() && !self.is_noted && !self.is_busy() => {
                *self = Self::NONE
            }
            _ => {}
        }
    }

    /// Whether the next shared one has still to be let in.
    fn owes_pass(&self) -> bool {
        self.claim == Claim::Shared && !self.has_passed && !Mutation::WordShareKept.is_on()
    }

    fn next(&self, word: Word, is_mourning: bool) -> Option<Step> {
        if self.under_way[word as usize].is_some() {
            return None;
        }
        match (self.phase, word) {
            (Phase::Waiting, Word::Tickets) => match self.ticket {
                _ if self.claim == Claim::Everywhere || self.has_turn => None,
                None => Some(Step::Draw),
                Some(_) => Some(Step::Look),
            },
            (Phase::Waiting, Word::Holder) => self.next_of_holder(is_mourning),
            (Phase::Held | Phase::Leaving, Word::Tickets) if self.owes_pass() => Some(Step::Pass),
            (Phase::Leaving, Word::Tickets) => self.ticket.map(|_| Step::Leave),
            (Phase::Leaving, Word::Holder) => self.is_noted.then_some(Step::GiveBack),
            _ => None,
        }
    }

    /// Who waits to be alone asks for the holder's word together with its ticket, which is one round trip where nobody
    /// is in the way. One that got the word before its turn has it back at once: who comes before would wait for it.
    fn next_of_holder(&self, is_mourning: bool) -> Option<Step> {
        let look = is_mourning.then_some(Step::Look);
        match self.claim {
            Claim::Shared => look,
            Claim::Everywhere if self.is_noted => Some(Step::Look),
            Claim::Everywhere => Some(Step::Count),
            Claim::Exclusive if self.is_noted => {
                let is_early = self.ticket.is_some() && !self.has_turn && !Mutation::WordKeptEarly.is_on();
                is_early.then_some(Step::GiveBack)
            }
            Claim::Exclusive if self.has_turn || !self.has_tried => Some(Step::Seize),
            Claim::Exclusive => look,
        }
    }

    #[inline(always)]
    fn atomic(&self, step: Step) -> Atomic {
        let alone = line::alone(self.me);
        match step {
            Step::Draw => Atomic::Add(Tickets::DRAW),
            Step::Look => Atomic::Add(0),
            Step::Pass => Atomic::Add(Tickets::admit(self.ticket)),
            Step::Seize => Atomic::Swap(0, alone),
            Step::Count => Atomic::Add(1),
            Step::GiveBack if self.claim == Claim::Exclusive => Atomic::Add(alone.wrapping_neg()),
            Step::GiveBack => Atomic::Add(1_u64.wrapping_neg()),
            Step::Leave if self.claim == Claim::Exclusive => {
                Atomic::Add(Tickets::SERVE.wrapping_add(Tickets::admit(self.ticket)))
            }
            Step::Leave => Atomic::Add(Tickets::SERVE),
        }
    }
}

/// How far [`WordLock::run`] has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ran<R> {
    /// There is nothing more to be done.
    Over,
    /// The turn of this ticket may have come, which somebody has drawn. There may be more to be done.
    LetIn(u32),
    /// This was not done, or is under way: what the change said.
    Refused(Word, Turn, R),
}

/// What is remembered of a held lock where there is no room for all of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Memo {
    /// None is held.
    #[default]
    None,
    /// One is held.
    Held,
    /// One is held, and its ticket was the last before they begin again.
    LastTicket,
    /// To be alone the turn has come, but not the word of whom is: somebody has locked all ranks.
    Drawn,
    /// Of one that was held alone the ticket was given back, and the word names this rank still.
    Noted,
    /// It will never be held.
    Lost,
}
