//! Conformance over shared memory where peers map each other's windows, and do atomics on them themselves.
//! All memory of this process is in one file that can be mapped, so that the windows are, whoever allocates
//! them.
#![allow(unsafe_code)] // an allocator

#[path = "../../rma-shm/tests/contract/heap.rs"]
mod heap;

use std::time::Duration;

use heap::Heap;
use rma_conformance::in_process::{self, InProcess};
use rma_conformance::{suite, Spec, World};
use rma_shm::{Options, Reach, ShmEndpoint};

#[global_allocator]
static HEAP: Heap = Heap::new();

type ShmWorld = World<ShmEndpoint, InProcess>;

/// A test that takes longer than this hangs; under a sanitizer beside other programs the longest ones take
/// minutes.
const LIMIT: Duration = Duration::from_secs(600);

fn world(spec: Spec) -> ShmWorld {
    HEAP.begin();
    let options = Options { reach: Some(Reach::Mapped), ..Options::default() };
    in_process::world(&spec, LIMIT, || ShmEndpoint::open(&options).expect("the endpoint opens"))
}

suite!(mapped, ShmWorld, world);
