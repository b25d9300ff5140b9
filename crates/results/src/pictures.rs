//! Pictures of a result as SVG: memory saved over time, one curve a variant, one picture a case;
//! its histograms; and its other curves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};

use crate::plot::{self, Bars, Histogram, Picture, Style};
use crate::report::{Measured, Report};
use crate::{Row, cases};

/// Draws a result beside its JSON file; returns the path of the picture of savings.
///
/// # Errors
/// The result cannot be read or has no course over time; a picture cannot be written.
pub fn draw_beside(json: &Path) -> Result<PathBuf> {
    let report = Report::read(json)?;
    let path = json.with_extension("svg");
    let drawn = svg(&report).and_then(|text| Ok(fs::write(&path, text)?));
    drawn.with_context(|| format!("cannot draw {}", path.display()))?;
    draw_histograms(&report, json)?;
    draw_courses(&report, json)?;
    Ok(path)
}

/// Draws the histograms of a result, if it has any, a picture for each quantity beside its JSON
/// file.
fn draw_histograms(report: &Report, json: &Path) -> Result<()> {
    let having = || {
        report
            .variants
            .iter()
            .filter(|one| !one.histograms.is_empty())
    };
    let quantities: BTreeSet<&String> = having().flat_map(|one| one.histograms.keys()).collect();
    for quantity in quantities {
        let mut cases: Vec<&str> = having().map(|one| one.case.as_str()).collect();
        cases.dedup();
        let bars: Vec<Bars<'_>> = cases
            .into_iter()
            .map(|case| Bars {
                title: format!("{}, {case}, Linux {}", report.experiment, report.kernel),
                histograms: having()
                    .filter(|one| one.case == case)
                    .filter_map(|one| {
                        let counts = one.histograms.get(quantity)?;
                        let name = &one.name;
                        Some(Histogram { name, counts })
                    })
                    .collect(),
            })
            .collect();
        let svg = json.with_extension(format!("{quantity}.svg"));
        let text = plot::bars(&bars, &quantity.replace('_', " "), 320);
        let text = text.map_err(|error| anyhow!("{error}"));
        text.and_then(|text| Ok(fs::write(&svg, text)?))
            .with_context(|| format!("cannot draw {}", svg.display()))?;
    }
    Ok(())
}

/// Draws the other curves of a result, if it has any, a picture for each variant and case beside
/// its JSON file.
fn draw_courses(report: &Report, json: &Path) -> Result<()> {
    let having = || report.variants.iter().filter(|one| !one.courses.is_empty());
    let none = BTreeMap::new();
    let curves: Vec<Vec<Row<'_>>> = having().map(|one| curves(one, &none)).collect();
    if curves.is_empty() {
        return Ok(());
    }
    let pictures: Vec<Picture<'_>> = having()
        .zip(&curves)
        .map(|(one, rows)| Picture {
            title: format!(
                "{}, {}, {}, Linux {}",
                report.experiment, one.name, one.case, report.kernel
            ),
            rows: rows.iter().collect(),
        })
        .collect();
    let style = Style {
        height: 360,
        seconds: "seconds since the start",
        saved: "MiB",
        least: 1.0,
    };
    let svg = json.with_extension("courses.svg");
    let text = plot::svg(&pictures, style).map_err(|error| anyhow!("{error}"));
    text.and_then(|text| Ok(fs::write(&svg, text)?))
        .with_context(|| format!("cannot draw {}", svg.display()))
}

/// The other curves of a variant, in the form that plots take.
fn curves<'a>(one: &'a Measured, none: &'a BTreeMap<String, f64>) -> Vec<Row<'a>> {
    let row = |(name, course): (&'a String, &Vec<(f64, f64)>)| Row {
        name,
        case: &one.case,
        saved_mib: 0.0,
        mergeable_mib: 0.0,
        wall_seconds: one.wall_seconds,
        cpu_seconds: one.cpu_seconds,
        finished: true,
        reached_seconds: None,
        mib_per_cpu_second: 0.0,
        own_mib: 0.0,
        figures: none,
        course: course.clone(),
        runs: &[],
    };
    one.courses.iter().map(row).collect()
}

/// Draws the savings over time.
///
/// # Errors
/// The result holds no course over time; the picture cannot be drawn.
pub fn svg(report: &Report) -> Result<String> {
    let mut rows = report.rows();
    if !report.is_simulated() {
        rows.retain(|row| row.course.len() > 1);
        ensure!(!rows.is_empty(), "the result holds no course over time");
    }
    let picture = |case: &str| Picture {
        title: title(report, case),
        rows: rows.iter().filter(|row| row.case == case).collect(),
    };
    let pictures: Vec<Picture<'_>> = cases(&rows).into_iter().map(picture).collect();
    let style = match report.is_simulated() {
        true => Style {
            height: 420,
            seconds: "simulated seconds since the workload is there",
            saved: "MiB saved",
            least: 0.1,
        },
        false => Style {
            height: 480,
            seconds: "seconds since the start",
            saved: "MiB saved (from page tables)",
            least: 1.0,
        },
    };
    plot::svg(&pictures, style).map_err(|error| anyhow!("cannot draw: {error}"))
}

/// The title of a case's picture.
fn title(report: &Report, case: &str) -> String {
    let (experiment, kernel) = (&report.experiment, &report.kernel);
    if report.is_simulated() {
        return format!("{experiment}, {case} (simulated, {})", report.accel);
    }
    let separator = if case.is_empty() { "" } else { ", " };
    let machine = report.machine();
    format!("{experiment}{separator}{case}, Linux {kernel} ({machine})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Look, Timeline};

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
        let svg = draw_beside(&json).unwrap();
        assert!(std::fs::read_to_string(&svg).unwrap().contains("uksm-full"));
        let json = report(vec![]).write(&directory).unwrap();
        assert!(draw_beside(&json).is_err());
        let mut with_histogram = report(vec![look(0.0, 0.0), look(1.0, 4.0)]);
        let counts = vec![(0.5, 3), (f64::MAX, 1)];
        with_histogram.variants[0].histograms = [("seconds_to_merge".to_owned(), counts)].into();
        let json = with_histogram.write(&directory).unwrap();
        draw_beside(&json).unwrap();
        let drawn = json.with_extension("seconds_to_merge.svg");
        let svg = std::fs::read_to_string(drawn).unwrap();
        assert!(svg.contains("uksm-full") && svg.contains("seconds to merge"));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_picture_of_a_simulated_result_names_its_cases() {
        let look = |seconds, saved_mib| Look {
            seconds,
            saved_mib,
            ..Look::default()
        };
        let mut report = report(vec![look(0.0, 0.0), look(1.0, 4.0)]);
        report.kernel = crate::report::SIMULATED.to_owned();
        report.variants[0].case = "40 % same".to_owned();
        let svg = svg(&report).unwrap();
        assert!(svg.contains("uksm-full") && svg.contains("40 % same"));
    }
}
