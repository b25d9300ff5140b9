//! The result as one file for a browser.
//!
//! # Approach
//! A [`html_document`](crate::html_document) with a plot of bars for the host, for control groups
//! and for processes, and tables of the same figures. Names of processes and control groups come
//! from others: they are escaped.

use std::error::Error;
use std::fmt::Write as _;

use anyhow::anyhow;
use html_escape::encode_text;
use plotters::prelude::{
    BLACK, ChartBuilder, Color as _, IntoDrawingArea as _, PathElement, RGBColor, Rectangle,
    SVGBackend, WHITE,
};

use super::lifetimes::Lifetimes;
use super::report::{AnalysisReport, MemoryRow};
use super::units::{duration, mib};
use crate::html_document;

const WIDTH: u32 = 900;

/// Height of a bar, and of the space around the bars, in pixels.
const BAR: u32 = 34;
const AROUND: u32 = 90;

/// Dark enough on white, distinguished by most colour-blind people (Okabe and Ito).
const ZERO: RGBColor = RGBColor(86, 180, 233);
const WITHIN: RGBColor = RGBColor(0, 114, 178);
const GROUP: RGBColor = RGBColor(0, 158, 115);
const ACROSS: RGBColor = RGBColor(230, 159, 0);
const SHARED: RGBColor = RGBColor(204, 121, 167);
const REST: RGBColor = RGBColor(210, 210, 210);

/// The whole file.
///
/// # Errors
/// A plot cannot be drawn.
pub(super) fn html(report: &AnalysisReport) -> anyhow::Result<String> {
    let drawn =
        |svg: Result<String, Box<dyn Error>>| svg.map_err(|error| anyhow!("--html: {error}"));
    let mut text = String::new();
    let _infallible = write!(
        text,
        "<h1>Duplicate memory of this host</h1>\n<p>{}<br/>{}</p>\n",
        encode_text(&report.headline()),
        encode_text(&report.effort()),
    );
    text += &drawn(bars("Where the memory lies", &[whole(report)], &LEGEND))?;
    let lines = report.lines();
    text += &html_document::table(
        ["", "MiB", "95 % interval, MiB"],
        lines.into_iter().map(|(name, figure)| {
            let interval = format!("{} to {}", mib(figure.low), mib(figure.high));
            [name.to_owned(), mib(figure.pages), interval]
        }),
    );
    let _infallible = write!(
        text,
        "<p>{}</p>\n<h2>What it would cost</h2>\n<p>{}</p>\n",
        encode_text(&report.ksm()),
        encode_text(&report.cost()),
    );
    text += &html_document::table(
        ["governor", "share of a core, %", "to read all once"],
        report.governors.iter().map(|governor| {
            let share = (governor.share * 100.0).to_string();
            [governor.name.to_owned(), share, duration(governor.seconds)]
        }),
    );
    text += &lives(&report.lifetimes);
    for (title, rows) in [
        ("Control groups with the most memory", &report.by_group),
        ("Processes with the most memory", &report.by_process),
    ] {
        if rows.is_empty() {
            continue;
        }
        let _infallible = writeln!(text, "<h2>{title}</h2>");
        let drawn_rows: Vec<Bar> = rows.iter().map(row).collect();
        text += &drawn(bars(title, &drawn_rows, &ROW_LEGEND))?;
        text += &table(rows);
    }
    for line in report.left_out() {
        let _infallible = writeln!(text, "<p>{}</p>", encode_text(&line));
    }
    Ok(html_document::html("uksm analyze", &text))
}

/// Lifetimes of pages.
fn lives(lifetimes: &Lifetimes) -> String {
    let mut text = format!(
        "<h2>How long pages live</h2>\n<p>{}</p>\n",
        encode_text(&lifetimes.headline())
    );
    let rows = lifetimes.rows();
    if rows.is_empty() {
        return text;
    }
    text += &html_document::table(Lifetimes::HEAD, rows);
    let head = [
        "time between the readings",
        "pages",
        "changed",
        "gone",
        "lost, 95 % interval, %",
    ];
    text + &html_document::table(head, lifetimes.rows_by_time())
}

fn table(rows: &[MemoryRow]) -> String {
    let head = [
        "",
        "processes",
        "MiB",
        "zeros",
        "copies within",
        "at most",
        "elsewhere too, at least",
    ];
    let row = |row: &MemoryRow| {
        [
            label(row),
            row.processes.to_string(),
            mib(row.anonymous_pages),
            mib(row.zero.pages),
            mib(row.within.pages),
            mib(row.within.high),
            mib(row.elsewhere_least),
        ]
    };
    html_document::table(head, rows.iter().map(row))
}

fn label(row: &MemoryRow) -> String {
    let pid = row.pid.map_or(String::new(), |pid| format!("{pid} "));
    pid + &row.name.escape_debug().to_string()
}

/// A bar: its name, its pieces one after the other, and a marked interval.
struct Bar {
    name: String,
    pieces: Vec<f64>,
    interval: (f64, f64),
}

type Legend = [(&'static str, RGBColor)];

const LEGEND: [(&str, RGBColor); 6] = [
    ("zeros", ZERO),
    ("copies within a process", WITHIN),
    ("within a control group", GROUP),
    ("across control groups", ACROSS),
    ("shared already", SHARED),
    ("nothing equal", REST),
];

const ROW_LEGEND: [(&str, RGBColor); 3] =
    [("zeros", ZERO), ("copies within", WITHIN), ("other", REST)];

fn whole(report: &AnalysisReport) -> Bar {
    let pieces = [
        report.zero,
        report.within_processes,
        report.within_groups,
        report.across_groups,
        report.shared_already,
    ];
    let mut pieces: Vec<f64> = pieces.iter().map(|figure| figure.pages).collect();
    pieces.push((report.anonymous_pages - pieces.iter().sum::<f64>()).max(0.0));
    Bar {
        name: "all".to_owned(),
        pieces,
        interval: (report.saved.low, report.saved.high),
    }
}

fn row(row: &MemoryRow) -> Bar {
    let found = row.zero.pages + row.within.pages;
    Bar {
        name: label(row),
        pieces: vec![
            row.zero.pages,
            row.within.pages,
            (row.anonymous_pages - found).max(0.0),
        ],
        interval: (
            row.zero.low + row.within.low,
            row.zero.high + row.within.high,
        ),
    }
}

/// Draws bars, the first on top, as SVG. A black line marks the interval.
fn bars(title: &str, bars: &[Bar], legend: &Legend) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    {
        let number = u32::try_from(bars.len())?;
        let size = (WIDTH, BAR * number + AROUND);
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&WHITE)?;
        let longest = |bar: &Bar| bar.pieces.iter().sum::<f64>().max(bar.interval.1) / 256.0;
        let longest = bars.iter().map(longest).fold(0.1, f64::max);
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(if bars.len() > 1 { 260 } else { 40 })
            .build_cartesian_2d(0.0..longest * 1.02, 0.0..f64::from(number))?;
        let name = |place: &f64| {
            let at = bars.iter().rev().zip(1u32..);
            let mut at = at.filter(|(_, number)| (f64::from(*number) - 0.5 - place).abs() < 0.01);
            at.next().map_or(String::new(), |(bar, _)| {
                bar.name.chars().take(38).collect()
            })
        };
        chart
            .configure_mesh()
            // Without a size it follows the height, which is small for one bar.
            .label_style(("sans-serif", 12))
            .disable_y_mesh()
            .x_desc("MiB")
            .y_labels(2 * bars.len() + 1)
            .y_label_formatter(&name)
            .light_line_style(WHITE)
            .draw()?;
        for (piece, &(_, colour)) in legend.iter().enumerate() {
            let rectangle = |(bar, number): (&Bar, u32)| {
                let left = bar.pieces[..piece].iter().sum::<f64>() / 256.0;
                let right = left + bar.pieces[piece] / 256.0;
                let middle = f64::from(number) - 0.5;
                Rectangle::new(
                    [(left, middle - 0.35), (right, middle + 0.35)],
                    colour.filled(),
                )
            };
            chart.draw_series(bars.iter().rev().zip(1..).map(rectangle))?;
        }
        let interval = |(bar, number): (&Bar, u32)| {
            let (low, high) = (bar.interval.0 / 256.0, bar.interval.1 / 256.0);
            PathElement::new(
                [
                    (low, f64::from(number) - 0.5),
                    (high, f64::from(number) - 0.5),
                ],
                BLACK.stroke_width(2),
            )
        };
        chart.draw_series(bars.iter().rev().zip(1..).map(interval))?;
        root.present()?;
    }
    let words = format!("{title}: the table below has the figures");
    Ok(key(legend) + &html_document::figure(&words, &text))
}

/// A legend of the colours and of the line.
fn key(legend: &Legend) -> String {
    let entries = legend.iter().map(|(what, RGBColor(red, green, blue))| {
        format!("<span style=\"color:rgb({red},{green},{blue})\">&#9632;</span> {what}")
    });
    format!(
        "<p>{}; the black line is the interval of 95 % of what could be saved</p>\n",
        entries.collect::<Vec<_>>().join(" &#160; ")
    )
}
