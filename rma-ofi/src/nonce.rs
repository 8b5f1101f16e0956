//! Which endpoint a packet or a memory key is meant for.
//!
//! Some providers connect again by themselves to where a peer used to listen. When its process has ended,
//! another endpoint may listen there, of another job even, and would take what is sent to the dead one for
//! its own. So each endpoint draws a number that nobody guesses by accident, and publishes it with its
//! address: packets end with the number of their receiver, and keys of memory depend on that of its owner.

use std::io;

use rma_core::provider::ProviderError;

/// The number of one endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Nonce(pub(crate) u64);

impl Nonce {
    /// Bytes at the end of a packet.
    pub(crate) const BYTES: usize = size_of::<u64>();

    /// Nobody's.
    pub(crate) const NONE: Self = Self(0);

    /// A new one, from the kernel.
    pub(crate) fn draw() -> Result<Self, ProviderError> {
        let mut bytes = [0; Self::BYTES];
        loop {
            // SAFETY: the bytes are written during the call.
            let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
            if got == bytes.len() as isize {
                return Ok(Self(u64::from_le_bytes(bytes)));
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(ProviderError {
                    message: format!("getrandom failed for the endpoint's number: {error}"),
                });
            }
        }
    }

    /// The number as packets carry it.
    #[inline]
    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0.to_le_bytes()
    }

    /// The number that a packet carries.
    #[inline]
    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }
}

/// How keys of memory are formed on a fabric: the engine's wish, the same at every rank, combined with the
/// owner's number. For one owner different wishes stay different.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Keys {
    bytes: u8,
    mask: u64,
}

impl Keys {
    /// The provider chooses keys, which stay as they are.
    pub(crate) const OF_PROVIDER: Self = Self { bytes: 0, mask: 0 };

    /// The owner chooses keys of so many bytes.
    pub(crate) fn of_owner(bytes: usize) -> Self {
        let bytes = bytes.clamp(1, KEY_BYTES_MAX);
        // The highest bit of the longest keys stays as it is: all ones mean "no key" to libfabric.
        let bits = (bytes * 8).min(63) as u32;
        Self { bytes: bytes as u8, mask: (1 << bits) - 1 }
    }

    /// Bytes of a key that its owner chooses, at most 8; 0 where the provider chooses.
    pub(crate) fn bytes(self) -> u8 {
        self.bytes
    }

    /// What the engine's keys of the owner's memory are combined with (by exclusive or) to have the fabric's, and
    /// the fabric's to have the engine's.
    #[inline]
    pub(crate) fn salt(self, owner: Nonce) -> u64 {
        owner.0 & self.mask
    }
}

const KEY_BYTES_MAX: usize = size_of::<u64>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_draws_differ() {
        assert_ne!(Nonce::draw().unwrap(), Nonce::draw().unwrap());
    }

    #[test]
    fn salts_fit_into_keys_and_differ() {
        let full = Nonce(!0);
        for (bytes, largest) in
            [(0, 0xff), (1, 0xff), (2, 0xffff), (4, 0xffff_ffff), (8, u64::MAX >> 1), (9, u64::MAX >> 1)]
        {
            let keys = Keys::of_owner(bytes);
            assert_eq!(keys.salt(full), largest, "{bytes} bytes");
            assert_ne!(keys.salt(Nonce(1)), keys.salt(Nonce(2)), "{bytes} bytes");
        }
        assert_eq!(Keys::OF_PROVIDER.salt(full), 0);
    }
}
