//! The results of the demo in words: a line for each setting.

use uksm_results::report::{Measured, Report};

/// The lines.
pub(crate) fn text(report: &Report) -> String {
    let lines = report.variants.iter().map(line);
    let machine = report.machine_kind();
    let mut text = format!("all figures are {machine}: ratios count, times do not\n");
    text.extend(lines);
    text
}

fn line(measured: &Measured) -> String {
    let figure = |name: &str| measured.figures.get(name).copied();
    let runs = &measured.cpu_seconds_of_runs;
    let least = runs.iter().copied().fold(f64::INFINITY, f64::min);
    let most = runs.iter().copied().fold(0.0, f64::max);
    let mut parts = vec![match measured.seconds_to_95_percent {
        Some(seconds) => format!("95 % after {seconds:.1} s"),
        None => format!(
            "{:.0} % in {:.0} s",
            100.0 * measured.saved_mib / measured.mergeable_mib.max(1.0),
            measured.wall_seconds
        ),
    }];
    let spread = match runs.len() {
        0 | 1 => "once".to_owned(),
        count => format!("{least:.2} to {most:.2} in {count} runs"),
    };
    parts.push(format!("CPU {:.2} s ({spread})", measured.cpu_seconds));
    if let Some(gained) = figure("mem_available_mib") {
        parts.push(format!("MemAvailable {gained:+.0} MiB"));
    }
    parts.push(match figure("newcomer_seconds") {
        Some(seconds) => format!("one more server shared {seconds:.1} s after it was filled"),
        None => "one more server not shared in time".to_owned(),
    });
    format!("{}: {}\n", measured.name, parts.join("; "))
}

/// The results of virtual machines: a line for each setting, once each.
pub(crate) fn machines(report: &Report) -> String {
    let of = |measured: &Measured| {
        let reached = match measured.seconds_to_95_percent {
            Some(seconds) => format!("95 % after {seconds:.1} s"),
            None => format!("in {:.0} s", measured.wall_seconds),
        };
        format!(
            "{}: {:.0} of {:.0} MiB that are equal saved, {reached}, for {:.2} s of CPU\n",
            measured.name, measured.saved_mib, measured.mergeable_mib, measured.cpu_seconds
        )
    };
    let first = report.variants.first();
    let count = first.and_then(|measured| measured.figures.get("machines"));
    let mut text = format!(
        "{:.0} virtual machines that have booted, idle, one run each ({}):\n",
        count.unwrap_or(&0.0),
        report.machine_kind()
    );
    text.extend(report.variants.iter().map(of));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_reached_is_said() {
        let mut measured = Measured {
            name: "ksm-shipped".into(),
            saved_mib: 30.0,
            mergeable_mib: 60.0,
            wall_seconds: 15.0,
            cpu_seconds: 0.5,
            cpu_seconds_of_runs: vec![0.4, 0.5, 0.7],
            ..Measured::default()
        };
        let text = line(&measured);
        assert!(
            text.starts_with("ksm-shipped: 50 % in 15 s; CPU 0.50 s (0.40 to 0.70 in 3 runs)"),
            "{text}"
        );
        assert!(text.contains("not shared"), "{text}");
        measured.cpu_seconds_of_runs = vec![0.5];
        assert!(line(&measured).contains("CPU 0.50 s (once);"));
        measured.seconds_to_95_percent = Some(2.0);
        measured.figures = [("newcomer_seconds".to_owned(), 0.5)].into();
        let text = line(&measured);
        assert!(text.contains("95 % after 2.0 s"), "{text}");
        assert!(text.contains("shared 0.5 s after"), "{text}");
    }
}
