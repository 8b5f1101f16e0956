//! Replays the fuzzer's corpus, and a bounded random attack, on every `cargo test`.

use std::path::Path;

use rma_conformance::hostile::feed;
use rma_sim::Random;

#[test]
fn the_corpus_is_harmless() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/packets");
    let mut count = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus is part of the repository") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("a readable file");
        feed(&bytes);
        count += 1;
    }
    assert!(count >= 10, "only {count} files");
}

/// A packet that is nearly right goes further than noise does.
#[test]
fn nearly_right_packets_are_harmless() {
    let mut random = Random::new(0x5eed);
    for _ in 0..3000 {
        let mut input = Vec::new();
        for _ in 0..random.between(1, 12) {
            let mut packet = vec![0; random.index(120)];
            random.fill(&mut packet);
            let plausible: [&[u8]; 7] = [&[0, 0, 1, 2, 3, 4, 5], &[], &[0, 1, 2], &[0], &[0], &[0], &[1, 2]];
            for (byte, choices) in packet.iter_mut().zip(plausible.into_iter().chain([&[0][..], &[1, 2]])) {
                if !choices.is_empty() && random.chance(900) {
                    *byte = random.pick(choices);
                }
            }
            // The rest of the header, and of a record, as small numbers.
            for byte in packet.iter_mut().skip(9).take(40) {
                if random.chance(700) {
                    *byte = random.pick(&[0, 0, 0, 1, 2, 8, 16, 255]);
                }
            }
            input.extend((packet.len() as u16).to_le_bytes());
            input.extend(packet);
        }
        feed(&input);
    }
}
