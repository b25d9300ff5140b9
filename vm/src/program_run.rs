//! One program, or a shell, in a guest.
//!
//! Approach: programs of the workspace are built static, others are packed with their libraries;
//! redis-server comes from the package sources. Output is streamed; files in `/results` are brought
//! out when the program ends.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::accel::Clock;
use crate::boot::{self, Boot, Outputs, Report};
use crate::initramfs::Initramfs;
use crate::kernel::Kernel;
use crate::module_build::Variant;
use crate::{criu, java, kvm_probe, nested, plugin, postgres, programs, python, redis};
use uksm_vm_protocol::machine::Machine;
use uksm_vm_protocol::messages::{Event, Work};

/// What to run, and in which machine.
#[derive(Debug, Clone)]
pub struct Request {
    /// Programs of the workspace to build and pack into `/bin`.
    pub bins: Vec<String>,
    /// The program to run: a file of this machine, or the name of one in
    /// `/bin`; the first of `bins` if none.
    pub program: Option<PathBuf>,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its environment.
    pub environment: Vec<(String, String)>,
    /// More files, `here` or `here:there`.
    pub with: Vec<String>,
    /// Whether redis-server is packed.
    pub redis: bool,
    /// Whether Python is packed.
    pub python: bool,
    /// Whether a Java runtime is packed.
    pub java: bool,
    /// Whether PostgreSQL is packed, and a shell.
    pub postgres: bool,
    /// Whether criu is packed with the kernel's modules that it needs, and a shell.
    pub criu: bool,
    /// Whether it runs guests of its own, with the first of `bins` as their `/init`.
    pub nested: bool,
    /// Modules of the kernel's own to pack and load.
    pub kernel_modules: Vec<String>,
    /// The module's variant, loaded before the program starts.
    pub variant: Option<Variant>,
    /// Kind of machine.
    pub machine: Machine,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// CPUs.
    pub cpus: u32,
    /// The source of the guest's clock.
    pub clock: Clock,
    /// Whether QEMU takes all memory before the guest starts.
    pub preallocate: bool,
    /// Size of an empty disk in MiB.
    pub disk_mib: Option<u64>,
    /// More kernel parameters.
    pub parameters: Vec<String>,
    /// Folder for result files.
    pub results: Option<PathBuf>,
    /// File for a profile of the guest's instructions, by task and block; see [`plugin`].
    pub profile: Option<PathBuf>,
    /// Whether the profile models caches as well.
    pub caches: bool,
    /// The machine is ended after this time.
    pub bound: Duration,
    /// Seed of everything random.
    pub seed: u64,
}

/// Runs a program in a guest.
///
/// # Errors
/// Something is missing or does not build.
pub fn run(kernel: &Kernel, request: &Request) -> Result<Report> {
    if request.profile.is_some() && request.clock != Clock::Instructions {
        bail!("--profile counts instructions: give --count instructions, too");
    }
    let mut files = Initramfs::new();
    let programs = pack(kernel, request, &mut files)?;
    let plugin = match &request.profile {
        Some(output) => {
            let plugin = plugin::build()?;
            Some(plugin::option(&plugin, output, request.caches, &programs))
        }
        None => None,
    };
    let path = match (&request.program, request.bins.first()) {
        (Some(program), _) => guest_path(program)?,
        (None, Some(first)) => format!("/bin/{first}"),
        (None, None) => bail!("name a program: --bin of the workspace, or --program"),
    };
    let mut environment = request.environment.clone();
    environment.push(("UKSM_SEED".into(), request.seed.to_string()));
    let work = Work::Program {
        path,
        arguments: request.arguments.clone(),
        environment,
    };
    if let Some(folder) = &request.results {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let outputs = Outputs {
        stdout: Box::new(io::stdout()),
        stderr: Box::new(io::stderr()),
        results: request.results.clone(),
        interactive: false,
        event: &mut |event| {
            if let Event::Unable { message } = event {
                eprintln!("the guest: {message}");
            }
        },
    };
    boot(kernel, request, work, files, plugin, outputs)
}

/// A shell on the console of a guest.
///
/// # Errors
/// Something is missing or does not build.
pub fn shell(kernel: &Kernel, request: &Request) -> Result<Report> {
    let mut files = Initramfs::new();
    pack(kernel, request, &mut files)?;
    pack_busybox(&mut files)?;
    files.contents(
        "/etc/shellrc",
        b"PS1='guest# '\necho 'uksm is loaded; leave with exit or Ctrl-D'\n".to_vec(),
        0o644,
    );
    let outputs = Outputs {
        stdout: Box::new(io::stdout()),
        stderr: Box::new(io::stderr()),
        results: None,
        interactive: true,
        event: &mut |event| {
            if let Event::Unable { message } = event {
                eprintln!("the guest: {message}");
            }
        },
    };
    let terminal = RawTerminal::enter();
    let report = boot(kernel, request, Work::Shell, files, None, outputs);
    drop(terminal);
    report
}

/// Users of a guest with a shell: some programs refuse to work for root.
const USERS: &str = "root:x:0:0:root:/:/bin/sh\nuser:x:1000:1000:user:/tmp:/bin/sh\n";

/// Packs the small tools of busybox, a shell among them, and the users.
///
/// # Errors
/// It is not installed.
pub fn pack_busybox(files: &mut Initramfs) -> Result<()> {
    let busybox = ["/bin/busybox", "/usr/bin/busybox"]
        .map(Path::new)
        .into_iter()
        .find(|path| path.exists());
    let busybox = busybox.context("busybox is not installed: run scripts/setup")?;
    files.program("/bin/busybox", busybox, &[])?;
    let applets = crate::tool::output(crate::tool::command("busybox").arg("--list"))?;
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        files.link(format!("/bin/{applet}"), "busybox");
    }
    files.contents("/etc/passwd", USERS.into(), 0o644);
    Ok(())
}

fn boot(
    kernel: &Kernel,
    request: &Request,
    work: Work,
    files: Initramfs,
    plugin: Option<OsString>,
    outputs: Outputs,
) -> Result<Report> {
    let mut accel = kvm_probe::detect(kernel, request.clock)?;
    let mut load_too = request.kernel_modules.clone();
    if request.nested {
        accel = accel.nested();
        load_too.push(nested::kvm_module(accel.is_emulated())?.to_owned());
    }
    if request.criu {
        load_too.extend(criu::MODULES.map(str::to_owned));
    }
    let kernel_modules: Vec<&str> = load_too.iter().map(String::as_str).collect();
    let label = match &work {
        Work::Shell => "shell".to_owned(),
        _ => "program".to_owned(),
    };
    let boot = Boot {
        label,
        kernel,
        accel,
        machine: request.machine,
        memory_mib: request.memory_mib,
        cpus: request.cpus,
        preallocate: request.preallocate,
        disk_mib: request.disk_mib,
        work,
        variant: request.variant,
        load: true,
        load_too: load_too.clone(),
        again_if_lost: request.nested,
        kernel_modules: &kernel_modules,
        files,
        parameters: request.parameters.clone(),
        plugin,
        seed: request.seed,
        time_factor: 1,
        bound: request.bound,
    };
    boot::run(boot, outputs)
}

/// Packs the requested files; returns the files of the workspace's programs, in the order of
/// [`Request::bins`].
fn pack(kernel: &Kernel, request: &Request, files: &mut Initramfs) -> Result<Vec<PathBuf>> {
    let mut own = Vec::new();
    if !request.bins.is_empty() {
        let names: Vec<&str> = request.bins.iter().map(String::as_str).collect();
        let built = programs::build(&names)?;
        for (name, file) in &built {
            files.program(format!("/bin/{name}"), file, &[])?;
        }
        if request.nested {
            nested::pack(kernel, &built[names[0]], files)?;
        }
        own.extend(names.iter().map(|&name| built[name].clone()));
    }
    if let Some(program) = request.program.as_ref().filter(|program| is_here(program)) {
        files.program(guest_path(program)?, program, &[])?;
    }
    if request.redis {
        let redis = redis::get()?;
        files.program("/bin/redis-server", &redis.server, &redis.libraries)?;
    }
    if request.python {
        python::pack(files)?;
    }
    if request.java {
        java::pack(files)?;
    }
    if request.postgres {
        pack_busybox(files)?;
        postgres::pack(files)?;
    }
    if request.criu {
        pack_busybox(files)?;
        criu::pack(files)?;
    }
    for item in &request.with {
        let (here, there) = item.split_once(':').unwrap_or((item, ""));
        let here = Path::new(here);
        let there = if there.is_empty() {
            guest_path(here)?
        } else {
            there.to_owned()
        };
        files.program(there, here, &[])?;
    }
    Ok(own)
}

/// A path with a folder in it is a file of this machine, a bare name is one that is packed anyway.
fn is_here(program: &Path) -> bool {
    program
        .parent()
        .is_some_and(|parent| !parent.as_os_str().is_empty())
}

fn guest_path(file: &Path) -> Result<String> {
    let name = file
        .file_name()
        .with_context(|| format!("{}: no file name", file.display()))?;
    Ok(format!("/bin/{}", name.to_string_lossy()))
}

/// Leaves the terminal to the guest's own line discipline, until dropped.
struct RawTerminal {
    before: Option<nix::sys::termios::Termios>,
}

impl RawTerminal {
    fn enter() -> Self {
        use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
        // Without a terminal (a pipe) there is nothing to change.
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            cfmakeraw(&mut raw);
            let _cooked_at_worst = tcsetattr(io::stdin(), SetArg::TCSANOW, &raw);
        }
        Self { before }
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        use nix::sys::termios::{SetArg, tcsetattr};
        if let Some(before) = &self.before {
            let _terminal_is_gone = tcsetattr(io::stdin(), SetArg::TCSANOW, before);
        }
    }
}
