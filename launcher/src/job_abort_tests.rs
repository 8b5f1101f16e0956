use super::*;

/// A job of three ranks, one of which has just aborted it.
fn aborted(code: i32) -> Job {
    let mut job = joined(3);
    job.on_request(1, Request::Abort { code, message: "m".into() }, START);
    assert_eq!((actions(&mut job), job.verdict()), (vec![], None), "it may have more to say");
    job
}

#[test]
fn an_abort_ends_the_job_with_its_code_once_the_rank_has_ended() {
    let ended = || vec![Action::Say(Report::Aborted(1, "m".into())), Action::Signal(SIGTERM)];
    for (asked, code) in [(7, 7), (0, 1), (-1, 1), (256, 1)] {
        for status in [ExitStatus::Code(3), ExitStatus::Code(0), ExitStatus::Signal(SIGKILL)] {
            let mut job = aborted(asked);
            job.on_exit(1, status, START);
            assert_eq!(actions(&mut job), ended());
            [0, 2].into_iter().for_each(|rank| job.on_exit(rank, ExitStatus::Signal(SIGTERM), START));
            assert_eq!(job.verdict(), Some(code));
        }
    }

    // How the others end meanwhile is no reason of its own.
    let mut job = aborted(7);
    job.on_control_ended(1, None);
    job.on_exit(0, ExitStatus::Code(4), START);
    job.on_exit(2, ExitStatus::Code(0), START);
    assert_eq!((actions(&mut job), job.verdict()), (vec![], None));
    job.on_exit(1, ExitStatus::Code(3), START);
    assert_eq!(
        (actions(&mut job), job.verdict()),
        (vec![Action::Say(Report::Aborted(1, "m".into()))], Some(7))
    );
}

#[test]
fn who_aborts_and_stays_is_not_waited_for_for_ever() {
    let mut job = aborted(7);
    let until = job.deadline().unwrap();
    assert!(until > START && until < START + Duration::from_secs(60));
    job.on_time(until - Duration::from_millis(1));
    assert_eq!(actions(&mut job), []);
    job.on_time(until);
    let ended = |signal| vec![Action::Say(Report::Aborted(1, "m".into())), Action::Signal(signal)];
    assert_eq!(actions(&mut job), ended(SIGTERM));

    // Nor against the user's will.
    let mut job = aborted(7);
    job.on_signal(2, START);
    assert_eq!(actions(&mut job), ended(2));
}
