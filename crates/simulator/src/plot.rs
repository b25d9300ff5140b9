//! SVG plots of a result: memory saved over time, one curve a variant, one picture a case.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::result::{Measured, Report};

const PICTURE: (u32, u32) = (900, 420);
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

/// Draws a result; the picture as SVG.
///
/// # Errors
/// The picture cannot be drawn.
pub fn svg(report: &Report) -> Result<String, String> {
    let mut text = String::new();
    draw(report, &mut text).map_err(|error| format!("cannot draw: {error}"))?;
    Ok(text)
}

fn draw(report: &Report, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let cases = report.cases();
    let rows = u32::try_from(cases.len())?;
    let root = SVGBackend::with_string(text, (PICTURE.0, PICTURE.1 * rows)).into_drawing_area();
    root.fill(&WHITE)?;
    for (case, area) in cases.iter().zip(root.split_evenly((cases.len(), 1))) {
        let variants = report.variants.iter().filter(|v| v.case == *case);
        let title = format!(
            "{}, {case} (simulated, {})",
            report.experiment, report.accel
        );
        draw_case(&title, &variants.collect::<Vec<_>>(), &area)?;
    }
    root.present()?;
    Ok(())
}

fn draw_case(
    title: &str,
    variants: &[&Measured],
    area: &DrawingArea<SVGBackend<'_>, Shift>,
) -> Result<(), Box<dyn std::error::Error>> {
    let looks = || variants.iter().flat_map(|variant| &variant.looks);
    let last = looks().map(|look| look.seconds).fold(0.1, f64::max);
    let target = variants.iter().map(|v| v.mergeable_mib).fold(0.1, f64::max);
    let top = looks().map(|look| look.saved_mib).fold(target, f64::max) * 1.08;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..last, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("simulated seconds since the workload is there")
        .y_desc("MiB saved")
        .light_line_style(WHITE)
        .draw()?;
    let line = [(0.0, target), (last, target)];
    chart.draw_series(DashedLineSeries::new(line, 6, 4, BLACK.mix(0.5).into()))?;
    for (variant, colour) in variants.iter().zip(COLOURS.iter().cycle()) {
        let points = variant.looks.iter();
        let points = points.map(|look| (look.seconds, look.saved_mib));
        let label = format!("{} ({:.2} s CPU)", variant.name, variant.cpu_seconds);
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Look;

    #[test]
    fn a_plot_names_its_cases_and_variants() {
        let look = |seconds, saved_mib| Look {
            seconds,
            cpu_seconds: 0.0,
            saved_mib,
        };
        let report = Report {
            variants: vec![Measured {
                name: "uksm-full".into(),
                case: "40 % same".into(),
                looks: vec![look(0.0, 0.0), look(1.0, 4.0)],
                ..Measured::default()
            }],
            ..Report::default()
        };
        let svg = svg(&report).unwrap();
        assert!(svg.contains("uksm-full") && svg.contains("40 % same"));
    }
}
