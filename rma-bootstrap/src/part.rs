//! Some of a job's ranks, as a job of their own: its ranks have told each other their addresses by the job that they are
//! part of, and the launcher, which knows that one only, hears of it through the whole.

use std::fmt;
use std::time::Duration;

use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::ids::Rank;

use crate::client::check_rank;
use crate::member::Member;
use crate::Fetch;

/// The job that a part is of, seen from the part.
pub trait Whole: Send {
    /// A rank of the whole that has died, each once, as far as it is known.
    fn poll_lost(&mut self) -> Option<Rank>;

    /// Asks for the end of the whole.
    ///
    /// # Errors
    /// As for [`crate::JobBootstrap::abort`].
    fn abort(&mut self, code: i32, message: &str) -> Result<(), BootstrapError>;
}

/// A rank of a part, as all of them are named: by where it is in the whole, and where it is reached.
#[derive(Clone, Debug)]
pub struct PartMember {
    /// Its rank in the whole.
    pub rank: Rank,
    /// Its endpoint's address.
    pub address: Box<[u8]>,
}

/// The membership of one rank in a part.
pub struct Part {
    rank: u32,
    members: Vec<PartMember>,
    local: (u32, u32),
    job_id: String,
    whole: Box<dyn Whole>,
}

impl Part {
    /// The membership of the rank that is number `rank` of these. `local` is where it is among those of its host in the whole,
    /// who share its processors, and how many they are.
    pub fn new(
        rank: u32,
        members: Vec<PartMember>,
        local: (u32, u32),
        job_id: String,
        whole: Box<dyn Whole>,
    ) -> Self {
        Self { rank, members, local, job_id, whole }
    }

    fn nothing_of_others<T>(&self, call: &str) -> Result<T, BootstrapError> {
        Err(BootstrapError { message: format!("{call}: only the whole job carries values") })
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part(rank {} of {}, {})", self.rank, self.members.len(), self.job_id)
    }
}

impl Member for Part {
    fn local_rank(&self) -> u32 {
        self.local.0
    }

    fn local_size(&self) -> u32 {
        self.local.1
    }

    fn local_ranks(&self) -> &[u32] {
        &[]
    }

    fn job_id(&self) -> &str {
        &self.job_id
    }

    fn put(&mut self, _key: &str, _value: &[u8]) -> Result<(), BootstrapError> {
        self.nothing_of_others("put")
    }

    fn get(&mut self, _rank: Rank, _key: &str) -> Result<Fetch, BootstrapError> {
        self.nothing_of_others("get")
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

    /// Nobody counts them: its ranks take leave of each other themselves.
    fn poll_all_finalized(&mut self) -> Result<bool, BootstrapError> {
        Ok(true)
    }

    fn abort(&mut self, code: i32, message: &str) -> Result<(), BootstrapError> {
        self.whole.abort(code, message)
    }
}

impl Bootstrap for Part {
    fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// The others have been told.
    fn publish(&mut self, _address: &AddressBytes) -> Result<(), BootstrapError> {
        Ok(())
    }

    fn lookup(&mut self, rank: Rank) -> Result<Lookup, BootstrapError> {
        check_rank("lookup", rank, self.size())?;
        let address = &self.members[rank.0 as usize].address;
        let address = AddressBytes::new(address).ok_or_else(|| BootstrapError {
            message: format!(
                "the address of rank {rank} has {} bytes, more than there can be",
                address.len()
            ),
        })?;
        Ok(Lookup::Found(address))
    }

    fn poll_lost(&mut self) -> Option<Rank> {
        loop {
            let lost = self.whole.poll_lost()?;
            if let Some(rank) = self.members.iter().position(|member| member.rank == lost) {
                return Some(Rank(rank as u32));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{channel, Receiver, Sender};

    use super::*;

    struct Told(Receiver<Rank>, Sender<String>);

    impl Whole for Told {
        fn poll_lost(&mut self) -> Option<Rank> {
            self.0.try_recv().ok()
        }

        fn abort(&mut self, _code: i32, message: &str) -> Result<(), BootstrapError> {
            self.1.send(message.to_owned()).map_err(|error| BootstrapError { message: error.to_string() })
        }
    }

    #[test]
    fn ranks_are_its_own_and_deaths_those_of_its_members() {
        let (lost, hears) = channel();
        let (tells, aborted) = channel();
        let members = [7, 2, 9].map(|rank| PartMember { rank: Rank(rank), address: Box::from([rank as u8]) });
        let mut part =
            Part::new(1, members.to_vec(), (0, 4), "part".to_owned(), Box::new(Told(hears, tells)));
        assert_eq!((part.rank(), part.size(), part.local_size()), (Rank(1), 3, 4));
        let Ok(Lookup::Found(address)) = part.lookup(Rank(2)) else { panic!("all addresses are known") };
        assert_eq!(address.as_slice(), [9]);
        assert!(part.lookup(Rank(3)).is_err());
        for rank in [4, 9, 7] {
            lost.send(Rank(rank)).unwrap();
        }
        assert_eq!(
            [part.poll_lost(), part.poll_lost(), part.poll_lost()],
            [Some(Rank(2)), Some(Rank(0)), None]
        );
        part.abort(1, "why").unwrap();
        assert_eq!(aborted.try_recv().as_deref(), Ok("why"));
    }

    #[test]
    fn an_address_that_is_too_long_is_an_error() {
        let (_, hears) = channel();
        let (tells, _) = channel();
        let member = PartMember { rank: Rank(0), address: vec![0; 1 << 12].into() };
        let mut part = Part::new(0, vec![member], (0, 1), String::new(), Box::new(Told(hears, tells)));
        assert!(part.lookup(Rank(0)).unwrap_err().message.contains("4096 bytes"));
    }
}
