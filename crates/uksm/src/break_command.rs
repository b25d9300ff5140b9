//! `uksm break`: gives merged pages their own copies again.
//!
//! A running daemon is asked to unmerge, and leaves those processes alone from then on. If another
//! program unmerged them, the daemon would merge them again at once. Without a daemon the device is
//! opened here: the pages of an earlier daemon are orphans, which any domain may break.

use anyhow::{Context as _, anyhow};
use uksm_linux::machine::LinuxMachine;
use uksm_linux::proc::Proc;
use uksm_linux::processes::Processes;
use uksm_linux::selection::{Selection, Selectors};
use uksm_linux::sleeper::Sleeper;
use uksm_linux::unmerge::UnmergeSummary;
use uksm_policy::report::counted;

use crate::cli::BreakArgs;
use crate::control::client::{self, NoAnswer};
use crate::control::{Answer, Request};
use crate::failure::Failure;
use crate::startup;

/// Unmerges the selected processes and prints the number of pages.
///
/// # Errors
/// The fault, in one line.
pub(crate) fn run(args: &BreakArgs) -> Result<(), Failure> {
    let mut selectors = args.selectors().map_err(Failure::usage)?;
    let proc = Proc::at(&args.roots.proc_root);
    selectors.pin(&proc).map_err(anyhow::Error::from)?;
    // Units of a user's own manager are refused before the daemon is asked.
    selectors.check_units(&proc).map_err(|line| anyhow!(line))?;
    let request = Request::Break((&selectors).into());
    let done = match client::ask(&args.socket, &request) {
        Ok(Answer::Broken {
            processes,
            pages,
            stopped,
            locked,
        }) => UnmergeSummary {
            processes,
            pages,
            stopped,
            locked,
        },
        Ok(Answer::Error(error)) => return Err(anyhow!(error).into()),
        Ok(_) => return Err(anyhow!("the daemon sent an unexpected reply").into()),
        Err(NoAnswer::Failed(line)) => return Err(anyhow!(line).into()),
        Err(NoAnswer::NotRunning) => alone(args, proc, &selectors)?,
    };
    crate::log::print_answer(&format!(
        "{} of {} own copy again",
        counted(done.pages, "page", "pages"),
        counted(done.processes, "process has its", "processes have their")
    ))?;
    let of = |processes| counted(processes, "process", "processes");
    let mut left = Vec::new();
    if done.stopped > 0 {
        left.push(format!(
            "in {} memory did not suffice for all copies: free some and repeat",
            of(done.stopped)
        ));
    }
    if done.locked > 0 {
        left.push(format!(
            "{} held the lock of its own mappings all the time: repeat later, or end it",
            of(done.locked)
        ));
    }
    match left.is_empty() {
        true => Ok(()),
        false => Err(anyhow!(left.join("; ")).into()),
    }
}

fn alone(args: &BreakArgs, proc: Proc, selectors: &Selectors) -> anyhow::Result<UnmergeSummary> {
    let mut device = startup::open_device(&args.device, &args.roots.ksm_root)?;
    let targets = Selection {
        chosen: selectors.clone(),
        ..Selection::default()
    };
    let mut processes = Processes::new(proc, targets).context("cannot watch processes")?;
    let failed = |(pid, error)| anyhow!("--pid {pid}: {error}");
    let left_out = processes.follow_named(&mut device).map_err(failed)?;
    if let Some(first) = left_out.into_iter().next() {
        return Err(failed(first));
    }
    processes.list(&mut device)?;
    let failed: Vec<_> = processes.failures().collect();
    for (pid, _, errno) in failed {
        crate::log::print_line(&format!("process {pid} is left as it is: {errno}"));
    }
    let sleeper = Sleeper::new().context("cannot make a socket pair")?;
    Ok(LinuxMachine::new(device, processes, sleeper).unmerge_selected(selectors, &mut || {})?)
}
