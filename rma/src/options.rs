//! Everything that a job can be told, gathered in one place from the settings.

use std::path::PathBuf;
use std::time::Duration;

use rma_bootstrap::settings::{Settings, Source};
use rma_core::config::Config;
use rma_core::info::{LockProtocol, MemoryModel};
use rma_shm::HugePages;

use crate::error::Result;
use crate::fabric::FabricOptions;
use crate::trace::EVENTS_DEFAULT;

/// Who makes progress while the program is outside the library (`RMA_PROGRESS`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Progress {
    /// A thread where there is anybody to wait for it: in jobs of more than one rank.
    #[default]
    Auto,
    /// Nobody. Other ranks then wait, at this rank's window, for its next call.
    None,
    /// A thread, always.
    Thread,
    /// A timer that interrupts the thread which joins the job: no thread is started. Linux on x86-64 and
    /// aarch64 only, and with restrictions (docs/progress.md).
    Signal,
    /// A process beside each rank, which serves the windows that the library allocates; the others wait as
    /// with [`Progress::None`]. At all ranks or at none. Joining forks, so join before starting threads.
    Ghost,
}

/// What [`crate::Job::init_with`] is told. [`Options::load`] fills it from `RMA_*` variables and the
/// settings file; a program may change it then.
///
/// ```
/// let mut options = rma::Options::load()?;
/// options.config.coalesce = false;
/// options.fabric.provider = Some("tcp".to_owned());
/// # Ok::<(), rma::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The optimizations' switches and the sizes of pools and tables.
    pub config: Config,
    /// Which provider, and the endpoint's sizes.
    pub fabric: FabricOptions,
    /// Who makes progress while the program is outside the library.
    pub progress: Progress,
    /// The real-time signal of [`Progress::Signal`]; `None`: the last one that the program does not handle.
    pub signal: Option<u64>,
    /// Processors that the ranks of this host have together: more ranks than that do not spin while they wait.
    /// `None`: those that this process may use, which are too few where each rank is bound to its own.
    pub host_processors: Option<usize>,
    /// Longest time that a blocking call may take before it fails with
    /// [`rma_core::error::RmaError::Stalled`]; `None`: as long as it takes. A scope that ends so while the fabric
    /// may still use buffers that the program has lent to it waits five seconds more, and then ends the process
    /// (abort): the compiler gives the buffers back when the scope is over. Operations of one value
    /// ([`crate::LockEpoch::get_value`] and the like) lend nothing.
    pub timeout: Option<Duration>,
    /// File that gets the timeline of all ranks (docs/tracing.md); the same for each of them, and on a file system
    /// that all of them have. `None`: nothing is remembered.
    pub trace: Option<PathBuf>,
    /// Events that each rank remembers for it; when there are more the oldest are forgotten.
    pub trace_events: usize,
    /// File that gets the counters when the rank leaves the job ([`crate::Job::metrics`]); the rank's number is put
    /// before the extension.
    pub metrics: Option<PathBuf>,
    pub(crate) settings: Settings,
}

impl Options {
    /// The defaults with what the environment and the settings file say (`rmarun --help-env` lists it).
    ///
    /// # Errors
    /// When a setting has a value that it cannot have.
    pub fn load() -> Result<Self> {
        Ok(Self::from_settings(Settings::load()?))
    }

    /// The same from settings that were read before, and perhaps overridden by flags.
    pub fn from_settings(settings: Settings) -> Self {
        let progress = match settings.text("RMA_PROGRESS") {
            Some("none") => Progress::None,
            Some("thread") => Progress::Thread,
            Some("signal") => Progress::Signal,
            Some("ghost") => Progress::Ghost,
            _ => Progress::Auto,
        };
        let mut trace_events = EVENTS_DEFAULT;
        count(&settings, "RMA_TRACE_EVENTS", &mut trace_events);
        Self {
            config: config_of(&settings),
            fabric: fabric_of(&settings),
            progress,
            signal: settings.count("RMA_SIGNAL"),
            host_processors: settings
                .count("RMA_HOST_PROCESSORS")
                .and_then(|count| usize::try_from(count).ok()),
            timeout: settings.seconds("RMA_TIMEOUT"),
            trace: settings.text("RMA_TRACE").map(Into::into),
            trace_events,
            metrics: settings.text("RMA_METRICS").map(Into::into),
            settings,
        }
    }

    /// The settings that the options were made from, each with its source.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

fn config_of(settings: &Settings) -> Config {
    let mut config = Config::default();
    let switch = |name, field: &mut bool| {
        if let Some(value) = settings.switch(name) {
            *field = value;
        }
    };
    switch("RMA_SINGLE_OP_LOCK", &mut config.single_op_lock);
    switch("RMA_PIGGYBACK", &mut config.piggyback);
    switch("RMA_COALESCE", &mut config.coalesce);
    switch("RMA_GET_TO_TAIL", &mut config.get_to_tail);
    switch("RMA_LAZY_TARGETS", &mut config.lazy_targets);
    switch("RMA_FORCE_MESSAGE_PATH", &mut config.force_message_path);
    switch("RMA_CHECK", &mut config.check);
    config.put_data = settings.switch("RMA_PUT_DATA");
    if settings.text("RMA_MEMORY_MODEL") == Some("separate") {
        config.memory_model = MemoryModel::Separate;
    }
    if let Some(protocol) = settings.text("RMA_LOCK_PROTOCOL").and_then(LockProtocol::of) {
        config.lock_protocol = protocol;
    }
    count(settings, "RMA_PIGGYBACK_THRESHOLD", &mut config.piggyback_threshold);
    count(settings, "RMA_SINGLE_OP_THRESHOLD", &mut config.small_bytes_max);
    count(settings, "RMA_NATIVE_BLOCK_BYTES", &mut config.native_block_bytes_min);
    count(settings, "RMA_NATIVE_REGION_BYTES", &mut config.native_region_bytes_min);
    count(settings, "RMA_REGION_RECORDS", &mut config.region_records);
    count(settings, "RMA_REGION_HOLDERS", &mut config.region_holders);
    count(settings, "RMA_SLOTS", &mut config.slots);
    count(settings, "RMA_OPERATION_POOL", &mut config.operation_pool);
    count(settings, "RMA_OPERATION_POOL_GLOBAL", &mut config.operation_pool_global);
    count(settings, "RMA_TARGET_POOL", &mut config.target_pool);
    count(settings, "RMA_TARGET_POOL_GLOBAL", &mut config.target_pool_global);
    count(settings, "RMA_LOCK_WAITERS", &mut config.lock_waiters);
    count(settings, "RMA_NOTICES", &mut config.notices);
    count(settings, "RMA_GROUP_MEMBERS", &mut config.group_members);
    count(settings, "RMA_PEERS", &mut config.peers);
    config
}

fn fabric_of(settings: &Settings) -> FabricOptions {
    let text = |name| settings.text(name).map(str::to_owned);
    let mut fabric = FabricOptions {
        library: text("RMA_LIBFABRIC").map(Into::into),
        provider: text("RMA_PROVIDER"),
        domain: text("RMA_DOMAIN"),
        nic: text("RMA_NIC"),
        interface: text("RMA_INTERFACE"),
        host_address: text("RMA_HOST_ADDRESS"),
        ..FabricOptions::default()
    };
    if settings.source("RMA_EAGER_BYTES") != &Source::Default {
        fabric.packet_bytes = settings.count("RMA_EAGER_BYTES").and_then(|bytes| usize::try_from(bytes).ok());
    }
    if settings.source("RMA_NATIVE_ATOMICS") != &Source::Default {
        fabric.native_atomics = settings.switch("RMA_NATIVE_ATOMICS") == Some(true);
    }
    fabric.register_buffers = settings.switch("RMA_MR_LOCAL") == Some(true);
    fabric.gather = settings.switch("RMA_GATHER") != Some(false);
    let verbs = &mut fabric.verbs;
    verbs.port = settings.count("RMA_VERBS_PORT").and_then(|port| u8::try_from(port).ok());
    verbs.gid_index = settings.count("RMA_VERBS_GID_INDEX").and_then(|index| u8::try_from(index).ok());
    verbs.read_back = settings.text("RMA_VERBS_REMOTE_COMPLETION") == Some("read-back");
    count(settings, "RMA_VERBS_CONNECTIONS", &mut verbs.connections);
    count(settings, "RMA_VERBS_SERVICE_LEVEL", &mut verbs.service_level);
    count(settings, "RMA_VERBS_TRAFFIC_CLASS", &mut verbs.traffic_class);
    count(settings, "RMA_VERBS_PKEY_INDEX", &mut verbs.partition_index);
    fabric.shm_reserve = settings.switch("RMA_SHM_RESERVE") == Some(true);
    fabric.shm_attach = settings.switch("RMA_SHM_ATTACH") != Some(false);
    fabric.shm_huge_pages = match settings.text("RMA_SHM_HUGE_PAGES") {
        Some("transparent") => HugePages::Transparent,
        Some("2M") => HugePages::Of2M,
        Some("1G") => HugePages::Of1G,
        _ => HugePages::No,
    };
    fabric
}

/// Takes a number over. The table's limits are such that it fits.
fn count<N: TryFrom<u64>>(settings: &Settings, name: &str, field: &mut N) {
    if let Some(value) = settings.count(name).and_then(|value| N::try_from(value).ok()) {
        *field = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use crate::VerbsOptions;
    use rma_bootstrap::environment::Environment;
    use rma_bootstrap::settings::{Audience, Kind, SETTINGS};

    fn options(pairs: &[(&str, &str)]) -> Options {
        let nowhere = [("XDG_CONFIG_HOME", "/nonexistent")];
        let environment = Environment::from_pairs(pairs.iter().chain(&nowhere).copied());
        Options::from_settings(Settings::load_from(&environment).unwrap())
    }

    /// That is, the defaults in the table of settings, which `rmarun --help-env` lists, are those in force.
    #[test]
    fn nothing_set_is_the_defaults() {
        let options = options(&[]);
        for setting in SETTINGS.iter().filter(|setting| setting.audience == Audience::User) {
            let is_open = ["RMA_HOST_PROCESSORS", "RMA_SIGNAL", "RMA_VERBS_PORT", "RMA_VERBS_GID_INDEX"]
                .contains(&setting.name);
            assert_eq!(
                matches!(setting.kind, Kind::Count { .. }) && setting.default.is_empty(),
                is_open,
                "{}",
                setting.name
            );
        }
        // The engine by itself takes the protocol that every fabric has.
        assert_eq!(options.config, Config { lock_protocol: LockProtocol::Auto, ..Config::default() });
        assert_eq!(options.fabric, FabricOptions::default());
        assert_eq!((options.progress, options.timeout), (Progress::Auto, None));
        assert_eq!((options.trace, options.trace_events, options.metrics), (None, EVENTS_DEFAULT, None));
    }

    #[test]
    fn thresholds_reach_their_fields() {
        let Config { piggyback_threshold, small_bytes_max, native_block_bytes_min, .. } = options(&[
            ("RMA_PIGGYBACK_THRESHOLD", "2"),
            ("RMA_SINGLE_OP_THRESHOLD", "100"),
            ("RMA_NATIVE_BLOCK_BYTES", "11"),
        ])
        .config;
        assert_eq!((piggyback_threshold, small_bytes_max, native_block_bytes_min), (2, 100, 11));
    }

    #[test]
    fn every_setting_reaches_its_field() {
        let options = options(&[
            ("RMA_SINGLE_OP_LOCK", "0"),
            ("RMA_PIGGYBACK", "0"),
            ("RMA_PUT_DATA", "1"),
            ("RMA_COALESCE", "0"),
            ("RMA_GET_TO_TAIL", "0"),
            ("RMA_LAZY_TARGETS", "0"),
            ("RMA_FORCE_MESSAGE_PATH", "1"),
            ("RMA_CHECK", "1"),
            ("RMA_MEMORY_MODEL", "separate"),
            ("RMA_LOCK_PROTOCOL", "nic"),
            ("RMA_SLOTS", "3"),
            ("RMA_OPERATION_POOL", "4"),
            ("RMA_OPERATION_POOL_GLOBAL", "5"),
            ("RMA_TARGET_POOL", "6"),
            ("RMA_TARGET_POOL_GLOBAL", "7"),
            ("RMA_LOCK_WAITERS", "8"),
            ("RMA_PEERS", "9"),
            ("RMA_NOTICES", "10"),
            ("RMA_GROUP_MEMBERS", "11"),
            ("RMA_LIBFABRIC", "/x"),
            ("RMA_PROVIDER", "tcp"),
            ("RMA_DOMAIN", "lo"),
            ("RMA_NIC", "mlx5_0,mlx5_1"),
            ("RMA_INTERFACE", "eth0"),
            ("RMA_EAGER_BYTES", "4096"),
            ("RMA_NATIVE_ATOMICS", "1"),
            ("RMA_PROGRESS", "none"),
            ("RMA_TIMEOUT", "2.5"),
            ("RMA_SIGNAL", "50"),
            ("RMA_HOST_PROCESSORS", "12"),
        ]);
        let expected = Config {
            put_data: Some(true),
            force_message_path: true,
            check: true,
            memory_model: MemoryModel::Separate,
            lock_protocol: LockProtocol::Nic,
            slots: 3,
            operation_pool: 4,
            operation_pool_global: 5,
            target_pool: 6,
            target_pool_global: 7,
            lock_waiters: 8,
            peers: 9,
            notices: 10,
            group_members: 11,
            ..Config::all_off()
        };
        assert_eq!(options.config, expected);
        let expected = FabricOptions {
            library: Some("/x".into()),
            provider: Some("tcp".into()),
            domain: Some("lo".into()),
            nic: Some("mlx5_0,mlx5_1".into()),
            interface: Some("eth0".into()),
            packet_bytes: Some(4096),
            native_atomics: true,
            ..FabricOptions::default()
        };
        assert_eq!(options.fabric, expected);
        assert_eq!((options.progress, options.timeout), (Progress::None, Some(Duration::from_millis(2500))));
        assert_eq!((options.signal, options.host_processors), (Some(50), Some(12)));
    }

    #[test]
    fn registration_of_buffers_reaches_libfabric() {
        assert!(options(&[("RMA_MR_LOCAL", "1")]).fabric.libfabric().register_buffers);
        assert!(!options(&[("RMA_MR_LOCAL", "0")]).fabric.libfabric().register_buffers);
    }

    #[test]
    fn gathering_of_puts_can_be_switched_off() {
        assert!(options(&[]).fabric.libfabric().gather);
        assert!(!options(&[("RMA_GATHER", "0")]).fabric.libfabric().gather);
    }

    #[test]
    fn settings_of_shared_memory_reach_their_fields() {
        for (text, huge) in [
            ("no", HugePages::No),
            ("transparent", HugePages::Transparent),
            ("2M", HugePages::Of2M),
            ("1G", HugePages::Of1G),
        ] {
            let fabric = options(&[("RMA_SHM_RESERVE", "1"), ("RMA_SHM_HUGE_PAGES", text)]).fabric;
            assert_eq!((fabric.shm_reserve, fabric.shm_huge_pages), (true, huge));
            assert_eq!(fabric.shm(2).pages, rma_shm::Pages { reserve: true, huge });
        }
        for (text, reach) in [("1", None), ("0", Some(rma_shm::Reach::Allocated))] {
            assert_eq!(options(&[("RMA_SHM_ATTACH", text)]).fabric.shm(2).reach, reach, "{text}");
        }
    }

    #[test]
    fn settings_of_verbs_reach_their_fields() {
        let VerbsOptions {
            port,
            gid_index,
            connections,
            read_back,
            service_level,
            traffic_class,
            partition_index,
        } = options(&[
            ("RMA_VERBS_PORT", "2"),
            ("RMA_VERBS_GID_INDEX", "3"),
            ("RMA_VERBS_CONNECTIONS", "64"),
            ("RMA_VERBS_REMOTE_COMPLETION", "read-back"),
            ("RMA_VERBS_SERVICE_LEVEL", "5"),
            ("RMA_VERBS_TRAFFIC_CLASS", "104"),
            ("RMA_VERBS_PKEY_INDEX", "1"),
        ])
        .fabric
        .verbs;
        assert_eq!((port, gid_index, connections, read_back), (Some(2), Some(3), 64, true));
        assert_eq!((service_level, traffic_class, partition_index), (5, 104, 1));
    }

    #[test]
    fn settings_of_observation_reach_their_fields() {
        let options =
            options(&[("RMA_TRACE", "/t.json"), ("RMA_TRACE_EVENTS", "64"), ("RMA_METRICS", "m.prom")]);
        assert_eq!((options.trace, options.trace_events), (Some("/t.json".into()), 64));
        assert_eq!(options.metrics, Some("m.prom".into()));
    }

    #[test]
    fn settings_of_dynamic_windows_reach_their_fields() {
        let options = options(&[
            ("RMA_NATIVE_REGION_BYTES", "12"),
            ("RMA_REGION_RECORDS", "13"),
            ("RMA_REGION_HOLDERS", "14"),
        ]);
        let Config { native_region_bytes_min, region_records, region_holders, .. } = options.config;
        assert_eq!((native_region_bytes_min, region_records, region_holders), (12, 13, 14));
    }

    /// What the table admits is used as it is said; what the engine would have to change is refused when it is read.
    #[test]
    fn limits_of_the_table_are_limits_of_the_engine() {
        for setting in SETTINGS.iter().filter(|setting| setting.audience == Audience::User) {
            let Kind::Count { least, most } = setting.kind else { continue };
            let values = [Some(least), Some(most), setting.default.parse().ok()];
            let values: BTreeSet<u64> = values.into_iter().flatten().collect();
            let in_force = |value: &u64| {
                let Options { config, fabric, signal, host_processors, trace_events, .. } =
                    options(&[(setting.name, &value.to_string())]);
                assert_eq!(config.clone().normalized(), config, "{}", setting.name);
                format!("{config:?} {fabric:?} {signal:?} {host_processors:?} {trace_events}")
            };
            let different: BTreeSet<String> = values.iter().map(in_force).collect();
            assert_eq!(different.len(), values.len(), "{}: {different:?}", setting.name);
        }
    }
}
