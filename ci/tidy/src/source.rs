//! Rust source with its comments and literals blanked out, so that the checks see code only.

/// A source file, and views of it in which every byte stays at its place.
#[derive(Debug)]
pub struct Source {
    code: Vec<u8>,
    production: Vec<u8>,
}

impl Source {
    /// Reads `text`, which need not be correct Rust.
    pub fn new(text: &str) -> Self {
        let code = blank_literals(text.as_bytes());
        let mut production = code.clone();
        blank_tests(&mut production);
        Self { code, production }
    }

    /// The code: comments, and the contents of strings and characters, are spaces.
    pub fn code(&self) -> &[u8] {
        &self.code
    }

    /// [`Self::code`] without the items under `#[cfg(test)]`.
    pub fn production(&self) -> &[u8] {
        &self.production
    }

    /// The modules declared under `#[cfg(test)]` whose body is in another file.
    pub fn test_modules(&self) -> Vec<String> {
        let tests = test_items(&self.code);
        let words: Vec<_> =
            tests.into_iter().flat_map(|(start, end)| words(&self.code, start, end)).collect();
        let declared = words.windows(2).filter(|pair| pair[0].text == "mod");
        declared
            .filter(|pair| self.code.get(pair[1].end) == Some(&b';'))
            .map(|pair| pair[1].text.clone())
            .collect()
    }

    /// The line of byte `at`, counted from 1.
    pub fn line(&self, at: usize) -> usize {
        1 + self.code[..at].iter().filter(|&&byte| byte == b'\n').count()
    }

    /// How many lines the file has.
    pub fn line_count(&self) -> usize {
        let unfinished = self.code.last().is_some_and(|&byte| byte != b'\n');
        self.line(self.code.len()) - 1 + usize::from(unfinished)
    }
}

/// An identifier or keyword, and where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Word {
    /// The word.
    pub text: String,
    /// Its first byte.
    pub start: usize,
    /// The byte after it.
    pub end: usize,
}

/// The words of `code` from byte `start` to `end`.
pub fn words(code: &[u8], start: usize, end: usize) -> Vec<Word> {
    let mut words = Vec::new();
    let mut at = start;
    while at < end {
        let from = at;
        while at < end && is_word_byte(code[at]) {
            at += 1;
        }
        if at > from {
            let text = String::from_utf8_lossy(&code[from..at]).into_owned();
            words.push(Word { text, start: from, end: at });
        } else {
            at += 1;
        }
    }
    words
}

/// The byte after the bracket that closes the one at `open`, or the end of the code.
pub fn closing(code: &[u8], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// The first of `wanted` from byte `start` on that is in no bracket opened since.
pub fn find_outside(code: &[u8], start: usize, wanted: &[u8]) -> Option<usize> {
    let mut at = start;
    while at < code.len() {
        if wanted.contains(&code[at]) {
            return Some(at);
        }
        at = if matches!(code[at], b'{' | b'(' | b'[') { closing(code, at) } else { at + 1 };
    }
    None
}

fn is_word_byte(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

/// The items under a `#[cfg(test)]` (also `all(test, ..)`), each from the attribute to its end.
fn test_items(code: &[u8]) -> Vec<(usize, usize)> {
    let mut items = Vec::new();
    let mut at = 0;
    while let Some(found) = find(code, at, b"#[cfg(") {
        let attribute_end = closing(code, found + 1);
        let condition = words(code, found + 6, attribute_end);
        let texts: Vec<_> = condition.iter().map(|word| word.text.as_str()).collect();
        at = attribute_end;
        if matches!(texts[..], ["test", ..] | ["all", "test", ..]) {
            let end = match find_outside(code, attribute_end, b";{") {
                Some(open) if code[open] == b'{' => closing(code, open),
                Some(semicolon) => semicolon + 1,
                None => code.len(),
            };
            items.push((found, end));
            at = end;
        }
    }
    items
}

fn blank_tests(code: &mut [u8]) {
    for (start, end) in test_items(code) {
        blank(&mut code[start..end]);
    }
}

fn find(code: &[u8], start: usize, wanted: &[u8]) -> Option<usize> {
    code.get(start..)?.windows(wanted.len()).position(|window| window == wanted).map(|at| start + at)
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

/// The text with comments and the contents of literals blanked.
fn blank_literals(text: &[u8]) -> Vec<u8> {
    let mut code = text.to_vec();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let in_word = at > 0 && is_word_byte(text[at - 1]);
        let (from, end) = if rest.starts_with(b"//") {
            (at, at + line_length(rest))
        } else if rest.starts_with(b"/*") {
            (at, at + comment_length(rest))
        } else if let Some((prefix, length)) = raw_string(rest).filter(|_| !in_word) {
            (at + prefix, at + length)
        } else if rest[0] == b'"' {
            (at + 1, at + quoted_length(rest, b'"') - 1)
        } else if rest[0] == b'\'' && is_character(rest) {
            (at + 1, at + quoted_length(rest, b'\'') - 1)
        } else {
            at += 1;
            continue;
        };
        let end = end.clamp(from, text.len());
        blank(&mut code[from..end]);
        at = end.max(at) + usize::from(matches!(rest[0], b'"' | b'\''));
    }
    code
}

fn line_length(rest: &[u8]) -> usize {
    rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len())
}

/// A block comment; they nest.
fn comment_length(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// If `rest` begins a raw string: where its contents begin, and where all of it ends.
fn raw_string(rest: &[u8]) -> Option<(usize, usize)> {
    let prefix = rest.iter().take_while(|byte| matches!(byte, b'b' | b'c')).count().min(1);
    let hashes = rest.get(prefix..)?.strip_prefix(b"r")?.iter().take_while(|&&byte| byte == b'#').count();
    let open = prefix + 1 + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let end = find(rest, open + 1, &close).map_or(rest.len(), |at| at + close.len());
    Some((open, end))
}

/// Whether the apostrophe begins a character and not a lifetime.
fn is_character(rest: &[u8]) -> bool {
    let one_byte = rest.get(2) == Some(&b'\'');
    let wide = rest.get(1).is_some_and(|byte| !byte.is_ascii());
    rest.get(1) == Some(&b'\\') || one_byte || wide
}

/// A string or character with escapes, with both quotes.
fn quoted_length(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        let source = Source::new(text);
        assert_eq!(source.code().len(), text.len());
        String::from_utf8(source.code().to_vec()).unwrap()
    }

    #[test]
    fn comments_and_literals_are_blank() {
        for (text, expected) in [
            ("a // b {\nc", "a       \nc"),
            ("a /* b /* c */ { */ d", "a                   d"),
            (r#"x("{ \" {", '{', '\'', b'{')"#, r#"x("      ", ' ', '  ', b' ')"#),
            ("f::<'a>('é', 'a')", "f::<'a>('  ', ' ')"),
            ("r#\"{ \" }\"# + r#fn", "r#         + r#fn"),
            ("br\"{\" var", "br    var"),
            ("\"unfinished {", "\"            "),
            ("'\\", "' "),
        ] {
            assert_eq!(code(text), expected);
        }
    }

    #[test]
    fn test_items_are_no_production_code() {
        let text = "a;\n#[cfg(test)]\n#[rustfmt::skip]\nmod tests { fn b() {} }\n\
                    #[cfg(all(test, x))] use c;\nd;\n#[cfg(test)]\nmod model;\n#[cfg(not(test))] e;\n";
        let source = Source::new(text);
        let production = String::from_utf8(source.production().to_vec()).unwrap();
        let texts: Vec<_> =
            words(production.as_bytes(), 0, production.len()).into_iter().map(|w| w.text).collect();
        assert_eq!(texts, ["a", "d", "cfg", "not", "test", "e"]);
        assert_eq!(source.test_modules(), ["model"]);
    }

    #[test]
    fn lines_are_counted() {
        for (text, count) in [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\"a\nb\"\n", 2)] {
            assert_eq!(Source::new(text).line_count(), count, "{text:?}");
        }
        assert_eq!(Source::new("a\nb\nc").line(4), 3);
    }
}
