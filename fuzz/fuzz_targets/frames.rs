//! Frames of the control connection between a rank and its launcher: what was understood is written again as
//! it came. See `rma-bootstrap/tests/round_trip`.
#![no_main]

#[allow(dead_code)]
#[path = "../../rma-bootstrap/tests/round_trip/feed.rs"]
mod feed;

libfuzzer_sys::fuzz_target!(|input: &[u8]| feed::control(input));
