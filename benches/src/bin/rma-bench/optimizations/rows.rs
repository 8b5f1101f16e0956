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
    const ALL: [Self; 5] =
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
}

/// Which switches are on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Switches {
    AllOn,
    Without(Switch),
    AllOff,
}

impl Switches {
    /// As it is printed: what is on or off, or the one that is off.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AllOn => "all-on",
            Self::Without(Switch::SingleOpLock) => "single-op-lock",
            Self::Without(Switch::Piggyback) => "piggyback",
            Self::Without(Switch::Coalesce) => "coalesce",
            Self::Without(Switch::GetToTail) => "get-to-tail",
            Self::Without(Switch::LazyTargets) => "lazy-targets",
            Self::AllOff => "all-off",
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
            *switch.field(&mut config) = match self.switches {
                Switches::AllOn => true,
                Switches::Without(off) => off != switch,
                Switches::AllOff => false,
            };
        }
        config
    }
}

/// The rows to measure: every switch on the path that the fabric offers, and with that path native, the
/// two extremes by message too.
pub(super) fn plan(epochs: &[EpochKind], is_native: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for epoch in EpochKind::ALL {
        if !epochs.is_empty() && !epochs.contains(&epoch) {
            continue;
        }
        let alone = Switch::ALL.map(Switches::Without);
        let all = [Switches::AllOn].into_iter().chain(alone).chain([Switches::AllOff]);
        rows.extend(all.map(|switches| Row { epoch, switches, is_native }));
        if is_native {
            let extremes = [Switches::AllOn, Switches::AllOff];
            rows.extend(extremes.map(|switches| Row { epoch, switches, is_native: false }));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_has_every_switch_and_the_extremes_by_message() {
        let rows = plan(&[], true);
        assert_eq!(rows.len(), 4 * 9);
        assert_eq!(rows.iter().filter(|row| !row.is_native).count(), 4 * 2);
        assert_eq!(plan(&[EpochKind::FencePutFence], false).len(), 7);
    }

    #[test]
    fn a_row_turns_off_what_it_says_and_nothing_else() {
        let settings = Config { slots: 3, ..Config::all_off() };
        let row = |switches| Row { epoch: EpochKind::LockPutUnlock, switches, is_native: true };
        assert_eq!(row(Switches::AllOn).config(&settings), Config { slots: 3, ..Config::default() });
        assert_eq!(row(Switches::AllOff).config(&settings), settings);
        let expected = Config { slots: 3, coalesce: false, ..Config::default() };
        assert_eq!(row(Switches::Without(Switch::Coalesce)).config(&settings), expected);
    }
}
