//! A line on standard error that says how far a long run is, for a person who watches.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// A progress bar; silent where nobody watches.
#[derive(Debug)]
pub(crate) struct Progress {
    is_watched: bool,
    total: usize,
    started: Instant,
    drawn: Option<Instant>,
}

impl Progress {
    /// A bar of `total` steps, drawn only by the rank that prints.
    pub(crate) fn new(total: usize, prints: bool) -> Self {
        // Under rmarun standard error is a pipe, and rmarun says what is at its other end.
        let told = std::env::var("RMA_STDERR_IS_TERMINAL").is_ok_and(|value| value == "1");
        let is_watched = prints && (told || std::io::stderr().is_terminal());
        Self { is_watched, total, started: Instant::now(), drawn: None }
    }

    /// `done` steps are done.
    pub(crate) fn show(&mut self, done: usize) {
        if !self.is_watched {
            return;
        }
        let now = Instant::now();
        let last = self.drawn.unwrap_or(self.started);
        if now.duration_since(last) < INTERVAL {
            return;
        }
        self.drawn = Some(now);
        write(&bar(done, self.total, now.duration_since(self.started)));
    }

    /// Takes the line away.
    pub(crate) fn clear(&mut self) {
        if self.drawn.take().is_some() {
            write("");
        }
    }
}

/// Writes one line over the last; nobody is told when it cannot be written.
fn write(line: &str) {
    let mut stderr = std::io::stderr().lock();
    // The carriage return comes last, as rmarun passes on what ends with one.
    let _ = write!(stderr, "\x1b[2K{line}\r");
    let _ = stderr.flush();
}

fn bar(done: usize, total: usize, elapsed: Duration) -> String {
    let share = done as f64 / total.max(1) as f64;
    let filled = (share * WIDTH as f64) as usize;
    let left = match done {
        0 => String::new(),
        _ => format!(", {:.0} s left", elapsed.as_secs_f64() * (1.0 - share) / share),
    };
    format!("[{:<WIDTH$}] {:>3.0} %{left}", "#".repeat(filled.min(WIDTH)), share * 100.0)
}

/// Characters of the bar.
const WIDTH: usize = 40;
/// Between two drawings, and before the first: short runs show nothing.
const INTERVAL: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_grows_with_what_is_done() {
        let half = bar(5, 10, Duration::from_secs(3));
        assert_eq!(half, format!("[{}{}]  50 %, 3 s left", "#".repeat(20), " ".repeat(20)));
        assert!(bar(0, 0, Duration::ZERO).contains("0 %"));
        assert!(bar(10, 10, Duration::from_secs(3)).contains("100 %, 0 s left"));
    }
}
