//! Anything that anybody may send before the mutual proof, to either side: neither panics, reads more than a
//! message, or believes who does not know the secret. Fed by `fuzz/fuzz_targets/reach.rs`, and by the test below
//! with the corpus.

use super::proof::{Guest, Heard, Host, Secret, Step, CLAIM_BYTES, HELLO_BYTES};

/// The secret that the input cannot know.
const SECRET: Secret = Secret::of_bytes([0x5a; 32]);

/// Takes the first byte for the side that is attacked and how the rest arrives. Panics when a side would, or if it
/// believes.
pub(crate) fn feed(input: &[u8]) {
    let Some((&how, bytes)) = input.split_first() else { return };
    let piece = usize::from(how >> 1).max(1);
    if how & 1 == 0 {
        attack_host(bytes, piece);
    } else {
        attack_guest(bytes, piece);
    }
}

fn attack_host(mut bytes: &[u8], piece: usize) {
    let mut host = Host::with_nonce([1; 32]);
    let mut read = 0;
    while !bytes.is_empty() {
        let (now, rest) = bytes.split_at(piece.min(host.wanted()).min(bytes.len()));
        bytes = rest;
        read += now.len();
        match host.on_bytes(&SECRET, now) {
            Ok(Step::Welcome(id, _)) => panic!("believed somebody who says to be {id}"),
            Ok(Step::Wait | Step::Send(_)) => assert!(host.wanted() > 0),
            Err(_) => break,
        }
    }
    assert!(read <= HELLO_BYTES + CLAIM_BYTES, "read {read} bytes");
}

fn attack_guest(mut bytes: &[u8], piece: usize) {
    let mut guest = Guest::with_nonce(3, [2; 32]);
    while !bytes.is_empty() {
        let (now, rest) = bytes.split_at(piece.min(guest.wanted()).min(bytes.len()));
        bytes = rest;
        match guest.on_bytes(&SECRET, now) {
            Ok(Heard::Nothing) => assert!(guest.wanted() > 0 && guest.claim(&SECRET).is_none()),
            Ok(heard) => panic!("believed somebody: {heard:?}"),
            Err(_) => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    #[test]
    fn the_corpus_is_survived() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/reach");
        let mut count = 0;
        for entry in fs::read_dir(corpus).expect("the corpus is in the repository") {
            super::feed(&fs::read(entry.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count >= 8, "{count} inputs in {corpus}");
    }
}
