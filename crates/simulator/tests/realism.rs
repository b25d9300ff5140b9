//! The guest experiments' workloads, at the costs that were counted in a guest.

use uksm_results::report::{Measured, Report};
use uksm_simulator::Costs;
use uksm_simulator::experiment::{Experiment, Setup};

fn realism(cases: &str) -> Report {
    let setup = Setup {
        costs: Costs::named("counted").expect("it is built in"),
        costs_name: "counted".to_owned(),
        seed: 1,
        parameters: vec![],
        cases: Some(cases.to_owned()),
        variants: vec![],
        layout: None,
        times: 1,
    };
    let experiment = Experiment::named("realism").expect("it is one");
    experiment.run(&setup, 2, &|_| {}).expect("it can be run")
}

fn variant<'a>(report: &'a Report, name: &str) -> &'a Measured {
    let mut variants = report.variants.iter();
    variants.find(|variant| variant.name == name).unwrap()
}

#[test]
fn a_clone_is_merged_in_full_at_about_the_advantage_that_a_guest_shows() {
    let report = realism("clone: 64 MiB");
    for measured in &report.variants {
        assert!(measured.finished);
        assert!(measured.saved_mib > 0.99 * measured.mergeable_mib);
        // Merges after 95 % are not charged.
        assert!(measured.looks.last().unwrap().cpu_seconds >= measured.cpu_seconds);
    }
    // The guest's is between 4 and 5.
    let ratio = report.ratios["cpu_efficiency_vs_ksm-unlimited"];
    assert!((3.5..6.0).contains(&ratio), "{ratio}");
}

#[test]
fn ksm_meets_identical_pages_sooner_where_they_lie_lower() {
    let report = realism("static-mixed: 64 MiB");
    let cost = |case: &str| {
        let mut variants = report.variants.iter();
        let is_it = |one: &&Measured| one.case.contains(case) && one.name == "ksm-unlimited";
        variants.find(is_it).unwrap().cpu_seconds
    };
    assert!(cost("identical first") * 1.3 < cost("random first"));
}

#[test]
fn ksm_that_is_held_uses_its_share_of_a_core() {
    let report = realism("20000 pages/s anywhere, 10 % CPU");
    let percent = variant(&report, "ksm-held").figures["cpu_percent"];
    assert!((9.0..11.0).contains(&percent), "{percent}");
    // With the filter off, uksm goes on merging rewritten pages.
    let figures = &variant(&report, "uksm-unfiltered").figures;
    assert!(figures["mean_saved_mib"] > 16.0, "{figures:?}");
    assert!(figures["cpu_percent"] < 10.0, "{figures:?}");
}
