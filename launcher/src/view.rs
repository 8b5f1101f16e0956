//! What `rmarun` keeps of one rank, wherever it runs: its process number, what its PMI connection has brought so far,
//! and the ends of its output.

use std::time::Duration;

use rma_bootstrap::pmi::wire::{Reader, Syntax};

use crate::files::OutputFile;
use crate::output::{Lines, Sink};

/// The rank.
#[derive(Debug)]
pub(crate) struct View {
    /// The number of its process on its host; 0 before it runs.
    pub(crate) process: u32,
    /// Whether its control connection is open, and what comes from it is listened to.
    pub(crate) may_speak: bool,
    /// Its PMI connection, while that is open.
    pub(crate) pmi: Option<Pmi>,
    /// Standard output, then standard error.
    streams: [Stream; 2],
}

/// A PMI connection that ends on another host, or in another part of the launcher.
#[derive(Default, Debug)]
pub(crate) struct Pmi {
    /// What makes messages of its bytes.
    pub(crate) reader: Reader,
    /// How messages to the rank are written.
    pub(crate) syntax: Syntax,
}

/// One output stream.
#[derive(Debug)]
struct Stream {
    is_open: bool,
    lines: Lines,
    /// Where it goes, if not to the launcher's own stream.
    file: Option<OutputFile>,
}

impl Pmi {
    /// What follows, in both directions, is in this syntax.
    pub(crate) fn set_syntax(&mut self, syntax: Syntax) {
        self.syntax = syntax;
        self.reader.set_syntax(syntax);
    }
}

impl View {
    /// A rank that does not run yet; its lines are marked with `tag`, and its output goes to `files`, if these are
    /// given.
    pub(crate) fn new(tag: Option<String>, files: Option<[OutputFile; 2]>) -> Self {
        let [out_file, err_file] = files.map_or([None, None], |files| files.map(Some));
        let stream = |tag, file| Stream { is_open: true, lines: Lines::new(tag), file };
        let streams = [stream(tag.clone(), out_file), stream(tag, err_file)];
        Self { process: 0, may_speak: true, pmi: Some(Pmi::default()), streams }
    }

    /// Whether more may come from one of its streams.
    pub(crate) fn has_open_stream(&self) -> bool {
        self.streams.iter().any(|stream| stream.is_open)
    }

    /// Whether its output goes to files.
    pub(crate) fn has_file(&self) -> bool {
        self.streams.iter().any(|stream| stream.file.is_some())
    }

    /// The rank wrote this.
    ///
    /// # Errors
    /// A message when its file cannot take it; the stream is closed then.
    pub(crate) fn on_wrote(
        &mut self,
        which: usize,
        bytes: &[u8],
        now: Duration,
        sinks: &mut [Sink; 2],
    ) -> Result<(), String> {
        let stream = &mut self.streams[which];
        if !stream.is_open {
            return Ok(());
        }
        match &mut stream.file {
            None => stream.lines.push(bytes, now, &mut sinks[which]),
            Some(file) => {
                stream.lines.remember(bytes);
                file.write(bytes).inspect_err(|_| stream.is_open = false)?;
            }
        }
        Ok(())
    }

    /// Nothing more comes from this stream.
    pub(crate) fn close(&mut self, which: usize, sinks: &mut [Sink; 2]) {
        let stream = &mut self.streams[which];
        if std::mem::take(&mut stream.is_open) {
            stream.lines.finish(&mut sinks[which]);
        }
    }

    /// Nobody reads this stream of the launcher; whether it was this rank's and open.
    pub(crate) fn leave(&mut self, which: usize) -> bool {
        let stream = &mut self.streams[which];
        stream.file.is_none() && std::mem::take(&mut stream.is_open)
    }

    /// When [`View::flush_idle`] has something to do, if ever.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.streams.iter().filter_map(|stream| stream.lines.deadline()).min()
    }

    /// Passes on unfinished lines whose ends do not come.
    pub(crate) fn flush_idle(&mut self, now: Duration, sinks: &mut [Sink; 2]) {
        for (stream, sink) in self.streams.iter_mut().zip(sinks) {
            stream.lines.flush_idle(now, sink);
        }
    }

    /// The last lines it wrote to standard error, or else to standard output.
    pub(crate) fn last_lines(&self) -> Vec<String> {
        let [stdout, stderr] = &self.streams;
        let lines = stderr.lines.last_lines();
        if lines.is_empty() {
            stdout.lines.last_lines()
        } else {
            lines
        }
    }
}
