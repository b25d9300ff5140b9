//! The configuration, and the daemon: whether the configuration is valid and names processes, and
//! whether the daemon runs.
//!
//! # Approach
//! The configuration is read and planned by the code of `uksm run`, so that errors are the same.
//! The daemon is queried like by `uksm status`.

use crate::control::{Answer, NoAnswer};
use crate::doctor::check::{Check, Severity, Verdict};
use crate::doctor::host::Host;
use crate::doctor::probe::FileContent;
use crate::doctor::prospect::Prospect;

pub(in crate::doctor) const CHECKS: &[Check] = &[
    Check {
        name: "configuration",
        finds: "a line of the configuration is not valid; the finding is the error of that line",
        reads: "/etc/uksm/config.toml, /etc/uksm/conf.d",
        worst: Severity::Error,
        cost: "uksm run refuses to start, and uksm reload changes nothing",
        mend: "correct the line or file that is named",
        judge: configuration,
    },
    Check {
        name: "targets",
        finds: "the configuration names no processes; a note if there is no configuration",
        reads: "the configuration",
        worst: Severity::Warning,
        cost: "uksm merges only processes that are named: the service ends with status 2",
        mend: "name processes below [targets], or in groups",
        judge: targets,
    },
    Check {
        name: "named-cgroups",
        finds: "a named control group does not exist",
        reads: "the configuration, /sys/fs/cgroup",
        worst: Severity::Note,
        cost: "nothing is merged for a control group that does not exist; a misspelt name waits \
               for ever",
        mend: "compare the name with `systemd-cgls`",
        judge: named_cgroups,
    },
    Check {
        name: "zero-and-hints",
        finds: "only zeros are merged, and hints are on",
        reads: "the configuration",
        worst: Severity::Note,
        cost: "hints find pages that were just read from files, which are seldom zeros: their \
               processor time is wasted",
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
        mend: "start it, when the module is loaded or without it; `journalctl -u uksm` has its errors",
        judge: daemon,
    },
    Check {
        name: "daemon-version",
        finds: "daemon and program are of two versions",
        reads: "the daemon's status",
        worst: Severity::Warning,
        cost: "the daemon was started before an update, and has not the features of the new \
               program",
        mend: "restart the daemon: merged pages stay merged",
        judge: daemon_version,
    },
    Check {
        name: "groups-run",
        finds: "a group's worker does not run",
        reads: "the daemon's status",
        worst: Severity::Warning,
        cost: "nothing is merged in a group whose worker does not run",
        mend: "see the fault in the finding, and the daemon's log",
        judge: groups_run,
    },
    Check {
        name: "unit",
        finds: "the service is not installed, or does not start with the host",
        reads: "/etc/systemd/system, /usr/lib/systemd/system",
        worst: Severity::Note,
        cost: "after the next start of the host no daemon runs",
        mend: "install the program with `make install` or its package, and enable the unit",
        judge: unit,
    },
];

fn configuration(host: &Host) -> Verdict {
    let configured = &host.configuration;
    match (&configured.config, &configured.closed) {
        (Err(_), Some(why)) => Verdict::unknown(why),
        (Err(line), None) => Verdict::error(line),
        (Ok(_), _) if !configured.is_there => {
            Verdict::ok(format!("there is no {}", configured.name))
        }
        (Ok(_), _) => Verdict::ok(format!("{} is valid", configured.name)),
    }
}

fn targets(host: &Host) -> Verdict {
    let configured = &host.configuration;
    let Ok(config) = &configured.config else {
        return Verdict::unknown("the configuration cannot be read");
    };
    // In-kernel KSM keeps no groups.
    let look = match is_without_module(host) {
        true => "uksm analyze",
        false => "uksm group suggest --all",
    };
    let named = config.settings.targets.all || !config.settings.targets.chosen.is_empty();
    match (named || config.has_groups(), configured.is_there) {
        (true, _) => Verdict::ok("the configuration names processes"),
        (false, true) => Verdict::warning("the configuration names no processes").mend(look),
        (false, false) => {
            Verdict::note("no processes are named, because there is no configuration").mend(look)
        }
    }
}

fn named_cgroups(host: &Host) -> Verdict {
    let missing = &host.configuration.missing;
    match missing.is_empty() {
        true => Verdict::ok("all named control groups exist"),
        false => Verdict::note("some named control groups do not exist").about(missing.clone()),
    }
}

fn zero_and_hints(host: &Host) -> Verdict {
    use uksm_policy::params::Contents;
    let Some(resolved) = &host.configuration.resolved else {
        return Verdict::unknown("the configuration cannot be read");
    };
    match (resolved.params.merge, resolved.params.hint_runs) {
        (Contents::Zero, 1..) => Verdict::note("only zeros are merged (merge), and hints are on"),
        _ => Verdict::ok("hints find pages that may be merged"),
    }
}

fn dry_run(host: &Host) -> Verdict {
    match &host.configuration.resolved {
        None => Verdict::unknown("the configuration cannot be read"),
        Some(resolved) if resolved.daemon.dry_run => Verdict::warning("dry_run is set"),
        Some(_) => Verdict::ok("equal pages are merged"),
    }
}

fn daemon(host: &Host) -> Verdict {
    match &host.configuration.answer {
        Ok(Answer::Error(line)) => Verdict::warning(format!("the daemon answers: {line}")),
        Ok(_) => Verdict::ok("the daemon answers"),
        Err(NoAnswer::NotRunning) => not_running(host),
        Err(NoAnswer::Failed(line)) if !host.rights.may_open() => Verdict::unknown(line),
        Err(NoAnswer::Failed(line)) => Verdict::warning(line).mend("systemctl restart uksm"),
    }
}

fn not_running(host: &Host) -> Verdict {
    let configured = &host.configuration;
    let is_installed = configured.has_systemd && configured.has_unit;
    if configured.config.is_err() {
        return Verdict::note("no daemon runs, and none starts with this configuration");
    }
    if can_start(host) {
        let verdict = Verdict::note("no daemon runs");
        return match is_installed {
            true => verdict.mend("systemctl enable --now uksm"),
            false => verdict.mend("uksm run"),
        };
    }
    match is_without_module(host) && host.kernel.ksm != FileContent::Absent {
        true => Verdict::note("no daemon runs").mend("uksm run --backend ksm --comm NAME"),
        false => Verdict::note("no daemon runs, and it needs the module first (module-loaded)"),
    }
}

/// Whether merging has to do without the module here, as things are.
fn is_without_module(host: &Host) -> bool {
    let has_none = !host.module.is_loaded && Prospect::of(host).is_refused();
    host.configuration.drives_ksm() || has_none
}

/// Whether the service can start: it loads the module, if there is one that accepts this kernel.
fn can_start(host: &Host) -> bool {
    let is_accepted = matches!(Prospect::of(host), Prospect::Tried | Prospect::Unknown(_));
    let is_loadable = is_accepted && host.module.file.is_some();
    host.module.is_loaded || host.configuration.drives_ksm() || is_loadable
}

fn daemon_version(host: &Host) -> Verdict {
    let version = match &host.configuration.answer {
        Ok(Answer::Status(status)) => &status.daemon.version,
        Ok(Answer::Groups(groups)) => &groups.version,
        _ => return Verdict::not_applicable("no daemon reports its version"),
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
        return Verdict::not_applicable("no daemon with groups answers");
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
        (false, _, _) => Verdict::not_applicable("this host has no systemd"),
        (true, _, true) => Verdict::ok("the service starts with the host"),
        (true, _, false) if !configured.drives_ksm() && Prospect::of(host).is_refused() => {
            Verdict::ok(
                "the service does not start with the host, which is right where the module does not load by itself",
            )
        }
        (true, true, false) => {
            Verdict::note("the service does not start with the host").mend("systemctl enable uksm")
        }
        (true, false, false) => Verdict::note("the service is not installed")
            .mend("make install")
            .mend("systemctl daemon-reload && systemctl enable uksm"),
    }
}
