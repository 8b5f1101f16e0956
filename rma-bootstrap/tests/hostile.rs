//! Replays the fuzzer's corpus, and a bounded random attack, on every `cargo test`.

use std::path::Path;

use rma_bootstrap::hostile::feed;

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/control");
    let entries = std::fs::read_dir(folder).expect("the corpus is part of the repository");
    entries.map(|entry| std::fs::read(entry.expect("an entry").path()).expect("a readable file")).collect()
}

#[test]
fn the_corpus_is_harmless() {
    let corpus = corpus();
    assert!(corpus.len() >= 10, "only {} files", corpus.len());
    corpus.iter().for_each(|input| feed(input));
}

/// What is nearly right goes further than noise does.
#[test]
fn nearly_right_bytes_are_harmless() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |below: usize| {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (seed >> 33) as usize % below
    };
    for input in corpus().iter().filter(|input| !input.is_empty()) {
        for _ in 0..200 {
            let mut input = input.clone();
            for _ in 0..1 + draw(4) {
                let at = draw(input.len());
                match draw(3) {
                    0 => input[at] = draw(256) as u8,
                    1 => input.insert(at, b";= \n0f"[draw(6)]),
                    _ => input.truncate(at + 1),
                }
            }
            feed(&input);
        }
    }
}
