//! The configuration, and the daemon: whether what was written can stand, names anybody, and runs.
//!
//! # Approach
//! The configuration is read and planned by the code that `uksm run` has for it, so that its errors are the same. The
//! daemon is asked as `uksm status` asks it.

use std::path::{Path, PathBuf};

use uksm_linux::proc::Proc;
use uksm_linux::selection::{Cgroup, Selection, include_each};
use uksm_policy::command::PAGE_SIZE;
use uksm_policy::params::{Contents, Thp};

use super::processes::Process;
use super::reading::{Root, unread};
use super::{Asked, Check, Host, Severity, Verdict, default_configuration};
use crate::config::current::Configuration;
use crate::config::{self, Config};
use crate::control::{Answer, NoAnswer};
use crate::setting::{Backend, Resolved, SOCKET};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "configuration",
        finds: "a line of the configuration cannot stand; the finding is that line's error",
        reads: "/etc/uksm/config.toml, /etc/uksm/conf.d",
        worst: Severity::Error,
        cost: "uksm run refuses to start, and uksm reload changes nothing",
        mend: "correct the line that is named",
        judge: configuration,
    },
    Check {
        name: "targets",
        finds: "the configuration names nobody; a note if there is none",
        reads: "the configuration",
        worst: Severity::Warning,
        cost: "uksm merges only processes that are named: the service ends with status 2",
        mend: "name processes below [targets], or in groups",
        judge: targets,
    },
    Check {
        name: "named-cgroups",
        finds: "a control group that is named is not there",
        reads: "the configuration, /sys/fs/cgroup",
        worst: Severity::Note,
        cost: "nothing is merged for a control group before it is there; a name that is mistaken waits for ever",
        mend: "compare the name with `systemd-cgls`",
        judge: named_cgroups,
    },
    Check {
        name: "zero-and-hints",
        finds: "only zeros are merged, and hints are on",
        reads: "the configuration",
        worst: Severity::Note,
        cost: "hints find pages that were just read from files, and those are seldom zeros: time is spent on them for nothing",
        mend: "set hint_runs = 0",
        judge: zero_and_hints,
    },
    Check {
        name: "dry-run",
        finds: "dry_run is set",
        reads: "the configuration",
        worst: Severity::Warning,
        cost: "the daemon samples and reports, and merges nothing",
        mend: "set dry_run = false",
        judge: dry_run,
    },
    Check {
        name: "daemon",
        finds: "the daemon does not answer as it should; a note if none runs",
        reads: "the daemon's socket",
        worst: Severity::Warning,
        cost: "nothing new is merged while no daemon runs; what is merged stays so",
        mend: "start it, or see `journalctl -u uksm`",
        judge: daemon,
    },
    Check {
        name: "daemon-version",
        finds: "daemon and program are of two versions",
        reads: "the daemon's status",
        worst: Severity::Warning,
        cost: "the daemon is from before an update: it does not have what the new program has",
        mend: "restart the daemon: merged pages stay merged",
        judge: daemon_version,
    },
    Check {
        name: "groups-run",
        finds: "a group's worker does not run",
        reads: "the daemon's status",
        worst: Severity::Warning,
        cost: "nothing is merged in a group whose worker does not run",
        mend: "see what the fault says, and the daemon's log",
        judge: groups_run,
    },
    Check {
        name: "unit",
        finds: "the service is not installed, or does not start with the host",
        reads: "/etc/systemd/system, /usr/lib/systemd/system",
        worst: Severity::Note,
        cost: "after the next start of the host no daemon runs",
        mend: "install the unit of packaging/, and enable it",
        judge: unit,
    },
];

/// What was read of the configuration and the daemon.
pub(super) struct Configured {
    /// There is a file.
    is_there: bool,
    /// Its path on the host.
    name: String,
    config: Result<Config, String>,
    /// Why who asks may not read it.
    closed: Option<String>,
    resolved: Option<Resolved>,
    /// Control groups that were named and are not there.
    missing: Vec<String>,
    answer: Result<Answer, NoAnswer>,
    has_systemd: bool,
    has_unit: bool,
    /// The unit starts with the host.
    pub(super) is_enabled: bool,
}

impl Configured {
    /// Reads it: the file that was named, or the usual one, of which there need be none.
    pub(super) fn read(root: &Root, named: Option<&Path>, asked: &Asked<'_>) -> Configured {
        let path = named.map_or_else(|| root.at(default_configuration()), Path::to_owned);
        let mut config = Config::default();
        let read = config::read(&path, named.is_some(), &mut config);
        let checked = read.and_then(|()| check(root, &config));
        // A message is about a file of the host, wherever that was read.
        let config = checked.map(|()| config);
        let resolved = config
            .as_ref()
            .ok()
            .and_then(|all| all.settings.resolve().ok());
        let socket = resolved.as_ref().map(|resolved| &resolved.daemon.socket);
        let socket = socket.map_or(Path::new(SOCKET), PathBuf::as_path);
        let answer = (asked.daemon)(&root.at(socket));
        let units = [
            "etc/systemd/system",
            "usr/lib/systemd/system",
            "lib/systemd/system",
        ];
        let wants = root.list(units[0]).into_iter().filter(|folder| {
            let name = folder.extension().unwrap_or_default();
            name == "wants" || name == "requires"
        });
        Configured {
            is_there: path.exists() || path.with_file_name("conf.d").exists(),
            name: root.name(&path),
            missing: config
                .as_ref()
                .map_or_else(|_| Vec::new(), |all| missing(root, all)),
            resolved,
            config,
            closed: closed(&path),
            answer,
            has_systemd: root.has("run/systemd/system"),
            has_unit: units
                .iter()
                .any(|folder| root.has(&format!("{folder}/uksm.service"))),
            // A link to a unit of the host; it need not lead anywhere below another root.
            is_enabled: wants
                .map(|folder| folder.join("uksm.service"))
                .any(|unit| unit.symlink_metadata().is_ok()),
        }
    }

    /// The configuration, if it can stand.
    pub(super) fn config(&self) -> Option<&Config> {
        self.config.as_ref().ok()
    }

    /// What the daemon answered, if it did.
    pub(super) fn answer(&self) -> Option<&Answer> {
        self.answer.as_ref().ok()
    }

    /// Where the device is to be.
    pub(super) fn device(&self) -> PathBuf {
        let set = self
            .resolved
            .as_ref()
            .map(|resolved| &resolved.daemon.device);
        set.map_or(Path::new(uksm_linux::module::DEVICE_PATH), PathBuf::as_path)
            .to_owned()
    }

    /// Whether the daemon drives in-kernel KSM, or would.
    pub(super) fn drives_ksm(&self) -> bool {
        let asked = self.config().and_then(|all| all.settings.text("backend"));
        asked == Some(Backend::Ksm.name()) || matches!(self.answer, Ok(Answer::Ksm(_)))
    }

    /// Whether hints are on.
    pub(super) fn wants_hints(&self) -> bool {
        let params = self.resolved.as_ref().map(|resolved| &resolved.params);
        params.is_none_or(|params| params.hint_runs > 0)
    }

    /// Whether huge pages are split where that is worth it.
    pub(super) fn splits_huge_pages(&self) -> bool {
        let params = self.resolved.as_ref().map(|resolved| &resolved.params);
        params.is_none_or(|params| params.thp != Thp::Never)
    }

    /// Whether only zeros are merged, unless a group says otherwise.
    pub(super) fn merges_zeros_only(&self) -> bool {
        let params = self.resolved.as_ref().map(|resolved| &resolved.params);
        params.is_some_and(|params| params.merge == Contents::Zero)
    }

    /// Whether locked memory is merged, of all or of some group.
    pub(super) fn merges_locked(&self) -> bool {
        let of_all = self.resolved.as_ref().is_some_and(|all| all.params.locked);
        let config = self.config.as_ref().ok();
        let groups = config.into_iter().flat_map(|all| {
            let groups = all.groups.iter().map(|group| &group.settings);
            groups.chain(all.rules.iter().map(|rule| &rule.settings))
        });
        of_all
            || groups
                .filter_map(|of| of.text("locked"))
                .any(|text| text == "true")
    }

    /// Marks the processes that are to be merged.
    pub(super) fn mark_targets(&self, proc: &Proc, processes: &mut [Process]) {
        let Ok(config) = &self.config else { return };
        let groups = config.groups.iter().map(|group| &group.settings.targets);
        // What a rule is about may be everybody, which is then not named.
        let rules = config.rules.iter().map(|rule| &rule.settings.targets);
        let selections: Vec<&Selection> = std::iter::once(&config.settings.targets)
            .chain(groups)
            .chain(rules)
            .filter(|selection| selection.all || !selection.chosen.is_empty())
            .collect();
        let is_about_all = config.rules.iter().any(|rule| {
            let targets = &rule.settings.targets;
            !targets.all && targets.chosen.is_empty()
        });
        if selections.is_empty() && !is_about_all {
            return;
        }
        for process in processes {
            let Ok(stat) = proc.stat(process.pid) else {
                continue;
            };
            let mut included = include_each(&selections, proc, process.pid, &stat);
            process.is_target = is_about_all || included.any(|is| is);
        }
    }

    /// What the daemon has saved, if one answers.
    pub(super) fn saved_bytes(&self) -> Option<u64> {
        match self.answer.as_ref().ok()? {
            Answer::Status(status) => {
                let pages = u64::try_from(status.saved.frames_pages).unwrap_or(0);
                Some((pages + status.saved.zero_pages) * PAGE_SIZE)
            }
            Answer::Groups(groups) => {
                let workers = groups
                    .groups
                    .iter()
                    .filter_map(|group| group.status.as_ref());
                let pages = workers.map(|status| {
                    u64::try_from(status.saved.frames_pages).unwrap_or(0) + status.saved.zero_pages
                });
                Some(pages.sum::<u64>() * PAGE_SIZE)
            }
            _ => None,
        }
    }
}

/// A configuration may be its owner's alone, and still right.
fn closed(path: &Path) -> Option<String> {
    let folder = path.with_file_name("conf.d");
    let read = std::fs::File::open(path).map(drop);
    let listed = std::fs::read_dir(&folder).map(drop);
    [(path, read), (&folder, listed)]
        .into_iter()
        .find_map(|(path, opened)| {
            let error = opened.err()?;
            let is_closed = error.kind() == std::io::ErrorKind::PermissionDenied;
            is_closed.then(|| unread(&path.display().to_string(), &error))
        })
}

/// What `uksm run` would check before it touches anything.
fn check(root: &Root, config: &Config) -> Result<(), String> {
    let resolved = config.settings.resolve()?;
    if config.has_groups() {
        let proc = Proc::at(&root.at(Path::new("/proc")));
        let again = || Err("is not read again".to_owned());
        let configuration = Configuration::new(config.clone(), proc, Box::new(again));
        return configuration.plan().map(drop);
    }
    match config.settings.origin("cpu_total") {
        Some(origin) if resolved.daemon.cpu_total.is_some() => {
            Err(format!("{origin}: there are no groups: set cpu instead"))
        }
        _ => Ok(()),
    }
}

/// Control groups that are named one by one and are not there.
fn missing(root: &Root, config: &Config) -> Vec<String> {
    let groups = config.groups.iter().map(|group| &group.settings.targets);
    let selections = std::iter::once(&config.settings.targets).chain(groups);
    let cgroups = selections.flat_map(|selection: &Selection| &selection.chosen.cgroups);
    let folders = cgroups.filter(|cgroup| cgroup.is_one()).map(Cgroup::folder);
    folders.filter(|folder| !root.has(folder)).collect()
}

fn configuration(host: &Host) -> Verdict {
    let configured = &host.configuration;
    match (&configured.config, &configured.closed) {
        (Err(_), Some(why)) => Verdict::unknown(why),
        (Err(line), None) => Verdict::error(line),
        (Ok(_), _) if !configured.is_there => {
            Verdict::ok(format!("there is no {}", configured.name))
        }
        (Ok(_), _) => Verdict::ok(format!("{} can stand", configured.name)),
    }
}

fn targets(host: &Host) -> Verdict {
    let configured = &host.configuration;
    let Ok(config) = &configured.config else {
        return Verdict::unknown("the configuration cannot be read");
    };
    let named = config.settings.targets.all || !config.settings.targets.chosen.is_empty();
    match (named || config.has_groups(), configured.is_there) {
        (true, _) => Verdict::ok("the configuration names processes"),
        (false, true) => Verdict::warning("the configuration names no processes")
            .mend("uksm group suggest --all"),
        (false, false) => Verdict::note("nobody is named, because there is no configuration")
            .mend("install -Dm644 packaging/config.toml /etc/uksm/config.toml")
            .mend("uksm group suggest --all"),
    }
}

fn named_cgroups(host: &Host) -> Verdict {
    let missing = &host.configuration.missing;
    match missing.is_empty() {
        true => Verdict::ok("the control groups that are named are there"),
        false => {
            Verdict::note("control groups that are named are not there").about(missing.clone())
        }
    }
}

fn zero_and_hints(host: &Host) -> Verdict {
    use uksm_policy::params::Contents;
    let Some(resolved) = &host.configuration.resolved else {
        return Verdict::unknown("the configuration cannot be read");
    };
    match (resolved.params.merge, resolved.params.hint_runs) {
        (Contents::Zero, 1..) => Verdict::note("only zeros are merged (merge), and hints are on"),
        _ => Verdict::ok("hints are used for what they find"),
    }
}

fn dry_run(host: &Host) -> Verdict {
    match &host.configuration.resolved {
        None => Verdict::unknown("the configuration cannot be read"),
        Some(resolved) if resolved.daemon.dry_run => Verdict::warning("dry_run is set"),
        Some(_) => Verdict::ok("what is found is merged"),
    }
}

fn daemon(host: &Host) -> Verdict {
    match &host.configuration.answer {
        Ok(Answer::Error(line)) => Verdict::warning(format!("the daemon answers: {line}")),
        Ok(_) => Verdict::ok("the daemon answers"),
        Err(NoAnswer::NotRunning) => {
            Verdict::note("no daemon runs").mend("systemctl enable --now uksm")
        }
        Err(NoAnswer::Failed(line)) if !host.rights.may_open() => Verdict::unknown(line),
        Err(NoAnswer::Failed(line)) => Verdict::warning(line).mend("systemctl restart uksm"),
    }
}

fn daemon_version(host: &Host) -> Verdict {
    let version = match &host.configuration.answer {
        Ok(Answer::Status(status)) => &status.daemon.version,
        Ok(Answer::Groups(groups)) => &groups.version,
        _ => return Verdict::ok("no daemon tells its version"),
    };
    let own = env!("CARGO_PKG_VERSION");
    match version == own {
        true => Verdict::ok(format!("daemon and program are of version {own}")),
        false => Verdict::warning(format!(
            "the daemon is of version {version}, this program of {own}"
        ))
        .mend("systemctl restart uksm"),
    }
}

fn groups_run(host: &Host) -> Verdict {
    let Ok(Answer::Groups(groups)) = &host.configuration.answer else {
        return Verdict::ok("no daemon with groups answers");
    };
    let faults = groups.groups.iter().filter_map(|group| {
        let fault = group.fault.as_ref()?;
        Some(format!("{}: {fault}", group.name))
    });
    let faults: Vec<String> = faults.collect();
    match faults.is_empty() {
        true => Verdict::ok("the workers of all groups run"),
        false => Verdict::warning("not all groups have a worker").about(faults),
    }
}

fn unit(host: &Host) -> Verdict {
    let configured = &host.configuration;
    match (
        configured.has_systemd,
        configured.has_unit,
        configured.is_enabled,
    ) {
        (false, _, _) => Verdict::ok("this host has no systemd"),
        (true, _, true) => Verdict::ok("the service starts with the host"),
        (true, true, false) => {
            Verdict::note("the service does not start with the host").mend("systemctl enable uksm")
        }
        (true, false, false) => Verdict::note("the service is not installed")
            .mend("cp packaging/uksm.service /etc/systemd/system/")
            .mend("systemctl daemon-reload && systemctl enable uksm"),
    }
}
