//! The selection: which processes may be merged.
//!
//! # Problem
//! An operator names processes by id, by control group, by program name, or as all but some. The
//! kernel reuses ids, names change, and a name that can never match is a mistake.
//!
//! # Approach
//! A process becomes a target if a selector of [`Selection::chosen`] matches and none of
//! [`Selection::excluded`] does. When the run starts, [`Selection::pin`] ties a process id to the
//! start time of its process, so that the selection never matches a later process with the same id.
//! A control group includes those below it. Of several groups, a process is in the first that has
//! it ([`Grouping`]). Program names are the kernel's (`comm`), with `*`, `?` and `[...]`.

use std::cell::OnceCell;

use crate::proc::{self, Proc, Stat};

mod excluded;
mod group_id;
mod grouping;
mod labels;
mod libvirt;
mod of_users;
mod rule;
mod selector;

pub use group_id::GroupId;
pub use grouping::{Grouping, RuleWithGroups};
pub use labels::Labels;
pub use libvirt::LibvirtDomain;
pub use rule::{By, FormedGroup, Rule, Value};
pub use selector::{Cgroup, Comm, ProcessName, Unit};

/// Processes by id, control group or name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selectors {
    /// Selectors by id.
    pub pids: Vec<ProcessName>,
    /// Selectors by control group, including those below it.
    pub cgroups: Vec<Cgroup>,
    /// Selectors by unit of systemd.
    pub units: Vec<Unit>,
    /// Selectors by virtual machine of libvirt.
    pub libvirt: Vec<LibvirtDomain>,
    /// Selectors by program name.
    pub comms: Vec<Comm>,
}

impl Selectors {
    /// Whether nothing is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty() && !self.need_search()
    }

    /// Whether processes must be searched for, other than those named by id.
    fn need_search(&self) -> bool {
        !self.comms.is_empty() || self.depend_on_cgroups()
    }

    /// Whether another control group can make a process selected.
    fn depend_on_cgroups(&self) -> bool {
        !self.cgroups.is_empty() || !self.units.is_empty() || !self.libvirt.is_empty()
    }

    /// Adds the selectors of `other`.
    pub fn extend(&mut self, other: Selectors) {
        self.pids.extend(other.pids);
        self.cgroups.extend(other.cgroups);
        self.units.extend(other.units);
        self.libvirt.extend(other.libvirt);
        self.comms.extend(other.comms);
    }

    /// Whether a process is selected.
    ///
    /// # Errors
    /// Its control group is needed and cannot be read.
    pub fn select(&self, proc: &Proc, pid: u32, stat: &Stat) -> proc::Result<bool> {
        self.select_candidate(&Candidate::new(proc, pid, stat))
    }

    fn select_candidate(&self, candidate: &Candidate<'_>) -> proc::Result<bool> {
        let stat = candidate.stat;
        let same = |name: &ProcessName| {
            name.pid == candidate.pid
                && name
                    .start_ticks
                    .is_none_or(|start| start == stat.start_ticks)
        };
        if self.pids.iter().any(same) || self.comms.iter().any(|c| c.matches(&stat.comm)) {
            return Ok(true);
        }
        if !self.depend_on_cgroups() {
            return Ok(false);
        }
        let path = candidate.cgroup()?;
        Ok(self.cgroups.iter().any(|cgroup| cgroup.holds(path))
            || self.units.iter().any(|unit| unit.holds(path))
            || self.libvirt.iter().any(|domain| domain.holds(path)))
    }
}

/// A process that is checked against selectors.
struct Candidate<'a> {
    proc: &'a Proc,
    pid: u32,
    stat: &'a Stat,
    /// Read once, when first needed.
    cgroup: OnceCell<String>,
}

impl<'a> Candidate<'a> {
    fn new(proc: &'a Proc, pid: u32, stat: &'a Stat) -> Candidate<'a> {
        Candidate {
            proc,
            pid,
            stat,
            cgroup: OnceCell::new(),
        }
    }

    fn cgroup(&self) -> proc::Result<&str> {
        if let Some(path) = self.cgroup.get() {
            return Ok(path);
        }
        let path = self.proc.cgroup(self.pid)?;
        Ok(self.cgroup.get_or_init(|| path))
    }
}

/// The processes that may be merged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// Every process, unless excluded.
    pub all: bool,
    /// Processes chosen.
    pub chosen: Selectors,
    /// Processes excluded even if chosen.
    pub excluded: Selectors,
}

/// Reason why a selection is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No selector at all.
    #[error(
        "no targets: name processes with --pid, --cgroup, --unit, --libvirt or --comm, or use --all \
         (in a configuration: the keys of these names)"
    )]
    None,
    /// No such process.
    #[error("--pid {name}: no such process")]
    NoProcess {
        /// The name given.
        name: ProcessName,
    },
    /// The id belongs to a later process.
    #[error(
        "--pid {name}: the id was used again, or the tick is wrong: process {} started at tick \
         {found}: name it as {}@{found}",
        name.pid, name.pid
    )]
    Reused {
        /// The name given.
        name: ProcessName,
        /// Start time of the process that has the id.
        found: u64,
    },
    /// It has no memory that could be merged.
    #[error("--pid {name}: {what}: it has no memory to merge")]
    NoMemory {
        /// The name given.
        name: ProcessName,
        /// The kind of process.
        what: &'static str,
    },
    /// It is a thread.
    #[error("--pid {name}: is a thread of process {group}: name that")]
    Thread {
        /// The name given.
        name: ProcessName,
        /// The process.
        group: u32,
    },
    /// It is this program.
    #[error("--pid {name}: is uksm itself, which is never merged")]
    Itself {
        /// The name given.
        name: ProcessName,
    },
    /// `/proc` cannot be read.
    #[error("--pid {name}: {source}")]
    Unreadable {
        /// The name given.
        name: ProcessName,
        /// The reason.
        source: proc::Error,
    },
}

/// Whether each of these includes a process, which is read once for all of them. A process whose
/// control group cannot be read is in none that needs it.
pub fn include_each<'a>(
    selections: &'a [&'a Selection],
    proc: &'a Proc,
    pid: u32,
    stat: &'a Stat,
) -> impl Iterator<Item = bool> + 'a {
    let candidate = Candidate::new(proc, pid, stat);
    let has = move |selection: &&Selection| selection.include_candidate(&candidate);
    selections
        .iter()
        .map(move |selection| has(selection).unwrap_or(false))
}

impl Selection {
    /// Whether processes must be searched for, other than those named by id.
    #[must_use]
    pub fn need_search(&self) -> bool {
        self.all || self.chosen.need_search()
    }

    /// Whether a process can become chosen, or no longer chosen, by a new name.
    #[must_use]
    pub fn depends_on_names(&self) -> bool {
        !self.chosen.comms.is_empty() || !self.excluded.comms.is_empty()
    }

    /// As [`Selection::depends_on_names`], by another control group.
    #[must_use]
    pub fn depends_on_cgroups(&self) -> bool {
        self.chosen.depend_on_cgroups() || self.excluded.depend_on_cgroups()
    }

    /// Whether a process may be merged.
    ///
    /// # Errors
    /// Its control group is needed and cannot be read.
    pub fn include(&self, proc: &Proc, pid: u32, stat: &Stat) -> proc::Result<bool> {
        self.include_candidate(&Candidate::new(proc, pid, stat))
    }

    /// Whether it names the process, excluded or not. A rule without named processes is for all.
    fn names(&self, candidate: &Candidate<'_>) -> proc::Result<bool> {
        Ok(self.all || self.chosen.is_empty() || self.chosen.select_candidate(candidate)?)
    }

    fn include_candidate(&self, candidate: &Candidate<'_>) -> proc::Result<bool> {
        let chosen = self.all || self.chosen.select_candidate(candidate)?;
        Ok(chosen && !self.excluded.leave_out(candidate)?)
    }

    /// Checks that something is named and each named id is a process with memory, and pins ids to
    /// start times.
    ///
    /// # Errors
    /// The first name that is refused.
    pub fn pin(&mut self, proc: &Proc) -> Result<(), Error> {
        if !self.need_search() && self.chosen.pids.is_empty() {
            return Err(Error::None);
        }
        self.chosen.pin(proc)
    }

    /// As [`Selection::pin`], but a process by id that cannot be pinned never matches, and is no
    /// error, because its owner can end it at any time. Returns the reason for each.
    ///
    /// # Errors
    /// Nothing is named, or this process.
    pub fn pin_running(&mut self, proc: &Proc) -> Result<Vec<Error>, Error> {
        if !self.need_search() && self.chosen.pids.is_empty() {
            return Err(Error::None);
        }
        let mut left_out = Vec::new();
        for name in &mut self.chosen.pids {
            match pin(name, proc) {
                Ok(()) => {}
                Err(error @ Error::Itself { .. }) => return Err(error),
                Err(error) => {
                    name.start_ticks.get_or_insert(NEVER);
                    left_out.push(error);
                }
            }
        }
        Ok(left_out)
    }
}

impl Selectors {
    /// Checks that each named id is a process with memory, and pins it to its start time.
    ///
    /// # Errors
    /// The first name that is refused.
    pub fn pin(&mut self, proc: &Proc) -> Result<(), Error> {
        self.pids.iter_mut().try_for_each(|name| pin(name, proc))
    }
}

/// No process starts so late.
const NEVER: u64 = u64::MAX;

/// Checks that this is a process with memory, and pins it to its start time.
fn pin(slot: &mut ProcessName, proc: &Proc) -> Result<(), Error> {
    let name = *slot;
    let unreadable = |source| match source {
        proc::Error::Gone { .. } => Error::NoProcess { name },
        source => Error::Unreadable { name, source },
    };
    if name.pid == std::process::id() {
        return Err(Error::Itself { name });
    }
    let stat = proc.stat(name.pid).map_err(unreadable)?;
    if name
        .start_ticks
        .is_some_and(|start| start != stat.start_ticks)
    {
        return Err(Error::Reused {
            name,
            found: stat.start_ticks,
        });
    }
    let group = proc.thread_group(name.pid).map_err(unreadable)?;
    if group != name.pid {
        return Err(Error::Thread { name, group });
    }
    if !stat.has_memory() {
        let dead = matches!(stat.state, 'Z' | 'X' | 'x');
        let what = if dead { "a zombie" } else { "a kernel thread" };
        return Err(Error::NoMemory { name, what });
    }
    slot.start_ticks = Some(stat.start_ticks);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn process(root: &Path, pid: u32, comm: &str, flags: u32, state: char, cgroup: &str) {
        let folder = root.join(pid.to_string());
        std::fs::create_dir(&folder).unwrap();
        let stat = format!(
            "{pid} ({comm}) {state} 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 {} 4096 1 0\n",
            pid * 10
        );
        std::fs::write(folder.join("stat"), stat).unwrap();
        std::fs::write(folder.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        std::fs::write(
            folder.join("status"),
            format!("Name:\t{comm}\nTgid:\t{pid}\n"),
        )
        .unwrap();
    }

    fn chosen(selection: &Selection, proc: &Proc) -> Vec<u32> {
        let mut pids = Vec::new();
        proc.list(&mut pids).unwrap();
        pids.retain(|&pid| {
            selection
                .include(proc, pid, &proc.stat(pid).unwrap())
                .unwrap()
        });
        pids
    }

    fn processes() -> (tempfile::TempDir, Proc) {
        let root = tempfile::tempdir().unwrap();
        process(
            root.path(),
            10,
            "redis-server",
            0,
            'S',
            "/system.slice/redis.service",
        );
        process(
            root.path(),
            11,
            "redis-cli",
            0,
            'S',
            "/system.slice/redis.service/child",
        );
        process(
            root.path(),
            12,
            "nginx",
            0,
            'S',
            "/system.slice/redis.service2",
        );
        process(root.path(), 13, "kthreadd", 0x0020_0000, 'S', "/");
        process(root.path(), 14, "defunct", 0, 'Z', "/");
        let proc = Proc::at(root.path());
        (root, proc)
    }

    #[test]
    fn only_what_was_named_is_chosen() {
        let (_root, proc) = processes();
        assert_eq!(chosen(&Selection::default(), &proc), []);
        let by = |chosen: Selectors| Selection {
            chosen,
            ..Selection::default()
        };
        let comm = Selectors {
            comms: vec!["redis*".parse().unwrap()],
            ..Default::default()
        };
        assert_eq!(chosen(&by(comm), &proc), [10, 11]);
        let pid = Selectors {
            pids: vec!["12".parse().unwrap()],
            ..Default::default()
        };
        assert_eq!(chosen(&by(pid), &proc), [12]);
        let path = "/sys/fs/cgroup/system.slice/redis.service/"
            .parse()
            .unwrap();
        let cgroup = Selectors {
            cgroups: vec![path],
            ..Default::default()
        };
        assert_eq!(
            chosen(&by(cgroup), &proc),
            [10, 11],
            "and groups below, not beside"
        );
    }

    #[test]
    fn a_process_in_a_unit_that_a_user_named_is_not_chosen() {
        let root = tempfile::tempdir().unwrap();
        let own = "/user.slice/user-1000.slice/user@1000.service/app.slice";
        let machine = "machine-qemu\\x2d1\\x2dcustomer1\\x2devil.scope";
        for (pid, cgroup) in [
            (
                20,
                "/system.slice/system-postgresql.slice/postgresql@15-main.service".to_owned(),
            ),
            (21, format!("{own}/postgresql@evil.service")),
            (22, "/rvt.slice/user/postgresql@evil.service".to_owned()),
            (23, format!("/machine.slice/{machine}")),
            (24, format!("{own}/{machine}")),
        ] {
            process(root.path(), pid, "x", 0, 'S', &cgroup);
        }
        let proc = Proc::at(root.path());
        let by = |selectors: Selectors| {
            let selection = Selection {
                chosen: selectors,
                ..Selection::default()
            };
            chosen(&selection, &proc)
        };
        let units = vec!["postgresql@*.service".parse().unwrap()];
        let unit = Selectors {
            units,
            ..Selectors::default()
        };
        assert_eq!(by(unit.clone()), [20]);
        let all_but = Selection {
            all: true,
            excluded: unit,
            ..Selection::default()
        };
        assert_eq!(chosen(&all_but, &proc), [23, 24], "an exclusion is wider");
        let libvirt = vec!["customer1-*".parse().unwrap()];
        let libvirt = Selectors {
            libvirt,
            ..Selectors::default()
        };
        assert_eq!(by(libvirt), [23]);
        let cgroups = vec![format!("{own}/postgresql@*.service").parse().unwrap()];
        let named_with_its_user = Selectors {
            cgroups,
            ..Selectors::default()
        };
        assert_eq!(by(named_with_its_user), [21]);
    }

    #[test]
    fn excluded_wins_over_chosen() {
        let (_root, proc) = processes();
        let excluded = Selectors {
            pids: vec!["13".parse().unwrap(), "14".parse().unwrap()],
            comms: vec!["nginx".parse().unwrap()],
            cgroups: vec!["/system.slice/redis.service/child".parse().unwrap()],
            ..Selectors::default()
        };
        let selection = Selection {
            all: true,
            excluded,
            ..Selection::default()
        };
        assert_eq!(chosen(&selection, &proc), [10]);
    }

    #[test]
    fn of_several_groups_the_first_that_has_a_process_has_it() {
        let (_root, proc) = processes();
        let unit = |name: &str| Selectors {
            units: vec![name.parse().unwrap()],
            ..Selectors::default()
        };
        let redis = Selection {
            chosen: unit("redis.service"),
            excluded: Selectors {
                comms: vec!["redis-cli".parse().unwrap()],
                ..Selectors::default()
            },
            ..Selection::default()
        };
        let rest = Selection {
            all: true,
            ..Selection::default()
        };
        let mut groups = Grouping::of(vec![(GroupId(7), redis), (GroupId(3), rest)]);
        let group_of = |groups: &mut Grouping, pid: u32| {
            let stat = proc.stat(pid).unwrap();
            groups.group_of(&proc, (pid, &stat), None).unwrap()
        };
        let of = |groups: &mut Grouping| [10, 11, 12].map(|pid| group_of(groups, pid));
        let (seven, three) = (Some(GroupId(7)), Some(GroupId(3)));
        assert_eq!(of(&mut groups), [seven, three, three]);
        assert!(groups.depends_on_cgroups() && groups.depends_on_names());
        let nginx = Selectors {
            comms: vec!["nginx".parse().unwrap()],
            ..Selectors::default()
        };
        groups.exclude(nginx, &proc);
        assert_eq!(of(&mut groups), [seven, three, None]);
        let all = Selection {
            all: true,
            ..Selection::default()
        };
        groups.regroup(vec![(GroupId(3), all)], vec![]);
        assert_eq!(of(&mut groups), [three, three, None], "still excluded");
    }

    #[test]
    fn a_reused_id_was_not_named() {
        let (_root, proc) = processes();
        let mut selection = Selection::default();
        selection.chosen.pids.push("10@99".parse().unwrap());
        assert_eq!(chosen(&selection, &proc), []);
        let error = selection.pin(&proc).unwrap_err().to_string();
        assert_eq!(
            error,
            "--pid 10@99: the id was used again, or the tick is wrong: process 10 started at tick 100: name it as 10@100"
        );
    }

    #[test]
    fn each_bad_id_says_what_it_is() {
        let (root, proc) = processes();
        std::fs::write(root.path().join("12/status"), "Tgid:\t10\n").unwrap();
        let me = std::process::id();
        for (pid, expected) in [
            (
                13,
                "--pid 13: a kernel thread: it has no memory to merge".to_owned(),
            ),
            (
                14,
                "--pid 14: a zombie: it has no memory to merge".to_owned(),
            ),
            (15, "--pid 15: no such process".to_owned()),
            (
                12,
                "--pid 12: is a thread of process 10: name that".to_owned(),
            ),
            (
                me,
                format!("--pid {me}: is uksm itself, which is never merged"),
            ),
        ] {
            let mut selection = Selection::default();
            selection.chosen.pids.push(ProcessName {
                pid,
                start_ticks: None,
            });
            assert_eq!(selection.pin(&proc).unwrap_err().to_string(), expected);
        }
        assert!(matches!(Selection::default().pin(&proc), Err(Error::None)));
    }

    #[test]
    fn an_id_is_pinned_to_its_process() {
        let (_root, proc) = processes();
        let mut selection = Selection::default();
        selection.chosen.pids.push("10".parse().unwrap());
        selection.pin(&proc).unwrap();
        assert_eq!(selection.chosen.pids[0].to_string(), "10@100");
    }
}
