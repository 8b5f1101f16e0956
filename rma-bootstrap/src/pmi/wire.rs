//! PMI-1 and PMI-2 as bytes, for both sides. No socket in here.
//!
//! PMI-1 is lines, `cmd=put kvsname=j key=k value=v` with a line feed behind it; a command may take several
//! lines instead, from `mcmd=spawn` to `endcmd`. PMI-2 is a length in six characters and as many bytes,
//! `cmd=kvs-put;key=k;value=v;`, where a semicolon inside a value is doubled. Both begin as lines: the first
//! exchange says which version is spoken.
//!
//! Every length is checked before anything is copied, so a peer cannot make the reader hold more than about
//! [`MESSAGE_BYTES_MAX`] bytes.

use std::fmt;

/// Longest message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Most fields of a message.
pub const FIELDS_MAX: usize = 256;

/// Characters of the length in front of a PMI-2 message.
const LENGTH_BYTES: usize = 6;

/// How messages look on the connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Syntax {
    /// Lines: PMI-1, and the first exchange of PMI-2.
    #[default]
    Lines,
    /// A length and as many bytes: PMI-2.
    Counted,
}

/// A command or the reply to one.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Message {
    name: String,
    fields: Vec<(String, String)>,
}

/// Why bytes are not a message, or a message cannot become bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PmiError {
    /// More than [`MESSAGE_BYTES_MAX`] bytes, or a length that is none.
    Length,
    /// More than [`FIELDS_MAX`] fields.
    TooManyFields,
    /// It does not begin with `cmd=` and a name.
    NoCommand,
    /// A field without `=`.
    NoValue,
    /// Not UTF-8.
    NotText,
    /// A field has a character that the syntax cannot carry there.
    Character,
}

impl fmt::Display for PmiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => {
                write!(f, "a PMI message of more than {MESSAGE_BYTES_MAX} bytes, or without a length")
            }
            Self::TooManyFields => write!(f, "a PMI message of more than {FIELDS_MAX} fields"),
            Self::NoCommand => f.write_str("a PMI message that does not begin with a command"),
            Self::NoValue => f.write_str("a PMI field without a value"),
            Self::NotText => f.write_str("a PMI message that is not UTF-8 text"),
            Self::Character => f.write_str("a PMI field with a character that PMI cannot carry"),
        }
    }
}

impl std::error::Error for PmiError {}

impl Message {
    /// The command or reply with this name and no fields yet.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), fields: Vec::new() }
    }

    /// The message with one more field.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl fmt::Display) -> Self {
        self.fields.push((field.to_owned(), value.to_string()));
        self
    }

    /// The message with one more field, a text for people: what PMI cannot carry becomes an underscore.
    #[must_use]
    pub fn with_text(self, field: &str, text: &str) -> Self {
        let carried = |c: char| if c.is_ascii_graphic() && c != ';' { c } else { '_' };
        self.with(field, text.chars().map(carried).collect::<String>())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of a field; of the first one where there are several.
    pub fn get(&self, field: &str) -> Option<&str> {
        self.fields.iter().find(|(name, _)| name == field).map(|(_, value)| value.as_str())
    }

    /// The value of a field that is a whole number.
    pub fn number<N: std::str::FromStr>(&self, field: &str) -> Option<N> {
        self.get(field)?.parse().ok()
    }

    /// Appends the message to `out`. On error `out` is as it was.
    ///
    /// # Errors
    /// When it is too long or has characters that the syntax cannot carry.
    pub fn encode(&self, syntax: Syntax, out: &mut Vec<u8>) -> Result<(), PmiError> {
        // A name that came in another form than this one must not turn into fields of its own.
        let is_word = |word: &str| !word.contains(|c: char| c == ';' || c == '=' || c.is_whitespace());
        if self.name.is_empty() || !is_word(&self.name) {
            return Err(PmiError::Character);
        }
        let mut text = format!("cmd={}", self.name);
        for (field, value) in &self.fields {
            if !is_word(field) {
                return Err(PmiError::Character);
            }
            text.push(if syntax == Syntax::Lines { ' ' } else { ';' });
            text += field;
            text.push('=');
            match syntax {
                Syntax::Lines if value.contains(char::is_whitespace) => return Err(PmiError::Character),
                Syntax::Lines => text += value,
                Syntax::Counted => text += &value.replace(';', ";;"),
            }
        }
        text.push(if syntax == Syntax::Lines { '\n' } else { ';' });
        if text.len() > MESSAGE_BYTES_MAX {
            return Err(PmiError::Length);
        }
        if syntax == Syntax::Counted {
            out.extend_from_slice(format!("{:>LENGTH_BYTES$}", text.len()).as_bytes());
        }
        out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// Whether name and fields consist of characters without another meaning, and so survive every syntax.
    pub(crate) fn is_plain(&self) -> bool {
        let is_plain = |text: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        };
        is_plain(&self.name) && self.fields.iter().all(|(field, _)| is_plain(field))
    }

    fn add(&mut self, field: &str, value: String) -> Result<(), PmiError> {
        if self.fields.len() == FIELDS_MAX {
            return Err(PmiError::TooManyFields);
        }
        self.fields.push((field.to_owned(), value));
        Ok(())
    }
}

/// Puts a stream of bytes back together into messages.
#[derive(Debug, Default)]
pub struct Reader {
    buffer: Vec<u8>,
    consumed: usize,
    /// Bytes behind `consumed` that have no line feed.
    searched: usize,
    syntax: Syntax,
    /// A command of several lines whose end has not come, and its bytes so far.
    block: Option<(Message, usize)>,
}

impl Reader {
    /// What follows is in this syntax.
    pub fn set_syntax(&mut self, syntax: Syntax) {
        self.syntax = syntax;
        self.searched = 0;
    }

    /// How many more bytes [`Reader::push`] takes now. Zero never lasts: when the buffer is full, a
    /// message is in it or it is too long.
    pub fn room(&self) -> usize {
        LENGTH_BYTES + MESSAGE_BYTES_MAX - (self.buffer.len() - self.consumed)
    }

    /// Takes bytes from the stream, at most [`Reader::room`] of them; returns how many.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        self.buffer.extend_from_slice(&bytes[..taken]);
        taken
    }

    /// The next whole message, if there is one.
    ///
    /// # Errors
    /// When the bytes are no message. The stream cannot be trusted after that: close it.
    pub fn poll(&mut self) -> Result<Option<Message>, PmiError> {
        match self.syntax {
            Syntax::Counted => self.poll_counted(),
            Syntax::Lines => self.poll_lines(),
        }
    }

    fn poll_counted(&mut self) -> Result<Option<Message>, PmiError> {
        let Some((length, rest)) = self.buffer[self.consumed..].split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = std::str::from_utf8(length).map_err(|_| PmiError::Length)?;
        let len: usize = length.trim_matches(' ').parse().map_err(|_| PmiError::Length)?;
        if len > MESSAGE_BYTES_MAX {
            return Err(PmiError::Length);
        }
        let Some(body) = rest.get(..len) else {
            return Ok(None);
        };
        let message = decode_counted(body)?;
        self.consumed += LENGTH_BYTES + len;
        Ok(Some(message))
    }

    fn poll_lines(&mut self) -> Result<Option<Message>, PmiError> {
        loop {
            let pending = &self.buffer[self.consumed..];
            let Some(end) = pending[self.searched..].iter().position(|byte| *byte == b'\n') else {
                self.searched = pending.len();
                return if pending.len() > MESSAGE_BYTES_MAX { Err(PmiError::Length) } else { Ok(None) };
            };
            let end = self.searched + end;
            let line = std::str::from_utf8(&pending[..end]).map_err(|_| PmiError::NotText)?.to_owned();
            self.consumed += end + 1;
            self.searched = 0;
            if let Some(message) = self.take_line(&line)? {
                return Ok(Some(message));
            }
        }
    }

    fn take_line(&mut self, line: &str) -> Result<Option<Message>, PmiError> {
        let Some((mut message, bytes)) = self.block.take() else {
            if let Some(name) = line.strip_prefix("mcmd=") {
                self.block = Some((Message::new(name.trim()), line.len()));
                return Ok(None);
            }
            return decode_line(line).map(Some);
        };
        if line.trim() == "endcmd" {
            return Ok(Some(message));
        }
        let bytes = bytes + line.len();
        if bytes > MESSAGE_BYTES_MAX {
            return Err(PmiError::Length);
        }
        let (field, value) = line.split_once('=').ok_or(PmiError::NoValue)?;
        message.add(field, value.to_owned())?;
        self.block = Some((message, bytes));
        Ok(None)
    }
}

fn decode_line(line: &str) -> Result<Message, PmiError> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next().and_then(|word| word.strip_prefix("cmd=")).filter(|name| !name.is_empty());
    let mut message = Message::new(name.ok_or(PmiError::NoCommand)?);
    for word in words {
        match (word.split_once('='), message.fields.last_mut()) {
            (Some((field, value)), _) => message.add(field, value.to_owned())?,
            // Some servers put texts of several words into their replies.
            (None, Some((_, value))) => {
                value.push(' ');
                value.push_str(word);
            }
            (None, None) => return Err(PmiError::NoValue),
        }
    }
    Ok(message)
}

fn decode_counted(body: &[u8]) -> Result<Message, PmiError> {
    let text = std::str::from_utf8(body).map_err(|_| PmiError::NotText)?;
    let rest = text.strip_prefix("cmd=").ok_or(PmiError::NoCommand)?;
    let (name, mut rest) = rest.split_once(';').ok_or(PmiError::NoCommand)?;
    if name.is_empty() {
        return Err(PmiError::NoCommand);
    }
    let mut message = Message::new(name);
    while !rest.is_empty() {
        let (field, tail) = rest.split_once('=').ok_or(PmiError::NoValue)?;
        let mut value = String::new();
        rest = tail;
        loop {
            let (part, tail) = rest.split_once(';').ok_or(PmiError::NoValue)?;
            value.push_str(part);
            rest = tail;
            match rest.strip_prefix(';') {
                Some(tail) => rest = tail,
                None => break,
            }
            value.push(';');
        }
        message.add(field, value)?;
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(syntax: Syntax, bytes: &[u8]) -> Result<Vec<Message>, PmiError> {
        let mut reader = Reader::default();
        reader.set_syntax(syntax);
        let mut messages = Vec::new();
        // Byte by byte, so that every boundary is met.
        for byte in bytes {
            assert_eq!(reader.push(&[*byte]), 1);
            while let Some(message) = reader.poll()? {
                messages.push(message);
            }
        }
        Ok(messages)
    }

    #[test]
    fn lines_as_servers_write_them() {
        let text = b"cmd=get_result rc=0 msg=success value=(vector,(0,1,1))\ncmd=barrier_out\n";
        let messages = read(Syntax::Lines, text).unwrap();
        assert_eq!(messages[0].get("value"), Some("(vector,(0,1,1))"));
        assert_eq!((messages[0].name(), messages[0].number("rc")), ("get_result", Some(0)));
        assert_eq!(messages[1], Message::new("barrier_out"));
        let messages = read(Syntax::Lines, b"cmd=x msg=a b=c d\n").unwrap();
        assert_eq!(messages[0], Message::new("x").with("msg", "a").with("b", "c d"));
    }

    #[test]
    fn commands_of_several_lines() {
        let text = b"mcmd=spawn\nnprocs=2\nexecname=a b=c\nendcmd\ncmd=finalize\n";
        let messages = read(Syntax::Lines, text).unwrap();
        assert_eq!(messages[0], Message::new("spawn").with("nprocs", 2).with("execname", "a b=c"));
        assert_eq!(messages[1].name(), "finalize");
        assert_eq!(read(Syntax::Lines, b"mcmd=spawn\nnprocs\n"), Err(PmiError::NoValue));
    }

    #[test]
    fn counted_messages_as_servers_write_them() {
        let text = b"    38cmd=kvs-get-response;rc=0;found=FALSE;    27cmd=finalize-response;rc=0;";
        let messages = read(Syntax::Counted, text).unwrap();
        assert_eq!(messages[0].get("found"), Some("FALSE"));
        assert_eq!(messages[1], Message::new("finalize-response").with("rc", 0));
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let message = Message::new("put").with("key", "a").with("value", "1;;2;").with("empty", "");
        let mut bytes = Vec::new();
        message.encode(Syntax::Counted, &mut bytes).unwrap();
        assert_eq!(read(Syntax::Counted, &bytes), Ok(vec![message.clone()]));
        bytes.clear();
        message.encode(Syntax::Lines, &mut bytes).unwrap();
        assert_eq!(bytes, b"cmd=put key=a value=1;;2; empty=\n");
        assert_eq!(read(Syntax::Lines, &bytes), Ok(vec![message]));
        let spaced = Message::new("put").with("value", "a b");
        assert_eq!(spaced.encode(Syntax::Lines, &mut bytes), Err(PmiError::Character));
        assert_eq!(Message::new("x").with_text("msg", "a b;ü").get("msg"), Some("a_b__"));
        let long = Message::new("put").with("value", "v".repeat(MESSAGE_BYTES_MAX));
        assert_eq!(long.encode(Syntax::Lines, &mut bytes), Err(PmiError::Length));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for (syntax, bytes, error) in [
            (Syntax::Lines, &b"hello\n"[..], PmiError::NoCommand),
            (Syntax::Lines, b"cmd=\n", PmiError::NoCommand),
            (Syntax::Lines, b"\n", PmiError::NoCommand),
            (Syntax::Lines, b"cmd=put key\n", PmiError::NoValue),
            (Syntax::Lines, b"cmd=\xff\n", PmiError::NotText),
            (Syntax::Counted, b"cmd=in", PmiError::Length),
            (Syntax::Counted, b"    -1", PmiError::Length),
            (Syntax::Counted, b" 99999", PmiError::Length),
            (Syntax::Counted, b"     0", PmiError::NoCommand),
            (Syntax::Counted, b"     7cmd=a;b", PmiError::NoValue),
            (Syntax::Counted, b"     9cmd=a;b=c", PmiError::NoValue),
            (Syntax::Counted, b"     5cmd=;", PmiError::NoCommand),
        ] {
            assert_eq!(read(syntax, bytes), Err(error), "{}", String::from_utf8_lossy(bytes));
        }
        let many = format!("cmd=x{}\n", " a=b".repeat(FIELDS_MAX + 1));
        assert_eq!(read(Syntax::Lines, many.as_bytes()), Err(PmiError::TooManyFields));
    }

    #[test]
    fn an_endless_message_is_cut_off() {
        for (syntax, text) in [(Syntax::Lines, "x"), (Syntax::Lines, "mcmd=spawn\n"), (Syntax::Counted, " ")]
        {
            let mut reader = Reader::default();
            reader.set_syntax(syntax);
            reader.push(text.as_bytes());
            let end = (0..1_000_000).find_map(|_| {
                let room = reader.room();
                assert!(room > 0);
                reader.push(if syntax == Syntax::Lines && text.len() > 1 { b"a=b\n" } else { b" " });
                reader.poll().err()
            });
            assert!(matches!(end, Some(PmiError::Length | PmiError::TooManyFields)), "{end:?}");
        }
    }
}
