//! `uksm worker`: one group's worker, started by the supervisor.
//!
//! Standard input is the channel to the supervisor. The worker opens a domain, or gets that of its
//! predecessor. It works like a daemon of its own, except that its spaces and requests come from
//! the supervisor. It ends with the supervisor.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use uksm_linux::clock;
use uksm_linux::hints::HintReceiver;
use uksm_linux::module::Device;
use uksm_linux::proc::Proc;
use uksm_linux::sleeper::Sleeper;
use uksm_linux::supervised_spaces::SupervisedSpaces;

use crate::failure::Failure;
use crate::groups::wire::channel::Channel;
use crate::groups::wire::messages::{Setup, SupervisorMessage, WorkerMessage};
use crate::groups::worker::sandbox;
use crate::groups::worker::space_channel::space_channel;
use crate::groups::worker::supervisor_requests;
use crate::setting::{ResolvedSettings, Settings};
use crate::worker::HintsFrom;
use crate::worker::start::{self, Start};
use crate::worker::write_reports::WriteReports;
use crate::{log, niceness, signals, startup};

/// Timeout of the supervisor's first messages.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Works until the supervisor ends or stops it. Errors are sent to the supervisor, which logs them.
///
/// # Errors
/// It was not started by a supervisor.
pub(crate) fn worker() -> Result<ExitCode, Failure> {
    let file = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .context("cannot use standard input")?;
    let channel = Channel::of(file);
    let order = channel.receive::<SupervisorMessage>(Some(SETUP_TIMEOUT));
    let Ok(Some((SupervisorMessage::Setup(setup), domain))) = order else {
        return Err(Failure::usage(
            "worker: only `uksm run` starts this command, once for each group".to_owned(),
        ));
    };
    let Err(error) = work(&setup, domain, &channel) else {
        return Ok(ExitCode::SUCCESS);
    };
    match channel.send(&WorkerMessage::Failed(format!("{error:#}")), None) {
        Ok(()) => Ok(ExitCode::FAILURE),
        Err(_gone) => Err(error.into()),
    }
}

fn work(setup: &Setup, domain: Option<OwnedFd>, channel: &Channel) -> anyhow::Result<()> {
    let settings = Settings::of_texts(&setup.settings).map_err(|line| anyhow!(line))?;
    let resolved = settings.resolve().map_err(|line| anyhow!(line))?;
    log::start_worker(resolved.daemon.log);
    niceness::lower_priority(resolved.daemon.nice);
    let device = device(setup, domain, &resolved, channel)?;
    let own_memory = Proc::default().own_memory()?.of_copy();
    // All files that need rights are open; other threads start after this.
    sandbox::give_up_capabilities().context("cannot drop capabilities")?;
    let hints = hints(&resolved, channel)?;
    let sleeper = Sleeper::new().context("cannot make a socket pair")?;
    sleeper.stop_on_signals().context("cannot handle SIGTERM")?;
    // The signal is meant for the supervisor, whose terminal it is.
    let _ignored = signals::hangups(&sleeper)?;
    let waker = sleeper.waker().context("cannot make a socket pair")?;
    let own = channel.try_clone().context("cannot copy the channel")?;
    let (inbox, spaces) = space_channel(channel.try_clone().context("cannot copy the channel")?)
        .context("cannot make an event file")?;
    let control = supervisor_requests::control(own, inbox, waker).map_err(|line| anyhow!(line))?;
    let start = Start {
        device,
        resolved,
        seed: setup.seed,
        processes: SupervisedSpaces::new(spaces),
        sleeper,
        control,
        own_memory,
        hints,
    };
    let mut worker = start.worker()?;
    let own = channel.try_clone().context("cannot copy the channel")?;
    worker.report_writes(WriteReports::by(move |pages| {
        // A supervisor that does not read gets a later report, or has ended.
        let _unsent = own.send(&WorkerMessage::Written(pages), None);
    }));
    sandbox::confine().context("cannot restrict system calls")?;
    tracing::debug!("ready after {} us", clock::process_cpu() / 1000);
    channel.send(&WorkerMessage::Ready, None)?;
    start::work(&mut worker)
}

/// The source of hints: the supervisor has sent it, if they are on.
fn hints(resolved: &ResolvedSettings, channel: &Channel) -> anyhow::Result<HintsFrom> {
    if resolved.params.hint_runs == 0 {
        return Ok(HintsFrom::Nobody);
    }
    match channel.receive::<SupervisorMessage>(Some(SETUP_TIMEOUT)) {
        Ok(Some((SupervisorMessage::Hints, Some(file)))) => {
            Ok(HintsFrom::Supervisor(HintReceiver::of(file)))
        }
        _ => Err(anyhow!("the supervisor sent no hints")),
    }
}

/// The domain: the received one, or a new one, which is sent to the supervisor.
fn device(
    setup: &Setup,
    domain: Option<OwnedFd>,
    resolved: &ResolvedSettings,
    channel: &Channel,
) -> anyhow::Result<Device> {
    let path = &resolved.daemon.device;
    if let Some(file) = domain {
        return Ok(Device::from_file(file, path.clone())?);
    }
    let device = startup::open_device(path, Path::new(&setup.ksm_root))?;
    device.configure(resolved.configuration(setup.seed))?;
    channel.send(&WorkerMessage::Domain, Some(device.as_fd()))?;
    Ok(device)
}
