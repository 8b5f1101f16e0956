//! From joining the job to leaving it: what the commands that measure have in common.

use std::io::Stdout;

use rma::Job;
use rma_bench::environment::{self, Environment};
use rma_bench::output::Printer;
use rma_bench::record::{rounded, Record, Unit};
use rma_bench::series::Series;
use rma_bootstrap::settings::{Audience, Settings, Source};
use serde_json::{json, Map, Value};

use crate::cli::Output;
use crate::measure::Measured;
use crate::team::Team;
use crate::{job, Outcome};

/// Prints the rows of a command; at the leader.
pub(crate) struct Reporter {
    printer: Printer<Stdout>,
    environment: Environment,
    prints: bool,
}

/// Joins the job, which has `ranks` ranks at least, lets `body` measure, and leaves it.
pub(crate) fn run(
    command: &str,
    ranks: u32,
    output: &Output,
    body: impl FnOnce(&Team<'_>, &mut Reporter) -> Outcome<()>,
) -> Outcome<()> {
    let settings = job::settings(output.provider.as_deref())?;
    let changed = changed(&settings);
    let job = job::join(output.provider.as_deref())?;
    let outcome = with_team(&job, (command, ranks), |team| {
        let places = team.gather_text(&environment::place())?;
        let mut reporter = Reporter {
            printer: Printer::new(std::io::stdout(), output.format()),
            environment: Environment::of(&job, &changed, &places),
            prints: team.leads(),
        };
        body(team, &mut reporter)
    });
    job::leave(job, outcome)
}

fn with_team(
    job: &Job,
    (command, ranks): (&str, u32),
    body: impl FnOnce(&Team<'_>) -> Outcome<()>,
) -> Outcome<()> {
    if job.size() < ranks {
        return Err(
            format!("this takes {ranks} ranks at least: rmarun -n {ranks} rma-bench {command}").into()
        );
    }
    let team = Team::new(job)?;
    body(&team)?;
    team.free()
}

/// Settings that are not at their defaults.
fn changed(settings: &Settings) -> Vec<(String, String)> {
    let entries = settings
        .entries()
        .filter(|(setting, _, source)| setting.audience == Audience::User && **source != Source::Default);
    entries
        .map(|(setting, value, _)| (setting.name.to_owned(), value.unwrap_or_default().to_owned()))
        .collect()
}

impl Reporter {
    /// Prints rows that differ only in `columns` of their keys.
    pub(crate) fn group(&mut self, records: &[Record], columns: &[&'static str]) -> Outcome<()> {
        if self.prints {
            self.printer.group(records, columns)?;
        }
        Ok(())
    }

    /// A row.
    pub(crate) fn record(
        &self,
        key: Map<String, Value>,
        unit: Unit,
        values: impl IntoIterator<Item = f64>,
        details: Value,
    ) -> Record {
        let details = details.as_object().cloned().unwrap_or_default();
        Record { key, unit, series: Series::new(values), details, environment: self.environment.clone() }
    }
}

/// What is said about times beside their median.
pub(crate) fn details(measured: &Measured) -> Value {
    json!({
        "p99": rounded(measured.p99),
        "min": rounded(measured.least),
        "epochs": measured.epochs,
        "batch": measured.batch,
        "warm_up": measured.warm_up,
    })
}

/// What is said about rates beside their median.
pub(crate) fn counts(measured: &Measured) -> Value {
    json!({ "epochs": measured.epochs, "warm_up": measured.warm_up })
}

/// A key from an object.
pub(crate) fn key(object: Value) -> Map<String, Value> {
    object.as_object().cloned().unwrap_or_default()
}
