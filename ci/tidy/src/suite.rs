//! The conformance suite: the bodies that run on every kind of world, as `tests/src/lib.rs` lists them.

use std::collections::BTreeSet;

/// Where the list is, relative to the root.
pub const LIST: &str = "tests/src/lib.rs";

/// Where worlds are that the list runs on, relative to the root.
pub const WORLDS: &str = "tests/tests/";

/// Where the bodies are, relative to the root.
pub const BODIES: &str = "tests/src/behaviour/";

/// The bodies of the suite.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Suite {
    /// Each with its group, which is a file or a folder of [`BODIES`].
    listed: BTreeSet<(String, String)>,
    /// Names behind `differ`: what cannot hold on some kind of world.
    differing: BTreeSet<String>,
}

impl Suite {
    /// Learns what a file says of the suite.
    pub fn read(&mut self, path: &str, text: &str) {
        if path == LIST {
            let list = text.split_once("$crate::suite!(@tests").and_then(|(_, rest)| rest.split_once(");"));
            for group in list.map_or("", |(list, _)| list).split(';') {
                let Some((name, bodies)) = group.split_once(':') else { continue };
                let bodies = bodies.split(',').map(str::trim).filter(|body| !body.is_empty());
                self.listed.extend(bodies.map(|body| (name.trim().to_owned(), body.to_owned())));
            }
        }
        if path.starts_with(WORLDS) {
            for behind in text.split("differ:").skip(1) {
                let names = behind.split(')').next().unwrap_or_default();
                let word = |character: char| !character.is_alphanumeric() && character != '_';
                let is_body = |name: &&str| self.listed.iter().any(|(_, body)| body == name);
                self.differing.extend(names.split(word).filter(is_body).map(str::to_owned));
            }
        }
    }

    /// How many bodies there are.
    pub fn len(&self) -> usize {
        self.listed.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// How many of them cannot hold on some kind of world.
    pub fn differing(&self) -> usize {
        self.differing.len()
    }

    /// Whether the item with this path and name is a body of the list.
    pub fn has(&self, path: &str, item: &str) -> bool {
        let Some(file) = path.strip_prefix(BODIES) else { return false };
        let group = file.split(['/', '.']).next().unwrap_or_default();
        self.listed.contains(&(group.to_owned(), item.to_owned()))
    }
}
