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

/// One row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub(super) epoch: EpochKind,
    pub(super) switches: Switches,
    /// On the window whose puts and gets are native, where there is one.
    pub(super) is_native: bool,
}

impl Row {
    /// As it is printed.
    pub(super) const fn path(&self) -> &'static str {
        if self.is_native {
            "native"
        } else {
            "message"
        }
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
/// that path native, the two extremes by message too; or, as a `grid`, every combination on both.
pub(super) fn plan(is_wanted: impl Fn(EpochKind) -> bool, grid: bool, is_native: bool) -> Vec<Row> {
    let extremes = [Switches::ALL_ON, Switches::ALL_OFF];
    let (offered, by_message) = if grid {
        (Switches::combinations(), Switches::combinations())
    } else {
        let alone = Switch::ALL.map(Switches::without);
        ([&extremes[..1], &alone, &extremes[1..]].concat(), extremes.to_vec())
    };
    let mut rows = Vec::new();
    for epoch in EpochKind::ALL.into_iter().filter(|&epoch| is_wanted(epoch)) {
        rows.extend(offered.iter().map(|&switches| Row { epoch, switches, is_native }));
        if is_native {
            rows.extend(by_message.iter().map(|&switches| Row { epoch, switches, is_native: false }));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_has_every_switch_and_the_extremes_by_message() {
        let rows = plan(|_| true, false, true);
        assert_eq!(rows.len(), 4 * 9);
        assert_eq!(rows.iter().filter(|row| !row.is_native).count(), 4 * 2);
        assert_eq!(plan(|epoch| epoch == EpochKind::FencePutFence, false, false).len(), 7);
    }

    #[test]
    fn a_grid_has_every_combination_once_with_a_name_of_its_own() {
        let rows = plan(|epoch| epoch == EpochKind::LockPutUnlock, true, true);
        assert_eq!(rows.len(), 2 * 32);
        let mut names: Vec<String> =
            rows.iter().filter(|row| row.is_native).map(|row| row.switches.name()).collect();
        assert_eq!(names[0], "all-on");
        assert_eq!(names[31], "all-off");
        assert!(names.contains(&"piggyback+coalesce".to_owned()));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 32);
    }

    #[test]
    fn a_row_turns_off_what_it_says_and_nothing_else() {
        let settings = Config { slots: 3, ..Config::all_off() };
        let row = |switches| Row { epoch: EpochKind::LockPutUnlock, switches, is_native: true };
        assert_eq!(row(Switches::ALL_ON).config(&settings), Config { slots: 3, ..Config::default() });
        assert_eq!(row(Switches::ALL_OFF).config(&settings), settings);
        let expected = Config { slots: 3, coalesce: false, ..Config::default() };
        assert_eq!(row(Switches::without(Switch::Coalesce)).config(&settings), expected);
    }
}
