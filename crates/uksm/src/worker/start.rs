//! The start of a worker, and its run until a stop.

use uksm_linux::discovery::Discovery;
use uksm_linux::machine::LinuxMachine;
use uksm_linux::module::Device;
use uksm_linux::proc::OwnMemory;
use uksm_linux::sleeper::Sleeper;
use uksm_policy::Engine;

use super::locate::Locate;
use super::{HintsFrom, Unmerge, Worker};
use crate::control::Control;
use crate::setting::ResolvedSettings;
use crate::status::Status;
use crate::systemd;

/// The parts of a worker.
pub(crate) struct Start<P> {
    /// Its domain, configured with the seed.
    pub(crate) device: Device,
    /// Its settings.
    pub(crate) resolved: ResolvedSettings,
    /// The policy computes hashes of its own, so the domain's seed is the policy's.
    pub(crate) seed: u64,
    /// The source of processes.
    pub(crate) processes: P,
    /// Wakes it.
    pub(crate) sleeper: Sleeper,
    /// Its requests.
    pub(crate) control: Control,
    /// Its own memory.
    pub(crate) own_memory: OwnMemory,
    /// The source of hints.
    pub(crate) hints: HintsFrom,
}

impl<P: Discovery> Start<P> {
    /// A worker that follows no process yet.
    ///
    /// # Errors
    /// Parameters that contradict each other.
    pub(crate) fn worker(self) -> anyhow::Result<Worker<Device, P>> {
        let ResolvedSettings { daemon, params } = self.resolved;
        let engine = Engine::new(params, self.seed)?;
        if !self.device.is_guarded()? {
            tracing::warn!("the module maps no frames, only zeros are merged: see uksm doctor");
        }
        let mut host = LinuxMachine::new(self.device, self.processes, self.sleeper);
        if daemon.dry_run {
            host = host.dry();
        }
        let governor = daemon.governor.name();
        Ok(Worker::new(
            engine,
            host,
            (self.control, self.own_memory),
            governor,
            self.hints,
        ))
    }
}

/// Works until a stop is asked for.
///
/// # Errors
/// The module fails.
pub(crate) fn work<P: Discovery>(worker: &mut Worker<Device, P>) -> anyhow::Result<()>
where
    LinuxMachine<Device, P>: Unmerge + Locate,
{
    tracing::info!(
        "uksm {} runs, governor {}",
        env!("CARGO_PKG_VERSION"),
        worker.governor()
    );
    systemd::notify(&[sd_notify::NotifyState::Ready]);
    let ended = worker.run();
    systemd::notify(&[sd_notify::NotifyState::Stopping]);
    let status: Status = ended?;
    tracing::info!(
        "stopped: {:.1} MiB saved net of the daemon; merged pages stay merged",
        status.saved.net_mib
    );
    Ok(())
}
