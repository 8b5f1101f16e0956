//! What random plans consist of: that they reach every feature is not to be believed without a count.

use std::collections::BTreeMap;
use std::fmt;

use super::plan::{Action, Plan};

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
        for phase in &plan.phases {
            *self.actions.entry(format!("phase {}", phase.name)).or_default() += 1;
            for span in &phase.spans {
                *self.actions.entry(format!("span {}", name_of(&format!("{:?}", span.role)))).or_default() +=
                    1;
            }
            for action in phase.scripts.iter().flatten() {
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
        // Whatever else there is, without its numbers: a variant that is new needs no line here.
        other => {
            let text = format!("{other:?}");
            let flags = text.split(['{', '}', ',', '(', ')']).filter(|part| part.trim().ends_with(": true"));
            let flags: Vec<&str> = flags.map(|part| part.trim().trim_end_matches(": true")).collect();
            format!("{} {}", name_of(&text), flags.join(" ")).trim_end().to_string()
        }
    }
}

fn name_of(text: &str) -> String {
    text.split([' ', '(', '{']).next().unwrap_or_default().to_lowercase()
}
