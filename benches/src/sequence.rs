//! What an epoch sends, message by message.

use rma_core::ids::Rank;
use serde_json::{json, Value};

/// One message of an epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The rank that sends it.
    pub from: Rank,
    /// What it says.
    pub what: String,
    /// As far as they are the engine's: of a packet all, of an operation of the fabric its data.
    pub bytes: usize,
    /// Executed by the fabric, and no packet.
    pub is_native: bool,
}

impl Message {
    /// As it is stored.
    pub fn to_json(&self) -> Value {
        json!({ "from": self.from.0, "what": self.what, "bytes": self.bytes, "native": self.is_native })
    }

    /// As it was stored.
    pub fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            from: Rank(u32::try_from(value["from"].as_u64()?).ok()?),
            what: value["what"].as_str()?.to_owned(),
            bytes: usize::try_from(value["bytes"].as_u64()?).ok()?,
            is_native: value["native"].as_bool()?,
        })
    }
}
