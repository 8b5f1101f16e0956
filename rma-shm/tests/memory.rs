//! What making memory for windows costs, and that there is not as much as was asked for. Alone in its process, whose
//! page faults it counts.

mod taken;

use std::sync::{Mutex, PoisonError};

use rma_core::ids::RemoteKey;
use rma_core::provider::{Allocation, Endpoint};
use rma_shm::{HugePages, Options, Pages, Reach, ShmEndpoint};
use taken::taken;

fn open(pages: Pages) -> ShmEndpoint {
    ShmEndpoint::open(&Options { reach: Some(Reach::Allocated), pages, ..Options::default() }).unwrap()
}

/// Page faults of this thread until now: each page that the kernel gave it, and each that it mapped.
fn faults() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes the structure.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) }, 0);
    // SAFETY: written above, and zeros would do.
    let usage = unsafe { usage.assume_init() };
    usage.ru_minflt + usage.ru_majflt
}

/// Pages of this process that are in memory.
fn resident() -> i64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Page faults of making, registering and dropping `len` bytes, and the pages that they took meanwhile.
fn cost(ep: &mut ShmEndpoint, len: usize) -> (i64, i64) {
    let (faults_before, resident_before) = (faults(), resident());
    let made = ep.allocate(len, 0);
    let Allocation::Here { base, mapping } = made else { panic!("{made:?}: {:?}", ep.refusal()) };
    // SAFETY: the mapping is dropped behind the region.
    let region = unsafe { ep.register(base, len, RemoteKey(1)) }.unwrap();
    let taken = resident() - resident_before;
    drop(region);
    drop(mapping);
    (faults() - faults_before, taken)
}

/// Those in memory are all threads'.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn memory_costs_the_same_whatever_its_size() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ep = open(Pages::default());
    let large_len = large_len(&mut ep);
    let mut of = |len| {
        let least = |costs: [(i64, i64); 5]| {
            (costs.iter().map(|cost| cost.0).min(), costs.iter().map(|cost| cost.1).min())
        };
        least([(); 5].map(|()| cost(&mut ep, len)))
    };
    let (small, large) = (of(4 << 10), of(large_len));
    assert_eq!(small, large, "page faults and pages of 4 KiB, and of {large_len} bytes");
    let Allocation::Here { mapping, .. } = ep.allocate(large_len, 0) else { panic!("had before") };
    assert_eq!(taken(), 0);
    drop(mapping);
    let mut ep = open(Pages { reserve: true, ..Pages::default() });
    let _kept = ep.allocate(1 << 20, 0);
    assert_eq!(taken(), 1 << 20, "that is how reserved memory looks");
}

/// 4 GiB; on a host that has less, which it says, what that has.
fn large_len(ep: &mut ShmEndpoint) -> usize {
    let mut len = 4 << 30;
    while !matches!(ep.allocate(len, 0), Allocation::Here { .. }) {
        println!("{}", ep.refusal().unwrap());
        len /= 2;
        assert!(len >= 64 << 20, "there is no memory here");
    }
    len
}

#[test]
fn more_than_there_is_is_refused_with_both_numbers() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let all = [
        Pages::default(),
        Pages { reserve: true, ..Pages::default() },
        Pages { huge: HugePages::Transparent, ..Pages::default() },
        Pages { huge: HugePages::Of2M, reserve: true },
    ];
    for pages in all {
        let mut ep = open(pages);
        assert!(matches!(ep.allocate(1 << 46, 0), Allocation::OutOfMemory));
        let message = ep.refusal().unwrap();
        let asked = format!("{} bytes of memory were asked for", 1_u64 << 46);
        assert!(message.contains(&asked) && message.contains(" bytes can be had "), "{message}");
        let (_, had) = message.split_once(" and ").unwrap();
        let had: u64 = had.split(' ').next().unwrap().parse().unwrap();
        assert!(had < 1 << 46, "{message}");
        // What there is is had, and the reason is gone.
        assert!(matches!(ep.allocate(4096, 0), Allocation::Here { .. }));
        assert_eq!(ep.refusal(), None);
    }
}
