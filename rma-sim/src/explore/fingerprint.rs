//! What two engines have in common when they have the same future.
//!
//! The engine has no clock, no random numbers and no globals: what it does next follows from its fields, from
//! its endpoint and from the user's memory. Its fields are hashed as their derived `Debug` prints them, which
//! is **all of them**, also those that are added later; a test refuses hand-written `Debug` in the engine.
//! What is left out is listed here, each with the reason why it decides nothing.

use core::fmt::{Debug, Write};
use core::hash::Hasher;
use std::hash::DefaultHasher;

/// Fields that decide nothing: of which struct, which field.
const LEFT_OUT: &[(&str, &str)] = &[
    // The endpoint is hashed by the fabric, packets that it lent included.
    ("Process", "endpoint"),
    ("ReceivedPacket", "data"),
    // The same at every moment of one scenario.
    ("Process", "config"),
    ("Process", "limits"),
    // Written and sent within one call, never read before it is written again.
    ("Process", "stage"),
    // Figures for people: nothing reads them back.
    ("Process", "counters"),
    // Read only in the call that has written it.
    ("Shortcut", "offered"),
    // The same for every request of a rank.
    ("Engine", "number"),
    ("Request", "engine"),
    // Whose turn it is to be asked where more are waited for than are asked at a time.
    ("Process", "inquiries"),
    // What is asked once, as it does not change while the operation is pending.
    ("OperationElement", "is_short"),
    // For threads that sleep, of which a simulated rank has none.
    ("Process", "target_news"),
    ("Arena", "in_use_max"),
    // Addresses. What is kept there is part of the elements.
    ("OperationArena", "places"),
    // Addresses, too: what is put there is on its way, and is hashed with the operation.
    ("LockCells", "blocks"),
    // The fabric changes them: they are hashed with the rank's memory.
    ("Words", "memory"),
    ("Board", "kept"),
    ("Line", "page"),
    ("TargetElement", "phases"),
    ("SyncCall", "counted"),
    // After 64 of them a flush is bounded by marks if somebody posts beside it, and a rank here is one thread. So such
    // marks are not explored: `a_flush_ends_while_others_post` of the conformance suite is about them.
    ("SyncCall", "looks"),
    // Who is forgotten when the table is full: it has room for every rank of a scenario.
    ("Entry", "recent"),
    ("PeerTable", "hand"),
];

/// Structs that hold nothing of meaning while a field has a certain value: what then still counts.
const DEAD: &[(&str, &str, &str, &[&str])] = &[
    // A free element: its next use overwrites everything but the generation, which it counts up. Whether
    // the last use failed is kept for its request.
    ("OperationElement", "state", "Free", &["generation", "failed"]),
    // No kept bytes: `tail` is back at the beginning.
    ("DeferredRing", "used", "0", &[]),
    // No reply waits: which free buffer is used next, and what it holds from its last use, is nobody's
    // business.
    ("Replies", "waiting", "[]", &[]),
];

/// Hashes values by what their `Debug` says, without what decides nothing.
#[derive(Default, Debug)]
pub struct Fingerprinter {
    text: String,
}

impl Fingerprinter {
    /// Adds a value to a hash.
    pub fn add(&mut self, value: &impl Debug, hasher: &mut impl Hasher) {
        self.text.clear();
        // Writing to a string does not fail.
        let _ = write!(self.text, "{value:?}");
        Scanner { text: self.text.as_bytes(), at: 0 }.run(hasher);
    }

    /// The hash of one value.
    pub fn of(&mut self, value: &impl Debug) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.add(value, &mut hasher);
        hasher.finish()
    }
}

/// A cursor over the text of a `Debug`.
struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    /// Hashes the text, without the fields that are left out.
    fn run(mut self, hasher: &mut impl Hasher) {
        // For each open bracket: the struct's name, and what counts of it if it is dead.
        let mut open: Vec<(&str, Option<&[&str]>)> = Vec::new();
        let mut hashed = 0;
        let mut name = "";
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'"' => self.skip_string(),
                b'{' | b'(' | b'[' => {
                    let of = if byte == b'{' { name } else { "" };
                    let kept = self.kept_of_dead(of);
                    open.push((of, kept));
                    (self.at, name) = (self.at + 1, "");
                }
                b'}' | b')' | b']' => {
                    open.pop();
                    (self.at, name) = (self.at + 1, "");
                }
                _ if is_word(byte) => {
                    let start = self.at;
                    name = self.word();
                    let is_field = self.text[self.at..].starts_with(b": ");
                    let Some((of, kept)) = open.last().filter(|_| is_field) else { continue };
                    let is_dead = kept.is_some_and(|kept| !kept.contains(&name));
                    if is_dead || LEFT_OUT.contains(&(of, name)) {
                        hasher.write(&self.text[hashed..start]);
                        self.at += 2;
                        self.skip_value();
                        hashed = self.at;
                    }
                }
                b' ' => self.at += 1,
                _ => (self.at, name) = (self.at + 1, ""),
            }
        }
        hasher.write(&self.text[hashed..]);
    }

    fn word<'a>(&mut self) -> &'a str
    where
        Self: 'a,
    {
        let start = self.at;
        while self.text.get(self.at).is_some_and(|&byte| is_word(byte)) {
            self.at += 1;
        }
        // A word is ASCII.
        core::str::from_utf8(&self.text[start..self.at]).unwrap_or_default()
    }

    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(&byte) = self.text.get(self.at) {
            self.at += 1 + usize::from(byte == b'\\');
            if byte == b'"' {
                return;
            }
        }
    }

    /// To the end of a field's value: the comma or bracket behind it.
    fn skip_value(&mut self) {
        let mut depth = 0;
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'"' => {
                    self.skip_string();
                    continue;
                }
                b'{' | b'(' | b'[' => depth += 1,
                b'}' | b')' | b']' | b',' if depth == 0 => return,
                b'}' | b')' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
    }

    /// What counts of the struct whose bracket opens here, if it is dead.
    fn kept_of_dead(&self, of: &str) -> Option<&'static [&'static str]> {
        let (_, field, value, kept) = DEAD.iter().find(|(name, ..)| *name == of)?;
        let mut inner = Scanner { text: self.text, at: self.at + 1 };
        loop {
            while inner.text.get(inner.at).is_some_and(|&byte| matches!(byte, b' ' | b',')) {
                inner.at += 1;
            }
            if !inner.text.get(inner.at).is_some_and(|&byte| is_word(byte)) {
                return None;
            }
            let found = inner.word();
            inner.at += 2;
            let start = inner.at;
            inner.skip_value();
            if found == *field {
                let text = self.text[start..inner.at].trim_ascii();
                return (text == value.as_bytes()).then_some(*kept);
            }
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    #[allow(dead_code)] // read by Debug
    struct Process {
        size: u32,
        stage: [u8; 3],
        counters: Vec<(u32, &'static str)>,
        operations: Vec<OperationElement>,
    }

    #[derive(Debug)]
    #[allow(dead_code)] // read by Debug
    struct OperationElement {
        generation: u32,
        state: State,
        disp: u64,
    }

    #[derive(Debug)]
    enum State {
        Free,
        Pending,
    }

    fn process(size: u32, stage: u8, text: &'static str, state: State, disp: u64) -> Process {
        let operations = vec![OperationElement { generation: 3, state, disp }];
        Process { size, stage: [stage; 3], counters: vec![(1, text)], operations }
    }

    #[test]
    fn what_decides_nothing_is_left_out_and_everything_else_counts() {
        let of = |process| Fingerprinter::default().of(&process);
        let plain = of(process(1, 0, "", State::Free, 7));
        assert_eq!(plain, of(process(1, 9, "a } quoted \" bracket {", State::Free, 8)));
        assert_ne!(plain, of(process(2, 0, "", State::Free, 7)));
        assert_ne!(plain, of(process(1, 0, "", State::Pending, 7)));
        assert_ne!(of(process(1, 0, "", State::Pending, 7)), of(process(1, 0, "", State::Pending, 8)));
    }

    /// The fingerprint rests on derived `Debug` alone: what prints itself by hand could hide a field.
    #[test]
    fn nothing_in_the_engine_prints_itself_by_hand() {
        let known = [
            // Prints all of its bytes; nothing of it stays in the engine.
            "bootstrap.rs: AddressBytes",
            // Prints every rank that is in it.
            "lock/sharers.rs: Sharers",
            // Prints address and length, which is all there is.
            "mem/mod.rs: WindowMemory",
            // Prints the bytes that it points to.
            "table/arena.rs: Place",
        ];
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../rma-core/src");
        let mut found = Vec::new();
        let mut directories = vec![root.clone()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                for line in text.lines().filter(|line| line.contains("Debug for ")) {
                    let name = line.split("Debug for ").nth(1).unwrap().trim_end_matches(" {");
                    let file = path.strip_prefix(&root).unwrap().display();
                    found.push(format!("{file}: {name}"));
                }
            }
        }
        found.sort();
        assert_eq!(found, known);
    }
}
