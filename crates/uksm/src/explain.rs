//! `uksm explain`: why memory of a process is or is not merged, and how to change that.
//!
//! # Problem
//! Sums show that little is merged, but not why. The reasons are in three places: the engine
//! decides by standing and estimate, the module refuses pages, and the kernel keeps memory that is
//! never checked.
//!
//! # Approach
//! The daemon sends its evidence on each process, part after part
//! ([`evidence`](crate::status::evidence)); this program reads the mappings itself ([`mappings`]),
//! so that a process with 60,000 of them does not hold up merging. [`why_unmerged`] assigns each
//! page to one reason ([`reasons`]), and [`report`] prints the amounts. Nothing is kept or counted
//! for it between requests.
//!
//! A process that ends meanwhile is reported as gone. Work that takes too long is cut, with a note.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use uksm_linux::ksm::activity::KsmActivity;
use uksm_linux::proc::{self, Proc, Stat};
use uksm_linux::selection::Selectors;

use crate::cli::ExplainArgs;
use crate::control::client::{asked, unanswered};
use crate::control::{self, Answer, Request};
use crate::failure::Failure;
use crate::status::evidence::{Evidence, ProcessStanding};

mod estimate;
mod mappings;
mod reasons;
mod report;
mod why_unmerged;

use mappings::Mappings;
use report::{ExplainReport, MemoryReport, ProcessReport};
use why_unmerged::Breakdown;

/// Timeout of all processes together.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Asks the daemon.
type Ask<'a> = &'a dyn Fn(&Request) -> Result<Answer, Failure>;

/// Explains the selected processes, and prints the report.
///
/// # Errors
/// The fault, in one line.
pub(crate) fn explain(args: &ExplainArgs) -> Result<(), Failure> {
    let mut selectors = args.selectors().map_err(Failure::usage)?;
    let proc = Proc::at(&args.roots.proc_root);
    pin(&mut selectors, &proc)?;
    let chosen = chosen(&selectors, &proc)?;
    let root = &args.roots.proc_root;
    let mut report = ExplainReport {
        lists_regions: args.regions,
        ..ExplainReport::default()
    };
    let mut sum = Breakdown::default();
    let until = Instant::now() + TOTAL_TIMEOUT;
    let mut gone = None;
    for (number, (pid, stat)) in chosen.iter().enumerate() {
        if number > 0 && Instant::now() > until {
            report.not_looked_at = (chosen.len() - number) as u64;
            break;
        }
        let name = (*pid, stat.comm.clone());
        match look(&|request| asked(&args.socket, request), root, name, until)? {
            Some((process, breakdown)) => {
                sum.plus(&breakdown, &format!("{} ({pid})", process.comm));
                report.processes.push(process);
            }
            None => gone = Some(*pid),
        }
    }
    if let ([], Some(pid)) = (&report.processes[..], gone) {
        return Err(anyhow!("process {pid} ended while it was looked at").into());
    }
    report.sum = MemoryReport::of(&sum);
    crate::log::print_report(&report, args.json)?;
    Ok(())
}

/// The explanation of one process, as a text for other views; it takes at most about twice the
/// timeout.
///
/// # Errors
/// The process is gone, or the daemon does not answer: one line.
pub(crate) fn text_of(
    socket: &Path,
    root: &Path,
    pid: u32,
    timeout: Duration,
) -> Result<String, String> {
    let ask = |request: &Request| {
        let answer = control::ask_within(socket, request, timeout);
        answer.map_err(|why| unanswered(socket, why))
    };
    let gone = || format!("process {pid} has ended");
    let stat = match Proc::at(root).stat(pid) {
        Err(proc::Error::Gone { .. }) => return Err(gone()),
        stat => stat.map_err(|error| error.to_string())?,
    };
    let found = look(&ask, root, (pid, stat.comm), Instant::now() + timeout);
    match found.map_err(|failure| format!("{:#}", failure.error).replace('\n', " "))? {
        Some((process, _)) => Ok(process.to_string()),
        None => Err(gone()),
    }
}

/// Pins ids to existing processes; ids of threads are refused.
fn pin(selectors: &mut Selectors, proc: &Proc) -> anyhow::Result<()> {
    for name in &mut selectors.pids {
        let stat = match proc.stat(name.pid) {
            Err(proc::Error::Gone { .. }) => return Err(anyhow!("{name}: no such process")),
            stat => stat?,
        };
        let group = proc.thread_group(name.pid)?;
        if group != name.pid {
            return Err(anyhow!("{name}: is a thread of process {group}: name that"));
        }
        match name.start_ticks {
            Some(start) if start != stat.start_ticks => {
                return Err(anyhow!(
                    "{name}: the id was used again: it is {}@{} now",
                    name.pid,
                    stat.start_ticks
                ));
            }
            _ => name.start_ticks = Some(stat.start_ticks),
        }
    }
    Ok(())
}

/// The selected processes.
///
/// # Errors
/// There is none.
fn chosen(selectors: &Selectors, proc: &Proc) -> anyhow::Result<Vec<(u32, Stat)>> {
    let mut pids = Vec::new();
    proc.list(&mut pids)?;
    let mut chosen = Vec::new();
    for pid in pids {
        let selected = proc.stat(pid).and_then(|stat| {
            let is_named = selectors.pids.iter().any(|name| name.pid == pid);
            // A process without memory counts only if it is named itself.
            let counts = is_named || stat.has_memory();
            Ok((counts && selectors.select(proc, pid, &stat)?).then_some(stat))
        });
        match selected {
            Ok(Some(stat)) => chosen.push((pid, stat)),
            Ok(None) | Err(proc::Error::Gone { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if chosen.is_empty() {
        let named = crate::selectors::SelectorTexts::from(selectors);
        let lists = [
            named.pid,
            named.cgroup,
            named.unit,
            named.libvirt,
            named.comm,
        ];
        let names = lists.concat().join(", ");
        return Err(anyhow!("{names}: no such process with memory"));
    }
    Ok(chosen)
}

/// Evidence and memory of one process; none if it is gone.
fn look(
    ask: Ask<'_>,
    root: &Path,
    (pid, comm): (u32, String),
    until: Instant,
) -> Result<Option<(ProcessReport, Breakdown)>, Failure> {
    let mut faults = Vec::new();
    let evidence = evidence_of(ask, pid, until, &mut faults)?;
    match evidence.place {
        ProcessStanding::Gone => return Ok(None),
        ProcessStanding::Ended => {
            return Err(anyhow!("{pid}: has ended, and waits for its parent").into());
        }
        _ => {}
    }
    let breakdown = match why_unmerged::of_process(&evidence) {
        Some(reason) => {
            let resident = Proc::at(root).resident(pid).unwrap_or(0);
            let terms = evidence.terms.as_ref();
            let of_terms = || terms.and_then(|terms| reason.details(None, terms));
            let held = |seconds| format!("for {} and longer", reasons::time(seconds));
            let details = evidence.fault.clone();
            let details = details.or_else(|| evidence.locked_seconds.map(held));
            let details = details.or_else(of_terms);
            Breakdown::whole(reason, resident as f64, details)
        }
        None => {
            let Some(mappings) = Mappings::read(root, pid, KsmActivity::of_host().now()) else {
                return Ok(None);
            };
            let breakdown = Breakdown::of(&evidence, &mappings);
            faults.extend(mappings.fault);
            breakdown
        }
    };
    let process = ProcessReport::of((pid, comm), evidence, faults, &breakdown);
    Ok(Some((process, breakdown)))
}

/// Asks the daemon for all parts of the evidence.
fn evidence_of(
    ask: Ask<'_>,
    pid: u32,
    until: Instant,
    faults: &mut Vec<String>,
) -> Result<Evidence, Failure> {
    let ask = |from: u64| match ask(&Request::Explain { pid, from })? {
        Answer::Explained(evidence) => Ok(*evidence),
        Answer::Error(error) => Err(anyhow!(error).into()),
        _ => Err(Failure::from(anyhow!(
            "the daemon sent an unexpected reply"
        ))),
    };
    let mut all = ask(0)?;
    while let Some(from) = all.next {
        if Instant::now() > until {
            faults.push(format!(
                "only the first {} regions were asked for, up to {from:x}: time ran out",
                all.regions.len()
            ));
            break;
        }
        let part = ask(from)?;
        if part.place != ProcessStanding::Followed {
            return Ok(part);
        }
        if part.next.is_some_and(|next| next <= from) {
            return Err(anyhow!("the daemon repeats its answer at {from:x}").into());
        }
        all.next = part.next;
        all.regions.extend(part.regions);
        all.sparse.extend(part.sparse);
    }
    Ok(all)
}
