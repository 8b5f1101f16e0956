//! What is known about each provider beyond what it says of itself.
//!
//! `fi_info` is a claim, and some claims are wrong: a provider may accept "delivery complete" and drop
//! it, or report automatic progress that it does not have. A row here says how to reach remote
//! completion on a provider, which of its claims hold, and how much it is liked when the user names
//! none. "Measured" means observed by the contract tests of this crate; the rest comes from the
//! providers' documentation and sources.

/// How a put is made visible at the target before it is called complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteCompletion {
    /// The put itself completes only when the target's memory holds the bytes
    /// (`FI_DELIVERY_COMPLETE`).
    DeliveryComplete,
    /// Puts complete locally; a flush reads a few bytes back from the target, and the fabric does not
    /// let a read overtake the writes before it. Safe where a broken connection stays broken (verbs).
    /// The tcp providers connect again by themselves, so there a put that was lost with the old
    /// connection would go unnoticed: on those it serves to measure, not to rely on.
    ReadBack,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// `fabric_attr.prov_name` as libfabric returns it.
    pub provider: &'static str,
    /// The provider with the largest number is chosen when the user names none; with 0 it is used
    /// only when named.
    pub preference: u8,
    /// How puts become visible.
    pub remote_completion: RemoteCompletion,
    /// Whether puts and gets proceed only while the target's process polls.
    pub needs_target_progress: bool,
    /// Tracked operations that it bears outstanding at one time.
    pub outstanding_max: usize,
    /// Whether peers listen on a tcp socket at their address, so that their death can be seen there:
    /// these providers do not report it unless something is in flight.
    pub listens_on_tcp: bool,
    /// What to believe less of, or to ask for in another way.
    pub quirks: Quirks,
    /// Why the row is what it is.
    pub reason: &'static str,
}

/// What a provider does otherwise than its `fi_info` lets expect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quirks {
    /// The orders between puts, gets and packets that it claims do not hold, so none is relied on.
    pub disorders: bool,
    /// Asked to accept virtual addresses (`FI_MR_VIRT_ADDR`), it gives other things up; it is not asked.
    pub prefers_offsets: bool,
    /// An address that was taken out of its table cannot be put in again, so addresses stay in.
    pub keeps_addresses: bool,
    /// Puts and gets name one piece of memory at each side, whatever it claims: its calls for several have
    /// not been measured, or are not there.
    pub single_pieces: bool,
    /// Closing an endpoint may end the process, so endpoints stay open as long as that.
    pub stays_open: bool,
}

impl Quirks {
    /// A provider that does what it says.
    pub const NONE: Self = Self {
        disorders: false,
        prefers_offsets: false,
        keeps_addresses: false,
        single_pieces: false,
        stays_open: false,
    };

    /// A provider that is asked for nothing but single pieces.
    const SINGLE_PIECES: Self = Self { single_pieces: true, ..Self::NONE };
}

impl Profile {
    /// The row for a provider name; a cautious one for names that are not in the table.
    pub fn of(provider: &str) -> &'static Self {
        PROFILES.iter().find(|row| row.provider == provider).unwrap_or(&UNKNOWN)
    }

    /// Whether its descriptor has been measured to be readable, once `fi_trywait` has succeeded, only while something is
    /// there. That of `net` stays readable for ever, as its `fi_trywait` resets nothing, and so did that of `tcp` first (1.18.0).
    pub fn settles(&self, library_version: (u32, u32)) -> bool {
        self.provider == "tcp" && library_version >= (1, 19)
    }

    /// Whether a write has been measured to cost as much as a packet of the same bytes: it is one, of the provider's own, and
    /// is answered by another.
    pub fn writes_cost_packets(&self) -> bool {
        matches!(self.provider, "net" | "tcp")
    }

    /// Whether a write that is short enough to be injected is one piece for the kernel then, header and bytes, and reports its
    /// completion and its loss all the same if it is asked to: read in the sources of 1.16 to 2.6. `ofi_rxm` makes a copy
    /// more of it instead.
    pub fn sends_short_writes_whole(&self) -> bool {
        matches!(self.provider, "net" | "tcp")
    }

    /// Whether a message has been measured to cost system calls and an answer, and what is in it little beside: over one stream
    /// of bytes. There puts that follow each other are [gathered](crate::Options::gather).
    pub fn messages_cost_calls(&self) -> bool {
        matches!(self.provider, "net" | "tcp" | "tcp;ofi_rxm")
    }

    /// Whether data of puts have been measured to come once, behind their put, and in the order of packets: where one
    /// stream of bytes carries both, and a packet without a receive buffer stops the stream. `ofi_rxm` reads on: it keeps
    /// such a packet aside, and fetches large ones later, and data pass both. What other providers say of themselves does
    /// not tell.
    pub fn carries_data(&self) -> bool {
        matches!(self.provider, "net" | "tcp")
    }
}

use RemoteCompletion::{DeliveryComplete, ReadBack};

/// Every provider that is known, most preferred first.
pub const PROFILES: [Profile; 12] = [
    Profile {
        provider: "cxi",
        preference: 90,
        remote_completion: DeliveryComplete,
        needs_target_progress: false,
        outstanding_max: usize::MAX,
        listens_on_tcp: false,
        quirks: Quirks::NONE,
        reason: "Slingshot hardware; delivery-complete is a flushing read by the target's NIC",
    },
    Profile {
        provider: "efa",
        preference: 85,
        remote_completion: DeliveryComplete,
        needs_target_progress: true,
        outstanding_max: usize::MAX,
        listens_on_tcp: false,
        quirks: Quirks::NONE,
        reason: "EFA hardware; puts may be emulated by packets, and nothing is ordered but messages",
    },
    Profile {
        provider: "verbs;ofi_rxm",
        preference: 80,
        remote_completion: ReadBack,
        needs_target_progress: false,
        outstanding_max: usize::MAX,
        listens_on_tcp: false,
        quirks: Quirks { stays_open: true, ..Quirks::NONE },
        reason: "InfiniBand or RoCE hardware; delivery-complete is accepted and then dropped, but a read \
                 does not overtake writes; atomics are emulated by packets; ofi_rxm closes its connections' \
                 endpoints before it has read what is left of them (libfabric issue 11828, up to 2.4)",
    },
    Profile {
        provider: "psm3",
        preference: 75,
        remote_completion: DeliveryComplete,
        needs_target_progress: true,
        outstanding_max: usize::MAX,
        listens_on_tcp: false,
        quirks: Quirks::SINGLE_PIECES,
        reason: "Intel Ethernet or Omni-Path through PSM3; puts are active messages",
    },
    Profile {
        provider: "tcp",
        preference: 60,
        remote_completion: DeliveryComplete,
        needs_target_progress: true,
        outstanding_max: usize::MAX,
        listens_on_tcp: true,
        quirks: Quirks::NONE,
        reason:
            "plain sockets, native reliable datagrams (libfabric 1.18 and later); delivery-complete is an \
                 acknowledgement by the target's software; automatic progress is claimed and not there",
    },
    Profile {
        provider: "net",
        preference: 55,
        remote_completion: DeliveryComplete,
        needs_target_progress: true,
        outstanding_max: usize::MAX,
        listens_on_tcp: true,
        quirks: Quirks::NONE,
        reason: "the name of native tcp in libfabric 1.16 and 1.17; faster than tcp;ofi_rxm by one layer; \
                 claims atomics and supports none",
    },
    Profile {
        provider: "tcp;ofi_rxm",
        preference: 50,
        remote_completion: DeliveryComplete,
        needs_target_progress: true,
        outstanding_max: usize::MAX,
        listens_on_tcp: true,
        quirks: Quirks::NONE,
        reason: "plain sockets, one layer more than native tcp; delivery-complete is tcp's acknowledgement",
    },
    Profile {
        provider: "sockets",
        preference: 20,
        remote_completion: DeliveryComplete,
        needs_target_progress: true,
        outstanding_max: usize::MAX,
        listens_on_tcp: false,
        quirks: Quirks::NONE,
        reason: "deprecated and slow, but complete: useful for tests",
    },
    Profile {
        provider: "udp;ofi_rxd",
        preference: 10,
        remote_completion: DeliveryComplete,
        needs_target_progress: true,
        outstanding_max: 64,
        listens_on_tcp: false,
        quirks: Quirks::NONE,
        reason: "reliable datagrams in software over udp; not extensively tested by its authors: reports no \
                 dead peer, has no descriptor to sleep on, and stops for ever with some \
                 hundred operations outstanding (960 stopped it, 128 did not), and never answers a wrong key",
    },
    Profile {
        provider: "shm",
        preference: 0,
        remote_completion: DeliveryComplete,
        needs_target_progress: true,
        outstanding_max: usize::MAX,
        listens_on_tcp: false,
        quirks: Quirks { disorders: true, prefers_offsets: true, keeps_addresses: true, ..Quirks::NONE },
        reason: "one host only, for at most 256 ranks, and only when named: installs signal handlers in the \
                 program, never reports a dead peer, has no descriptor to sleep on, and a put that \
                 is copied piece by piece is overtaken by what follows it",
    },
    Profile {
        provider: "efa-direct",
        preference: 0,
        remote_completion: DeliveryComplete,
        needs_target_progress: false,
        outstanding_max: usize::MAX,
        listens_on_tcp: false,
        quirks: Quirks::NONE,
        reason: "keeps no order of messages at all",
    },
    Profile {
        provider: "opx",
        preference: 0,
        remote_completion: DeliveryComplete,
        needs_target_progress: true,
        outstanding_max: usize::MAX,
        listens_on_tcp: false,
        quirks: Quirks::SINGLE_PIECES,
        reason: "does not promise the order of messages",
    },
];

/// Used for names that are not in the table.
const UNKNOWN: Profile = Profile {
    provider: "",
    preference: 0,
    remote_completion: DeliveryComplete,
    needs_target_progress: true,
    outstanding_max: usize::MAX,
    listens_on_tcp: false,
    quirks: Quirks::SINGLE_PIECES,
    reason: "unknown to this program: used only when named, with what it says of itself",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_unique_and_sorted_by_preference() {
        for pair in PROFILES.windows(2) {
            assert!(pair[0].preference >= pair[1].preference, "{} {}", pair[0].provider, pair[1].provider);
        }
        for (index, row) in PROFILES.iter().enumerate() {
            assert!(PROFILES[index + 1..].iter().all(|other| other.provider != row.provider));
        }
    }

    #[test]
    fn a_provider_that_takes_over_signals_is_never_a_default() {
        assert_eq!(Profile::of("shm").preference, 0);
        assert_eq!(Profile::of("something-new").preference, 0);
    }
}
