//! Memory for ranks that are near each other.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rma_core::ids::RemoteKey;
use rma_core::provider::{Endpoint, MemoryRegion, RemoteAddr};
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
