//! Native or message: decided per window and class of operation at creation, the same at all ranks.

use crate::config::Config;
use crate::dtype::Dtype;
use crate::info::WindowOptions;
use crate::provider::NativeOps;
use crate::wire::OpKind;

/// How an operation travels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Path {
    /// The fabric executes it on the target's registered memory.
    Native,
    /// A packet carries it; the target's process executes it.
    Message,
}

/// Most bytes that one atomic of a fabric covers.
const FABRIC_ATOMIC_BYTES: u32 = 8;

/// The paths of one window. One atomicity domain per element type: either the fabric executes every
/// accumulate-family operation on it, or the target's CPU executes every one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Paths {
    pub(crate) put: bool,
    pub(crate) get: bool,
    /// Bit `dtype`: the accumulate family is the fabric's.
    pub(crate) atomic_dtypes: u32,
}

impl Paths {
    /// What this rank could do.
    pub(crate) fn offered(native: &NativeOps, config: &Config, options: &WindowOptions) -> Self {
        // Only the target's process sees every access, and compares them.
        if config.force_message_path || options.check == Some(true) {
            return Self::default();
        }
        let atomic_dtypes = Dtype::ALL
            .iter()
            .filter(|&&dtype| Self::is_exact(dtype) && native.is_complete_for(dtype))
            .fold(0, |bits, &dtype| bits | 1 << dtype as u32);
        // The fabric's atomics cover one element each.
        let is_coarse = options.accumulate_granularity > FABRIC_ATOMIC_BYTES;
        Self { put: native.put, get: native.get, atomic_dtypes: if is_coarse { 0 } else { atomic_dtypes } }
    }

    /// Whether every fabric computes the same as the CPU: integers that a processor has atomics for. Of
    /// floats fabrics round, and treat NaN, each in its own way; the other types no fabric has completely.
    fn is_exact(dtype: Dtype) -> bool {
        dtype.is_integer() && dtype.size() <= size_of::<u64>()
    }

    /// As one number for the agreement.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.put) | u64::from(self.get) << 1 | u64::from(self.atomic_dtypes) << 2
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self { put: bits & 1 != 0, get: bits & 2 != 0, atomic_dtypes: (bits >> 2) as u32 }
    }

    /// Whether any operation is native, so that the window's memory must be registered.
    pub(crate) fn any(self) -> bool {
        self.to_bits() != 0
    }

    #[inline]
    pub(crate) fn of(self, kind: OpKind, dtype: Dtype) -> Path {
        let native = match kind {
            OpKind::Put => self.put,
            OpKind::Get => self.get,
            _ => self.atomic_dtypes & (1 << dtype as u32) != 0,
        };
        if native {
            Path::Native
        } else {
            Path::Message
        }
    }
}
