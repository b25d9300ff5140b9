//! The result as one file for a browser.
//!
//! # Approach
//! The plots are SVG and stand in the file, so that it needs no other file and no network. It has no script. Names of processes
//! and control groups are what others chose: they are escaped. The file is made before anything is read, so that a path that cannot be written is
//! told at once; it gets its name when it is whole, and until then whatever had that name stays.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use html_escape::encode_text;
use plotters::prelude::{
    BLACK, ChartBuilder, Color as _, IntoDrawingArea as _, PathElement, RGBColor, Rectangle,
    SVGBackend, WHITE,
};
use tempfile::{Builder, NamedTempFile};

use super::report::{Report, Row, duration, mib};

const WIDTH: u32 = 900;

/// Height of a bar, and of what is around the bars, in pixels.
const BAR: u32 = 34;
const AROUND: u32 = 90;

/// Dark enough on white, told apart by most colour-blind people (Okabe and Ito).
const ZERO: RGBColor = RGBColor(86, 180, 233);
const WITHIN: RGBColor = RGBColor(0, 114, 178);
const GROUP: RGBColor = RGBColor(0, 158, 115);
const ACROSS: RGBColor = RGBColor(230, 159, 0);
const SHARED: RGBColor = RGBColor(204, 121, 167);
const REST: RGBColor = RGBColor(210, 210, 210);

const STYLE: &str = "body{font:15px sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#111}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}\
td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}";

/// A file that is to be written.
#[derive(Debug)]
pub(super) struct PageFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl PageFile {
    /// Makes it beside where it is to be.
    ///
    /// # Errors
    /// It cannot be written there.
    pub(super) fn create(path: &Path) -> anyhow::Result<PageFile> {
        let what = || format!("--html {}", path.display());
        if path.is_dir() {
            return Err(anyhow!("is a folder")).with_context(what);
        }
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        if !folder.is_dir() {
            return Err(anyhow!("there is no folder {}", folder.display())).with_context(what);
        }
        let file = Builder::new()
            .permissions(std::fs::Permissions::from_mode(0o644))
            .tempfile_in(folder)
            // The message would name the file that is made for a while.
            .map_err(|error| anyhow!(error.kind()))
            .with_context(what)?;
        Ok(PageFile {
            file,
            path: path.to_owned(),
        })
    }

    /// Writes it, and gives it its name.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(mut self, text: &str) -> anyhow::Result<()> {
        let what = || format!("--html {}", self.path.display());
        self.file.write_all(text.as_bytes()).with_context(what)?;
        let kept = self.file.persist(&self.path).map_err(|kept| kept.error);
        kept.map(drop)
            .with_context(|| format!("--html {}", self.path.display()))
    }
}

/// The whole file.
///
/// # Errors
/// A plot cannot be drawn.
pub(super) fn html(report: &Report) -> anyhow::Result<String> {
    let drawn =
        |svg: Result<String, Box<dyn Error>>| svg.map_err(|error| anyhow!("--html: {error}"));
    let mut text = String::new();
    let _infallible = write!(
        text,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>uksm analyze</title><style>{STYLE}</style></head><body>\n\
         <h1>Duplicate memory of this host</h1>\n<p>{}<br>{}</p>\n",
        encode_text(&report.headline()),
        encode_text(&report.effort()),
    );
    text += &drawn(bars("Where the memory lies", &[whole(report)], &LEGEND))?;
    text += "<table><tr><th></th><th>MiB</th><th>95 % interval, MiB</th></tr>\n";
    for (name, figure) in report.lines() {
        let _infallible = writeln!(
            text,
            "<tr><td>{name}</td><td>{}</td><td>{} to {}</td></tr>",
            mib(figure.pages),
            mib(figure.low),
            mib(figure.high)
        );
    }
    let _infallible = write!(
        text,
        "</table>\n<p>{}</p>\n<h2>What it would cost</h2>\n<p>{}</p>\n<table><tr><th>governor</th><th>share of a core, %</th><th>to read all once</th></tr>\n",
        encode_text(&report.ksm()),
        encode_text(&report.cost()),
    );
    for governor in &report.governors {
        let _infallible = writeln!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
            governor.name,
            governor.share * 100.0,
            duration(governor.seconds)
        );
    }
    text += "</table>\n";
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
    text += "</body></html>\n";
    Ok(text)
}

fn table(rows: &[Row]) -> String {
    let mut text = "<table><tr><th></th><th>processes</th><th>MiB</th><th>zeros</th><th>copies within</th><th>at most</th><th>elsewhere too, at least</th></tr>\n".to_owned();
    for row in rows {
        let _infallible = writeln!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            encode_text(&label(row)),
            row.processes,
            mib(row.anonymous_pages),
            mib(row.zero.pages),
            mib(row.within.pages),
            mib(row.within.high),
            mib(row.elsewhere_least)
        );
    }
    text + "</table>\n"
}

fn label(row: &Row) -> String {
    let pid = row.pid.map_or(String::new(), |pid| format!("{pid} "));
    pid + &row.name.escape_debug().to_string()
}

/// A bar: what it is called, pieces one after the other, and an interval to mark.
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

fn whole(report: &Report) -> Bar {
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

fn row(row: &Row) -> Bar {
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
    Ok(key(legend) + &text)
}

/// Says which colour is which, and what the line is.
fn key(legend: &Legend) -> String {
    let entries = legend.iter().map(|(what, RGBColor(red, green, blue))| {
        format!("<span style=\"color:rgb({red},{green},{blue})\">&#9632;</span> {what}")
    });
    format!(
        "<p>{}; the black line is the interval of 95 % of what could be saved</p>\n",
        entries.collect::<Vec<_>>().join(" &nbsp; ")
    )
}
