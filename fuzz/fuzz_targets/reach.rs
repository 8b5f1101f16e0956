//! What either side of a job's connection makes of anything before the mutual proof, see
//! `launcher/src/reach/hostile.rs`.
#![no_main]

#[allow(dead_code)]
#[path = "../../launcher/src/reach/hostile.rs"]
mod hostile;
#[allow(dead_code)]
#[path = "../../launcher/src/reach/proof.rs"]
mod proof;

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::feed(input));
