//! The environment of this process, read in one place, and what `rmarun` says in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::neighbours;

/// A snapshot of environment variables.
#[derive(Clone, Default, Debug)]
pub struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// The variables of this process now. Names that are not UTF-8 are left out, values that are not
    /// are made so.
    pub fn of_this_process() -> Self {
        let variables = std::env::vars_os();
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        };
        Self { variables: variables.filter_map(text).collect() }
    }

    /// The environment that consists of these variables.
    pub fn from_pairs<N: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        Self { variables: pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }

    /// This environment with these variables besides or instead of its own.
    pub fn with(&self, pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut variables = self.variables.clone();
        variables.extend(pairs);
        Self { variables }
    }

    /// The value of a variable; an empty one counts as not set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// All variables whose name begins with `prefix`, by name.
    pub fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let named = self.variables.iter().filter(move |(name, _)| name.starts_with(prefix));
        named.map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Where a process stands in its job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Which rank it is.
    pub rank: u32,
    /// Number of ranks in the job.
    pub size: u32,
    /// Rank among the ranks on the same host.
    pub local_rank: u32,
    /// Number of ranks on the same host.
    pub local_size: u32,
    /// The ranks on the same host, in order; empty where nobody has said which they are.
    pub local_ranks: Arc<[u32]>,
    /// A name that no other job on this host has at the same time.
    pub job_id: String,
}

/// What `rmarun` told a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The inherited file descriptor of the control connection.
    pub control_fd: i32,
    /// Where the process stands.
    pub place: Place,
}

/// What `rmarun` sets, all of them or none.
pub const LAUNCH_VARIABLES: [&str; 6] =
    ["RMA_RANK", "RMA_SIZE", "RMA_LOCAL_RANK", "RMA_LOCAL_SIZE", "RMA_JOB_ID", "RMA_CONTROL_FD"];

/// What it sets besides; an older `rmarun` does not.
const LOCAL_RANKS_VARIABLE: &str = "RMA_LOCAL_RANKS";

/// What `rmarun` told this process, or `None` when `rmarun` did not start it.
///
/// # Errors
/// A message that names the variables that are missing or malformed, and what to do.
pub(crate) fn rmarun_identity(environment: &Environment) -> Result<Option<Identity>, String> {
    let is_set = |name: &&str| environment.get(name).is_some();
    let (present, missing): (Vec<&str>, Vec<&str>) = LAUNCH_VARIABLES.iter().partition(|name| is_set(name));
    if present.is_empty() {
        return Ok(None);
    }
    if !missing.is_empty() {
        return Err(format!(
            "the environment has {} but not {}: `rmarun` sets all of them; start the job with `rmarun`, or unset \
             them (or set RMA_SINGLE=1) for a job of one rank",
            present.join(", "),
            missing.join(", ")
        ));
    }
    identity(environment).map(Some)
}

fn identity(environment: &Environment) -> Result<Identity, String> {
    let number = |name: &str| -> Result<u32, String> {
        let text = environment.get(name).unwrap_or_default();
        text.parse().map_err(|_| {
            format!(
                "{name}={text} is not a number from 0 to {}; `rmarun` sets it, do not set it by hand",
                u32::MAX
            )
        })
    };
    let mut place = Place {
        rank: number("RMA_RANK")?,
        size: number("RMA_SIZE")?,
        local_rank: number("RMA_LOCAL_RANK")?,
        local_size: number("RMA_LOCAL_SIZE")?,
        local_ranks: Arc::default(),
        job_id: environment.get("RMA_JOB_ID").unwrap_or_default().to_owned(),
    };
    let fd_text = environment.get("RMA_CONTROL_FD").unwrap_or_default();
    // 0 to 2 are the standard streams and never the control connection.
    let control_fd = fd_text.parse().ok().filter(|fd| *fd > 2).ok_or_else(|| {
        format!("RMA_CONTROL_FD={fd_text} is not a file descriptor above 2; `rmarun` sets it, do not set it by hand")
    })?;
    if place.rank >= place.size {
        return Err(format!("RMA_RANK={} is not below RMA_SIZE={}", place.rank, place.size));
    }
    if place.local_rank >= place.local_size {
        let Place { local_rank, local_size, .. } = place;
        return Err(format!("RMA_LOCAL_RANK={local_rank} is not below RMA_LOCAL_SIZE={local_size}"));
    }
    if place.local_size > place.size {
        return Err(format!("RMA_LOCAL_SIZE={} is above RMA_SIZE={}", place.local_size, place.size));
    }
    if let Some(text) = environment.get(LOCAL_RANKS_VARIABLE) {
        place.local_ranks = local_ranks(text, &place)?;
    }
    Ok(Identity { control_fd, place })
}

fn local_ranks(text: &str, place: &Place) -> Result<Arc<[u32]>, String> {
    let Place { rank, size, local_rank, local_size, .. } = *place;
    let is_here = |ranks: &[u32]| ranks.get(local_rank as usize) == Some(&rank);
    let is_of_job = |ranks: &[u32]| ranks.last().is_some_and(|last| *last < size);
    let said = neighbours::parse(text, local_size).filter(|ranks| is_here(ranks) && is_of_job(ranks));
    said.ok_or_else(|| {
        format!(
            "{LOCAL_RANKS_VARIABLE}={text} is no list of {local_size} of {size} ranks in order with rank {rank} at place \
             {local_rank}; `rmarun` sets it, do not set it by hand"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: [(&str, &str); 7] = [
        ("RMA_RANK", "1"),
        ("RMA_SIZE", "4"),
        ("RMA_LOCAL_RANK", "1"),
        ("RMA_LOCAL_SIZE", "4"),
        ("RMA_LOCAL_RANKS", "0-3"),
        ("RMA_JOB_ID", "j"),
        ("RMA_CONTROL_FD", "5"),
    ];

    fn full_but(name: &str, value: &str) -> Result<Option<Identity>, String> {
        let pairs = FULL.map(|(n, v)| (n, if n == name { value } else { v }));
        rmarun_identity(&Environment::from_pairs(pairs))
    }

    #[test]
    fn all_variables_make_a_rank_and_none_does_not() {
        let Ok(Some(identity)) = full_but("", "") else { panic!("a full environment is a rank") };
        assert_eq!((identity.control_fd, identity.place.rank, identity.place.size), (5, 1, 4));
        assert_eq!(*identity.place.local_ranks, [0, 1, 2, 3]);
        assert_eq!(rmarun_identity(&Environment::default()), Ok(None));
    }

    #[test]
    fn who_is_on_the_host_need_not_be_said() {
        let Ok(Some(identity)) = full_but("RMA_LOCAL_RANKS", "") else { panic!("still a rank") };
        assert!(identity.place.local_ranks.is_empty());
        // Where it is said, this rank is where its number on the host says.
        let in_a_job_of_8 = |ranks: &str| {
            let full = Environment::from_pairs(FULL);
            let pairs = [("RMA_SIZE", "8"), ("RMA_LOCAL_RANKS", ranks)];
            rmarun_identity(&full.with(pairs.map(|(name, value)| (name.to_owned(), value.to_owned()))))
        };
        assert!(in_a_job_of_8("0-1,5,7").is_ok());
        let message = in_a_job_of_8("1-3,7").unwrap_err();
        assert!(message.contains("RMA_LOCAL_RANKS=1-3,7") && message.contains("place 1"), "{message}");
    }

    #[test]
    fn half_an_environment_names_both_halves() {
        for name in LAUNCH_VARIABLES {
            let message = full_but(name, "").unwrap_err();
            assert!(message.contains(&format!("but not {name}")), "{message}");
            assert!(message.contains("RMA_SINGLE=1"), "{message}");
        }
    }

    #[test]
    fn malformed_values_are_named() {
        for (name, value) in [
            ("RMA_RANK", "x"),
            ("RMA_RANK", "-1"),
            ("RMA_RANK", "4"),
            ("RMA_SIZE", "0"),
            ("RMA_LOCAL_RANK", "4"),
            ("RMA_LOCAL_SIZE", "5"),
            ("RMA_LOCAL_SIZE", "99999999999"),
            ("RMA_LOCAL_RANKS", "0-2"),
            ("RMA_LOCAL_RANKS", "1-4"),
            ("RMA_LOCAL_RANKS", "0-2,4"),
            ("RMA_LOCAL_RANKS", "0-3,"),
            ("RMA_CONTROL_FD", "2"),
            ("RMA_CONTROL_FD", "three"),
        ] {
            let message = full_but(name, value).unwrap_err();
            assert!(
                message.contains(&format!("{name}={value}")) || message.contains("RMA_SIZE=0"),
                "{message}"
            );
        }
    }
}
