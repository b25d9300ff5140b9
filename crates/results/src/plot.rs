//! Drawing as SVG: memory saved over time, one curve a variant, one picture a case; and histograms.

use std::error::Error;

use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;

use crate::Row;

/// Where a picture is drawn.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const WIDTH: u32 = 900;
/// Dark enough on white, told apart by most colour-blind people (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(204, 121, 167),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
];

/// How pictures look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style<'a> {
    /// Height of each, in pixels.
    pub(crate) height: u32,
    /// What seconds count from.
    pub(crate) seconds: &'a str,
    /// What is saved, and how that is known.
    pub(crate) saved: &'a str,
    /// The axes reach at least so far, in seconds and MiB.
    pub(crate) least: f64,
}

/// One picture: its title, and the variants in it.
#[derive(Debug, Clone)]
pub(crate) struct Picture<'a> {
    /// Stands above it.
    pub(crate) title: String,
    /// A curve each.
    pub(crate) rows: Vec<&'a Row<'a>>,
}

/// How often a quantity was up to each bound and above the one before; the last bound may be
/// anything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Histogram<'a> {
    /// The variant.
    pub(crate) name: &'a str,
    /// Bounds and counts, the lowest bound first.
    pub(crate) counts: &'a [(f64, usize)],
}

/// A picture of histograms: its title, and those in it, which have the same bounds.
#[derive(Debug, Clone)]
pub(crate) struct Bars<'a> {
    /// Stands above it.
    pub(crate) title: String,
    /// One each, side by side.
    pub(crate) histograms: Vec<Histogram<'a>>,
}

/// The settings of a system in a figure of costs.
#[derive(Debug, Clone)]
pub(crate) struct CostLine<'a> {
    /// The system.
    pub(crate) system: &'a str,
    /// Percent of a core, net MiB saved, and the name of each setting, the cheapest first.
    pub(crate) points: Vec<(f64, f64, String)>,
}

/// Draws what is saved over its cost as SVG; `all_equal` MiB could be saved.
pub(crate) fn costs(
    title: &str,
    lines: &[CostLine<'_>],
    all_equal: f64,
) -> Result<String, Box<dyn Error>> {
    below_each_other(&[(title, lines)], 480, |&(title, lines), area| {
        let points = || lines.iter().flat_map(|line| &line.points);
        let (least, most) = points().fold((100.0_f64, 0.0_f64), |(least, most), point| {
            (least.min(point.0), most.max(point.0))
        });
        let bottom = points().fold(0.0_f64, |bottom, point| bottom.min(point.1));
        let top = points().fold(all_equal, |top, point| top.max(point.1)) * 1.12;
        let (left, right) = (least / 2.0, most * 2.5);
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d((left..right).log_scale(), bottom..top)?;
        chart
            .configure_mesh()
            .x_desc("percent of a core")
            .y_desc("MiB saved, net of the system's own memory")
            .light_line_style(WHITE)
            .draw()?;
        let equal = [(left, all_equal), (right, all_equal)];
        chart.draw_series(DashedLineSeries::new(equal, 2, 4, BLACK.mix(0.6).into()))?;
        let text = |words: &str, place| Text::new(words.to_owned(), place, ("sans-serif", 14));
        chart.draw_series([text(
            "equal pages that programs wrote",
            (left * 1.05, all_equal + top * 0.035),
        )])?;
        for (line, colour) in lines.iter().zip(COLOURS.iter().rev()) {
            let places = || line.points.iter().map(|point| (point.0, point.1));
            chart
                .draw_series(LineSeries::new(places(), colour.stroke_width(2)))?
                .label(line.system)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
            chart.draw_series(places().map(|place| Circle::new(place, 4, colour.filled())))?;
            chart.draw_series(
                line.points
                    .iter()
                    .map(|(share, net, setting)| text(setting, (share * 1.06, net - top * 0.012))),
            )?;
        }
        draw_labels(&mut chart, SeriesLabelPosition::LowerRight)
    })
}

/// Draws histograms, one picture below the other, as SVG.
pub(crate) fn bars(
    pictures: &[Bars<'_>],
    quantity: &str,
    height: u32,
) -> Result<String, Box<dyn Error>> {
    below_each_other(pictures, height, |picture, area| {
        draw_bars(picture, quantity, area)
    })
}

fn draw_bars(picture: &Bars<'_>, quantity: &str, area: &Area<'_>) -> Result<(), Box<dyn Error>> {
    let first = picture.histograms.first();
    let bounds: Vec<f64> = first.map_or(vec![], |first| {
        first.counts.iter().map(|&(bound, _)| bound).collect()
    });
    let counts = picture.histograms.iter().flat_map(|one| one.counts);
    let top = counts.map(|&(_, count)| count).max().unwrap_or(0).max(1);
    let mut chart = ChartBuilder::on(area)
        .caption(&picture.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..bounds.len() as f64, 0.0..top as f64 * 1.08)?;
    let last = bounds.len().saturating_sub(1);
    let label = |place: &f64| {
        // A bound stands at the right end of its bars.
        let index = place.round();
        let bound = (1..=last).find(|&at| (at as f64 - index).abs() < 0.01);
        bound.map_or(String::new(), |at| format!("{}", bounds[at - 1]))
    };
    chart
        .configure_mesh()
        .x_desc(quantity)
        .x_labels(bounds.len() + 1)
        .x_label_formatter(&label)
        .y_desc("pages")
        .light_line_style(WHITE)
        .draw()?;
    let width = 0.9 / picture.histograms.len().max(1) as f64;
    for (number, (one, colour)) in picture
        .histograms
        .iter()
        .zip(COLOURS.iter().cycle())
        .enumerate()
    {
        let bar = |(index, &(_, count)): (usize, &(f64, usize))| {
            let left = index as f64 + 0.05 + number as f64 * width;
            Rectangle::new([(left, 0.0), (left + width, count as f64)], colour.filled())
        };
        chart
            .draw_series(one.counts.iter().enumerate().map(bar))?
            .label(one.name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 18, y + 5)], colour.filled()));
    }
    draw_labels(&mut chart, SeriesLabelPosition::UpperRight)
}

/// Draws pictures, one below the other, as SVG.
pub(crate) fn svg(pictures: &[Picture<'_>], style: Style<'_>) -> Result<String, Box<dyn Error>> {
    below_each_other(pictures, style.height, |picture, area| {
        draw(picture, style, area)
    })
}

fn draw(picture: &Picture<'_>, style: Style<'_>, area: &Area<'_>) -> Result<(), Box<dyn Error>> {
    let course = || picture.rows.iter().flat_map(|row| &row.course);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(style.least, f64::max);
    let last = most(&mut course().map(|&(seconds, _)| seconds));
    let target = most(&mut picture.rows.iter().map(|row| row.mergeable_mib));
    let top = most(&mut course().map(|&(_, saved)| saved)).max(target) * 1.08;
    let mut chart = ChartBuilder::on(area)
        .caption(&picture.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..last, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc(style.seconds)
        .y_desc(style.saved)
        .light_line_style(WHITE)
        .draw()?;
    if target > style.least {
        let line = [(0.0, target), (last, target)];
        chart.draw_series(DashedLineSeries::new(line, 6, 4, BLACK.mix(0.5).into()))?;
    }
    for (row, colour) in picture.rows.iter().zip(COLOURS.iter().cycle()) {
        let label = format!("{} ({:.2} s CPU)", row.name, row.cpu_seconds);
        let stroke = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(row.course.iter().copied(), stroke))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], stroke));
    }
    draw_labels(&mut chart, SeriesLabelPosition::LowerRight)
}

/// Draws pictures of this height as one SVG.
fn below_each_other<P>(
    pictures: &[P],
    height: u32,
    draw: impl Fn(&P, &Area<'_>) -> Result<(), Box<dyn Error>>,
) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    {
        let size = (WIDTH, height * u32::try_from(pictures.len())?);
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&WHITE)?;
        for (picture, area) in pictures.iter().zip(root.split_evenly((pictures.len(), 1))) {
            draw(picture, &area)?;
        }
        root.present()?;
    }
    Ok(text)
}

/// Says there which colour is which.
fn draw_labels<'a, C: CoordTranslate>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, C>,
    position: SeriesLabelPosition,
) -> Result<(), Box<dyn Error>> {
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}
