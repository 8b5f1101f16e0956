//! The network between emulated devices: what becomes of requests that were posted.

use core::ffi::c_uint;
use core::ptr;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};

use super::types::*;
use crate::events::Event;

/// Requests of a send queue at most.
pub(super) const DEPTH: usize = 24;
/// Times that a request is tried at a queue pair that does not answer.
pub(super) const TRIES: u32 = 2_000;

#[derive(Default)]
pub(super) struct Network {
    pub(super) mrs: HashMap<u32, (usize, usize)>,
    pub(super) cqs: HashMap<usize, VecDeque<Entry>>,
    pub(super) srqs: HashMap<usize, VecDeque<(u64, ibv_sge)>>,
    pub(super) qps: HashMap<u32, Pair>,
    /// Asynchronous events, by context.
    pub(super) events: HashMap<usize, VecDeque<ibv_async_event>>,
    pub(super) last_number: u32,
    pub(super) random: u64,
    pub(super) trouble: Trouble,
}

/// What may be wrong.
#[derive(Clone, Copy, Default)]
pub(crate) struct Trouble {
    /// No way is found, and a datagram breaks its queue pair.
    pub(crate) is_port_down: bool,
    /// There is no memory for queue pairs.
    pub(crate) makes_no_queues: bool,
    /// Queue pairs of connections may receive, and not send.
    pub(crate) lets_none_send: bool,
}

pub(super) struct Entry {
    pub(super) wc: ibv_wc,
    /// Requests of the send queue that are free again when this was read.
    pub(super) frees: usize,
}

pub(super) struct Request {
    pub(super) id: u64,
    pub(super) opcode: c_uint,
    pub(super) data: u32,
    pub(super) is_reported: bool,
    pub(super) inline: Option<Vec<u8>>,
    pub(super) pieces: Vec<ibv_sge>,
    pub(super) addr: u64,
    pub(super) rkey: u32,
    pub(super) operands: [u64; 2],
    pub(super) to_datagram_queue: u32,
}

pub(super) struct Pair {
    /// The objects that this is.
    pub(super) context: usize,
    pub(super) object: usize,
    pub(super) kind: c_uint,
    pub(super) state: c_uint,
    pub(super) partition: u16,
    pub(super) cq: usize,
    pub(super) srq: usize,
    pub(super) own_receives: VecDeque<(u64, ibv_sge)>,
    pub(super) remote: u32,
    pub(super) sends: VecDeque<Request>,
    /// Requests posted, minus those behind which a completion was read.
    pub(super) used: usize,
    /// Requests executed since the last that was reported.
    pub(super) unreported: usize,
    pub(super) tries: u32,
}

thread_local! {
    static NETWORK: RefCell<Network> = RefCell::new(Network { random: 88, ..Network::default() });
}

pub(super) fn with<T>(body: impl FnOnce(&mut Network) -> T) -> T {
    NETWORK.with(|network| body(&mut network.borrow_mut()))
}

impl Network {
    pub(super) fn random_below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    pub(super) fn next_number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }

    pub(super) fn complete(
        &mut self,
        cq: usize,
        qp_num: u32,
        id: u64,
        status: c_uint,
        len: usize,
        frees: usize,
    ) {
        // SAFETY: numbers only, for which zero is a value.
        let mut wc: ibv_wc = unsafe { core::mem::zeroed() };
        (wc.wr_id, wc.status, wc.byte_len, wc.qp_num) = (id, status, len as u32, qp_num);
        self.cqs.get_mut(&cq).expect("a queue that exists").push_back(Entry { wc, frees });
    }

    /// A queue pair is as it was made, but what had completed before is still told of, and of receives only now.
    pub(super) fn reset(&mut self, number: u32) {
        let Some(pair) = self.qps.get_mut(&number) else { return };
        pair.sends.clear();
        let (cq, flushed) = (pair.cq, core::mem::take(&mut pair.own_receives));
        (pair.used, pair.unreported, pair.tries) = (0, 0, 0);
        for (id, _) in flushed {
            self.complete(cq, number, id, IBV_WC_WR_FLUSH_ERR, 0, 0);
        }
        for entry in self.cqs.values_mut().flatten().filter(|entry| entry.wc.qp_num == number) {
            entry.frees = 0;
        }
    }

    /// An event that the device says without being asked.
    pub(super) fn raise(&mut self, context: usize, event: Event) {
        let Event { kind: event_type, element } = event;
        self.events.entry(context).or_default().push_back(ibv_async_event { element, event_type });
        // SAFETY: contexts live as long as what was made of them.
        let descriptor = unsafe { (*(context as *const ibv_context)).async_fd };
        // SAFETY: takes a descriptor and a number.
        unsafe { libc::eventfd_write(descriptor, 1) };
    }

    /// Executes some requests of each queue pair.
    pub(super) fn run(&mut self) {
        let is_busy = |&(_, pair): &(&u32, &Pair)| !pair.sends.is_empty();
        let mut numbers: Vec<u32> = self.qps.iter().filter(is_busy).map(|(&number, _)| number).collect();
        numbers.sort_unstable();
        for number in numbers {
            for _ in 0..self.random_below(6) {
                if !self.step(number) {
                    break;
                }
            }
        }
    }

    /// Executes the next request of a queue pair; whether there was one that could be.
    pub(super) fn step(&mut self, number: u32) -> bool {
        let Some(pair) = self.qps.get_mut(&number) else { return false };
        let Some(request) = pair.sends.pop_front() else { return false };
        let outcome = match (pair.state, pair.kind) {
            (IBV_QPS_ERR, _) => Some(IBV_WC_WR_FLUSH_ERR),
            (IBV_QPS_RTS, IBV_QPT_UD) => self.datagram(&request),
            (IBV_QPS_RTS, _) => self.execute(number, &request),
            _ => panic!("a request on a queue pair that is not ready"),
        };
        let Some(pair) = self.qps.get_mut(&number) else { return false };
        let Some(status) = outcome else {
            pair.sends.push_front(request);
            return false;
        };
        pair.unreported += 1;
        if request.is_reported || status != IBV_WC_SUCCESS {
            let (cq, frees) = (pair.cq, core::mem::take(&mut pair.unreported));
            let mut flushed = VecDeque::new();
            if status != IBV_WC_SUCCESS {
                pair.state = IBV_QPS_ERR;
                // The device is late with half of them.
                let told = pair.own_receives.len() / 2;
                flushed = pair.own_receives.drain(..told).collect();
            }
            self.complete(cq, number, request.id, status, 0, frees);
            for (id, _) in flushed {
                self.complete(cq, number, id, IBV_WC_WR_FLUSH_ERR, 0, 0);
            }
        }
        true
    }

    pub(super) fn datagram(&mut self, request: &Request) -> Option<c_uint> {
        if self.trouble.is_port_down {
            return Some(2);
        }
        let is_lost = self.random_below(4) == 0;
        let bytes = gather(request);
        let to = request.to_datagram_queue;
        let receives = |pair: &&mut Pair| {
            pair.kind == IBV_QPT_UD && matches!(pair.state, IBV_QPS_RTR | IBV_QPS_RTS) && !is_lost
        };
        let Some(target) = self.qps.get_mut(&to).filter(receives) else {
            return Some(IBV_WC_SUCCESS);
        };
        let cq = target.cq;
        if let Some((id, place)) = target.own_receives.pop_front() {
            scatter(&[ibv_sge { addr: place.addr + GRH_BYTES as u64, ..place }], &bytes);
            self.complete(cq, to, id, IBV_WC_SUCCESS, GRH_BYTES + bytes.len(), 0);
        }
        Some(IBV_WC_SUCCESS)
    }

    /// The status; `None` where the request has to wait.
    pub(super) fn execute(&mut self, number: u32, request: &Request) -> Option<c_uint> {
        let pair = self.qps.get_mut(&number)?;
        let remote = pair.remote;
        pair.tries += 1;
        let is_late = pair.tries > TRIES;
        let answers =
            |target: &&mut Pair| matches!(target.state, IBV_QPS_RTR | IBV_QPS_RTS) && target.remote == number;
        let Some(target) = self.qps.get_mut(&remote).filter(answers) else {
            return is_late.then_some(12);
        };
        if request.opcode == IBV_WR_SEND {
            let (cq, srq) = (target.cq, target.srq);
            let (id, place) = self.srqs.get_mut(&srq)?.pop_front()?;
            let bytes = gather(request);
            scatter(&[place], &bytes);
            self.complete(cq, remote, id, IBV_WC_SUCCESS, bytes.len(), 0);
        } else {
            let len: usize = request.pieces.iter().map(|piece| piece.length as usize).sum();
            let (base, room) = self.mrs.get(&request.rkey).copied().unwrap_or((0, 0));
            let offset = (request.addr as usize).wrapping_sub(base);
            if len > 0 && offset.checked_add(len).is_none_or(|end| end > room) {
                target.state = IBV_QPS_ERR;
                let event = Event { kind: IBV_EVENT_QP_ACCESS_ERR, element: target.object as u64 };
                let context = target.context;
                self.raise(context, event);
                return Some(10);
            }
            if request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM {
                let (cq, srq) = (target.cq, target.srq);
                let (id, _) = self.srqs.get_mut(&srq)?.pop_front()?;
                remote_access(request, len);
                self.complete(cq, remote, id, IBV_WC_SUCCESS, len, 0);
                let entry = self.cqs.get_mut(&cq).and_then(VecDeque::back_mut)?;
                (entry.wc.opcode, entry.wc.imm_data) = (IBV_WC_RECV_RDMA_WITH_IMM, request.data);
            } else {
                remote_access(request, len);
            }
        }
        self.qps.get_mut(&number)?.tries = 0;
        Some(IBV_WC_SUCCESS)
    }
}

/// A put, get or atomic whose target was checked.
pub(super) fn remote_access(request: &Request, len: usize) {
    let place = [ibv_sge { addr: request.addr, length: len as u32, lkey: 0 }];
    let word = request.addr as *mut u64;
    match request.opcode {
        IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => scatter(&place, &gather(request)),
        IBV_WR_RDMA_READ => scatter(&request.pieces, &read(&place)),
        opcode => {
            // SAFETY: within registered memory, and aligned, as the provider has checked.
            let old = unsafe { word.read_volatile() };
            let [first, second] = request.operands;
            let new = match opcode {
                IBV_WR_ATOMIC_FETCH_AND_ADD => old.wrapping_add(first),
                _ if old == first => second,
                _ => old,
            };
            // SAFETY: as above.
            unsafe { word.write_volatile(new) };
            scatter(&request.pieces, &old.to_ne_bytes());
        }
    }
}

pub(super) fn gather(request: &Request) -> Vec<u8> {
    request.inline.clone().unwrap_or_else(|| read(&request.pieces))
}

pub(super) fn read(pieces: &[ibv_sge]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        // SAFETY: the poster keeps the memory until the completion.
        bytes.extend_from_slice(unsafe {
            core::slice::from_raw_parts(piece.addr as *const u8, piece.length as usize)
        });
    }
    bytes
}

pub(super) fn scatter(pieces: &[ibv_sge], mut bytes: &[u8]) {
    for piece in pieces {
        let (now, rest) = bytes.split_at(bytes.len().min(piece.length as usize));
        // SAFETY: the poster keeps the memory until the completion, or it is registered.
        unsafe { ptr::copy_nonoverlapping(now.as_ptr(), piece.addr as *mut u8, now.len()) };
        bytes = rest;
    }
    assert!(bytes.is_empty(), "more bytes than the pieces hold");
}
