//! Ranks that find each other, or do not.

mod common;

use std::process::Command;

use common::*;

#[test]
fn ranks_find_each_other() {
    let outcome = finish(ranks(4, &["place", "publish", "exchange", "finalize"]));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for rank in 0..4 {
        assert!(outcome.stdout.contains(&format!("rank {rank} found all 4\n")), "{outcome:?}");
        assert!(outcome.stdout.contains(&format!("rank {rank} of 4, local {rank} of 4, single host true\n")));
    }
}

#[test]
fn sixty_four_ranks_find_each_other() {
    let outcome = finish(ranks(64, &["publish", "exchange", "finalize"]));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.stdout.matches("found all 64").count(), 64, "{outcome:?}");
}

#[test]
fn a_rank_behind_a_shell_joins_too() {
    let outcome = finish(shell(2, &[], &format!("{RANK} publish exchange finalize; exit $?")));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.stdout.matches("found all 2").count(), 2, "{outcome:?}");
}

#[test]
fn a_rank_that_never_publishes_is_named() {
    let folder = Folder::new("unpublished");
    // Rank 1 has joined when it is asked for: one that has not is another matter.
    let joins = ["run@1=: > $READY", "run@0=until [ -e $READY ]; do sleep 0.01; done"];
    let mut command = ranks(2, &[joins[0], joins[1], "lookup@0=1", "wait"]);
    command.env("RMA_BOOTSTRAP_TIMEOUT", "10").env("READY", folder.path.join("ready"));
    let outcome = finish(command);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("rank 1 has not published it within 10 s"), "{outcome:?}");
}

#[test]
fn a_rank_that_has_ended_is_named_without_waiting() {
    let outcome = finish(ranks(2, &["finalize@1", "exit@1=0", "lookup=1"]));
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("rank 1 will not publish it: it has"), "{outcome:?}");
}

#[test]
fn malformed_messages_cost_the_rank_its_connection_and_nothing_else() {
    let script = format!(
        "[ $RMA_RANK = 1 ] && exec {RANK} garbage=RMA_CONTROL_FD; exec {RANK} publish lookup=0 finalize"
    );
    let outcome = finish(shell(3, &[], &script));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stderr.contains("closed the control connection of rank 1"), "{outcome:?}");
}

#[test]
fn programs_that_a_rank_starts_do_not_get_the_connection() {
    let outcome = finish(ranks(
        2,
        &["run=test -n \"$RMA_CONTROL_FD\" && test ! -e /proc/self/fd/$RMA_CONTROL_FD", "finalize"],
    ));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

#[test]
fn a_rank_that_joins_twice_is_told() {
    let outcome = finish(shell(1, &[], &format!("{RANK} publish finalize && {RANK} publish")));
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    for part in ["this rank's place is taken or used up", "RMA_BOOTSTRAP=pmi2 or single"] {
        assert!(outcome.stderr.contains(part), "no '{part}' in {outcome:?}");
    }
}

fn alone(variables: &[(&str, &str)]) -> Outcome {
    let mut command = Command::new(RANK);
    without_settings(&mut command);
    command.args(["place", "publish", "exchange", "finalize"]).envs(variables.iter().copied());
    finish(command)
}

#[test]
fn a_program_without_rmarun_is_a_job_of_one() {
    let outcome = alone(&[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stdout.contains("rank 0 of 1, local 0 of 1, single host true"), "{outcome:?}");
    let outcome = alone(&[("RMA_BOOTSTRAP", "single"), ("RMA_RANK", "3")]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let outcome = alone(&[("RMA_SINGLE", "1"), ("RMA_RANK", "3"), ("PMI_SIZE", "2"), ("PMI_RANK", "0")]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

#[test]
fn half_an_environment_or_another_launcher_is_an_error() {
    let full = [
        ("RMA_RANK", "0"),
        ("RMA_SIZE", "1"),
        ("RMA_LOCAL_RANK", "0"),
        ("RMA_LOCAL_SIZE", "1"),
        ("RMA_JOB_ID", "j"),
        ("RMA_CONTROL_FD", "99"),
    ];
    for (variables, part) in [
        (&full[..5], "but not RMA_CONTROL_FD"),
        (&full[..], "RMA_CONTROL_FD=99 is no control connection"),
        (&[("RMA_TIMEOUT", "soon")], "RMA_TIMEOUT=soon (environment)"),
        (&[("PMI_RANK", "0"), ("PMI_SIZE", "4")], "start the job with `rmarun"),
        (&[("PMI_RANK", "0"), ("PMI_SIZE", "4"), ("PMI_FD", "99")], "PMI_FD=99 is no control connection"),
        (&[("SLURM_JOB_ID", "5"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2")], "srun --mpi=pmix"),
        (&[("RMA_BOOTSTRAP", "pmix")], "PMIX_NAMESPACE and PMIX_RANK are not set"),
        (&[("RMA_BOOTSTRAP", "pmi")], "one of auto, rmarun, pmix, pmi2, pmi1, single"),
    ] {
        let outcome = alone(variables);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(outcome.stderr.contains(part), "no '{part}' in {outcome:?}");
    }
}
