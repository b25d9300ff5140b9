//! `uksm group suggest`: groups of processes that would share memory, estimated from their
//! contents.
//!
//! # Problem
//! An operator knows which processes may share with each other, but not which would share anything.
//! Trying groups takes hours, and merges.
//!
//! # Approach
//! The named processes are read once, slowly, into sketches, and nothing is changed. Within each
//! trust boundary groups are proposed ([`uksm_sketch::grouping`]); sketches of two boundaries are
//! never compared. The answer has the savings of each group, and a configuration to paste
//! ([`report`]). Neither module nor daemon is needed, and a running daemon is not asked: pages that
//! it has merged count as shared already.
//!
//! # Source
//! Euro-Par'11 §5.1 and §5.2.

use std::collections::BTreeMap;

use anyhow::anyhow;
use uksm_linux::clock;
use uksm_linux::contents::{Contents, Reader};
use uksm_linux::proc::{self, Proc, Stat};
use uksm_linux::selection::Selection;
use uksm_policy::report::counted;
use uksm_sketch::content::Salt;
use uksm_sketch::grouping::{Worth, propose};
use uksm_sketch::sketch::Sketch;

use crate::cli::SuggestArgs;
use crate::failure::Failure;
use crate::hash_seed;

mod configuration;
mod members;
mod report;

use members::MemberName;
use report::{BoundaryReport, GroupReport, LeftOutProcess, Names, SuggestReport};

/// A process that was read.
struct ProcessContents {
    pid: u32,
    stat: Stat,
    contents: Contents,
}

/// Reads, proposes and prints.
///
/// # Errors
/// The fault, in one line.
pub(crate) fn suggest(args: &SuggestArgs) -> Result<(), Failure> {
    let mut selection = args.targets().map_err(Failure::usage)?;
    let proc = Proc::at(&args.roots.proc_root);
    if !selection.all && selection.chosen.is_empty() {
        let line = uksm_linux::selection::Error::None.to_string();
        return Err(Failure::usage(line));
    }
    selection.pin(&proc).map_err(anyhow::Error::from)?;
    let report = read_and_propose(args, &selection, &proc)?;
    crate::log::print_report(&report, args.json)?;
    Ok(())
}

fn read_and_propose(
    args: &SuggestArgs,
    selection: &Selection,
    proc: &Proc,
) -> anyhow::Result<SuggestReport> {
    let before = (clock::now(), clock::process_cpu());
    let salt = Salt::new(hash_seed::random()?);
    let mut reader = Reader::new(salt, args.pages_per_process, args.cpu);
    let mut within: BTreeMap<String, Vec<ProcessContents>> = BTreeMap::new();
    let mut left_out = Vec::new();
    for (pid, stat) in chosen(selection, proc)? {
        let read = match args.boundary.of(proc, pid) {
            Ok(Some(boundary)) => reader
                .read(proc, pid, &stat)
                .map(|read| Some((boundary, read))),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        let why = match read {
            Ok(Some((boundary, contents))) => {
                let target = ProcessContents {
                    pid,
                    stat,
                    contents,
                };
                within.entry(boundary).or_default().push(target);
                continue;
            }
            Ok(None) => format!(
                "is in no boundary by the rule {}, and was not read",
                args.boundary
            ),
            Err(proc::Error::Gone { .. }) => "ended".to_owned(),
            Err(error) => refusal(&error),
        };
        let named = selection.chosen.pids.iter().any(|name| name.pid == pid);
        if named {
            return Err(anyhow!("--pid {pid}: {}: {why}", stat.comm.escape_debug()));
        }
        left_out.push(LeftOutProcess {
            pid,
            comm: stat.comm,
            why,
        });
    }
    if within.is_empty() {
        let first = left_out.first();
        let first =
            first.map(|LeftOutProcess { pid, comm, why }| (*pid, comm.as_str(), why.as_str()));
        return Err(nobody_read(left_out.len(), first));
    }
    let worth = Worth {
        least_share: args.least_share,
        least_pages: (args.least_saved / 4096) as f64,
    };
    let cgroups = members::cgroups(proc)?;
    let mut report = SuggestReport {
        rule: args.boundary.to_string(),
        left_out,
        ..SuggestReport::default()
    };
    let mut names = Names::default();
    for (boundary, targets) in within {
        report.add(described(boundary, targets, worth, &cgroups, &mut names));
    }
    report.seconds = seconds(clock::now() - before.0);
    report.cpu_seconds = seconds(clock::process_cpu() - before.1);
    Ok(report)
}

/// Error if none of `named` processes was read: the id, the name and the reason of the first.
pub(crate) fn nobody_read(named: usize, first: Option<(u32, &str, &str)>) -> anyhow::Error {
    let Some((pid, comm, why)) = first else {
        return anyhow!("no running process matches the targets: there is nothing to read");
    };
    let none = match named {
        1 => "nothing was read".to_owned(),
        several => format!(
            "none of {} was read",
            counted(several as u64, "process", "processes")
        ),
    };
    anyhow!("{none}: process {pid}: {}: {why}", comm.escape_debug())
}

/// The named processes that have memory now, by id.
pub(crate) fn chosen(selection: &Selection, proc: &Proc) -> anyhow::Result<Vec<(u32, Stat)>> {
    let mut pids = Vec::new();
    proc.list(&mut pids)?;
    let mut chosen = Vec::new();
    for pid in pids {
        let Ok(stat) = proc.stat(pid) else {
            // It ended meanwhile.
            continue;
        };
        if pid == std::process::id() || !stat.has_memory() {
            continue;
        }
        match selection.include(proc, pid, &stat) {
            Ok(true) => chosen.push((pid, stat)),
            Ok(false) | Err(proc::Error::Gone { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(chosen)
}

/// Why a process cannot be read, and the remedy.
fn refusal(error: &proc::Error) -> String {
    let proc::Error::Read { source, .. } = error else {
        return error.to_string();
    };
    match source.kind() {
        std::io::ErrorKind::PermissionDenied => format!(
            "{error}: to read its memory takes root (CAP_SYS_PTRACE), and no ptrace_scope=3"
        ),
        _ => error.to_string(),
    }
}

/// The proposal for one boundary.
fn described(
    name: String,
    targets: Vec<ProcessContents>,
    worth: Worth,
    cgroups: &BTreeMap<u32, String>,
    names: &mut Names,
) -> BoundaryReport {
    let mut read_pages = 0;
    let mut in_part = 0;
    let mut processes = Vec::new();
    let mut sketches: Vec<Sketch> = Vec::new();
    for ProcessContents {
        pid,
        stat,
        contents,
    } in targets
    {
        read_pages += contents.read;
        in_part += u64::from(contents.is_cut || contents.read < contents.present);
        processes.push(MemberName::process(pid, &stat));
        sketches.push(contents.sketch);
    }
    let proposal = propose(&sketches, worth);
    let groups = proposal.groups.into_iter().map(|group| {
        let members = group.members.iter().map(|&one| &processes[one]);
        GroupReport {
            name: names.next(&name),
            processes: group.members.len() as u64,
            members: members::shortest(members, cgroups),
            pages: group.pages.round(),
            saved: group.saved.into(),
            within: group.within.into(),
            shared_already: group.already.into(),
        }
    });
    BoundaryReport {
        groups: groups.collect(),
        processes: processes.len() as u64,
        read_in_part: in_part,
        read_pages,
        pages: sketches.iter().map(Sketch::pages).sum::<f64>().round(),
        zero_pages: sketches.iter().map(Sketch::zero_pages).sum::<f64>().round(),
        alone: proposal
            .alone
            .iter()
            .map(|&one| processes[one].clone())
            .collect(),
        lost: proposal.lost.into(),
        name,
    }
}

fn seconds(time: u64) -> f64 {
    time as f64 / 1e9
}
