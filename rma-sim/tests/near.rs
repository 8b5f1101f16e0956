//! Memory for ranks that are near each other.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rma_core::ids::RemoteKey;
use rma_core::provider::{Endpoint, MemoryRegion, Passage, RemoteAddr, RemotePiece, Swapped};
use rma_sim::{FabricConfig, SimFabric};

/// Whatever the fabric does with wishes, and with addresses.
#[test]
fn line_17_memory_for_neighbours_has_one_name() {
    static WORDS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
    let base = |word: usize| NonNull::from(&WORDS[word]).cast();
    for (grants_key_wishes, offset_addresses) in [(true, true), (true, false), (false, true), (false, false)]
    {
        let fabric = SimFabric::new(FabricConfig {
            near_ranks: 2,
            grants_key_wishes,
            offset_addresses,
            ..FabricConfig::unit(2)
        });
        let mut endpoints = [0, 1].map(|rank| fabric.open(rank).expect("the simulated endpoint opens"));
        // SAFETY: statics, which are only accessed atomically but for what is put, when nobody else is there.
        let _other = unsafe { endpoints[1].register(base(2), 8, RemoteKey(1)) }.unwrap();
        let near: Vec<_> = (0..2)
            // SAFETY: as above.
            .map(|rank| unsafe { endpoints[rank].register_near(base(rank), 8, RemoteKey(2)) }.unwrap())
            .collect();
        let name = |rank: usize| (near[rank].remote_key(), near[rank].remote_base());
        assert_eq!([name(0), name(1)], [(RemoteKey(2), 0); 2], "{grants_key_wishes}, {offset_addresses}");
        let address = endpoints[1].address();
        let peer = endpoints[0].connect(&address).unwrap();
        let at = RemoteAddr { addr: 0, key: RemoteKey(2) };
        assert_eq!(endpoints[0].tell(peer, at, 7), Ok(true));
        let words = WORDS.each_ref().map(|word| word.swap(0, Ordering::Relaxed));
        assert_eq!(words, [0, 7, 0]);
    }
}

/// What it does is what the endpoint does there.
#[test]
fn line_19_a_passage_does_what_its_endpoint_would_do() {
    static WORDS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
    let base = |word: usize| NonNull::from(&WORDS[word]).cast();
    let fabric = SimFabric::new(FabricConfig { near_ranks: 2, near_locks: true, ..FabricConfig::unit(2) });
    let mut endpoints = [0, 1].map(|rank| fabric.open(rank).expect("the simulated endpoint opens"));
    // SAFETY: statics, which are only accessed atomically but for what is put, when nobody else is there.
    let lock = unsafe { endpoints[1].register(base(0), 16, RemoteKey(1)) }.unwrap();
    // SAFETY: as above.
    let memory = unsafe { endpoints[1].register(base(2), 16, RemoteKey(2)) }.unwrap();
    let at =
        |region: &rma_sim::SimRegion| RemoteAddr { addr: region.remote_base(), key: region.remote_key() };
    let address = endpoints[1].address();
    let [ep, _] = &mut endpoints;
    let peer = ep.connect(&address).unwrap();
    let piece = RemotePiece { at: at(&memory), len: 16 };
    let mut passage = ep.passage(peer, Some(at(&lock)), piece).expect("they are neighbours");
    let words = || WORDS.each_ref().map(|word| word.load(Ordering::Relaxed));
    let bytes = 7_u64.to_ne_bytes();
    let put = (bytes.as_ptr(), bytes.len());
    let swapped = |count, other| Swapped { count, other };
    // The fabric does at once what it feels like.
    let mut until = |what: &mut dyn FnMut(&mut rma_sim::SimEndpoint) -> bool| {
        assert!((0..1000).any(|_| what(ep)), "never done at once");
    };
    // SAFETY: this endpoint has lent it; so below.
    until(&mut |ep| unsafe { passage.swap(ep, 0, [(0, 1), (0, 2)]) } == Some(swapped(2, 0)));
    assert_eq!(words(), [1, 2, 0, 0]);
    // SAFETY: as above.
    until(&mut |ep| unsafe { passage.swap(ep, 1, [(2, 3)]) } == Some(swapped(1, 0)));
    // SAFETY: as above.
    until(&mut |ep| unsafe { passage.swap(ep, 0, [(9, 4), (3, 4)]) } == Some(swapped(0, 1)));
    assert_eq!(words(), [1, 3, 0, 0]);
    // SAFETY: the bytes are there during the call, and inside of the memory; so below.
    until(&mut |ep| unsafe { passage.put(ep, put, 8) });
    assert_eq!(words(), [1, 3, 0, 7]);
    let mut back = [0; 8];
    // SAFETY: as above.
    until(&mut |ep| unsafe { passage.get(ep, (back.as_mut_ptr(), 8), 8) });
    assert_eq!(back, bytes);
    // SAFETY: as above.
    until(&mut |ep| match unsafe { passage.swap_and_put(ep, 0, [(1, 5)], put, 0) } {
        Some((done, is_put)) => {
            assert_eq!(done, swapped(1, 0));
            assert_eq!(words(), [5, 3, u64::from(is_put) * 7, 7]);
            true
        }
        None => false,
    });
    drop((lock, memory));
    // SAFETY: as above.
    assert_eq!(unsafe { passage.swap(ep, 0, [(5, 9)]) }, None, "the region is gone");
    // SAFETY: as above.
    assert!(!unsafe { passage.put(ep, put, 8) }, "the region is gone");
}
