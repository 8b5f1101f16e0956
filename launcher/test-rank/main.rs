//! The rank that the launcher's tests start: its arguments say what it does, one after the other.

use std::io::Write;
use std::os::fd::FromRawFd;
use std::process::ExitCode;
use std::time::Duration;

use rma_bootstrap::{detect, Fetch, JobBootstrap};
use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::ids::Rank;

/// How long a step that waits for the test may take: far above what any test needs.
const PATIENCE: Duration = Duration::from_secs(300);

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
    if let Some((_, variable)) = steps.first().and_then(|step| step.split_once("garbage=")) {
        return garbage(variable);
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
            "look-around" => {
                (0..job.size()).try_for_each(|rank| lookup(&mut job, Rank(rank)).map(drop))?;
                println!("rank {} found all {}", job.rank(), job.size());
            }
            "look-near" => {
                let next = |distance| Rank((job.rank().0 + distance) % job.size());
                [next(1), next(2)].into_iter().try_for_each(|rank| lookup(&mut job, rank).map(drop))?;
            }
            "lookup" => drop(lookup(&mut job, Rank(number(argument)?))?),
            "place" => println!(
                "rank {} of {}, local {} of {}, single host {}",
                job.rank(),
                job.size(),
                job.local_rank(),
                job.local_size(),
                job.single_host()
            ),
            "run" => run_shell(argument)?,
            "print" => println!("{argument}"),
            "wait" => std::thread::sleep(PATIENCE),
            "abort" => job.abort(7, argument)?,
            "finalize" => job.finalize()?,
            "leave" => leave(&mut job)?,
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

/// Finalizes, and stays until all ranks have.
fn leave(job: &mut JobBootstrap) -> Result<(), BootstrapError> {
    job.finalize()?;
    while !job.poll_all_finalized()? {
        job.wait_readable(Duration::from_millis(20))?;
    }
    println!("rank {} left", job.rank());
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

/// Runs a shell with this script; fails when it does.
fn run_shell(script: &str) -> Result<(), BootstrapError> {
    let status = std::process::Command::new("sh").args(["-c", script]).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        other => Err(BootstrapError { message: format!("sh -c '{script}': {other:?}") }),
    }
}

/// Writes what is no message to the launcher, over the connection that `variable` says, then leaves as if nothing had happened.
fn garbage(variable: &str) -> Result<u8, BootstrapError> {
    let text = std::env::var(variable).unwrap_or_default();
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
