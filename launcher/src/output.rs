//! What ranks write, on its way to the user: cut into lines so that ranks do not tear each other's
//! lines apart, marked with the rank on request, and never waited for while the job runs.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;

/// How long an unfinished line is held back for its end, unless lines are marked.
pub(crate) const PARTIAL_LINE_PATIENCE: Duration = Duration::from_millis(50);

/// Longest line that is kept in one piece, in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// How much of the end of a rank's output is remembered, in bytes.
const TAIL_BYTES: usize = 2048;

/// How many of the last lines are shown when a rank fails.
const TAIL_LINES: usize = 5;

/// What may wait for the user's side to read before the ranks are no longer read, in bytes.
const QUEUE_BYTES_MAX: usize = 1024 * 1024;

/// What one write takes, in bytes. A pipe that polls as writable has room for this much.
const WRITE_BYTES: usize = 4096;

/// One output stream of one rank.
#[derive(Debug)]
pub(crate) struct Lines {
    tag: Option<String>,
    partial: Vec<u8>,
    partial_since: Option<Duration>,
    /// The beginning of the current line has gone out already.
    is_continued: bool,
    tail: VecDeque<u8>,
}

impl Lines {
    /// A stream whose lines go out with `tag` in front, if one is given.
    pub(crate) fn new(tag: Option<String>) -> Self {
        Self { tag, partial: Vec::new(), partial_since: None, is_continued: false, tail: VecDeque::new() }
    }

    /// Takes bytes from the rank at the time `now` and passes on what is complete.
    pub(crate) fn push(&mut self, bytes: &[u8], now: Duration, out: &mut Sink) {
        self.remember(bytes);
        self.partial.extend_from_slice(bytes);
        self.pass_on_lines(out);
        if self.partial.len() >= LINE_BYTES_MAX {
            self.pass_on_partial(out);
        }
        self.partial_since = (!self.partial.is_empty()).then_some(now);
    }

    /// Takes bytes from the rank that go elsewhere: only [`Lines::last_lines`] will have them.
    pub(crate) fn remember(&mut self, bytes: &[u8]) {
        let excess = (self.tail.len() + bytes.len()).saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess.min(self.tail.len()));
        self.tail.extend(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
    }

    /// When [`Lines::flush_idle`] has something to do, if ever.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        // A marked line is held until its end: nothing else may come between a mark and its line.
        let since = self.partial_since.filter(|_| self.tag.is_none());
        since.map(|since| since + PARTIAL_LINE_PATIENCE)
    }

    /// Passes on an unfinished line whose end does not come, such as a question.
    pub(crate) fn flush_idle(&mut self, now: Duration, out: &mut Sink) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.pass_on_partial(out);
        }
    }

    /// Passes on what is left when the stream has ended.
    pub(crate) fn finish(&mut self, out: &mut Sink) {
        let is_unfinished = !self.partial.is_empty() || self.is_continued;
        self.pass_on_partial(out);
        if self.tag.is_some() && is_unfinished {
            out.push(b"\n");
        }
        self.is_continued = false;
    }

    /// The last lines of the stream, for a message about the rank.
    pub(crate) fn last_lines(&self) -> Vec<String> {
        let bytes: Vec<u8> = self.tail.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        // What a progress bar has overwritten is no line.
        let lines = text.lines().map(|line| line.trim_end().rsplit('\r').next().unwrap_or_default());
        let lines: Vec<String> = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].to_vec()
    }

    fn pass_on_lines(&mut self, out: &mut Sink) {
        // Without marks a carriage return ends a line too, so that progress bars move.
        let ends_line = |byte: &u8| *byte == b'\n' || (self.tag.is_none() && *byte == b'\r');
        let Some(last) = self.partial.iter().rposition(ends_line) else { return };
        let rest = self.partial.split_off(last + 1);
        let complete = std::mem::replace(&mut self.partial, rest);
        match &self.tag {
            None => out.push(&complete),
            Some(tag) => {
                for line in complete.split_inclusive(|byte| *byte == b'\n') {
                    if !std::mem::take(&mut self.is_continued) {
                        out.push(tag.as_bytes());
                    }
                    out.push(line);
                }
            }
        }
        self.is_continued = false;
    }

    fn pass_on_partial(&mut self, out: &mut Sink) {
        self.partial_since = None;
        if self.partial.is_empty() {
            return;
        }
        if let Some(tag) = self.tag.as_ref().filter(|_| !self.is_continued) {
            out.push(tag.as_bytes());
        }
        out.push(&self.partial);
        self.partial.clear();
        self.is_continued = true;
    }
}

/// Standard output or standard error of the launcher.
#[derive(Debug)]
pub(crate) struct Sink {
    fd: OwnedFd,
    queue: VecDeque<u8>,
    is_broken: bool,
}

impl Sink {
    /// The sink that writes to a copy of `fd`.
    ///
    /// # Errors
    /// When the descriptor cannot be copied.
    pub(crate) fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self { fd: fd.try_clone_to_owned()?, queue: VecDeque::new(), is_broken: false })
    }

    /// Queues bytes. Nothing is written before [`Sink::write_some`].
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if !self.is_broken {
            self.queue.extend(bytes);
        }
    }

    /// What to poll for writability, while something is queued.
    pub(crate) fn wants_to_write(&self) -> Option<BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        (!self.queue.is_empty()).then(|| self.fd.as_fd())
    }

    /// Whether so much is queued that the ranks should not be read now.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= QUEUE_BYTES_MAX
    }

    /// Whether nobody reads what is written any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Writes as much as a descriptor that polls as writable takes without blocking.
    pub(crate) fn write_some(&mut self) {
        let (head, _) = self.queue.as_slices();
        match rustix::io::write(&self.fd, &head[..head.len().min(WRITE_BYTES)]) {
            Ok(written) => drop(self.queue.drain(..written)),
            Err(Errno::INTR | Errno::AGAIN) => {}
            // The reader has gone (EPIPE), the disk is full: there is nobody left to tell.
            Err(_) => {
                self.is_broken = true;
                self.queue.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn sink() -> Sink {
        Sink::new(io::stderr().as_fd()).unwrap()
    }

    fn queued(sink: &mut Sink) -> String {
        String::from_utf8(sink.queue.drain(..).collect()).unwrap()
    }

    const NOW: Duration = Duration::from_secs(1);

    #[test]
    fn lines_go_out_whole() {
        let (mut lines, mut out) = (Lines::new(None), sink());
        lines.push(b"one\ntw", NOW, &mut out);
        assert_eq!(queued(&mut out), "one\n");
        lines.push(b"o\n", NOW, &mut out);
        assert_eq!(queued(&mut out), "two\n");
        assert_eq!(lines.deadline(), None);
        lines.push(b"10%\r20", NOW, &mut out);
        assert_eq!(queued(&mut out), "10%\r");
        lines.finish(&mut out);
        assert_eq!(queued(&mut out), "20");
    }

    #[test]
    fn a_question_goes_out_after_a_while() {
        let (mut lines, mut out) = (Lines::new(None), sink());
        lines.push(b"name? ", NOW, &mut out);
        lines.flush_idle(NOW, &mut out);
        assert_eq!(queued(&mut out), "");
        assert_eq!(lines.deadline(), Some(NOW + PARTIAL_LINE_PATIENCE));
        lines.flush_idle(NOW + PARTIAL_LINE_PATIENCE, &mut out);
        assert_eq!(queued(&mut out), "name? ");
        assert_eq!(lines.deadline(), None);
    }

    #[test]
    fn tags_stand_before_each_line_once() {
        let (mut lines, mut out) = (Lines::new(Some("[3] ".into())), sink());
        lines.push(b"a\nb\nc", NOW, &mut out);
        assert_eq!(queued(&mut out), "[3] a\n[3] b\n");
        assert_eq!(lines.deadline(), None);
        lines.finish(&mut out);
        assert_eq!(queued(&mut out), "[3] c\n");
        lines.push(&[b'x'; LINE_BYTES_MAX], NOW, &mut out);
        lines.push(b"y\nz\n", NOW, &mut out);
        let text = queued(&mut out);
        assert_eq!(text.matches("[3] ").count(), 2);
        assert!(text.starts_with("[3] xx") && text.ends_with("xy\n[3] z\n"));
        lines.push(&[b'x'; LINE_BYTES_MAX], NOW, &mut out);
        lines.finish(&mut out);
        assert!(queued(&mut out).ends_with("x\n"));
    }

    #[test]
    fn the_tail_has_the_last_lines() {
        let (mut lines, mut out) = (Lines::new(None), sink());
        for number in 0..1000 {
            lines.push(format!("line {number}\n\n").as_bytes(), NOW, &mut out);
        }
        lines.push(b"10%\r20%\nend", NOW, &mut out);
        assert_eq!(lines.last_lines(), ["line 997", "line 998", "line 999", "20%", "end"]);
        lines.push(&[b'z'; 10_000], NOW, &mut out);
        assert_eq!(lines.last_lines(), ["z".repeat(TAIL_BYTES)]);
    }
}
