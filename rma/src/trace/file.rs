//! One file of all ranks, on one host or on a file system that all hosts have: rank 0 begins it when it joins, and
//! each rank adds its events when it leaves. After each it is a whole JSON array, so that a job of which only some
//! ranks came so far has a timeline of those.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use rustix::fs::{flock, FlockOperation};

use super::json::events;
use super::{Origin, Ring};

/// How the file ends; before it stands what is in the array.
const END: &[u8] = b"\n]\n";

/// Begins the file, in place of whatever was there.
pub(crate) fn begin(path: &Path) -> io::Result<()> {
    std::fs::write(path, [b"[".as_slice(), END].concat())
}

/// Adds a rank's events.
pub(crate) fn append(path: &Path, ring: &Ring, origin: &Origin, end: &str, now: u64) -> io::Result<()> {
    append_text(path, &events(ring, origin, end, now))
}

/// Adds events to the array. One process at a time: who comes meanwhile waits for who writes, and the system takes the
/// lock from who dies.
fn append_text(path: &Path, events: &str) -> io::Result<()> {
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    let len = file.seek(SeekFrom::End(0))?;
    let mut text = Vec::with_capacity(events.len() + 8);
    let at = match len {
        0 => {
            text.push(b'[');
            0
        }
        _ => {
            let (at, is_empty) = end_of_array(&mut file, len)?;
            text.extend(if is_empty { b"".as_slice() } else { b"," });
            at
        }
    };
    text.push(b'\n');
    text.extend(events.as_bytes());
    text.extend(END);
    file.seek(SeekFrom::Start(at))?;
    file.write_all(&text)
}

/// Where the array ends, and whether nothing is in it.
fn end_of_array(file: &mut File, len: u64) -> io::Result<(u64, bool)> {
    let mut last = [0; END.len() + 1];
    let from = len.checked_sub(last.len() as u64).ok_or_else(not_ours)?;
    file.seek(SeekFrom::Start(from))?;
    file.read_exact(&mut last)?;
    match last.split_first() {
        Some((before, END)) => Ok((from + 1, *before == b'[')),
        _ => Err(not_ours()),
    }
}

fn not_ours() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "it does not end as a trace does; was a rank killed while it wrote?",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_whole_after_each_rank() {
        let folder = std::env::temp_dir().join(format!("rma-trace-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("trace.json");
        std::fs::write(&path, "what was there before").unwrap();
        assert_eq!(append_text(&path, "1").unwrap_err().kind(), io::ErrorKind::InvalidData);
        let read = || std::fs::read_to_string(&path).unwrap();
        begin(&path).unwrap();
        assert_eq!(read(), "[\n]\n");
        append_text(&path, "1,\n2").unwrap();
        assert_eq!(read(), "[\n1,\n2\n]\n");
        append_text(&path, "3").unwrap();
        assert_eq!(read(), "[\n1,\n2,\n3\n]\n");
        std::fs::remove_file(&path).unwrap();
        append_text(&path, "4").unwrap();
        assert_eq!(read(), "[\n4\n]\n");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
