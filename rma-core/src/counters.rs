//! What happened, in figures that do not depend on the hardware. Readable at any time.

use crate::wire::PacketKind;

/// Counts since the engine was opened (or since [`Counters::since`]'s argument was read).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[allow(missing_docs)] // the names say it; units are in the names
pub struct Counters {
    /// Packets sent, by [`PacketKind`].
    pub packets_sent: [u64; PacketKind::COUNT],
    /// Packets received, by [`PacketKind`].
    pub packets_received: [u64; PacketKind::COUNT],
    pub packet_bytes_sent: u64,
    pub packet_bytes_received: u64,
    /// Native puts, gets and atomics posted to the fabric; and atomics of messages that this processor did in a neighbour's
    /// memory.
    pub native_puts: u64,
    /// Of the puts, those whose data ended an epoch.
    pub native_puts_with_data: u64,
    pub native_gets: u64,
    /// As many as calls of the fabric: some take several elements.
    pub native_atomics: u64,
    pub native_flushes: u64,
    /// Bytes of native puts, gets and atomics, and of atomics that neighbours did.
    pub native_bytes: u64,
    /// Operations that travelled as packets, and those on this process itself.
    pub message_operations: u64,
    pub self_operations: u64,
    /// Bytes of payloads and results that this process copied for operations with an element or a packet: into elements,
    /// packets, windows and results. What a provider copies is not among them.
    pub payload_bytes_copied: u64,
    /// Questions to targets whose post notices found no room here.
    pub post_queries: u64,
    /// Round trips that a synchronization call waited for, one after the other.
    pub round_trips: u64,
    /// Barriers that a fence waited for.
    pub barriers_waited: u64,
    /// Times an element had to be won back, and times a lock queue was full.
    pub restored_targets: u64,
    pub restored_operations: u64,
    pub lock_retries: u64,
    /// Atomics on locks that are words; those that found the lock taken, and were tried again, are lock retries, too.
    pub lock_atomics: u64,
    /// Atomics that neighbours did when they were asked, in the place of packets.
    pub assists: u64,
    /// What neighbours were told by a word of their memory: each takes the place of a packet.
    pub words_told: u64,
    /// Most elements in use at one time, over all windows.
    pub operations_in_use_max: u64,
    pub targets_in_use_max: u64,
    /// Posts that the fabric put off, and packets that made no sense.
    pub again: u64,
    pub malformed_packets: u64,
}

impl Counters {
    /// Packets and native operations sent towards targets; what ghosts are told of
    /// addresses and deaths is no operation's.
    pub fn out(&self) -> u64 {
        let packets = self.packets_sent.iter().sum::<u64>();
        let natives = self.native_puts + self.native_gets + self.native_atomics + self.assists;
        let news =
            [PacketKind::Introduction, PacketKind::Losses].map(|kind| self.packets_sent[kind as usize]);
        packets - news.iter().sum::<u64>() + natives
    }

    /// Packets received.
    pub fn back(&self) -> u64 {
        self.packets_received.iter().sum()
    }

    /// What was added since `earlier` was read; high-water marks stay as they are.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = *self;
        for (now, then) in difference.packets_sent.iter_mut().zip(earlier.packets_sent) {
            *now -= then;
        }
        for (now, then) in difference.packets_received.iter_mut().zip(earlier.packets_received) {
            *now -= then;
        }
        difference.packet_bytes_sent -= earlier.packet_bytes_sent;
        difference.packet_bytes_received -= earlier.packet_bytes_received;
        difference.native_puts -= earlier.native_puts;
        difference.native_puts_with_data -= earlier.native_puts_with_data;
        difference.native_gets -= earlier.native_gets;
        difference.native_atomics -= earlier.native_atomics;
        difference.native_flushes -= earlier.native_flushes;
        difference.native_bytes -= earlier.native_bytes;
        difference.message_operations -= earlier.message_operations;
        difference.self_operations -= earlier.self_operations;
        difference.payload_bytes_copied -= earlier.payload_bytes_copied;
        difference.post_queries -= earlier.post_queries;
        difference.round_trips -= earlier.round_trips;
        difference.barriers_waited -= earlier.barriers_waited;
        difference.restored_targets -= earlier.restored_targets;
        difference.restored_operations -= earlier.restored_operations;
        difference.lock_retries -= earlier.lock_retries;
        difference.lock_atomics -= earlier.lock_atomics;
        difference.assists -= earlier.assists;
        difference.words_told -= earlier.words_told;
        difference.again -= earlier.again;
        difference.malformed_packets -= earlier.malformed_packets;
        difference
    }
}
