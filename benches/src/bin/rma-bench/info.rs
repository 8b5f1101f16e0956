//! `rma-bench info`: what there is, what was chosen and why, and what it costs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;

use rma::raw::RawWindow;
use rma::{Dtype, ErrorKind, Job, LockProtocol, Options, Path, Rank, ReduceOp};
use rma_bench::table::{Cell, Table};
use rma_bootstrap::settings::{Audience, Settings};
use rma_core::provider::NativeOps;
use rma_ofi::Ofi;

use crate::cli::Info;
use crate::{job, Outcome};

/// Runs the command.
pub(crate) fn run(options: &Info) -> Outcome<()> {
    let options = Options::from_settings(job::settings(options.provider.as_deref())?);
    let settings = settings_text(options.settings());
    let libfabric = options.fabric.libfabric();
    match Job::init_with(options) {
        Ok(job) => {
            let outcome = describe(&job, &libfabric, &settings);
            job::leave(job, outcome)
        }
        Err(error) => {
            let remedy = match error.kind() {
                ErrorKind::Provider(_) => NO_PROVIDER,
                _ => "",
            };
            let mut out = std::io::stdout().lock();
            write!(out, "{}{settings}{remedy}", libfabric_text(&libfabric))?;
            out.flush()?;
            // The cause alone is said as the error: a launcher shows the last lines of that.
            Err(format!("no job can be run here: {error}").into())
        }
    }
}

const NO_PROVIDER: &str = "
Without a provider there is nothing to communicate over. What helps:
  libfabric    Debian, Ubuntu: apt-get install libfabric1; Fedora, RHEL: dnf install libfabric;
               a cluster's own: RMA_LIBFABRIC=/path/to/libfabric.so.1
  provider     leave RMA_PROVIDER, --provider and FI_PROVIDER unset to let it be chosen;
               `fi_info -l` (package libfabric-bin) lists what libfabric has;
               RMA_PROVIDER=shm needs no library, and all ranks on one host
";

/// What libfabric would be chosen from; nothing where there is no libfabric.
fn libfabric_text(options: &rma_ofi::Options) -> String {
    Ofi::discover(options).map_or_else(
        |_| String::new(),
        |choice| format!("what libfabric offers, were none named\n{}\n", unique_lines(&choice.to_string())),
    )
}

fn describe(job: &Job, libfabric: &rma_ofi::Options, settings: &str) -> Outcome<()> {
    let window = RawWindow::allocate(job, WINDOW_BYTES, 1)?;
    // Where libfabric was asked, the description says what it has.
    let beside = if job.provider().libfabric.is_none() { libfabric_text(libfabric) } else { String::new() };
    let text = format!(
        "{}\n{beside}{}\n{}\n{}\n{settings}",
        provider_text(job),
        operations_text(job, &window),
        locks_text(job, &window)?,
        memory_text(job, &window)
    );
    window.free()?;
    if job.rank() == Rank(0) {
        let mut out = std::io::stdout().lock();
        write!(out, "{text}")?;
        out.flush()?;
    }
    Ok(())
}

fn provider_text(job: &Job) -> String {
    format!(
        "launcher of rank 0 of {}\n  {}; {} ranks on its host\n\nprovider of rank 0\n{}",
        job.size(),
        job.launcher(),
        job.local_size(),
        unique_lines(&job.provider_description())
    )
}

/// Indented, and each line once: libfabric lists what differs in nothing that is shown.
fn unique_lines(text: &str) -> String {
    let mut seen = BTreeSet::new();
    let unique = text.lines().filter(|line| seen.insert(*line));
    unique.fold(String::new(), |text, line| text + "  " + line + "\n")
}

/// Who executes an operation.
fn operations_text(job: &Job, window: &RawWindow) -> String {
    let provider = job.provider();
    let by_fabric = if provider.limits.needs_target_progress {
        "emulated by libfabric: the target's process must call the library, or its agent does"
    } else {
        "native: the target's process is not needed"
    };
    let who = |path: Path| match path {
        Path::Native => by_fabric,
        Path::Message => "message: a packet, executed by the target's process or its agent",
    };
    let [put, get, _] = window.paths(Dtype::U8);
    let mut table = Table::new(&["operation", "executed by"]);
    table.row(vec!["put".into(), who(put).into()]);
    table.row(vec!["get".into(), who(get).into()]);
    let mut accumulates: Vec<(String, Vec<&str>)> = Vec::new();
    for dtype in Dtype::ALL {
        let [_, _, path] = window.paths(dtype);
        let reason = match path {
            Path::Message if provider.native_allocated.is_complete_for(dtype) => {
                " (the fabric could; settings)"
            }
            Path::Message if is_partial(&provider.native_allocated, dtype) => {
                " (the fabric lacks a reduction)"
            }
            _ => "",
        };
        let who = format!("{}{reason}", who(path));
        match accumulates.iter_mut().find(|(other, _)| *other == who) {
            Some((_, names)) => names.push(dtype.name()),
            None => accumulates.push((who, vec![dtype.name()])),
        }
    }
    for (who, names) in accumulates {
        table.row(vec![Cell::Text(format!("accumulates on {}", names.join(", "))), Cell::Text(who)]);
    }
    format!(
        "operations (small ones of one epoch travel as one packet where that is cheaper)\n{}",
        indent(&table)
    )
}

/// How the window's locks are had.
fn locks_text(job: &Job, window: &RawWindow) -> Outcome<String> {
    let reaches_all =
        NativeOps::has(&job.provider().native_allocated.fetch_atomic, Dtype::U64, ReduceOp::Sum);
    let how = match window.options()?.lock_protocol {
        Some(LockProtocol::Nic) => "nic: by atomics on words of the target's memory",
        Some(LockProtocol::Auto) if reaches_all => {
            "auto: by words of the target's memory; by a packet where all of an epoch fits one and the target is no neighbour"
        }
        Some(LockProtocol::Auto) => "auto: by words of a neighbour's memory; by packets elsewhere",
        Some(LockProtocol::Message) | None => "message: by packets, which the target answers",
    };
    Ok(format!("locks of a window\n  {how}\n"))
}

fn is_partial(native: &NativeOps, dtype: Dtype) -> bool {
    native.atomic[dtype as usize] != 0 || native.fetch_atomic[dtype as usize] != 0
}

fn memory_text(job: &Job, window: &RawWindow) -> String {
    let mut table = Table::new(&["memory of this process", "bytes"]);
    let mut row = |what: &str, bytes: usize| table.row(vec![what.into(), Cell::Number(bytes.to_string())]);
    row("a window, beside its own memory; the same for any number of ranks", window.bytes_held());
    row("shared by all windows: pools, peers, replies", job.shared_bytes());
    row("the endpoint's buffers", job.provider().memory_bytes);
    indent(&table)
}

fn settings_text(settings: &Settings) -> String {
    let mut table = Table::new(&["setting", "value", "source", "meaning"]);
    for (setting, value, source) in settings.entries() {
        if setting.audience == Audience::User {
            let value = value.unwrap_or("-").to_owned();
            let source = Cell::Text(source.to_string());
            table.row(vec![setting.name.into(), Cell::Text(value), source, setting.help.into()]);
        }
    }
    let mut text = format!("settings ('-': chosen as needed)\n{}", indent(&table));
    for warning in settings.warnings() {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}

fn indent(table: &Table) -> String {
    table.to_string().lines().fold(String::new(), |text, line| text + "  " + line + "\n")
}

/// Bytes of the window that is looked at.
const WINDOW_BYTES: usize = 4096;
