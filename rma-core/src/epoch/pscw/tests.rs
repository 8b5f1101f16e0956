use alloc::vec::Vec;

use super::*;
use crate::error::FabricCode;
use crate::group::Group;
use crate::ids::{Rank, RemoteKey};
use crate::wire::Metadata;

const DEAD: FabricCode = FabricCode { code: 1, text: "dead" };

fn group(ranks: &[u32]) -> Group {
    let ranks: Vec<Rank> = ranks.iter().map(|&rank| Rank(rank)).collect();
    Group::new(&ranks, 1000).unwrap()
}

fn metadata(size: u64) -> Option<Metadata> {
    Some(Metadata { size, base: 0, key: RemoteKey(0), disp_unit: 1, misalignment: 0 })
}

#[test]
fn an_access_epoch_grants_members_one_by_one_and_closes_each_once() {
    let mut access = Access::with_room(4);
    access.open(&group(&[2, 5, 9]), false, 7);
    assert!(access.is_open() && !access.all_granted() && access.contains(Rank(5)));
    assert_eq!(access.on_post(Rank(5)), PostSeen::Granted);
    assert_eq!(access.on_post(Rank(5)), PostSeen::Repeated);
    assert_eq!(access.on_post(Rank(3)), PostSeen::Early, "not a member");
    assert!(access.is_granted(Rank(5)) && !access.is_granted(Rank(2)));
    assert_eq!(access.poll_close(0), Some((1, Rank(5))));
    assert_eq!(access.poll_close(2), None);
    access.on_closed(Rank(5));
    assert_eq!(access.on_post(Rank(5)), PostSeen::Early, "of its next exposure epoch");
    assert!(access.on_lost(Rank(2)) && !access.on_lost(Rank(2)) && !access.on_lost(Rank(1)));
    assert!(!access.is_over());
    assert_eq!(access.on_post(Rank(9)), PostSeen::Granted);
    assert!(access.all_granted());
    access.on_closed(Rank(9));
    assert!(access.is_over());
    access.end();
    assert!(!access.is_open() && !access.is_over());
}

#[test]
fn answers_count_only_in_the_epoch_that_asked() {
    let mut access = Access::with_room(4);
    access.open(&group(&[1, 2, 3]), false, 7);
    assert_eq!(access.poll_ask(), None, "nobody is asked without need");
    access.on_post(Rank(1));
    access.ask();
    assert_eq!(access.poll_ask(), Some(Rank(2)), "who has posted is not asked");
    access.on_asked();
    assert_eq!(access.poll_ask(), Some(Rank(3)));
    access.on_asked();
    assert_eq!(access.poll_ask(), None);
    assert!(!access.on_answer(Rank(2), 6) && !access.on_answer(Rank(4), 7));
    assert!(access.on_answer(Rank(2), 7) && !access.on_answer(Rank(2), 7));
    // The notice came first, the member got COMPLETE, and its late answer must not grant the next epoch.
    access.on_post(Rank(3));
    access.on_closed(Rank(3));
    assert!(!access.on_answer(Rank(3), 7));
    access.open(&group(&[3]), false, 8);
    assert!(!access.on_answer(Rank(3), 7) && !access.is_granted(Rank(3)));
}

#[test]
fn no_check_and_nobody_are_granted_at_once() {
    let mut access = Access::with_room(0);
    access.open(&group(&[0, 70, 200]), true, 1);
    assert!(access.all_granted() && access.is_granted(Rank(70)));
    access.open(&group(&[]), false, 2);
    assert!(access.all_granted() && access.is_over() && access.poll_close(0).is_none());
}

#[test]
fn an_exposure_epoch_knows_who_was_told_and_who_has_completed() {
    let mut exposure = Exposure::with_room(4);
    exposure.open(&group(&[1, 4, 6]), false);
    assert_eq!(exposure.poll_notice(), Some(Rank(1)));
    assert!(!exposure.is_exposed_to(Rank(1)), "its notice is yet to come");
    assert!(!exposure.on_complete(Rank(1)), "it cannot know");
    for rank in [1, 4, 6] {
        assert_eq!(exposure.poll_notice(), Some(Rank(rank)));
        exposure.on_noticed();
    }
    assert_eq!(exposure.poll_notice(), None);
    assert!(exposure.is_exposed_to(Rank(4)) && !exposure.is_exposed_to(Rank(5)));
    assert!(
        exposure.on_complete(Rank(4)) && !exposure.on_complete(Rank(4)) && !exposure.on_complete(Rank(5))
    );
    assert!(!exposure.is_exposed_to(Rank(4)), "it asks about the next epoch");
    exposure.on_lost(Rank(1), DEAD);
    exposure.on_lost(Rank(4), DEAD);
    assert!(!exposure.is_over());
    assert!(exposure.on_complete(Rank(6)) && exposure.is_over());
    assert_eq!(exposure.end(), Some((Rank(1), DEAD)), "the first that was lost before it completed");
    assert!(!exposure.is_open());
    exposure.open(&group(&[1]), true);
    assert!(exposure.poll_notice().is_none() && exposure.on_complete(Rank(1)) && exposure.is_over());
    assert_eq!(exposure.end(), None);
}

#[test]
fn groups_of_any_size_find_room() {
    let ranks: Vec<u32> = (0..500).collect();
    let mut exposure = Exposure::with_room(1);
    let before = exposure.heap_bytes();
    exposure.open(&group(&ranks), true);
    assert!(ranks.iter().all(|&rank| exposure.on_complete(Rank(rank))) && exposure.is_over());
    let grown = exposure.heap_bytes();
    assert!(grown > before);
    exposure.open(&group(&ranks), true);
    assert!(!exposure.is_over());
    assert_eq!(exposure.heap_bytes(), grown, "room is made once");
}

#[test]
fn notices_without_room_are_counted_until_an_answer_makes_up_for_them() {
    let mut notices = Notices::with_room(2);
    assert!(notices.on_early(Rank(1), None) && notices.on_early(Rank(2), metadata(2)));
    assert!(!notices.on_early(Rank(1), None), "twice");
    assert!(!notices.has_dropped());
    assert!(notices.on_early(Rank(3), None) && notices.has_dropped());
    assert_eq!(notices.poll_early(|rank| rank.0 > 2), None);
    assert_eq!(notices.metadata(Rank(2)), None, "no epoch has used it");
    assert_eq!(notices.poll_early(|rank| rank.0 == 2), Some(Rank(2)));
    assert_eq!(notices.poll_early(|rank| rank.0 == 2), None);
    assert_eq!(notices.metadata(Rank(2)), metadata(2));
    // What is only kept makes room for what must not be lost.
    assert!(notices.on_early(Rank(4), None));
    assert_eq!(notices.metadata(Rank(2)), None);
    assert_eq!(notices.poll_early(|_| true), Some(Rank(1)));
    assert_eq!(notices.poll_early(|_| true), Some(Rank(4)));
    assert_eq!(notices.poll_early(|_| true), None);
    notices.on_made_up_for();
    assert!(!notices.has_dropped());
    notices.keep(Rank(8), metadata(8));
    notices.keep(Rank(8), metadata(9));
    assert_eq!(notices.metadata(Rank(8)), metadata(8));
    assert!(notices.on_early(Rank(8), metadata(10)), "the next epoch's notice takes its place");
    notices.forget(Rank(8));
    assert_eq!(notices.poll_early(|_| true), Some(Rank(8)));
    notices.forget(Rank(8));
    assert_eq!(notices.metadata(Rank(8)), None);
}

#[test]
fn members_are_asked_once_each_as_long_as_they_are_awaited() {
    let (mut access, mut exposure) = (Access::with_room(4), Exposure::with_room(4));
    assert_eq!(access.hear_posts(|_| true) + exposure.hear_completes(|_| true), 0, "there is no epoch");
    assert!(!access.has_at_most(9) && !exposure.has_at_most(9));
    let members = group(&[2, 5, 9]);
    access.open(&members, false, 7);
    exposure.open(&members, false);
    assert!(access.has_at_most(3) && !access.has_at_most(2));
    assert!(exposure.has_at_most(3) && !exposure.has_at_most(2));
    let mut asked = Vec::new();
    let mut hear_posts = |access: &mut Access, has_posted: &[u32]| {
        asked.clear();
        let news = access.hear_posts(|rank| {
            asked.push(rank.0);
            has_posted.contains(&rank.0)
        });
        (news, asked.clone())
    };
    assert_eq!(hear_posts(&mut access, &[5]), (1, alloc::vec![2, 5, 9]));
    assert_eq!(hear_posts(&mut access, &[2, 5, 9]), (2, alloc::vec![2, 9]));
    assert_eq!(hear_posts(&mut access, &[2, 5, 9]), (0, alloc::vec![]));
    assert!(access.all_granted());
    assert_eq!(exposure.hear_completes(|_| true), 0, "nobody was told yet");
    exposure.on_noticed();
    exposure.on_noticed();
    assert_eq!(exposure.hear_completes(|rank| rank.0 != 2), 1, "of those that were told");
    exposure.on_noticed();
    assert_eq!(exposure.hear_completes(|rank| rank.0 != 5), 2, "who has completed is not asked");
    assert!(exposure.is_over());
    exposure.open(&members, false);
    exposure.on_lost(Rank(5), DEAD);
    assert!(!exposure.has_at_most(3), "one was lost");
}

#[test]
fn members_of_groups_of_all_sizes_are_told_apart() {
    let mut exposure = Exposure::with_room(3);
    for size in [500, 3, 64, 65, 500, 1, 200] {
        let ranks: Vec<u32> = (0..size).collect();
        exposure.open(&group(&ranks), true);
        assert_eq!(exposure.awaited(), Some(Rank(0)), "nothing is left of the group before");
        for &rank in ranks.iter().filter(|&&rank| rank != size / 2) {
            assert!(exposure.on_complete(Rank(rank)) && !exposure.on_complete(Rank(rank)));
        }
        assert!(!exposure.is_over());
        assert_eq!(exposure.awaited(), Some(Rank(size / 2)));
        assert!(exposure.on_complete(Rank(size / 2)) && exposure.is_over());
        let mut access = Access::with_room(3);
        access.open(&group(&ranks), true, 1);
        let mut closed = 0;
        while let Some((place, rank)) = access.poll_close(0) {
            assert_eq!((place, rank), (closed as usize, Rank(closed)));
            access.on_closed(rank);
            closed += 1;
        }
        assert!(closed == size && access.is_over());
    }
}
