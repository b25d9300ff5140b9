//! `uksm-vm`: stock kernels in QEMU, from the command line.
//!
//! Exit status of `run` and `shell`: the program's own, or one of [`exit_status`].

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use uksm_vm::accel::Clock;
use uksm_vm::boot::{self, Report};
use uksm_vm::exit_status::{self, COMPLAINED, FAILED, LOST};
use uksm_vm::module_build::{self, Variant};
use uksm_vm::program_run::{self, Request};
use uksm_vm::verdict::Ending;
use uksm_vm::{kernel_names, seed};
use uksm_vm_protocol::machine::Machine;

#[derive(Parser)]
#[command(
    about = "Boots stock kernels in QEMU and takes one verdict from inside",
    version
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run one program in a guest: its output is streamed, its status is ours,
    /// what it leaves in /results ($RESULTS) is brought out.
    Run {
        #[command(flatten)]
        guest: GuestArgs,
        /// The program: a path here, or the name of one packed by --bin/--redis.
        #[arg(long)]
        program: Option<PathBuf>,
        /// Folder for what the program leaves in /results.
        #[arg(long)]
        results: Option<PathBuf>,
        /// NAME=VALUE for the program's environment, repeatable.
        #[arg(long)]
        env: Vec<String>,
        /// What the guest's clock follows. A clock of instructions does not depend on what else
        /// this machine does, and stands still for nobody: while the guest is idle, it jumps.
        #[arg(long, value_enum, default_value_t)]
        count: Clock,
        /// File for where the guest's instructions go, by task and block of code, in windows that
        /// the program opens and closes (vm/plugin/). With --count instructions and one CPU.
        #[arg(long)]
        profile: Option<PathBuf>,
        /// In the profile, model a processor's caches as well: many times slower.
        #[arg(long, requires = "profile")]
        caches: bool,
        /// Seconds of real time until the machine is given up.
        #[arg(long, default_value_t = 900)]
        timeout: u64,
        /// The program's arguments, after --.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// A shell in a guest with the module loaded.
    Shell {
        #[command(flatten)]
        guest: GuestArgs,
    },
    /// Get kernels, headers and modules ready; print where they are.
    Fetch {
        /// Kernel, repeatable; all stock ones by default.
        #[arg(long)]
        kernel: Vec<String>,
    },
}

#[derive(Args)]
struct GuestArgs {
    /// Kernel: 6.1, 6.12, 6.1-rt, 6.12-rt.
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// Memory in MiB.
    #[arg(long, default_value_t = 1024)]
    memory: u32,
    /// CPUs.
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Program of the workspace, built static, repeatable; the first is run.
    #[arg(long)]
    bin: Vec<String>,
    /// More files: HERE or HERE:THERE, with the libraries they need; repeatable.
    #[arg(long)]
    with: Vec<String>,
    /// Pack redis-server.
    #[arg(long)]
    redis: bool,
    /// Pack Python with its standard library.
    #[arg(long)]
    python: bool,
    /// Pack a Java runtime.
    #[arg(long)]
    java: bool,
    /// Pack PostgreSQL, and a shell, which it needs.
    #[arg(long)]
    postgres: bool,
    /// Pack criu with the kernel's modules that it needs, and a shell.
    #[arg(long)]
    criu: bool,
    /// Pack and load what running guests needs, whose /init is the first --bin.
    #[arg(long, requires = "bin")]
    nested: bool,
    /// Build of the module, loaded at boot.
    #[arg(long, value_enum, default_value_t = ModuleChoice::Shipped)]
    module: ModuleChoice,
    /// Module of the kernel's own to pack and load (zram, kvm_amd, ...), repeatable.
    #[arg(long)]
    kernel_module: Vec<String>,
    /// Provide all memory before the guest starts: for measuring.
    #[arg(long)]
    preallocate: bool,
    /// Two NUMA nodes.
    #[arg(long)]
    numa: bool,
    /// Size of an empty disk in MiB: /dev/vda, with 1,000 requests a second; it needs
    /// --kernel-module virtio_blk.
    #[arg(long, value_name = "MIB")]
    disk: Option<u64>,
    /// More kernel parameters, repeatable.
    #[arg(long)]
    parameter: Vec<String>,
    /// Seed of everything random; the guest's program finds it in UKSM_SEED.
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ModuleChoice {
    /// As it ships.
    Shipped,
    /// With fault switches.
    Test,
    /// No module.
    None,
}

fn main() -> ExitCode {
    exit_status::of("uksm-vm", carry_out(Cli::parse().verb))
}

fn carry_out(verb: Verb) -> Result<u8> {
    match verb {
        Verb::Run {
            guest,
            program,
            results,
            env,
            count,
            profile,
            caches,
            timeout,
            arguments,
        } => {
            let kernel = kernel_names::named(&guest.kernel)?;
            let mut request = request(guest)?;
            request.program = program;
            request.results = results;
            request.arguments = arguments;
            request.clock = count;
            request.profile = profile;
            request.caches = caches;
            request.bound = Duration::from_secs(timeout);
            for item in env {
                let Some((name, value)) = item.split_once('=') else {
                    anyhow::bail!("--env {item}: write NAME=VALUE");
                };
                request
                    .environment
                    .push((name.to_owned(), value.to_owned()));
            }
            let report = program_run::run(&kernel, &request)?;
            Ok(program_status(&report))
        }
        Verb::Shell { guest } => {
            let kernel = kernel_names::named(&guest.kernel)?;
            let mut request = request(guest)?;
            request.bins.insert(0, "uksm".into());
            request.bound = Duration::from_secs(24 * 3600);
            let report = program_run::shell(&kernel, &request)?;
            Ok(program_status(&report))
        }
        Verb::Fetch { kernel } => {
            for name in kernel_names::or_default(kernel, &kernel_names::STOCK) {
                let kernel = kernel_names::named(&name)?;
                println!("{name}: {} {}", kernel.release, kernel.version);
                println!("  image   {}", kernel.image.display());
                println!("  headers {}", kernel.build.display());
                for variant in [Variant::Shipped, Variant::Test] {
                    for built in module_build::build(&kernel, variant)? {
                        println!("  module  {} ({variant:?})", built.file.display());
                    }
                }
            }
            Ok(0)
        }
    }
}

fn request(guest: GuestArgs) -> Result<Request> {
    Ok(Request {
        bins: guest.bin,
        program: None,
        arguments: Vec::new(),
        environment: Vec::new(),
        with: guest.with,
        redis: guest.redis,
        python: guest.python,
        java: guest.java,
        postgres: guest.postgres,
        criu: guest.criu,
        nested: guest.nested,
        kernel_modules: guest.kernel_module,
        variant: match guest.module {
            ModuleChoice::Shipped => Some(Variant::Shipped),
            ModuleChoice::Test => Some(Variant::Test),
            ModuleChoice::None => None,
        },
        machine: if guest.numa {
            Machine::Numa
        } else {
            Machine::Stock
        },
        memory_mib: guest.memory,
        cpus: guest.cpus,
        clock: Clock::Time,
        preallocate: guest.preallocate,
        disk_mib: guest.disk,
        parameters: guest.parameter,
        results: None,
        profile: None,
        caches: false,
        bound: Duration::ZERO,
        seed: seed::or_new(guest.seed)?,
    })
}

/// Exit status of `run` and `shell`.
fn program_status(report: &Report) -> u8 {
    let status = report
        .collector
        .exit_status()
        .map(|status| u8::try_from(status).unwrap_or(FAILED));
    match &report.ending {
        Ending::Passed => status.unwrap_or(0),
        Ending::Lost(reason) => {
            eprintln!("uksm-vm: the machine was lost: {reason}");
            show_console(report);
            LOST
        }
        Ending::KernelDied(reason) => {
            eprintln!("uksm-vm: {reason}");
            show_console(report);
            COMPLAINED
        }
        Ending::Failed(reasons) => {
            eprintln!("uksm-vm: {}", reasons.join("\n  "));
            show_console(report);
            match status {
                None | Some(0) => COMPLAINED,
                Some(status) => status,
            }
        }
    }
}

fn show_console(report: &Report) {
    eprintln!(
        "--- end of {}\n{}\n---",
        report.log.display(),
        boot::console_tail(&report.log)
    );
}
