//! Why no job could be carried out, in words and as an exit code.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::spawn::Program;

/// The exit code of a wrong command line or setting.
const CODE_USAGE: u8 = 2;

/// The exit code of a job whose program exists and cannot be run, as shells have it.
const CODE_NOT_RUNNABLE: u8 = 126;

/// The exit code of a job whose program is not found, as shells have it.
const CODE_NOT_FOUND: u8 = 127;

/// The exit code of a launcher that the operating system fails.
const CODE_SYSTEM: u8 = 1;

/// Why no job could be carried out.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code of the launcher.
    pub(crate) code: u8,
    /// What the user is told.
    pub(crate) message: String,
}

impl Failure {
    /// A wrong command line or setting.
    pub(crate) fn usage(message: impl ToString) -> Self {
        Self { code: CODE_USAGE, message: message.to_string() }
    }

    /// The operating system does not do what a launcher needs.
    pub(crate) fn system(why: impl ToString) -> Self {
        Self { code: CODE_SYSTEM, message: why.to_string() }
    }
}

/// Why `rank` could not be started.
pub(crate) fn start_failure(program: &Program, rank: u32, error: &io::Error) -> Failure {
    let name = program.path.to_string_lossy();
    let is_path = name.contains('/');
    let in_directory =
        |path: &OsStr| program.directory.as_deref().unwrap_or_else(|| Path::new(".")).join(path);
    if let Some(directory) = program.directory.as_ref().filter(|directory| !directory.is_dir()) {
        let message = format!(
            "{} is no directory there; ranks start in it, or say where with --wdir",
            directory.display()
        );
        return Failure { code: CODE_NOT_RUNNABLE, message };
    }
    match error.kind() {
        ErrorKind::NotFound if is_path && in_directory(&program.path).exists() => Failure {
            code: CODE_NOT_RUNNABLE,
            message: format!(
                "cannot run {name}: the interpreter that its first line or its header names is missing"
            ),
        },
        ErrorKind::NotFound => {
            let hint = match (is_path, in_directory(&program.path).is_file()) {
                (false, true) => format!("; it is in the working directory: write ./{name}"),
                (false, false) => " in PATH".into(),
                (true, _) => String::new(),
            };
            Failure { code: CODE_NOT_FOUND, message: format!("program {name} not found{hint}") }
        }
        ErrorKind::PermissionDenied => Failure {
            code: CODE_NOT_RUNNABLE,
            message: format!("cannot run {name}: {error}; is it a program, and executable (chmod +x)?"),
        },
        ErrorKind::WouldBlock | ErrorKind::OutOfMemory => Failure {
            code: CODE_NOT_RUNNABLE,
            message: format!(
                "cannot start rank {rank}: {error}; too many processes (ulimit -u) or too little memory?"
            ),
        },
        _ => Failure {
            code: CODE_NOT_RUNNABLE,
            message: format!("cannot start rank {rank} ({name}): {error}"),
        },
    }
}
