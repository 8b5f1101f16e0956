//! What a rank costs its own side of `rmarun`'s protocol: a get for each rank that it talks to, and nothing that
//! depends on how many ranks there are. (By PMI and PMIx: `pmi/session_tests.rs`, `pmix/questions.rs`.)

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rma_bootstrap::control::{Control, Traffic};
use rma_bootstrap::environment::Place;
use rma_bootstrap::wire::{Reply, Request, VERSION};
use rma_bootstrap::{JobBootstrap, LauncherClient};
use rma_core::bootstrap::{AddressBytes, Bootstrap, Lookup};
use rma_core::ids::Rank;

const LIMIT: Duration = Duration::from_secs(60);

/// The gets of a rank that joins, publishes, looks `peers` others up, each several times before the answer, and
/// finalizes; and what has passed its connection.
fn costs(size: u32, peers: u32) -> (Vec<u32>, Traffic) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut launcher = Control::new(theirs.into()).unwrap();
    launcher.send(&Reply::Welcome { version: VERSION, size }).unwrap();
    let place = Place {
        rank: size - 1,
        size,
        local_rank: 0,
        local_size: 1,
        local_ranks: [size - 1].into(),
        job_id: "j".into(),
    };
    let client = LauncherClient::connect(Control::new(ours.into()).unwrap(), place, LIMIT).unwrap();
    let mut job = JobBootstrap::Launcher(Box::new(client));
    job.publish(&AddressBytes::new(&[7; 51]).unwrap()).unwrap();

    let mut gets = Vec::new();
    let begun = Instant::now();
    for peer in 0..peers {
        // Far apart, and wherever there are ranks.
        let rank = Rank((u64::from(peer) * u64::from(size) / u64::from(peers)) as u32);
        while !matches!(job.lookup(rank).unwrap(), Lookup::Found(_)) {
            assert!(begun.elapsed() < LIMIT);
            assert!(matches!(job.lookup(rank).unwrap(), Lookup::Pending), "not answered yet");
            while let Some(request) = launcher.receive::<Request>().unwrap() {
                let Request::Get { request, rank, .. } = request else { continue };
                gets.push(rank);
                launcher.send(&Reply::Value { request, value: vec![7; 51] }).unwrap();
            }
        }
    }
    job.finalize().unwrap();
    while launcher.receive::<Request>().unwrap() != Some(Request::Finalize) {
        assert!(begun.elapsed() < LIMIT);
    }
    (gets, launcher.traffic())
}

#[test]
fn a_rank_that_talks_to_some_ranks_does_as_many_gets_however_many_there_are() {
    for peers in [0, 1, 7, 64] {
        let (gets, traffic) = costs(64, peers);
        assert_eq!(gets.len(), peers as usize, "one for each");
        for size in [512, 1_048_576] {
            let (more_gets, more_traffic) = costs(size, peers);
            assert_eq!((more_gets.len(), more_traffic), (gets.len(), traffic), "{size} ranks, {peers} peers");
        }
    }
}
