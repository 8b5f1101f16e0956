//! Operations to a peer whose process has ended, over providers that do not notice it: shm, and udp's for minutes.
//!
//! The engine is told of each operation's end exactly once, so one that the provider keeps for ever is said to
//! have failed by the endpoint. Its buffer must not be touched any more by then. The peer runs no code, so the
//! provider could only act on what the peer had sent before; that lies in queues which the provider empties when
//! it is polled, and it is polled many times, for longer than a packet travels, before anything is given up.

use std::time::{Duration, Instant};

use rma_core::ids::{PeerAddr, Tag};
use rma_core::provider::{Completion, CompletionBatch, FabricCode};

use crate::endpoint::OfiEndpoint;
use crate::error::say;

/// Polls before operations are given up; each empties what the provider has received.
const POLLS: u32 = 256;

/// Time before operations are given up: far more than a packet travels.
const GRACE: Duration = Duration::from_millis(100);

/// A peer whose operations wait to be given up.
#[derive(Debug)]
pub(crate) struct Abandoned {
    peer: usize,
    code: FabricCode,
    since: Instant,
    polls: u32,
}

impl OfiEndpoint {
    /// See [`rma_core::provider::Endpoint::abandon`].
    pub(crate) fn abandon_peer(&mut self, peer: PeerAddr, code: FabricCode) {
        let index = peer.0 as usize;
        if self.peers.get(index).is_some_and(|peer| peer.connections > 0) {
            self.peer_lost(index, code);
            self.abandoned.push(Abandoned { peer: index, code, since: Instant::now(), polls: 0 });
        }
    }

    /// The provider was polled: gives up what it is time for.
    #[cold]
    #[inline(never)]
    pub(crate) fn settle_abandoned(&mut self) {
        let mut place = 0;
        while let Some(abandoned) = self.abandoned.get_mut(place) {
            abandoned.polls = abandoned.polls.saturating_add(1);
            if abandoned.polls < POLLS || abandoned.since.elapsed() < GRACE {
                place += 1;
                continue;
            }
            let Abandoned { peer, code, .. } = self.abandoned.swap_remove(place);
            self.give_up(peer, code);
        }
    }

    /// Ends everything in flight to the peer with an error. Slots stay the provider's until it says otherwise,
    /// and so do the buffers of packets on their way out: these belong to the endpoint and harm nobody.
    fn give_up(&mut self, peer: usize, code: FabricCode) {
        for index in 0..self.live.memory.sizes().tracked {
            let raw = self.live.memory.slot(index);
            // SAFETY: the slot exists, and the provider does not touch this member of it, nor those below.
            let of = unsafe { (*raw).peer } as usize;
            if of == peer && self.leaves_flight(index) {
                // SAFETY: as above.
                let tag = unsafe { (*raw).tag };
                // SAFETY: as above.
                unsafe { (*raw).is_given_up = true };
                self.disown_loan(index);
                self.ready.push_back(Completion::Failed(Tag(tag), code));
            }
        }
        if let Some(known) = self.peers.get_mut(peer) {
            known.outstanding = 0;
            if known.flushes > 0 {
                self.finish_flushes(peer);
            }
        }
    }
}

/// How long what is under way is waited for when an endpoint is dropped that stays open.
const LAST_WAIT: Duration = Duration::from_secs(10);

impl Drop for OfiEndpoint {
    /// Who closes an endpoint stops what it does. One that stays open goes on, and would write to memory that is somebody
    /// else's by then.
    fn drop(&mut self) {
        let since = Instant::now();
        while self.quirks.stays_open && self.is_under_way() {
            self.poll_queue(&mut CompletionBatch::new());
            if since.elapsed() >= LAST_WAIT {
                say(format_args!(
                    "operations of an endpoint that cannot be closed may still access the program's buffers, so the \
                     process ends here"
                ));
                std::process::abort();
            }
            std::thread::yield_now();
        }
    }
}

impl OfiEndpoint {
    /// Whether there are operations of which the provider has said nothing yet, but for those that were given up.
    fn is_under_way(&self) -> bool {
        (0..self.live.memory.sizes().tracked).any(|index| {
            let raw = self.live.memory.slot(index);
            // SAFETY: the slot exists, and the provider does not touch this member of it.
            unsafe { (*raw).is_in_flight }
        })
    }
}
