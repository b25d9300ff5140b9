//! `uksm analyze` on processes with known contents, which this program starts.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use serde_json::Value;
use uksm_testkit::page_holder::PageHolder;

mod holder;

/// Upper bound of the pages of a child's program that are not the test's.
const BESIDES: f64 = 1500.0;

fn command(processes: &[&PageHolder], options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uksm"));
    command.arg("analyze");
    if !options.contains(&"--cpu") {
        command.args(["--cpu", "100%"]);
    }
    for process in processes {
        command.arg("--pid").arg(process.pid().to_string());
    }
    command.args(options);
    command
}

fn answer(processes: &[&PageHolder], options: &[&str]) -> Value {
    let output = command(processes, &[options, &["--json"]].concat())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// Checks that an interval has a number between these, and that it is no wider than a bound.
fn holds(answer: &Value, figure: &str, low: f64, high: f64, widest: f64) {
    let missed = missed(answer, figure, low, high, widest);
    assert!(missed.is_none(), "{missed:?}: {answer:#}");
}

/// Checks that an interval is no wider than a bound. If it has no number between these: what it
/// has.
fn missed(answer: &Value, figure: &str, low: f64, high: f64, widest: f64) -> Option<String> {
    let [pages, from, to] = ["pages", "low", "high"].map(|part| number(&answer[figure][part]));
    assert!(
        from <= pages && pages <= to && to - from <= widest,
        "{figure}: {answer:#}"
    );
    let is_held = from <= high && to >= low;
    (!is_held).then(|| format!("{figure}: {from} to {to}, not {low} to {high}"))
}

#[test]
fn copies_are_listed_by_place_if_all_is_read() {
    let a = holder::start("0..640 1000..1010*31 zero*300", &[]);
    let b = holder::start("0..640 2000..3000", &[]);
    let answer = answer(&[&a, &b], &["--budget", "60s"]);
    assert_eq!(
        (number(&answer["rate"]), number(&answer["processes"])),
        (1.0, 2.0),
        "{answer:#}"
    );
    let exact = |figure, pages| holds(&answer, figure, pages, pages + BESIDES, 0.0);
    exact("zero", 300.0);
    exact("within_processes", 300.0);
    // Both are in the control group of this test.
    exact("within_groups", 640.0);
    holds(&answer, "across_groups", 0.0, 0.0, 0.0);
    exact("saved", 1240.0);
    holds(&answer, "ksm_would_find", 0.0, 0.0, 0.0);
    exact("ksm_cannot_find", 1240.0);
    let rows = answer["by_process"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{answer:#}");
    for (pid, within) in [(a.pid(), 300.0), (b.pid(), 0.0)] {
        let row = rows.iter().find(|row| row["pid"] == pid).unwrap();
        let found = number(&row["within"]["pages"]);
        assert!((within..within + BESIDES).contains(&found), "{row:#}");
        let elsewhere = number(&row["elsewhere_least"]);
        assert!((640.0..640.0 + BESIDES).contains(&elsewhere), "{row:#}");
    }
    let of_full = answer["governors"].as_array().unwrap();
    let seconds = |at: usize| number(&of_full[at]["seconds"]);
    assert!(
        of_full.len() == 4 && seconds(0) > 0.0 && seconds(3) > 90.0 * seconds(0),
        "{answer:#}"
    );
}

/// Milliseconds that are too few for the children's pages. An optimised program reads some 40,000
/// in 30 ms.
const LITTLE: u32 = if cfg!(debug_assertions) { 40 } else { 20 };

/// The answer to a budget that reaches each process but does not last for all pages. A slow or busy
/// machine needs more to reach them.
fn sampled_answer(processes: &[&PageHolder], seed: &str) -> Value {
    for times in [1, 1, 2, 2, 4, 4] {
        let budget = format!("{}ms", LITTLE * times);
        let answer = answer(processes, &["--budget", &budget, "--seed", seed]);
        let is_whole = number(&answer["processes"]) == processes.len() as f64;
        if is_whole && number(&answer["rate"]) < 1.0 {
            return answer;
        }
    }
    panic!("each budget lasts for all pages or reaches too few processes");
}

/// Each shape of duplication, of which the budget does not last for all: what is known lies in 95
/// of 100 intervals, as they promise. How many pages a budget lasts for differs from run to run, so
/// that a seed does not repeat a sample.
#[test]
fn of_samples_the_truth_lies_in_the_intervals() {
    let (mut intervals, mut misses) = (0, Vec::new());
    for (shape, pages, copies, zeros) in [
        ("identical", vec!["0..1*40000"], 39_999.0, 0.0),
        ("different", vec!["0..40000"], 0.0, 0.0),
        ("zeros", vec!["zero*20000 0..20000"], 0.0, 20_000.0),
        ("clones", vec!["0..20000", "0..20000"], 20_000.0, 0.0),
        ("one in twenty", vec!["0..38000 0..2000"], 2_000.0, 0.0),
        (
            "few often",
            vec!["0..4*5000 10..210*50 1000..11000"],
            29_796.0,
            0.0,
        ),
    ] {
        let children: Vec<PageHolder> = pages
            .iter()
            .map(|pages| holder::start(pages, &[]))
            .collect();
        let children: Vec<&PageHolder> = children.iter().collect();
        for seed in ["1", "2", "3"] {
            let answer = sampled_answer(&children, seed);
            // Of the 512 places chosen at least, about half have a page in these children.
            assert!(number(&answer["read_pages"]) >= 192.0, "{answer:#}");
            let besides = 2.0 * BESIDES;
            for (figure, least, widest) in [
                ("own", 40_000.0, 40_000.0),
                ("zero", zeros, 12_000.0),
                ("saved", copies + zeros, 45_000.0),
            ] {
                intervals += 1;
                let missed = missed(&answer, figure, least, least + besides, widest);
                misses.extend(missed.map(|missed| format!("{shape}, seed {seed}: {missed}")));
            }
        }
    }
    assert!(
        misses.len() * 20 <= intervals,
        "of {intervals}: {misses:#?}"
    );
}

/// Its start, asking, reading and estimating: all of the program, but printing.
#[test]
fn no_more_of_a_core_is_taken_than_was_allowed() {
    let child = holder::start("0..20000", &[]);
    for (share, most) in [("5%", 0.05), ("10%", 0.1)] {
        let answer = answer(&[&child], &["--cpu", share, "--budget", "500ms"]);
        let [cpu, passed] = ["cpu_seconds", "seconds"].map(|name| number(&answer[name]));
        assert!(cpu <= 1.02 * most * passed, "{cpu} s in {passed}: {share}");
        assert!(cpu > 0.01, "{answer:#}");
        // The second reading is part of it.
        assert!(number(&answer["lifetimes"]["chosen"]) > 0.0, "{answer:#}");
    }
}

#[test]
fn memory_offered_to_ksm_is_counted_apart() {
    let ksm = Path::new("/sys/kernel/mm/ksm/run");
    let child = holder::start("offered:0..100*5 1000..1100*5", &[]);
    let answer = answer(&[&child], &["--budget", "60s"]);
    holds(&answer, "saved", 400.0, 800.0 + BESIDES, 0.0);
    let offered = number(&answer["offered_pages"]);
    match std::fs::read_to_string(ksm).as_deref().map(str::trim) {
        Err(_) => assert_eq!(offered, 0.0, "{answer:#}"),
        Ok("0") => {
            assert_eq!(offered, 500.0, "{answer:#}");
            holds(&answer, "ksm_would_find", 400.0, 400.0, 0.0);
            holds(&answer, "ksm_cannot_find", 400.0, 400.0 + BESIDES, 0.0);
        }
        // It may be merging them right now.
        Ok(_) => assert_eq!(offered, 500.0, "{answer:#}"),
    }
}

#[test]
fn process_of_60_000_mappings_is_reported_as_read_in_part() {
    let child = holder::start("maps*60000", &[]);
    let output = command(&[&child], &["--budget", "30ms"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let line = "1 process was read in part: it has too many mappings";
    assert!(text.lines().any(|found| found.starts_with(line)), "{text}");
    let whole = answer(&[&child], &["--budget", "60s"]);
    holds(
        &whole,
        "within_processes",
        59_999.0,
        59_999.0 + BESIDES,
        0.0,
    );
}

#[test]
fn ended_and_unreached_processes_are_reported_as_left_out() {
    let root = tempfile::tempdir().unwrap();
    let child = holder::start("0..100", &[]);
    let pid = child.pid().to_string();
    std::os::unix::fs::symlink(Path::new("/proc").join(&pid), root.path().join(&pid)).unwrap();
    let ended = root.path().join("4711");
    std::fs::create_dir(&ended).unwrap();
    let stat = std::fs::read_to_string(Path::new("/proc").join(&pid).join("stat")).unwrap();
    std::fs::write(
        ended.join("stat"),
        stat.replace(&format!("{pid} ("), "4711 ("),
    )
    .unwrap();
    std::fs::write(ended.join("statm"), "900 600 88 1 0 1 0\n").unwrap();
    let root = root.path().to_str().unwrap();
    let answer = answer(&[], &["--proc-root", root]);
    assert_eq!(number(&answer["processes"]), 1.0, "{answer:#}");
    let left_out = &answer["left_out"][0];
    assert_eq!(
        (left_out["pid"].as_u64(), left_out["why"].as_str()),
        (Some(4711), Some("ended"))
    );
    assert_eq!(number(&left_out["pages"]), 512.0);
    let text = command(&[], &["--proc-root", root])
        .output()
        .unwrap()
        .stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.contains("\nleft out 1 process with 2.0 MiB: ended: 4711 ("),
        "{text}"
    );
}

#[test]
fn the_page_needs_no_other_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.html");
    std::fs::write(&path, "before").unwrap();
    let child = holder::start("0..100*2", &[]);
    let output = command(&[&child], &["--html", path.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.starts_with("<!DOCTYPE html>") && text.ends_with("</body></html>\n"),
        "{text}"
    );
    assert_eq!(text.matches("<svg ").count(), 3);
    assert!(text.contains("<h2>How long pages live</h2>"), "{text}");
    assert!(text.contains("time between the readings"), "{text}");
    let others = text.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for other in ["http", "src=", "<script", "url(", "@import"] {
        assert!(!others.contains(other), "{other}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn each_mistake_is_one_line_that_names_it() {
    let child = holder::start("0..10", &[]);
    for (options, status, says) in [
        (vec!["--budget", "1ms"], 2, "must be 20ms to 1h"),
        (vec!["--budget", "much"], 2, "'much' for '--budget <TIME>'"),
        (vec!["--cpu", "150%"], 2, "must be 0.1% to 100%"),
        (vec!["--top", "-1"], 2, "'-1'"),
        (vec!["--seed", "x"], 2, "'x' for '--seed <NUMBER>'"),
        (
            vec!["--pid", "4194304"],
            1,
            "--pid 4194304: no such process",
        ),
        (vec!["--html", "/proc/x.html"], 1, "--html /proc/x.html: "),
        (
            vec!["--html", "/no such/x"],
            1,
            "--html /no such/x: there is no folder /no such",
        ),
        (vec!["--html", "/tmp"], 1, "--html /tmp: is a folder"),
    ] {
        let output = command(&[&child], &options).output().unwrap();
        let line = String::from_utf8(output.stderr).unwrap();
        let found = (output.status.code(), line.lines().count());
        assert_eq!(found, (Some(status), 1), "{options:?}: {line}");
        assert!(line.starts_with("uksm: ") && line.contains(says), "{line}");
        assert!(output.stdout.is_empty());
    }
    let nobody = command(&[], &["--comm", "no such program"])
        .output()
        .unwrap();
    let line = String::from_utf8(nobody.stderr).unwrap();
    assert_eq!(nobody.status.code(), Some(1), "{line}");
    assert!(
        line.starts_with("uksm: no running process matches the targets"),
        "{line}"
    );
}

/// What cannot be written is told at once, not after the minutes that reading with a thousandth of
/// a core takes.
#[test]
fn unwritable_path_is_reported_before_anything_is_read() {
    let child = holder::start("0..40000", &[]);
    let before = Instant::now();
    let options = ["--cpu", "0.1%", "--html", "/proc/x.html"];
    let output = command(&[&child], &options).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(before.elapsed().as_secs() < 60);
}

#[test]
fn closed_pipe_is_no_error() {
    let child = holder::start("0..10", &[]);
    let mut running = command(&[&child], &[])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(running.stdout.take());
    let output: Output = running.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[test]
fn missing_right_to_a_process_is_reported_with_the_remedy() {
    let line = holder::refusal(&["analyze"]);
    assert!(
        line.contains("no right to read its memory: run as root or with CAP_SYS_PTRACE"),
        "{line}"
    );
}

/// Pages that are read again in one run, at most.
const AGAIN: f64 = 2000.0;

/// An answer with enough time between the two readings of a page to tell how long pages live: on a
/// fast processor only a small share of it leaves that time.
fn answer_with_lifetimes(process: &PageHolder) -> Value {
    for share in ["2%", "1%", "0.5%", "0.2%", "0.1%"] {
        let answer = answer(&[process], &["--cpu", share, "--budget", "60s"]);
        if !answer["lifetimes"]["all"]["lost_in_a_minute"].is_null() {
            return answer;
        }
    }
    panic!("too little time between the readings, with a thousandth of a core");
}

/// Checks that counts of pages add up, and that each interval has what it is of.
fn adds_up(lives: &Value) -> [f64; 4] {
    let counts = ["pages", "unchanged", "changed", "gone"].map(|name| number(&lives[name]));
    let [pages, parts @ ..] = counts;
    assert_eq!(pages, parts.iter().sum::<f64>(), "{lives:#}");
    for figure in ["lost", "lost_in_a_minute"] {
        let [part, low, high] = ["part", "low", "high"].map(|name| number(&lives[figure][name]));
        assert!(low <= part && part <= high, "{lives:#}");
    }
    counts
}

#[test]
fn pages_of_a_still_process_are_unchanged_and_live_at_least_so_long() {
    let child = holder::start("0..1000 zero*200", &[]);
    let found = &answer_with_lifetimes(&child)["lifetimes"];
    let [pages, unchanged, ..] = adds_up(&found["all"]);
    assert!(pages >= 1200.0 && unchanged == pages, "{found:#}");
    let [saving, ..] = adds_up(&found["zeros_and_copies"]);
    let [others, ..] = adds_up(&found["others"]);
    assert!(saving >= 200.0 && others >= 1000.0, "{found:#}");
    let half = &found["all"]["half_live"];
    assert!(
        half["seconds"].is_null() && half["high"].is_null(),
        "{found:#}"
    );
    // None of a thousand within a second, at least: half need some 200 s, at least.
    assert!(number(&half["low"]) > 180.0, "{found:#}");
}

#[test]
fn a_process_that_rewrites_all_has_lost_all() {
    let child = holder::start("rewritten:0..1*400 rewritten:0..1000", &[]);
    let found = &answer_with_lifetimes(&child)["lifetimes"];
    let [pages, _, changed, gone] = adds_up(&found["all"]);
    assert!(pages <= AGAIN && changed >= 1400.0, "{found:#}");
    // What it rewrites, and no other page.
    assert!(changed <= 1410.0 && gone == 0.0, "{found:#}");
    let [_, _, changed, _] = adds_up(&found["zeros_and_copies"]);
    assert!(changed >= 400.0, "{found:#}");
    let bands = found["by_time"].as_array().unwrap();
    let sum = |name: &str| bands.iter().map(|band| number(&band[name])).sum::<f64>();
    assert_eq!(
        (sum("pages"), sum("changed")),
        (pages, number(&found["all"]["changed"]))
    );
}

/// More pages than are read again, so that the interval is of a sample. Three quarters of all are
/// drawn: the interval, which does not count on that, then fails once in thousands of times.
#[test]
fn the_share_that_a_process_rewrites_lies_in_the_interval() {
    let child = holder::start("rewritten:0..600 5000..6400", &[]);
    let answer = answer_with_lifetimes(&child);
    let found = &answer["lifetimes"];
    assert_eq!(number(&found["chosen"]), AGAIN, "{found:#}");
    let own = number(&answer["own"]["pages"]);
    assert!(own > AGAIN && number(&answer["rate"]) == 1.0, "{answer:#}");
    adds_up(&found["all"]);
    let lost = &found["all"]["lost"];
    let [low, high] = ["low", "high"].map(|name| number(&lost[name]));
    let truth = 600.0 / own;
    assert!(low <= truth && truth <= high, "{truth}: {lost:#}");
    assert!(high - low < 0.05, "{lost:#}");
}

#[test]
fn missing_time_or_budget_is_reported() {
    let child = holder::start("0..1000", &[]);
    let text = |options: &[&str]| {
        let output = command(&[&child], options).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let soon = text(&["--budget", "60s"]);
    assert!(soon.contains(" read again after "), "{soon}");
    assert!(
        soon.contains(": too soon to estimate how long pages live"),
        "{soon}"
    );
    let large = holder::start("0..40000", &[]);
    let large = answer(&[&large], &["--budget", &format!("{LITTLE}ms")]);
    let found = &large["lifetimes"];
    let [chosen, swapped_out, not_reached, refused, known] =
        ["chosen", "swapped_out", "not_reached", "refused"]
            .map(|name| number(&found[name]))
            .into_iter()
            .chain([number(&found["all"]["pages"])])
            .collect::<Vec<_>>()
            .try_into()
            .unwrap();
    assert_eq!(
        chosen,
        swapped_out + not_reached + refused + known,
        "{found:#}"
    );
    // A tenth of so little lasts for hundreds at most.
    assert!(chosen < AGAIN, "{found:#}");
}
