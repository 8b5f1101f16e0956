//! Packets of any bytes, to an engine with a window and operations under way. Run it with
//! `cargo +nightly fuzz run packets`; inputs worth keeping go to `fuzz/corpus/packets`, which
//! `cargo test -p rma-conformance --test hostile` replays.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rma_conformance::hostile::feed(input));
