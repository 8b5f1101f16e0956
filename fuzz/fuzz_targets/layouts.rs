//! Layouts and run tables of any bytes. Run it with `cargo +nightly fuzz run layouts`; inputs worth keeping
//! go to `fuzz/corpus/layouts`, which `cargo test -p rma-conformance --test hostile` replays.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rma_conformance::constructors::feed(input));
