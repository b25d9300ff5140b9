//! The figure of what is saved at what cost: net memory saved over the share of a core that it
//! took, a line for the settings of each system.
//!
//! It takes a result whose variants ran for the same time, and have the figures `cpu` and
//! `net_mib`. A dotted line shows what merging all pages that programs wrote would save; zeros that
//! the kernel frees when huge pages are split come on top.

use anyhow::{Result, anyhow, ensure};

use crate::plot::{self, CostLine};
use crate::report::Report;

/// Draws one case as SVG. Variants belong to the system before the first `-` of their names.
///
/// # Errors
/// The result has no such case, or not these figures of it.
pub fn svg(report: &Report, case: &str) -> Result<String> {
    let mut lines: Vec<CostLine<'_>> = Vec::new();
    let mut all_equal = 0.0_f64;
    for one in report.variants.iter().filter(|one| one.case == case) {
        let (Some(cpu), Some(&net_mib)) = (one.figures.get("cpu"), one.figures.get("net_mib"))
        else {
            return Err(anyhow!("{} {case}: no figures cpu and net_mib", one.name));
        };
        let window = one.looks.0.last().map_or(0.0, |look| look.seconds);
        ensure!(
            *cpu > 0.0 && window > 0.0,
            "{} {case}: it took no time",
            one.name
        );
        all_equal = all_equal.max(one.mergeable_mib);
        let (system, setting) = one.name.split_once('-').unwrap_or((&one.name, ""));
        let point = (100.0 * cpu / window, net_mib, setting.to_owned());
        match lines.iter_mut().find(|line| line.system == system) {
            Some(line) => line.points.push(point),
            None => lines.push(CostLine {
                system,
                points: vec![point],
            }),
        }
    }
    ensure!(!lines.is_empty(), "the result has no case '{case}'");
    for line in &mut lines {
        line.points.sort_by(|one, other| one.0.total_cmp(&other.0));
        join_names(&mut line.points, all_equal);
    }
    let title = format!("{case}, Linux {} ({})", report.kernel, report.machine());
    plot::costs(&title, &lines, all_equal).map_err(|error| anyhow!("cannot draw: {error}"))
}

/// Points that lie on each other have their names at the first of them.
fn join_names(points: &mut [(f64, f64, String)], all_equal: f64) {
    let mut first = 0;
    for number in 1..points.len() {
        let (before, here) = points.split_at_mut(number);
        let (named, point) = (&mut before[first], &mut here[0]);
        let is_near = point.0 < named.0 * 1.2 && (point.1 - named.1).abs() < all_equal * 0.05;
        if is_near {
            named.2 += ", ";
            named.2 += &std::mem::take(&mut point.2);
        } else {
            first = number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Measured;
    use crate::timeline::{Look, Timeline};

    fn measured(name: &str, figures: &[(&str, f64)]) -> Measured {
        Measured {
            name: name.to_owned(),
            case: "guests".to_owned(),
            looks: Timeline(vec![Look {
                seconds: 30.0,
                ..Look::default()
            }]),
            mergeable_mib: 50.0,
            figures: figures
                .iter()
                .map(|&(name, value)| (name.to_owned(), value))
                .collect(),
            ..Measured::default()
        }
    }

    #[test]
    fn names_of_points_on_each_other_are_joined() {
        let named = |name: &str| name.to_owned();
        let mut points = [
            (2.0, 10.0, named("quiet")),
            (9.5, 620.0, named("full")),
            (9.6, 614.0, named("low")),
            (9.7, 300.0, named("half")),
        ];
        join_names(&mut points, 544.0);
        let names = points.map(|point| point.2);
        assert_eq!(names, ["quiet", "full, low", "", "half"]);
    }

    #[test]
    fn each_setting_is_named_and_what_is_missing_is_said() {
        let report = |variants| Report {
            variants,
            ..Report::default()
        };
        let full = report(vec![
            measured("uksm-low", &[("cpu", 0.5), ("net_mib", 40.0)]),
            measured("ksm-1000-50ms", &[("cpu", 3.0), ("net_mib", -1.0)]),
        ]);
        let text = svg(&full, "guests").unwrap();
        for name in ["uksm", "low", "ksm", "1000-50ms"] {
            assert!(text.contains(name), "{name}: {text}");
        }
        let none = svg(&full, "redis").unwrap_err().to_string();
        assert_eq!(none, "the result has no case 'redis'");
        for (figures, expected) in [
            (
                &[("cpu", 1.0)][..],
                "uksm-low guests: no figures cpu and net_mib",
            ),
            (
                &[("cpu", 0.0), ("net_mib", 1.0)],
                "uksm-low guests: it took no time",
            ),
        ] {
            let report = report(vec![measured("uksm-low", figures)]);
            assert_eq!(svg(&report, "guests").unwrap_err().to_string(), expected);
        }
    }
}
