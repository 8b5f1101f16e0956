//! What a put's data say: that an epoch ends behind it, and whose.
//!
//! | bytes | kind | window | sender |
//! | --- | --- | --- | --- |
//! | 4 | bits 0 to 1 | bits 2 to 11 | bits 12 to 31 |
//! | 8 | bits 0 to 7 | bits 8 to 31 | bits 32 to 63 |
//!
//! It is a batch without operations, which ends a lock, lock_all (where such locks are counted apart) or a start. It has
//! no token: what it asks for is answered by [`ReplyFlags::UNLOCK_ACK`](super::ReplyFlags::UNLOCK_ACK), or not at all.

use super::{BatchFlags, Header, PacketKind, WireError};
use crate::ids::{Rank, WindowId};

/// Bits of the kind and of the window, in data of 4 bytes and of 8.
const NARROW: (u32, u32) = (2, 10);
const WIDE: (u32, u32) = (8, 24);

/// The flags that have a number, from 1.
const KINDS: [BatchFlags; 3] =
    [BatchFlags::UNLOCK, BatchFlags::COMPLETE, BatchFlags(BatchFlags::UNLOCK.0 | BatchFlags::OVERTAKE.0)];

/// The flag of a batch, which is all that it has, as data of so many bytes. `None`: it does not fit, and is a packet.
pub fn encode_data(flags: BatchFlags, window: WindowId, sender: Rank, bytes: usize) -> Option<u64> {
    let (kind_bits, window_bits) = bits(bytes)?;
    let kind = KINDS.iter().position(|known| *known == flags)? as u64 + 1;
    let sender_bits = 8 * bytes as u32 - kind_bits - window_bits;
    let fits = u64::from(window.0) >> window_bits == 0 && u64::from(sender.0) >> sender_bits == 0;
    let above = u64::from(window.0) << kind_bits | u64::from(sender.0) << (kind_bits + window_bits);
    fits.then_some(kind | above)
}

/// The header of the batch that data are, whatever their bytes.
///
/// # Errors
/// When there are not 4 or 8, or the kind is unknown.
pub fn decode_data(bytes: &[u8]) -> Result<Header, WireError> {
    let (kind_bits, window_bits) = bits(bytes.len()).ok_or(WireError::Truncated)?;
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let word = u64::from_le_bytes(word);
    let field = |from: u32, bits: u32| (word >> from & ((1 << bits) - 1)) as u32;
    let kind = field(0, kind_bits);
    let flags = kind.checked_sub(1).and_then(|index| KINDS.get(index as usize));
    let flags = flags.ok_or(WireError::Kind(kind as u8))?;
    Ok(Header {
        kind: PacketKind::Batch,
        flags: flags.0,
        count: 0,
        window: WindowId(field(kind_bits, window_bits)),
        sender: Rank((word >> (kind_bits + window_bits)) as u32),
        token: 0,
    })
}

/// Whether a packet of so many bytes is data.
#[inline]
pub fn is_data(bytes: usize) -> bool {
    bits(bytes).is_some()
}

#[inline]
const fn bits(bytes: usize) -> Option<(u32, u32)> {
    match bytes {
        4 => Some(NARROW),
        8 => Some(WIDE),
        _ => None,
    }
}
