//! Jobs of some of a job's ranks, as MPI splits communicators.
//!
//! A part is a job like any other: it has an engine and an endpoint of its own, so nothing that its ranks do concerns the
//! others. Only the launcher does not know of it. What its ranks need of each other in the beginning they tell each other by
//! a window of the whole job that is freed again, each in log2 P puts to ranks that it has to do with in barriers as well.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use rma_bootstrap::{JobBootstrap, Part, PartMember, Whole};
use rma_core::bootstrap::{BootstrapError, ADDRESS_BYTES_MAX};
use rma_core::error::{Call, RmaError};
use rma_core::ids::Rank;
use rma_core::provider::Endpoint as _;

use super::{Job, Place, Shared};
use crate::cancellation::Uncancelled;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::events;
use crate::fabric::{self, Opened};
use crate::options::Progress;
use crate::platform::Engine;
use crate::raw::unserved::Said;
use crate::runtime::Core;

/// What a part knows of the job that it was split off.
#[derive(Debug)]
pub(super) struct Origin {
    /// It stays as long as the part, the launcher knowing the process by it, unless the part outlives it.
    whole: Mutex<Option<Job>>,
    /// What the part's bootstrap asks; nobody is asked any more where the part outlives the whole.
    link: Link,
    members: Arc<[Rank]>,
}

/// The whole job's engine, for as long as the part may ask it. It is held only under the lock.
type Link = Arc<Mutex<Weak<Core>>>;

/// What a rank wants of a split: color and key.
type Wish = Option<(u32, i32)>;

/// A wish as bytes, the first of which says that there is one.
const WISH_BYTES: usize = 9;

/// An address as bytes: two for its length, and room for the longest.
const RECORD_BYTES: usize = 2 + ADDRESS_BYTES_MAX;

impl Job {
    /// Splits the job into parts, each a job of its own with its own ranks, windows, fences and end: the ranks that name the
    /// same `color` are one, in the order of their keys, and where keys are equal of their ranks (`MPI_Comm_split`). Who names
    /// no color gets none. Collective; what one rank cannot do is an error of all.
    ///
    /// The ranks of each host, as for windows that programs share among them (`MPI_Comm_split_type`), are
    /// `job.split(Some(job.local_ranks().unwrap()[0].0), 0)`.
    ///
    /// A part has an endpoint of its own, and an agent of its own if it has more than one rank: where signals or ghosts
    /// make the job's progress, a thread makes the part's. `RMA_TRACE` and `RMA_METRICS` are about the job alone. The part is
    /// to be finalized by all its ranks, or dropped, before the job is.
    ///
    /// After a death in a part its `finalize` waits for nobody and returns that error. Its windows are served until the process
    /// ends then, as the living may go on with them; not so if a window was made over memory that the program has lent
    /// ([`crate::raw`]), which it may free at once.
    ///
    /// ```
    /// use rma::{Job, Rank};
    ///
    /// let job = Job::init()?;
    /// // Rows of a grid.
    /// let row = job.split(Some(job.rank().0 / 4), 0)?.expect("each rank is in a row");
    /// let window = row.allocate::<u64>(1)?;
    /// window.fence(|epoch| epoch.put(Rank(0), 0, &[1]))?;
    /// window.free()?;
    /// row.finalize()?;
    /// job.finalize()?;
    /// # Ok::<(), rma::Error>(())
    /// ```
    ///
    /// Implements: communicators.
    ///
    /// # Errors
    /// When a rank cannot open an endpoint or start an agent, has died, or cannot be reached any more.
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Self>> {
        let wishes = gather(self, wish_to_bytes(color.map(|color| (color, key))))?;
        let members: Option<Arc<[Rank]>> = color.map(|color| members_of(&wishes, color).into());
        let opened = members.as_deref().map(|members| self.open_part(members)).transpose();
        let address = opened.as_ref().ok().and_then(Option::as_ref).map(|opened| opened.endpoint.address());
        let addresses =
            gather(self, address_to_bytes(address.as_ref().map_or(&[], |address| address.as_slice())))?;
        let begun = opened.and_then(|opened| match (opened, members) {
            (Some(opened), Some(members)) => self.begin_part(opened, members, &addresses).map(Some),
            _ => Ok(None),
        });
        let failed = |error: &Error| RmaError::Bootstrap { call: Call::Split, message: error.to_string() };
        let agreed = self.core().agree_on(Call::Split, begun.as_ref().map(drop).map_err(failed));
        if let (Err(_), Ok(Some(part))) = (&agreed, &begun) {
            // Nobody is to wait for the others when it is dropped.
            part.core().give_up();
        }
        agreed.and(begun)
    }

    /// The ranks of the job that this one was split off, in the order of its own (`MPI_Group_translate_ranks`); `None` of
    /// a job that was not.
    ///
    /// ```
    /// let job = rma::Job::init()?;
    /// let part = job.split(Some(0), -i32::try_from(job.rank().0).unwrap())?.expect("all name a color");
    /// assert_eq!(part.members().unwrap()[part.rank().0 as usize], job.rank());
    /// assert!(job.members().is_none());
    /// # drop(part);
    /// # job.finalize()?;
    /// # Ok::<(), rma::Error>(())
    /// ```
    pub fn members(&self) -> Option<&[Rank]> {
        self.shared.origin.as_ref().map(|origin| &*origin.members)
    }

    /// A part that one of its ranks has not come to the end of, as it has died: those who are left may go on with each
    /// other's windows, and no launcher says when all have come to its end. So all of it stays, and is served, until the
    /// process ends; the whole job may end before.
    pub(super) fn stay_for_the_living(&self) {
        static LEFT: Mutex<Vec<Job>> = Mutex::new(Vec::new());
        let Some(origin) = self.shared.origin.as_ref().filter(|_| !self.core().has_lent_memory()) else {
            return;
        };
        let mut driver = self.shared.driver.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Driver::None, Ok(thread)) = (&*driver, Driver::start(self.core(), Progress::Thread, None)) {
            *driver = thread;
        }
        drop(driver);
        LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(self.clone());
        *origin.link.lock().unwrap_or_else(PoisonError::into_inner) = Weak::new();
        // Dropped behind the lock: it may be the last that holds it.
        let whole = origin.whole.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(whole);
    }

    /// Opens this rank's endpoint in a part.
    fn open_part(&self, members: &[Rank]) -> Result<Opened> {
        let neighbours = self.neighbours_among(members);
        let Place { local_rank, local_size } = self.place_among(members, neighbours.as_deref());
        let at = fabric::Place {
            size: members.len() as u32,
            local_rank,
            local_size,
            has_ghost: false,
            in_handlers: false,
        };
        let proven = self.shared.host_address.as_ref().and_then(|address| address.parse().ok());
        fabric::open(&self.shared.options.fabric, &at, |_| Ok(proven))
    }

    /// Of these ranks, by their places, those on this host; `None` where nobody knows.
    fn neighbours_among(&self, members: &[Rank]) -> Option<Arc<[Rank]>> {
        if members.len() == 1 {
            return Some(Arc::new([Rank(0)]));
        }
        let here = self.shared.neighbours.as_deref()?;
        let places = (0..).zip(members).filter(|(_, member)| here.contains(member));
        Some(places.map(|(place, _)| Rank(place)).collect())
    }

    /// Where this process is among the part's ranks of its host.
    fn place_among(&self, members: &[Rank], neighbours: Option<&[Rank]>) -> Place {
        let own = members.iter().position(|&member| member == self.rank()).unwrap_or(0) as u32;
        if let Some(neighbours) = neighbours {
            let local_rank = neighbours.iter().position(|&rank| rank == Rank(own)).unwrap_or(0) as u32;
            return Place { local_rank, local_size: neighbours.len() as u32 };
        }
        let (size, here) = (members.len() as u32, self.local_size());
        if here == self.size() {
            return Place { local_rank: own, local_size: size };
        }
        // Some may be on another host, and what takes one host alone would not reach them.
        Place { local_rank: self.local_rank(), local_size: here.min(size.saturating_sub(1)).max(1) }
    }

    /// Joins a part whose ranks have these addresses.
    fn begin_part(
        &self,
        opened: Opened,
        members: Arc<[Rank]>,
        records: &[[u8; RECORD_BYTES]],
    ) -> Result<Self> {
        let options = self.shared.options.clone();
        let neighbours = self.neighbours_among(&members);
        let place = self.place_among(&members, neighbours.as_deref());
        let Opened { endpoint, description, host_address } = opened;
        let link = Arc::new(Mutex::new(Arc::downgrade(self.core())));
        let bootstrap = self.bootstrap_part(&members, records, &link);
        let engine = Engine::open(endpoint, bootstrap, options.config.clone())?;
        let core = Arc::new(Core::new(engine, options.timeout, options.host_processors)?);
        let progress = match options.progress {
            Progress::Signal | Progress::Ghost => Progress::Auto,
            progress => progress,
        };
        let driver = Driver::start(&core, progress, None)?;
        let launcher = self.shared.launcher.clone();
        events::joined(Rank(core.rank), core.size, &launcher, &description.provider, &description.candidates);
        let uncancelled = driver.is_thread().then(Uncancelled::this_thread);
        let shared = Shared {
            driver: Mutex::new(driver),
            core,
            place,
            neighbours,
            ghost: None,
            unserved: Said::default(),
            launcher,
            description,
            host_address,
            options,
            origin: Some(Origin { whole: Mutex::new(Some(self.clone())), link, members }),
            _uncancelled: uncancelled,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    fn bootstrap_part(&self, members: &[Rank], records: &[[u8; RECORD_BYTES]], link: &Link) -> JobBootstrap {
        let own = members.iter().position(|&member| member == self.rank()).unwrap_or(0) as u32;
        let named =
            |&rank: &Rank| PartMember { rank, address: address_of_bytes(&records[rank.0 as usize]).into() };
        let members = members.iter().map(named).collect();
        let driver = self.shared.driver.lock().unwrap_or_else(PoisonError::into_inner);
        let has_agent = driver.is_thread();
        drop(driver);
        let whole = Box::new(WholeJob { link: Arc::clone(link), has_agent, heard: Vec::new() });
        let mut guarded = self.core().enter_anyway();
        let bootstrap = guarded.engine.bootstrap();
        let local = (bootstrap.local_rank(), bootstrap.local_size());
        let job_id = format!("{}-part", bootstrap.job_id());
        JobBootstrap::Part(Box::new(Part::new(own, members, local, job_id, whole)))
    }
}

/// The whole job, as a part's bootstrap asks it.
struct WholeJob {
    link: Link,
    /// A thread of its own listens to the launcher.
    has_agent: bool,
    /// The deaths that were told.
    heard: Vec<Rank>,
}

impl Whole for WholeJob {
    fn poll_lost(&mut self) -> Option<Rank> {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        let core = link.upgrade()?;
        if !self.has_agent {
            core.hear_as_guest();
        }
        let lost = core.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let next = *lost.iter().find(|rank| !self.heard.contains(rank))?;
        self.heard.push(next);
        Some(next)
    }

    fn abort(&mut self, code: i32, message: &str) -> std::result::Result<(), BootstrapError> {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        match link.upgrade() {
            Some(core) => core.enter_anyway().engine.bootstrap().abort(code, message),
            // Then the process has said its end, or is about to.
            None => Ok(()),
        }
    }
}

/// What each rank gives, at all ranks, in their order. Collective.
///
/// In each round a rank has what it and the next ones gave, twice as many as before (Bruck's algorithm).
fn gather<const BYTES: usize>(job: &Job, own: [u8; BYTES]) -> Result<Vec<[u8; BYTES]>> {
    gather_of_all(job, own).map_err(|error| error.on_behalf_of(Call::Split))
}

fn gather_of_all<const BYTES: usize>(job: &Job, own: [u8; BYTES]) -> Result<Vec<[u8; BYTES]>> {
    let (rank, size) = (job.rank().0 as usize, job.size() as usize);
    let window = job.allocate::<u8>(size * BYTES)?;
    window.local().write(0, &own)?;
    let mut known = 1;
    while known < size {
        let mut blocks = vec![0; known.min(size - known) * BYTES];
        window.local().read(0, &mut blocks)?;
        let target = Rank(((rank + size - known) % size) as u32);
        window.fence(|epoch| epoch.put(target, (known * BYTES) as u64, &blocks))?;
        known *= 2;
    }
    let gathered = window.local().to_vec()?;
    window.free()?;
    let mut ordered = vec![[0; BYTES]; size];
    for (distance, block) in gathered.chunks_exact(BYTES).enumerate() {
        ordered[(rank + distance) % size].copy_from_slice(block);
    }
    Ok(ordered)
}

/// The ranks of a color, in the order of their keys.
fn members_of(wishes: &[[u8; WISH_BYTES]], color: u32) -> Vec<Rank> {
    let wishes = (0..).map(Rank).zip(wishes.iter().map(wish_of_bytes));
    let mut members: Vec<(i32, Rank)> = wishes
        .filter_map(|(rank, wish)| wish.filter(|(wanted, _)| *wanted == color).map(|(_, key)| (key, rank)))
        .collect();
    members.sort_unstable();
    members.into_iter().map(|(_, rank)| rank).collect()
}

fn wish_to_bytes(wish: Wish) -> [u8; WISH_BYTES] {
    let mut bytes = [0; WISH_BYTES];
    if let Some((color, key)) = wish {
        bytes[0] = 1;
        bytes[1..5].copy_from_slice(&color.to_le_bytes());
        bytes[5..].copy_from_slice(&key.to_le_bytes());
    }
    bytes
}

fn wish_of_bytes(bytes: &[u8; WISH_BYTES]) -> Wish {
    let [is_there, c0, c1, c2, c3, k0, k1, k2, k3] = *bytes;
    (is_there != 0).then(|| (u32::from_le_bytes([c0, c1, c2, c3]), i32::from_le_bytes([k0, k1, k2, k3])))
}

/// No address is an empty one.
fn address_to_bytes(address: &[u8]) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..2].copy_from_slice(&(address.len() as u16).to_le_bytes());
    bytes[2..2 + address.len()].copy_from_slice(address);
    bytes
}

/// Another rank has written it.
fn address_of_bytes(bytes: &[u8; RECORD_BYTES]) -> &[u8] {
    let len = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    bytes.get(2..2 + len).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_in_the_order_of_their_keys_and_ranks() {
        let wishes = [Some((7, 1)), Some((7, -1)), None, Some((0, -9)), Some((7, 1)), Some((7, i32::MIN))];
        let wishes = wishes.map(wish_to_bytes);
        assert_eq!(members_of(&wishes, 7), [5, 1, 0, 4].map(Rank));
        assert_eq!(members_of(&wishes, 0), [Rank(3)]);
        assert_eq!(members_of(&wishes, 1), []);
    }

    #[test]
    fn addresses_come_back_and_lengths_are_not_believed() {
        for address in [&b""[..], b"here", &[9; ADDRESS_BYTES_MAX]] {
            assert_eq!(address_of_bytes(&address_to_bytes(address)), address);
        }
        let mut bytes = address_to_bytes(b"here");
        bytes[1] = 0xff;
        assert_eq!(address_of_bytes(&bytes), b"");
    }
}
