//! How well figures of two origins agree: those of a guest, and those that a model says.
//!
//! A ratio is the model's figure over the guest's. It is within its bound if it differs from 1 by
//! no more than that. What is next to nothing on both sides agrees, whatever its ratio is.

use std::fmt::Write as _;

use crate::Row;

/// What a comparison allows.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Share by which saved memory may differ.
    pub saved: f64,
    /// Share by which CPU may differ.
    pub cpu: f64,
    /// Memory below which a saving is nothing, in MiB.
    pub nothing_mib: f64,
}

/// The figures of one side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Memory saved: at the end, or on average where that is what was measured.
    pub saved_mib: f64,
    /// CPU used: in seconds, or in percent of a core where a mean was measured.
    pub cpu: f64,
}

/// One variant in one case, on both sides.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// The case.
    pub case: String,
    /// The variant.
    pub name: String,
    /// In the guest.
    pub guest: Figures,
    /// By the model.
    pub model: Figures,
}

impl Figures {
    /// Those of a row; a mean over time is preferred to what was at its end.
    #[must_use]
    pub fn of(row: &Row<'_>) -> Figures {
        let mean = |name: &str| row.figures.get(name).copied();
        Figures {
            saved_mib: mean("mean_saved_mib").unwrap_or(row.saved_mib),
            cpu: mean("cpu_percent").unwrap_or(row.cpu_seconds),
        }
    }
}

impl Pair {
    /// Saved memory, the model's over the guest's.
    #[must_use]
    pub fn saved_ratio(&self) -> f64 {
        self.model.saved_mib / self.guest.saved_mib
    }

    /// CPU, the model's over the guest's.
    #[must_use]
    pub fn cpu_ratio(&self) -> f64 {
        self.model.cpu / self.guest.cpu
    }

    /// What is out of bounds.
    #[must_use]
    pub fn faults(&self, bounds: Bounds) -> Vec<&'static str> {
        let is_nothing = |figures: Figures| figures.saved_mib.abs() < bounds.nothing_mib;
        let both_nothing = is_nothing(self.guest) && is_nothing(self.model);
        // What is no number agrees with nothing.
        let differs = |ratio: f64, bound: f64| ratio.is_nan() || (ratio - 1.0).abs() > bound;
        let mut faults = vec![];
        if !both_nothing && differs(self.saved_ratio(), bounds.saved) {
            faults.push("saved");
        }
        if differs(self.cpu_ratio(), bounds.cpu) {
            faults.push("CPU");
        }
        faults
    }
}

/// The pairs of a guest's rows and those of a model's runs, whose cases begin with `prefix`; and
/// what only the guest has. Of the runs the median one by CPU counts, as in the guest.
#[must_use]
pub fn pairs(prefix: &str, guest: &[Row<'_>], runs: &[Vec<Row<'_>>]) -> (Vec<Pair>, Vec<String>) {
    let mut pairs = vec![];
    let mut alone = vec![];
    for row in guest {
        let case = format!("{prefix}{}", row.case);
        let is_twin = |twin: &&Row<'_>| twin.case == case && twin.name == row.name;
        let twins = runs.iter().flatten().filter(is_twin).map(Figures::of);
        let mut twins: Vec<Figures> = twins.collect();
        twins.sort_by(|one, other| one.cpu.total_cmp(&other.cpu));
        match twins.get(twins.len() / 2) {
            Some(&model) => pairs.push(Pair {
                case,
                name: row.name.to_owned(),
                guest: Figures::of(row),
                model,
            }),
            None => alone.push(format!("{case}, {}", row.name)),
        }
    }
    (pairs, alone)
}

/// The comparison as a table for people.
#[must_use]
pub fn table(pairs: &[Pair], bounds: Bounds) -> String {
    let mut text = format!(
        "{:<53} {:<16} {:>9} {:>9} {:>6}  {:>8} {:>8} {:>6}\n",
        "case", "variant", "MiB guest", "simulated", "ratio", "CPU guest", "simulated", "ratio"
    );
    for pair in pairs {
        let faults = pair.faults(bounds);
        let verdict = if faults.is_empty() {
            String::new()
        } else {
            format!("  out of bounds: {}", faults.join(", "))
        };
        let _ = writeln!(
            text,
            "{:<53} {:<16} {:>9.1} {:>9.1} {:>6.2}  {:>9.3} {:>9.3} {:>6.2}{verdict}",
            pair.case,
            pair.name,
            pair.guest.saved_mib,
            pair.model.saved_mib,
            pair.saved_ratio(),
            pair.guest.cpu,
            pair.model.cpu,
            pair.cpu_ratio(),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        saved: 0.1,
        cpu: 0.35,
        nothing_mib: 1.0,
    };

    fn pair(guest: (f64, f64), model: (f64, f64)) -> Pair {
        let figures = |(saved_mib, cpu)| Figures { saved_mib, cpu };
        Pair {
            case: "clone: 64 MiB".into(),
            name: "uksm-full".into(),
            guest: figures(guest),
            model: figures(model),
        }
    }

    #[test]
    fn a_row_within_both_bounds_has_no_fault() {
        assert!(pair((64.0, 1.0), (58.0, 1.34)).faults(BOUNDS).is_empty());
        assert!(pair((64.0, 1.0), (70.0, 0.66)).faults(BOUNDS).is_empty());
    }

    #[test]
    fn a_row_out_of_bounds_is_told_with_what_is_out_of_them() {
        assert_eq!(pair((64.0, 1.0), (57.0, 1.0)).faults(BOUNDS), ["saved"]);
        assert_eq!(pair((64.0, 1.0), (64.0, 1.36)).faults(BOUNDS), ["CPU"]);
        let both = pair((64.0, 1.0), (0.0, 0.1));
        assert_eq!(both.faults(BOUNDS), ["saved", "CPU"]);
        let table = table(&[both], BOUNDS);
        assert!(table.contains("out of bounds: saved, CPU"), "{table}");
    }

    #[test]
    fn next_to_nothing_on_both_sides_agrees_but_not_on_one() {
        assert!(pair((0.02, 1.0), (0.5, 1.0)).faults(BOUNDS).is_empty());
        assert_eq!(pair((0.0, 1.0), (8.0, 1.0)).faults(BOUNDS), ["saved"]);
        // Without CPU on one side nothing can be said in favour of the model.
        assert_eq!(pair((4.0, 0.0), (4.0, 0.0)).faults(BOUNDS), ["CPU"]);
    }

    #[test]
    fn pairs_are_made_by_case_and_variant_and_the_rest_is_named() {
        let none = BTreeMap::new();
        let means = |saved, cpu| {
            BTreeMap::from([
                ("mean_saved_mib".to_owned(), saved),
                ("cpu_percent".to_owned(), cpu),
            ])
        };
        let of_runs = [means(9.0, 8.0), means(1.0, 2.0), means(5.0, 7.0)];
        let row = |name, case, figures| Row {
            name,
            case,
            saved_mib: 1.0,
            mergeable_mib: 1.0,
            wall_seconds: 1.0,
            cpu_seconds: 2.0,
            finished: true,
            reached_seconds: None,
            mib_per_cpu_second: 1.0,
            own_mib: 0.0,
            figures,
            course: vec![],
            runs: &[],
        };
        let guest = [row("uksm-full", "a", &none), row("uksm-low", "a", &none)];
        let runs = of_runs.each_ref().map(|means| {
            vec![
                row("uksm-full", "b", &none),
                row("uksm-full", "x: a", means),
            ]
        });
        let (pairs, alone) = pairs("x: ", &guest, &runs);
        assert_eq!(alone, ["x: a, uksm-low"]);
        assert_eq!(pairs.len(), 1);
        assert_eq!((pairs[0].guest.saved_mib, pairs[0].guest.cpu), (1.0, 2.0));
        assert_eq!((pairs[0].model.saved_mib, pairs[0].model.cpu), (5.0, 7.0));
    }
}
