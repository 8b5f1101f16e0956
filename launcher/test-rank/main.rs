//! The rank that the launcher's tests start: its arguments say what it does, one after the other.

use std::io::Write;
use std::os::fd::FromRawFd;
use std::process::ExitCode;
use std::time::Duration;

use rma_bootstrap::{detect, Fetch, JobBootstrap};
use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::ids::Rank;

/// How long a step that waits for the test may take: far above what any test needs.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let steps: Vec<String> = std::env::args().skip(1).collect();
    match run(&steps) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("test rank: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(steps: &[String]) -> Result<u8, BootstrapError> {
    if steps.first().is_some_and(|step| step == "garbage") {
        return garbage();
    }
    let mut job = detect()?;
    for step in steps {
        let (step, argument) = step.split_once('=').unwrap_or((step, ""));
        // A step `name@rank` is for that rank only.
        let (step, only) = step.split_once('@').unwrap_or((step, ""));
        if !only.is_empty() && only != job.rank().to_string() {
            continue;
        }
        match step {
            "publish" => job.publish(&address(job.rank()))?,
            "exchange" => exchange(&mut job)?,
            "lookup" => drop(lookup(&mut job, Rank(number(argument)?))?),
            "place" => println!(
                "rank {} of {}, local {} of {}, single host {}",
                job.rank(),
                job.size(),
                job.local_rank(),
                job.local_size(),
                job.single_host()
            ),
            "child" => child_has_no_control_connection()?,
            "print" => println!("{argument}"),
            "wait" => std::thread::sleep(PATIENCE),
            "abort" => job.abort(7, argument)?,
            "finalize" => job.finalize()?,
            "exit" => return Ok(number(argument)?.to_le_bytes()[0]),
            _ => return Err(BootstrapError { message: format!("no such step: {step}") }),
        }
    }
    Ok(0)
}

/// Looks every rank's address up, and a key that is put only after all addresses are known.
fn exchange(job: &mut JobBootstrap) -> Result<(), BootstrapError> {
    for rank in 0..job.size() {
        let found = lookup(job, Rank(rank))?;
        if found.as_slice() != address(Rank(rank)).as_slice() {
            return Err(BootstrapError { message: format!("wrong address of rank {rank}") });
        }
    }
    job.put("seen-all", &[1])?;
    let neighbour = Rank((job.rank().0 + 1) % job.size());
    while job.get(neighbour, "seen-all")? == Fetch::Pending {
        job.wait_readable(PATIENCE)?;
    }
    println!("rank {} found all {}", job.rank(), job.size());
    Ok(())
}

fn lookup(job: &mut JobBootstrap, rank: Rank) -> Result<AddressBytes, BootstrapError> {
    loop {
        match job.lookup(rank)? {
            Lookup::Found(address) => return Ok(address),
            // Short, since the look-up's own time limit makes no descriptor readable.
            Lookup::Pending => drop(job.wait_readable(Duration::from_millis(20))?),
        }
    }
}

fn address(rank: Rank) -> AddressBytes {
    let text = format!("address of rank {rank}");
    AddressBytes::new(text.as_bytes()).unwrap_or_else(|| panic!("{text} fits"))
}

/// Fails when a program that this rank starts inherits the control connection.
fn child_has_no_control_connection() -> Result<(), BootstrapError> {
    let test = ["-c", "test -n \"$RMA_CONTROL_FD\" && test ! -e /proc/self/fd/$RMA_CONTROL_FD"];
    let status = std::process::Command::new("sh").args(test).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        other => Err(BootstrapError { message: format!("the child has the control connection: {other:?}") }),
    }
}

/// Writes what is no message to the launcher, then leaves as if nothing had happened.
fn garbage() -> Result<u8, BootstrapError> {
    let text = std::env::var("RMA_CONTROL_FD").unwrap_or_default();
    let fd = i32::try_from(number(&text)?).map_err(|error| BootstrapError { message: error.to_string() })?;
    // SAFETY: rmarun passed the descriptor to this process, which has not taken it over elsewhere.
    let mut control = unsafe { std::fs::File::from_raw_fd(fd) };
    // The launcher may close its end while this is written.
    let _ = control.write_all(&[0xff; 100_000]);
    Ok(0)
}

fn number(text: &str) -> Result<u32, BootstrapError> {
    text.parse().map_err(|_| BootstrapError { message: format!("'{text}' is no number") })
}
