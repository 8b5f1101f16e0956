//! The floors of `rma-core`: an arrow between modules only points down, or stays on its floor.
//!
//! Tests are exempt: they may build whatever they need.

use crate::source::{closing, words, Source};
use crate::Finding;

/// Where the modules are, from the root of the repository.
pub const ROOT: &str = "rma-core/src/";

/// Every module of the crate's root, with its floor. A new module takes its place here.
pub const FLOORS: [(u8, &[&str]); 7] = [
    (6, &["engine"]),
    (5, &["progress", "flush", "restore"]),
    (4, &["window", "table", "path", "ghost"]),
    (3, &["epoch", "lock", "message"]),
    (2, &["provider", "bootstrap"]),
    (
        1,
        &[
            "wire",
            "state",
            "pool",
            "dtype",
            "half",
            "op",
            "layout",
            "mem",
            "primitive",
            "counters",
            "config",
            "info",
            "group",
            "check",
        ],
    ),
    (0, &["ids", "error", "mutation"]),
];

/// The floor of the pure state machines, which know of no provider.
const PURE_FLOOR: u8 = 3;

/// Finds uses that point up, and modules without a floor. `files` are paths below [`ROOT`].
pub fn check(files: &[(String, Source)]) -> Vec<Finding> {
    let tests: Vec<String> = files.iter().flat_map(|(path, source)| test_files(path, source)).collect();
    let is_test = |path: &str| {
        let module = module_path(path).join("/");
        tests.iter().any(|test| module == *test || module.starts_with(&format!("{test}/")))
    };
    let mut findings = Vec::new();
    for (path, source) in files.iter().filter(|(path, _)| path != "lib.rs" && !is_test(path)) {
        check_file(path, source, &mut findings);
    }
    findings
}

/// The modules from the crate's root to the file: `a/mod.rs` and `a.rs` are `[a]`, `a/b.rs` is `[a, b]`.
fn module_path(path: &str) -> Vec<&str> {
    let path = path.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    path.split('/').collect()
}

/// The modules that `source` declares for tests only, as `a/b`.
fn test_files(path: &str, source: &Source) -> Vec<String> {
    let mut parent = module_path(path).join("/");
    if path == "lib.rs" {
        parent.clear();
    } else {
        parent.push('/');
    }
    source.test_modules().into_iter().map(|module| format!("{parent}{module}")).collect()
}

fn floor_of(module: &str) -> Option<u8> {
    FLOORS.iter().find(|(_, modules)| modules.contains(&module)).map(|(floor, _)| *floor)
}

fn check_file(path: &str, source: &Source, findings: &mut Vec<Finding>) {
    let mut add = |line, message| {
        findings.push(Finding { path: format!("{ROOT}{path}"), line, message });
    };
    let modules = module_path(path);
    let module = modules[0];
    let Some(floor) = floor_of(module) else {
        add(1, format!("module `{module}` has no floor: give it one in ci/tidy/src/floors.rs"));
        return;
    };
    for (at, used) in uses(source.production(), modules.len()) {
        let line = source.line(at);
        match floor_of(&used) {
            Some(below) if below > floor => add(
                line,
                format!("floor {floor} `{module}` uses floor {below} `{used}`: an arrow only points down"),
            ),
            Some(_) if floor == PURE_FLOOR && used == "provider" => {
                add(line, format!("`{module}` is a pure state machine: it may not use `provider`"));
            }
            Some(_) => {}
            None => add(line, format!("`crate::{used}` is on no floor: name the module that defines it")),
        }
    }
    let production = source.production();
    let generic = words(production, 0, production.len()).into_iter().find(|word| word.text == "Endpoint");
    if let Some(word) = generic.filter(|_| floor == PURE_FLOOR) {
        let message = format!("`{module}` is a pure state machine: it may not be generic over an endpoint");
        add(source.line(word.start), message);
    }
}

/// The modules of the crate's root that `code` names, `depth` modules below the root: after
/// `crate::`, and after as many `super::` as lead there.
fn uses(code: &[u8], depth: usize) -> Vec<(usize, String)> {
    let mut uses = Vec::new();
    let words = words(code, 0, code.len());
    let mut supers = 0;
    for word in &words {
        let after = skip_separator(code, word.end);
        supers = if word.text == "super" { supers + 1 } else { 0 };
        match (word.text.as_str(), after) {
            ("crate", Some(after)) => uses.extend(leading_names(code, after)),
            // In an inline module this is one module short of the root: only names of modules count.
            ("super", Some(after)) if supers == depth => {
                let names = leading_names(code, after).into_iter();
                uses.extend(names.filter(|(_, name)| floor_of(name).is_some()));
            }
            _ => {}
        }
    }
    uses
}

/// The byte after `::` and white space, if that comes at `at`.
fn skip_separator(code: &[u8], at: usize) -> Option<usize> {
    let at = skip_spaces(code, at);
    code.get(at..)?.starts_with(b"::").then(|| skip_spaces(code, at + 2))
}

fn skip_spaces(code: &[u8], at: usize) -> usize {
    at + code[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// The first name of a path, or of each path in braces, at `at`.
fn leading_names(code: &[u8], at: usize) -> Vec<(usize, String)> {
    if code.get(at) != Some(&b'{') {
        let name = words(code, at, code.len().min(at + 64)).into_iter().next();
        return name.filter(|name| name.start == at).map(|name| (at, name.text)).into_iter().collect();
    }
    let end = closing(code, at) - 1;
    let mut names = Vec::new();
    let mut next = skip_spaces(code, at + 1);
    while next < end {
        names.extend(leading_names(code, next));
        let comma = crate::source::find_outside(&code[..end], next, b",");
        next = comma.map_or(end, |comma| skip_spaces(code, comma + 1));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> =
            files.iter().map(|(path, text)| ((*path).to_owned(), Source::new(text))).collect();
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn arrows_down_and_sideways_are_fine() {
        let text = "use crate::{ids::Rank, table::{Slot, Op}};\nuse super::dtype::Dtype;\n// crate::engine\n\
                    fn f() -> crate::provider::Post { \"crate::engine\" }";
        assert_eq!(messages(&[("window.rs", text), ("lib.rs", "pub use crate::engine::Engine;")]), [""; 0]);
    }

    #[test]
    fn arrows_up_are_found_however_they_are_written() {
        let up = "floor 1 `wire` uses floor 6 `engine`: an arrow only points down";
        for text in [
            "\nuse crate::engine::Engine;",
            "\nuse crate::{ids, engine::{self, Engine}, op};",
            "\nuse crate :: engine;",
            "\nuse super::engine;",
            "\nfn f(_: &crate::engine::Engine) {}",
            "\nmacro_rules! m { () => { $crate::engine::go() } }",
        ] {
            assert_eq!(messages(&[("wire.rs", text)]), [format!("rma-core/src/wire.rs:2: {up}")], "{text}");
        }
        let nested = messages(&[("wire/packet.rs", "use super::super::engine;")]);
        assert_eq!(nested, [format!("rma-core/src/wire/packet.rs:1: {up}")]);
        assert_eq!(messages(&[("wire/packet.rs", "use super::engine; use super::Packet;")]), [""; 0]);
    }

    #[test]
    fn state_machines_know_no_provider() {
        let found = messages(&[("lock/target.rs", "use crate::provider::Limits;\nfn f<E: Endpoint>() {}\n")]);
        assert_eq!(
            found,
            [
                "rma-core/src/lock/target.rs:1: `lock` is a pure state machine: it may not use `provider`",
                "rma-core/src/lock/target.rs:2: `lock` is a pure state machine: it may not be \
                 generic over an endpoint",
            ]
        );
    }

    #[test]
    fn unknown_modules_are_found() {
        let found = messages(&[("helper/mod.rs", ""), ("op.rs", "use crate::Thing;")]);
        assert_eq!(
            found,
            [
                "rma-core/src/helper/mod.rs:1: module `helper` has no floor: give it one in \
                 ci/tidy/src/floors.rs",
                "rma-core/src/op.rs:1: `crate::Thing` is on no floor: name the module that defines it",
            ]
        );
    }

    #[test]
    fn tests_are_exempt() {
        let inline = "#[cfg(test)]\nmod tests { use crate::engine::Engine; }";
        let outside = "#[cfg(test)]\nmod tests;";
        let test = "use crate::engine::Engine;";
        let files = [
            ("op.rs", inline),
            ("wire/mod.rs", outside),
            ("wire/tests.rs", test),
            ("wire/tests/model.rs", test),
            ("lib.rs", "#[cfg(test)] mod model;"),
            ("model.rs", test),
        ];
        assert_eq!(messages(&files), [""; 0]);
        assert_eq!(messages(&[("wire/mod.rs", "mod tests;"), ("wire/tests.rs", test)]).len(), 1);
    }
}
