//! A profile as tables for people.

use std::fmt::Write;

use super::hierarchy::LATENCIES;
use super::profile::{Function, Owner, Profile, ProfiledRun};

/// Number of functions shown for a run.
const SHOWN: usize = 40;

/// Longest name that is shown whole: the beginning of a name tells less than its end.
const NAME: usize = 62;

/// All variants' tables: the owners of the instructions, then the functions of the system under
/// test. The blocks of the functions in `annotate` follow.
pub(super) fn text(profile: &Profile, annotate: &[String]) -> String {
    let mut text = String::new();
    for run in profile.medians() {
        // Writing to a string cannot fail.
        let _ = table(&mut text, profile, run, annotate);
    }
    let _ = compared(&mut text, profile);
    text
}

fn table(
    text: &mut String,
    profile: &Profile,
    run: &ProfiledRun,
    annotate: &[String],
) -> std::fmt::Result {
    let case = if run.case.is_empty() { "" } else { " " };
    writeln!(
        text,
        "{}{case}{}: {} on Linux {}, {}, {:.0} pages saved",
        profile.experiment,
        run.case,
        run.variant,
        profile.kernel,
        if run.reached { "to 95 %" } else { "to its end" },
        run.saved_pages,
    )?;
    let all = run.sum(|_| true);
    header(text, "whose", "")?;
    for owner in Owner::ALL {
        let sum = run.sum(|function| function.owner == owner);
        if sum > 0 {
            row(text, run, (owner.title(), ""), sum, all)?;
        }
    }
    let measured = run.sum(|function| function.owner.is_measured());
    writeln!(
        text,
        "  The scheduler's clock charged the system with {}, {:+.1} % of what was counted for it.",
        grouped(format!("{:.0}", run.clock)),
        100.0 * (run.clock / measured.max(1) as f64 - 1.0),
    )?;
    accesses(text, run)?;
    header(text, "function of the system", "in")?;
    let own = || run.functions.iter().filter(|f| f.owner.is_measured());
    for function in own().take(SHOWN) {
        let name = (&function.name[..], &function.place[..]);
        row(text, run, name, function.instructions, measured)?;
    }
    let rest: u64 = own().skip(SHOWN).map(|f| f.instructions).sum();
    let count = own().count().saturating_sub(SHOWN);
    if count > 0 {
        let name = format!("({count} others)");
        row(text, run, (&name, ""), rest, measured)?;
    }
    let asked = |function: &&Function| annotate.iter().any(|name| is_called(function, name));
    for function in run.functions.iter().filter(asked) {
        blocks(text, run, function)?;
    }
    writeln!(text)
}

/// The levels of accesses to data, and the modelled time of the system, if caches were modelled.
fn accesses(text: &mut String, run: &ProfiledRun) -> std::fmt::Result {
    if run.accesses.is_empty() {
        return Ok(());
    }
    let columns = [
        "accesses",
        "L2",
        "L2, beside",
        "last level",
        "beside",
        "streamed",
        "near",
        "memory",
        "walks",
    ];
    write!(text, "  {:<30}", "where data was (a model)")?;
    columns
        .iter()
        .try_for_each(|name| write!(text, " {name:>14}"))?;
    writeln!(text)?;
    for (owner, of) in &run.accesses {
        write!(text, "  {:<30}", owner.title())?;
        let far = [of.streamed, of.near, of.memory, of.walks];
        let caches = [of.all, of.l2, of.l2_beside, of.llc, of.llc_beside];
        for count in caches.into_iter().chain(far) {
            write!(text, " {:>14}", grouped(count.to_string()))?;
        }
        writeln!(text)?;
    }
    for latency in LATENCIES {
        if let Some(time) = run.modelled_time(latency) {
            let a_page = time / run.saved_pages.max(1.0);
            writeln!(
                text,
                "  modelled at {latency:.0} ns: {:.1} ms of a core, {a_page:.0} ns a saved page",
                time / 1e6
            )?;
        }
    }
    Ok(())
}

/// The modelled processor time of each system for a saved page, beside the first other one.
fn compared(text: &mut String, profile: &Profile) -> std::fmt::Result {
    let medians = profile.medians();
    let a_page =
        |run: &ProfiledRun, latency| Some(run.modelled_time(latency)? / run.saved_pages.max(1.0));
    for ours in medians.iter().filter(|run| run.variant.starts_with("uksm")) {
        let theirs =
            |run: &&&ProfiledRun| run.case == ours.case && !run.variant.starts_with("uksm");
        for theirs in medians.iter().filter(theirs) {
            let ratios = LATENCIES.map(|latency| {
                let ratio = a_page(theirs, latency)? / a_page(ours, latency)?;
                Some(format!("{ratio:.2} at {latency:.0} ns"))
            });
            if let [Some(low), Some(middle), Some(high)] = ratios {
                let (case, ours, theirs) = (&ours.case, &ours.variant, &theirs.variant);
                writeln!(
                    text,
                    "modelled time {theirs} : {ours} {case}: {low}, {middle}, {high}"
                )?;
            }
        }
    }
    Ok(())
}

fn header(text: &mut String, what: &str, place: &str) -> std::fmt::Result {
    writeln!(
        text,
        "  {what:<NAME$} {place:<11} {:>14} {:>7} {:>12}",
        "instructions", "share", "a saved page"
    )
}

fn row(
    text: &mut String,
    run: &ProfiledRun,
    (name, place): (&str, &str),
    instructions: u64,
    all: u64,
) -> std::fmt::Result {
    let a_page = if run.saved_pages >= 1.0 {
        format!("{:.1}", instructions as f64 / run.saved_pages)
    } else {
        "-".to_owned()
    };
    let share = 100.0 * instructions as f64 / all.max(1) as f64;
    writeln!(
        text,
        "  {:<NAME$} {place:<11} {:>14} {share:>5.1} % {a_page:>12}",
        shortened(name),
        grouped(instructions.to_string()),
    )
}

/// Whether a name denotes a function: its whole name, or the end of its path.
fn is_called(function: &Function, name: &str) -> bool {
    let path = function.name.strip_suffix(name);
    path.is_some_and(|path| path.is_empty() || path.ends_with("::"))
}

fn blocks(text: &mut String, run: &ProfiledRun, function: &Function) -> std::fmt::Result {
    writeln!(
        text,
        "  {} in {}, {}: blocks by their offset",
        function.name,
        function.place,
        function.owner.title()
    )?;
    writeln!(
        text,
        "  {:>8} {:>6} {:>14} {:>14} {:>7} {:>12}",
        "offset", "length", "entered", "instructions", "share", "a saved page"
    )?;
    for &(offset, length, instructions) in &function.blocks {
        writeln!(
            text,
            "  {:>8} {length:>6} {:>14} {:>14} {:>5.1} % {:>12.1}",
            format!("{offset:#x}"),
            grouped((instructions / length.max(1)).to_string()),
            grouped(instructions.to_string()),
            100.0 * instructions as f64 / function.instructions.max(1) as f64,
            instructions as f64 / run.saved_pages.max(1.0),
        )?;
    }
    Ok(())
}

/// The end of a name that is too long.
fn shortened(name: &str) -> String {
    let left_out = name.chars().count().saturating_sub(NAME);
    if left_out == 0 {
        name.to_owned()
    } else {
        let end: String = name.chars().skip(left_out + 1).collect();
        format!("…{end}")
    }
}

/// A number with its digits in threes.
fn grouped(digits: String) -> String {
    let length = digits.len();
    let mut text = digits;
    for place in (1..length)
        .rev()
        .filter(|place| (length - place).is_multiple_of(3))
    {
        text.insert(place, ',');
    }
    text
}
