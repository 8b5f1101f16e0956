//! From the command line to what is to be run where.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use clap::ValueEnum;
use rma_bootstrap::description::{HostTask, JobTask, ProgramTask, RankTask};
use rma_bootstrap::environment::Environment;
use rma_bootstrap::settings::{find, Audience, Settings, Source};

use crate::cli::Cli;
use crate::failure::Failure;
use crate::hosts::{self, Host};
use crate::launch_agent::{self, AGENT_ARGUMENT};
use crate::places::{self, is_own_name, Placed};
use crate::slurm;

/// Variables by which libfabric's providers are told their network interface.
const IFACE_VARIABLES: [&str; 5] =
    ["FI_TCP_IFACE", "FI_NET_IFACE", "FI_SOCKETS_IFACE", "FI_UDP_IFACE", "FI_VERBS_IFACE"];

/// The setting that jobs have by another default which go on after deaths.
const LOCK_PROTOCOL: &str = "RMA_LOCK_PROTOCOL";

/// The packets that libfabric's ofi_rxd has under way to each peer, at most; 128 by its own default.
const RXD_WINDOW: &str = "FI_OFI_RXD_MAX_UNACKED";

/// So many of a rank's are under way to the endpoints of all others together (docs/libfabric.md).
const RXD_PACKETS: u32 = 96;

/// What ranks on other hosts are given of this process's environment besides settings and what is asked for: where
/// programs and libraries are.
const PASSED_ON: [&str; 2] = ["PATH", "LD_LIBRARY_PATH"];

/// Prefixes of more variables that they are given.
const PASSED_ON_PREFIXES: [&str; 2] = ["RMA_", "FI_"];

/// What is to be run where.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What holds for all hosts.
    pub(crate) job: JobTask,
    /// What this host runs, if anything.
    pub(crate) here: Option<HostTask>,
    /// What the others run.
    pub(crate) elsewhere: Vec<HostTask>,
    /// The names of all hosts, by their numbers.
    pub(crate) hosts: Vec<String>,
    /// The host of each rank.
    pub(crate) hosts_of_ranks: Vec<u32>,
    /// The program of each rank, counted from 0.
    pub(crate) programs: Vec<u32>,
}

/// Makes the plan of a job, called `job_id`.
///
/// # Errors
/// When the command line asks for what does not agree, or names what is not there.
pub(crate) fn plan(parts: &[Cli], environment: &Environment, job_id: String) -> Result<Plan, Failure> {
    let [cli, others @ ..] = parts else { return Err(Failure::usage("there is nothing to run")) };
    let of_others: Vec<u32> = others.iter().filter_map(|part| part.ranks).collect();
    // Each is at most 65,536 and a command line is finite, yet their sum may be above 32 bits.
    let sum = of_others.iter().fold(0, |sum: u32, count| sum.saturating_add(*count));
    let asked = cli.ranks.map(|ranks| ranks.saturating_add(sum));
    let own_name = own_name();
    let (list, is_in_allocation) = host_list(cli, environment, asked, &own_name)?;
    let placed = places::place(&list, asked, cli.ppn, cli.map_by).map_err(Failure::usage)?;
    let hosts_of_ranks = places::hosts_of_ranks(&placed);
    let size = hosts_of_ranks.len() as u32;
    let counts = std::iter::once(cli.ranks.unwrap_or(size)).chain(of_others);
    let of_ranks =
        (0..).zip(counts).flat_map(|(program, count)| std::iter::repeat_n(program, count as usize));
    let programs: Vec<u32> = of_ranks.collect();

    // In an allocation this host has the name that Slurm gives it.
    let node = environment.get("SLURMD_NODENAME").filter(|_| is_in_allocation);
    let is_here = |host: &Placed| is_own_name(&host.name, &own_name) || node == Some(&host.name);
    let is_alone = placed.iter().all(is_here);
    let (mut here, mut elsewhere): (Option<HostTask>, Vec<HostTask>) = (None, Vec::new());
    for (number, host) in (0..).zip(&placed) {
        let rank_task = |rank: &u32| RankTask {
            rank: *rank,
            program: programs.get(*rank as usize).copied().unwrap_or(0),
            reads_input: cli.stdin.has(*rank),
        };
        let ranks = host.ranks.iter().map(rank_task).collect();
        let task = HostTask { host: number, name: host.name.clone(), ranks };
        match &mut here {
            // Two names of this host are two hosts only in name.
            Some(here) if is_here(host) => here.ranks.extend(task.ranks),
            here if is_here(host) => *here = Some(task),
            _ => elsewhere.push(task),
        }
    }
    let hosts_of_ranks = merged_hosts(hosts_of_ranks, here.as_ref());
    let job = JobTask {
        job_id,
        size,
        map_by: value_name(&cli.map_by),
        bind_to: value_name(&cli.bind_to.unwrap_or_else(|| cli.map_by.binding())),
        reports_bindings: cli.report_bindings,
        // Lines that are marked come line by line, which leaves nothing to watch.
        is_watched: io::stderr().is_terminal() && !cli.tag_output && cli.output_dir.is_none(),
        iface: cli.iface.clone().unwrap_or_default(),
        launch_agent: launch_agent::words(cli.launch_agent.as_deref(), is_in_allocation, environment),
        agent_command: agent_command(cli)?,
        programs: parts
            .iter()
            .map(|part| program(part, cli, environment, (is_alone, size)))
            .collect::<Result<_, _>>()?,
    };
    let hosts = if is_alone { vec![own_name] } else { placed.into_iter().map(|host| host.name).collect() };
    Ok(Plan { job, here, elsewhere, hosts, hosts_of_ranks, programs })
}

/// The name of this host.
fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The hosts that the user names, or those of a Slurm allocation, or this one; and whether they are of the allocation
/// that this process is in.
fn host_list(
    cli: &Cli,
    environment: &Environment,
    ranks: Option<u32>,
    own_name: &str,
) -> Result<(Vec<Host>, bool), Failure> {
    let named = |hosts: Vec<Host>| {
        let is_allocation = slurm::has(environment, &hosts, |name| is_own_name(name, own_name));
        (hosts, is_allocation)
    };
    if !cli.host.is_empty() {
        let list = cli.host.join(",");
        let hosts = hosts::parse_list(&list);
        return Ok(named(hosts.map_err(|error| Failure::usage(format!("--host {list}: {error}")))?));
    }
    if let Some(path) = &cli.hostfile {
        let wrong = |error: String| Failure::usage(format!("--hostfile {}: {error}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        return Ok(named(hosts::parse_file(&text).map_err(wrong)?));
    }
    if let Some(hosts) = slurm::hosts(environment, ranks).map_err(Failure::usage)? {
        return Ok((hosts, true));
    }
    if ranks.is_none() && cli.ppn.is_none() {
        return Err(Failure::usage("how many ranks? Give -n <N>, or hosts (see --help)"));
    }
    Ok((vec![Host { name: own_name.to_owned(), slots: None }], false))
}

/// All names of this host are one host.
fn merged_hosts(mut hosts_of_ranks: Vec<u32>, here: Option<&HostTask>) -> Vec<u32> {
    for task in here.iter().flat_map(|here| &here.ranks) {
        hosts_of_ranks[task.rank as usize] = here.map_or(0, |here| here.host);
    }
    hosts_of_ranks
}

fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// What runs an agent on another host.
fn agent_command(cli: &Cli) -> Result<Vec<String>, Failure> {
    let path = match &cli.agent_path {
        Some(path) => path.clone(),
        None => std::env::current_exe()
            .map_err(|error| Failure::system(format!("where rmarun is cannot be found out: {error}")))?,
    };
    let path = path.into_os_string().into_string();
    let path = path.map_err(|path| {
        Failure::usage(format!("the path {} of rmarun is no text; use --agent-path", path.to_string_lossy()))
    })?;
    Ok(vec![path, AGENT_ARGUMENT.to_owned()])
}

/// The program of `part`, in the job that `cli` describes.
fn program(
    part: &Cli,
    cli: &Cli,
    environment: &Environment,
    (is_alone, size): (bool, u32),
) -> Result<ProgramTask, Failure> {
    let mut variables: Vec<(OsString, OsString)> = Vec::new();
    if !is_alone {
        variables.extend(passed_on(environment).map(|(name, value)| (name.into(), value.into())));
    }
    // An address is one host's, and says only where agents connect.
    if let Some(iface) = cli.iface.as_ref().filter(|iface| iface.parse::<IpAddr>().is_err()) {
        variables.extend(IFACE_VARIABLES.map(|name| (name.into(), iface.into())));
    }
    if cli.keep_going && !names_lock_protocol(environment) {
        variables.push((LOCK_PROTOCOL.into(), "message".into()));
    }
    let of_all = cli.genv.chunks_exact(2).map(|pair| (OsString::from(&pair[0]), OsString::from(&pair[1])));
    // On this host a rank has every variable of the launcher anyway: those without a value are there.
    let value = |(name, value): &(String, Option<String>)| {
        Some((OsString::from(name), value.as_ref().map(OsString::from).or_else(|| std::env::var_os(name))?))
    };
    variables.extend(of_all.chain(part.exports.iter().filter_map(value)));
    if let Some(provider) = &cli.provider {
        variables.push(("RMA_PROVIDER".into(), provider.into()));
    }
    variables
        .extend(rxd_window(&variables, environment, size).map(|value| (RXD_WINDOW.into(), value.into())));
    let directory = match &part.wdir {
        Some(directory) if is_alone => directory.clone().into_os_string(),
        None if is_alone => OsString::new(),
        // Elsewhere a path counts from here.
        directory => {
            let here = std::env::current_dir()
                .map_err(|error| Failure::system(format!("the working directory is not known: {error}")))?;
            here.join(directory.as_deref().unwrap_or_else(|| Path::new(""))).into_os_string()
        }
    };
    Ok(ProgramTask {
        words: part.program.iter().map(|word| word.clone().into_vec()).collect(),
        directory: directory.into_vec(),
        variables: variables
            .into_iter()
            .flat_map(|(name, value)| [name, value])
            .map(OsString::into_vec)
            .collect(),
    })
}

/// The window of ofi_rxd, where a job names that provider and the user has not said it: with its default many
/// ranks have more packets under way than a queue of libfabric's udp takes, which then loses some.
fn rxd_window(given: &[(OsString, OsString)], environment: &Environment, size: u32) -> Option<String> {
    let last_given =
        |name: &str| given.iter().rfind(|(given, _)| given == name).map(|(_, value)| value.to_str());
    let value = |name| last_given(name).unwrap_or_else(|| environment.get(name));
    let is_rxd = |name| value(name).is_some_and(|provider| provider.contains("rxd"));
    if !(is_rxd("RMA_PROVIDER") || is_rxd("FI_PROVIDER")) || value(RXD_WINDOW).is_some() {
        return None;
    }
    Some((RXD_PACKETS / size.max(1)).max(1).to_string())
}

/// Whether the user has said how windows are locked, in the environment or a file of settings. Else jobs that go on
/// after deaths lock by messages: a lock that is words is lost with a rank that dies while it has it or waits for it.
fn names_lock_protocol(environment: &Environment) -> bool {
    let names_it = |settings: Settings| *settings.source(LOCK_PROTOCOL) != Source::Default;
    Settings::load_from(environment).is_ok_and(names_it)
}

/// Variables that ranks on other hosts are given without being asked for.
fn passed_on(environment: &Environment) -> impl Iterator<Item = (&str, &str)> {
    let places = PASSED_ON.into_iter().filter_map(|name| Some((name, environment.get(name)?)));
    let is_internal = |name: &str| find(name).is_some_and(|setting| setting.audience == Audience::Internal);
    let settings = PASSED_ON_PREFIXES.into_iter().flat_map(|prefix| environment.with_prefix(prefix));
    places.chain(settings.filter(move |(name, _)| !is_internal(name)))
}
