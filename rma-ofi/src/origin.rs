//! How the fabric gets at the program's buffers where it wants all that it is given registered (`FI_MR_LOCAL`).
//!
//! Small buffers are copied, to and from places in the endpoint's own registered memory. Larger ones are registered
//! while operations on them are in flight ([`Registrations`]). Elsewhere there are no [`Origins`], and buffers are
//! handed on as they are.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use ofi_sys as fi;
use rma_core::ids::{PeerAddr, Tag};
use rma_core::provider::registrations::{Registrations, Taken, COPIED_BYTES_MAX, REGISTRATIONS_MAX};
use rma_core::provider::{Post, PostError, VECTOR_PIECES_MAX};

use crate::endpoint::{Live, OfiEndpoint};
use crate::error::{fabric_code, unregistered_code};
use crate::handles::{Domain, Mr};
use crate::memory::Memory;
use crate::post::Ticket;
use crate::vector::Direction;

/// Where one buffer of an operation lies for the fabric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holding {
    /// In this place of the endpoint's memory.
    Place(u32),
    /// In the program's memory, by this registration.
    Registered(Taken),
}

/// What one buffer of an operation holds while that is in flight.
#[derive(Clone, Copy, Debug)]
struct Part {
    holding: Holding,
    /// Where bytes go from a place; null where none go.
    into: *mut u8,
    len: usize,
    /// The operation's next part.
    next: Loan,
}

/// What an operation holds: the first of its parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Loan(u32);

impl Loan {
    const NOTHING: Self = Self(u32::MAX);
}

/// What operations in flight hold. Nothing is allocated after it was made.
#[derive(Debug)]
pub(crate) struct Origins {
    domain: Arc<Domain>,
    registrations: Registrations<Mr>,
    /// The key of the first of them, and what keys are combined with.
    first_key: u64,
    key_salt: u64,
    /// Describes the endpoint's own memory.
    own: *mut c_void,
    free_places: Vec<u32>,
    parts: Vec<Part>,
    free_parts: Vec<u32>,
    /// By tracked slot.
    loans: Vec<Loan>,
}

impl Origins {
    /// Of an endpoint whose own memory has this descriptor, and whose largest key is this. The endpoint itself has the
    /// last two keys; registrations have those before them.
    pub(crate) fn new(live: &Live, own: *mut c_void, largest_key: u64) -> Self {
        let (tracked, places) = (live.memory.sizes().tracked, live.memory.sizes().places);
        let parts = tracked + VECTOR_PIECES_MAX;
        // As many as there may be parts; but keys must be left for others where there are few.
        let given_up = parts.min((largest_key / 2) as usize);
        let nothing = Part { holding: Holding::Place(0), into: ptr::null_mut(), len: 0, next: Loan::NOTHING };
        Self {
            domain: Arc::clone(&live.domain),
            registrations: Registrations::with_given_up(given_up),
            first_key: largest_key - 1 - (REGISTRATIONS_MAX + given_up) as u64,
            key_salt: live.key_salt(),
            own,
            free_places: (0..places as u32).rev().collect(),
            parts: vec![nothing; parts],
            free_parts: (0..parts as u32).rev().collect(),
            loans: vec![Loan::NOTHING; tracked],
        }
    }

    /// Makes a buffer known to the fabric: where it lies then, and its descriptor. What it holds is added to the loan.
    ///
    /// # Safety
    /// The buffer is readable (put) or writable (get) until the loan is over.
    unsafe fn lend(
        &mut self,
        memory: &Memory,
        loan: &mut Loan,
        buffer: fi::iovec,
        direction: Direction,
    ) -> Result<(*mut c_void, *mut c_void), PostError> {
        let Some(&index) = self.free_parts.last() else { return Err(PostError::Again) };
        let (base, len) = (buffer.iov_base.cast::<u8>(), buffer.iov_len);
        let mut part = Part { holding: Holding::Place(0), into: ptr::null_mut(), len, next: *loan };
        let lent = if len <= COPIED_BYTES_MAX {
            let Some(number) = self.free_places.pop() else { return Err(PostError::Again) };
            let place = memory.place(number as usize).as_ptr();
            match direction {
                // SAFETY: the place is ours and holds so many bytes; the source is the caller's promise.
                Direction::Put => unsafe { ptr::copy_nonoverlapping(base, place, len) },
                Direction::Get => part.into = base,
            }
            part.holding = Holding::Place(number);
            (place.cast(), self.own)
        } else {
            // SAFETY: by the caller's promise.
            let (taken, desc) = unsafe { self.register(base, len, direction, *loan) }?;
            part.holding = Holding::Registered(taken);
            (base.cast(), desc)
        };
        self.free_parts.pop();
        self.parts[index as usize] = part;
        *loan = Loan(index);
        Ok(lent)
    }

    /// Registers a buffer, or finds it registered: what is to be given back, and the descriptor.
    ///
    /// # Safety
    /// See [`Self::lend`].
    unsafe fn register(
        &mut self,
        base: *mut u8,
        len: usize,
        direction: Direction,
        loan: Loan,
    ) -> Result<(Taken, *mut c_void), PostError> {
        let Some(start) = NonNull::new(base) else {
            return Err(PostError::Failed(fabric_code(fi::FI_EFAULT)));
        };
        // A source may be memory that nobody can write.
        let access = match direction {
            Direction::Put => fi::FI_WRITE,
            Direction::Get => fi::FI_READ | fi::FI_WRITE,
        };
        let (domain, first, salt) = (&self.domain, self.first_key, self.key_salt);
        // The operation's own pieces are not given back before it has all.
        let own = self.registered(loan);
        let others = self.registrations.is_in_use_beside(own);
        let (taken, mr) =
            self.registrations.take(base as usize, len, direction == Direction::Get, |number| {
                let key = (first + u64::from(number)) ^ salt;
                // SAFETY: by the caller's promise.
                unsafe { Mr::open(domain, start, len, access, key) }.map_err(|code| match -code {
                    // There may be room when others are over.
                    fi::FI_ENOMEM if others => PostError::Again,
                    code => PostError::Failed(unregistered_code(code)),
                })
            })?;
        Ok((taken, mr.desc()))
    }

    /// What is registered for a loan so far.
    fn registered(&self, mut loan: Loan) -> impl Iterator<Item = Taken> + Clone + use<'_> {
        core::iter::from_fn(move || {
            let part = self.parts.get(loan.0 as usize).filter(|_| loan != Loan::NOTHING)?;
            loan = part.next;
            Some(part.holding)
        })
        .filter_map(|holding| match holding {
            Holding::Registered(taken) => Some(taken),
            _ => None,
        })
    }

    /// Gives back what an operation held; with `has_arrived`, what was read goes where it belongs.
    ///
    /// # Safety
    /// With `has_arrived`, the destinations are writable.
    unsafe fn take_back(&mut self, memory: &Memory, mut loan: Loan, has_arrived: bool) {
        while loan != Loan::NOTHING {
            let Part { holding, into, len, next } = self.parts[loan.0 as usize];
            match holding {
                Holding::Place(number) => {
                    if has_arrived && !into.is_null() {
                        let from = memory.place(number as usize);
                        // SAFETY: the fabric has written the place, which is ours until it is given back below, and
                        // holds so many bytes; the destination is the caller's promise.
                        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into, len) };
                    }
                    self.free_places.push(number);
                }
                Holding::Registered(taken) => self.registrations.give_back(taken),
            }
            self.free_parts.push(loan.0);
            loan = next;
        }
    }

    /// How many buffers are registered, and how many places and parts are in use.
    #[cfg(test)]
    pub(crate) fn in_use(&self, memory: &Memory) -> [usize; 3] {
        let places = memory.sizes().places - self.free_places.len();
        [self.registrations.count(), places, self.parts.len() - self.free_parts.len()]
    }
}

/// The list of descriptors of an operation, as messages want it.
pub(crate) type Descriptors = [*mut c_void; VECTOR_PIECES_MAX];

/// What buffers have that need no descriptor.
pub(crate) const NO_DESCRIPTORS: Descriptors = [ptr::null_mut(); VECTOR_PIECES_MAX];

impl OfiEndpoint {
    /// Makes the buffers of an operation known to the fabric, where it wants that: they may lie elsewhere then, and
    /// have descriptors. What is returned is for [`Self::posted_with`].
    ///
    /// # Safety
    /// Each buffer is readable (put) or writable (get) until the operation is over.
    #[inline]
    pub(crate) unsafe fn lend<const N: usize>(
        &mut self,
        buffers: &mut [fi::iovec],
        directions: [Direction; N],
        descriptors: &mut Descriptors,
    ) -> Result<Loan, PostError> {
        if self.origins.is_none() {
            return Ok(Loan::NOTHING);
        }
        // SAFETY: by the caller's promise.
        unsafe { self.lend_each(buffers, &directions, descriptors) }
    }

    /// See [`Self::lend`].
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn lend_each(
        &mut self,
        buffers: &mut [fi::iovec],
        directions: &[Direction],
        descriptors: &mut Descriptors,
    ) -> Result<Loan, PostError> {
        let Some(origins) = &mut self.origins else { return Ok(Loan::NOTHING) };
        let (memory, mut loan) = (&self.live.memory, Loan::NOTHING);
        for ((buffer, &direction), descriptor) in buffers.iter_mut().zip(directions).zip(descriptors) {
            // SAFETY: by the caller's promise.
            match unsafe { origins.lend(memory, &mut loan, *buffer, direction) } {
                Ok(lent) => (buffer.iov_base, *descriptor) = lent,
                Err(error) => {
                    // SAFETY: nothing was posted, so no bytes go anywhere.
                    unsafe { origins.take_back(memory, loan, false) };
                    return Err(error);
                }
            }
        }
        Ok(loan)
    }

    /// The descriptors as messages name them, from this one on: none where none are needed.
    #[inline]
    pub(crate) fn list(&self, descriptors: &Descriptors, first: usize) -> *mut *mut c_void {
        match self.origins {
            // libfabric only reads them.
            Some(_) => descriptors[first..].as_ptr().cast_mut(),
            None => ptr::null_mut(),
        }
    }

    /// See [`Self::posted`]; with what the operation holds until its slot is free.
    #[inline]
    pub(crate) fn posted_with(
        &mut self,
        ticket: &Ticket,
        to: PeerAddr,
        tag: Tag,
        result: isize,
        loan: Loan,
    ) -> Post {
        if let Some(origins) = &mut self.origins {
            if result == 0 {
                origins.loans[ticket.slot()] = loan;
            } else {
                // SAFETY: nothing was posted, so no bytes go anywhere.
                unsafe { origins.take_back(&self.live.memory, loan, false) };
            }
        }
        self.posted(ticket, to, tag, result)
    }

    /// The provider has let go of the slot; with `has_arrived`, because its operation has succeeded, and its end has not
    /// been said.
    #[inline(never)]
    pub(crate) fn end_loan(&mut self, slot: usize, has_arrived: bool) {
        let Some(origins) = &mut self.origins else { return };
        let loan = core::mem::replace(&mut origins.loans[slot], Loan::NOTHING);
        // SAFETY: destinations are writable until the end is said.
        unsafe { origins.take_back(&self.live.memory, loan, has_arrived) };
    }

    /// The end of the slot's operation is said while the provider has not let go of it: what it uses of the program's
    /// memory is not found any more.
    pub(crate) fn disown_loan(&mut self, slot: usize) {
        let Some(origins) = &mut self.origins else { return };
        let mut loan = origins.loans[slot];
        while loan != Loan::NOTHING {
            let part = &origins.parts[loan.0 as usize];
            if let Holding::Registered(taken) = part.holding {
                origins.registrations.forget(taken);
            }
            loan = part.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rma_core::ids::RemoteKey;
    use rma_core::provider::{Completion, CompletionBatch, Endpoint, FabricCode, MemoryRegion, RemoteAddr};

    use super::*;
    use crate::region::OfiRegion;
    use crate::{Ofi, Options};

    /// Nothing that is bounded takes so long.
    const LIMIT: Duration = Duration::from_secs(60);
    const LEN: usize = 1 << 16;

    fn open() -> OfiEndpoint {
        let (provider, single_host, register_buffers) = (Some("net".to_owned()), true, true);
        let options = Options { provider, single_host, register_buffers, ..Options::default() };
        OfiEndpoint::open(&Ofi::discover(&options).unwrap(), &options).unwrap()
    }

    /// An endpoint that is its own target.
    struct Loop {
        _region: OfiRegion,
        ep: OfiEndpoint,
        me: PeerAddr,
        at: RemoteAddr,
        target: Vec<u8>,
        said: Vec<(u64, bool)>,
    }

    impl Loop {
        fn new() -> Self {
            let mut ep = open();
            let me = ep.connect(&ep.address()).unwrap();
            let mut target = vec![0; LEN];
            // SAFETY: the memory outlives the region, and is looked at between operations.
            let region =
                unsafe { ep.register(NonNull::new(target.as_mut_ptr()).unwrap(), LEN, RemoteKey(1)) }
                    .unwrap();
            let at = RemoteAddr { addr: region.remote_base(), key: region.remote_key() };
            Self { _region: region, ep, me, at, target, said: Vec::new() }
        }

        fn poll(&mut self) {
            let mut batch = CompletionBatch::new();
            self.ep.poll(&mut batch);
            while let Some(completion) = batch.pop() {
                match completion {
                    Completion::Done(Tag(tag)) => self.said.push((tag, true)),
                    Completion::Failed(Tag(tag), _) => self.said.push((tag, false)),
                    Completion::PeerDown(..) => {}
                    other => panic!("{other:?}"),
                }
            }
        }

        fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
            let deadline = Instant::now() + LIMIT;
            while !holds(self) {
                assert!(Instant::now() < deadline, "{what}");
                self.poll();
            }
        }

        fn put(&mut self, source: &[u8], tag: u64) -> Result<(), FabricCode> {
            let mut failed = None;
            self.until("a put", |this| {
                let (me, at) = (this.me, this.at);
                // SAFETY: the source is there until the tag has come back, below.
                match unsafe { this.ep.put(me, source.as_ptr(), source.len(), at, Tag(tag)) } {
                    Ok(_) => true,
                    Err(PostError::Again) => false,
                    Err(PostError::Failed(code)) => {
                        failed = Some(code);
                        true
                    }
                }
            });
            if let Some(code) = failed {
                return Err(code);
            }
            self.until("its end", |this| this.said.contains(&(tag, true)));
            Ok(())
        }

        fn in_use(&self) -> [usize; 3] {
            self.ep.origins.as_ref().unwrap().in_use(&self.ep.live.memory)
        }
    }

    /// So many new bytes, at this address if it is not null.
    fn map(at: *mut u8) -> *mut u8 {
        let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed);
        // SAFETY: new memory, or in the place of memory that was ours and nobody uses.
        let memory = unsafe { libc::mmap(at.cast(), LEN, protection, flags, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        memory.cast()
    }

    #[test]
    fn memory_that_was_mapped_again_is_registered_again() {
        let mut world = Loop::new();
        let mut memory = ptr::null_mut();
        for round in 1..4u8 {
            memory = map(memory);
            // SAFETY: so many bytes have just been mapped.
            unsafe { memory.write_bytes(round, LEN) };
            // SAFETY: as above; nobody writes them until they are unmapped.
            let source = unsafe { core::slice::from_raw_parts(memory, LEN) };
            world.put(source, u64::from(round)).unwrap();
            assert!(world.target.iter().all(|&byte| byte == round));
            assert_eq!(world.in_use(), [0; 3], "round {round}");
        }
        // SAFETY: mapped above, and used by nobody.
        assert_eq!(unsafe { libc::munmap(memory.cast(), LEN) }, 0);
    }

    #[test]
    fn a_buffer_that_cannot_be_registered_is_copied_or_an_error_that_says_so() {
        let mut world = Loop::new();
        let mut other = [0u8; 8];
        // The key that the first registration would have.
        let key = RemoteKey(world.ep.origins.as_ref().unwrap().first_key);
        // SAFETY: the memory outlives the region.
        let region = unsafe { world.ep.register(NonNull::new(other.as_mut_ptr()).unwrap(), 8, key) }.unwrap();
        let source = vec![7; LEN];
        let error = world.put(&source, 1).unwrap_err();
        assert!(error.text.contains("cannot be registered"), "{error}");
        world.put(&source[..COPIED_BYTES_MAX], 2).unwrap();
        assert!(world.target[..COPIED_BYTES_MAX].iter().all(|&byte| byte == 7));
        assert_eq!(world.in_use(), [0; 3]);
        drop(region);
        world.put(&source, 3).unwrap();
    }

    #[test]
    fn no_more_is_registered_or_copied_than_there_is_room_for() {
        const COUNT: usize = 600;
        const BYTES: usize = 8192;
        let mut world = Loop::new();
        world.target.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
        let mut sinks = vec![vec![0u8; BYTES]; COUNT];
        let mut most = [0; 3];
        for (tag, sink) in (0..).zip(&mut sinks) {
            // By turns registered and copied.
            let (base, len) = (sink.as_mut_ptr(), [BYTES, 1000][tag as usize % 2]);
            world.until("a get", |this| {
                let (me, at) = (this.me, this.at);
                // SAFETY: the sinks live until all tags have come back, below.
                let is_posted = unsafe { this.ep.get(me, base, len, at, Tag(tag)) }.is_ok();
                let now = this.in_use();
                most = core::array::from_fn(|index| most[index].max(now[index]));
                is_posted
            });
        }
        world.until("all gets", |this| this.said.len() == COUNT);
        assert!(most[0] <= REGISTRATIONS_MAX && most[0] > 1 && most[1] > 1, "{most:?}");
        assert_eq!(world.in_use(), [0; 3]);
        for (tag, sink) in sinks.iter().enumerate() {
            let len = [BYTES, 1000][tag % 2];
            assert!(sink[..len].iter().enumerate().all(|(at, &byte)| byte == at as u8), "get {tag}");
            assert!(sink[len..].iter().all(|&byte| byte == 0), "get {tag} wrote beyond its end");
        }
    }

    #[test]
    fn what_was_given_up_stays_registered_and_is_not_found() {
        let mut world = Loop::new();
        let mut stuck = open();
        let peer = world.ep.connect(&stuck.address()).unwrap();
        stuck.connect(&world.ep.address()).unwrap();
        let mut target = vec![0u8; LEN];
        // SAFETY: the memory outlives the region.
        let region =
            unsafe { stuck.register(NonNull::new(target.as_mut_ptr()).unwrap(), LEN, RemoteKey(1)) }.unwrap();
        let at = RemoteAddr { addr: region.remote_base(), key: region.remote_key() };
        let source = vec![9; LEN];
        let mut batch = CompletionBatch::new();
        world.until("the put", |world| {
            // SAFETY: the source is there until the provider lets go of it, below.
            let is_posted = unsafe { world.ep.put(peer, source.as_ptr(), LEN, at, Tag(1)) }.is_ok();
            if !is_posted {
                // Connections are made on first use.
                stuck.poll(&mut batch);
            }
            is_posted
        });
        world.ep.abandon(peer, fabric_code(fi::FI_EHOSTDOWN));
        world.until("its end", |world| world.said.contains(&(1, false)));
        assert_eq!(world.in_use()[0], 1);
        world.put(&source, 2).unwrap();
        assert_eq!(world.in_use()[0], 1);
        let registrations = &world.ep.origins.as_ref().unwrap().registrations;
        assert!(!registrations.is_in_use_beside(std::iter::empty()), "who comes next must not find it");
        // The peer goes on after all, and its answer ends the registration.
        world.until("the provider lets go", |world| {
            stuck.poll(&mut batch);
            world.in_use() == [0; 3]
        });
        assert_eq!(world.said, [(1, false), (2, true)]);
    }
}
