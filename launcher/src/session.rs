//! One rank as its launcher sees it: a table of states and events. Pure.

/// Where a rank stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The process runs and has not said hello. It may be a program that never will.
    Started,
    /// The process runs and has closed its control connection without ever saying hello.
    Unconnected,
    /// The rank has joined the job.
    Connected,
    /// The rank joined, and its control connection ended before it finalized.
    Severed,
    /// The rank has finished in an orderly way; its process still runs.
    Finalized,
    /// The process has exited.
    Ended,
}

/// What happens to a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// It says hello.
    Hello,
    /// It puts.
    Put,
    /// It gets.
    Get,
    /// It says that it is done.
    Finalize,
    /// It asks for the job to be ended.
    Abort,
    /// Its control connection ended, or carried what is no message.
    ControlEnded,
    /// Its process exited with status 0.
    ExitedWell,
    /// Its process exited with another status or was killed.
    ExitedBadly,
}

/// What the launcher does about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// Nothing.
    Ignore,
    /// Answer the hello.
    Welcome,
    /// Answer the put or get.
    Serve,
    /// Tell those who wait for this rank's values that they will not come.
    Withdraw,
    /// Refuse, close the control connection, and withdraw.
    Refuse,
    /// End the job as the rank asks.
    Abort,
    /// The rank left without finalizing: end the job if others may wait for it.
    Vanish,
    /// The rank failed: end the job.
    Fail,
}

impl State {
    /// What follows from `event` in this state.
    pub(crate) fn on(self, event: Event) -> (Self, Effect) {
        use {Effect as X, Event as E};
        match (self, event) {
            (Self::Ended, _) => (Self::Ended, X::Ignore),
            (_, E::ExitedBadly) => (Self::Ended, X::Fail),

            (Self::Started, E::Hello) => (Self::Connected, X::Welcome),
            (Self::Started, E::Put | E::Get | E::Finalize | E::Abort) => (Self::Unconnected, X::Refuse),
            (Self::Started, E::ControlEnded) => (Self::Unconnected, X::Withdraw),
            (Self::Started, E::ExitedWell) => (Self::Ended, X::Withdraw),

            (Self::Connected, E::Put | E::Get) => (Self::Connected, X::Serve),
            (Self::Connected, E::Finalize) => (Self::Finalized, X::Withdraw),
            (Self::Connected, E::Abort) => (Self::Connected, X::Abort),
            (Self::Connected, E::Hello) => (Self::Severed, X::Refuse),
            (Self::Connected, E::ControlEnded) => (Self::Severed, X::Withdraw),
            (Self::Connected, E::ExitedWell) => (Self::Ended, X::Vanish),

            (Self::Severed, E::ExitedWell) => (Self::Ended, X::Vanish),

            (Self::Finalized, E::Abort) => (Self::Finalized, X::Abort),
            // It may have to answer ranks that it has never met: after a death they do not all finalize together.
            (Self::Finalized, E::Get) => (Self::Finalized, X::Serve),
            (Self::Finalized, E::Hello | E::Put | E::Finalize) => (Self::Finalized, X::Refuse),

            (Self::Finalized | Self::Unconnected, E::ExitedWell) => (Self::Ended, X::Ignore),
            (Self::Finalized | Self::Unconnected | Self::Severed, _) => (self, X::Ignore),
        }
    }

    /// Whether values of the rank may still come.
    pub(crate) fn may_put(self) -> bool {
        matches!(self, Self::Started | Self::Connected)
    }

    /// Whether the rank may wait for others, now or later.
    pub(crate) fn may_wait(self) -> bool {
        matches!(self, Self::Started | Self::Connected | Self::Severed)
    }

    /// Why no more values come from the rank, for people.
    pub(crate) fn describe_absence(self) -> &'static str {
        match self {
            Self::Started | Self::Connected => "is still at work",
            Self::Unconnected => "closed its control connection without joining the job",
            Self::Severed => "lost its control connection",
            Self::Finalized => "has finalized",
            Self::Ended => "has exited",
        }
    }

    /// The state in words, for people.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Started => "running, has not joined the job",
            Self::Unconnected => "running, has closed its control connection without joining the job",
            Self::Connected => "running, has joined the job",
            Self::Severed => "running, its control connection ended before it finalized",
            Self::Finalized => "running, has finalized",
            Self::Ended => "has exited",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 6] = [
        State::Started,
        State::Unconnected,
        State::Connected,
        State::Severed,
        State::Finalized,
        State::Ended,
    ];
    const EVENTS: [Event; 8] = [
        Event::Hello,
        Event::Put,
        Event::Get,
        Event::Finalize,
        Event::Abort,
        Event::ControlEnded,
        Event::ExitedWell,
        Event::ExitedBadly,
    ];

    /// The whole table, one row per state, reviewed by eye: `NextState/Effect` in the order of EVENTS.
    const TABLE: &str = "\
Started: Connected/Welcome Unconnected/Refuse Unconnected/Refuse Unconnected/Refuse Unconnected/Refuse Unconnected/Withdraw Ended/Withdraw Ended/Fail
Unconnected: Unconnected/Ignore Unconnected/Ignore Unconnected/Ignore Unconnected/Ignore Unconnected/Ignore Unconnected/Ignore Ended/Ignore Ended/Fail
Connected: Severed/Refuse Connected/Serve Connected/Serve Finalized/Withdraw Connected/Abort Severed/Withdraw Ended/Vanish Ended/Fail
Severed: Severed/Ignore Severed/Ignore Severed/Ignore Severed/Ignore Severed/Ignore Severed/Ignore Ended/Vanish Ended/Fail
Finalized: Finalized/Refuse Finalized/Refuse Finalized/Serve Finalized/Refuse Finalized/Abort Finalized/Ignore Ended/Ignore Ended/Fail
Ended: Ended/Ignore Ended/Ignore Ended/Ignore Ended/Ignore Ended/Ignore Ended/Ignore Ended/Ignore Ended/Ignore
";

    #[test]
    fn the_table() {
        let mut drawn = String::new();
        for state in STATES {
            let row: Vec<String> = EVENTS
                .iter()
                .map(|event| {
                    let (next, effect) = state.on(*event);
                    format!("{next:?}/{effect:?}")
                })
                .collect();
            drawn += &format!("{state:?}: {}\n", row.join(" "));
        }
        assert_eq!(drawn, TABLE);
    }

    #[test]
    fn every_rank_can_end_and_stays_ended() {
        for state in STATES {
            assert_eq!(state.on(Event::ExitedWell).0, State::Ended);
            assert_eq!(state.on(Event::ExitedBadly).0, State::Ended);
            assert!(!state.may_put() || state.may_wait(), "{}", state.describe());
        }
    }
}
