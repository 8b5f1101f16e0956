//! Counts system calls: this program runs once more under strace, and marks in its own calls where an epoch begins
//! and ends.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::counts::EPOCHS_COUNTED;

/// System calls between two marks, by fabric and epoch, then by name.
pub(crate) type Calls = BTreeMap<(String, String), BTreeMap<String, u64>>;

/// Which mark.
pub(crate) const BEGIN: &str = "begin";
/// See [`BEGIN`].
pub(crate) const END: &str = "end";

/// Leaves a mark: a system call for a file that is not there, whose name says what begins or ends.
pub(crate) fn mark(fabric: &str, epoch: &str, which: &str) {
    let _ = std::fs::metadata(format!("{MARK}{fabric}/{epoch}/{which}"));
}

/// Whether this program may be traced; why not, in words for users.
pub(crate) fn may_trace() -> Result<(), String> {
    let output = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run strace: {error}; ci/install.sh installs it"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("strace ended with {}: {}", output.status, said.trim()))
        }
    }
}

/// The command that runs `program` with all its system calls written to `log`.
pub(crate) fn traced(program: &Path, log: &Path) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(log).arg(program);
    command
}

/// Of so many calls between two marks, those of one epoch. What happens once in a while is rounded off.
pub(crate) fn per_epoch(calls: u64) -> u64 {
    let epochs = u64::from(EPOCHS_COUNTED);
    (calls + epochs / 2) / epochs
}

/// Reads strace's log: all calls but those that only look whether there is something.
///
/// # Errors
/// When a line, or the order of the marks, makes no sense: what was not understood was not counted.
pub(crate) fn parse(log: &str) -> Result<Calls, String> {
    let mut reader = Reader::default();
    for (index, line) in log.lines().enumerate() {
        reader.line(line).map_err(|what| format!("line {} of strace's log, '{line}': {what}", index + 1))?;
    }
    reader.end()
}

/// What was read so far.
#[derive(Default)]
struct Reader {
    calls: Calls,
    /// Which epoch is open between its marks.
    open: Option<(String, String)>,
    /// By thread, the call whose line another thread's has interrupted.
    unfinished: BTreeMap<u32, Unfinished>,
}

/// A call that has begun.
struct Unfinished {
    name: String,
    /// The epoch it began in, unless it is a mark.
    epoch: Option<(String, String)>,
}

impl Reader {
    /// "THREAD name(arguments) = result", or such a call in two lines: "THREAD name(arguments <unfinished ...>" and
    /// "THREAD <... name resumed>arguments) = result".
    fn line(&mut self, line: &str) -> Result<(), String> {
        let (thread, call) = line.split_once(' ').ok_or("this is no call")?;
        let thread: u32 = thread.parse().map_err(|_| "it begins with no thread")?;
        let call = call.trim();
        // A signal, or a thread's end.
        if call.starts_with("---") || call.starts_with("+++") {
            return Ok(());
        }
        if let Some(rest) = call.strip_prefix("<... ") {
            let (name, rest) = rest.split_once(" resumed>").ok_or("this is no call")?;
            let begun = self.unfinished.remove(&thread).filter(|begun| begun.name == name);
            let Unfinished { epoch, .. } = begun.ok_or("a call ends that did not begin")?;
            self.count(epoch, name, rest);
            return Ok(());
        }
        let (name, arguments) = call.split_once('(').ok_or("this is no call")?;
        let epoch = match arguments.split(MARK).nth(1) {
            Some(mark) => {
                self.mark(mark)?;
                None
            }
            None => self.open.clone(),
        };
        if arguments.ends_with(UNFINISHED) {
            self.unfinished.insert(thread, Unfinished { name: name.to_owned(), epoch });
        } else {
            self.count(epoch, name, arguments);
        }
        Ok(())
    }

    /// A mark: "FABRIC/EPOCH/WHICH" and what is behind it.
    fn mark(&mut self, mark: &str) -> Result<(), String> {
        let mut parts = mark.split(['/', '"']);
        let (Some(fabric), Some(epoch), Some(which)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("this is no mark".to_owned());
        };
        let marked = (fabric.to_owned(), epoch.to_owned());
        match (which, self.open.take()) {
            (BEGIN, None) => {
                self.calls.insert(marked.clone(), BTreeMap::new());
                self.open = Some(marked);
                Ok(())
            }
            // The end of nothing is a mark whose cost is not anybody's.
            (END, open) if open.as_ref().is_none_or(|open| *open == marked) => Ok(()),
            (BEGIN | END, Some((fabric, epoch))) => Err(format!("{epoch} over {fabric} has no end")),
            _ => Err("this is no mark".to_owned()),
        }
    }

    /// Counts a call of an epoch.
    fn count(&mut self, epoch: Option<(String, String)>, name: &str, rest: &str) {
        // How often somebody looks depends on time.
        if LOOKS.contains(&name) || rest.contains(FOUND_NOTHING) {
            return;
        }
        if let Some(counts) = epoch.and_then(|epoch| self.calls.get_mut(&epoch)) {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }

    fn end(mut self) -> Result<Calls, String> {
        // Nobody saw these end, but they were made.
        for Unfinished { name, epoch } in std::mem::take(&mut self.unfinished).into_values() {
            self.count(epoch, &name, "");
        }
        match self.open {
            None => Ok(self.calls),
            Some((fabric, epoch)) => {
                Err(format!("strace's log ends before the end of {epoch} over {fabric}"))
            }
        }
    }
}

/// Calls that look whether there is something.
const LOOKS: [&str; 6] = ["epoll_wait", "epoll_pwait", "poll", "ppoll", "select", "pselect6"];
/// The result of a call that looked.
const FOUND_NOTHING: &str = "= -1 EAGAIN";
/// What ends the line of a call that another thread's line interrupts.
const UNFINISHED: &str = "<unfinished ...>";
/// What the names of marks begin with.
const MARK: &str = "rma-counts:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_between_marks_are_counted() {
        let log = "7 openat(AT_FDCWD, \"/x\") = 3\n\
                   7 statx(AT_FDCWD, \"rma-counts:tcp/put-flush/begin\", 0) = -1 ENOENT (No such file)\n\
                   7 epoll_wait(5, [], 1, 0) = 0\n7 recvfrom(3, 0x1, 8) = -1 EAGAIN (Resource)\n\
                   7 sendmsg(3, {}) = 8\n8 sendmsg(3, {}) = 8\n7 +++ exited with 0 +++\n7 futex(0x1) = 0\n\
                   7 statx(AT_FDCWD, \"rma-counts:tcp/put-flush/end\", 0) = -1 ENOENT (No such file)\n\
                   7 close(3) = 0\n\
                   7 statx(AT_FDCWD, \"rma-counts:shm/put-flush/begin\", 0) = -1 ENOENT (No such file)\n\
                   7 statx(AT_FDCWD, \"rma-counts:shm/put-flush/end\", 0) = -1 ENOENT (No such file)\n";
        let calls = parse(log).unwrap();
        let of = |fabric: &str| calls[&(fabric.to_owned(), "put-flush".to_owned())].clone();
        assert_eq!(of("tcp"), BTreeMap::from([("futex".to_owned(), 1), ("sendmsg".to_owned(), 2)]));
        assert_eq!(of("shm"), BTreeMap::new());
        assert_eq!(calls.len(), 2);
        assert_eq!([64, 79, 80, 15, 0].map(per_epoch), [2, 2, 3, 0, 0]);
    }

    /// The lines between the marks of an epoch.
    fn marked(lines: &str) -> String {
        let mark =
            |which| format!("7 statx(AT_FDCWD, \"rma-counts:tcp/put/{which}\", 0) = -1 ENOENT (None)\n");
        format!("{}{lines}{}", mark(BEGIN), mark(END))
    }

    fn counted(lines: &str) -> BTreeMap<String, u64> {
        parse(&marked(lines)).unwrap().remove(&("tcp".to_owned(), "put".to_owned())).unwrap()
    }

    #[test]
    fn a_call_in_two_lines_is_one() {
        let lines = "7 sendmsg(3, {}, 0 <unfinished ...>\n\
                     8 write(5, \"x\", 1) = 1\n\
                     9 recvfrom(4,  <unfinished ...>\n9 <... recvfrom resumed>0x1, 8) = -1 EAGAIN (Resource)\n\
                     9 epoll_wait(5,  <unfinished ...>\n9 <... epoll_wait resumed>[], 1, 0) = 0\n\
                     7 <... sendmsg resumed>)            = 8\n";
        assert_eq!(counted(lines), BTreeMap::from([("sendmsg".to_owned(), 1), ("write".to_owned(), 1)]));
    }

    #[test]
    fn a_call_belongs_where_it_began() {
        let begun = "8 write(5,  <unfinished ...>\n";
        let ended = "8 <... write resumed>\"x\", 1)       = 1\n";
        let one = BTreeMap::from([("write".to_owned(), 1)]);
        let calls = parse(&format!("{}{ended}", marked(begun))).unwrap();
        assert_eq!(calls.into_values().collect::<Vec<_>>(), std::slice::from_ref(&one));
        let calls = parse(&format!("{begun}{}", marked(ended))).unwrap();
        assert_eq!(calls.into_values().collect::<Vec<_>>(), [BTreeMap::new()]);
        // One that nobody saw end, as it ended the thread.
        assert_eq!(counted(begun), one);
    }

    #[test]
    fn marks_in_two_lines_are_marks() {
        let log =
            "7 statx(AT_FDCWD, \"rma-counts:tcp/put/begin\",  <unfinished ...>\n8 write(5, \"x\", 1) = 1\n\
                   7 <... statx resumed>0) = -1 ENOENT (None)\n\
                   7 statx(AT_FDCWD, \"rma-counts:tcp/put/end\",  <unfinished ...>\n8 read(5, \"x\", 1) = 1\n\
                   7 <... statx resumed>0) = -1 ENOENT (None)\n";
        let calls = parse(log).unwrap();
        assert_eq!(calls.into_values().collect::<Vec<_>>(), [BTreeMap::from([("write".to_owned(), 1)])]);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let refused = |log: &str, what: &str| {
            let error = parse(log).unwrap_err();
            assert!(error.contains(what), "{log}: {error}");
        };
        refused("[pid 7] write(5) = 1", "no thread");
        refused("7 write 5", "no call");
        refused("write(5)", "no call");
        refused("7 <... write resumed>) = 1", "did not begin");
        refused("7 read(5 <unfinished ...>\n7 <... write resumed>) = 1", "did not begin");
        let begin = "7 statx(AT_FDCWD, \"rma-counts:shm/put/begin\", 0) = -1 ENOENT (None)\n";
        refused(begin, "log ends before the end of put over shm");
        refused(&format!("{begin}{}", marked("")), "put over shm has no end");
        refused(&begin.replace("begin", "middle"), "no mark");
    }
}
