//! The hosts of a Slurm allocation, from what Slurm says in the environment. Pure.

use std::collections::{BTreeMap, BTreeSet};

use rma_bootstrap::environment::Environment;

use crate::hosts::{parse_list, Host};

/// Numbers of steps that are a job's own shell: the interactive step and the batch script, whose variables are the job's.
const SHELLS: [&str; 2] = ["4294967290", "4294967291"];

/// The hosts of the allocation, or of the step of it, that this process is in, with their slots; `None` outside of one.
///
/// A host has as many slots as the allocation or step has tasks there; where the user asks for `ranks`, also as many as
/// it has processors. For more ranks than these the slots do not count.
///
/// # Errors
/// A message that names the variable that is malformed.
pub(crate) fn hosts(environment: &Environment, ranks: Option<u32>) -> Result<Option<Vec<Host>>, String> {
    let Some(of_job) = nodes_of_job(environment)? else { return Ok(None) };
    let processors = numbers(environment, "SLURM_JOB_CPUS_PER_NODE", of_job.len());
    let (mut hosts, tasks, processors) = match nodes_of_step(environment, &of_job)? {
        // It is the job's, so in a step a list that does not fit tells nothing.
        Some(hosts) => (hosts, "SLURM_STEP_TASKS_PER_NODE", processors.unwrap_or_default()),
        None => (of_job.clone(), "SLURM_TASKS_PER_NODE", processors?),
    };
    let tasks = numbers(environment, tasks, hosts.len())?;
    let processors = processors.filter(|_| ranks.is_some()).unwrap_or_default();
    let processors: BTreeMap<&str, u32> =
        of_job.iter().map(|host| host.name.as_str()).zip(processors).collect();
    for (index, host) in hosts.iter_mut().enumerate() {
        let tasks = tasks.as_ref().map(|tasks| tasks[index]);
        host.slots = tasks.max(processors.get(host.name.as_str()).copied());
    }
    let slots = hosts.iter().map(|host| host.slots).sum::<Option<u32>>();
    // Who asks for more ranks than that gets them, as on a host of one's own.
    if slots.zip(ranks).is_some_and(|(slots, ranks)| slots < ranks) {
        hosts.iter_mut().for_each(|host| host.slots = None);
    }
    Ok(Some(hosts))
}

/// Whether this process is in an allocation that has all of `hosts` but those that `is_here` knows.
pub(crate) fn has(environment: &Environment, hosts: &[Host], is_here: impl Fn(&str) -> bool) -> bool {
    // Who names hosts does not need the list, so a malformed one is none.
    let Ok(Some(of_job)) = nodes_of_job(environment) else { return false };
    let names = names(&of_job);
    hosts.iter().all(|host| names.contains(host.name.as_str()) || is_here(&host.name))
}

fn nodes_of_job(environment: &Environment) -> Result<Option<Vec<Host>>, String> {
    let Some(list) = environment.get("SLURM_JOB_NODELIST").or_else(|| environment.get("SLURM_NODELIST"))
    else {
        return Ok(None);
    };
    parse_list(list).map(Some).map_err(|error| format!("SLURM_JOB_NODELIST={list}: {error}"))
}

/// The nodes of the step that this process is in, if it is in one of this job.
fn nodes_of_step(environment: &Environment, of_job: &[Host]) -> Result<Option<Vec<Host>>, String> {
    let is_step = environment.get("SLURM_STEP_ID").is_some_and(|id| !SHELLS.contains(&id));
    let Some(list) = environment.get("SLURM_STEP_NODELIST").filter(|_| is_step) else { return Ok(None) };
    let hosts = parse_list(list).map_err(|error| format!("SLURM_STEP_NODELIST={list}: {error}"))?;
    // An allocation that was asked for within a step of another one still has that step's variables.
    let names = names(of_job);
    let is_of_job = hosts.iter().all(|host| names.contains(host.name.as_str()));
    Ok(is_of_job.then_some(hosts))
}

fn names(hosts: &[Host]) -> BTreeSet<&str> {
    hosts.iter().map(|host| host.name.as_str()).collect()
}

/// The numbers that a variable has for each of so many hosts, if there is the variable.
fn numbers(environment: &Environment, name: &str, hosts: usize) -> Result<Option<Vec<u32>>, String> {
    let Some(text) = environment.get(name) else { return Ok(None) };
    let wrong = || format!("{name}={text} is no list of numbers such as 2(x3),1 for {hosts} hosts");
    counts(text, hosts).map(Some).ok_or_else(wrong)
}

/// The numbers that `2(x3),1` means, if it means as many as there are hosts.
fn counts(text: &str, hosts: usize) -> Option<Vec<u32>> {
    let mut counts = Vec::new();
    for part in text.split(',') {
        let (number, times) = match part.split_once("(x") {
            Some((number, times)) => (number, times.strip_suffix(')')?.parse::<usize>().ok()?),
            None => (part, 1),
        };
        let number = number.trim().parse::<u32>().ok().filter(|number| *number > 0)?;
        if times > hosts - counts.len() {
            return None;
        }
        counts.extend(std::iter::repeat_n(number, times));
    }
    (counts.len() == hosts).then_some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(pairs: &[(&str, &str)], ranks: Option<u32>) -> Result<String, String> {
        let hosts = hosts(&Environment::from_pairs(pairs.iter().copied()), ranks)?.unwrap_or_default();
        let text = |host: &Host| format!("{}:{}", host.name, host.slots.unwrap_or(0));
        Ok(hosts.iter().map(text).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn an_allocation() {
        let nodes = ("SLURM_JOB_NODELIST", "n[1-3],x");
        let tasks = ("SLURM_TASKS_PER_NODE", "2(x3),1");
        let processors = ("SLURM_JOB_CPUS_PER_NODE", "4,1(x3)");
        assert_eq!(slots(&[], None).unwrap(), "");
        assert_eq!(slots(&[nodes], None).unwrap(), "n1:0 n2:0 n3:0 x:0");
        assert_eq!(slots(&[nodes, tasks, processors], None).unwrap(), "n1:2 n2:2 n3:2 x:1");
        assert_eq!(slots(&[nodes, tasks, processors], Some(8)).unwrap(), "n1:4 n2:2 n3:2 x:1");
        assert_eq!(slots(&[nodes, tasks, processors], Some(10)).unwrap(), "n1:0 n2:0 n3:0 x:0");
    }

    #[test]
    fn a_step_of_one_task_is_not_the_job() {
        let of_job = [
            ("SLURM_JOB_NODELIST", "n[1-3]"),
            ("SLURM_TASKS_PER_NODE", "1"),
            ("SLURM_JOB_CPUS_PER_NODE", "2,4,8"),
            ("SLURM_STEP_NODELIST", "n2"),
            ("SLURM_STEP_TASKS_PER_NODE", "1"),
        ];
        let with = |more: &[(&'static str, &'static str)], ranks| {
            slots(&of_job.into_iter().chain(more.iter().copied()).collect::<Vec<_>>(), ranks)
        };
        let in_step = ("SLURM_STEP_ID", "0");
        assert_eq!(with(&[in_step], None).unwrap(), "n2:1");
        assert_eq!(with(&[in_step], Some(4)).unwrap(), "n2:4");
        assert_eq!(with(&[in_step], Some(5)).unwrap(), "n2:0");
        assert_eq!(with(&[in_step, ("SLURM_JOB_CPUS_PER_NODE", "2")], Some(4)).unwrap(), "n2:0");
        // A job's shell has the job's variables, also where it is a step.
        for id in SHELLS {
            let shell = [("SLURM_STEP_ID", id), ("SLURM_TASKS_PER_NODE", "1(x2),3")];
            assert_eq!(with(&shell, None).unwrap(), "n1:1 n2:1 n3:3");
        }
        let of_another = [in_step, ("SLURM_STEP_NODELIST", "m1"), ("SLURM_TASKS_PER_NODE", "2(x3)")];
        assert_eq!(with(&of_another, None).unwrap(), "n1:2 n2:2 n3:2");
        let wrong = with(&[in_step, ("SLURM_STEP_NODELIST", "n[")], None).unwrap_err();
        assert!(wrong.contains("SLURM_STEP_NODELIST=n["), "{wrong}");
    }

    #[test]
    fn named_hosts_are_of_the_allocation_or_not() {
        let is_in = |allocation: &str, list: &str| {
            let environment = Environment::from_pairs([("SLURM_JOB_NODELIST", allocation)]);
            has(&environment, &parse_list(list).unwrap(), |name| name == "localhost")
        };
        assert!(is_in("n[1-3]", "n3,n1:4"));
        assert!(is_in("n[1-3]", "localhost,n2"));
        assert!(!is_in("n[1-3]", "n1,n4"));
        assert!(!is_in("n[1-", "n1"));
        let outside = Environment::from_pairs([("PATH", "/bin")]);
        assert!(!has(&outside, &parse_list("localhost").unwrap(), |_| true));
    }

    #[test]
    fn what_is_none_is_named() {
        let wrong =
            |name, value| slots(&[("SLURM_JOB_NODELIST", "n[1-2]"), (name, value)], None).unwrap_err();
        assert!(wrong("SLURM_JOB_NODELIST", "n[1-").contains("SLURM_JOB_NODELIST=n[1-"));
        for value in ["2", "2(x3)", "0(x2)", "2(x2", "2,x", "1(x99999999999)", "1(x2),1"] {
            assert!(wrong("SLURM_TASKS_PER_NODE", value).contains("for 2 hosts"), "{value}");
        }
    }
}
