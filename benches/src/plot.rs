//! Plots as SVG, without anything from outside.

use std::fmt::Write;

use crate::sequence::Message;

/// A line of a plot.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// What stands in the legend.
    pub name: String,
    /// Place, value, and the ends of its interval.
    pub points: Vec<(f64, f64, f64, f64)>,
}

/// Values over sizes, both logarithmic: a straight line is a power, and small values can be read.
///
/// Points without a positive place and value are left out; empty when there is no point.
pub fn over_sizes(lines: &[Line], unit: &str) -> String {
    let points = || lines.iter().flat_map(|line| &line.points).filter(|point| point.0 > 0.0 && point.1 > 0.0);
    let places = Scale::of(points().map(|point| point.0), 2.0, (LEFT, WIDTH - RIGHT));
    let values = Scale::of(points().flat_map(|point| [point.2, point.3]), 10.0, (HEIGHT - BOTTOM, TOP));
    let (Some(places), Some(values)) = (places, values) else { return String::new() };
    let height = HEIGHT + LEGEND * lines.len() as f64;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{} over bytes\">\n",
        escape(unit)
    );
    grid(&mut svg, &places, &values, unit);
    for (index, line) in lines.iter().enumerate() {
        draw(&mut svg, line, &places, &values, index);
    }
    svg + "</svg>\n"
}

fn grid(svg: &mut String, places: &Scale, values: &Scale, unit: &str) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for (value, label) in values.marks(value_label) {
        let y = values.at(value);
        let _ =
            writeln!(svg, "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>");
        let _ = writeln!(svg, "<text class=\"end\" x=\"{}\" y=\"{:.1}\">{label}</text>", LEFT - 6.0, y + 4.0);
    }
    for (place, label) in places.marks(size_label) {
        let x = places.at(place);
        let _ =
            writeln!(svg, "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>");
        let _ = writeln!(svg, "<text class=\"middle\" x=\"{x:.1}\" y=\"{}\">{label}</text>", bottom + 16.0);
    }
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\">{}</text>", TOP - 8.0, escape(unit));
    let _ = writeln!(svg, "<text class=\"end\" x=\"{right}\" y=\"{}\">bytes</text>", bottom + 32.0);
}

fn draw(svg: &mut String, line: &Line, places: &Scale, values: &Scale, index: usize) {
    let colour = COLOURS[index % COLOURS.len()];
    // Colours come again; then the line is dashed. Prints in black and white have the legend's order.
    let dash = DASHES[index / COLOURS.len() % DASHES.len()];
    let mut path = String::new();
    for &(place, value, low, high) in line.points.iter().filter(|point| point.0 > 0.0 && point.1 > 0.0) {
        let (x, y) = (places.at(place), values.at(value));
        let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { "M" } else { " L" });
        let (from, to) = (values.at(low.max(f64::MIN_POSITIVE)), values.at(high));
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{from:.1}\" x2=\"{x:.1}\" y2=\"{to:.1}\" stroke=\"{colour}\" opacity=\"0.5\" \
             stroke-width=\"3\"/><circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>"
        );
    }
    let style = format!("stroke=\"{colour}\" stroke-width=\"1.5\" stroke-dasharray=\"{dash}\" fill=\"none\"");
    let _ = writeln!(svg, "<path d=\"{path}\" {style}/>");
    let y = HEIGHT + LEGEND * index as f64;
    let _ = writeln!(
        svg,
        "<path d=\"M{LEFT} {y:.1} h28\" {style}/><text x=\"{}\" y=\"{:.1}\">{}</text>",
        LEFT + 36.0,
        y + 4.0,
        escape(&line.name)
    );
}

/// Bars, each with a name and its value, and a line across at 1, which is what they are relative to.
pub fn bars(bars: &[(String, f64)], unit: &str) -> String {
    let most = bars.iter().map(|bar| bar.1).filter(|value| value.is_finite()).fold(1.0, f64::max);
    let (left, wide) = (190.0, WIDTH - 190.0 - 60.0);
    let height = TOP + BAR * bars.len() as f64 + 4.0;
    let mut svg =
        format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n", escape(unit));
    for (index, (name, value)) in bars.iter().enumerate() {
        let (y, length) = (TOP + BAR * index as f64, wide * value.max(0.0) / most);
        let _ = writeln!(
            svg,
            "<text class=\"end\" x=\"{}\" y=\"{:.1}\">{}</text><rect x=\"{left}\" y=\"{:.1}\" width=\"{length:.1}\" \
             height=\"{}\" fill=\"{}\"/><text x=\"{:.1}\" y=\"{:.1}\">{value:.2}</text>",
            left - 6.0,
            y + 14.0,
            escape(name),
            y + 2.0,
            BAR - 5.0,
            COLOURS[0],
            left + length + 5.0,
            y + 14.0
        );
    }
    let (x, bottom) = (left + wide / most, height - 2.0);
    let _ = writeln!(
        svg,
        "<line class=\"one\" x1=\"{x:.1}\" y1=\"{}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>\
         <text class=\"middle\" x=\"{x:.1}\" y=\"{}\">{}</text>",
        TOP - 4.0,
        TOP - 8.0,
        escape(unit)
    );
    svg + "</svg>\n"
}

/// A chart of messages between two ranks, the earliest on top; dashed is what the fabric executes by itself.
pub fn sequence(messages: &[Message]) -> String {
    let (left, right, top): (f64, f64, f64) = (60.0, 400.0, 30.0);
    let (width, height) = (right + 60.0, top + STEP * messages.len() as f64 + 8.0);
    let mut svg = format!(
        "<svg class=\"sequence\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"messages of an epoch\">\n"
    );
    for (x, name) in [(left, "rank 0, origin"), (right, "rank 1, target")] {
        let _ = writeln!(
            svg,
            "<text class=\"middle\" x=\"{x}\" y=\"14\">{name}</text>\
             <line class=\"life\" x1=\"{x}\" y1=\"20\" x2=\"{x}\" y2=\"{height}\"/>"
        );
    }
    for (index, message) in messages.iter().enumerate() {
        let y = top + STEP * index as f64 + 14.0;
        let (from, to) = if message.from.0 == 0 { (left, right) } else { (right, left) };
        // A little downwards, as time goes on meanwhile; the head is on the side where it arrives.
        let (end, back) = (y + 8.0, (from - to).signum() * 8.0);
        let dash = if message.is_native { "5 3" } else { "none" };
        let colour = if message.is_native { COLOURS[1] } else { COLOURS[0] };
        let _ = writeln!(
            svg,
            "<path d=\"M{from} {y} L{to} {end}\" stroke=\"{colour}\" stroke-width=\"1.5\" stroke-dasharray=\"{dash}\" \
             fill=\"none\"/><path d=\"M{to} {end} l{back} -4.5 l0 8 z\" fill=\"{colour}\"/>\
             <text class=\"middle\" x=\"{}\" y=\"{:.1}\">{} ({} bytes)</text>",
            f64::midpoint(left, right),
            y - 2.0,
            escape(&message.what),
            message.bytes
        );
    }
    svg + "</svg>\n"
}

/// Text for HTML.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A logarithmic axis.
struct Scale {
    base: f64,
    /// Exponents at its ends.
    from: f64,
    to: f64,
    /// Places on the page at its ends.
    ends: (f64, f64),
}

impl Scale {
    fn of(values: impl Iterator<Item = f64>, base: f64, ends: (f64, f64)) -> Option<Self> {
        let exponents = values.filter(|value| *value > 0.0 && value.is_finite()).map(|value| value.log(base));
        let (least, most) = exponents.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), exponent| {
            (least.min(exponent), most.max(exponent))
        });
        // Rounding may put a power beside itself.
        let (from, to) = ((least + 1e-9).floor(), (most - 1e-9).ceil());
        least.is_finite().then(|| Self { base, from, to: to.max(from + 1.0), ends })
    }

    fn at(&self, value: f64) -> f64 {
        let share = ((value.log(self.base) - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        self.ends.0 + share * (self.ends.1 - self.ends.0)
    }

    /// Powers of the base, as many as can be read.
    fn marks(&self, label: fn(f64) -> String) -> Vec<(f64, String)> {
        let step = ((self.to - self.from) / MARKS_MAX).ceil().max(1.0);
        let exponents = std::iter::successors(Some(self.from), |exponent| Some(exponent + step));
        let values =
            exponents.take_while(|exponent| *exponent <= self.to).map(|exponent| self.base.powf(exponent));
        values.map(|value| (value, label(value))).collect()
    }
}

fn size_label(value: f64) -> String {
    let units = [(1_073_741_824.0, "G"), (1_048_576.0, "M"), (1024.0, "K")];
    let unit = units.into_iter().find(|(factor, _)| value >= *factor);
    unit.map_or_else(|| format!("{value:.0}"), |(factor, name)| format!("{:.0}{name}", value / factor))
}

fn value_label(value: f64) -> String {
    if value >= 1.0 {
        format!("{value:.0}")
    } else {
        format!("{value}")
    }
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 52.0;
/// Height of a line of the legend.
const LEGEND: f64 = 18.0;
/// Height of a bar with what is between it and the next.
const BAR: f64 = 21.0;
/// Height of a message.
const STEP: f64 = 30.0;
const MARKS_MAX: f64 = 12.0;
/// Told apart by those who do not see red and green alike (Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333"];
const DASHES: [&str; 3] = ["none", "6 3", "2 3"];

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, points: &[(f64, f64)]) -> Line {
        let points = points.iter().map(|&(place, value)| (place, value, value * 0.9, value * 1.1)).collect();
        Line { name: name.to_owned(), points }
    }

    #[test]
    fn a_plot_has_a_point_for_each_value_and_a_legend() {
        let svg =
            over_sizes(&[line("put <a>", &[(8.0, 1.0), (1024.0, 2.0)]), line("get", &[(8.0, 30.0)])], "us");
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("put &lt;a&gt;") && svg.contains(">1K<") && svg.contains(">10<"), "{svg}");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert_eq!(over_sizes(&[], "us"), "");
        assert_eq!(over_sizes(&[line("zero", &[(0.0, 0.0)])], "us"), "");
        let one = over_sizes(&[line("one", &[(8.0, 1.0)])], "us");
        assert!(one.contains("<circle") && !one.contains("NaN"));
    }

    #[test]
    fn bars_are_relative_to_one() {
        let svg = bars(&[("all-on".to_owned(), 0.25), ("all-off".to_owned(), 1.0)], "all off");
        assert_eq!(svg.matches("<rect").count(), 2);
        assert!(svg.contains(">0.25<") && svg.contains("class=\"one\""));
    }

    #[test]
    fn a_sequence_has_an_arrow_for_each_message() {
        let message = |from, what: &str, is_native| Message {
            from: rma::Rank(from),
            what: what.to_owned(),
            bytes: 40,
            is_native,
        };
        let svg = sequence(&[
            message(0, "LOCK + put", false),
            message(0, "write", true),
            message(1, "<ack>", false),
        ]);
        assert_eq!(svg.matches("(40 bytes)").count(), 3);
        assert_eq!(svg.matches("stroke-dasharray=\"5 3\"").count(), 1);
        assert!(svg.contains("M400 ") && svg.contains("&lt;ack&gt;"), "{svg}");
    }

    #[test]
    fn sizes_have_their_units() {
        assert_eq!([512.0, 1024.0, 4_194_304.0, 1_073_741_824.0].map(size_label), ["512", "1K", "4M", "1G"]);
        assert_eq!([0.01, 1.0, 1000.0].map(value_label), ["0.01", "1", "1000"]);
    }
}
