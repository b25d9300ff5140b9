//! Figures over time, as SVG.
//!
//! # Approach
//! One quantity a picture, in black with grey below it, so that no fact depends on colours: groups
//! are below each other, with one scale. A step is a horizontal line at its mean. Unknown steps
//! have no line.
//!
//! # Units
//! Seconds since 1970, labelled in UTC.

use std::error::Error;

use jiff::Timestamp;
use jiff::fmt::strtime;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::{
    BLACK, ChartBuilder, Color as _, IntoDrawingArea as _, PathElement, Polygon, RGBColor,
    SVGBackend, WHITE,
};

use super::span::Piece;

const WIDTH: u32 = 900;
const BELOW: RGBColor = RGBColor(215, 215, 215);

/// Maximum number of distances between labels.
const TICKS: f64 = 8.0;

/// Distances of labels, in seconds.
const DISTANCES: [f64; 15] = [
    10.0,
    60.0,
    300.0,
    600.0,
    1800.0,
    3600.0,
    2.0 * 3600.0,
    3.0 * 3600.0,
    6.0 * 3600.0,
    12.0 * 3600.0,
    86400.0,
    2.0 * 86400.0,
    7.0 * 86400.0,
    14.0 * 86400.0,
    30.0 * 86400.0,
];

/// A picture.
pub(super) struct Picture<'a> {
    /// Above the picture.
    pub(super) title: &'a str,
    /// Beside the vertical axis.
    pub(super) unit: &'a str,
    /// Height in pixels.
    pub(super) height: u32,
    /// Minimum upper end of the axis.
    pub(super) most: f64,
    /// Steps, ascending, and the mean of each, if known.
    pub(super) steps: Vec<(Piece, Option<f64>)>,
}

impl Picture<'_> {
    /// Draws it.
    ///
    /// # Errors
    /// It cannot be drawn.
    pub(super) fn svg(&self) -> Result<String, Box<dyn Error>> {
        let from = self.steps.first().map_or(0.0, |((from, _), _)| *from);
        let to = self.steps.last().map_or(1.0, |((_, to), _)| *to);
        let values = self.steps.iter().filter_map(|(_, value)| *value);
        let most = values.clone().fold(self.most, f64::max);
        let least = values.fold(0.0, f64::min);
        let most = if most > least { most } else { least + 1.0 };
        let mut text = String::new();
        {
            let size = (WIDTH, self.height);
            let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
            root.fill(&WHITE)?;
            let ticks = ticks((from, to));
            let form = ticks.form;
            let across = Times {
                span: (from, to),
                ticks,
            };
            let mut chart = ChartBuilder::on(&root)
                .caption(self.title, ("sans-serif", 16))
                .margin(8)
                .margin_right(30)
                .x_label_area_size(24)
                .y_label_area_size(70)
                .build_cartesian_2d(across, least * 1.05..most * 1.05)?;
            chart
                .configure_mesh()
                .label_style(("sans-serif", 12))
                .y_desc(self.unit)
                .y_labels(if self.height > 200 { 6 } else { 3 })
                .x_label_formatter(&|time| label(*time, form))
                .light_line_style(WHITE)
                .draw()?;
            for run in self.runs() {
                let foot = |end: Option<&(f64, f64)>| end.map(|(time, _)| (*time, 0.0));
                let outline = foot(run.first()).into_iter();
                let outline = outline.chain(run.iter().copied()).chain(foot(run.last()));
                let below = Polygon::new(outline.collect::<Vec<_>>(), BELOW.filled());
                chart.draw_series([below])?;
                chart.draw_series([PathElement::new(run, BLACK.stroke_width(2))])?;
            }
            root.present()?;
        }
        Ok(text)
    }

    /// The line, in pieces between unknown steps: both ends of each step.
    fn runs(&self) -> Vec<Vec<(f64, f64)>> {
        let mut runs: Vec<Vec<(f64, f64)>> = Vec::new();
        let mut goes_on = false;
        for ((from, to), value) in &self.steps {
            if let Some(value) = value {
                let ends = [(*from, *value), (*to, *value)];
                match runs.last_mut().filter(|_| goes_on) {
                    Some(run) => run.extend(ends),
                    None => runs.push(ends.to_vec()),
                }
            }
            goes_on = value.is_some();
        }
        runs
    }
}

/// The axis of time.
struct Times {
    span: Piece,
    ticks: Ticks,
}

impl Ranged for Times {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, time: &f64, (left, right): (i32, i32)) -> i32 {
        let (from, to) = self.span;
        let part = (time - from) / (to - from);
        // The result is within the picture.
        #[allow(clippy::cast_possible_truncation)]
        let pixels = (part * f64::from(right - left)).round() as i32;
        left + pixels
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.times.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.span.0..self.span.1
    }
}

/// Positions of labels, and their form.
struct Ticks {
    times: Vec<f64>,
    form: &'static str,
}

fn ticks((from, to): Piece) -> Ticks {
    let fits = |distance: &&f64| (to - from) / **distance <= TICKS;
    let longest = DISTANCES[DISTANCES.len() - 1];
    let many = ((to - from) / TICKS / longest).ceil() * longest;
    let distance = DISTANCES.iter().find(fits).copied().unwrap_or(many);
    let mut times = Vec::new();
    let mut time = (from / distance).ceil() * distance;
    while time <= to {
        times.push(time);
        time += distance;
    }
    let form = match distance {
        _ if distance < 60.0 => "%H:%M:%S",
        _ if to - from <= 86400.0 => "%H:%M",
        _ if distance < 86400.0 => "%m-%d %H:%M",
        _ => "%m-%d",
    };
    Ticks { times, form }
}

fn label(time: f64, form: &str) -> String {
    // Ticks are whole seconds.
    #[allow(clippy::cast_possible_truncation)]
    let time = Timestamp::from_second(time.round() as i64);
    let text = time.map(|time| strtime::format(form, time));
    text.map_or_else(|_| String::new(), Result::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stand_at_round_times_and_name_days_where_there_are_several() {
        let hours = |n: f64| n * 3600.0;
        for (span, count, first) in [
            ((hours(6.2), hours(30.1)), 8, "09:00"),
            ((hours(6.2), hours(31.2)), 4, "01-01 12:00"),
            ((hours(1.0), hours(24.0 * 10.0)), 5, "01-03"),
            ((5.0, 42.0), 4, "00:00:10"),
        ] {
            let ticks = ticks(span);
            assert_eq!(ticks.times.len(), count, "{span:?}");
            assert_eq!(label(ticks.times[0], ticks.form), first);
        }
    }

    #[test]
    fn a_line_has_a_hole_where_nothing_is_known() {
        let known = [Some(1.0), Some(2.0), None, Some(-3.0)];
        let steps = known.iter().zip([0.0, 60.0, 120.0, 180.0]);
        let picture = Picture {
            title: "saved <b>",
            unit: "MiB",
            height: 120,
            most: 0.0,
            steps: steps.map(|(value, at)| ((at, at + 60.0), *value)).collect(),
        };
        let runs = picture.runs();
        assert_eq!(
            runs,
            [
                vec![(0.0, 1.0), (60.0, 1.0), (60.0, 2.0), (120.0, 2.0)],
                vec![(180.0, -3.0), (240.0, -3.0)]
            ]
        );
        let svg = picture.svg().unwrap();
        assert_eq!(svg.matches("stroke-width=\"2\"").count(), 2, "{svg}");
        assert!(
            !svg.contains("<b>") && svg.contains("saved &lt;b&gt;"),
            "{svg}"
        );
        // Only zeros, and no values at all, have axes.
        let flat = Picture {
            steps: vec![((0.0, 1.0), Some(0.0))],
            ..picture
        };
        flat.svg().unwrap();
        Picture {
            steps: Vec::new(),
            ..flat
        }
        .svg()
        .unwrap();
    }
}
