//! The figures as a table and as a picture.

use std::fmt::Write;

use super::measure::{Cost, Epoch, Figures};

/// The figures as lines of a Markdown table: bytes, and of each epoch packets, their bytes, latencies and
/// microseconds.
pub fn table(all: &[Figures]) -> String {
    let mut text = String::from("| ranks | bytes, window | bytes, shared |");
    let epochs = Epoch::all();
    for epoch in &epochs {
        let _ = write!(text, " {} |", epoch.name());
    }
    text.push_str("\n| --- | --- | --- |");
    epochs.iter().for_each(|_| text.push_str(" --- |"));
    text.push('\n');
    for Figures { ranks, window_bytes, shared_bytes, costs } in all {
        let _ = write!(text, "| {ranks} | {window_bytes} | {shared_bytes} |");
        for (_, cost) in costs {
            match cost {
                Some(Cost { packets, packet_bytes, latencies, time_ps }) => {
                    let _ =
                        write!(text, " {packets} / {packet_bytes} / {latencies} / {} |", micros(*time_ps));
                }
                None => text.push_str(" |"),
            }
        }
        text.push('\n');
    }
    text
}

fn micros(time_ps: u64) -> String {
    format!("{}.{:02}", time_ps / 1_000_000, time_ps / 10_000 % 100)
}

/// What docs/scale.md holds between its marks.
pub fn markdown(all: &[Figures]) -> String {
    format!(
        "Each entry: packets that one rank sends / their bytes / latencies on its critical path (two are a round \
         trip) / microseconds.\n\n{}",
        table(all)
    )
}

/// Where the picture's axes are, in pixels.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 650.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 430.0;

/// Decades of the time axis: from 1 us to 1 s.
const DECADES: f64 = 6.0;

const COLOURS: [&str; 6] = ["#1f77b4", "#8c564b", "#2ca02c", "#9467bd", "#ff7f0e", "#d62728"];

/// Time against the number of ranks, both axes logarithmic, as an SVG picture.
pub fn svg(all: &[Figures]) -> String {
    let mut text = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 900 480\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"900\" height=\"480\" fill=\"white\"/>\n\
         <text x=\"70\" y=\"28\" font-size=\"16\">Time of one epoch against the number of ranks (LogGP)</text>\n",
    );
    let doublings = all.iter().map(|figures| figures.ranks.ilog2()).max().unwrap_or(1);
    let x = |ranks: u32| LEFT + (RIGHT - LEFT) * f64::from(ranks.ilog2()) / f64::from(doublings);
    let y = |time_ps: u64| {
        let decades = (time_ps as f64 / 1e6).max(1.0).log10().min(DECADES);
        BOTTOM - (BOTTOM - TOP) * decades / DECADES
    };
    for (decade, label) in ["1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s"].iter().enumerate() {
        let at = BOTTOM - (BOTTOM - TOP) * decade as f64 / DECADES;
        let _ = writeln!(
            text,
            "<path d=\"M{LEFT} {at:.1}H{RIGHT}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{label}</text>",
            LEFT - 8.0,
            at + 4.0
        );
    }
    for doubling in (0..=doublings).step_by(4) {
        let at = x(1 << doubling);
        let _ = writeln!(
            text,
            "<path d=\"M{at:.1} {TOP}V{BOTTOM}\" stroke=\"#eee\"/><text x=\"{at:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{}</text>",
            BOTTOM + 20.0,
            1_u64 << doubling
        );
    }
    let _ = writeln!(text, "<text x=\"360\" y=\"470\" text-anchor=\"middle\">ranks</text>");
    for (index, epoch) in Epoch::all().into_iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points: Vec<(f64, f64)> = all
            .iter()
            .filter_map(|figures| Some((x(figures.ranks), y(figures.costs.get(index)?.1?.time_ps))))
            .collect();
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let _ = writeln!(
            text,
            "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join("L")
        );
        let row = TOP + 20.0 + 24.0 * index as f64;
        let _ = writeln!(
            text,
            "<path d=\"M665 {:.1}H690\" stroke=\"{colour}\" stroke-width=\"2\"/><text x=\"698\" y=\"{row:.1}\">{}</text>",
            row - 4.0,
            epoch.name()
        );
    }
    text.push_str("</svg>\n");
    text
}
