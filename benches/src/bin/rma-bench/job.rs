//! Joining the job with what the command line says.

use rma::{Job, Options};
use rma_bootstrap::settings::Settings;

use crate::Outcome;

/// The settings, with the command line's provider.
pub(crate) fn settings(provider: Option<&str>) -> Outcome<Settings> {
    let mut settings = Settings::load()?;
    if let Some(provider) = provider {
        settings.set_flag("RMA_PROVIDER", provider)?;
    }
    Ok(settings)
}

/// Joins the job.
pub(crate) fn join(provider: Option<&str>) -> Outcome<Job> {
    Ok(Job::init_with(Options::from_settings(settings(provider)?))?)
}

/// Ends this rank's part: in order after success; at once, with a message, after a failure, so that the
/// launcher ends the other ranks too.
pub(crate) fn leave(job: Job, outcome: Outcome<()>) -> Outcome<()> {
    match outcome {
        Ok(()) => Ok(job.finalize()?),
        Err(error) => {
            eprintln!("rma-bench: rank {}: {error}", job.rank());
            std::process::exit(1);
        }
    }
}
