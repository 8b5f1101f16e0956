//! How this process was started, as its environment shows it.

use crate::environment::{rmarun_identity, Environment, Identity};
use crate::pmi::{PmiTarget, Version};

/// How a process was started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Launch {
    /// By `rmarun`.
    Rmarun(Identity),
    /// By a launcher that speaks PMIx; and by what it can be reached where there is no PMIx library.
    Pmix(PmixIdentity, Option<Pmi>),
    /// By a launcher that speaks PMI.
    Pmi(Pmi),
    /// Alone: a job of one rank.
    Single,
}

/// What a PMIx launcher told a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PmixIdentity {
    /// The job's name, from PMIX_NAMESPACE.
    pub(crate) namespace: String,
    /// The rank, from PMIX_RANK.
    pub(crate) rank: u32,
    /// Version of its server, from PMIX_VERSION.
    pub(crate) server_version: Option<String>,
}

/// How to speak to a PMI server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pmi {
    /// Where it is.
    pub(crate) target: PmiTarget,
    /// The version to speak; without one, the highest that both speak.
    pub(crate) version: Option<Version>,
    /// Rank among those on this host and their number, where the environment says it.
    pub(crate) local_place: Option<(u32, u32)>,
}

/// An allocation of several ranks in which a program may have been started without a launcher.
struct Allocation {
    /// The variable that names it.
    job: &'static str,
    /// Variables that say how many ranks or hosts it has.
    sizes: &'static [&'static str],
    /// The variable that names a file with a line for each rank.
    list: Option<&'static str>,
    /// Whose it is.
    scheduler: &'static str,
    /// What to do.
    remedy: &'static str,
}

/// Every scheduler that is known and says how large an allocation is.
const ALLOCATIONS: [Allocation; 5] = [
    Allocation {
        job: "SLURM_JOB_ID",
        sizes: &["SLURM_NTASKS", "SLURM_JOB_NUM_NODES"],
        list: None,
        scheduler: "a Slurm",
        remedy: "use `srun --mpi=pmix program`",
    },
    Allocation {
        job: "LSB_JOBID",
        sizes: &["LSB_DJOB_NUMPROC"],
        list: Some("LSB_DJOB_HOSTFILE"),
        scheduler: "an LSF",
        remedy: "use `mpiexec program` of MPICH or Open MPI, or `jsrun` with PMIx",
    },
    Allocation {
        job: "PBS_JOBID",
        sizes: &["PBS_NP", "PBS_NUM_NODES"],
        list: Some("PBS_NODEFILE"),
        scheduler: "a PBS",
        remedy: "use `mpiexec program` of MPICH, Open MPI or PALS",
    },
    Allocation {
        job: "COBALT_JOBID",
        sizes: &["COBALT_JOBSIZE", "COBALT_PARTSIZE"],
        list: None,
        scheduler: "a Cobalt",
        remedy: "use `mpiexec program`",
    },
    // JOB_ID alone may be anything; with the file of a parallel environment it is Grid Engine's.
    Allocation {
        job: "PE_HOSTFILE",
        sizes: &["NSLOTS", "NHOSTS"],
        list: None,
        scheduler: "a Grid Engine",
        remedy: "use `mpiexec program` of MPICH or Open MPI",
    },
];

/// A launcher of others: how to know it, and what to do where it cannot be spoken to.
struct Sign {
    /// The variable that says which rank this is.
    rank: &'static str,
    /// The variables of which the first that is set says how many ranks there are.
    sizes: &'static [&'static str],
    /// Its name.
    launcher: &'static str,
    /// What to do.
    remedy: &'static str,
}

/// Every launcher that is known and does not say by itself how it is spoken to.
const SIGNS: [Sign; 15] = [
    Sign {
        rank: "OMPI_COMM_WORLD_RANK",
        sizes: &["OMPI_COMM_WORLD_SIZE"],
        launcher: "Open MPI's mpirun",
        remedy: "its PMIx variables are missing: pass PMIX_* on to the program",
    },
    Sign {
        rank: "PMI_RANK",
        sizes: &["PMI_SIZE"],
        launcher: "a PMI launcher",
        remedy: "neither PMI_FD nor PMI_PORT says where its server is: let nothing between the launcher and the \
                 program drop these variables or close descriptors (with Cray's libpmi, use `srun --mpi=pmi2` or pmix)",
    },
    Sign {
        rank: "PMIX_RANK",
        sizes: &[],
        launcher: "a PMIx launcher",
        remedy: "PMIX_NAMESPACE is missing: pass all PMIX_* variables on to the program",
    },
    Sign {
        rank: "PMIX_NAMESPACE",
        sizes: &[],
        launcher: "a PMIx launcher",
        remedy: "PMIX_RANK is missing: pass all PMIX_* variables on to the program",
    },
    Sign {
        rank: "PMI_PORT",
        sizes: &["PMI_SIZE"],
        launcher: "a PMI launcher",
        remedy: "PMI_ID is missing: pass all PMI_* variables on to the program",
    },
    Sign {
        rank: "PALS_RANKID",
        sizes: &["PALS_SIZE"],
        launcher: "HPE's PALS",
        remedy: "use `mpiexec --pmi=pmix`",
    },
    Sign { rank: "JSM_NAMESPACE_RANK", sizes: &["JSM_NAMESPACE_SIZE"], launcher: "IBM's jsrun", remedy: "use PMIx" },
    Sign {
        rank: "FLUX_TASK_RANK",
        sizes: &["FLUX_JOB_SIZE"],
        launcher: "Flux",
        remedy: "use `flux run -o pmi=simple` or `-o pmi=pmix`",
    },
    Sign {
        rank: "ALPS_APP_PE",
        sizes: &["ALPS_APP_SIZE"],
        launcher: "ALPS",
        remedy: "use a launcher that speaks PMIx or PMI",
    },
    Sign {
        rank: "MV2_COMM_WORLD_RANK",
        sizes: &["MV2_COMM_WORLD_SIZE"],
        launcher: "MVAPICH's mpirun_rsh",
        remedy: "use `mpiexec`",
    },
    Sign {
        rank: "LSF_PM_TASKID",
        sizes: &["LSB_DJOB_NUMPROC"],
        launcher: "LSF's blaunch",
        remedy: "use `mpiexec` of MPICH or Open MPI, which starts its helpers with blaunch",
    },
    Sign {
        rank: "MP_CHILD",
        sizes: &["MP_PROCS"],
        launcher: "IBM's poe",
        remedy: "use a launcher that speaks PMIx or PMI",
    },
    Sign {
        rank: "_CONDOR_PROCNO",
        sizes: &["_CONDOR_NPROCS"],
        launcher: "HTCondor's parallel universe",
        remedy: "start one process that runs `rmarun --hostfile` or `mpiexec`",
    },
    Sign { rank: "MPIRUN_RANK", sizes: &["MPIRUN_NPROCS"], launcher: "mpirun_rsh", remedy: "use `mpiexec`" },
    Sign {
        rank: "SLURM_PROCID",
        sizes: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        launcher: "Slurm",
        remedy: "use `srun --mpi=pmix` or `srun --mpi=pmi2`, one of which `srun --mpi=list` shows",
    },
];

/// How a process with this environment was started. `wanted` is the value of RMA_BOOTSTRAP.
///
/// # Errors
/// A message that names the variables that are missing or malformed, or the launcher that cannot be
/// spoken to, and what to do.
pub(crate) fn launch_of(environment: &Environment, wanted: &str) -> Result<Launch, String> {
    match environment.get("RMA_SINGLE") {
        Some("1") => return Ok(Launch::Single),
        None | Some("0") => {}
        Some(other) => return Err(format!("RMA_SINGLE={other} is neither 0 nor 1")),
    }
    let missing = |what: &str| {
        format!("RMA_BOOTSTRAP={wanted}, but {what}; leave it at auto, or start the job with a launcher that does")
    };
    match wanted {
        "single" => Ok(Launch::Single),
        "rmarun" => match rmarun_identity(environment)? {
            Some(identity) => Ok(Launch::Rmarun(identity)),
            None => Err(missing("the variables that rmarun sets are not there")),
        },
        "pmix" => match pmix_identity(environment)? {
            Some(identity) => Ok(Launch::Pmix(identity, None)),
            None => Err(missing("PMIX_NAMESPACE and PMIX_RANK are not set")),
        },
        "pmi1" | "pmi2" => {
            let version = if wanted == "pmi1" { Version::One } else { Version::Two };
            match pmi(environment, Some(version))? {
                Some(pmi) => Ok(Launch::Pmi(pmi)),
                None => {
                    Err(missing("neither PMI_FD with PMI_RANK and PMI_SIZE nor PMI_PORT with PMI_ID is set"))
                }
            }
        }
        _ => detected(environment),
    }
}

/// The first of rmarun, PMIx and PMI that the environment shows.
fn detected(environment: &Environment) -> Result<Launch, String> {
    if let Some(identity) = rmarun_identity(environment)? {
        return Ok(Launch::Rmarun(identity));
    }
    let pmi = pmi(environment, None)?;
    if let Some(identity) = pmix_identity(environment)? {
        return Ok(Launch::Pmix(identity, pmi));
    }
    match (pmi, unreachable(environment)) {
        (Some(pmi), _) => Ok(Launch::Pmi(pmi)),
        (None, Some(message)) => Err(message),
        (None, None) => Ok(Launch::Single),
    }
}

fn pmix_identity(environment: &Environment) -> Result<Option<PmixIdentity>, String> {
    let (Some(namespace), Some(rank)) = (environment.get("PMIX_NAMESPACE"), environment.get("PMIX_RANK"))
    else {
        return Ok(None);
    };
    let rank = number("PMIX_RANK", rank)?;
    let server_version = environment.get("PMIX_VERSION").map(str::to_owned);
    Ok(Some(PmixIdentity { namespace: namespace.to_owned(), rank, server_version }))
}

fn pmi(environment: &Environment, version: Option<Version>) -> Result<Option<Pmi>, String> {
    let numbers = |first: &str, second: &str| match (environment.get(first), environment.get(second)) {
        (Some(one), Some(two)) => Ok(Some((number(first, one)?, number(second, two)?))),
        _ => Ok::<_, String>(None),
    };
    let local_place = numbers("MPI_LOCALRANKID", "MPI_LOCALNRANKS")?.filter(|(rank, size)| rank < size);
    let target = if let Some(fd) = environment.get("PMI_FD") {
        let fd = fd.parse().ok().filter(|fd| *fd > 2);
        let fd =
            fd.ok_or_else(|| "PMI_FD is not a file descriptor above 2; the launcher sets it".to_owned())?;
        let Some((rank, size)) = numbers("PMI_RANK", "PMI_SIZE")? else {
            return Err(
                "PMI_FD is set without PMI_RANK and PMI_SIZE: the launcher sets all of them, or unset it"
                    .into(),
            );
        };
        if rank >= size {
            return Err(format!("PMI_RANK={rank} is not below PMI_SIZE={size}"));
        }
        let job = environment.get("PMI_JOBID").map(str::to_owned);
        PmiTarget::Inherited { fd, rank, size, job }
    } else if let (Some(address), Some(id)) = (environment.get("PMI_PORT"), environment.get("PMI_ID")) {
        PmiTarget::Port { address: address.to_owned(), id: number("PMI_ID", id)? }
    } else {
        return Ok(None);
    };
    Ok(Some(Pmi { target, version, local_place }))
}

fn number(name: &str, text: &str) -> Result<u32, String> {
    let number = text.trim().parse();
    number.map_err(|_| format!("{name}={text} is not a number from 0 to {}; the launcher sets it", u32::MAX))
}

/// Why a process that nobody can be asked about is probably not alone: the launcher of several ranks that
/// started it, or the allocation in which it was started without one.
fn unreachable(environment: &Environment) -> Option<String> {
    let mut one_rank_said = false;
    for Sign { rank: rank_name, sizes, launcher, remedy } in SIGNS {
        let Some(rank) = environment.get(rank_name) else { continue };
        let size = sizes.iter().find_map(|name| Some((*name, environment.get(name)?)));
        if size.is_some_and(|(_, size)| size.trim() == "1") {
            one_rank_said = true;
            continue;
        }
        // A launcher without a variable for the size: another one may have said that there is one rank.
        if size.is_none() && one_rank_said {
            continue;
        }
        let size = size.map(|(name, size)| format!(", {name}={size}")).unwrap_or_default();
        return Some(format!(
            "this process was started by {launcher} ({rank_name}={rank}{size}), which cannot be spoken to: {remedy}; \
             or start the job with `rmarun -n N program`, {OTHERWISE}"
        ));
    }
    if one_rank_said {
        return None;
    }
    ALLOCATIONS.iter().find_map(|allocation| outside_launcher(environment, allocation))
}

/// Why a process in this allocation is probably not alone, if it is in one of several ranks.
fn outside_launcher(environment: &Environment, allocation: &Allocation) -> Option<String> {
    let Allocation { job, sizes, list, scheduler, remedy } = allocation;
    let id = environment.get(job)?;
    let said = sizes.iter().find_map(|name| {
        let count = environment.get(name).filter(|count| count.trim() != "1")?;
        Some(format!("{name}={count}"))
    });
    let listed = || {
        let path = environment.get((*list)?)?;
        // A list that cannot be read says nothing.
        let ranks =
            std::fs::read_to_string(path).ok()?.lines().filter(|line| !line.trim().is_empty()).count();
        (ranks > 1).then(|| format!("{ranks} lines in {path}"))
    };
    let size = said.or_else(listed)?;
    Some(format!(
        "this process runs inside {scheduler} allocation ({job}={id}, {size}) and was started without a launcher: \
         {remedy} or `rmarun -n N program`, {OTHERWISE}"
    ))
}

/// The way out for those who mean it.
const OTHERWISE: &str = "or set RMA_BOOTSTRAP=single to make each process a job of one rank";

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(pairs: &[(&str, &str)], wanted: &str) -> Result<Launch, String> {
        launch_of(&Environment::from_pairs(pairs.iter().copied()), wanted)
    }

    const RMARUN: [(&str, &str); 6] = [
        ("RMA_RANK", "1"),
        ("RMA_SIZE", "4"),
        ("RMA_LOCAL_RANK", "1"),
        ("RMA_LOCAL_SIZE", "4"),
        ("RMA_JOB_ID", "j"),
        ("RMA_CONTROL_FD", "5"),
    ];
    const PMIX: [(&str, &str); 2] = [("PMIX_NAMESPACE", "n"), ("PMIX_RANK", "2")];
    const PMI: [(&str, &str); 3] = [("PMI_FD", "7"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")];

    #[test]
    fn the_first_that_shows_is_taken() {
        let all = [&RMARUN[..], &PMIX, &PMI].concat();
        assert!(matches!(launch(&all, "auto"), Ok(Launch::Rmarun(_))));
        assert!(matches!(launch(&all[6..], "auto"), Ok(Launch::Pmix(PmixIdentity { rank: 2, .. }, Some(_)))));
        let target = PmiTarget::Inherited { fd: 7, rank: 1, size: 2, job: None };
        let pmi = |version| Ok(Launch::Pmi(Pmi { target: target.clone(), version, local_place: None }));
        assert_eq!(launch(&all[8..], "auto"), pmi(None));
        assert_eq!(launch(&all, "pmi1"), pmi(Some(Version::One)));
        assert_eq!(launch(&all, "pmi2"), pmi(Some(Version::Two)));
        assert!(matches!(launch(&all, "pmix"), Ok(Launch::Pmix(_, None))));
        assert!(matches!(launch(&all, "rmarun"), Ok(Launch::Rmarun(_))));
        assert_eq!(launch(&all, "single"), Ok(Launch::Single));
        assert_eq!(launch(&[], "auto"), Ok(Launch::Single));
        let forced = [("RMA_SINGLE", "1"), ("PMIX_RANK", "0")];
        assert_eq!(launch(&forced, "auto"), Ok(Launch::Single));
    }

    #[test]
    fn a_server_behind_a_port() {
        let pairs =
            [("PMI_PORT", "h:1"), ("PMI_ID", "3"), ("MPI_LOCALRANKID", "1"), ("MPI_LOCALNRANKS", "2")];
        let target = PmiTarget::Port { address: "h:1".into(), id: 3 };
        let expected = Pmi { target, version: None, local_place: Some((1, 2)) };
        assert_eq!(launch(&pairs, "auto"), Ok(Launch::Pmi(expected)));
    }

    #[test]
    fn what_is_wanted_must_be_there() {
        for wanted in ["rmarun", "pmix", "pmi1", "pmi2"] {
            let message = launch(&[], wanted).unwrap_err();
            assert!(message.contains(&format!("RMA_BOOTSTRAP={wanted}")), "{message}");
        }
    }

    #[test]
    fn malformed_values_are_named() {
        for (pairs, part) in [
            (&[("PMIX_NAMESPACE", "n"), ("PMIX_RANK", "x")][..], "PMIX_RANK=x"),
            (&[("PMI_FD", "1"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")], "PMI_FD"),
            (&[("PMI_FD", "7"), ("PMI_SIZE", "1")], "PMI_RANK"),
            (&[("PMI_FD", "7"), ("PMI_RANK", "1"), ("PMI_SIZE", "1")], "PMI_RANK=1"),
            (&[("PMI_PORT", "h:1"), ("PMI_ID", "-1")], "PMI_ID=-1"),
            (&[("RMA_SINGLE", "yes")], "RMA_SINGLE=yes"),
            (&[("RMA_RANK", "1")], "but not RMA_SIZE"),
        ] {
            let message = launch(pairs, "auto").unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn a_launcher_that_cannot_be_spoken_to_is_an_error_unless_its_job_has_one_rank() {
        for (pairs, name, remedy) in [
            (&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")][..], "Slurm", "--mpi=pmix"),
            (&[("SLURM_PROCID", "0"), ("SLURM_JOB_ID", "8")], "Slurm", "--mpi=pmix"),
            (&[("SLURM_JOB_ID", "3"), ("SLURM_NTASKS", "8")], "SLURM_JOB_ID=3", "srun"),
            (&[("SLURM_JOB_ID", "3"), ("SLURM_JOB_NUM_NODES", "2")], "SLURM_JOB_NUM_NODES=2", "srun"),
            (&[("PMI_RANK", "1"), ("PMI_SIZE", "2")], "PMI", "PMI_FD"),
            (&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")], "Open MPI", "PMIX_"),
            (&[("PMIX_RANK", "0")], "PMIx", "PMIX_NAMESPACE"),
            (&[("PALS_RANKID", "0")], "PALS", "pmix"),
            (&[("JSM_NAMESPACE_RANK", "0"), ("JSM_NAMESPACE_SIZE", "2")], "jsrun", "PMIx"),
            (&[("FLUX_TASK_RANK", "0"), ("FLUX_JOB_SIZE", "2")], "Flux", "pmi=simple"),
            (&[("ALPS_APP_PE", "1")], "ALPS", "PMIx or PMI"),
            (&[("MV2_COMM_WORLD_RANK", "0"), ("MV2_COMM_WORLD_SIZE", "2")], "MVAPICH", "mpiexec"),
            (&[("MPIRUN_RANK", "0"), ("MPIRUN_NPROCS", "2")], "mpirun_rsh", "mpiexec"),
            (&[("PMIX_NAMESPACE", "n")], "PMIx", "PMIX_RANK is missing"),
            (&[("PMI_PORT", "h:1")], "PMI", "PMI_ID is missing"),
            (&[("LSF_PM_TASKID", "1"), ("LSB_JOBID", "3")], "blaunch", "mpiexec"),
            (&[("MP_CHILD", "1"), ("MP_PROCS", "2")], "poe", "PMIx or PMI"),
            (&[("_CONDOR_PROCNO", "0"), ("_CONDOR_NPROCS", "4")], "HTCondor", "rmarun --hostfile"),
            (&[("LSB_JOBID", "3"), ("LSB_DJOB_NUMPROC", "8")], "LSB_DJOB_NUMPROC=8", "mpiexec"),
            (&[("PBS_JOBID", "3.h"), ("PBS_NP", "8")], "PBS_NP=8", "mpiexec"),
            (
                &[("PBS_JOBID", "3.h"), ("PBS_NODEFILE", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))],
                "lines in",
                "mpiexec",
            ),
            (&[("COBALT_JOBID", "3"), ("COBALT_JOBSIZE", "2")], "Cobalt", "mpiexec"),
            (&[("PE_HOSTFILE", "/x"), ("NSLOTS", "4")], "Grid Engine", "mpiexec"),
        ] {
            let message = launch(pairs, "auto").unwrap_err();
            let remedies = [remedy, "rmarun", "RMA_BOOTSTRAP=single"];
            assert!(
                message.contains(name) && remedies.iter().all(|part| message.contains(part)),
                "{message}"
            );
        }
        for alone in [
            &[("PMI_RANK", "0"), ("PMI_SIZE", "1")][..],
            &[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1"), ("PMIX_RANK", "0")],
            &[
                ("SLURM_PROCID", "0"),
                ("SLURM_NTASKS", "1"),
                ("SLURM_JOB_ID", "3"),
                ("SLURM_JOB_NUM_NODES", "1"),
            ],
            &[("SLURM_JOB_ID", "3")],
            &[("PBS_JOBID", "3"), ("PBS_NP", "1"), ("PBS_NODEFILE", "/nonexistent")],
            &[("LSB_JOBID", "3"), ("LSB_DJOB_NUMPROC", "1")],
            &[("NSLOTS", "4"), ("JOB_ID", "7")],
            &[("_CONDOR_PROCNO", "0"), ("_CONDOR_NPROCS", "1")],
            &[("SLURM_NTASKS", "8")],
        ] {
            assert_eq!(launch(alone, "auto"), Ok(Launch::Single), "{alone:?}");
        }
    }
}
