//! The clocks of several hosts, compared for a timeline.

use crate::platform::{Arc, Mutex};
use crate::trace::Alignment;
use crate::{check, job_of, Part};

/// Schedules.
const SCHEDULES: usize = 50;

/// The host of each rank.
const HOSTS: [u64; 4] = [7, 9, 7, 9];

/// All ranks look at one clock here, so what a host's is thought to be behind is nothing, as far as is known; and the
/// ranks of a host think the same.
#[test]
fn hosts_find_out_how_much_their_clocks_are_behind() {
    check(SCHEDULES, || {
        let found = Arc::new(Mutex::new([None; HOSTS.len()]));
        let part = |rank: usize| -> Part {
            let found = Arc::clone(&found);
            Box::new(move |rig| {
                let alignment = rig.core.align_clocks(HOSTS[rank]).unwrap();
                found.lock().unwrap()[rank] = Some(alignment);
            })
        };
        let peers = (1..HOSTS.len()).map(part).collect();
        job_of(true, &rma_core::config::Config::default(), vec![part(0)], peers);
        let found = found.lock().unwrap().map(|alignment| alignment.expect("every rank is through"));
        assert_eq!((found[0], found[2]), (Alignment::default(), Alignment::default()));
        assert_eq!(found[1], found[3]);
        assert!(found[1].offset.abs() <= found[1].uncertainty && found[1].uncertainty > 0, "{:?}", found[1]);
    });
}
