//! Programs that speak PMI under `rmarun`. `ci/launch-tests.sh` does the same with programs of others.

mod common;

use std::process::Command;

use common::*;

/// The test rank as a program that speaks this version.
fn pmi_ranks(count: u32, version: &str, steps: &[&str]) -> Command {
    let mut command = ranks(count, steps);
    command.env("RMA_BOOTSTRAP", version);
    command
}

#[test]
fn ranks_find_each_other_by_pmi() {
    for version in ["pmi1", "pmi2"] {
        let outcome = finish(pmi_ranks(4, version, &["place", "publish", "look-around", "leave"]));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        for rank in 0..4 {
            for part in [
                format!("rank {rank} of 4, local {rank} of 4, single host true\n"),
                format!("rank {rank} found all 4\n"),
                format!("rank {rank} left\n"),
            ] {
                assert!(outcome.stdout.contains(&part), "{version}: {outcome:?}");
            }
        }
    }
}

#[test]
fn sixty_four_ranks_find_each_other_by_pmi() {
    let outcome = finish(pmi_ranks(64, "pmi2", &["publish", "look-around", "leave"]));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.stdout.matches("found all 64").count(), 64, "{outcome:?}");
}

#[test]
fn ranks_of_both_kinds_are_one_job() {
    let script = format!("[ $RMA_RANK = 0 ] && export RMA_BOOTSTRAP=pmi1; exec {RANK} place leave");
    let outcome = finish(shell(2, &[], &script));
    // The one that speaks PMI waits in a barrier that the other one never enters, and is told.
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("a_rank_has_ended"), "{outcome:?}");
}

#[test]
fn a_rank_that_leaves_without_finalizing_ends_the_job() {
    let outcome = finish(pmi_ranks(3, "pmi2", &["publish", "exit@1=0", "look-around", "leave"]));
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("rank 1"), "{outcome:?}");
}

#[test]
fn a_rank_that_aborts_by_pmi_ends_the_job_with_its_code() {
    for version in ["pmi1", "pmi2"] {
        let outcome = finish(pmi_ranks(2, version, &["abort@1=enough", "exit@1=3", "wait"]));
        assert_eq!(outcome.code, Some(7), "{outcome:?}");
        assert!(outcome.stderr.contains("rank 1 aborts the job: enough"), "{outcome:?}");
    }
}

#[test]
fn what_is_no_pmi_costs_the_rank_that_connection_and_nothing_else() {
    let script =
        format!("[ $RMA_RANK = 1 ] && exec {RANK} garbage=PMI_FD; exec {RANK} publish lookup=0 finalize");
    let outcome = finish(shell(3, &[], &script));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stderr.contains("closed the control connection of rank 1"), "{outcome:?}");
}

#[test]
fn programs_that_a_rank_starts_do_not_get_the_pmi_connection() {
    let script = r#"test ! -e /proc/self/fd/$PMI_FD && test -z "$PMI_PORT$PMIX_RANK""#;
    let mut command = ranks(2, &[&format!("run={script}"), "finalize"]);
    command
        .env("PMI_PORT", "outer:1")
        .env("PMI_ID", "0")
        .env("PMIX_RANK", "0")
        .env("PMIX_NAMESPACE", "outer");
    let outcome = finish(command);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}
