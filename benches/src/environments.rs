//! The environments that rows come from: each once, and what tells them apart.

use crate::environment::Environment;

/// Names of values by which environments are called, those that say most first.
const TELLING: [&str; 13] = [
    "provider",
    "libfabric",
    "nic",
    "domain",
    "ranks",
    "ranks_on_host",
    "launcher",
    "version",
    "build",
    "processor",
    "processors",
    "kernel",
    "settings",
];

/// Every environment of some rows.
#[derive(Clone, Debug, Default)]
pub struct Environments {
    all: Vec<Environment>,
    names: Vec<String>,
}

impl Environments {
    /// Of rows that come from these; those that are alike are one.
    pub fn of<'a>(rows: impl Iterator<Item = &'a Environment>) -> Self {
        let mut all: Vec<Environment> = Vec::new();
        for environment in rows {
            if !all.iter().any(|other| other.is_alike(environment)) {
                all.push(environment.clone());
            }
        }
        let names = names(&all);
        Self { all, names }
    }

    /// All of them, with what each is called: by nothing, where there is only one.
    pub fn iter(&self) -> impl Iterator<Item = (&Environment, &str)> {
        self.all.iter().zip(self.names.iter().map(String::as_str))
    }

    /// What the one that is like this is called.
    pub fn name(&self, environment: &Environment) -> &str {
        self.iter().find(|(other, _)| other.is_alike(environment)).map_or("", |(_, name)| name)
    }

    /// The different values of a name, in the order in which they came.
    pub fn values(&self, name: &str) -> Vec<String> {
        let mut values = Vec::new();
        for text in self.all.iter().map(|environment| environment.text(name)) {
            if !text.is_empty() && !values.contains(&text) {
                values.push(text);
            }
        }
        values
    }
}

/// Of as few values as tell them apart.
fn names(all: &[Environment]) -> Vec<String> {
    let mut names = vec![String::new(); all.len()];
    for value in TELLING {
        let longer: Vec<String> = names
            .iter()
            .zip(all)
            .map(|(name, environment)| extended(name, value, &environment.text(value)))
            .collect();
        if different(&longer) > different(&names) {
            names = longer;
        }
    }
    if different(&names) < names.len() {
        for (number, name) in (1..).zip(&mut names) {
            *name = extended(name, "environment", &format!("{number}"));
        }
    }
    names
}

/// A name with one more value.
fn extended(name: &str, value: &str, text: &str) -> String {
    let part = match value {
        _ if text.is_empty() => return name.to_owned(),
        "provider" => text.to_owned(),
        _ => format!("{} {text}", value.replace('_', " ")),
    };
    if name.is_empty() {
        part
    } else {
        format!("{name}, {part}")
    }
}

fn different(names: &[String]) -> usize {
    let mut names: Vec<&String> = names.iter().collect();
    names.sort_unstable();
    names.dedup();
    names.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, Value};

    fn named(all: &[Value]) -> Vec<String> {
        let all: Vec<Environment> = all.iter().map(Environment::from_json).collect();
        Environments::of(all.iter()).names
    }

    #[test]
    fn names_are_as_short_as_tells_them_apart() {
        assert_eq!(
            named(&[json!({"provider": "shm", "time": "1"}), json!({"provider": "shm", "time": "2"})]),
            [""]
        );
        let providers =
            [json!({"provider": "shm", "domain": "a"}), json!({"provider": "tcp", "domain": "b"})];
        assert_eq!(named(&providers), ["shm", "tcp"]);
        let ranks = [
            json!({"provider": "shm", "ranks": 2}),
            json!({"provider": "shm", "ranks": 4}),
            json!({"provider": "tcp", "ranks": 4}),
        ];
        assert_eq!(named(&ranks), ["shm, ranks 2", "shm, ranks 4", "tcp, ranks 4"]);
        let settings = [json!({"settings": {"RMA_COALESCE": "0"}}), json!({"settings": {}})];
        assert_eq!(named(&settings), ["settings RMA_COALESCE=0", ""]);
        let unknown = [json!({"fan": "loud"}), json!({"fan": "quiet"})];
        assert_eq!(named(&unknown), ["environment 1", "environment 2"]);
    }

    #[test]
    fn each_row_finds_its_own() {
        let of = |value: Value| Environment::from_json(&value);
        let (one, other) =
            (of(json!({"provider": "shm", "host": "n1"})), of(json!({"provider": "tcp", "host": "n1"})));
        let all = Environments::of([&one, &other].into_iter());
        assert_eq!((all.name(&one), all.name(&other)), ("shm", "tcp"));
        assert_eq!(
            all.name(&of(json!({"provider": "tcp", "host": "n2"}))),
            "tcp",
            "the same on another host"
        );
        assert_eq!(
            (all.values("provider"), all.values("host")),
            (vec!["shm".into(), "tcp".into()], vec!["n1".into()])
        );
        assert_eq!(all.name(&of(json!({"provider": "verbs"}))), "");
    }
}
