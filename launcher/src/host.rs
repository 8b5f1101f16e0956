//! Starting the ranks of one host, as a [`JobTask`] describes them: what `rmarun` does on its own host and an agent on
//! each other one.

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use rma_bootstrap::description::{HostTask, JobTask, ProgramTask};
use rma_bootstrap::environment::Place;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use rustix::thread::CpuSet;

use crate::binding::{self, BindTo, Binding, MapBy};
use crate::failure::{start_failure, Failure};
use crate::keeper::Keeper;
use crate::local::LocalRanks;
use crate::spawn::{Own, Program};
use crate::topology::{self, Topology};

/// Files that a launcher has open besides those of ranks and agents, with room to spare.
const OPEN_FILES_BASE: u64 = 64;

/// Files that a launcher has open for each rank of its host: control connection, PMI connection, output, errors, and
/// for a moment the other ends.
const OPEN_FILES_PER_RANK: u64 = 4;

/// Files that a launcher has open for each agent that it starts: standard input and error, connection.
const OPEN_FILES_PER_AGENT: u64 = 4;

/// By what address the ranks' peers on other hosts reach this host.
const ADDRESS_VARIABLE: &str = "RMA_HOST_ADDRESS";

/// What decides about addresses in the place of [`ADDRESS_VARIABLE`].
const INTERFACE_VARIABLE: &str = "RMA_INTERFACE";

/// The ranks of a host that are to be started.
#[derive(Debug)]
pub(crate) struct HostRanks {
    job: JobTask,
    task: HostTask,
    open_files: Rlimit,
    bindings: Vec<Binding>,
}

impl HostRanks {
    /// Makes ready to start the ranks of a host in a process that has `agents` agents, and `more_files` open besides.
    ///
    /// # Errors
    /// When there are not enough files or processors.
    pub(crate) fn prepare(
        job: &JobTask,
        task: HostTask,
        agents: usize,
        more_files: u64,
    ) -> Result<Self, Failure> {
        let ranks = task.ranks.len() as u64;
        let inputs = task.ranks.iter().filter(|task| task.reads_input).count() as u64;
        let wanted = OPEN_FILES_BASE
            + OPEN_FILES_PER_RANK * ranks
            + OPEN_FILES_PER_AGENT * agents as u64
            + inputs
            + more_files;
        let bindings = bindings(job, task.ranks.len() as u32)?;
        let open_files = reserve_open_files(ranks, wanted)?;
        Ok(Self { job: job.clone(), task, open_files, bindings })
    }

    /// The number of the host in the job.
    pub(crate) fn host(&self) -> u32 {
        self.task.host
    }

    /// The numbers of the ranks.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.task.ranks.iter().map(|task| task.rank)
    }

    /// Starts all ranks. `address` is this host's, if the job has others. Returns what there is to say.
    ///
    /// # Errors
    /// The ranks that have not been started, because the first of them cannot be, and why.
    pub(crate) fn start(
        self,
        local: &mut LocalRanks,
        address: Option<IpAddr>,
    ) -> Result<Vec<String>, (Vec<u32>, Failure)> {
        let programs: Vec<Program> =
            self.job.programs.iter().map(|program| self.program(program, address)).collect();
        let local_size = self.task.ranks.len() as u32;
        let neighbours: Arc<[u32]> = self.numbers().collect();
        let processors_together = binding::processors_together(&self.bindings);
        let mut notes = Vec::new();
        for (local_rank, task) in (0..).zip(&self.task.ranks) {
            let rank = task.rank;
            let binding = self.bindings.get(local_rank as usize);
            if self.job.reports_bindings {
                notes.push(binding::report(rank, binding));
            }
            let processors = binding.map(|binding| processor_set(&binding.processors));
            let own = Own { processors, processors_together, reads_stdin: task.reads_input };
            let (size, job_id) = (self.job.size, self.job.job_id.clone());
            let local_ranks = Arc::clone(&neighbours);
            let place = Place { rank, size, local_rank, local_size, local_ranks, job_id };
            // A description is only taken when its ranks' programs are in it.
            let Some(program) = programs.get(task.program as usize) else { continue };
            if let Err(error) = local.start(program, &place, &own) {
                let rest = self.numbers().skip(local_rank as usize).collect();
                return Err((rest, start_failure(program, rank, &error)));
            }
        }
        Ok(notes)
    }

    fn program(&self, task: &ProgramTask, address: Option<IpAddr>) -> Program {
        let mut words = task.words.iter().map(|word| OsString::from_vec(word.clone()));
        let pairs = task.variables.chunks_exact(2);
        let pair =
            |pair: &[Vec<u8>]| (OsString::from_vec(pair[0].clone()), OsString::from_vec(pair[1].clone()));
        let mut variables: Vec<(OsString, OsString)> = pairs.map(pair).collect();
        let is_chosen = std::env::var_os(INTERFACE_VARIABLE).is_some()
            || variables.iter().any(|(name, _)| name == INTERFACE_VARIABLE);
        if let Some(address) = address.filter(|_| !is_chosen) {
            variables.push((ADDRESS_VARIABLE.into(), address.to_string().into()));
        }
        let directory = PathBuf::from(OsString::from_vec(task.directory.clone()));
        Program {
            path: words.next().unwrap_or_default(),
            arguments: words.collect(),
            directory: (!directory.as_os_str().is_empty()).then_some(directory),
            variables,
            open_files: self.open_files,
            stderr_is_terminal: self.job.is_watched,
        }
    }
}

/// Starts a keeper, of an agent or of `rmarun` itself, for the job of this name; without one, programs that ranks start may outlive a killed launcher, which `say` is told.
pub(crate) fn start_keeper(is_of_agent: bool, job_id: &str, say: impl FnOnce(String)) -> Option<Keeper> {
    match Keeper::start(is_of_agent, job_id) {
        Ok(keeper) => Some(keeper),
        Err(error) => {
            say(format!("no keeper ({error}): programs that ranks start may outlive a killed rmarun"));
            None
        }
    }
}

/// The binding of each rank of this host; empty unless they are bound.
fn bindings(job: &JobTask, ranks: u32) -> Result<Vec<Binding>, Failure> {
    let map_by = MapBy::from_str(&job.map_by, false).map_err(Failure::usage)?;
    let bind_to = BindTo::from_str(&job.bind_to, false).map_err(Failure::usage)?;
    if bind_to == BindTo::None {
        return Ok(Vec::new());
    }
    let allowed = rustix::thread::sched_getaffinity(None)
        .map_err(|error| Failure::system(format!("which processors may be used is not known: {error}")))?;
    let topology = Topology::read(Path::new(topology::ROOT), |processor| allowed.is_set(processor))
        .map_err(|error| Failure::system(format!("ranks cannot be bound: {error}; use --bind-to none")))?;
    binding::bindings(&topology, map_by, bind_to, ranks).map_err(Failure::usage)
}

fn processor_set(processors: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    processors.iter().for_each(|processor| set.set(*processor));
    set
}

/// Raises this process's limit of open files to what is wanted; returns the limit as it was.
fn reserve_open_files(ranks: u64, wanted: u64) -> Result<Rlimit, Failure> {
    let before = getrlimit(Resource::Nofile);
    // No value means no limit.
    if before.current.is_none_or(|current| current >= wanted) {
        return Ok(before);
    }
    let raised = Rlimit { current: Some(wanted), maximum: before.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|_| {
        Failure::system(format!(
            "{ranks} ranks on this host need {wanted} open files and the limit is {}; raise it with `ulimit -n {wanted}`",
            before.maximum.unwrap_or(u64::MAX)
        ))
    })?;
    Ok(before)
}
