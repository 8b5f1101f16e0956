//! The hosts of a Slurm allocation, from what Slurm says in the environment. Pure.

use rma_bootstrap::environment::Environment;

use crate::hosts::{parse_list, Host};

/// The hosts of the allocation that this process is in, with their slots; `None` outside of one.
///
/// A host has as many slots as the allocation has tasks there; where the user asks for `ranks`, also as many as it has
/// processors. For more ranks than these the slots do not count.
///
/// # Errors
/// A message that names the variable that is malformed.
pub(crate) fn hosts(environment: &Environment, ranks: Option<u32>) -> Result<Option<Vec<Host>>, String> {
    let Some(list) = environment.get("SLURM_JOB_NODELIST").or_else(|| environment.get("SLURM_NODELIST"))
    else {
        return Ok(None);
    };
    let mut hosts = parse_list(list).map_err(|error| format!("SLURM_JOB_NODELIST={list}: {error}"))?;
    let numbers = |name: &str| match environment.get(name) {
        Some(text) => counts(text, hosts.len()).map(Some).ok_or_else(|| {
            format!("{name}={text} is no list of numbers such as 2(x3),1 for {} hosts", hosts.len())
        }),
        None => Ok(None),
    };
    let tasks = numbers("SLURM_TASKS_PER_NODE")?;
    let processors = numbers("SLURM_JOB_CPUS_PER_NODE")?.filter(|_| ranks.is_some());
    for (index, host) in hosts.iter_mut().enumerate() {
        let of = |numbers: &Option<Vec<u32>>| numbers.as_ref().map(|numbers| numbers[index]);
        host.slots = of(&tasks).max(of(&processors));
    }
    let slots = hosts.iter().map(|host| host.slots).sum::<Option<u32>>();
    // Who asks for more ranks than that gets them, as on a host of one's own.
    if slots.zip(ranks).is_some_and(|(slots, ranks)| slots < ranks) {
        hosts.iter_mut().for_each(|host| host.slots = None);
    }
    Ok(Some(hosts))
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
    fn what_is_none_is_named() {
        let wrong =
            |name, value| slots(&[("SLURM_JOB_NODELIST", "n[1-2]"), (name, value)], None).unwrap_err();
        assert!(wrong("SLURM_JOB_NODELIST", "n[1-").contains("SLURM_JOB_NODELIST=n[1-"));
        for value in ["2", "2(x3)", "0(x2)", "2(x2", "2,x", "1(x99999999999)", "1(x2),1"] {
            assert!(wrong("SLURM_TASKS_PER_NODE", value).contains("for 2 hosts"), "{value}");
        }
    }
}
