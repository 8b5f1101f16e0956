//! Jobs that are killed at any moment, launcher or rank, leave nothing behind: no process, no file of shared
//! memory, no temporary file. Their ranks make windows of shared memory over the providers that keep their queues in
//! shared memory, too: ours, where nothing has a name, and libfabric's.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::*;
use rma::raw::RawWindow;
use rma::{FenceAssert, Job};

/// Kills in a run of the tests; `RMA_TEST_KILLS` asks for more.
const KILLS: u32 = 6;

/// The latest moment of a kill after the start: by then the ranks have made some windows.
const LATEST_KILL: Duration = Duration::from_millis(800);

/// How long the kernel and the keeper may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Ranks of a job.
const RANKS: usize = 3;

/// The folder of a rank's job.
const FOLDER: &str = "RMA_TEST_KILLS_FOLDER";

/// What a job may leave something in.
struct Place {
    folder: PathBuf,
}

impl Place {
    fn new(index: u32) -> Self {
        let folder = std::env::temp_dir().join(format!("rma-kills-{}-{index}", std::process::id()));
        fs::create_dir_all(folder.join("tmp")).unwrap();
        Self { folder }
    }

    /// Starts the job, whose ranks write down which processes they are before they are anything else.
    fn start(&self, provider: &str) -> Child {
        let mut command = Command::new(rmarun());
        command.args(["-n", &RANKS.to_string(), "--timeout", "100", "--provider", provider]);
        command.args(["sh", "-c", "echo $$ >> $RMA_TEST_KILLS_FOLDER/pids; exec \"$0\" \"$@\""]);
        command.arg(std::env::current_exe().unwrap());
        command.args(["killed_jobs_leave_nothing", "--exact", "--nocapture", "--test-threads=1"]);
        without_settings(&mut command);
        command.env("RMA_TEST_IS_RANK", "1").env(FOLDER, &self.folder).env("TMPDIR", self.folder.join("tmp"));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Everything that is still there of the job.
    fn rest(&self) -> Vec<String> {
        let mark = format!("{FOLDER}={}", self.folder.display());
        let mut rest = processes(mark.as_bytes());
        let pids = self.lines("pids");
        let is_ours = |name: &str| pids.iter().any(|pid| name.starts_with(&format!("{pid}:")));
        rest.extend(files(Path::new("/dev/shm")).into_iter().filter(|name| is_ours(name)));
        rest.extend(files(&self.folder.join("tmp")));
        rest
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Processes whose environment has `mark`; the dead have none.
fn processes(mark: &[u8]) -> Vec<String> {
    let is_marked = |pid: &String| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|&byte| byte == 0).any(|variable| variable == mark)
    };
    files(Path::new("/proc")).into_iter().filter(is_marked).collect()
}

/// Looks until `is_so`, since nothing tells of the end of somebody else's processes.
fn wait_until(what: impl Fn() -> String, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{}", what());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A number below 1, from a counter: the same in each run.
fn fraction(index: u32) -> f64 {
    f64::from(index.wrapping_add(1).wrapping_mul(2_654_435_769)) / f64::from(u32::MAX)
}

/// What ranks do until they are killed.
fn work(folder: &Path) -> Result<(), rma::Error> {
    let job = Job::init()?;
    for turn in 0.. {
        let window = RawWindow::allocate_shared(&job, 1 << 16, 1, &Default::default())?;
        window.fence(FenceAssert::default())?;
        let data = Vec::leak(vec![1; 64]);
        let next = rma::Rank((job.rank().0 + 1) % job.size());
        // SAFETY: the bytes are leaked.
        unsafe { window.put(data.as_ptr(), data.len(), next, 0)? };
        window.fence(FenceAssert { no_succeed: true, ..FenceAssert::default() })?;
        if turn > 0 {
            window.free()?;
        } else if job.rank().0 == 0 {
            fs::write(folder.join("at-work"), "").unwrap();
        }
    }
    Ok(())
}

/// Shows: MPI_Win_allocate_shared.
#[test]
fn killed_jobs_leave_nothing() {
    if is_rank() {
        return work(Path::new(&std::env::var_os(FOLDER).unwrap())).unwrap();
    }
    let kills = std::env::var("RMA_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    for index in 0..2 * kills {
        // Libfabric's leaves files, so that the first ones show that they would be found.
        let (provider, has_files) = if index < kills { ("ofi:shm", true) } else { ("shm", false) };
        let place = Place::new(index);
        let mut launcher = place.start(provider);
        let moment = LATEST_KILL.mul_f64(fraction(index));
        if index % kills < 2 {
            // These are killed when there is something that could be left, which also shows that it would be found.
            wait_until(|| "the ranks do not work".to_owned(), || place.folder.join("at-work").exists());
            let found = place.rest();
            let least = if has_files { 2 * RANKS } else { RANKS };
            assert!(found.len() >= least, "{found:?}");
            assert_eq!(found.iter().any(|name| name.contains(':')), has_files, "{found:?}");
        } else {
            // The moment is what is tested: there is no event to wait for.
            std::thread::sleep(moment);
        }
        // The launcher, or a rank, if there is one, so that the launcher ends the job.
        let victim = place.lines("pids").pop().filter(|_| index % 2 == 1);
        match victim.as_ref().and_then(|pid| pid.parse().ok()).and_then(rustix::process::Pid::from_raw) {
            Some(rank) => {
                let _ = rustix::process::kill_process(rank, rustix::process::Signal::KILL);
            }
            None => launcher.kill().unwrap(),
        }
        launcher.wait().unwrap();
        let what =
            || format!("kill {index} of {victim:?} over {provider} after {moment:?} left {:?}", place.rest());
        wait_until(what, || place.rest().is_empty());
    }
}
