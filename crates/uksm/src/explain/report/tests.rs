//! The report for people, and the one for programs.

use super::*;
use crate::explain::mappings::{Mapping, MappingKind, Mappings};
use crate::status::evidence::{PageKind, Partner, RegionStanding, Sighting};
use uksm_policy::command::PAGE_SIZE;

const START: u64 = 0x7f00_0000_0000;

fn process(faults: &[&str]) -> (ProcessReport, Breakdown) {
    let sighting = |what, partner, pages| Sighting {
        what,
        partner,
        pages,
    };
    let region = Region {
        start: START,
        end: START + 25_600 * PAGE_SIZE,
        level: 1,
        standing: RegionStanding::Finished,
        left_seconds: None,
        age_seconds: 60.0,
        merged: 12_800,
        read_in_full: true,
        sampled: 10,
        hits: 1,
        broken: 0.01,
        strikes: 0,
        busy: 0,
        busy_left_seconds: None,
        huge_again_left_seconds: None,
        read: 2560,
        seen: vec![
            sighting(PageKind::Frame, Partner::Unknown, 1280),
            sighting(PageKind::Own, Partner::Unknown, 1000),
            sighting(PageKind::Huge, Partner::Page, 279),
            sighting(PageKind::Pinned, Partner::Unknown, 1),
        ],
    };
    let terms = Terms {
        merge: "all".to_owned(),
        splits_huge_pages: true,
        thp_share: 0.25,
        cpu: 0.475,
        cpu_recent: 0.021,
        round_seconds: 4.0,
        most_frames: 1000,
        coverage: 1.0,
        ..Terms::default()
    };
    let evidence = Evidence {
        group: Some("web".to_owned()),
        terms: Some(terms),
        is_listed: true,
        regions: vec![region],
        ..Evidence::of(ProcessStanding::Followed, None)
    };
    let mapping = |start, pages, kind, resident, own| Mapping {
        start,
        end: start + pages * PAGE_SIZE,
        name: "[heap]\u{1b}".to_owned(),
        kind,
        resident,
        own,
        swapped: 0,
    };
    let mappings = Mappings {
        all: vec![
            mapping(0x1000, 512, MappingKind::Shared, 512, 0),
            mapping(START, 25_600, MappingKind::Mergeable, 25_600, 25_600),
        ],
        fault: None,
    };
    let breakdown = Breakdown::of(&evidence, &mappings);
    let faults = faults.iter().map(|&line| line.to_owned()).collect();
    let name = (4711, "redis\u{7}".to_owned());
    (
        ProcessReport::of(name, evidence, faults, &breakdown),
        breakdown,
    )
}

#[test]
fn process_has_a_summary_and_then_reasons() {
    let (process, breakdown) = process(&["smaps was cut"]);
    let report = ExplainReport {
        processes: vec![process],
        sum: MemoryReport::of(&breakdown),
        ..ExplainReport::default()
    };
    let text = report.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..7],
        [
            "redis\\u{7} (4711), group web",
            "  in part     smaps was cut",
            "  governor    48 % of a core allowed, 2.1 % used lately; a round has 4.0 s",
            "  resident    102.0 MiB: 100.0 MiB of its own, 2.0 MiB of files or shared",
            "  looked at   100.0 MiB, of these 100.0 MiB read in full",
            "  merged      50.0 MiB",
            "  broken      1.0 % of what is merged is written again in a round",
        ]
    );
    assert!(
        lines[7].starts_with("  partners    10.9 MiB of 50.0 MiB that are not merged ("),
        "{text}"
    );
    assert_eq!(lines[8], "  not merged, and why:");
    let named = |line: &str| line.trim().split("  ").nth(1).unwrap_or("").to_owned();
    assert!(named(lines[9]).starts_with("nothing-equal: "), "{text}");
    assert!(
        lines[10].contains("changed by: ") && lines[10].contains("most in 7f0000000000-"),
        "{text}"
    );
    assert!(
        lines[11].contains("10.9 MiB  huge-kept: ") && lines[11].ends_with("(thp_share is 25 %)"),
        "{text}"
    );
    assert!(lines[13].contains("2.0 MiB  shared-mapping: "), "{text}");
    // Ten pinned pages are too few for a line.
    assert_eq!(lines.len(), 15, "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'));
}

#[test]
fn output_for_programs_is_complete() {
    let (process, breakdown) = process(&[]);
    let report = ExplainReport {
        processes: vec![process],
        sum: MemoryReport::of(&breakdown),
        ..ExplainReport::default()
    };
    let json = serde_json::to_value(&report).unwrap();
    let one = &json["processes"][0];
    assert_eq!(one["pid"], 4711);
    assert_eq!(one["place"], "followed");
    assert_eq!(one["merged_pages"], 12_800);
    let reasons = one["reasons"].as_array().unwrap();
    let pinned = reasons
        .iter()
        .find(|why| why["reason"] == "pinned")
        .unwrap();
    assert_eq!(pinned["pages"], 10);
    assert_eq!(one["regions"][0]["standing"], "finished");
    assert_eq!(json["sum"]["merged_pages"], 12_800);
}

#[test]
fn several_processes_are_summed_up_and_listed() {
    let (one, breakdown) = process(&[]);
    let mut sum = Breakdown::default();
    let mut processes = Vec::new();
    for pid in 1..=40 {
        let mut process = one.clone();
        process.pid = pid;
        sum.plus(&breakdown, &format!("redis ({pid})"));
        processes.push(process);
    }
    let report = ExplainReport {
        processes,
        sum: MemoryReport::of(&sum),
        not_looked_at: 3,
        lists_regions: false,
    };
    let text = report.to_string();
    assert!(text.starts_with("40 processes\n"), "{text}");
    assert!(text.contains("resident    4080.0 MiB"), "{text}");
    assert!(text.contains("and 10 more, which --json lists"), "{text}");
    assert!(
        text.contains("3 more processes were not looked at"),
        "{text}"
    );
    assert!(text.contains("nothing-equal\n"), "{text}");
}

#[test]
fn regions_are_listed_one_a_line() {
    let (process, breakdown) = process(&[]);
    let report = ExplainReport {
        processes: vec![process],
        sum: MemoryReport::of(&breakdown),
        lists_regions: true,
        ..ExplainReport::default()
    };
    let text = report.to_string();
    let line = text.lines().last().unwrap();
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(cells[1..5], ["25600", "1", "finished", "12800"], "{text}");
    assert_eq!(cells[5..], ["2560", "1279", "279"], "{text}");
}
