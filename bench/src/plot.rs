//! SVG plots of a result: memory saved over time, one curve a variant, one picture a case.

use crate::result::{Measured, Report};
use anyhow::{Context, Result, anyhow, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::{Path, PathBuf};

const PICTURE: (u32, u32) = (900, 480);
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

/// Draws a result beside its JSON file; the picture's path.
pub(crate) fn plot(json: &Path) -> Result<PathBuf> {
    let report = Report::read(json)?;
    let svg = json.with_extension("svg");
    draw(&report, &svg).with_context(|| format!("cannot draw {}", svg.display()))?;
    Ok(svg)
}

fn draw(report: &Report, svg: &Path) -> Result<()> {
    let cases: Vec<String> = report
        .cases()
        .into_iter()
        .filter(|case| {
            report
                .variants
                .iter()
                .any(|v| v.case == *case && drawable(v))
        })
        .collect();
    ensure!(!cases.is_empty(), "the result holds no course over time");
    let rows = u32::try_from(cases.len())?;
    let root = SVGBackend::new(svg, (PICTURE.0, PICTURE.1 * rows)).into_drawing_area();
    root.fill(&WHITE).map_err(drawing)?;
    for (case, area) in cases.iter().zip(root.split_evenly((cases.len(), 1))) {
        draw_case(report, case, &area)?;
    }
    root.present().map_err(drawing)
}

fn drawable(variant: &Measured) -> bool {
    variant.looks.0.len() > 1
}

fn draw_case(report: &Report, case: &str, area: &DrawingArea<SVGBackend, Shift>) -> Result<()> {
    let variants: Vec<&Measured> = report
        .variants
        .iter()
        .filter(|v| v.case == case && drawable(v))
        .collect();
    let looks = || variants.iter().flat_map(|variant| &variant.looks.0);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(1.0_f64, f64::max);
    let last = most(&mut looks().map(|look| look.seconds));
    let target = most(&mut variants.iter().map(|variant| variant.mergeable_mib));
    let top = most(&mut looks().map(|look| look.saved_mib)).max(target) * 1.08;
    let separator = if case.is_empty() { "" } else { ", " };
    let title = format!(
        "{}{separator}{case}, Linux {} ({})",
        report.experiment,
        report.kernel,
        report.machine()
    );
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..last, 0.0..top)
        .map_err(drawing)?;
    chart
        .configure_mesh()
        .x_desc("seconds since the start")
        .y_desc("MiB saved (from page tables)")
        .light_line_style(WHITE)
        .draw()
        .map_err(drawing)?;
    if target > 1.0 {
        let line = [(0.0, target), (last, target)];
        chart
            .draw_series(DashedLineSeries::new(line, 6, 4, BLACK.mix(0.5).into()))
            .map_err(drawing)?;
    }
    for (variant, colour) in variants.iter().zip(COLOURS.iter().cycle()) {
        let points = variant
            .looks
            .0
            .iter()
            .map(|look| (look.seconds, look.saved_mib));
        let label = format!("{} ({:.2} s CPU)", variant.name, variant.cpu_seconds);
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points, style))
            .map_err(drawing)?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(drawing)
}

fn drawing(error: impl std::error::Error) -> anyhow::Error {
    anyhow!("{error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::timeline::{Look, Timeline};

    fn report(looks: Vec<Look>) -> Report {
        let variant = Measured {
            name: "uksm-full".into(),
            mergeable_mib: 4.0,
            looks: Timeline(looks),
            ..Measured::default()
        };
        Report {
            experiment: "drawn".into(),
            variants: vec![variant],
            ..Report::default()
        }
    }

    #[test]
    fn a_plot_names_its_variants_and_a_result_without_looks_is_refused() {
        let directory = std::env::temp_dir().join(format!("uksm-plot-{}", std::process::id()));
        let look = |seconds, saved_mib| Look {
            seconds,
            cpu_seconds: 0.0,
            saved_mib,
            mapped_mib: 8.0,
        };
        let json = report(vec![look(0.0, 0.0), look(1.0, 4.0)])
            .write(&directory)
            .unwrap();
        let svg = plot(&json).unwrap();
        assert!(std::fs::read_to_string(&svg).unwrap().contains("uksm-full"));
        let json = report(vec![]).write(&directory).unwrap();
        assert!(plot(&json).is_err());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
