//! The exhaustive exploration: what it says of the engine, and whether it may be believed.

use std::collections::HashMap;

use rma_sim::explore::{explore, scenarios, Act, Choice, Grounds, Limits, Outcome, Report, Scenario, World};
use rma_sim::Random;

/// The larger ones are for `rma-sim explore`, which is built with all optimizations.
const STATES_MAX: usize = 3_000;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/model-checking.md");

fn search(scenario: &Scenario) -> Report {
    explore(scenario, Limits { states_max: STATES_MAX, is_checked: false })
}

/// Searches with engines that make every choice, and compares that with the search that looks up what it knows.
/// `false`: the scenario is too large for that.
fn search_both_ways(scenario: &Scenario, states_max: usize) -> bool {
    let limits = |is_checked| Limits { states_max, is_checked };
    let report = explore(scenario, limits(false));
    if report.outcome == Outcome::Cut {
        return false;
    }
    assert_eq!(report.outcome, Outcome::Holds, "{}", scenario.name);
    assert!(report.ends > 0, "{} has an end", scenario.name);
    let checked = explore(scenario, limits(true));
    assert_eq!(checked.row(scenario), report.row(scenario));
    assert_eq!(checked.executed, checked.transitions);
    assert!(report.executed < report.transitions, "{} looks up nothing", scenario.name);
    true
}

/// `rma-sim explore --ranks 2 --check` does all of them.
#[test]
fn two_ranks_with_one_element_each_hold_in_every_interleaving() {
    let all = scenarios(2, 1);
    let held = all.iter().filter(|scenario| search_both_ways(scenario, 500)).count();
    assert!(5 * held > 3 * all.len(), "{held} of {} are as small as this", all.len());
}

/// With three ranks a choice leaves much more alone. The larger ones are for `rma-sim explore --ranks 3 --check`.
#[test]
fn what_three_ranks_were_seen_to_do_is_what_they_do() {
    let small = [
        "one packet",
        "one to all",
        "two locks",
        "two locks and flushes, native, local completion",
        "locks of the next rank",
        "lock_all of two targets",
        "a flush behind an element given up",
        "an order call behind an element given up",
    ];
    let mut all = scenarios(3, 1);
    all.retain(|scenario| small.contains(&scenario.name));
    assert_eq!(all.len(), small.len());
    assert!(all.iter().all(|scenario| search_both_ways(scenario, STATES_MAX)));
}

/// Its counts change with every packet that the engine saves; the page names every scenario.
#[test]
fn the_page_shows_every_scenario() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    for (ranks, pool) in [(2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (4, 2)] {
        for scenario in scenarios(ranks, pool) {
            let (protocol, name) = (scenario.protocol.name(), scenario.name);
            let beginning = format!("| {protocol} | {name} | {ranks} | {pool} |");
            let shown = page.lines().find(|line| line.starts_with(&beginning));
            let again = "rma-sim explore --write docs/model-checking.md";
            assert!(
                shown.is_some_and(|shown| shown.ends_with("| holds |")),
                "{beginning} is missing: {again}"
            );
        }
    }
}

/// What stands above the table is written together with it.
#[test]
fn the_page_adds_its_table_up() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.ends_with("| holds |"))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    // States and transitions follow protocol, scenario, ranks and pool.
    let sum = |column: usize| rows.iter().map(|row| row[column].parse::<u64>().unwrap()).sum::<u64>();
    let (states, transitions) = (sum(5), sum(6));
    let sums = format!("{} scenarios have {states} states and {transitions} transitions.", rows.len());
    assert!(page.contains(&sums), "{sums}");
}

/// Elements run out where they are meant to: lock_all goes from its per-target protocol to that of the window.
#[test]
fn four_ranks_run_out_of_elements() {
    let name = "more targets than elements";
    let scenario = scenarios(4, 2).into_iter().find(|scenario| scenario.name == name).unwrap();
    let grounds = Grounds::new(&scenario);
    let mut random = Random::new(1);
    let falls_back = (0..20).any(|_| {
        let mut world = World::new(&scenario, &grounds).unwrap();
        (0..60).any(|_| {
            let choices = world.choices();
            world.apply(choices[random.index(choices.len())]).unwrap();
            world.describe().contains("LockAllIssued")
        })
    });
    assert!(falls_back, "lock_all has enough elements");
}

#[test]
fn a_search_finds_the_same_states_again() {
    let scenario = &scenarios(3, 1)[1];
    assert_eq!(search(scenario), search(scenario));
}

#[test]
fn a_wrong_end_is_found_with_its_schedule() {
    let mut scenario = scenarios(2, 1).swap_remove(0);
    scenario.end[0].2 += 1;
    let report = search(&scenario);
    let Outcome::Violated { what, schedule } = report.outcome else { panic!("it must be found") };
    assert!(what.contains("word 0 of rank 0 is 2 at the end and not 3"), "{what}");
    let world = follow(&scenario, &Grounds::new(&scenario), &schedule);
    assert!(world.is_over(), "the schedule leads there");
}

#[test]
fn a_deadlock_is_found_with_its_schedule() {
    let mut scenario = scenarios(2, 1).swap_remove(0);
    // Each keeps its own lock while it wants the other's.
    scenario.acts = [(0, 1), (1, 0)].map(|(own, other)| crossed(own, other).into()).to_vec();
    scenario.end.clear();
    let report = search(&scenario);
    let Outcome::Violated { what, schedule } = report.outcome else { panic!("it must be found") };
    assert!(what.contains("no end can be reached"), "{what}");
    assert!(!schedule.is_empty());
}

fn crossed(own: u32, other: u32) -> [Act; 6] {
    let lock = |target| Act::Lock { target, is_exclusive: true, no_check: false };
    let add = Act::Add { target: other, word: 0, number: 1 };
    let flush = Act::Flush { target: other };
    [lock(own), lock(other), add, flush, Act::Unlock { target: other }, Act::Unlock { target: own }]
}

fn follow(scenario: &Scenario, grounds: &Grounds, schedule: &[String]) -> World {
    let mut world = World::new(scenario, grounds).unwrap();
    for wanted in schedule {
        let choice = world.choices().into_iter().find(|choice| choice.to_string() == *wanted);
        world.apply(choice.unwrap()).unwrap();
    }
    world
}

/// Some way through a scenario: for each step the choice, and the fingerprint behind it.
fn random_way(scenario: &Scenario, grounds: &Grounds, seed: u64, steps: usize) -> Vec<(Choice, u64)> {
    let mut random = Random::new(seed);
    let mut world = World::new(scenario, grounds).unwrap();
    let mut way = Vec::new();
    for _ in 0..steps {
        let choices = world.choices();
        let choice = choices[random.index(choices.len())];
        world.apply(choice).unwrap();
        way.push((choice, world.fingerprint()));
    }
    way
}

/// What happens after a beginning, with choices drawn by `seed`: everything that can be told of it.
fn continuation(
    scenario: &Scenario,
    grounds: &Grounds,
    beginning: &[Choice],
    seed: u64,
) -> Vec<(Choice, u64)> {
    let mut random = Random::new(seed);
    let mut world = World::new(scenario, grounds).unwrap();
    beginning.iter().for_each(|&choice| world.apply(choice).unwrap());
    let mut seen = Vec::new();
    for _ in 0..40 {
        let choices = world.choices();
        let choice = choices[random.index(choices.len())];
        seen.push((choice, world.fingerprint()));
        world.apply(choice).unwrap();
    }
    seen
}

/// Ways through each scenario.
const SEEDS: u64 = 3;

/// The search leaves out what it has seen before, so two states with one fingerprint must have one future:
/// the same choices, and the same states behind each of them.
#[test]
fn equal_fingerprints_have_equal_continuations() {
    let mut compared = 0;
    for (index, scenario) in (0..).zip(scenarios(2, 1).into_iter().chain(scenarios(3, 1))) {
        let grounds = Grounds::new(&scenario);
        let mut first: HashMap<u64, Vec<Choice>> = HashMap::new();
        for seed in 0..SEEDS {
            let way = random_way(&scenario, &grounds, 1000 * index + seed, 40);
            let choices: Vec<Choice> = way.iter().map(|(choice, _)| *choice).collect();
            for (at, (_, fingerprint)) in way.iter().enumerate() {
                let beginning = &choices[..=at];
                let earlier = first.entry(*fingerprint).or_insert_with(|| beginning.to_vec());
                // Those that differ in more than steps that changed nothing.
                if earlier != beginning && at % 7 == seed as usize % 7 {
                    let other = continuation(&scenario, &grounds, earlier, seed);
                    let this = continuation(&scenario, &grounds, beginning, seed);
                    assert_eq!(other, this, "{}: {earlier:?} and {beginning:?}", scenario.name);
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 300, "{compared} pairs");
}
