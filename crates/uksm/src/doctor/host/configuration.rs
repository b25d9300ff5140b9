//! The configuration, and the daemon's answer.

use std::path::{Path, PathBuf};

use uksm_input::regular_file;
use uksm_linux::proc::Proc;
use uksm_linux::selection::{Cgroup, Selection, include_each};
use uksm_policy::command::PAGE_SIZE;
use uksm_policy::params::{Contents, Thp};

use super::processes::HostProcess;
use crate::config::current::Configuration;
use crate::config::{self, Config};
use crate::control::{Answer, NoAnswer};
use crate::doctor::probe::{Root, unread};
use crate::doctor::sources::Sources;
use crate::ksm;
use crate::setting::{Backend, ResolvedSettings, SOCKET};

/// The state of the configuration and of the daemon.
pub(in crate::doctor) struct HostConfiguration {
    /// Whether there is a file.
    pub(in crate::doctor) is_there: bool,
    /// Its path on the host.
    pub(in crate::doctor) name: String,
    pub(in crate::doctor) config: Result<Config, String>,
    /// Whether it asks for in-kernel KSM, which an invalid one may do as well.
    asks_for_ksm: bool,
    /// Why this user may not read it.
    pub(in crate::doctor) closed: Option<String>,
    pub(in crate::doctor) resolved: Option<ResolvedSettings>,
    /// Named control groups that do not exist.
    pub(in crate::doctor) missing: Vec<String>,
    pub(in crate::doctor) answer: Result<Answer, NoAnswer>,
    pub(in crate::doctor) has_systemd: bool,
    pub(in crate::doctor) has_unit: bool,
    /// Whether the unit starts with the host.
    pub(in crate::doctor) is_enabled: bool,
}

impl HostConfiguration {
    /// Reads the state, from the named file, or from the default one, which may be missing.
    pub(in crate::doctor) fn read(
        root: &Root,
        named: Option<&Path>,
        sources: &Sources<'_>,
    ) -> HostConfiguration {
        let path = named.map_or_else(|| root.at(Path::new(config::DEFAULT)), Path::to_owned);
        let mut config = Config::default();
        let read = config::read(&path, named.is_some(), &mut config);
        let asks_for_ksm = config.settings.text("backend") == Some(Backend::Ksm.name());
        let checked = read.and_then(|()| check(root, &config));
        // A message names the file's path on the host.
        let config = checked.map(|()| config);
        let resolved = config
            .as_ref()
            .ok()
            .and_then(|all| all.settings.resolve().ok());
        let socket = resolved.as_ref().map(|resolved| &resolved.daemon.socket);
        let socket = socket.map_or(Path::new(SOCKET), PathBuf::as_path);
        let answer = (sources.daemon)(&root.at(socket));
        let units = [
            "etc/systemd/system",
            "usr/lib/systemd/system",
            "lib/systemd/system",
        ];
        let wants = root.list(units[0]).into_iter().filter(|folder| {
            let name = folder.extension().unwrap_or_default();
            name == "wants" || name == "requires"
        });
        HostConfiguration {
            is_there: path.exists() || path.with_file_name("conf.d").exists(),
            name: root.name(&path),
            missing: config
                .as_ref()
                .map_or_else(|_| Vec::new(), |all| missing(root, all)),
            resolved,
            config,
            asks_for_ksm,
            closed: closed(&path),
            answer,
            has_systemd: root.has("run/systemd/system"),
            has_unit: units
                .iter()
                .any(|folder| root.has(&format!("{folder}/uksm.service"))),
            // A link to a unit of the host; its target may be missing below another root.
            is_enabled: wants
                .map(|folder| folder.join("uksm.service"))
                .any(|unit| unit.symlink_metadata().is_ok()),
        }
    }

    /// The configuration, if it is valid.
    pub(in crate::doctor) fn config(&self) -> Option<&Config> {
        self.config.as_ref().ok()
    }

    /// The daemon's answer, if there is one.
    pub(in crate::doctor) fn answer(&self) -> Option<&Answer> {
        self.answer.as_ref().ok()
    }

    /// The path of the device.
    pub(in crate::doctor) fn device(&self) -> PathBuf {
        let set = self
            .resolved
            .as_ref()
            .map(|resolved| &resolved.daemon.device);
        set.map_or(Path::new(uksm_linux::module::DEVICE_PATH), PathBuf::as_path)
            .to_owned()
    }

    /// Whether the daemon drives in-kernel KSM, or is configured to.
    pub(in crate::doctor) fn drives_ksm(&self) -> bool {
        self.asks_for_ksm || matches!(self.answer, Ok(Answer::Ksm(_)))
    }

    /// Whether hints are on.
    pub(in crate::doctor) fn wants_hints(&self) -> bool {
        let params = self.resolved.as_ref().map(|resolved| &resolved.params);
        params.is_none_or(|params| params.hint_runs > 0)
    }

    /// Whether huge pages are split if that pays.
    pub(in crate::doctor) fn splits_huge_pages(&self) -> bool {
        let params = self.resolved.as_ref().map(|resolved| &resolved.params);
        params.is_none_or(|params| params.thp != Thp::Never)
    }

    /// Whether only zeros are merged by the general settings.
    pub(in crate::doctor) fn merges_zeros_only(&self) -> bool {
        let params = self.resolved.as_ref().map(|resolved| &resolved.params);
        params.is_some_and(|params| params.merge == Contents::Zero)
    }

    /// Whether locked memory is merged, in general or in some group.
    pub(in crate::doctor) fn merges_locked(&self) -> bool {
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

    /// Marks the target processes.
    pub(in crate::doctor) fn mark_targets(&self, proc: &Proc, processes: &mut [HostProcess]) {
        let Ok(config) = &self.config else { return };
        let groups = config.groups.iter().map(|group| &group.settings.targets);
        // A rule without targets is about all processes.
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

    /// Savings of the daemon, if it answers.
    pub(in crate::doctor) fn saved_bytes(&self) -> Option<u64> {
        let pages = match self.answer.as_ref().ok()? {
            Answer::Status(status) => status.saved.saved_pages(),
            Answer::Groups(groups) => {
                let workers = groups.groups.iter();
                let workers = workers.filter_map(|group| group.status.as_ref());
                workers.map(|status| status.saved.saved_pages()).sum()
            }
            _ => return None,
        };
        Some(u64::try_from(pages).unwrap_or(0) * PAGE_SIZE)
    }
}

/// Why the configuration cannot be opened: it may be its owner's alone, which is no fault.
pub(in crate::doctor) fn closed(path: &Path) -> Option<String> {
    let folder = path.with_file_name("conf.d");
    let read = regular_file::open_regular(path).map(drop);
    let listed = std::fs::read_dir(&folder).map(drop);
    [(path, read), (&folder, listed)]
        .into_iter()
        .find_map(|(path, opened)| {
            let error = opened.err()?;
            let is_closed = error.kind() == std::io::ErrorKind::PermissionDenied;
            is_closed.then(|| unread(&path.display().to_string(), &error))
        })
}

/// The checks of `uksm run` before it changes anything.
fn check(root: &Root, config: &Config) -> Result<(), String> {
    let resolved = config.settings.resolve()?;
    if ksm::is_asked_for(config)? {
        return Ok(());
    }
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

/// Control groups that are named one by one and do not exist.
pub(in crate::doctor) fn missing(root: &Root, config: &Config) -> Vec<String> {
    let groups = config.groups.iter().map(|group| &group.settings.targets);
    let selections = std::iter::once(&config.settings.targets).chain(groups);
    let cgroups = selections.flat_map(|selection: &Selection| &selection.chosen.cgroups);
    let folders = cgroups.filter(|cgroup| cgroup.is_one()).map(Cgroup::folder);
    folders.filter(|folder| !root.has(folder)).collect()
}
