//! Replays the fuzzers' corpora on every `cargo test`.

mod feed;

use std::path::Path;

fn replay(name: &str, feed: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let mut count = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus is part of the repository") {
        feed(&std::fs::read(entry.expect("it can be listed").path()).expect("it can be read"));
        count += 1;
    }
    assert!(count > 5, "only {count} inputs");
}

#[test]
fn the_corpus_of_frames_is_harmless() {
    replay("frames", feed::control);
}

#[test]
fn the_corpus_of_pmi_is_harmless() {
    replay("pmi", feed::pmi);
}
