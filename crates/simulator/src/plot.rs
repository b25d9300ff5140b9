//! SVG plots of a result: memory saved over time, one curve a variant, one picture a case.

use uksm_results::plot::{self, Picture, Style};

use crate::result::Report;

/// Draws a result; returns the picture as SVG.
///
/// # Errors
/// The picture cannot be drawn.
pub fn svg(report: &Report) -> Result<String, String> {
    let rows = report.rows();
    let picture = |case: &str| Picture {
        title: format!(
            "{}, {case} (simulated, {})",
            report.experiment, report.accel
        ),
        rows: rows.iter().filter(|row| row.case == case).collect(),
    };
    let pictures: Vec<Picture<'_>> = uksm_results::cases(&rows)
        .into_iter()
        .map(picture)
        .collect();
    let style = Style {
        height: 420,
        seconds: "simulated seconds since the workload is there",
        saved: "MiB saved",
        least: 0.1,
    };
    plot::svg(&pictures, style).map_err(|error| format!("cannot draw: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Look, Measured};

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
