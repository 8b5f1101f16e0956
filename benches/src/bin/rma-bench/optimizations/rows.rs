//! The rows of the table: which epoch, which switches, which path.

use rma::Config;

use crate::cli::EpochKind;

/// One optimization that can be switched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Switch {
    SingleOpLock,
    Piggyback,
    Coalesce,
    GetToTail,
    LazyTargets,
}

impl Switch {
    pub(super) const ALL: [Self; 5] =
        [Self::SingleOpLock, Self::Piggyback, Self::Coalesce, Self::GetToTail, Self::LazyTargets];

    fn field(self, config: &mut Config) -> &mut bool {
        match self {
            Self::SingleOpLock => &mut config.single_op_lock,
            Self::Piggyback => &mut config.piggyback,
            Self::Coalesce => &mut config.coalesce,
            Self::GetToTail => &mut config.get_to_tail,
            Self::LazyTargets => &mut config.lazy_targets,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::SingleOpLock => "single-op-lock",
            Self::Piggyback => "piggyback",
            Self::Coalesce => "coalesce",
            Self::GetToTail => "get-to-tail",
            Self::LazyTargets => "lazy-targets",
        }
    }
}

/// Which switches are off: a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Switches(u8);

impl Switches {
    pub(super) const ALL_ON: Self = Self(0);
    pub(super) const ALL_OFF: Self = Self((1 << Switch::ALL.len()) - 1);

    pub(super) const fn without(switch: Switch) -> Self {
        Self(1 << switch as u8)
    }

    /// Every combination, fewer that are off first.
    fn combinations() -> Vec<Self> {
        let mut all: Vec<Self> = (0..=Self::ALL_OFF.0).map(Self).collect();
        all.sort_by_key(|switches| switches.0.count_ones());
        all
    }

    const fn is_off(self, switch: Switch) -> bool {
        self.0 >> switch as u8 & 1 == 1
    }

    /// As it is stored: what is on or off, or those that are off.
    pub(super) fn name(self) -> String {
        match self {
            Self::ALL_ON => "all-on".to_owned(),
            Self::ALL_OFF => "all-off".to_owned(),
            some => {
                let off = Switch::ALL.into_iter().filter(|&switch| some.is_off(switch));
                off.map(Switch::name).collect::<Vec<_>>().join("+")
            }
        }
    }
}

/// Which window an epoch is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Path {
    /// Whose puts and gets are native, and whose locks are packets.
    Native,
    /// Where everything is a packet.
    Message,
    /// Whose puts and gets are native, and whose locks are words that the origin changes.
    NicLock,
}

impl Path {
    /// As it is printed and stored.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Message => "message",
            Self::NicLock => "nic-lock",
        }
    }
}

/// What the fabric offers for windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offered {
    /// Puts and gets are native.
    pub(super) is_native: bool,
    /// Locks may be words, and puts and gets are native.
    pub(super) has_nic_locks: bool,
}

/// One row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub(super) epoch: EpochKind,
    pub(super) switches: Switches,
    pub(super) path: Path,
}

impl Row {
    /// Whether `other` is what this row's gain is told against: all off, on the same path; locks that are words are
    /// told against those that are packets.
    pub(super) fn is_told_against(&self, other: &Self) -> bool {
        let path = if self.path == Path::NicLock { Path::Native } else { self.path };
        (other.epoch, other.path, other.switches) == (self.epoch, path, Switches::ALL_OFF)
    }

    /// The settings with this row's switches; thresholds stay as they are.
    pub(super) fn config(&self, settings: &Config) -> Config {
        let mut config = settings.clone();
        for switch in Switch::ALL {
            *switch.field(&mut config) = !self.switches.is_off(switch);
        }
        config
    }
}

/// The rows to measure of epochs that `is_wanted`: every switch alone off on the path that the fabric offers, and with
/// that path native, the two extremes by message too; or, as a `grid`, every combination on both. Where locks may be
/// words, they are measured with all on: they have no packets that a switch could save.
pub(super) fn plan(is_wanted: impl Fn(EpochKind) -> bool, grid: bool, offered: Offered) -> Vec<Row> {
    let extremes = [Switches::ALL_ON, Switches::ALL_OFF];
    let (first, by_message) = if grid {
        (Switches::combinations(), Switches::combinations())
    } else {
        let alone = Switch::ALL.map(Switches::without);
        ([&extremes[..1], &alone, &extremes[1..]].concat(), extremes.to_vec())
    };
    let best = if offered.is_native { Path::Native } else { Path::Message };
    let mut rows = Vec::new();
    for epoch in EpochKind::ALL.into_iter().filter(|&epoch| is_wanted(epoch)) {
        rows.extend(first.iter().map(|&switches| Row { epoch, switches, path: best }));
        if offered.is_native {
            rows.extend(by_message.iter().map(|&switches| Row { epoch, switches, path: Path::Message }));
        }
        if offered.has_nic_locks && epoch != EpochKind::FencePutFence {
            rows.push(Row { epoch, switches: Switches::ALL_ON, path: Path::NicLock });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    const NATIVE: Offered = Offered { is_native: true, has_nic_locks: false };

    #[test]
    fn every_epoch_has_every_switch_and_the_extremes_by_message() {
        let rows = plan(|_| true, false, NATIVE);
        assert_eq!(rows.len(), 4 * 9);
        assert_eq!(rows.iter().filter(|row| row.path == Path::Message).count(), 4 * 2);
        let by_message = Offered { is_native: false, has_nic_locks: false };
        assert_eq!(plan(|epoch| epoch == EpochKind::FencePutFence, false, by_message).len(), 7);
    }

    #[test]
    fn epochs_with_a_lock_have_one_row_with_words_told_against_packets() {
        let rows = plan(|_| true, false, Offered { has_nic_locks: true, ..NATIVE });
        assert_eq!(rows.len(), 4 * 9 + 3);
        for row in rows.iter().filter(|row| row.path == Path::NicLock) {
            let against: Vec<&Row> = rows.iter().filter(|other| row.is_told_against(other)).collect();
            let expected = Row { switches: Switches::ALL_OFF, path: Path::Native, ..*row };
            assert_eq!(against, [&expected]);
        }
    }

    #[test]
    fn a_grid_has_every_combination_once_with_a_name_of_its_own() {
        let rows = plan(|epoch| epoch == EpochKind::LockPutUnlock, true, NATIVE);
        assert_eq!(rows.len(), 2 * 32);
        let mut names: Vec<String> =
            rows.iter().filter(|row| row.path == Path::Native).map(|row| row.switches.name()).collect();
        assert_eq!(names[0], "all-on");
        assert_eq!(names[31], "all-off");
        assert!(names.contains(&"piggyback+coalesce".to_owned()));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 32);
    }

    #[test]
    fn a_row_turns_off_what_it_says_and_nothing_else() {
        // What is no switch stays as it was set.
        let kept = |config| Config { slots: 3, put_data: Some(true), ..config };
        let settings = kept(Config::all_off());
        let row = |switches| Row { epoch: EpochKind::LockPutUnlock, switches, path: Path::Native };
        assert_eq!(row(Switches::ALL_ON).config(&settings), kept(Config::default()));
        assert_eq!(row(Switches::ALL_OFF).config(&settings), settings);
        let expected = kept(Config { coalesce: false, ..Config::default() });
        assert_eq!(row(Switches::without(Switch::Coalesce)).config(&settings), expected);
    }
}
