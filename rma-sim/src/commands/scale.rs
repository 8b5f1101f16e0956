//! `rma-sim scale`: what epochs cost in jobs of up to a million ranks.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use rma_sim::scale::{markdown, measure, svg, LogGp};

/// Says what epochs cost for 2, 4, ... ranks. All times are nanoseconds.
#[derive(Args, Debug)]
pub(crate) struct Scale {
    /// Most ranks.
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(2..=1 << 24))]
    ranks: u32,
    /// L: one way through the network.
    #[arg(long, default_value_t = 1000.0)]
    latency: f64,
    /// o: what a process is busy for with each packet.
    #[arg(long, default_value_t = 200.0)]
    overhead: f64,
    /// g: least time between two packets of a process.
    #[arg(long, default_value_t = 50.0)]
    gap: f64,
    /// G: the same for each byte.
    #[arg(long, default_value_t = 0.1)]
    byte_gap: f64,
    /// Write a picture there.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Write the table into scale.md of this directory, between its marks, and the picture beside it.
    #[arg(long)]
    write: Option<PathBuf>,
}

impl Scale {
    pub(crate) fn run(&self) -> ExitCode {
        let model = LogGp {
            latency_ps: picos(self.latency),
            overhead_ps: picos(self.overhead),
            gap_ps: picos(self.gap),
            byte_gap_ps: picos(self.byte_gap),
        };
        let doublings = 1..=self.ranks.ilog2();
        let measured: Result<Vec<_>, _> = doublings.map(|doubling| measure(1 << doubling, model)).collect();
        let figures = match measured {
            Ok(figures) => figures,
            Err(error) => {
                eprintln!("scale: {error}");
                return ExitCode::from(1);
            }
        };
        let table = markdown(&figures);
        print!("{table}");
        let mut written = self.svg.iter().try_for_each(|path| write(path, &svg(&figures)));
        if let Some(docs) = &self.write {
            let picture = write(&docs.join("scale.svg"), &svg(&figures));
            written = written.and(picture).and_then(|()| rewrite(&docs.join("scale.md"), &table));
        }
        if let Err(error) = written {
            eprintln!("scale: {error}");
            return ExitCode::from(1);
        }
        ExitCode::SUCCESS
    }
}

fn picos(nanoseconds: f64) -> u64 {
    (nanoseconds.max(0.0) * 1000.0) as u64
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

/// Replaces what stands between the marks of a page.
pub(super) fn rewrite(path: &Path, text: &str) -> Result<(), String> {
    const BEGIN: &str = "<!-- generated -->\n";
    const END: &str = "<!-- end -->\n";
    let page = std::fs::read_to_string(path);
    let page = page.map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let parts = page.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let Some((head, tail)) = parts else {
        return Err(format!("{} has no place for the table: put {BEGIN}{END} there", path.display()));
    };
    write(path, &format!("{head}{BEGIN}{text}{END}{tail}"))
}
