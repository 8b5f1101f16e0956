//! Operations in flight: posted, executed at the target in parts, answered, completed, each once.
#![allow(unsafe_code)]

use core::hash::{Hash, Hasher};

use rma_core::dtype::Dtype;
use rma_core::ids::Tag;
use rma_core::op::ReduceOp;
use rma_core::provider::{FabricCode, RemoteAddr};

use super::memory::{AccessError, MemoryPointer};
use super::state::{EventKind, State, ACCESS, PEER_DOWN};
use super::vector::{Accesses, Pieces};
use crate::arithmetic;

/// Names an operation; a name is never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OperationId {
    index: u32,
    generation: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Kind {
    Put,
    Get,
    Atomic,
    FetchAtomic,
    CompareAtomic,
    Flush,
}

impl Kind {
    /// Whether it writes at the target: what flushes wait for.
    fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::Flush)
    }

    fn is_atomic(self) -> bool {
        matches!(self, Self::Atomic | Self::FetchAtomic | Self::CompareAtomic)
    }
}

#[derive(Debug)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    pub(super) origin: usize,
    pub(super) route: usize,
    pub(super) target: usize,
    /// `None`: injected, reports nothing.
    pub(super) tag: Option<Tag>,
    pub(super) source: MemoryPointer,
    pub(super) compare: MemoryPointer,
    pub(super) result: MemoryPointer,
    pub(super) at: RemoteAddr,
    pub(super) len: usize,
    /// Of a put or get of several pieces; source or result, and `at`, are then those of the first.
    pub(super) pieces: Option<Pieces>,
    pub(super) dtype: Dtype,
    pub(super) reduce: ReduceOp,
    /// What a put's target gets behind its bytes.
    pub(super) data: Option<u64>,
    /// A put whose source was copied; the bytes on their way back of everything else.
    pub(super) buffer: Vec<u8>,
    pub(super) is_copied: bool,
    /// What an atomic in two steps is about to write.
    pub(super) update: Vec<u8>,
    pub(super) part_bytes: usize,
    pub(super) parts: u32,
    pub(super) unexecuted: u32,
    pub(super) unanswered: u32,
    /// Of a flush: writes that it still waits for.
    pub(super) waiting: usize,
    pub(super) number: u64,
    pub(super) posted_ns: u64,
    pub(super) failed: Option<FabricCode>,
    pub(super) is_reported: bool,
    /// Its completion does not wait for its execution.
    pub(super) completes_early: bool,
    /// All of it happens within the post.
    pub(super) is_at_once: bool,
    /// The target's process does it, which has atomics at any address.
    pub(super) is_assisted: bool,
}

/// The operations in flight of a whole fabric.
#[derive(Default, Debug)]
pub(super) struct Operations {
    slots: Vec<(u32, Option<Operation>)>,
    free: Vec<u32>,
    posted: u64,
    /// How many were executed to their end.
    pub(super) executed: u64,
}

impl Operations {
    pub(super) fn insert(&mut self, mut operation: Operation) -> OperationId {
        self.posted += 1;
        operation.number = self.posted;
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.0 += 1;
            slot.1 = Some(operation);
            return OperationId { index, generation: slot.0 };
        }
        self.slots.push((0, Some(operation)));
        OperationId { index: self.slots.len() as u32 - 1, generation: 0 }
    }

    pub(super) fn get(&self, id: OperationId) -> Option<&Operation> {
        let slot = &self.slots[id.index as usize];
        slot.1.as_ref().filter(|_| slot.0 == id.generation)
    }

    pub(super) fn get_mut(&mut self, id: OperationId) -> Option<&mut Operation> {
        let slot = &mut self.slots[id.index as usize];
        slot.1.as_mut().filter(|_| slot.0 == id.generation)
    }

    fn remove(&mut self, id: OperationId) -> Option<Operation> {
        self.get(id)?;
        self.free.push(id.index);
        self.slots[id.index as usize].1.take()
    }

    pub(super) fn reserve(&mut self, count: usize) {
        self.slots.reserve(count);
        self.free.reserve(count);
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn of_origin(&self, endpoint: usize) -> Vec<OperationId> {
        self.select(|operation| operation.origin == endpoint)
    }

    pub(super) fn of_target(&self, endpoint: usize) -> Vec<OperationId> {
        self.select(|operation| operation.target == endpoint)
    }

    /// Operations of a route whose tags are to come back.
    pub(super) fn outstanding(&self, endpoint: usize, route: usize) -> usize {
        let is_meant = |operation: &Operation| {
            let is_told = operation.is_reported || operation.tag.is_none();
            operation.origin == endpoint && operation.route == route && !is_told
        };
        self.slots.iter().filter(|slot| slot.1.as_ref().is_some_and(is_meant)).count()
    }

    fn select(&self, wanted: impl Fn(&Operation) -> bool) -> Vec<OperationId> {
        let named = self.slots.iter().enumerate();
        let chosen = named.filter(|(_, slot)| slot.1.as_ref().is_some_and(&wanted));
        chosen.map(|(index, slot)| OperationId { index: index as u32, generation: slot.0 }).collect()
    }
}

impl State {
    /// A part of an operation is executed: by the fabric, or in the target's poll.
    pub(super) fn execute(&mut self, id: OperationId, part: u32) {
        let Some(operation) = self.operations.get(id) else { return };
        if operation.failed.is_some() {
            return;
        }
        let (target, kind) = (operation.target, operation.kind);
        let registrations = &self.endpoints[target].registrations;
        let Operation { at, len, .. } = *operation;
        let access = match Accesses::find(registrations, at, len, operation.pieces.as_ref()) {
            Ok(access) => access,
            Err(error) => return self.refuse(id, error),
        };
        match kind {
            Kind::Put => self.execute_put(id, part, &access),
            Kind::Get => self.execute_get(id, part, &access),
            Kind::Flush => {}
            Kind::Atomic | Kind::FetchAtomic | Kind::CompareAtomic if part == 0 => {
                self.execute_atomic(id, &access);
            }
            _ => self.finish_atomic(id, &access),
        }
        let Some(operation) = self.operations.get_mut(id) else { return };
        operation.unexecuted -= 1;
        if operation.unexecuted == 0 {
            self.on_executed(id);
        }
    }

    fn execute_put(&mut self, id: OperationId, part: u32, access: &Accesses) {
        let Some(operation) = self.operations.get(id) else { return };
        let (start, len) = operation.part(part);
        let mut bytes = self.take_buffer(len);
        if let Some(operation) = self.operations.get(id) {
            operation.read_source(start, &mut bytes);
            access.write(start, &bytes);
        }
        self.give_buffer(bytes);
    }

    fn execute_get(&mut self, id: OperationId, part: u32, access: &Accesses) {
        let back_ns = self.now_ns + self.delay_ns();
        let Some(operation) = self.operations.get_mut(id) else { return };
        let (start, len) = operation.part(part);
        access.read(start, &mut operation.buffer[start..start + len]);
        self.come_back(back_ns, id, EventKind::Answer(id, part));
    }

    /// News of an operation reach its origin.
    fn come_back(&mut self, at_ns: u64, id: OperationId, news: EventKind) {
        let is_at_once = self.operations.get(id).is_some_and(|operation| operation.is_at_once);
        match news {
            EventKind::Answer(id, part) if is_at_once => drop(self.on_answer(id, part)),
            EventKind::Complete(id) if is_at_once => drop(self.on_complete(id)),
            news => self.schedule(at_ns, news),
        }
    }

    /// Reads, computes, and writes now or, where the atomic takes two steps, in the second one.
    fn execute_atomic(&mut self, id: OperationId, access: &Accesses) {
        let len = match self.operations.get(id) {
            Some(operation) => operation.len,
            None => return,
        };
        let mut new = self.take_buffer(len);
        let mut operand = self.take_buffer(len);
        let Some(operation) = self.operations.get_mut(id) else { return };
        access.read(0, &mut operation.buffer);
        new.copy_from_slice(&operation.buffer);
        if !operation.source.is_null() {
            operation.read_source(0, &mut operand);
        }
        let is_changed = if operation.kind == Kind::CompareAtomic {
            let mut compare = [0; Dtype::SIZE_MAX];
            // SAFETY: the poster promised one readable element until the tag comes back.
            unsafe { operation.compare.read(0, &mut compare[..len]) };
            arithmetic::equal(operation.dtype, &operation.buffer, &compare[..len])
                .then(|| new.copy_from_slice(&operand))
                .is_some()
        } else {
            arithmetic::reduce(operation.dtype, operation.reduce, &mut new, &operand)
        };
        if operation.unexecuted > 1 {
            operation.update.copy_from_slice(&new);
        } else if is_changed {
            access.write(0, &new);
        }
        self.give_buffer(new);
        self.give_buffer(operand);
    }

    fn finish_atomic(&mut self, id: OperationId, access: &Accesses) {
        let Some(operation) = self.operations.get(id) else { return };
        access.write(0, &operation.update);
    }

    /// All parts are executed: what was written is visible, what was read is on its way.
    fn on_executed(&mut self, id: OperationId) {
        let back_ns = self.now_ns + self.delay_ns();
        let Some(operation) = self.operations.get(id) else { return };
        let (kind, must_complete) = (operation.kind, operation.tag.is_some() && !operation.completes_early);
        let (origin, target, len) = (operation.origin, operation.target, operation.len);
        self.note("executed", origin, target, len, operation_detail(operation));
        self.operations.executed += 1;
        if kind.writes() {
            self.on_visible(id);
        }
        match kind {
            Kind::FetchAtomic | Kind::CompareAtomic => {
                self.come_back(back_ns, id, EventKind::Answer(id, 0));
            }
            Kind::Put | Kind::Atomic if must_complete => {
                self.come_back(back_ns, id, EventKind::Complete(id));
            }
            _ => self.finish_if_over(id),
        }
    }

    /// A write is visible, or will never be: flushes posted after it need not wait for it any more.
    fn on_visible(&mut self, id: OperationId) {
        let Some(&Operation { origin, route, number, .. }) = self.operations.get(id) else { return };
        let state = &mut self.endpoints[origin].routes[route];
        state.invisible -= 1;
        let flushes = core::mem::take(&mut state.flushes);
        for &flush in &flushes {
            let Some(operation) = self.operations.get_mut(flush) else { continue };
            if operation.number > number && operation.waiting > 0 {
                operation.waiting -= 1;
                if operation.waiting == 0 {
                    self.schedule_flush(flush);
                }
            }
        }
        self.endpoints[origin].routes[route].flushes = flushes;
    }

    /// Everything that the flush waits for is visible: the news travels back. Even with nothing to
    /// wait for it takes a round trip.
    pub(super) fn schedule_flush(&mut self, id: OperationId) {
        let there_and_back_ns = self.delay_ns() + self.config.model.latency_ns;
        let news_ns = self.now_ns + self.delay_ns();
        let Some(operation) = self.operations.get(id) else { return };
        let at_ns = news_ns.max(operation.posted_ns + there_and_back_ns);
        self.schedule(at_ns, EventKind::Complete(id));
    }

    pub(super) fn on_answer(&mut self, id: OperationId, part: u32) -> Option<usize> {
        let operation = self.operations.get_mut(id).filter(|operation| operation.failed.is_none())?;
        if !operation.result.is_null() {
            let (start, len) = match operation.kind {
                Kind::Get => operation.part(part),
                _ => (0, operation.len),
            };
            let bytes = &operation.buffer[start..start + len];
            match &operation.pieces {
                // SAFETY: the poster promised `len` writable bytes until the tag comes back, and it has not.
                None => unsafe { operation.result.write(start, bytes) },
                // SAFETY: as above, of all pieces together.
                Some(pieces) => unsafe { pieces.write(start, bytes) },
            }
        }
        operation.unanswered -= 1;
        let origin = operation.origin;
        if operation.unanswered == 0 {
            self.on_complete(id);
        }
        Some(origin)
    }

    /// The tag comes back. After this the origin's buffers are not touched any more.
    pub(super) fn on_complete(&mut self, id: OperationId) -> Option<usize> {
        self.copy_source(id);
        let operation = self.operations.get_mut(id)?;
        assert!(!operation.is_reported, "a tag comes back once");
        operation.is_reported = true;
        let (origin, target, len) = (operation.origin, operation.target, operation.len);
        let (tag, failed, detail) = (operation.tag, operation.failed, operation_detail(operation));
        let is_at_once = operation.is_at_once;
        if operation.kind == Kind::Flush {
            let route = operation.route;
            self.endpoints[origin].routes[route].flushes.retain(|&flush| flush != id);
        }
        if let Some(tag) = tag {
            self.endpoints[origin].outstanding -= 1;
            // What took its place within the post frees nothing that others were refused for.
            if !is_at_once {
                self.endpoints[origin].completions.push_back((tag, failed));
                self.endpoints[origin].note_resources();
            }
        }
        self.note(if failed.is_some() { "failed" } else { "complete" }, origin, target, len, detail);
        self.finish_if_over(id);
        Some(origin)
    }

    /// A put that completes before its last byte has left keeps a copy of the rest.
    fn copy_source(&mut self, id: OperationId) {
        let Some(operation) = self.operations.get(id) else { return };
        let is_read = match operation.kind {
            Kind::Put => operation.unexecuted == 0,
            _ => operation.unexecuted < operation.parts,
        };
        if is_read || !operation.kind.writes() || operation.is_copied || operation.source.is_null() {
            return;
        }
        let mut bytes = self.take_buffer(operation.len);
        let Some(operation) = self.operations.get_mut(id) else { return };
        operation.read_source(0, &mut bytes);
        // The buffer of an atomic will hold the old elements; its operand is kept where the new ones will be.
        let kept = if operation.kind == Kind::Put { &mut operation.buffer } else { &mut operation.update };
        let unused = core::mem::replace(kept, bytes);
        operation.is_copied = true;
        self.give_buffer(unused);
    }

    fn finish_if_over(&mut self, id: OperationId) {
        let Some(operation) = self.operations.get(id) else { return };
        let is_told = operation.is_reported || operation.tag.is_none();
        if is_told && operation.unexecuted == 0 && operation.unanswered == 0 {
            self.forget(id);
        }
    }

    /// Removes an operation whatever its state; events on their way for it will find nothing.
    pub(super) fn forget(&mut self, id: OperationId) {
        let Some(operation) = self.operations.remove(id) else { return };
        let endpoint = &mut self.endpoints[operation.origin];
        endpoint.routes[operation.route].unfinished -= 1;
        if operation.tag.is_none() {
            endpoint.injected -= 1;
            endpoint.note_resources();
        }
        self.give_buffer(operation.buffer);
        self.give_buffer(operation.update);
    }

    #[cold]
    fn refuse(&mut self, id: OperationId, error: AccessError) {
        let target = self.operations.get(id).map(|operation| operation.target);
        if target.is_some_and(|target| !self.endpoints[target].is_up) {
            return self.fail(id, PEER_DOWN);
        }
        self.access_violation(id, error);
        self.fail(id, ACCESS);
    }

    /// The operation will not be executed (any further): its tag comes back as failed.
    pub(super) fn fail(&mut self, id: OperationId, code: FabricCode) {
        let back_ns = self.now_ns + self.delay_ns();
        let Some(operation) = self.operations.get_mut(id) else { return };
        if operation.failed.is_some() {
            return;
        }
        operation.failed = Some(code);
        let is_invisible = operation.kind.writes() && operation.unexecuted > 0;
        let is_reported = operation.is_reported || operation.tag.is_none();
        operation.unexecuted = 0;
        operation.unanswered = 0;
        if is_invisible {
            self.on_visible(id);
        }
        if is_reported {
            self.forget(id);
        } else {
            self.schedule(back_ns, EventKind::Complete(id));
        }
    }
}

impl Operation {
    /// First byte and length of a part.
    fn part(&self, part: u32) -> (usize, usize) {
        let start = part as usize * self.part_bytes;
        (start, self.part_bytes.min(self.len - start))
    }

    /// Bytes of the source, from the copy if there is one.
    fn read_source(&self, start: usize, out: &mut [u8]) {
        if self.is_copied {
            let copy = if self.kind == Kind::Put { &self.buffer } else { &self.update };
            out.copy_from_slice(&copy[start..start + out.len()]);
        } else if let Some(pieces) = &self.pieces {
            // SAFETY: as below, of all pieces together.
            unsafe { pieces.read(start, out) };
        } else {
            // SAFETY: the poster promised `len` readable bytes until the tag comes back; it has not, or
            // the source would have been copied.
            unsafe { self.source.read(start, out) };
        }
    }

    pub(super) fn is_atomic(&self) -> bool {
        self.kind.is_atomic()
    }

    /// Hashes what becomes of it from here on. A source is hashed by what it holds, for it may lie in the
    /// engine, where it has another address in every run; the result of a get is the user's, at an address that stays.
    /// That of an atomic follows from its tag, which names what the engine has of it, and may lie in the engine, too.
    pub(super) fn hash_future(&self, hasher: &mut impl Hasher) {
        (self.kind, self.tag.map(|tag| tag.0), self.at.addr, self.at.key.0, self.len).hash(hasher);
        (self.dtype as u8, self.reduce as u8).hash(hasher);
        (!self.is_atomic()).then_some(self.result).hash(hasher);
        (self.parts, self.unexecuted, self.unanswered, self.waiting).hash(hasher);
        (self.failed.map(|code| code.code), self.is_reported, self.completes_early).hash(hasher);
        if let Some(pieces) = &self.pieces {
            pieces.hash_places(hasher, self.kind == Kind::Get);
        }
        if self.writes() && self.unexecuted > 0 && !self.source.is_null() {
            let mut bytes = vec![0; self.len];
            self.read_source(0, &mut bytes);
            bytes.hash(hasher);
        }
        if self.unanswered > 0 && self.unexecuted == 0 {
            self.buffer.hash(hasher);
        }
        if !self.compare.is_null() && self.unexecuted > 0 {
            let mut compare = vec![0; self.len];
            // SAFETY: the poster promised one readable element until the tag comes back.
            unsafe { self.compare.read(0, &mut compare) };
            compare.hash(hasher);
        }
    }

    pub(super) fn writes(&self) -> bool {
        self.kind.writes()
    }
}

fn operation_detail(operation: &Operation) -> u64 {
    operation.tag.map_or(u64::MAX, |tag| tag.0)
}
