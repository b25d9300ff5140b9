//! Reports on known memory.

use uksm_linux::contents::Survey;
use uksm_sketch::redundancy::Page;

use super::figures;
use super::page::html;
use super::report::{AnalysisReport, PageEstimate};
use super::sampling::{SampledMemory, SampledProcess, UnreadProcess};

fn process(pid: u32, group: u32, anonymous: u64, zeros: (u64, u64)) -> SampledProcess {
    let mut survey = Survey::default();
    survey.anonymous = anonymous;
    survey.huge = anonymous / 2;
    survey.offered = 10;
    survey.merged = (pid == 1).then_some(7);
    SampledProcess {
        pid,
        comm: format!("<p{pid}>"),
        group,
        survey,
        zero: zeros.0,
        zero_offered: zeros.1,
    }
}

/// Three processes in two groups, with copies at each level.
fn reading(rate: f64) -> SampledMemory {
    let page = |hash, process, is_offered| Page {
        hash,
        process,
        is_offered,
    };
    let mut pages = vec![
        page(1, 0, true),
        page(1, 0, true),
        page(1, 1, false),
        page(1, 2, true),
        page(2, 0, false),
        page(2, 1, false),
        page(3, 2, false),
    ];
    pages.extend((100..124).map(|hash| page(hash, 1, false)));
    let missed = |pid, why: &str| UnreadProcess {
        pid,
        comm: "x\ny".to_owned(),
        why: why.to_owned(),
        pages: 256,
    };
    SampledMemory {
        processes: vec![
            process(1, 0, 20, (5, 2)),
            process(2, 0, 40, (0, 0)),
            process(3, 1, 10, (4, 4)),
        ],
        groups: vec!["/a".to_owned(), format!("/{}<b>", "long/".repeat(20))],
        pages,
        rate,
        page_nanos: 2000.0,
        missed: vec![
            missed(8, "ended"),
            missed(9, "no right"),
            missed(10, "ended"),
        ],
    }
}

fn pages(figure: PageEstimate) -> f64 {
    figure.pages
}

#[test]
fn parts_of_what_could_be_saved_add_up_to_it() {
    let report = figures::report(reading(1.0), 9);
    let parts = [
        report.zero,
        report.within_processes,
        report.within_groups,
        report.across_groups,
    ];
    assert_eq!(parts.map(pages), [9.0, 1.0, 2.0, 1.0]);
    assert_eq!(pages(report.saved), 13.0);
    // Three pages of content 1, and six of zeros; one of each stays.
    let of_ksm = [report.ksm_would_find, report.ksm_cannot_find];
    assert_eq!(of_ksm.map(pages), [2.0 + 5.0, 6.0]);
    assert_eq!((report.anonymous_pages, report.huge_pages), (70.0, 35.0));
    assert_eq!(
        (pages(report.own), pages(report.shared_already)),
        (40.0, 30.0)
    );
    assert_eq!(
        (report.offered_pages, report.ksm_merged_pages),
        (30.0, Some(7))
    );
    let rows = |rows: &[super::report::MemoryRow]| -> Vec<(f64, f64, f64, f64)> {
        let row = |row: &super::report::MemoryRow| {
            let found = (row.zero.pages, row.within.pages);
            (row.anonymous_pages, found.0, found.1, row.elsewhere_least)
        };
        rows.iter().map(row).collect()
    };
    assert_eq!(
        rows(&report.by_group),
        [(60.0, 5.0, 3.0, 3.0), (10.0, 4.0, 0.0, 1.0)]
    );
    let by_process = rows(&report.by_process);
    assert_eq!(
        by_process[..2],
        [(40.0, 0.0, 0.0, 2.0), (20.0, 5.0, 1.0, 3.0)]
    );
    // 40 pages of 2 us are 80 us: 84.2 us with 95 % of a core, 8 ms with 1 %.
    let seconds: Vec<f64> = report.governors.iter().map(|one| one.seconds).collect();
    assert!((seconds[0] - 80e-6 / 0.95).abs() < 1e-9 && (seconds[3] - 8e-3).abs() < 1e-9);
}

#[test]
fn sample_has_intervals_and_a_lower_bound_of_the_rest() {
    let report = figures::report(reading(0.1), 1);
    assert_eq!((pages(report.zero), pages(report.own)), (90.0, 400.0));
    // The kernel reports fewer pages than the sample extrapolates to: no pages are left for the
    // last figure, those shared already.
    let figures = report.lines().map(|(_, figure)| figure);
    for PageEstimate { pages, low, high } in figures.into_iter().take(7) {
        assert!(
            low <= pages && pages <= high && low < high,
            "{low} {pages} {high}"
        );
    }
    assert_eq!((report.by_group.len(), report.by_process.len()), (1, 1));
    let text = report.to_string();
    for says in [
        "\n10.00 % of the own pages were read: 40 pages",
        "                 MiB      %  95 % interval, MiB\n",
        "  >= 0.1  ",
    ] {
        assert!(text.contains(says), "{says:?}\n{text}");
    }
}

#[test]
fn left_out_processes_have_a_line_for_each_reason() {
    let mut report = figures::report(reading(1.0), 0);
    report.cut_processes = 2;
    assert_eq!(
        report.left_out(),
        [
            "left out 2 processes with 2.0 MiB: ended: 8 (x\\ny), 10 (x\\ny)",
            "left out 1 process with 1.0 MiB: no right: 9 (x\\ny)",
            "2 processes were read in part: they have too many mappings, or more than 256 GiB of \
             address space",
        ]
    );
    let text = report.to_string();
    assert!(
        text.starts_with("3 processes in 2 control groups: 0.3 MiB of private memory"),
        "{text}"
    );
    assert!(text.lines().count() <= 24, "one screen: {text}");
    (report.processes, report.groups, report.read_pages) = (1, 1, 1);
    (report.cut_processes, report.rate) = (1, 1.0);
    assert!(
        report
            .headline()
            .starts_with("1 process in 1 control group: ")
    );
    assert!(
        report
            .effort()
            .starts_with("all own pages were read: 1 page in ")
    );
    assert!(report.left_out()[2].starts_with("1 process was read in part: it has too many"));
    report.ksm_merged_pages = None;
    assert!(
        report
            .ksm()
            .starts_with("in-kernel KSM does not report what it has merged")
    );
}

#[test]
fn names_that_others_chose_are_escaped_in_the_page() {
    let report = figures::report(reading(0.5), 9);
    let text = html(&report).unwrap();
    assert!(!text.contains("<p1>") && !text.contains("<b>"), "{text}");
    assert!(text.contains("1 &lt;p1&gt;") && text.contains("&lt;b&gt;"));
    assert_eq!(text.matches("<svg ").count(), 3);
    // Nothing was read: only the axes are drawn.
    html(&AnalysisReport::default()).unwrap();
}

#[test]
fn what_is_written_in_pictures_can_be_read_where_there_is_one_bar() {
    let text = html(&AnalysisReport::default()).unwrap();
    let sizes = text.split("font-size=\"").skip(1);
    let sizes = sizes.map(|rest| rest.split('"').next().unwrap().parse::<f64>().unwrap());
    let least = sizes.reduce(f64::min).unwrap();
    assert!(least > 9.0, "{least} pixels");
}
