#[path = "job_abort_tests.rs"]
mod aborts;

use super::*;
use rma_bootstrap::wire::Reply;

const START: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);

fn job(size: u32) -> Job {
    let (job_id, timeout, hosts) = ("j".into(), Some(100 * GRACE), Vec::new());
    Job::new(Wishes { size, job_id, timeout, grace: GRACE, keep_going: false, patience: PATIENCE, hosts })
}

fn actions(job: &mut Job) -> Vec<Action> {
    std::iter::from_fn(|| job.poll_action()).collect()
}

fn hello(rank: u32) -> Request {
    Request::Hello { version: VERSION, rank, process: 1, job: "j".into() }
}

fn put(key: &str) -> Request {
    Request::Put { request: 1, key: key.into(), value: vec![5] }
}

fn get(rank: u32) -> Request {
    Request::Get { request: 2, rank, key: "a".into() }
}

/// A job whose ranks have all joined, and nothing to be done.
fn joined(size: u32) -> Job {
    let mut job = job(size);
    for rank in 0..size {
        job.on_request(rank, hello(rank), START);
        let welcome = Reply::Welcome { version: VERSION, size };
        assert_eq!(actions(&mut job), [Action::Send(rank, welcome)]);
    }
    job
}

#[test]
fn values_reach_those_who_ask_before_and_after() {
    let mut job = joined(3);
    job.on_request(0, get(1), START);
    assert_eq!(actions(&mut job), []);
    job.on_request(1, put("a"), START);
    let value = Reply::Value { request: 2, value: vec![5] };
    assert_eq!(actions(&mut job), [Action::Send(0, value.clone())]);
    job.on_request(1, Request::Finalize, START);
    job.on_request(2, get(1), START);
    assert_eq!(actions(&mut job), [Action::Send(2, value)]);
}

#[test]
fn what_cannot_come_any_more_is_said_at_once() {
    for end in [Request::Finalize, hello(1)] {
        let mut job = joined(3);
        job.on_request(0, get(1), START);
        job.on_request(1, end, START);
        job.on_request(2, get(1), START);
        let missing = actions(&mut job).into_iter().filter_map(|action| match action {
            Action::Send(rank, Reply::Missing { request: 2, .. }) => Some(rank),
            _ => None,
        });
        assert_eq!(missing.collect::<Vec<_>>(), [0, 2]);
    }
    let mut job = joined(2);
    job.on_request(0, get(2), START);
    assert!(matches!(actions(&mut job)[..], [Action::Send(0, Reply::Refused { request: 2, .. })]));
}

#[test]
fn a_job_that_goes_well_ends_with_0() {
    let mut job = joined(2);
    for rank in [0, 1] {
        assert_eq!(actions(&mut job), []);
        job.on_request(rank, Request::Finalize, START);
        assert_eq!(job.verdict(), None);
    }
    let released = [0, 1].map(|rank| Action::Send(rank, Reply::AllFinalized));
    assert_eq!(actions(&mut job), released);
    for rank in [0, 1] {
        job.on_control_ended(rank, None);
        job.on_exit(rank, ExitStatus::Code(0), START);
    }
    assert_eq!((actions(&mut job), job.verdict()), (vec![], Some(0)));
}

#[test]
fn finalized_ranks_are_released_when_the_last_one_ends_without_joining() {
    let mut job = job(3);
    for rank in [0, 2] {
        job.on_request(rank, hello(rank), START);
        job.on_request(rank, Request::Finalize, START);
    }
    assert_eq!(actions(&mut job).len(), 2, "welcomes");
    job.on_exit(1, ExitStatus::Code(0), START);
    let released = [0, 2].map(|rank| Action::Send(rank, Reply::AllFinalized));
    assert_eq!(actions(&mut job), released);
}

#[test]
fn programs_that_never_join_may_exit_one_by_one() {
    let mut job = job(3);
    job.on_request(2, hello(2), START);
    job.on_request(2, get(0), START);
    job.on_exit(0, ExitStatus::Code(0), START);
    job.on_control_ended(1, None);
    job.on_exit(1, ExitStatus::Code(0), START);
    assert_eq!(job.verdict(), None);
    assert!(matches!(actions(&mut job)[..], [_, Action::Send(2, Reply::Missing { .. })]));
    job.on_exit(2, ExitStatus::Code(0), START);
    assert_eq!(job.verdict(), Some(0));
}

#[test]
fn the_first_failure_ends_the_job_and_gives_the_code() {
    for (status, code) in [(ExitStatus::Code(3), 3), (ExitStatus::Signal(11), 139)] {
        let mut job = joined(3);
        job.on_exit(1, status, START);
        assert_eq!(actions(&mut job), [Action::Say(Report::Failed(1, status)), Action::Signal(SIGTERM)]);
        job.on_exit(0, ExitStatus::Signal(SIGTERM), START);
        job.on_exit(0, ExitStatus::Code(9), START);
        assert_eq!(job.verdict(), None);
        job.on_exit(2, ExitStatus::Code(7), START);
        assert_eq!((actions(&mut job), job.verdict()), (vec![], Some(code)));
    }
}

#[test]
fn a_failure_waits_a_moment_for_the_end_of_a_rank_that_had_left_before() {
    let failed = ExitStatus::Code(3);
    let ended = |signal| vec![Action::Say(Report::FailedAfter(1, failed, 0)), Action::Signal(signal)];
    let suspicious = || {
        let mut job = joined(3);
        job.on_control_ended(0, None);
        job.on_exit(1, failed, START);
        assert_eq!((actions(&mut job), job.verdict()), (vec![], None));
        job
    };
    for status in [ExitStatus::Code(2), ExitStatus::Signal(11), ExitStatus::Code(0)] {
        let mut job = suspicious();
        job.on_exit(0, status, START);
        assert_eq!((actions(&mut job), job.status(0)), (ended(SIGTERM), Some(status)));
        job.on_exit(2, ExitStatus::Signal(SIGTERM), START);
        assert_eq!(job.verdict(), Some(3));
    }
    let mut job = suspicious();
    let until = job.deadline().unwrap();
    assert!(until > START && until < START + Duration::from_secs(1));
    job.on_time(until - Duration::from_millis(1));
    assert_eq!(actions(&mut job), []);
    job.on_time(until);
    assert_eq!(actions(&mut job), ended(SIGTERM));

    // The first failure is the reason, whatever comes within the moment.
    let mut job = suspicious();
    job.on_exit(2, ExitStatus::Code(4), START);
    assert_eq!(actions(&mut job), []);
    job.on_signal(2, START);
    assert_eq!(actions(&mut job), ended(2));
    job.on_exit(0, ExitStatus::Code(0), START);
    assert_eq!(job.verdict(), Some(3));
}

#[test]
fn leaving_without_finalize_fails_while_others_may_wait() {
    let mut job = joined(2);
    job.on_exit(0, ExitStatus::Code(0), START);
    assert_eq!(actions(&mut job), [Action::Say(Report::Vanished(0)), Action::Signal(SIGTERM)]);
    job.on_exit(1, ExitStatus::Signal(SIGTERM), START);
    assert_eq!(job.verdict(), Some(1));

    let mut job = joined(2);
    job.on_request(1, Request::Finalize, START);
    job.on_control_ended(0, None);
    job.on_exit(0, ExitStatus::Code(0), START);
    job.on_exit(1, ExitStatus::Code(0), START);
    assert_eq!((actions(&mut job), job.verdict()), (vec![Action::Send(1, Reply::AllFinalized)], Some(0)));
}

#[test]
fn ranks_that_do_not_end_are_killed_after_the_grace_and_given_up_at_last() {
    let mut job = joined(2);
    job.on_exit(0, ExitStatus::Code(1), START);
    actions(&mut job);
    assert_eq!(job.deadline(), Some(START + GRACE));
    job.on_time(START + GRACE - Duration::from_millis(1));
    assert_eq!(actions(&mut job), []);
    job.on_time(START + GRACE);
    assert_eq!(actions(&mut job), [Action::Say(Report::Killing), Action::Signal(SIGKILL)]);
    assert_eq!(job.deadline(), Some(START + GRACE + KILL_PATIENCE));
    job.on_time(START + GRACE + KILL_PATIENCE);
    assert_eq!(job.verdict(), None);
    assert_eq!(actions(&mut job), [Action::Say(Report::GaveUp)]);
    assert_eq!((job.verdict(), job.deadline()), (Some(1), None));
}

#[test]
fn the_time_limit_ends_the_job() {
    let mut job = joined(1);
    let limit = 100 * GRACE;
    assert_eq!(job.deadline(), Some(limit));
    job.on_time(limit);
    assert_eq!(actions(&mut job), [Action::Say(Report::TimedOut(limit)), Action::Signal(SIGTERM)]);
    job.on_exit(0, ExitStatus::Code(0), limit);
    assert_eq!(job.verdict(), Some(CODE_TIMED_OUT));
    job.on_time(limit + limit);
    assert_eq!(actions(&mut job), []);
}

#[test]
fn the_first_interrupt_asks_and_the_second_kills() {
    let mut job = joined(2);
    job.on_signal(2, START);
    assert_eq!(actions(&mut job), [Action::Say(Report::Interrupted(2)), Action::Signal(2)]);
    job.on_signal(2, START);
    assert_eq!(actions(&mut job), [Action::Say(Report::Killing), Action::Signal(SIGKILL)]);
    job.on_signal(2, START);
    assert_eq!(actions(&mut job), []);
    job.on_exit(0, ExitStatus::Code(0), START);
    job.on_exit(1, ExitStatus::Signal(SIGKILL), START);
    assert_eq!(job.verdict(), Some(130));
}

#[test]
fn what_is_out_of_order_costs_the_connection_and_not_the_job() {
    let wrong_version = Request::Hello { version: VERSION + 1, rank: 0, process: 1, job: "j".into() };
    let wrong_job = Request::Hello { version: VERSION, rank: 0, process: 1, job: "k".into() };
    for request in [put("a"), get(1), Request::Finalize, wrong_version, wrong_job, hello(1)] {
        let mut job = job(2);
        job.on_request(0, request, START);
        let done = actions(&mut job);
        assert!(matches!(done[..2], [Action::Send(0, Reply::Refused { .. }), Action::Close(0)]), "{done:?}");
        assert!(matches!(done[2..], [Action::Say(Report::ControlClosed(0, _))]), "{done:?}");
        assert_eq!((job.state(0), job.running_count()), (State::Unconnected, 2));
    }
    let mut job = joined(2);
    job.on_control_ended(0, Some("malformed".into()));
    assert_eq!(actions(&mut job), [Action::Say(Report::ControlClosed(0, "malformed".into()))]);
    assert_eq!((job.state(0), job.verdict()), (State::Severed, None));
}

/// Ten thousand sessions without a process: every rank asks its neighbour, and the work at the
/// launcher is that of the messages.
#[test]
fn ten_thousand_sessions() {
    const SIZE: u32 = 10_000;
    let mut job = joined(SIZE);
    for rank in 0..SIZE {
        job.on_request(rank, get((rank + 1) % SIZE), START);
    }
    assert_eq!(actions(&mut job), []);
    for rank in 0..SIZE {
        job.on_request(rank, put("a"), START);
        let asker = (rank + SIZE - 1) % SIZE;
        let value = Reply::Value { request: 2, value: vec![5] };
        assert_eq!(actions(&mut job), [Action::Send(asker, value)]);
    }
    for rank in 0..SIZE {
        assert_eq!(actions(&mut job), []);
        job.on_request(rank, Request::Finalize, START);
    }
    assert_eq!(actions(&mut job).len(), SIZE as usize, "all are released");
    for rank in 0..SIZE {
        job.on_control_ended(rank, None);
        job.on_exit(rank, ExitStatus::Code(0), START);
    }
    assert_eq!((actions(&mut job), job.verdict()), (vec![], Some(0)));
}

/// Whatever ranks say, in whatever order, the job stands, answers nobody who has not asked, and is
/// over exactly when all processes are.
#[test]
fn random_histories_never_panic_and_always_end() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below) as u32
    };
    for _ in 0..2_000 {
        let size = 1 + random(5);
        let mut job = job(size);
        let mut now = START;
        let mut waiting = vec![0_i64; size as usize];
        for _ in 0..random(60) {
            let rank = random(size.into());
            match random(12) {
                0..=3 => job.on_request(rank, hello(rank), now),
                4..=5 => job.on_request(rank, put(["a", "b"][random(2) as usize]), now),
                6..=7 => {
                    waiting[rank as usize] += 1;
                    job.on_request(rank, get(random(u64::from(size) + 1)), now);
                }
                8 => job.on_request(rank, Request::Finalize, now),
                9 => job.on_control_ended(rank, (random(2) == 0).then(|| "malformed".into())),
                10 if random(4) == 0 => job.on_signal(2, now),
                11 if random(2) == 0 => job.on_exit(rank, ExitStatus::Code(random(3) as u8), now),
                _ => now += Duration::from_millis(random(3_000).into()),
            }
            job.on_time(now);
            for action in actions(&mut job) {
                if let Action::Send(to, Reply::Value { .. } | Reply::Missing { .. }) = action {
                    waiting[to as usize] -= 1;
                }
            }
            assert!(waiting.iter().all(|count| *count >= 0), "an answer to nobody");
            if job.deadline().is_some() {
                assert_eq!(job.verdict().is_some(), job.running_count() == 0);
            }
        }
        for rank in 0..size {
            job.on_exit(rank, ExitStatus::Code(0), now);
        }
        actions(&mut job);
        assert!(job.verdict().is_some() && job.running_count() == 0);
    }
}

fn pmi(name: &str) -> Message {
    Message::new(name).with("pmi_version", 1).with("pmi_subversion", 1)
}

/// What rank `rank` is told after it said this by PMI: the names of the messages.
fn say_pmi(job: &mut Job, rank: u32, name: &str) -> Vec<(u32, String)> {
    job.on_pmi(rank, &pmi(name), START);
    let replies = actions(job).into_iter().filter_map(|action| match action {
        Action::SendPmi(rank, message) => Some((rank, message.name().to_owned())),
        _ => None,
    });
    replies.collect()
}

#[test]
fn a_rank_joins_and_finalizes_by_pmi() {
    let mut job = job(2);
    assert_eq!(say_pmi(&mut job, 0, "init"), [(0, "response_to_init".to_owned())]);
    assert_eq!((job.state(0), job.state(1)), (State::Connected, State::Started));
    // It never uses its control connection, and may close it.
    job.on_control_ended(0, None);
    assert_eq!(job.state(0), State::Connected);
    assert_eq!(say_pmi(&mut job, 0, "finalize"), [(0, "finalize_ack".to_owned())]);
    assert_eq!(job.state(0), State::Finalized);
    job.on_pmi_ended(0, None);
    job.on_exit(0, ExitStatus::Code(0), START);
    job.on_exit(1, ExitStatus::Code(0), START);
    assert_eq!((actions(&mut job), job.verdict()), (vec![], Some(0)));
}

#[test]
fn a_rank_that_joined_by_pmi_and_leaves_without_finalizing_ends_the_job() {
    for severed in [false, true] {
        let mut job = job(2);
        say_pmi(&mut job, 0, "init");
        if severed {
            job.on_pmi_ended(0, None);
            assert_eq!(job.state(0), State::Severed);
        }
        job.on_exit(0, ExitStatus::Code(0), START);
        assert!(actions(&mut job).contains(&Action::Say(Report::Vanished(0))));
    }
}

#[test]
fn a_rank_may_be_part_of_the_job_in_both_ways() {
    for pmi_is_first in [false, true] {
        let mut job = job(1);
        if pmi_is_first {
            say_pmi(&mut job, 0, "init");
            job.on_request(0, hello(0), START);
        } else {
            job.on_request(0, hello(0), START);
            say_pmi(&mut job, 0, "init");
        }
        assert_eq!(job.state(0), State::Connected);
        actions(&mut job);
        for pmi_finalizes in [pmi_is_first, !pmi_is_first] {
            assert_eq!(job.state(0), State::Connected, "both have to finalize");
            if pmi_finalizes {
                say_pmi(&mut job, 0, "finalize");
            } else {
                job.on_request(0, Request::Finalize, START);
            }
        }
        assert_eq!(job.state(0), State::Finalized);
    }
}

#[test]
fn who_waits_in_a_barrier_is_told_when_it_cannot_end() {
    let mut job = job(3);
    for rank in [0, 1] {
        say_pmi(&mut job, rank, "init");
        assert_eq!(say_pmi(&mut job, rank, "barrier_in"), []);
    }
    job.on_exit(2, ExitStatus::Code(0), START);
    let told = actions(&mut job)
        .into_iter()
        .filter(|action| matches!(action, Action::SendPmi(_, message) if message.number("rc") == Some(-1)));
    assert_eq!(told.count(), 2);
    job.on_pmi(2, &pmi("init"), START);
    assert_eq!(actions(&mut job), [], "the dead say nothing");
}

#[test]
fn pmi_out_of_order_costs_that_connection() {
    let mut job = job(2);
    job.on_pmi(0, &pmi("put"), START);
    let done = actions(&mut job);
    assert_eq!(done[0], Action::ClosePmi(0));
    assert!(matches!(&done[1], Action::Say(Report::ControlClosed(0, why)) if why.contains("out of order")));
    assert_eq!(job.state(0), State::Started, "it may still join over its control connection");
    job.on_pmi(1, &pmi("init"), START);
    job.on_pmi(1, &Message::new("abort").with("exitcode", 9), START);
    job.on_exit(1, ExitStatus::Code(9), START);
    assert!(actions(&mut job).contains(&Action::Say(Report::Aborted(1, "by PMI".into()))));
}

#[test]
fn a_job_that_keeps_going_ends_with_its_last_rank_and_its_first_failure() {
    let (job_id, timeout, hosts) = ("j".into(), Some(100 * GRACE), Vec::new());
    let wishes =
        Wishes { size: 3, job_id, timeout, grace: GRACE, keep_going: true, patience: PATIENCE, hosts };
    let mut job = Job::new(wishes);
    (0..3).for_each(|rank| job.on_request(rank, hello(rank), START));
    actions(&mut job);
    job.on_request(0, get(2), START);
    job.on_exit(2, ExitStatus::Code(4), START);
    let told = actions(&mut job);
    assert!(told.contains(&Action::Say(Report::Failed(2, ExitStatus::Code(4)))), "{told:?}");
    assert!(matches!(told[0], Action::Send(0, Reply::Missing { .. })), "who waits is answered: {told:?}");
    assert!(!told.iter().any(|action| matches!(action, Action::Signal(_))), "{told:?}");
    job.on_exit(1, ExitStatus::Code(0), START);
    let lost = |to: u32, rank: u32| Action::Send(to, Reply::Lost { rank });
    assert_eq!(told[2..], [lost(0, 2), lost(1, 2)], "the others are told");
    assert_eq!(actions(&mut job), [Action::Say(Report::Vanished(1)), lost(0, 1)]);
    job.on_request(0, Request::Finalize, START);
    job.on_exit(0, ExitStatus::Code(0), START);
    actions(&mut job);
    assert_eq!(job.verdict(), Some(4));
}

/// A job of 4 ranks on the hosts 0 and 1, joined.
fn on_two_hosts(keep_going: bool) -> Job {
    let (job_id, hosts) = ("j".into(), vec![0, 1, 0, 1]);
    let mut job = Job::new(Wishes {
        size: 4,
        job_id,
        timeout: None,
        grace: GRACE,
        keep_going,
        patience: PATIENCE,
        hosts,
    });
    (0..4).for_each(|rank| job.on_request(rank, hello(rank), START));
    actions(&mut job);
    job
}

#[test]
fn a_lost_host_ends_the_job() {
    let mut job = on_two_hosts(false);
    job.on_request(0, get(1), START);
    job.on_host_lost(1, "gone".into(), START);
    let told = actions(&mut job);
    assert!(told.contains(&Action::Say(Report::HostLost(1, 2, "gone".into()))), "{told:?}");
    assert!(told.contains(&Action::Signal(SIGTERM)), "{told:?}");
    assert!(matches!(told[0], Action::Send(0, Reply::Missing { .. })), "{told:?}");
    assert_eq!(
        (job.status(1), job.status(3), job.status(0)),
        (Some(ExitStatus::Lost), Some(ExitStatus::Lost), None)
    );
    job.on_host_lost(1, "gone again".into(), START);
    job.on_exit(3, ExitStatus::Code(0), START);
    assert_eq!(actions(&mut job), [], "what is lost cannot be lost again");
    job.on_exit(0, ExitStatus::Signal(SIGTERM), START);
    job.on_exit(2, ExitStatus::Signal(SIGTERM), START);
    assert_eq!(job.verdict(), Some(CODE_MISBEHAVED));
}

#[test]
fn a_job_that_keeps_going_goes_on_without_a_host() {
    let mut job = on_two_hosts(true);
    job.on_host_lost(1, "gone".into(), START);
    let told = actions(&mut job);
    assert!(told.contains(&Action::Say(Report::HostLost(1, 2, "gone".into()))), "{told:?}");
    assert!(!told.iter().any(|action| matches!(action, Action::Signal(_))), "{told:?}");
    for rank in [0, 2] {
        job.on_request(rank, Request::Finalize, START);
        job.on_exit(rank, ExitStatus::Code(0), START);
    }
    actions(&mut job);
    assert_eq!(job.verdict(), Some(CODE_MISBEHAVED));
}

#[test]
fn a_host_whose_ranks_have_ended_has_nothing_to_lose() {
    let mut job = on_two_hosts(false);
    for rank in 0..4 {
        job.on_request(rank, Request::Finalize, START);
        job.on_exit(rank, ExitStatus::Code(0), START);
    }
    actions(&mut job);
    job.on_host_lost(1, "gone".into(), START);
    assert_eq!((actions(&mut job), job.verdict()), (vec![], Some(0)));
}

#[test]
fn a_rank_that_cannot_be_started_ends_the_job_with_its_code() {
    for keep_going in [false, true] {
        let mut job = on_two_hosts(keep_going);
        job.on_not_started(3, 127, "not found".into(), START);
        let told = actions(&mut job);
        assert!(told.contains(&Action::Say(Report::NotStarted(3, "not found".into()))), "{told:?}");
        (0..3).for_each(|rank| job.on_exit(rank, ExitStatus::Signal(SIGTERM), START));
        actions(&mut job);
        assert_eq!(job.verdict(), Some(127));
    }
}

#[test]
fn a_rank_that_hangs_at_its_start_is_named_when_somebody_waits_for_it() {
    for keep_going in [false, true] {
        let (job_id, hosts) = ("j".into(), vec![0, 1, 1]);
        let mut job = Job::new(Wishes {
            size: 3,
            job_id,
            timeout: None,
            grace: GRACE,
            keep_going,
            patience: PATIENCE,
            hosts,
        });
        job.on_request(0, hello(0), START);
        assert_eq!(job.deadline(), None, "nobody waits for those that have not joined");
        job.on_request(0, get(1), START);
        job.on_request(0, get(2), START);
        // One joins, the other does not.
        job.on_request(1, hello(1), START);
        assert_eq!(job.deadline(), Some(START + PATIENCE));
        job.on_time(START + PATIENCE - Duration::from_millis(1));
        assert_eq!(actions(&mut job).len(), 2, "welcomes");
        job.on_time(START + PATIENCE);
        let told = actions(&mut job);
        assert_eq!(told[0], Action::Say(Report::NeverJoined(2, 0, PATIENCE)), "{told:?}");
        let is_missing = |action: &Action| matches!(action, Action::Send(0, Reply::Missing { .. }));
        assert!(told.iter().any(is_missing), "{told:?}");
        assert_eq!(told.contains(&Action::Signal(SIGTERM)), !keep_going);
        (0..3).for_each(|rank| job.on_exit(rank, ExitStatus::Signal(SIGTERM), START + PATIENCE));
        actions(&mut job);
        assert_eq!(job.verdict(), Some(CODE_MISBEHAVED));
    }
}

#[test]
fn who_joins_late_learns_whom_the_job_has_lost() {
    let mut job = on_two_hosts(true);
    job.states[0] = State::Started;
    job.on_exit(2, ExitStatus::Signal(SIGKILL), START);
    actions(&mut job);
    job.on_request(0, hello(0), START);
    assert_eq!(actions(&mut job)[1..], [Action::Send(0, Reply::Lost { rank: 2 })]);
}

#[test]
fn who_has_finalized_hears_of_losses() {
    let mut job = on_two_hosts(true);
    job.on_request(1, Request::Finalize, START);
    job.on_request(3, Request::Finalize, START);
    job.on_control_ended(3, None);
    actions(&mut job);
    // What the dead has locked of rank 1's memory is to be free for rank 0.
    job.on_exit(2, ExitStatus::Signal(SIGKILL), START);
    let told = actions(&mut job);
    let lost: Vec<&Action> =
        told.iter().filter(|action| matches!(action, Action::Send(_, Reply::Lost { .. }))).collect();
    assert_eq!(lost, [&Action::Send(0, Reply::Lost { rank: 2 }), &Action::Send(1, Reply::Lost { rank: 2 })]);
}
