//! A process that nobody launched: a job of one rank that exchanges keys with itself.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::ids::Rank;

use crate::client::{check_key, check_rank, found_address};
use crate::member::Member;
use crate::wire::VALUE_BYTES_MAX;
use crate::{Fetch, ADDRESS_KEY};

/// The bootstrap of a job of one rank.
#[derive(Debug)]
pub struct SingleProcess {
    values: BTreeMap<String, Vec<u8>>,
    job_id: String,
}

impl SingleProcess {
    /// The job of this process alone.
    pub fn new() -> Self {
        Self { values: BTreeMap::new(), job_id: format!("single-{:x}", std::process::id()) }
    }
}

impl Member for SingleProcess {
    fn local_rank(&self) -> u32 {
        0
    }

    fn local_size(&self) -> u32 {
        1
    }

    fn local_ranks(&self) -> &[u32] {
        &[0]
    }

    fn job_id(&self) -> &str {
        &self.job_id
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError> {
        check_key("put", key)?;
        if value.len() > VALUE_BYTES_MAX {
            let message =
                format!("put of key '{key}': {} bytes are more than {VALUE_BYTES_MAX}", value.len());
            return Err(BootstrapError { message });
        }
        if self.values.contains_key(key) {
            return Err(BootstrapError { message: format!("put of key '{key}': it was put before") });
        }
        self.values.insert(key.to_owned(), value.to_vec());
        Ok(())
    }

    fn get(&mut self, rank: Rank, key: &str) -> Result<Fetch, BootstrapError> {
        check_rank("get", rank, 1)?;
        // Nobody else could put it while this process waits for itself.
        let value = self.values.get(key).ok_or_else(|| BootstrapError {
            message: format!("get of key '{key}': this job of one rank has not put it"),
        })?;
        Ok(Fetch::Found(value.clone()))
    }

    fn wait_readable(&mut self, _timeout: Duration) -> Result<bool, BootstrapError> {
        Ok(true)
    }

    fn receive(&mut self) {}

    fn wait_fd(&self) -> Option<i32> {
        None
    }

    fn finalize(&mut self) -> Result<(), BootstrapError> {
        Ok(())
    }

    fn poll_all_finalized(&mut self) -> Result<bool, BootstrapError> {
        Ok(true)
    }

    fn abort(&mut self, _code: i32, message: &str) -> Result<(), BootstrapError> {
        // Nobody may be there to read it, which is no reason to panic.
        let _ = writeln!(io::stderr(), "rma: {message}");
        Ok(())
    }
}

impl Default for SingleProcess {
    fn default() -> Self {
        Self::new()
    }
}

impl Bootstrap for SingleProcess {
    fn rank(&self) -> Rank {
        Rank(0)
    }

    fn size(&self) -> u32 {
        1
    }

    fn publish(&mut self, address: &AddressBytes) -> Result<(), BootstrapError> {
        self.put(ADDRESS_KEY, address.as_slice())
    }

    fn lookup(&mut self, rank: Rank) -> Result<Lookup, BootstrapError> {
        found_address(rank, self.get(rank, ADDRESS_KEY)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_it_published_and_nothing_else() {
        let mut job = SingleProcess::new();
        assert!(job.lookup(Rank(0)).is_err());
        job.publish(&AddressBytes::new(b"here").unwrap()).unwrap();
        let Ok(Lookup::Found(address)) = job.lookup(Rank(0)) else { panic!("published") };
        assert_eq!(address.as_slice(), b"here");
        assert!(job.publish(&address).unwrap_err().message.contains("before"));
        assert!(job.lookup(Rank(1)).unwrap_err().message.contains("rank 1"));
        assert!(job.put("k", &[0; VALUE_BYTES_MAX + 1]).is_err());
        assert!(job.put(&"k".repeat(65), b"").is_err());
    }
}
