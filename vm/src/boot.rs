//! One boot of a guest, from its parts to its ending.
//!
//! Approach: pack the initramfs, start QEMU, read until the machine is gone or its time is up, and
//! get the ending from the collector. A dying kernel gets three seconds to print its last messages.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::accel::Accel;
use crate::channel::{Message, Sinks, Sockets, Streams};
use crate::initramfs::Initramfs;
use crate::kernel::Kernel;
use crate::kernel_modules::ModuleIndex;
use crate::module_build::{self, Variant};
use crate::output::SharedOutput;
use crate::verdict::{Collector, Ending};
use crate::{cache, programs, qemu};
use uksm_vm_protocol::machine::PORT_MODULES;
use uksm_vm_protocol::machine::{MODULE, Machine};
use uksm_vm_protocol::messages::{Event, MODULE_DIR, ModuleFile, PLAN_PATH, Plan, Work};

/// Time in which a dying kernel may print.
const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time in which the machine must power off after its verdict.
const POWER_OFF_TIMEOUT: Duration = Duration::from_secs(20);
/// Time in which a machine must report a test's result, beyond the test's own bound: its processes
/// have two minutes to end. A machine whose clock or processors stand still reports nothing.
const TEST_GRACE: Duration = Duration::from_secs(150);
/// Maximum number of boots of a machine.
const MAX_BOOTS: u32 = 3;
/// Lines of the console that are shown when a run did not pass.
const CONSOLE_TAIL_LINES: usize = 60;

/// What to boot, and the work there.
pub struct Boot<'a> {
    /// A label for the log's name.
    pub label: String,
    /// The kernel.
    pub kernel: &'a Kernel,
    /// KVM or emulation.
    pub accel: Accel,
    /// Kind of machine.
    pub machine: Machine,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// CPUs.
    pub cpus: u32,
    /// Whether QEMU takes all memory before the guest starts.
    pub preallocate: bool,
    /// Size of an empty disk in MiB.
    pub disk_mib: Option<u64>,
    /// The work.
    pub work: Work,
    /// The module's variant to pack; none for a machine without it.
    pub variant: Option<Variant>,
    /// Whether the module is loaded before the work begins.
    pub load: bool,
    /// Modules of the kernel's own that are loaded as well; they must be among the packed ones.
    pub load_too: Vec<String>,
    /// Whether an emulated machine that ends without a verdict is booted again, at any moment of
    /// its work: guests of guests occasionally end the emulator.
    pub again_if_lost: bool,
    /// Modules of the kernel's own to pack.
    pub kernel_modules: &'a [&'a str],
    /// Additional contents.
    pub files: Initramfs,
    /// Additional kernel parameters.
    pub parameters: Vec<String>,
    /// A plugin of QEMU and its arguments; see [`crate::plugin`].
    pub plugin: Option<OsString>,
    /// Seed of everything random in the guest.
    pub seed: u64,
    /// Factor of time bounds.
    pub time_factor: u32,
    /// The machine is ended after this time.
    pub bound: Duration,
}

/// The result of a boot.
#[derive(Debug)]
pub struct Report {
    /// Its ending.
    pub ending: Ending,
    /// All its messages.
    pub collector: Collector,
    /// The console's log.
    pub log: PathBuf,
}

/// Receivers of output and events.
pub struct Outputs<'a> {
    /// The program's standard output.
    pub stdout: Box<dyn Write + Send>,
    /// The program's standard error.
    pub stderr: Box<dyn Write + Send>,
    /// Folder for result files.
    pub results: Option<PathBuf>,
    /// Whether a person uses the console.
    pub interactive: bool,
    /// Called for every event as it comes.
    pub event: &'a mut dyn FnMut(&Event),
}

impl<'a> Outputs<'a> {
    /// Discards output and passes on events.
    pub fn events_only(event: &'a mut dyn FnMut(&Event)) -> Self {
        Self {
            stdout: Box::new(io::sink()),
            stderr: Box::new(io::sink()),
            results: None,
            interactive: false,
            event,
        }
    }
}

/// Boots a machine and stays with it until it is gone.
///
/// An emulated machine that dies before its first program starts is booted again, up to
/// `MAX_BOOTS` times in all: several emulated processors patching code at boot occasionally kill
/// a stock kernel in that moment, and nothing of ours has run by then. A machine that is lost later
/// is booted again only with [`Boot::again_if_lost`].
///
/// # Errors
/// It could not be started: something is missing or does not build.
pub fn run(mut boot: Boot, outputs: Outputs) -> Result<Report> {
    let folder = tempfile::Builder::new()
        .prefix("uksm-vm.")
        .tempdir()
        .context("folder of the machine")?;
    let initramfs = folder.path().join("initramfs");
    pack(&mut boot, &initramfs)?;
    let stdout = SharedOutput::new(outputs.stdout);
    let stderr = SharedOutput::new(outputs.stderr);
    for attempt in 1.. {
        let place = folder.path().join(attempt.to_string());
        fs::create_dir(&place).with_context(|| place.display().to_string())?;
        let mut booted = false;
        let mut event = |event: &Event| {
            booted |= matches!(event, Event::Booted { .. });
            (outputs.event)(event);
        };
        let attempted = Outputs {
            stdout: Box::new(stdout.clone()),
            stderr: Box::new(stderr.clone()),
            results: outputs.results.clone(),
            interactive: outputs.interactive,
            event: &mut event,
        };
        let begin = Instant::now();
        let report = once(&boot, &initramfs, &place, attempted)?;
        let why = match &report.ending {
            Ending::KernelDied(reason) if !booted => {
                format!("{reason} before the first program started")
            }
            Ending::Lost(reason) if boot.again_if_lost && begin.elapsed() < boot.bound => {
                reason.clone()
            }
            _ => return Ok(report),
        };
        if attempt == MAX_BOOTS || !boot.accel.is_emulated() {
            return Ok(report);
        }
        eprintln!(
            "{}: booting again ({attempt} of {MAX_BOOTS} machines are gone): {why}",
            boot.label
        );
    }
    unreachable!("the last attempt returns")
}

fn once(boot: &Boot, initramfs: &Path, place: &Path, outputs: Outputs) -> Result<Report> {
    let expected = match &boot.work {
        Work::Tests { names } => u64::try_from(names.len())?,
        _ => 0,
    };
    let disk = boot.disk_mib.map(|mib| empty_disk(place, mib));
    let disk = disk.transpose()?;
    let hardware = qemu::Hardware {
        kernel: &boot.kernel.image,
        initramfs,
        accel: boot.accel,
        memory_mib: boot.memory_mib,
        cpus: boot.cpus,
        preallocate: boot.preallocate,
        disk: disk.as_deref(),
        machine: boot.machine,
        parameters: &boot.parameters,
        plugin: boot.plugin.as_deref(),
    };
    let sockets = Sockets::listen(place, !outputs.interactive)?;
    let complaints = place.join("qemu.stderr");
    let mut child = qemu::command(&hardware, &sockets)
        .stderr(Stdio::from(File::create(&complaints)?))
        .spawn()
        .with_context(|| format!("{}: run scripts/setup", qemu::PROGRAM))?;
    let log = log_path(boot)?;
    let sinks = Sinks {
        stdout: outputs.stdout,
        stderr: outputs.stderr,
        results: outputs.results,
        console: Box::new(BufWriter::new(
            File::create(&log).with_context(|| log.display().to_string())?,
        )),
    };
    let accepted = sockets.accept(sinks, || matches!(child.try_wait(), Ok(None)));
    let mut collector = Collector::new(expected);
    let gone = match accepted {
        Ok(streams) => {
            let gone = follow(
                &mut child,
                &streams,
                &mut collector,
                boot.bound,
                &complaints,
                outputs.event,
            );
            streams.finish().context("reading from the machine")?;
            gone
        }
        Err(error) => {
            end(&mut child);
            error.to_string()
        }
    };
    let text = fs::read_to_string(&complaints).unwrap_or_default();
    let gone = if text.trim().is_empty() {
        gone
    } else {
        format!("{gone}; QEMU said: {}", text.trim())
    };
    Ok(Report {
        ending: collector.ending(&gone),
        collector,
        log,
    })
}

/// The end of the console's log.
#[must_use]
pub fn console_tail(log: &Path) -> String {
    let text = fs::read(log)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    crate::tool::last_lines(&text, CONSOLE_TAIL_LINES)
}

/// A file of this size with nothing in it, which takes no room of this machine yet.
fn empty_disk(place: &Path, mib: u64) -> Result<PathBuf> {
    let path = place.join("disk");
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    file.set_len(mib << 20)
        .with_context(|| path.display().to_string())?;
    Ok(path)
}

fn log_path(boot: &Boot) -> Result<PathBuf> {
    let folder = cache::root()?.join("logs");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder.join(format!("{}-{}.console", boot.kernel.name, boot.label)))
}

fn pack(boot: &mut Boot, target: &Path) -> Result<()> {
    let mut archive = Initramfs::new();
    let guest = programs::build(&["uksm-guest"])?;
    archive.file("/init", &guest["uksm-guest"], 0o755)?;
    let names: Vec<&str> = PORT_MODULES
        .iter()
        .chain(boot.kernel_modules)
        .copied()
        .collect();
    let mut modules = Vec::new();
    for module in ModuleIndex::of(boot.kernel)?.pack(&names)? {
        if let (Some(contents), Some(file)) = (module.contents, &module.entry.file) {
            archive.contents(Path::new(MODULE_DIR).join(file), contents, 0o644);
        }
        modules.push(module.entry);
    }
    let mut load = boot.load_too.clone();
    if let Some(variant) = boot.variant {
        for built in module_build::build(boot.kernel, variant)? {
            let file = format!("{}.ko", built.name);
            archive.file(Path::new(MODULE_DIR).join(&file), &built.file, 0o644)?;
            modules.push(ModuleFile {
                name: built.name.to_owned(),
                file: Some(file),
                needs: built.needs.iter().map(ToString::to_string).collect(),
            });
        }
        if boot.load {
            load.push(MODULE.to_owned());
        }
    }
    let plan = Plan {
        work: boot.work.clone(),
        modules,
        load,
        seed: boot.seed,
        time_factor: boot.time_factor,
    };
    archive.contents(PLAN_PATH, serde_json::to_vec(&plan)?, 0o644);
    let file = File::create(target).with_context(|| target.display().to_string())?;
    let mut output = BufWriter::new(file);
    archive.absorb(std::mem::take(&mut boot.files));
    archive.write(&mut output)?;
    output.flush()?;
    Ok(())
}

/// Reads until the machine is gone; returns how it ended.
fn follow(
    child: &mut Child,
    streams: &Streams,
    collector: &mut Collector,
    bound: Duration,
    complaints: &Path,
    event: &mut dyn FnMut(&Event),
) -> String {
    let mut deadline = Instant::now() + bound;
    // Deadline of the running test, and its bound in seconds.
    let mut test_end: Option<(Instant, u64)> = None;
    let mut closing = false;
    let gone = loop {
        let wait = deadline
            .saturating_duration_since(Instant::now())
            .min(Duration::from_millis(500));
        match streams.messages.recv_timeout(wait) {
            Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => {
                break "QEMU ended".to_owned();
            }
            Ok(message) => {
                if let Message::Event(received) = &message {
                    event(received);
                    test_end = end_of_test(received, test_end);
                }
                collector.take(&message);
                if !closing && (collector.is_fatal() || collector.has_verdict()) {
                    closing = true;
                    deadline = Instant::now()
                        + if collector.is_fatal() {
                            LAST_OUTPUT_TIMEOUT
                        } else {
                            POWER_OFF_TIMEOUT
                        };
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                // QEMU stops a guest that KVM cannot run, and waits for ever.
                if fs::read_to_string(complaints)
                    .is_ok_and(|text| text.contains("KVM internal error"))
                {
                    break "KVM cannot run it".to_owned();
                }
            }
        }
        let now = Instant::now();
        if let Some((end, bound)) = test_end.filter(|_| !closing)
            && now >= end
        {
            break format!("nothing came of a test that may take {bound} s");
        }
        if now >= deadline {
            break if closing {
                "it did not power off".to_owned()
            } else {
                format!("its time, {} s, was up", bound.as_secs())
            };
        }
    };
    end(child);
    // Messages still in transit.
    while let Ok(message) = streams.messages.recv_timeout(Duration::from_secs(5)) {
        if let Message::Event(received) = &message {
            event(received);
        }
        collector.take(&message);
    }
    gone
}

/// Deadline of the test that runs after this event, and its bound in seconds.
fn end_of_test(event: &Event, before: Option<(Instant, u64)>) -> Option<(Instant, u64)> {
    match event {
        Event::Started { bound: 0, .. } | Event::Passed { .. } | Event::Failed { .. } => None,
        Event::Started { bound, .. } => Some((
            Instant::now() + Duration::from_secs(*bound) + TEST_GRACE,
            *bound,
        )),
        _ => before,
    }
}

/// Ends QEMU. If it has powered itself off, this only waits.
fn end(child: &mut Child) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(500) {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // It may be gone already.
    let _gone = child.kill();
    let _status = child.wait();
}
