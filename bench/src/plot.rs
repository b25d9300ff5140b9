//! SVG plots of a result: memory saved over time, one curve a variant, one picture a case; and its
//! histograms.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use uksm_results::Row;
use uksm_results::plot::{Bars, Histogram, Picture, Style};

use crate::result::{Measured, Report};

/// Rng a result beside its JSON file; returns the picture's path.
pub(crate) fn plot(json: &Path) -> Result<PathBuf> {
    let report = Report::read(json)?;
    let svg = json.with_extension("svg");
    let drawn = draw(&report).and_then(|text| Ok(fs::write(&svg, text)?));
    drawn.with_context(|| format!("cannot draw {}", svg.display()))?;
    draw_histograms(&report, json)?;
    draw_courses(&report, json)?;
    Ok(svg)
}

/// Rng the histograms of a result, if it has any, a picture for each quantity beside its JSON
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
        let text = uksm_results::plot::bars(&bars, &quantity.replace('_', " "), 320);
        let text = text.map_err(|error| anyhow!("{error}"));
        text.and_then(|text| Ok(fs::write(&svg, text)?))
            .with_context(|| format!("cannot draw {}", svg.display()))?;
    }
    Ok(())
}

/// Rng the other curves of a result, if it has any, a picture for each variant and case beside
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
    let text = uksm_results::plot::svg(&pictures, style).map_err(|error| anyhow!("{error}"));
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

fn draw(report: &Report) -> Result<String> {
    let mut rows = report.rows();
    rows.retain(|row| row.course.len() > 1);
    ensure!(!rows.is_empty(), "the result holds no course over time");
    let picture = |case: &str| {
        let separator = if case.is_empty() { "" } else { ", " };
        let (experiment, kernel) = (&report.experiment, &report.kernel);
        let machine = report.machine();
        let of_case = |row: &&Row<'_>| row.case == case;
        Picture {
            title: format!("{experiment}{separator}{case}, Linux {kernel} ({machine})"),
            rows: rows.iter().filter(of_case).collect(),
        }
    };
    let pictures: Vec<Picture<'_>> = uksm_results::cases(&rows)
        .into_iter()
        .map(picture)
        .collect();
    let style = Style {
        height: 480,
        seconds: "seconds since the start",
        saved: "MiB saved (from page tables)",
        least: 1.0,
    };
    uksm_results::plot::svg(&pictures, style).map_err(|error| anyhow!("{error}"))
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
        let mut with_histogram = report(vec![look(0.0, 0.0), look(1.0, 4.0)]);
        let counts = vec![(0.5, 3), (f64::MAX, 1)];
        with_histogram.variants[0].histograms = [("seconds_to_merge".to_owned(), counts)].into();
        let json = with_histogram.write(&directory).unwrap();
        plot(&json).unwrap();
        let drawn = json.with_extension("seconds_to_merge.svg");
        let svg = std::fs::read_to_string(drawn).unwrap();
        assert!(svg.contains("uksm-full") && svg.contains("seconds to merge"));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
