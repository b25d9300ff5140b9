//! `uksm run --backend ksm` beside in-kernel KSM as shipped, faster, with its advisor and
//! unlimited: on this machine, not in a guest.
//!
//! # Problem
//! Where no module can be loaded, all variants are the same ksmd, driven in other ways. Their
//! savings and costs can be measured natively, as only KSM's knobs are changed; but the knobs are
//! the host's, and so is ksmd.
//!
//! # Approach
//! The workloads of static-mixed and sparse-majority in both orders, and clones, small. In each
//! round every variant meets the same contents, in random order. The variant runs first; then the
//! workload's memory appears, which is offered to KSM as a whole for KSM's own settings, and not at
//! all for uksm, whose agent is in the workload. The clock starts when memory is filled; processor
//! time counts from before that: of uksm from its start, of KSM's own settings from the moment when
//! memory begins to appear. A run ends when nine tenths of the possible saving are reached, or at
//! the end of its window, and its figures are of that moment. Only processes that this program
//! started are mergeable: it refuses to begin if there are others. If this program is killed, a
//! watcher restores the knobs.
//!
//! # Units
//! Seconds, pages, MiB. Processor time is of ksmd, of the daemon, and of the agent's thread.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::json;
use uksm_linux::ksm::memory;
use uksm_linux::ksm::original_settings::OriginalSettings;
use uksm_linux::ksm::sysfs::{KSM_PATH, Sysfs};
use uksm_linux::proc::Proc;
use uksm_testkit::child_process::ChildExit as _;

use crate::measure::cpu::CpuClock;
use crate::rng::{Rng, shuffle};
use crate::variants::System as _;
use crate::variants::ksm::{Ksm, settle};
use crate::workload::Process;

mod table;
mod workloads;

use table::{Figures, KsmRun};
use workloads::{KsmdDriver, VARIANTS, WORKLOADS, Workload};

/// Share of the possible saving at which a run ends.
const WAITED_FOR: f64 = 0.9;

/// Time between two looks at the counters.
const LOOK: Duration = Duration::from_millis(10);

/// The name of the draws of orders.
const ORDER: u64 = 1 << 42;

/// Time within which an agent connects, and a daemon finds it.
const CONNECTED: Duration = Duration::from_millis(1500);

/// Options.
#[derive(Debug, Args)]
pub(crate) struct NativeKsmOptions {
    /// The uksm program
    #[arg(long, default_value = "target/release/uksm")]
    uksm: PathBuf,
    /// The agent's library
    #[arg(long, default_value = "target/release/libuksm_agent.so")]
    agent: PathBuf,
    /// Rounds; each variant runs once in each
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Seconds of a variant that does not get there
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Seed of contents and orders
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the figures of all runs go, as JSON
    #[arg(long, default_value = "results/native-ksm.json")]
    output: PathBuf,
}

/// Runs all, prints the table.
pub(crate) fn run(options: &NativeKsmOptions) -> Result<()> {
    let sysfs = Sysfs::open()?;
    nobody_else_is_mergeable(&sysfs)?;
    let folder = std::env::temp_dir().join(format!("uksm-native-ksm-{}", std::process::id()));
    std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
    let place = KsmHost {
        folder: folder.clone(),
        sysfs,
    };
    let kept = RestoredKnobs::new(options, &place)?;
    let runs = place.all(options);
    drop(kept);
    let _left = std::fs::remove_dir_all(&folder);
    let runs = runs?;
    let kernel = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    println!("{}", table::table(&runs, &kernel, options.seconds));
    let text = serde_json::to_string_pretty(&json!({
        "kernel": kernel, "seed": options.seed, "window_seconds": options.seconds, "runs": runs,
    }))?;
    if let Some(folder) = options.output.parent() {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    std::fs::write(&options.output, text).with_context(|| options.output.display().to_string())
}

/// Other mergeable processes would change all figures.
fn nobody_else_is_mergeable(sysfs: &Sysfs) -> Result<()> {
    let run = sysfs.read("run")?;
    ensure!(
        run == 0,
        "/sys/kernel/mm/ksm/run is {run}: somebody drives KSM on this host"
    );
    let proc = Proc::default();
    let mut pids = Vec::new();
    proc.list(&mut pids)?;
    for pid in pids {
        if memory::offered(&proc, pid, true).is_ok_and(|found| found.is_offered) {
            bail!("process {pid} has mergeable memory: it would be merged and counted along");
        }
    }
    Ok(())
}

/// The host's interfaces for a run.
struct KsmHost {
    folder: PathBuf,
    sysfs: Sysfs,
}

/// The former knobs, which the watcher restores if this program does not.
struct RestoredKnobs {
    before: OriginalSettings,
    sysfs: Sysfs,
    file: PathBuf,
    watcher: Child,
}

impl RestoredKnobs {
    fn new(options: &NativeKsmOptions, place: &KsmHost) -> Result<RestoredKnobs> {
        let before = OriginalSettings::of(&place.sysfs)?;
        let file = place.folder.join("before.json");
        let kept = json!({ "folder": KSM_PATH, "knobs": before.values() });
        std::fs::write(&file, kept.to_string()).with_context(|| file.display().to_string())?;
        let watcher = Command::new(&options.uksm)
            .args(["ksm-watcher", "--ksm-root", KSM_PATH])
            .arg(&file)
            .stdin(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", options.uksm.display()))?;
        let sysfs = place.sysfs.clone();
        Ok(RestoredKnobs {
            before,
            sysfs,
            file,
            watcher,
        })
    }
}

impl Drop for RestoredKnobs {
    fn drop(&mut self) {
        match self.before.put_back(&self.sysfs) {
            Ok(()) => {
                let _gone = std::fs::remove_file(&self.file);
            }
            Err(error) => eprintln!("uksm-bench: KSM's settings are not restored: {error}"),
        }
        drop(self.watcher.stdin.take());
        let _ended = self.watcher.wait();
    }
}

impl KsmHost {
    fn all(&self, options: &NativeKsmOptions) -> Result<Vec<KsmRun>> {
        let mut runs = Vec::new();
        let mut draws = Rng::new(options.seed, ORDER);
        for round in 0..options.repeats {
            let mut order: Vec<_> = WORKLOADS
                .iter()
                .flat_map(|&workload| VARIANTS.map(|variant| (workload, variant)))
                .collect();
            shuffle(&mut order, &mut draws);
            for (workload, variant) in order {
                settle()?;
                let figures = self
                    .one(options, round, workload, variant)
                    .with_context(|| format!("{} on {}", variant.name(), workload.name))?;
                eprintln!(
                    "round {}: {} on {}: {figures}",
                    round + 1,
                    variant.name(),
                    workload.name
                );
                runs.push(KsmRun {
                    round,
                    workload: workload.name.to_owned(),
                    variant: variant.name().to_owned(),
                    figures,
                });
            }
        }
        settle()?;
        Ok(runs)
    }

    /// One run of a variant.
    fn one(
        &self,
        options: &NativeKsmOptions,
        round: usize,
        workload: Workload,
        variant: KsmdDriver,
    ) -> Result<Figures> {
        let seed = options.seed.wrapping_add(round as u64);
        let mut spec = workload.spec(seed);
        spec.mergeable = variant != KsmdDriver::Uksm;
        let possible = workload.possible();
        let before = self.saved()?;
        let ksmd = CpuClock::of(self.sysfs.thread()?)?;
        let mut ksmd_before = ksmd.now()?;
        let mut system = None;
        let mut daemon = None;
        match variant.settings() {
            Some(settings) => system = Some(Ksm::start(&settings)?),
            None => daemon = Some(self.daemon(options, seed)?),
        }
        let wrapper = match variant {
            KsmdDriver::Uksm => self.wrapper(options),
            _ => Vec::new(),
        };
        let mut process = Process::start_under(&wrapper, &spec)?;
        process.ready()?;
        std::thread::sleep(CONNECTED);
        if variant != KsmdDriver::Uksm {
            // Without sleep ksmd walks in circles while there is nothing to scan: this program
            // causes that wait.
            ksmd_before = ksmd.now()?;
        }
        process.appear()?;
        let begun = Instant::now();
        let window = Duration::from_secs(options.seconds);
        let enough = possible as f64 * WAITED_FOR;
        let figures = loop {
            let saved = self.saved()?.saturating_sub(before);
            let seconds = begun.elapsed();
            let is_done = saved as f64 >= enough;
            if is_done || seconds >= window {
                let daemon_cpu = match &daemon {
                    Some(daemon) => daemon.clock.now()?.as_secs_f64(),
                    None => 0.0,
                };
                break Figures {
                    saved_pages: saved,
                    possible_pages: possible as u64,
                    seconds: seconds.as_secs_f64(),
                    is_done,
                    ksmd_seconds: ksmd.now()?.saturating_sub(ksmd_before).as_secs_f64(),
                    daemon_seconds: daemon_cpu,
                    agent_seconds: agent_seconds(process.pid()),
                };
            }
            std::thread::sleep(LOOK);
        };
        if let Some(mut system) = system {
            system.stop()?;
        }
        drop(daemon);
        process.verify()?;
        Ok(figures)
    }

    /// Pages saved on this host.
    fn saved(&self) -> Result<u64> {
        Ok(self.sysfs.counters()?.pages_sharing)
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("agents")
    }

    fn wrapper(&self, options: &NativeKsmOptions) -> Vec<std::ffi::OsString> {
        let words = ["exec", "--merge", "advised", "--agent"].map(Into::into);
        let mut wrapper = vec![options.uksm.clone().into()];
        wrapper.extend(words);
        wrapper.push(options.agent.clone().into());
        wrapper.extend(["--agent-socket".into(), self.socket().into(), "--".into()]);
        wrapper
    }

    fn daemon(&self, options: &NativeKsmOptions, seed: u64) -> Result<Daemon> {
        let path = |name: &str| self.folder.join(name);
        let mut command = Command::new(&options.uksm);
        command
            .args([
                "run",
                "--no-config",
                "--backend",
                "ksm",
                "--comm",
                "uksm-bench",
            ])
            .args(["--log", "warn", "--seed", &seed.max(1).to_string()])
            .arg("--socket")
            .arg(path("socket"))
            .arg("--agent-socket")
            .arg(self.socket())
            .arg("--ksm-before")
            .arg(path("daemon-before.json"))
            .stdin(Stdio::null());
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", options.uksm.display()))?;
        let clock = CpuClock::of(child.id())?;
        let daemon = Daemon { child, clock };
        let begun = Instant::now();
        while !self.socket().exists() {
            ensure!(
                begun.elapsed() < Duration::from_secs(5),
                "uksm did not begin: see its messages"
            );
            std::thread::sleep(LOOK);
        }
        Ok(daemon)
    }
}

/// uksm, running.
struct Daemon {
    child: Child,
    clock: CpuClock,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        let sent = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM));
        match sent {
            Some(Ok(())) => {
                let _ended = self.child.wait();
            }
            _ => self.child.end(),
        }
    }
}

/// Processor time of the agent's thread in a process, if there is one.
fn agent_seconds(pid: u32) -> f64 {
    let used = |task: PathBuf| {
        let comm = std::fs::read_to_string(task.join("comm")).ok()?;
        let stat = std::fs::read_to_string(task.join("schedstat")).ok()?;
        let nanoseconds: f64 = stat.split_whitespace().next()?.parse().ok()?;
        (comm.trim_end() == "uksm-agent").then_some(nanoseconds / 1e9)
    };
    let folder = Path::new("/proc").join(pid.to_string()).join("task");
    let tasks = std::fs::read_dir(folder).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| used(task.path()))
        .fold(0.0, |sum, seconds| sum + seconds)
}
