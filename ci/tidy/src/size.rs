//! Files and functions stay short enough to be read at once.

use crate::source::{closing, find_outside, words, Source};
use crate::Finding;

/// A Rust file has fewer lines than this.
pub const FILE_LINES: usize = 600;
/// A function has fewer lines than this, from `fn` to the closing brace.
pub const FUNCTION_LINES: usize = 70;

/// Finds files and functions that are too long.
pub fn check(path: &str, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let file_lines = source.line_count();
    if file_lines >= FILE_LINES {
        let message = format!("file has {file_lines} lines: split it below {FILE_LINES}");
        findings.push(Finding { path: path.to_owned(), line: file_lines, message });
    }
    let code = source.code();
    let words = words(code, 0, code.len());
    for pair in words.windows(2).filter(|pair| pair[0].text == "fn") {
        // A function pointer type has no name; in a macro the name may be a `$variable`.
        let between = &code[pair[0].end..pair[1].start];
        if between.iter().any(|byte| !matches!(byte, b' ' | b'\n' | b'$')) {
            continue;
        }
        let Some(open) = find_outside(code, pair[1].end, b"{;").filter(|&at| code[at] == b'{') else {
            continue;
        };
        let first = source.line(pair[0].start);
        let lines = source.line(closing(code, open) - 1) - first + 1;
        if lines >= FUNCTION_LINES {
            let name = &pair[1].text;
            let message = format!("function `{name}` has {lines} lines: split it below {FUNCTION_LINES}");
            findings.push(Finding { path: path.to_owned(), line: first, message });
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<(usize, String)> {
        let findings = check("a.rs", &Source::new(text));
        findings.into_iter().map(|finding| (finding.line, finding.message)).collect()
    }

    #[test]
    fn long_files_are_found() {
        assert_eq!(messages(&"x;\n".repeat(599)), []);
        let found = messages(&"x;\n".repeat(600));
        assert_eq!(found, [(600, "file has 600 lines: split it below 600".to_owned())]);
    }

    #[test]
    fn long_functions_are_found() {
        let function = |lines: usize| {
            let before = "type F = fn(u8) -> u8;\ntrait T { fn short(&self); }\n\n";
            let body = "let brace = '{'; // {\n".repeat(lines - 3);
            format!("{before}fn long<T>(\n) {{\n{body}}}\nfn b() {{}}\n")
        };
        assert_eq!(messages(&function(69)), []);
        let found = messages(&function(70));
        assert_eq!(found, [(4, "function `long` has 70 lines: split it below 70".to_owned())]);
    }

    #[test]
    fn functions_in_macros_are_functions() {
        let text = format!("macro_rules! m {{ ($n:ident) => {{\nfn $n() {{\n{}}} }} }}", "x;\n".repeat(70));
        assert_eq!(messages(&text), [(2, "function `n` has 72 lines: split it below 70".to_owned())]);
    }
}
