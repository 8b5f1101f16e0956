//! What the launcher makes of anything that its ranks send and do, see `launcher/src/hostile.rs`.
#![no_main]

#[allow(dead_code)]
#[path = "../../launcher/src/hostile.rs"]
mod hostile;
#[allow(dead_code)]
#[path = "../../launcher/src/job.rs"]
mod job;
#[allow(dead_code)]
#[path = "../../launcher/src/kvs.rs"]
mod kvs;
#[allow(dead_code)]
#[path = "../../launcher/src/pmi.rs"]
mod pmi;
#[allow(dead_code)]
#[path = "../../launcher/src/session.rs"]
mod session;

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::feed(input));
