//! `uksm break`: gives merged pages their own copies again.
//!
//! A running daemon is asked: it unmerges, and leaves those processes alone from then on. If another
//! program unmerged them, the daemon would merge them again at once. Without a daemon the device is
//! opened here: the pages of an earlier daemon are orphans, which any domain may break.

use anyhow::{Context as _, anyhow};
use uksm_linux::machine::LinuxMachine;
use uksm_linux::proc::Proc;
use uksm_linux::processes::Processes;
use uksm_linux::selection::{Selection, Selectors};
use uksm_linux::wake::Sleeper;
use uksm_policy::report::counted;

use crate::cli::BreakArgs;
use crate::control::{Answer, NoAnswer, Request, ask};
use crate::{Failure, run};

/// Unmerges the selected processes and prints how many pages that were.
///
/// # Errors
/// What is wrong, in one line.
pub(crate) fn break_up(args: &BreakArgs) -> Result<(), Failure> {
    let mut selectors = args.selectors().map_err(Failure::usage)?;
    let proc = Proc::at(&args.roots.proc_root);
    selectors.pin(&proc).map_err(anyhow::Error::from)?;
    let request = Request::Break((&selectors).into());
    let (processes, pages, stopped) = match ask(&args.socket, &request) {
        Ok(Answer::Broken {
            processes,
            pages,
            stopped,
        }) => (processes, pages, stopped),
        Ok(Answer::Error(error)) => return Err(anyhow!(error).into()),
        Ok(_) => return Err(anyhow!("the daemon answered another question").into()),
        Err(NoAnswer::Failed(line)) => return Err(anyhow!(line).into()),
        Err(NoAnswer::NotRunning) => alone(args, proc, &selectors)?,
    };
    crate::log::answer(&format!(
        "{} of {} own copy again",
        counted(pages, "page", "pages"),
        counted(processes, "process has its", "processes have their")
    ));
    if stopped > 0 {
        return Err(anyhow!(
            "in {} memory did not suffice for all copies: free some and repeat",
            counted(stopped, "process", "processes")
        )
        .into());
    }
    Ok(())
}

fn alone(args: &BreakArgs, proc: Proc, selectors: &Selectors) -> anyhow::Result<(u64, u64, u64)> {
    let mut device = run::open(&args.device, &args.roots.ksm_root)?;
    let targets = Selection {
        chosen: selectors.clone(),
        ..Selection::default()
    };
    let mut processes = Processes::new(proc, targets).context("cannot watch processes")?;
    processes
        .follow_named(&mut device)
        .map_err(|(pid, error)| anyhow!("--pid {pid}: {error}"))?;
    processes.list(&mut device)?;
    let failed: Vec<_> = processes.failures().collect();
    for (pid, _, errno) in failed {
        crate::log::say(&format!("process {pid} is left as it is: {errno}"));
    }
    let sleeper = Sleeper::new().context("cannot make a socket pair")?;
    let done = LinuxMachine::new(device, processes, sleeper).break_up(selectors, &mut || {})?;
    Ok((done.processes, done.pages, done.stopped))
}
