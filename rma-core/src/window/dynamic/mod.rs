//! What a dynamic window has besides: the regions attached at this rank, who knows of them, and what this rank
//! knows of others'.
//!
//! A record of a region (its key, above all) is lent: before the region's registration is closed every rank
//! that has got a record is asked to give all of them up, and answers when nothing of its uses them any more.
//! So no fabric ever meets a key that is not valid, which some answer with a broken connection, or not at all.

mod holders;
mod records;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub(crate) use holders::Holders;
pub(crate) use records::Records;

use crate::config::Config;
use crate::ids::Rank;
use crate::mem::{AttachError, Regions, WindowMemory};
use crate::path::Paths;
use crate::provider::MemoryRegion;
use crate::table::is_before;
use crate::wire::{OpKind, RegionRecord};

/// An attached region that the fabric can access.
#[derive(Debug)]
struct Registered<R> {
    base: u64,
    len: u64,
    region: R,
}

/// A rank that has asked for its records, and gets its answer when nothing uses them any more.
#[derive(Debug)]
pub(crate) struct Owed {
    pub(crate) rank: Rank,
    pub(crate) version: u32,
    /// The reply buffer of the answer.
    pub(crate) index: usize,
    pub(crate) buffer: Box<[u8]>,
}

/// A dynamic window's regions and records.
#[derive(Debug)]
pub(crate) struct Dynamic<R> {
    /// What is attached here: every packet is judged by it.
    pub(crate) regions: Regions,
    /// Those that the fabric can access too, by their addresses.
    registered: Vec<Registered<R>>,
    /// What was detached, with the version from which on nobody has records of it.
    closing: Vec<(u32, R)>,
    pub(crate) holders: Holders,
    pub(crate) records: Records,
    /// Questions about regions so far.
    pub(crate) token: u32,
    /// At most as many as there are reply buffers.
    pub(crate) owed: Vec<Owed>,
    /// What this rank's fabric does natively.
    native: Paths,
    native_bytes_min: u64,
}

impl<R> Dynamic<R> {
    pub(crate) fn new(native: Paths, config: &Config) -> Self {
        Self {
            regions: Regions::new(),
            registered: Vec::new(),
            closing: Vec::new(),
            holders: Holders::with_room(config.region_holders),
            records: Records::with_room(config.region_records),
            token: 0,
            owed: Vec::with_capacity(config.reply_buffers),
            native,
            native_bytes_min: config.native_region_bytes_min as u64,
        }
    }

    /// Whether a put or get of so many bytes is to go natively, if the target lets it.
    pub(crate) fn is_native(&self, kind: OpKind, len: u64) -> bool {
        let offered = match kind {
            OpKind::Put => self.native.put,
            OpKind::Get => self.native.get,
            _ => false,
        };
        offered && len >= self.native_bytes_min
    }

    /// Whether the fabric should be able to access a region of so many bytes.
    pub(crate) fn wants_registration(&self, len: usize) -> bool {
        (self.native.put || self.native.get) && len > 0 && len as u64 >= self.native_bytes_min
    }

    /// Adds a region, and its registration if it has one.
    pub(crate) fn attach(&mut self, memory: WindowMemory, region: Option<R>) -> Result<(), AttachError> {
        self.registered.try_reserve(1).map_err(|_| AttachError::NoMemory)?;
        // Whatever is attached may be closing at one time.
        self.closing.try_reserve(self.registered.len() + 1).map_err(|_| AttachError::NoMemory)?;
        let (base, len) = (memory.base_ptr().addr() as u64, memory.len() as u64);
        self.regions.attach(memory)?;
        if let Some(region) = region {
            let at = self.registered.partition_point(|entry| entry.base < base);
            self.registered.insert(at, Registered { base, len, region });
        }
        Ok(())
    }

    /// Takes a region away. What the fabric can do with it ends when nobody has a record that is older than the
    /// returned version; `None` within: it can do nothing.
    pub(crate) fn detach(&mut self, base: u64) -> Option<Option<u32>> {
        self.regions.detach(base)?;
        let Ok(at) = self.registered.binary_search_by_key(&base, |entry| entry.base) else {
            return Some(None);
        };
        let version = self.holders.revoke();
        self.closing.push((version, self.registered.remove(at).region));
        Some(Some(version))
    }

    /// Nobody has a record that is older than the version: closes the registrations of those.
    pub(crate) fn close_until(&mut self, version: u32) {
        self.closing.retain(|(needs, _)| is_before(version, *needs));
    }

    /// Whether `rank` waits for its records: nothing new may use one.
    pub(crate) fn owes(&self, rank: Rank) -> bool {
        self.owed.iter().any(|owed| owed.rank == rank)
    }

    /// Bytes held, all in all.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.regions.heap_bytes()
            + self.registered.capacity() * size_of::<Registered<R>>()
            + self.closing.capacity() * size_of::<(u32, R)>()
            + self.holders.heap_bytes()
            + self.records.heap_bytes()
            + self.owed.capacity() * size_of::<Owed>()
    }
}

impl<R: MemoryRegion> Dynamic<R> {
    /// What `rank` may know of the region that holds all of `len` bytes at `first`; from now on it has to be
    /// asked before the region's registration is closed.
    pub(crate) fn grant(&mut self, rank: Rank, first: u64, len: u64) -> Option<RegionRecord> {
        let at = self.registered.partition_point(|entry| entry.base <= first).checked_sub(1)?;
        let Registered { base, len: region_len, region } = &self.registered[at];
        let mut record = RegionRecord {
            base: *base,
            len: *region_len,
            addr: region.remote_base(),
            key: region.remote_key(),
            version: 0,
        };
        if !record.holds(first, len) {
            return None;
        }
        record.version = self.holders.grant(rank)?;
        Some(record)
    }
}
