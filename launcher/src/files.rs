//! Files that take what ranks write, one for each stream of each rank.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Endings of the files, in the order of a rank's streams.
const ENDINGS: [&str; 2] = ["out", "err"];

/// A file that takes one output stream of one rank, byte for byte.
#[derive(Debug)]
pub(crate) struct OutputFile {
    file: File,
    path: PathBuf,
}

impl OutputFile {
    /// The files of a rank's standard output and standard error in `folder`, made or emptied.
    ///
    /// # Errors
    /// A message that names the file that cannot be made.
    pub(crate) fn pair(folder: &Path, rank: u32) -> Result<[Self; 2], String> {
        let [stdout, stderr] =
            ENDINGS.map(|ending| Self::create(folder.join(format!("rank-{rank}.{ending}"))));
        Ok([stdout?, stderr?])
    }

    /// Adds to the file.
    ///
    /// # Errors
    /// A message that names the file and says why.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.file.write_all(bytes).map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }

    fn create(path: PathBuf) -> Result<Self, String> {
        match File::create(&path) {
            Ok(file) => Ok(Self { file, path }),
            Err(error) => Err(format!("cannot make {}: {error}", path.display())),
        }
    }
}

/// Makes the folder of the output files unless it exists.
///
/// # Errors
/// A message that names the folder and says why.
pub(crate) fn make_folder(folder: &Path) -> Result<(), String> {
    let made: io::Result<()> = std::fs::create_dir_all(folder);
    made.map_err(|error| format!("--output-dir {}: {error}", folder.display()))
}
