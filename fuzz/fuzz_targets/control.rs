//! Bytes of any kind, to everything that a rank or a launcher takes from the other side. Run it with
//! `cargo +nightly fuzz run control`; inputs worth keeping go to `fuzz/corpus/control`, which
//! `cargo test -p rma-bootstrap --test hostile` replays.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rma_bootstrap::hostile::feed(input));
