//! The page is whole, needs no other file, and describes its plots in words.

use super::*;
use crate::account::Record;
use crate::report::figures::tests::{of, record};

/// The page of these records, and its parsed form by a function.
fn page(records: &[Record], look: impl FnOnce(&str, &roxmltree::Document<'_>)) {
    let report = of(records, (None, None), None).unwrap();
    let text = html(&report).unwrap();
    let options = roxmltree::ParsingOptions {
        allow_dtd: true,
        ..roxmltree::ParsingOptions::default()
    };
    let parsed = roxmltree::Document::parse_with_options(&text, options);
    look(
        &text,
        &parsed.unwrap_or_else(|error| panic!("{error}\n{text}")),
    );
}

fn words<'a>(parsed: &'a roxmltree::Document<'_>) -> Vec<&'a str> {
    let figures = parsed
        .descendants()
        .filter(|node| node.has_tag_name("figure"));
    figures
        .map(|figure| {
            let plots = figure
                .children()
                .filter(|child| child.tag_name().name() == "svg");
            assert_eq!(plots.count(), 1);
            figure.attribute("aria-label").unwrap()
        })
        .collect()
}

#[test]
fn each_group_has_a_plot_with_its_range_in_words() {
    let records = [
        record("web", "12:01:00", 60.0, 64.0),
        record("a<b>&\"", "12:00:30", 30.0, 32.0),
    ];
    page(&records, |text, parsed| {
        assert_eq!(
            words(parsed),
            [
                "saved, all groups: between 64.00 and 96.00 MiB, 64.00 MiB at the end",
                "saved, group web: between 64.00 and 64.00 MiB, 64.00 MiB at the end",
                "saved, group a<b>&\\\": between 0.00 and 32.00 MiB, 0.00 MiB at the end",
                "processor time: between 1.00 and 2.00 % of a core, 1.00 % of a core at the end",
            ]
        );
        assert!(!text.contains("a<b>"));
        assert!(
            text.contains("and at least 6 were written or unmapped by their processes"),
            "{text}"
        );
        assert!(text.contains("No page was merged because of a hint"));
        assert!(!text.contains("Given back"), "nothing was");
        assert!(text.contains("The number of merged pages that processes wrote is not known"));
    });
    let mut record = record("web", "12:01:00", 360.0, 64.0);
    record.host_written_pages = Some(1);
    page(&[record], |text, _| {
        let expected = "wrote 1 merged page in 0.1 h of this span";
        assert!(text.contains(expected), "{text}");
    });
}

#[test]
fn a_page_needs_no_other_file_and_no_script() {
    page(&[record("all", "12:01:00", 60.0, 64.0)], |text, parsed| {
        for node in parsed.descendants().filter(roxmltree::Node::is_element) {
            assert!(
                !["script", "link", "img", "iframe", "image", "use"]
                    .contains(&node.tag_name().name())
            );
            for attribute in node.attributes() {
                assert!(
                    !["src", "href", "onload"].contains(&attribute.name()),
                    "{node:?}"
                );
            }
        }
        for other in ["url(", "@import"] {
            assert!(!text.contains(other), "{other}");
        }
        assert_eq!(words(parsed).len(), 2, "one group needs no plot of its own");
    });
}

#[test]
fn page_has_gaps_given_memory_and_merge_delays() {
    let mut second = record("all", "12:10:00", 60.0, 20480.0);
    second.amounts.given_bytes = 3 << 20;
    second.amounts.held_byte_seconds = 60.0 * MIB;
    second.amounts.hint_merged_within_100_ms = 3;
    second.amounts.hint_merged_after_10_s = 1;
    second.amounts.restarts = 1;
    page(
        &[record("all", "12:01:00", 60.0, 64.0), second],
        |text, parsed| {
            for expected in [
                "There is no record of 2026-03-01T12:01:00.000Z to 2026-03-01T12:09:00.000Z: no daemon wrote one",
                "made larger by 3.0 MiB in all, and smaller again by 0.0 MiB",
                "<tr><td>up to 0.1 s</td><td>3</td><td>75.0</td></tr>",
                "<tr><td>later</td><td>1</td><td>25.0</td></tr>",
                "1 worker died and was replaced",
                "20480.0",
                "<td>-</td>",
            ] {
                assert!(text.contains(expected), "{expected}");
            }
            let words = words(parsed);
            assert!(
                words[0].contains("GiB") && words[0].contains("20.00 GiB at the end"),
                "{words:?}"
            );
            assert!(
                words[1].starts_with("held by members: between"),
                "{words:?}"
            );
        },
    );
}

#[test]
fn of_many_groups_those_that_saved_the_most_have_plots_and_all_have_a_line() {
    let names: Vec<String> = (10..22).map(|number| format!("group{number}")).collect();
    let records = names.iter().zip(1..);
    let records: Vec<Record> = records
        .map(|(name, mib)| record(name, "12:01:00", 60.0, f64::from(mib)))
        .collect();
    page(&records, |text, parsed| {
        assert_eq!(words(parsed).len(), 1 + PLOTTED + 1);
        assert!(words(parsed)[1].starts_with("saved, group group21: "));
        assert!(text.contains("; 4 others are in the table below"), "{text}");
        for name in &names {
            assert!(text.contains(&format!("<tr><td>{name}</td>")), "{name}");
        }
    });
}
