//! What random plans consist of: that they reach every feature is not to be believed without a count.

use std::collections::BTreeMap;
use std::fmt;

use rma_core::info::WindowOptions;

use super::plan::{Action, Form, Plan, WindowPlan};
use super::shape::Shape;

/// How often each kind of action, with its most telling property, was drawn.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Census {
    plans: u64,
    actions: BTreeMap<String, u64>,
}

impl Census {
    /// Counts everything in a plan.
    pub fn add(&mut self, plan: &Plan) {
        self.plans += 1;
        let ranks = match plan.fabric.ranks {
            0..=7 => "2 to 7",
            8..=64 => "8 to 64",
            _ => "65 to 256",
        };
        *self.actions.entry(format!("plan of {ranks} ranks")).or_default() += 1;
        for window in &plan.windows {
            for feature in features_of(window) {
                *self.actions.entry(format!("window {feature}")).or_default() += 1;
            }
        }
        for phase in &plan.phases {
            *self.actions.entry(format!("phase {}", phase.name)).or_default() += 1;
            for span in &phase.spans {
                *self.actions.entry(format!("span {}", name_of(&format!("{:?}", span.role)))).or_default() +=
                    1;
            }
            for action in phase.scripts.iter().flatten() {
                if let Action::Operation(plan) = action {
                    if Shape::of(plan).is_some() {
                        *self.actions.entry(format!("layouts {:?}", plan.verb)).or_default() += 1;
                    }
                    if plan.form != Form::Plain {
                        let form = name_of(&format!("{:?}", plan.form));
                        *self.actions.entry(format!("{form} {:?}", plan.verb)).or_default() += 1;
                    }
                }
                *self.actions.entry(kind_of(action)).or_default() += 1;
            }
        }
    }

    /// How often something whose name begins so was drawn.
    pub fn count(&self, beginning: &str) -> u64 {
        self.actions.iter().filter(|(name, _)| name.starts_with(beginning)).map(|(_, count)| count).sum()
    }
}

impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} plans", self.plans)?;
        self.actions.iter().try_for_each(|(name, count)| writeln!(f, "{count:9} {name}"))
    }
}

/// The kind of an action: of an operation its verb and type, of a call what it was told by flags.
fn kind_of(action: &Action) -> String {
    match action {
        Action::Operation(operation) => {
            format!("operation {:?} of {}", operation.verb, operation.dtype.name())
        }
        Action::Away(_) => "away".into(),
        Action::Fork { lengths } => {
            format!("fork of {} threads", lengths.iter().filter(|length| **length > 0).count())
        }
        Action::Await { which, by_test } => {
            format!("await {which:?}{}", if *by_test { " by_test" } else { "" })
        }
        // Whatever else there is, without its numbers: a variant that is new needs no line here.
        other => {
            let text = format!("{other:?}");
            let flags = text.split(['{', '}', ',', '(', ')']).filter(|part| part.trim().ends_with(": true"));
            let flags: Vec<&str> = flags.map(|part| part.trim().trim_end_matches(": true")).collect();
            format!("{} {}", name_of(&text), flags.join(" ")).trim_end().to_string()
        }
    }
}

/// What is special about a window.
fn features_of(window: &WindowPlan) -> impl Iterator<Item = &'static str> {
    let (options, default) = (&window.options, &WindowOptions::DEFAULT);
    let all = [
        (window.is_allocated, "allocated"),
        (window.over.is_some(), "over another"),
        (window.is_dynamic, "dynamic"),
        (window.is_shared, "shared"),
        (options.no_locks, "no_locks"),
        (options.same_size, "same_size"),
        (options.same_disp_unit, "same_disp_unit"),
        (options.accumulate_ordering != default.accumulate_ordering, "accumulate_ordering"),
        (options.accumulate_ops != default.accumulate_ops, "accumulate_ops"),
        (options.accumulate_granularity != 0, "mpi_accumulate_granularity"),
        (options.memory_alignment != 0, "mpi_minimum_memory_alignment"),
        (options.lock_protocol.is_some(), "rma_lock_protocol"),
    ];
    all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, name)| name)
}

fn name_of(text: &str) -> String {
    text.split([' ', '(', '{']).next().unwrap_or_default().to_lowercase()
}
