//! Messages of a PMI connection: what is written can be read, and is the same.
//! See `rma-bootstrap/tests/round_trip`.
#![no_main]

#[allow(dead_code)]
#[path = "../../rma-bootstrap/tests/round_trip/feed.rs"]
mod feed;

libfuzzer_sys::fuzz_target!(|input: &[u8]| feed::pmi(input));
