//! Nothing is left for later in the text, and no test is switched off without a reason.

use crate::source::{closing, words, Source};
use crate::Finding;

/// Words that mark work left for later. Spelled in parts, as this file is checked too.
const MARKERS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
/// Macros that stand for code left for later.
const MACROS: [&str; 2] = ["todo", "unimplemented"];

/// Finds markers in any text.
pub fn check_text(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for word in words(line.as_bytes(), 0, line.len()) {
            if MARKERS.contains(&word.text.as_str()) {
                let message = format!("`{}`: do it now, or write down why not", word.text);
                findings.push(Finding { path: path.to_owned(), line: index + 1, message });
            }
        }
    }
    findings
}

/// Finds placeholder macros, and ignored tests without a reason, in Rust code.
pub fn check_code(path: &str, source: &Source) -> Vec<Finding> {
    let code = source.code();
    let mut findings = Vec::new();
    let mut add = |at, message| {
        findings.push(Finding { path: path.to_owned(), line: source.line(at), message });
    };
    let words = words(code, 0, code.len());
    for word in &words {
        let next = code.get(word.end).copied();
        if MACROS.contains(&word.text.as_str()) && next == Some(b'!') {
            add(word.start, format!("`{}!`: write the code", word.text));
        }
        if word.text == "ignore" && matches!(next, Some(b']' | b')')) && in_attribute(code, word.start) {
            add(word.start, "ignored test: say why, `#[ignore = \"reason\"]`".to_owned());
        }
    }
    findings
}

/// Whether byte `at` is between `#[` and its `]`.
fn in_attribute(code: &[u8], at: usize) -> bool {
    let open = code[..at].windows(2).rposition(|pair| pair == b"#[");
    open.is_some_and(|open| closing(code, open + 1) > at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_found_anywhere_but_inside_words() {
        for marker in MARKERS {
            let findings =
                check_text("a.md", &format!("fine\n{marker}: later\n{marker}{marker}, {marker}_LIST\n"));
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert_eq!(findings[0].line, 2);
        }
    }

    #[test]
    fn placeholder_macros_are_found_in_code() {
        let text =
            "// todo!()\nfn a() { unimplemented!(\"x\") }\nfn b() { let todo = \"todo!\"; core::todo!() }";
        let lines: Vec<_> = check_code("a.rs", &Source::new(text)).iter().map(|f| f.line).collect();
        assert_eq!(lines, [2, 3]);
    }

    #[test]
    fn ignored_tests_need_a_reason() {
        let text =
            "#[ignore]\n#[ignore = \"needs a NIC\"]\n#[cfg_attr(x, ignore)]\nfn a(ignore: [u8; ignore]) {}\n\
                    #[cfg_attr(x, ignore = \"y\")]\n";
        let lines: Vec<_> = check_code("a.rs", &Source::new(text)).iter().map(|f| f.line).collect();
        assert_eq!(lines, [1, 3]);
    }
}
