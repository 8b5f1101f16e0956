//! Values of any bytes as texts that PMI carries: the length in bytes, a point, the bytes as hexadecimal
//! digits; cut into segments that are put under keys of their own.

use std::fmt::Write;

use crate::wire::VALUE_BYTES_MAX;

/// Longest segment. A line of PMI-1 with it, the longest key and the longest name of a key-value space stays
/// below the 1024 bytes that old servers read.
pub(super) const SEGMENT_BYTES_MAX: usize = 600;

/// Where the segment with this number of (`rank`, `key`) is put.
pub(super) fn segment_key(rank: u32, key: &str, segment: usize) -> String {
    format!("rma-{rank}-{key}-{segment}")
}

/// The text of `value`.
pub(super) fn encode(value: &[u8]) -> String {
    let mut text = format!("{}.", value.len());
    for byte in value {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// What a text, as far as its segments have come, is.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Decoded {
    /// The value.
    Value(Vec<u8>),
    /// Another segment follows.
    More,
    /// No value that [`encode`] has made.
    Malformed,
}

/// Decodes the segments that have come so far, put together.
pub(super) fn decode(text: &str) -> Decoded {
    let Some((len, digits)) = text.split_once('.') else { return Decoded::Malformed };
    let Ok(len) = len.parse::<usize>() else { return Decoded::Malformed };
    if len > VALUE_BYTES_MAX || digits.len() > 2 * len {
        return Decoded::Malformed;
    }
    if digits.len() < 2 * len {
        return Decoded::More;
    }
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let bytes = digits.as_bytes().chunks_exact(2).map(|pair| Some(digit(&pair[0])? << 4 | digit(&pair[1])?));
    bytes.collect::<Option<Vec<u8>>>().map_or(Decoded::Malformed, Decoded::Value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_segment_by_segment() {
        for len in [0, 1, 255, 256, 1024] {
            let value: Vec<u8> = (0..len).map(|index| index as u8).collect();
            let text = encode(&value);
            let mut so_far = String::new();
            for segment in text.as_bytes().chunks(100) {
                assert!(so_far.is_empty() || decode(&so_far) == Decoded::More);
                so_far += std::str::from_utf8(segment).unwrap();
            }
            assert_eq!(decode(&so_far), Decoded::Value(value));
        }
        assert!(encode(&[0; rma_core::bootstrap::ADDRESS_BYTES_MAX]).len() <= SEGMENT_BYTES_MAX);
    }

    #[test]
    fn what_is_no_value() {
        for text in ["", "1", ".", "x.00", "1.0g", "1.000", "-1.", "1025.", "99999999999999999999.", "1.é"] {
            assert_eq!(decode(text), Decoded::Malformed, "{text}");
        }
    }
}
