//! What the kernel says of a process in one line, proc_pid_stat(5).

use std::fs;

/// Field of the line: the letter of the process's state.
pub(crate) const STATE: usize = 3;

/// Field of the line: where in its memory the environment begins, 0 until the program is loaded.
pub(crate) const ENVIRONMENT_START: usize = 50;

/// A field of a process's line, by its number in the manual, from 3 on; none when there is no such process.
pub(crate) fn field(process: i32, number: usize) -> Option<String> {
    let line = fs::read(format!("/proc/{process}/stat")).ok()?;
    // The name, which is field 2 and in parentheses, may hold any bytes, spaces and parentheses among them.
    let end_of_name = line.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(&line[end_of_name + 1..]).ok()?;
    fields.split_whitespace().nth(number.checked_sub(3)?).map(str::to_owned)
}
