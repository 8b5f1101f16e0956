//! Files that a killed rank leaves in shared memory.
//!
//! libfabric's shm provider keeps each endpoint's queues in a file of `/dev/shm` that is named after the process
//! (`PID:N:M`), and removes it when the endpoint is closed, which a killed process does not do.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{getuid, Pid};

/// Where shared memory has names.
const FOLDER: &str = "/dev/shm";

/// Whether a file belongs to an endpoint of this process.
fn is_of(name: &str, pid: i32) -> bool {
    let mut parts = name.split(':');
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.next() == Some(&pid.to_string()) && name.contains(':') && parts.all(is_number)
}

/// Removes what a process has left that was this user's and has ended. What cannot be removed stays: the next
/// process of that number overwrites it.
pub(crate) fn remove_of(pid: Pid) {
    remove_in(Path::new(FOLDER), pid.as_raw_nonzero().get());
}

fn remove_in(folder: &Path, pid: i32) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_named = entry.file_name().to_str().is_some_and(|name| is_of(name, pid));
        let is_ours = |metadata: fs::Metadata| metadata.is_file() && metadata.uid() == getuid().as_raw();
        if is_named && entry.metadata().is_ok_and(is_ours) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_endpoints_of_that_process_go() {
        let folder = std::env::temp_dir().join(format!("rmarun-leftovers-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let stays = ["12:0:x", "123:0:1", "12", "12_0_1", "sem.12:0:1", "12::1"];
        for name in stays.iter().chain(&["12:0:1", "12:0:0"]) {
            fs::write(folder.join(name), "").unwrap();
        }
        remove_in(&folder, 12);
        let mut left: Vec<_> =
            fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.file_name()).collect();
        left.sort();
        let mut expected = stays;
        expected.sort_unstable();
        assert_eq!(left, expected);
        fs::remove_dir_all(&folder).unwrap();
    }
}
