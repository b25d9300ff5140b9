//! Options that name processes, or leave some out.

use clap::Args;
use uksm_linux::selection::{Cgroup, Comm, LibvirtDomain, ProcessName, Selection, Selectors, Unit};

/// Which processes.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// A process by id, or PID@START with its start time in ticks [repeatable]
    #[arg(long, value_name = "PID")]
    pub(super) pid: Vec<ProcessName>,
    /// All processes of a control group and those below it; * ? [] match within a name of the path
    /// [repeatable]
    #[arg(long, value_name = "PATH")]
    pub(super) cgroup: Vec<Cgroup>,
    /// All processes of a service, scope or slice of systemd's system manager; * ? [] match
    /// [repeatable]
    #[arg(long, value_name = "UNIT")]
    pub(super) unit: Vec<Unit>,
    /// All processes of a virtual machine of libvirt; * ? [] match [repeatable]
    #[arg(long, value_name = "NAME")]
    pub(super) libvirt: Vec<LibvirtDomain>,
    /// All processes of this program name; * ? [] match [repeatable]
    #[arg(long, value_name = "NAME")]
    pub(super) comm: Vec<Comm>,
    /// All processes
    #[arg(long)]
    pub(super) all: bool,
}

/// Which processes not.
#[derive(Debug, Args)]
pub(crate) struct ExcludeArgs {
    /// Leave processes alone: a program name, or pid:PID, cgroup:PATH, unit:UNIT, libvirt:NAME,
    /// comm:NAME [repeatable]
    #[arg(long, value_name = "WHAT")]
    pub(super) exclude: Vec<String>,
}

impl TargetArgs {
    /// What was named and not excluded.
    ///
    /// # Errors
    /// A bad `--exclude`.
    pub(super) fn selection(&self, excluded: &ExcludeArgs) -> Result<Selection, String> {
        let mut targets = Selection {
            all: self.all,
            chosen: self.selectors(),
            ..Selection::default()
        };
        for text in &excluded.exclude {
            exclude(text, &mut targets.excluded).map_err(|e| format!("--exclude {e}"))?;
        }
        Ok(targets)
    }

    pub(super) fn selectors(&self) -> Selectors {
        Selectors {
            pids: self.pid.clone(),
            cgroups: self.cgroup.clone(),
            units: self.unit.clone(),
            libvirt: self.libvirt.clone(),
            comms: self.comm.clone(),
        }
    }
}

/// Adds one `--exclude` to the selectors.
fn exclude(text: &str, selectors: &mut Selectors) -> Result<(), String> {
    match text.split_once(':') {
        Some(("pid", pid)) => selectors.pids.push(pid.parse()?),
        Some(("cgroup", path)) => selectors.cgroups.push(path.parse()?),
        Some(("unit", name)) => selectors.units.push(name.parse()?),
        Some(("libvirt", name)) => selectors.libvirt.push(name.parse()?),
        Some(("comm", name)) => selectors.comms.push(name.parse()?),
        _ => selectors.comms.push(text.parse()?),
    }
    Ok(())
}
