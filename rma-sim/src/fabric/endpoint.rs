//! The engine's view of the simulated fabric.
#![allow(unsafe_code)]

use core::ptr::NonNull;

use rma_core::bootstrap::AddressBytes;
use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Allocation, Atomic, ByAddress, Completion, CompletionBatch, Endpoint, FabricCode, Limits, LocalPiece,
    NativeOps, Post, PostError, ProviderError, ReceivedPacket, RemoteAddr, RemotePiece, SendClass, Swapped,
    WordSwap,
};

use super::config::{native_locks, FabricConfig};
use super::memory::{MemoryPointer, SimRegion};
use super::operation::{Kind, Operation};
use super::state::{Packet, State, Work, REFUSED};
use super::vector::Pieces;
use super::SimFabric;

/// Requests of peers that one poll executes where the target's process must.
const WORK_PER_POLL: usize = 16;

/// What the buffer of a released packet is filled with, so that who reads it later sees no packet.
const POISON: u8 = 0xdd;

/// One rank's endpoint of a [`SimFabric`]. Dropping it closes it: peers can reach neither it nor its
/// memory any more.
#[derive(Debug)]
pub struct SimEndpoint {
    pub(super) fabric: SimFabric,
    pub(super) index: usize,
    rank: u32,
    limits: Limits,
    native: NativeOps,
    pub(super) native_near: NativeOps,
    /// Whether neighbours' memory is changed by this processor's instructions.
    pub(super) maps_near: bool,
}

impl SimEndpoint {
    pub(super) fn new(fabric: SimFabric, index: usize, rank: u32) -> Self {
        let config = fabric.state().config.clone();
        let (limits, native) = (config.limits, config.native);
        let native_near = if config.near_locks { with_locks(native) } else { native };
        let maps_near = config.near_locks && config.assist_per_mille == 0;
        Self { fabric, index, rank, limits, native, native_near, maps_near }
    }

    fn post(&self, peer: PeerAddr, operation: Operation) -> Post {
        self.fabric.state().post(peer, operation)
    }

    #[cold]
    fn refuse(&self, rule: &'static str, detail: String) -> PostError {
        self.fabric.state().violation(self.index, rule, detail);
        PostError::Failed(REFUSED)
    }

    fn native_to(&self, peer: PeerAddr) -> &NativeOps {
        if self.completes_at_once(peer) {
            &self.native_near
        } else {
            &self.native
        }
    }

    fn check_transfer(&self, is_native: bool, call: &'static str, len: usize) -> Result<(), PostError> {
        if !is_native {
            return Err(self.fabric.state().not_native(self.index, call, String::new()));
        }
        if len > self.limits.message_bytes_max {
            let rule = "a put or get is at most message_bytes_max long";
            return Err(self.refuse(rule, format!("{call} of {len} bytes")));
        }
        Ok(())
    }

    /// Checks a put or get of pieces, and makes it an operation.
    fn vector(
        &self,
        kind: Kind,
        is_native: bool,
        local: &[LocalPiece],
        remote: &[RemotePiece],
        tag: Tag,
    ) -> Result<Operation, PostError> {
        let call = if kind == Kind::Put { "put_vector" } else { "get_vector" };
        let len = local.iter().fold(0_usize, |sum, piece| sum.saturating_add(piece.len));
        self.check_transfer(is_native, call, len)?;
        let limits = &self.limits;
        let fits = local.len() <= limits.vector_local_max && remote.len() <= limits.vector_remote_max;
        let has_empty = local.iter().any(|piece| piece.len == 0) || remote.iter().any(|piece| piece.len == 0);
        let is_even = remote.iter().fold(0_usize, |sum, piece| sum.saturating_add(piece.len)) == len;
        let pieces = Pieces::new(local, remote).filter(|_| fits && is_even && !has_empty);
        let (Some(pieces), Some(from), Some(to)) = (pieces, local.first(), remote.first()) else {
            let detail = format!("{call} of {} and {} pieces, {len} bytes", local.len(), remote.len());
            let rule = "a vector has as many bytes at both sides, in no more pieces than offered";
            return Err(self.refuse(rule, detail));
        };
        let mut operation = Operation::new(kind, self.index, to.at, len, Some(tag));
        match kind {
            Kind::Put => operation.source = MemoryPointer::new(from.base),
            _ => operation.result = MemoryPointer::new(from.base),
        }
        operation.pieces = Some(pieces);
        Ok(operation)
    }

    fn check_atomic(
        &self,
        is_native: bool,
        call: &'static str,
        dtype: Dtype,
        op: ReduceOp,
    ) -> Result<(), PostError> {
        if is_native {
            return Ok(());
        }
        let detail = format!("{} of {}", op.name(), dtype.name());
        Err(self.fabric.state().not_native(self.index, call, detail))
    }
}

impl Drop for SimEndpoint {
    fn drop(&mut self) {
        self.fabric.state().close(self.index);
    }
}

// SAFETY: the numbered tests in tests/contract.rs show the contract kept. Line 3: a tag is reported by
// `on_complete` alone, which asserts that it was not before, and after which no loaned pointer is used.
// Line 4: packets and injected sources are copied in the call. A lent packet is a vector that stays in
// `lent`, untouched, until released.
unsafe impl Endpoint for SimEndpoint {
    type Region = SimRegion;
    type Passage = ByAddress;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn native(&self) -> &NativeOps {
        &self.native
    }

    fn native_near(&self) -> &NativeOps {
        &self.native_near
    }

    fn allocate(&mut self, len: usize, alignment: usize) -> Allocation {
        // What neighbours alone can do they can do on memory that they share.
        if self.native_near == self.native {
            return Allocation::Anywhere;
        }
        let alignment = alignment.max(PAGE_BYTES);
        let (mut memory, whole) = (Vec::new(), len.max(1).saturating_add(alignment));
        if memory.try_reserve_exact(whole).is_err() {
            return Allocation::OutOfMemory;
        }
        memory.resize(whole, 0u8);
        // Moving the vector does not move its memory.
        let first = memory.as_mut_ptr();
        match NonNull::new(first.wrapping_add(first.align_offset(alignment))) {
            Some(base) => Allocation::Here { base, mapping: Box::new(memory) },
            None => Allocation::OutOfMemory,
        }
    }

    fn address(&self) -> AddressBytes {
        super::address_of(self.rank)
    }

    fn connect(&mut self, address: &AddressBytes) -> Result<PeerAddr, ProviderError> {
        let mut state = self.fabric.state();
        let rank = super::rank_of(address).ok_or_else(|| ProviderError {
            message: format!("connect: {address:?} is not an address of the simulated fabric"),
        })?;
        let target = state.endpoint_of.get(&rank).copied().ok_or_else(|| ProviderError {
            message: format!("connect: rank {rank} has no endpoint; open it and publish its address first"),
        })?;
        Ok(state.connect(self.index, target))
    }

    fn disconnect(&mut self, peer: PeerAddr) {
        self.fabric.state().disconnect(self.index, peer);
    }

    fn abandon(&mut self, peer: PeerAddr, _code: FabricCode) {
        self.fabric.state().abandon(self.index, peer);
    }

    unsafe fn register(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        key: RemoteKey,
    ) -> Result<SimRegion, ProviderError> {
        let FabricConfig { grants_key_wishes, offset_addresses, .. } = self.fabric.state().config;
        self.add_region(base, len, grants_key_wishes.then_some(key), offset_addresses)
    }

    unsafe fn register_near(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        key: RemoteKey,
    ) -> Result<SimRegion, ProviderError> {
        let FabricConfig { grants_key_wishes, offset_addresses, near_ranks, .. } = self.fabric.state().config;
        // Who is near is reached beside the fabric, which does not choose for it.
        let is_near = near_ranks > 0;
        self.add_region(base, len, (is_near || grants_key_wishes).then_some(key), is_near || offset_addresses)
    }

    fn put_inject(&mut self, to: PeerAddr, src: &[u8], at: RemoteAddr) -> Result<(), PostError> {
        if !self.native.put || src.len() > self.limits.inject_bytes_max {
            let detail = format!("{} bytes to {to:?}", src.len());
            return Err(
                self.refuse("put_inject takes at most inject_bytes_max, where puts are native", detail)
            );
        }
        let mut operation = Operation::new(Kind::Put, self.index, at, src.len(), None);
        let mut state = self.fabric.state();
        operation.buffer = state.take_buffer(src.len());
        operation.buffer.copy_from_slice(src);
        operation.is_copied = true;
        state.post(to, operation).map(|_| ())
    }

    unsafe fn put(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        self.check_transfer(self.native.put, "put", len)?;
        let mut operation = Operation::new(Kind::Put, self.index, at, len, Some(tag));
        operation.source = MemoryPointer::source(src);
        self.post(to, operation)
    }

    fn data_bytes(&self, peer: PeerAddr) -> usize {
        let state = self.fabric.state();
        let endpoint = &state.endpoints[self.index];
        let target = endpoint.route_of(peer).map(|route| endpoint.routes[route].target);
        match target {
            Some(target) if !state.is_near(self.index, target) => state.config.data_bytes,
            _ => 0,
        }
    }

    unsafe fn put_with_data(
        &mut self,
        to: PeerAddr,
        src: *const u8,
        len: usize,
        at: RemoteAddr,
        tag: Tag,
        data: u64,
    ) -> Post {
        self.check_transfer(self.native.put, "put_with_data", len)?;
        if self.data_bytes(to) == 0 || len == 0 {
            let detail = format!("{len} bytes to {to:?}");
            return Err(self.refuse("data travel behind bytes, where they are carried", detail));
        }
        let mut operation = Operation::new(Kind::Put, self.index, at, len, Some(tag));
        operation.source = MemoryPointer::source(src);
        operation.data = Some(data);
        self.post(to, operation)
    }

    unsafe fn get(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        self.check_transfer(self.native.get, "get", len)?;
        let mut operation = Operation::new(Kind::Get, self.index, at, len, Some(tag));
        operation.result = MemoryPointer::new(dst);
        self.post(to, operation)
    }

    unsafe fn put_vector(
        &mut self,
        to: PeerAddr,
        from: &[LocalPiece],
        into: &[RemotePiece],
        tag: Tag,
    ) -> Post {
        let operation = self.vector(Kind::Put, self.native.put, from, into, tag)?;
        self.post(to, operation)
    }

    unsafe fn get_vector(
        &mut self,
        to: PeerAddr,
        into: &[LocalPiece],
        from: &[RemotePiece],
        tag: Tag,
    ) -> Post {
        let operation = self.vector(Kind::Get, self.native.get, into, from, tag)?;
        self.post(to, operation)
    }

    unsafe fn atomic(
        &mut self,
        to: PeerAddr,
        operand: *const u8,
        count: usize,
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
        tag: Tag,
    ) -> Post {
        self.check_atomic(NativeOps::has(&self.native_to(to).atomic, dtype, op), "atomic", dtype, op)?;
        let mut operation = Operation::new(Kind::Atomic, self.index, at, count * dtype.size(), Some(tag));
        operation.source = MemoryPointer::source(operand);
        operation.dtype = dtype;
        operation.reduce = op;
        self.post(to, operation)
    }

    unsafe fn fetch_atomic(
        &mut self,
        to: PeerAddr,
        operand: *const u8,
        result: *mut u8,
        count: usize,
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
        tag: Tag,
    ) -> Post {
        self.check_atomic(
            NativeOps::has(&self.native_to(to).fetch_atomic, dtype, op),
            "fetch_atomic",
            dtype,
            op,
        )?;
        let mut operation =
            Operation::new(Kind::FetchAtomic, self.index, at, count * dtype.size(), Some(tag));
        operation.source =
            if op == ReduceOp::NoOp { MemoryPointer::NULL } else { MemoryPointer::source(operand) };
        operation.result = MemoryPointer::new(result);
        operation.dtype = dtype;
        operation.reduce = op;
        self.post(to, operation)
    }

    unsafe fn compare_atomic(
        &mut self,
        to: PeerAddr,
        operand: *const u8,
        compare: *const u8,
        result: *mut u8,
        at: RemoteAddr,
        dtype: Dtype,
        tag: Tag,
    ) -> Post {
        let is_native = self.native_to(to).compare_atomic & (1 << dtype as u32) != 0;
        self.check_atomic(is_native, "compare_atomic", dtype, ReduceOp::Replace)?;
        let mut operation = Operation::new(Kind::CompareAtomic, self.index, at, dtype.size(), Some(tag));
        operation.source = MemoryPointer::source(operand);
        operation.compare = MemoryPointer::source(compare);
        operation.result = MemoryPointer::new(result);
        operation.dtype = dtype;
        self.post(to, operation)
    }

    unsafe fn assist(
        &mut self,
        to: PeerAddr,
        atomic: Atomic,
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
    ) -> bool {
        let mut operation = self.atomic_operation(atomic, at, dtype, op);
        operation.is_assisted = true;
        self.fabric.state().assist(to, operation)
    }

    fn send(
        &mut self,
        to: PeerAddr,
        header: &[u8],
        payload: &[u8],
        class: SendClass,
    ) -> Result<(), PostError> {
        self.fabric.state().send(self.index, to, [header, payload], class)
    }

    fn flush(&mut self, to: PeerAddr, tag: Tag) -> Post {
        self.post(to, Operation::flush(self.index, tag))
    }

    fn completes_at_once(&self, peer: PeerAddr) -> bool {
        let state = self.fabric.state();
        let endpoint = &state.endpoints[self.index];
        endpoint.route_of(peer).is_some_and(|route| state.is_near(self.index, endpoint.routes[route].target))
    }

    fn may_complete_at_once(&self) -> bool {
        self.fabric.state().config.near_ranks > 0
    }

    fn tell(&mut self, to: PeerAddr, at: RemoteAddr, word: u64) -> Result<bool, PostError> {
        let mut operation = Operation::new(Kind::Atomic, self.index, at, size_of::<u64>(), Some(Tag(0)));
        operation.source = MemoryPointer::source((&raw const word).cast());
        operation.dtype = Dtype::U64;
        operation.reduce = ReduceOp::Replace;
        let mut state = self.fabric.state();
        // What is done at once has no tag, and its source is free.
        if !state.is_done_at_once(to, &operation) {
            return Ok(false);
        }
        state.post(to, operation).map(|_| true)
    }

    unsafe fn put_now(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr) -> bool {
        if !self.native.put || len > self.limits.message_bytes_max || self.declines() {
            return false;
        }
        let mut operation = Operation::new(Kind::Put, self.index, at, len, Some(Tag(0)));
        operation.source = MemoryPointer::source(src);
        self.post_now(to, operation)
    }

    unsafe fn get_now(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr) -> bool {
        if !self.native.get || len > self.limits.message_bytes_max || self.declines() {
            return false;
        }
        let mut operation = Operation::new(Kind::Get, self.index, at, len, Some(Tag(0)));
        operation.result = MemoryPointer::new(dst);
        self.post_now(to, operation)
    }

    unsafe fn atomic_now(
        &mut self,
        to: PeerAddr,
        (atomic, count): (Atomic, usize),
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
    ) -> bool {
        self.do_atomic_now(to, (atomic, count), at, dtype, op)
    }

    fn swap_now<const N: usize>(&mut self, to: PeerAddr, swaps: [WordSwap; N]) -> Option<Swapped> {
        self.do_swaps_now(to, &swaps)
    }

    fn passage(&mut self, to: PeerAddr, words: Option<RemoteAddr>, memory: RemotePiece) -> Option<ByAddress> {
        Some(ByAddress::new(to, words, memory.at))
    }

    fn may_tell(&self) -> bool {
        self.may_complete_at_once() && NativeOps::has(&self.native_near.atomic, Dtype::U64, ReduceOp::Sum)
    }

    fn poll(&mut self, out: &mut CompletionBatch) -> usize {
        let mut state = self.fabric.state();
        let kept = state.endpoints[self.index].lent_data;
        if kept > 0 {
            state.violation(self.index, "data are released before the next poll", format!("{kept} are kept"));
        }
        let found = state.poll(self.index, out);
        if found == 0 && state.config.auto_advance {
            state.advance();
            return state.poll(self.index, out);
        }
        found
    }

    fn release(&mut self, packet: ReceivedPacket) {
        self.fabric.state().release(self.index, &packet);
    }
}

const PAGE_BYTES: usize = 4096;

/// What is native, and the atomics that lock windows.
fn with_locks(mut native: NativeOps) -> NativeOps {
    let (word, locks) = (Dtype::U64 as usize, native_locks());
    native.fetch_atomic[word] |= locks.fetch_atomic[word];
    native.atomic[word] |= locks.atomic[word];
    native.compare_atomic |= locks.compare_atomic;
    native
}

/// What one entry of a poll is taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    Completions,
    Inbox(SendClass),
    Downs,
}

impl State {
    fn poll(&mut self, index: usize, out: &mut CompletionBatch) -> usize {
        if !self.endpoints[index].is_up {
            return 0;
        }
        let empty_poll_per_mille = self.config.faults.empty_poll_per_mille;
        if self.endpoints[index].is_ready() && self.random.chance(empty_poll_per_mille) {
            return 0;
        }
        self.execute_work(index);
        let mut added = 0;
        while out.room() > 0 {
            let Some(source) = self.choose(index) else { break };
            let completion = match source {
                Source::Completions => self.next_completion(index),
                Source::Inbox(class) => self.hand_out(index, class),
                Source::Downs => self.endpoints[index]
                    .downs
                    .pop_front()
                    .map(|(peer, code): (_, FabricCode)| Completion::PeerDown(peer, code)),
            };
            let Some(completion) = completion else { break };
            if out.push(completion).is_err() {
                unreachable!("there was room");
            }
            added += 1;
        }
        added
    }

    /// Executes what waits for this process, a bounded number of requests.
    fn execute_work(&mut self, index: usize) {
        for _ in 0..WORK_PER_POLL {
            match self.endpoints[index].work.pop_front() {
                Some(Work::Packet(packet)) => {
                    self.endpoints[index].inboxes[packet.class as usize].push_back(packet);
                }
                Some(Work::Part(id, part)) => self.execute(id, part),
                None => break,
            }
        }
    }

    /// Which queue the next entry comes from: by chance, for nothing orders one against another.
    fn choose(&mut self, index: usize) -> Option<Source> {
        if self.is_manual {
            return self.endpoints[index].arrivals.pop_front();
        }
        let endpoint = &self.endpoints[index];
        let mut filled = [Source::Completions; 4];
        let mut count = 0;
        let sources = [
            (Source::Completions, !endpoint.completions.is_empty()),
            (Source::Inbox(SendClass::Request), endpoint.is_packet_due(SendClass::Request)),
            (Source::Inbox(SendClass::Reply), endpoint.is_packet_due(SendClass::Reply)),
            (Source::Downs, !endpoint.downs.is_empty()),
        ];
        for (source, _) in sources.into_iter().filter(|(_, is_filled)| *is_filled) {
            filled[count] = source;
            count += 1;
        }
        match count {
            0 => None,
            1 => Some(filled[0]),
            _ => Some(filled[self.random.index(count)]),
        }
    }

    fn next_completion(&mut self, index: usize) -> Option<Completion> {
        let endpoint = &mut self.endpoints[index];
        let shuffles = self.config.model.jitter_ns > 0;
        let chosen = if shuffles { self.random.index(endpoint.completions.len()) } else { 0 };
        let (tag, failed) = endpoint.completions.remove(chosen)?;
        Some(match failed {
            None => Completion::Done(tag),
            Some(code) => Completion::Failed(tag, code),
        })
    }

    fn hand_out(&mut self, index: usize, class: SendClass) -> Option<Completion> {
        let mut packet = self.endpoints[index].inboxes[class as usize].pop_front()?;
        let (origin, len) = (packet.origin, packet.bytes.len());
        self.note("receive", origin, index, len, 0);
        self.return_credit(origin, class);
        let endpoint = &mut self.endpoints[index];
        let buffer = endpoint.lent.iter().position(Option::is_none)?;
        let data = NonNull::new(packet.bytes.as_mut_ptr())?;
        // Moving the vector does not move its heap memory, which nobody touches until `release`.
        endpoint.lent_data += usize::from(packet.put.is_some());
        endpoint.lent[buffer] = Some(packet);
        endpoint.lent_counts[class as usize] += 1;
        Some(Completion::Packet(ReceivedPacket { data, len, buffer: buffer as u32 }))
    }

    fn release(&mut self, index: usize, packet: &ReceivedPacket) {
        let endpoint = &mut self.endpoints[index];
        let lent = endpoint.lent.get_mut(packet.buffer as usize).and_then(Option::take);
        let is_ours = |lent: &Packet| lent.bytes.as_ptr() == packet.data.as_ptr().cast_const();
        let Some(Packet { class, mut bytes, put, .. }) = lent.filter(is_ours) else {
            let detail = format!("buffer {} of {} bytes", packet.buffer, packet.len);
            return self.violation(index, "only a packet that was lent can be released", detail);
        };
        endpoint.lent_counts[class as usize] -= 1;
        endpoint.lent_data -= usize::from(put.is_some());
        bytes.fill(POISON);
        self.give_buffer(bytes);
    }
}
