//! The table of settings.

use std::fmt;

use rma_core::config::{THINGS_MAX, THRESHOLD_BYTES_MAX};

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its name in the environment and in the settings file.
    pub name: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// Its value when nobody set it; empty where the part of the library that uses it decides. The same as in the
    /// options' defaults, which `rma` tests.
    pub default: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
    /// Who sets it.
    pub audience: Audience,
}

/// What values a setting takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Any text.
    Text,
    /// 0 (off) or 1 (on).
    Switch,
    /// A whole number within these limits.
    Count {
        /// The smallest that works.
        least: u64,
        /// The largest that is not a mistake.
        most: u64,
    },
    /// A number of seconds above 0.
    Seconds,
    /// One of these words.
    OneOf(&'static [&'static str]),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("text"),
            Self::Switch => f.write_str("0 or 1"),
            Self::Count { least, most: u64::MAX } => write!(f, "a whole number, at least {least}"),
            Self::Count { least, most } => write!(f, "a whole number from {least} to {most}"),
            Self::Seconds => f.write_str("a number of seconds above 0"),
            Self::OneOf(choices) => write!(f, "one of {}", choices.join(", ")),
        }
    }
}

/// Who sets a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Audience {
    /// People.
    User,
    /// `rmarun`, for each rank.
    Internal,
}

const fn user(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Setting {
    Setting { name, kind, default, help, audience: Audience::User }
}

/// A number of things of which there is room for each.
const fn things(least: u64) -> Kind {
    Kind::Count { least, most: THINGS_MAX as u64 }
}

/// A threshold in bytes.
const BYTES: Kind = Kind::Count { least: 0, most: THRESHOLD_BYTES_MAX as u64 };

/// A number that `rmarun` says.
const NUMBER: Kind = Kind::Count { least: 0, most: u64::MAX };

const fn internal(name: &'static str, kind: Kind, help: &'static str) -> Setting {
    Setting { name, kind, default: "", help, audience: Audience::Internal }
}

/// Every setting the project knows, in the order in which it is listed.
pub const SETTINGS: &[Setting] = &[
    user("RMA_CONFIG", Kind::Text, "", "settings file to read instead of ~/.config/rma.conf"),
    user(
        "RMA_PROVIDER",
        Kind::Text,
        "",
        "shm, verbs, ofi (libfabric's best) or a provider of libfabric such as tcp;ofi_rxm, or ofi:shm where the name \
         is another's; shm+ofi, shm+NAME: shared memory on each host, the other between hosts (default: shm on one \
         host, else shm+ofi)",
    ),
    user("RMA_LIBFABRIC", Kind::Text, "", "path of the libfabric library to load (default: the system's)"),
    user(
        "RMA_INTERFACE",
        Kind::Text,
        "",
        "network interface or address to use, or ipv4 or ipv6 (default: what other hosts get through to)",
    ),
    user("RMA_DOMAIN", Kind::Text, "", "device of the provider to use, such as mlx5_0 or eth0 (default: its choice)"),
    user(
        "RMA_NIC",
        Kind::Text,
        "",
        "RDMA devices to use, such as mlx5_0,mlx5_2, which the ranks of a host take in turn (default: the nearest)",
    ),
    user("RMA_VERBS_PORT", Kind::Count { least: 1, most: 255 }, "", "RMA_PROVIDER=verbs: the device's port, from 1 (default: the first active one)"),
    user(
        "RMA_VERBS_GID_INDEX",
        Kind::Count { least: 0, most: 255 },
        "",
        "RMA_PROVIDER=verbs: entry of the port's table of addresses (default: one of RoCE version 2, with an IPv4 address)",
    ),
    user(
        "RMA_VERBS_CONNECTIONS",
        Kind::Count { least: 1, most: 65_536 },
        "512",
        "RMA_PROVIDER=verbs: connections of a rank beyond which idle ones are closed",
    ),
    user(
        "RMA_VERBS_REMOTE_COMPLETION",
        Kind::OneOf(&["acknowledged", "read-back"]),
        "acknowledged",
        "RMA_PROVIDER=verbs: puts are complete when the target's device has acknowledged them, or when a read behind them came back",
    ),
    user(
        "RMA_VERBS_SERVICE_LEVEL",
        Kind::Count { least: 0, most: 15 },
        "0",
        "RMA_PROVIDER=verbs: service level of all that is sent",
    ),
    user(
        "RMA_VERBS_TRAFFIC_CLASS",
        Kind::Count { least: 0, most: 255 },
        "0",
        "RMA_PROVIDER=verbs: traffic class of all that is sent; on RoCE the DSCP, times 4",
    ),
    user(
        "RMA_VERBS_PKEY_INDEX",
        Kind::Count { least: 0, most: 65_535 },
        "0",
        "RMA_PROVIDER=verbs: entry of the port's table of partition keys",
    ),
    user("RMA_SINGLE_OP_LOCK", Kind::Switch, "1", "send lock, operations and unlock as one packet"),
    user("RMA_PIGGYBACK", Kind::Switch, "1", "let LOCK, DONE and UNLOCK travel with an operation"),
    user(
        "RMA_PUT_DATA",
        Kind::Switch,
        "",
        "let UNLOCK and COMPLETE be data of the last native put (default: only over libfabric's tcp)",
    ),
    user("RMA_PIGGYBACK_THRESHOLD", things(1), "64", "operations up to which an epoch waits to piggyback"),
    user("RMA_SINGLE_OP_THRESHOLD", BYTES, "2048", "size of an operation up to which it waits for UNLOCK, in bytes"),
    user("RMA_COALESCE", Kind::Switch, "1", "put an epoch's small operations to one target into one packet"),
    user(
        "RMA_GET_TO_TAIL",
        Kind::Switch,
        "1",
        "issue gets last, so that their reply carries the acknowledgement",
    ),
    user(
        "RMA_LAZY_TARGETS",
        Kind::Switch,
        "1",
        "keep target elements until the epoch ends or somebody needs them",
    ),
    user("RMA_FORCE_MESSAGE_PATH", Kind::Switch, "0", "execute every operation by message, none natively"),
    user("RMA_CHECK", Kind::Switch, "0", "look for conflicting accesses in every window (slow)"),
    user(
        "RMA_MEMORY_MODEL",
        Kind::OneOf(&["unified", "separate"]),
        "unified",
        "memory model that windows have, and are checked against",
    ),
    user(
        "RMA_LOCK_PROTOCOL",
        Kind::OneOf(&["message", "nic", "auto"]),
        "auto",
        "lock windows by messages, by the fabric's atomics where it has them (nic), or by what suits target and epoch",
    ),
    user("RMA_GATHER", Kind::Switch, "1", "gather small puts that follow each other into one message, over tcp"),
    user("RMA_MR_LOCAL", Kind::Switch, "0", "register the program's buffers here, and not by libfabric's own means"),
    user("RMA_NATIVE_ATOMICS", Kind::Switch, "0", "let a network execute accumulates, where it really can (shared memory does)"),
    user(
        "RMA_SHM_ATTACH",
        Kind::Switch,
        "1",
        "let ranks of a host copy from and to the program's memory, also where debuggers are kept from it (Yama)",
    ),
    user(
        "RMA_SHM_RESERVE",
        Kind::Switch,
        "0",
        "take the memory of windows in shared memory when they are made, not when it is touched",
    ),
    user(
        "RMA_SHM_HUGE_PAGES",
        Kind::OneOf(&["no", "transparent", "2M", "1G"]),
        "no",
        "huge pages for windows in shared memory: as the kernel has some, or of its pool",
    ),
    user("RMA_EAGER_BYTES", Kind::Count { least: 512, most: 65_536 }, "16368", "longest packet that carries its operations' data, in bytes (8192 in shared memory alone)"),
    user(
        "RMA_NATIVE_BLOCK_BYTES",
        BYTES,
        "512",
        "smallest average piece of a put or get with layouts that is not packed, in bytes",
    ),
    user(
        "RMA_NATIVE_REGION_BYTES",
        BYTES,
        "16384",
        "smallest put or get that goes natively to a region of a dynamic window, in bytes",
    ),
    user("RMA_REGION_RECORDS", things(1), "64", "others' regions that a dynamic window remembers"),
    user(
        "RMA_REGION_HOLDERS",
        things(0),
        "64",
        "ranks that may access a dynamic window's regions at a rank natively",
    ),
    user("RMA_SLOTS", things(1), "64", "slots for target elements in each window"),
    user("RMA_OPERATION_POOL", things(1), "128", "operation elements of each window"),
    user("RMA_OPERATION_POOL_GLOBAL", things(0), "256", "operation elements shared by all windows"),
    user("RMA_TARGET_POOL", things(1), "32", "target elements of each window"),
    user("RMA_TARGET_POOL_GLOBAL", things(0), "128", "target elements shared by all windows"),
    user("RMA_LOCK_WAITERS", things(1), "64", "lock requests that a window queues as a target"),
    user("RMA_NOTICES", things(0), "32", "post notices that a window keeps until start"),
    user("RMA_GROUP_MEMBERS", things(0), "1024", "members of a group for which a window has room at creation"),
    user("RMA_PEERS", things(2), "1024", "peers whose addresses are kept at the same time"),
    user(
        "RMA_PROGRESS",
        Kind::OneOf(&["auto", "none", "thread", "signal", "ghost"]),
        "auto",
        "who serves other ranks when the program does not",
    ),
    user(
        "RMA_BOOTSTRAP",
        Kind::OneOf(&["auto", "rmarun", "pmix", "pmi2", "pmi1", "single"]),
        "auto",
        "how to speak to the launcher; auto: the first of the others that it shows",
    ),
    user(
        "RMA_HOST_PROCESSORS",
        things(1),
        "",
        "processors that the ranks of a host have together (rmarun sets it; default: those that this rank may use)",
    ),
    user("RMA_PMIX", Kind::Text, "", "path of the PMIx library to load (default: the system's)"),
    user(
        "RMA_SIGNAL",
        // Linux' real-time signals, without those that the C library keeps to itself.
        Kind::Count { least: 34, most: 64 },
        "",
        "real-time signal of RMA_PROGRESS=signal (default: the last free one)",
    ),
    user(
        "RMA_BOOTSTRAP_TIMEOUT",
        Kind::Seconds,
        "60",
        "longest wait for a rank to join and publish",
    ),
    user(
        "RMA_TIMEOUT",
        Kind::Seconds,
        "",
        "longest time that a blocking call may take (default: no limit)",
    ),
    user(
        "RMA_TRACE",
        Kind::Text,
        "",
        "file for a timeline of all ranks' epochs and calls, for ui.perfetto.dev; on a file system of all hosts",
    ),
    user(
        "RMA_TRACE_EVENTS",
        Kind::Count { least: 16, most: 1 << 24 },
        "16384",
        "events that each rank remembers for it; the oldest are forgotten",
    ),
    user(
        "RMA_METRICS",
        Kind::Text,
        "",
        "file for each rank's counters as Prometheus text; the rank is put before the extension",
    ),
    user("RMA_LAUNCH_AGENT", Kind::Text, "", "command by which rmarun starts its agents on other hosts"),
    user("RMA_SINGLE", Kind::Switch, "0", "make this process a job of one rank, whatever started it"),
    internal("RMA_RANK", NUMBER, "rank of the process"),
    internal("RMA_SIZE", NUMBER, "number of ranks in the job"),
    internal("RMA_LOCAL_RANK", NUMBER, "rank among the ranks on the same host"),
    internal("RMA_LOCAL_SIZE", NUMBER, "number of ranks on the same host"),
    internal("RMA_LOCAL_RANKS", Kind::Text, "the ranks on the same host, as 0-3,8"),
    internal("RMA_JOB_ID", Kind::Text, "name of the job, different from every other on the host"),
    internal("RMA_CONTROL_FD", NUMBER, "file descriptor of the connection to rmarun"),
    internal("RMA_HOST_ADDRESS", Kind::Text, "address by which the job's other hosts reach this one"),
    internal("RMA_STDERR_IS_TERMINAL", Kind::Switch, "1 for rank 0 when a person watches its standard error"),
];
