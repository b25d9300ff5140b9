//! The report as one file for a browser.
//!
//! # Approach
//! Each plot has a summary in words, and the table at the end has all its figures. Names of groups
//! come from others: they are escaped. Unknown figures are named where a reader would look for
//! them.

use anyhow::anyhow;
use html_escape::encode_text;
use uksm_policy::report::counted;

use super::figures::{GIB_HOUR, GroupSummary, LedgerReport, ReportSum, Step};
use super::plot::Picture;
use crate::html_document;

/// Maximum number of groups with a plot; all have a line in the table.
const PLOTTED: usize = 8;

/// Maximum number of gaps and torn records that are named.
const NAMED: usize = 10;

const MIB: f64 = 1024.0 * 1024.0;

/// The whole file.
///
/// # Errors
/// A plot cannot be drawn.
pub(super) fn html(report: &LedgerReport) -> anyhow::Result<String> {
    let mut text = format!(
        "<h1>What merging equal memory saved</h1>\n<p>From {} to {}.<br/>{}.</p>\n",
        report.from,
        report.to,
        encode_text(&report.headline())
    );
    for line in unknown(report) {
        text += &format!("<p>{}</p>\n", encode_text(&line));
    }
    text += "<h2>Saved</h2>\n";
    let scale = Scale::of(report);
    let saved = |step: &Step| step.saved_bytes;
    text += &drawn(report, &scale, 260, 0.0, "saved, all groups", saved)?;
    text += &groups(report, &scale)?;
    text += &given(report, &scale)?;
    text += &format!("<h2>Cost</h2>\n<p>{}</p>\n", cost(&report.total));
    let percent = Scale {
        unit: "% of a core",
        of_one: 0.01,
    };
    let cpu = |step: &Step| step.cpu_share;
    text += &drawn(report, &percent, 200, 0.0, "processor time", cpu)?;
    text += &format!(
        "<h2>Merged and broken</h2>\n<p>{}</p>\n<p>{}</p>\n",
        breaks(&report.total),
        host_writes(report)
    );
    text += &format!(
        "<h2>From I/O to the merge</h2>\n{}",
        soonness(&report.total)
    );
    text += "<h2>Groups</h2>\n";
    text += &group_table(report);
    text += "<h2>Over time</h2>\n";
    text += &step_table(report);
    text += &format!(
        "<p>From the ledger in {}.</p>\n",
        encode_text(&report.folder)
    );
    Ok(html_document::html("uksm report", &text))
}

/// A unit, and its size in the quantity's own unit.
struct Scale {
    unit: &'static str,
    of_one: f64,
}

impl Scale {
    /// For bytes.
    fn of(report: &LedgerReport) -> Scale {
        let steps = report.steps.iter();
        let most = steps
            .filter_map(|step| step.saved_bytes)
            .fold(0.0, f64::max);
        match most > 10.0 * 1024.0 * MIB {
            true => Scale {
                unit: "GiB",
                of_one: 1024.0 * MIB,
            },
            false => Scale {
                unit: "MiB",
                of_one: MIB,
            },
        }
    }
}

/// A plot of this figure of each step, and a summary in words.
fn drawn(
    report: &LedgerReport,
    scale: &Scale,
    height: u32,
    most: f64,
    title: &str,
    figure: impl Fn(&Step) -> Option<f64>,
) -> anyhow::Result<String> {
    let steps = report.steps.iter().map(|step| {
        let value = figure(step);
        (step.piece, value.map(|value| value / scale.of_one))
    });
    let picture = Picture {
        title,
        unit: scale.unit,
        height,
        most,
        steps: steps.collect(),
    };
    let svg = picture.svg().map_err(|error| anyhow!("a plot: {error}"))?;
    let mut values = picture.steps.iter().filter_map(|(_, value)| *value);
    let (low, high) = values
        .clone()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
    let unit = scale.unit;
    let words = match values.next_back() {
        None => format!("{title}: nothing is known"),
        Some(last) => {
            format!("{title}: between {low:.2} and {high:.2} {unit}, {last:.2} {unit} at the end")
        }
    };
    Ok(html_document::figure(&words, &svg))
}

/// A plot for each of the groups with the largest savings, with one scale.
fn groups(report: &LedgerReport, scale: &Scale) -> anyhow::Result<String> {
    if report.groups.len() < 2 {
        return Ok(String::new());
    }
    let saved = |group: &GroupSummary| group.sum.amounts.saved_byte_seconds;
    let mut most: Vec<&GroupSummary> = report.groups.iter().collect();
    most.sort_by(|a, b| saved(b).total_cmp(&saved(a)).then(a.group.cmp(&b.group)));
    let of = |step: &Step, group: &GroupSummary| {
        let known = step.saved_bytes_by_group.get(&group.group).copied();
        known.or(step.saved_bytes.map(|_| 0.0))
    };
    let values = report.steps.iter().flat_map(|step| {
        let values = most
            .iter()
            .take(PLOTTED)
            .filter_map(|group| of(step, group));
        values.collect::<Vec<_>>()
    });
    let highest = values.fold(0.0, f64::max) / scale.of_one;
    let mut text = String::new();
    for group in most.iter().take(PLOTTED) {
        let title = format!("saved, group {}", group.group.escape_debug());
        text += &drawn(report, scale, 130, highest, &title, |step| of(step, group))?;
    }
    if let Some(others) = most.len().checked_sub(PLOTTED).filter(|others| *others > 0) {
        text += &format!(
            "<p>These are the {PLOTTED} groups that saved the most; {} in the table below.</p>\n",
            counted(others as u64, "other is", "others are")
        );
    }
    Ok(text)
}

/// Memory given to members, if any was.
fn given(report: &LedgerReport, scale: &Scale) -> anyhow::Result<String> {
    let amounts = &report.total.amounts;
    if amounts.given_bytes == 0 && amounts.held_byte_seconds == 0.0 {
        return Ok(String::new());
    }
    let mut text = format!(
        "<h2>Given back</h2>\n<p>Members of groups were made larger by {:.1} MiB in all, and smaller again by {:.1} MiB; over time they held {:.3} GiB h \
         of what was freed.</p>\n",
        amounts.given_bytes as f64 / MIB,
        amounts.taken_back_bytes as f64 / MIB,
        amounts.held_byte_seconds / GIB_HOUR,
    );
    text += &drawn(report, scale, 160, 0.0, "held by members", |step| {
        step.held_bytes
    })?;
    Ok(text)
}

/// The unknown parts of the span.
fn unknown(report: &LedgerReport) -> Vec<String> {
    let mut lines = Vec::new();
    if !report.gaps.is_empty() {
        let gaps = report.gaps.iter().take(NAMED);
        let gaps: Vec<String> = gaps
            .map(|gap| format!("{} to {}", gap.from, gap.to))
            .collect();
        lines.push(format!(
            "There is no record of {}{}: no daemon wrote one, or it was lost. Sums are without them; what was merged before stays merged meanwhile.",
            gaps.join(", "),
            more(report.gaps.len())
        ));
    }
    if !report.torn.is_empty() {
        let torn: Vec<&str> = report.torn.iter().take(NAMED).map(String::as_str).collect();
        lines.push(format!(
            "{} torn by a crash, and left out: {}{}.",
            counted(report.torn.len() as u64, "record was", "records were"),
            torn.join(", "),
            more(report.torn.len())
        ));
    }
    lines
}

/// The number of items that are not named.
fn more(count: usize) -> String {
    match count.checked_sub(NAMED) {
        None | Some(0) => String::new(),
        Some(more) => format!(" and {more} more"),
    }
}

fn cost(total: &ReportSum) -> String {
    let amounts = &total.amounts;
    let price = match total.cpu_seconds_per_saved_gib_hour {
        Some(price) => format!("{price:.2} s for each GiB that was saved for an hour"),
        None => "and nothing was saved for it".to_owned(),
    };
    format!(
        "{:.2} s of processor time, {price}. Indexes took {:.3} GiB h of memory. Frames, which \
         hold merged contents once, took {:.3} GiB h; they are subtracted from the savings. The \
         workers' memory took {:.3} GiB h: net of it, {:.3} GiB h were saved. {} died and {} \
         replaced.",
        amounts.cpu_seconds,
        amounts.index_byte_seconds / GIB_HOUR,
        amounts.frame_byte_seconds / GIB_HOUR,
        amounts.worker_byte_seconds / GIB_HOUR,
        total.net_byte_seconds / GIB_HOUR,
        counted(amounts.restarts, "worker", "workers"),
        if amounts.restarts == 1 { "was" } else { "were" },
    )
}

fn breaks(total: &ReportSum) -> String {
    let amounts = &total.amounts;
    format!(
        "{} merged, and at least {} written or unmapped by their processes since, which the \
         kernel does not distinguish. {} given their own copies again by the daemon, {} freed.",
        counted(amounts.merged_pages, "page was", "pages were"),
        counted(amounts.written_pages, "was", "were"),
        counted(amounts.broken_pages, "was", "were"),
        counted(amounts.freed_frames, "frame was", "frames were")
    )
}

/// The number of merged pages that were written on the host.
fn host_writes(report: &LedgerReport) -> String {
    let Some(written) = &report.host_written else {
        return "A report of one group has no figure of merged pages that processes of the whole \
                host wrote."
            .to_owned();
    };
    match written.pages {
        None => {
            "The number of merged pages that processes wrote is not known: in-kernel KSM merged \
             pages too, or the kernel or the daemon is too old to count them."
                .to_owned()
        }
        Some(pages) => format!(
            "Processes of the whole host, whatever their group, wrote {} in {:.1} h of this span, \
             by the kernel's count of copies without those that uksm made.",
            counted(pages, "merged page", "merged pages"),
            written.seconds / 3600.0
        ),
    }
}

/// Time from I/O to the merge.
fn soonness(total: &ReportSum) -> String {
    let amounts = &total.amounts;
    let rows = [
        ("up to 0.1 s", amounts.hint_merged_within_100_ms),
        ("0.1 to 1 s", amounts.hint_merged_within_1_s),
        ("1 to 10 s", amounts.hint_merged_within_10_s),
        ("later", amounts.hint_merged_after_10_s),
    ];
    let all: u64 = rows.iter().map(|(_, pages)| pages).sum();
    let elsewhere = "<p>For memory that no I/O touched, the time of writing is not known, and so \
                     is not the time to the merge.</p>\n";
    if all == 0 {
        return format!("<p>No page was merged because of a hint of I/O.</p>\n{elsewhere}");
    }
    let row = |(when, pages): (&str, u64)| {
        let share = pages as f64 * 100.0 / all as f64;
        [when.to_owned(), pages.to_string(), format!("{share:.1}")]
    };
    html_document::table(["after the I/O", "pages", "%"], rows.map(row)) + elsewhere
}

fn group_table(report: &LedgerReport) -> String {
    let head = [
        "group",
        "hours",
        "saved GiB h",
        "net GiB h",
        "net at the end MiB",
        "cpu s",
        "cpu s a GiB h",
        "merged",
        "written",
        "broken",
        "index GiB h",
        "held GiB h",
    ];
    let row = |name: String, sum: &ReportSum| {
        let amounts = &sum.amounts;
        let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let price = sum.cpu_seconds_per_saved_gib_hour;
        [
            name,
            format!("{:.2}", amounts.seconds / 3600.0),
            format!("{:.3}", amounts.saved_byte_seconds / GIB_HOUR),
            format!("{:.3}", sum.net_byte_seconds / GIB_HOUR),
            format!("{:.1}", sum.net_bytes as f64 / MIB),
            format!("{:.2}", amounts.cpu_seconds),
            known(price.map(|price| format!("{price:.2}"))),
            amounts.merged_pages.to_string(),
            amounts.written_pages.to_string(),
            amounts.broken_pages.to_string(),
            format!("{:.3}", amounts.index_byte_seconds / GIB_HOUR),
            format!("{:.3}", amounts.held_byte_seconds / GIB_HOUR),
        ]
    };
    let groups = report.groups.iter();
    let groups = groups.map(|group| row(group.group.escape_debug().to_string(), &group.sum));
    let total = (report.groups.len() > 1).then(|| row("all together".to_owned(), &report.total));
    html_document::table(head, groups.chain(total))
}

fn step_table(report: &LedgerReport) -> String {
    let head = [
        "from",
        "covered min",
        "saved MiB",
        "% of a core",
        "merged",
        "written",
        "broken",
        "held MiB",
    ];
    let known = |value: Option<f64>, of_one: f64, digits: usize| match value {
        Some(value) => format!("{:.digits$}", value / of_one),
        None => "-".to_owned(),
    };
    let row = |step: &Step| {
        [
            step.from.clone(),
            format!("{:.1}", step.covered_seconds / 60.0),
            known(step.saved_bytes, MIB, 1),
            known(step.cpu_share, 0.01, 2),
            known(step.merged_pages, 1.0, 0),
            known(step.written_pages, 1.0, 0),
            known(step.broken_pages, 1.0, 0),
            known(step.held_bytes, MIB, 1),
        ]
    };
    html_document::table(head, report.steps.iter().map(row))
}

#[cfg(test)]
mod tests;
