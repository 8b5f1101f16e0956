//! The seam between the engine and a transport: one endpoint, passive and non-blocking.
//!
//! The contract, one conformance test per line (docs/provider.md):
//!
//! 1. No call blocks, calls up, or allocates once the endpoint is open (`connect` excepted).
//! 2. [`PostError::Again`] has no side effect; the same call may be made again after [`Endpoint::poll`].
//! 3. The tag of every operation that was accepted as [`Accepted::Tracked`] comes back exactly once, as
//!    [`Completion::Done`] or [`Completion::Failed`], also after the peer died. That of one accepted as
//!    [`Accepted::Complete`] never does.
//! 4. The packet of `send` and the source of `put_inject` are free for reuse on return.
//! 5. Packets of one class sent to one peer arrive in the order sent, each once, unchanged. A provider
//!    whose fabric promises no such order restores it. Requests and replies may pass each other.
//! 6. When [`Limits::put_completes`] is [`CompletionScope::Remote`], a completed put or atomic is
//!    visible to a CPU at the target, and to any rank that learns of the completion causally. When it
//!    is `Local`, a completed [`Endpoint::flush`] means that for everything posted to that peer before.
//! 7. Nothing is ordered but what [`Limits::order`] states.
//! 8. [`Endpoint::poll`] progresses the target role too; its work per call is bounded.
//! 9. Requests never take the room of replies, at neither end: [`SendClass::Reply`] is refused only
//!    while replies are in the way, and a reply is handed out even while every request handed out
//!    before is kept. Otherwise two ranks that hold each other's requests could wait for ever for the
//!    replies behind them.
//! 10. [`Endpoint::put_vector`] and [`Endpoint::get_vector`] move what one put or get of the pieces, put
//!     one behind the other, would, and are one operation with one tag; in which order the pieces are
//!     read and written is open. They are used within [`Limits::vector_local_max`] and
//!     [`Limits::vector_remote_max`] only, and not at all where both are 1. The lists of pieces are free
//!     on return.
//! 11. Memory of [`Endpoint::allocate`] is all zeros, belongs to whoever asked for it, and outlives the
//!     endpoint. On regions of it [`Endpoint::native_allocated`] works, which never has less than
//!     [`Endpoint::native`]. Atomics that only it has are atomic towards what the owner does as line 18 says.
//! 12. What is accepted as [`Accepted::Complete`] is complete as line 6 says of completed puts, whatever
//!     [`Limits::put_completes`] is, and its memory is free. It may have been done by loads and stores of the
//!     calling thread: who must not read, from here on, what is older than its effect passes a full fence
//!     before. What [`Limits::order`] states holds for it, too. Of a peer of whom
//!     [`Endpoint::completes_at_once`] says so nothing is tracked but what failed, whose memory is free as well.
//! 13. The data of [`Endpoint::put_with_data`] arrive once, as a request that is the [`Endpoint::data_bytes`] bytes of
//!     them, the low one first, and lines 5, 8 and 9 hold for it. It comes behind the bytes of its own put, which are
//!     visible then to the target's CPU, whatever [`Limits::put_completes`] is, and behind earlier puts as
//!     [`Limits::order`] says. The put's tag may say no more than that its source is free, whatever
//!     [`Limits::put_completes`] is: who has to know that it arrived hears of the data. Whoever is handed the request releases
//!     it before the next poll, as not every fabric can hold it back; a shortage of buffers, or requests that wait for one,
//!     may delay it and lose none. Of a put that failed it may come or not.
//! 14. [`Endpoint::tell`] sets its word as one store, whole, behind everything that the process has done before as far
//!     as anybody can see who has read the word with acquire; and everything that it has done is seen by everybody before
//!     what it reads afterwards, as behind a full fence. A thread of the peer's that sleeps ([`Endpoint::arm_wait`]) is woken,
//!     or has looked at its words after it had said so. What the endpoint says that it cannot set it never sets.
//! 15. [`Endpoint::assist`] has the peer's process do an atomic of one element, within a call of its own endpoint and by the
//!     code of [`crate::mem`]: atomic towards all that its engine does to the element. What was done is complete as line 12
//!     says; what was not done when the call returns never is. Packets that were sent before may come later. Nobody waits for a
//!     peer that does not look, nor, once it has ended, for one that has begun.
//! 16. What [`Endpoint::put_now`] and its like say that they have done is complete as
//!     line 12 says, and line 7's orders hold for it; otherwise nothing has happened, whatever the reason, that the same call,
//!     or the put or get itself, would not do again. Before what an
//!     atomic or a swap has changed is seen, everything is seen that the process has done before, and everything that it
//!     does afterwards is behind a full fence.
//! 17. What [`Endpoint::register_near`] registers at peers of whom [`Endpoint::completes_at_once`] says so, by the same wish,
//!     has the same key and the same first address at each, unless one of them has a region of that key already; and
//!     operations of such peers reach it.
//! 18. Where atomics of peers ([`Endpoint::atomic`] and its like, [`Endpoint::atomic_now`], [`Endpoint::assist`]) change elements of a region
//!     by their own processors, [`MemoryRegion::changes`] lets the owner take part: what it changes between its two calls, by an
//!     atomic for each element or in whatever way as it is told, is atomic towards each of theirs. [`Changes::begin`](crate::mem::Changes::begin) may wait for
//!     changes of peers, and not for the dead.
//! 19. What a [`Passage`] does is what [`Endpoint::swap_now`], [`Endpoint::swap_and_put_now`], [`Endpoint::put_now`],
//!     [`Endpoint::get_now`] and [`Endpoint::atomic_now`] would do there, as line 16 says, and no more once the region is gone,
//!     the peer is known to be lost or was disconnected, or the endpoint is gone.
#![allow(unsafe_code)] // declarations of unsafe traits and functions only

mod atomic;
mod completion;
mod limits;
mod memory;
mod passage;
mod place;
pub mod registrations;

use alloc::string::String;
use core::fmt;
use core::ptr::NonNull;

pub use atomic::{Atomic, Swapped, WordSwap};
pub use completion::{Completion, CompletionBatch, ReceivedPacket};
pub use limits::{CompletionScope, Limits, NativeOps, OpTable, Order, VECTOR_PIECES_MAX};
pub use memory::{Allocation, Mapping, MemoryRegion};
pub use passage::{ByAddress, NoPassage, Passage, WordChange};
pub use place::{LocalPiece, RemoteAddr, RemotePiece};

use crate::bootstrap::AddressBytes;
use crate::dtype::Dtype;
pub use crate::error::FabricCode;
use crate::ids::{PeerAddr, RemoteKey, Tag};
use crate::op::ReduceOp;

/// Why an operation was not posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// No resources now; nothing happened. Poll, then try again.
    Again,
    /// The operation cannot be posted to this peer, now or later.
    Failed(FabricCode),
}

/// How an operation was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepted {
    /// Its tag comes back when it is complete.
    Tracked,
    /// It is complete (line 12), and its tag does not come back. Only to peers of whom
    /// [`Endpoint::completes_at_once`] says so, or where there is nothing to do: no bytes, or a flush behind nothing.
    Complete,
}

/// The outcome of posting an operation.
pub type Post = Result<Accepted, PostError>;

/// The answer of providers without vectors.
const NO_VECTORS: FabricCode = FabricCode { code: 0, text: "the provider does not offer vectors" };

/// The answer of providers without data.
const NO_DATA: FabricCode = FabricCode { code: 0, text: "the provider does not carry data with puts" };

/// Whether a packet asks or answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendClass {
    /// May wait for resources.
    Request,
    /// Must find room sooner or later, whatever requests do.
    Reply,
}

/// Why an endpoint or a region could not be made, or a peer not be reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProviderError {
    /// What was being done, the provider's code and text, and what the user can do about it.
    pub message: String,
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for ProviderError {}

/// One endpoint of a transport, used by one thread at a time.
///
/// Only `send`, `poll` and `release` carry the engine; every other data call is used only when
/// [`NativeOps`] says that it works.
///
/// # Safety
/// An implementation promises the module's contract; the engine's soundness rests on line 3 (a tag
/// comes back once, and the memory of an operation is not touched after that), line 4, line 11, line 12, and on
/// [`ReceivedPacket`]s pointing to `len` readable bytes until released.
pub unsafe trait Endpoint: Send {
    /// A registered memory region.
    type Region: MemoryRegion;
    /// The way to a peer's lock and memory, for epochs that are repeated ([`NoPassage`] where there is none).
    type Passage: Passage<Self>;

    /// Sizes and orders.
    fn limits(&self) -> &Limits;

    /// What the fabric executes itself, on any memory that is registered.
    fn native(&self) -> &NativeOps;

    /// The same on memory of [`Endpoint::allocate`]. What all ranks can know without asking each other, since they
    /// must agree on it also where some of them have no memory in a window.
    fn native_allocated(&self) -> &NativeOps {
        self.native()
    }

    /// The same of peers to whom all is complete at once ([`Endpoint::completes_at_once`]), where they can do more than
    /// all peers can. This rank is such a peer itself, then.
    fn native_near(&self) -> &NativeOps {
        self.native_allocated()
    }

    /// Makes `len` bytes of memory at a multiple of `alignment` (0 or a power of two) and of a page, where the
    /// fabric reaches some memory better than other: where peers can map it, or on a device.
    fn allocate(&mut self, len: usize, alignment: usize) -> Allocation {
        let _ = (len, alignment);
        Allocation::Anywhere
    }

    /// What to publish so that others can [`Endpoint::connect`] to this endpoint.
    fn address(&self) -> AddressBytes;

    /// Makes a peer of a published address. Does not wait for the peer; may allocate.
    ///
    /// # Errors
    /// When the address is malformed or no route leads there.
    fn connect(&mut self, address: &AddressBytes) -> Result<PeerAddr, ProviderError>;

    /// Forgets a peer to which nothing is outstanding. Packets that were taken, and operations whose tags came
    /// back, still arrive.
    fn disconnect(&mut self, peer: PeerAddr);

    /// Registers `len` bytes at `base` for access by peers. `key` is a wish, the same at every rank;
    /// where the fabric lets the user choose keys the region has it.
    ///
    /// # Safety
    /// The memory stays valid, and is accessed by others only as shared mutable bytes, until the
    /// region is dropped.
    ///
    /// # Errors
    /// When the fabric refuses; the message names the limit and the remedy where one is known.
    unsafe fn register(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        key: RemoteKey,
    ) -> Result<Self::Region, ProviderError>;

    /// Registers memory for those peers alone of whom [`Endpoint::completes_at_once`] says so (line 17), whatever the fabric by
    /// which others are reached does with wishes. What those find under its key is open. The default, [`Endpoint::register`],
    /// does where there is one fabric for all.
    ///
    /// # Safety
    /// As for [`Endpoint::register`].
    ///
    /// # Errors
    /// As for [`Endpoint::register`].
    unsafe fn register_near(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        key: RemoteKey,
    ) -> Result<Self::Region, ProviderError> {
        // SAFETY: the caller's promise.
        unsafe { self.register(base, len, key) }
    }

    /// Writes `src` to the peer; the source is free on return. No completion of its own: covered by
    /// the next [`Endpoint::flush`] only. `src` is at most [`Limits::inject_bytes_max`].
    ///
    /// # Errors
    /// See [`PostError`].
    fn put_inject(&mut self, to: PeerAddr, src: &[u8], at: RemoteAddr) -> Result<(), PostError>;

    /// Writes `len` bytes from `src` to the peer.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes until the tag comes back.
    ///
    /// # Errors
    /// See [`PostError`].
    unsafe fn put(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr, tag: Tag) -> Post;

    /// Bytes of data that [`Endpoint::put_with_data`] carries to the connected peer: 4 or 8; 0 where it does not work.
    fn data_bytes(&self, peer: PeerAddr) -> usize {
        let _ = peer;
        0
    }

    /// Bytes up to which a put to the connected peer costs the fabric as much as a packet with the same bytes: then a small
    /// put had better ride in a packet that is sent anyway. 0: puts are cheaper.
    #[inline]
    fn packet_put_bytes_max(&self, peer: PeerAddr) -> usize {
        let _ = peer;
        0
    }

    /// Whether [`Endpoint::packet_put_bytes_max`] is more than 0 for some peers.
    fn puts_cost_packets(&self) -> bool {
        false
    }

    /// A put of at least one byte, as [`Endpoint::put`], behind which the peer gets the low bytes of `data`, as line 13
    /// says. Its receiver tells them from packets by their length: whoever uses this sends no packets of 8 bytes or less.
    ///
    /// # Safety
    /// As for [`Endpoint::put`].
    ///
    /// # Errors
    /// See [`PostError`]; where data are not carried, always `Failed`.
    unsafe fn put_with_data(
        &mut self,
        _to: PeerAddr,
        _src: *const u8,
        _len: usize,
        _at: RemoteAddr,
        _tag: Tag,
        _data: u64,
    ) -> Post {
        Err(PostError::Failed(NO_DATA))
    }

    /// Reads `len` bytes from the peer to `dst`.
    ///
    /// # Safety
    /// `dst` is writable for `len` bytes until the tag comes back.
    ///
    /// # Errors
    /// See [`PostError`].
    unsafe fn get(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr, tag: Tag) -> Post;

    /// Writes the bytes of `from`, one piece behind the other, to the pieces `into` of the peer. Both have
    /// as many bytes, together at most [`Limits::message_bytes_max`].
    ///
    /// # Safety
    /// The pieces of `from` are readable until the tag comes back.
    ///
    /// # Errors
    /// See [`PostError`]; where vectors are not offered, always `Failed`.
    unsafe fn put_vector(
        &mut self,
        _to: PeerAddr,
        _from: &[LocalPiece],
        _into: &[RemotePiece],
        _tag: Tag,
    ) -> Post {
        Err(PostError::Failed(NO_VECTORS))
    }

    /// Reads the bytes of the peer's pieces `from`, one behind the other, to the pieces of `into`. Both have
    /// as many bytes, together at most [`Limits::message_bytes_max`].
    ///
    /// # Safety
    /// The pieces of `into` are writable until the tag comes back.
    ///
    /// # Errors
    /// See [`PostError`]; where vectors are not offered, always `Failed`.
    unsafe fn get_vector(
        &mut self,
        _to: PeerAddr,
        _into: &[LocalPiece],
        _from: &[RemotePiece],
        _tag: Tag,
    ) -> Post {
        Err(PostError::Failed(NO_VECTORS))
    }

    /// `target = target op operand`, element-wise on `count` elements.
    ///
    /// # Safety
    /// `operand` is readable for `count` elements until the tag comes back.
    ///
    /// # Errors
    /// See [`PostError`].
    #[allow(clippy::too_many_arguments)]
    unsafe fn atomic(
        &mut self,
        to: PeerAddr,
        operand: *const u8,
        count: usize,
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
        tag: Tag,
    ) -> Post;

    /// The same, and the old elements go to `result`.
    ///
    /// # Safety
    /// `operand` is readable (it may be null for [`ReduceOp::NoOp`]) and `result` writable for
    /// `count` elements until the tag comes back.
    ///
    /// # Errors
    /// See [`PostError`].
    #[allow(clippy::too_many_arguments)]
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
    ) -> Post;

    /// `if target == compare { target = operand }`, one element; the old one goes to `result`.
    ///
    /// # Safety
    /// `operand` and `compare` are readable and `result` writable for one element until the tag
    /// comes back.
    ///
    /// # Errors
    /// See [`PostError`].
    #[allow(clippy::too_many_arguments)]
    unsafe fn compare_atomic(
        &mut self,
        to: PeerAddr,
        operand: *const u8,
        compare: *const u8,
        result: *mut u8,
        at: RemoteAddr,
        dtype: Dtype,
        tag: Tag,
    ) -> Post;

    /// Has a connected peer, of whom [`Endpoint::completes_at_once`] says so, do an atomic of one element of its registered
    /// memory by itself (line 15), if it looks just now; `op` says nothing of a swap. `false`: it has not, which is no shortage,
    /// and a packet does as well; so in the default.
    ///
    /// # Safety
    /// During the call the operands that are used are readable, and the result is writable, for one element.
    unsafe fn assist(
        &mut self,
        _to: PeerAddr,
        _atomic: Atomic,
        _at: RemoteAddr,
        _dtype: Dtype,
        _op: ReduceOp,
    ) -> bool {
        false
    }

    /// Sends one packet, the concatenation of both parts, at most [`Limits::send_bytes_max`]. Both
    /// parts are free on return. It has no completion; a failure surfaces as
    /// [`Completion::PeerDown`].
    ///
    /// # Errors
    /// See [`PostError`].
    fn send(
        &mut self,
        to: PeerAddr,
        header: &[u8],
        payload: &[u8],
        class: SendClass,
    ) -> Result<(), PostError>;

    /// Completes (by its tag) when everything posted to `to` before is complete in the sense of
    /// [`CompletionScope::Remote`]. Used only where [`Limits::put_completes`] is `Local`, or after
    /// [`Endpoint::put_inject`].
    ///
    /// # Errors
    /// See [`PostError`].
    fn flush(&mut self, to: PeerAddr, tag: Tag) -> Post;

    /// Whether each operation to the connected peer, flushes included, is accepted as [`Accepted::Complete`] unless it
    /// fails, as long as the peer is connected. Says nothing of packets.
    fn completes_at_once(&self, peer: PeerAddr) -> bool {
        let _ = peer;
        false
    }

    /// Whether [`Endpoint::completes_at_once`] can be true of any peer.
    fn may_complete_at_once(&self) -> bool {
        false
    }

    /// Sets the aligned 8 bytes at `at`, in memory of [`Endpoint::allocate`], of a connected peer of whom
    /// [`Endpoint::completes_at_once`] says so, and which no other process sets. `false`: it cannot, as where the memory is
    /// not in this process's reach; nothing has happened then, as in the default.
    ///
    /// # Errors
    /// See [`PostError`].
    fn tell(&mut self, to: PeerAddr, at: RemoteAddr, word: u64) -> Result<bool, PostError> {
        let _ = (to, at, word);
        Ok(false)
    }

    /// Whether [`Endpoint::tell`] can work for any peer.
    fn may_tell(&self) -> bool {
        false
    }

    /// [`Endpoint::put`], if it is complete when this returns. `false`, which is the default: nothing has happened that
    /// this put would not do again; it may be complete at once all the same.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes.
    unsafe fn put_now(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr) -> bool {
        let _ = (to, src, len, at);
        false
    }

    /// The same of [`Endpoint::get`].
    ///
    /// # Safety
    /// `dst` is writable for `len` bytes.
    unsafe fn get_now(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr) -> bool {
        let _ = (to, dst, len, at);
        false
    }

    /// The same of an atomic of `count` elements, at least one, and of one if it is a swap, of which `op` says nothing. What a
    /// peer's processor would have to do it does not; on each element it is atomic towards what that processor does there by
    /// atomic instructions, as when it executes packets.
    ///
    /// # Safety
    /// During the call the operands that are used are readable, and the result is writable, for as many elements.
    unsafe fn atomic_now(
        &mut self,
        to: PeerAddr,
        (atomic, count): (Atomic, usize),
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
    ) -> bool {
        let _ = (to, atomic, count, at, dtype, op);
        false
    }

    /// Swaps aligned words of 8 bytes, one after the other, each if it is as expected, up to the first that is not; as
    /// [`Endpoint::compare_atomic`] does, if all is complete when this returns. `None`: nothing has happened, which is the
    /// default.
    fn swap_now<const N: usize>(&mut self, to: PeerAddr, swaps: [WordSwap; N]) -> Option<Swapped> {
        let _ = (to, swaps);
        None
    }

    /// [`Endpoint::swap_now`], and behind it, if all words were as expected, [`Endpoint::put_now`]; the second answer says whether
    /// that was done. A provider that finds both places before it swaps has less to look up behind the swap.
    ///
    /// # Safety
    /// As for [`Endpoint::put_now`].
    #[inline]
    unsafe fn swap_and_put_now<const N: usize>(
        &mut self,
        to: PeerAddr,
        swaps: [WordSwap; N],
        (src, len): (*const u8, usize),
        at: RemoteAddr,
    ) -> Option<(Swapped, bool)> {
        let swapped = self.swap_now(to, swaps)?;
        // SAFETY: the caller's promise.
        let is_put = swapped.count == N && unsafe { self.put_now(to, src, len, at) };
        Some((swapped, is_put))
    }

    /// A way to the two words of a lock, beside each other, if one is wanted, and to memory of a peer of whom
    /// [`Endpoint::completes_at_once`] says so (line 19). `None`: it is not known yet, or there is none, which is the
    /// default. May allocate.
    fn passage(
        &mut self,
        to: PeerAddr,
        words: Option<RemoteAddr>,
        memory: RemotePiece,
    ) -> Option<Self::Passage> {
        let _ = (to, words, memory);
        None
    }

    /// Whether operations reach this place of a connected peer's memory, after one was refused there, or before the first.
    /// `false`: what this process is short of may come back, and nothing is wrong with the peer, whom packets reach.
    /// [`Endpoint::put_now`] and its like, which look nothing up, know of the place by this.
    fn reaches(&mut self, to: PeerAddr, at: RemoteAddr) -> bool {
        let _ = (to, at);
        true
    }

    /// Progresses everything, bounded, and says what happened. Returns how much it did: entries that it added, and what it
    /// did for peers by itself, which may come again soon.
    fn poll(&mut self, out: &mut CompletionBatch) -> usize;

    /// Whether a peer has left something for the next [`Endpoint::poll`], as a look at this process's memory shows: for who
    /// waits for something else, and serves its peers meanwhile. `false`, which is the default, says nothing.
    fn has_news(&self) -> bool {
        false
    }

    /// Takes a packet's buffer back.
    fn release(&mut self, packet: ReceivedPacket);

    /// The peer's process has ended, as the launcher says: posts to it fail from now on, and what is in flight to
    /// it comes back as [`Completion::Failed`], within bounded time. Fabrics that notice such an end by
    /// themselves need not do anything, which is the default.
    fn abandon(&mut self, peer: PeerAddr, code: FabricCode) {
        let _ = (peer, code);
    }

    /// A file descriptor that becomes readable when [`Endpoint::poll`] has something to do, for a
    /// thread that wants to sleep; `None` where the fabric has none.
    fn wait_fd(&self) -> Option<i32> {
        None
    }

    /// Whether the descriptor, once [`Endpoint::arm_wait`] has said `true`, is readable only while something is there.
    /// Then it is enough to watch it while somebody sleeps. A descriptor that stays readable must be watched for changes
    /// all the time, which costs the kernel something for all that arrives.
    fn wait_fd_settles(&self) -> bool {
        false
    }

    /// Prepares to sleep on [`Endpoint::wait_fd`]. `false`: poll again first, something is there.
    fn arm_wait(&mut self) -> bool {
        false
    }
}
