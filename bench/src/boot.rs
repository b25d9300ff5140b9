//! Boots a guest with the harness, runs this program in it, and draws the results.
//!
//! Nothing links to the harness. It is a program, found beside this one or run by cargo, and its
//! options select the work. Results come out of the guest's `/results`.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use rustix::process::{Signal, set_parent_process_death_signal};
use uksm_results::clock::Clock;
use uksm_results::pictures;
use uksm_results::report::Report;

use crate::demo::display::Display;
use crate::experiments::{self, Needs};

/// Memory of the demo's guest: five redis-servers, the workload, and room.
const DEMO_MIB: u32 = 1024;

/// Every program at the same addresses, each time it is started. Emulation translates a program
/// anew at every new address, which took a tenth of a second of CPU a start; a real processor does
/// not.
const FIXED_ADDRESSES: &str = "norandmaps";

/// CPUs of the guest, by the unit of CPU time. On a clock of instructions those of all CPUs add up
/// to one time, so that a process would be charged with the work of others on another CPU: only
/// with one CPU a nanosecond of CPU is an instruction. A guest that runs guests is emulated one CPU
/// after the other, and charges during another CPU's turn would be just as wrong.
fn cpus(clock: Clock, needs: &Needs) -> &'static str {
    match clock {
        Clock::Time if needs.packed.contains(&"--nested") => "1",
        Clock::Time => "2",
        Clock::Instructions => "1",
    }
}

/// What the harness does so that emulation distorts less. Each can be left out, which shows what it
/// does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ablation {
    /// Each program is at the same addresses each time it is started
    Addresses,
    /// The host provides the guest's memory before the guest starts
    Memory,
    /// The processor has no fast string instructions, which emulation carries out byte by byte
    Strings,
}

/// The emulated processor with its string instructions.
const ALL_INSTRUCTIONS: &str = "max,la57=off";

/// How a guest is booted.
#[derive(Debug, Clone, Args)]
pub(crate) struct GuestOptions {
    /// Kernel: 6.1, 6.12
    #[arg(long, default_value = "6.12")]
    pub kernel: String,
    /// Memory of the guest in MiB; by default what the work needs
    #[arg(long)]
    pub memory: Option<u32>,
    /// Seed of all contents
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// What CPU is counted in
    #[arg(long, value_enum, default_value_t)]
    pub count: Clock,
    /// Leave out what the harness does so that emulation distorts less
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SWITCH")]
    pub ablate: Vec<Ablation>,
    /// Folder of results
    #[arg(long, default_value = "results")]
    pub results: PathBuf,
    /// Seconds of the host's clock until the guest is given up
    #[arg(long, default_value_t = 3600)]
    pub timeout: u64,
    /// Options for the program in the guest (see `uksm-bench run --help`)
    #[arg(last = true)]
    pub options: Vec<String>,
}

/// Runs an experiment in a guest.
pub(crate) fn experiment(name: &str, guest: &GuestOptions) -> Result<()> {
    run(name, guest, None)
}

/// The same, and makes the emulator count the guest's instructions by task and code, and model
/// caches if wanted.
pub(crate) fn profiled(name: &str, guest: &GuestOptions, caches: bool) -> Result<()> {
    ensure!(
        guest.count == Clock::Instructions,
        "--profile counts instructions: give --count instructions (of make: COUNT=instructions), too"
    );
    experiments::is_profiled(name)?;
    run(name, guest, Some(ProfileContent { caches }))
}

/// Runs the experiment that needs no guest on this machine, by its clock.
pub(crate) fn primitives_here(results: &Path, repeats: usize) -> Result<Report> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let status = Command::new(own)
        .args(["run", "primitives", "--repeats", &repeats.to_string()])
        .arg("--output")
        .arg(results)
        .stdout(Stdio::null())
        .status()
        .context("cannot start this program")?;
    ensure!(status.success(), "primitives failed here: {status}");
    Report::read(&results.join("primitives.json"))
}

/// The content of a profile beside functions.
#[derive(Clone, Copy)]
struct ProfileContent {
    caches: bool,
}

/// The file of the emulator's counts.
pub(crate) fn counts_file(results: &Path, experiment: &str) -> PathBuf {
    results.join(format!("{experiment}.counts"))
}

fn run(name: &str, guest: &GuestOptions, profile: Option<ProfileContent>) -> Result<()> {
    let needs = experiments::needs(name)?;
    let mut command = harness(guest, &needs);
    if let Some(ProfileContent { caches }) = profile {
        std::fs::create_dir_all(&guest.results)
            .with_context(|| format!("cannot create {}", guest.results.display()))?;
        let counts = counts_file(&guest.results, name);
        command.arg("--profile").arg(counts);
        command.args(caches.then_some("--caches"));
    }
    command
        .arg("--")
        .args(["run", name])
        .args(["--count", guest.count.name()])
        .args(profile.map(|_| "--profile"))
        .arg("--seed")
        .arg(guest.seed.to_string());
    let status = command
        .args(&guest.options)
        .status()
        .context("cannot start the harness")?;
    ensure!(
        status.success(),
        "experiment {name} failed in its guest: {status}"
    );
    let json = guest.results.join(format!("{name}.json"));
    ensure!(json.exists(), "the guest left no {}", json.display());
    println!("result {}", json.display());
    draw(&json)
}

/// Runs the demo, showing its progress: servers in one guest, then, if wanted, virtual machines in
/// another one.
pub(crate) fn demo(guest: &GuestOptions, machines: usize) -> Result<()> {
    let begin = Instant::now();
    let needs = Needs {
        memory_mib: DEMO_MIB,
        packed: &["--redis"],
        random_addresses: true,
    };
    let mut command = harness(guest, &needs);
    command
        .args(["--", "demo-guest", "--count", guest.count.name()])
        .arg("--seed")
        .arg(guest.seed.to_string())
        .args(&guest.options);
    eprintln!("-- building the guest (a first run also downloads a kernel and redis)");
    let servers = shown(command, &guest.results.join("demo.json"))?;
    if machines > 0 {
        eprintln!("-- another guest, in which {machines} virtual machines boot for each setting");
        let mut command = harness(guest, &experiments::needs("machines")?);
        command
            .args(["--", "run", "machines", "--cases", "idle", "--repeats", "1"])
            .args(["--variants", "uksm-full,ksm-unlimited", "--seconds", "15"])
            .args(["--count", guest.count.name(), "--crowd"])
            .args([machines.to_string(), "--seed".to_owned()])
            .arg(guest.seed.to_string());
        let report = shown(command, &guest.results.join("machines.json"))?;
        println!("\n{}", crate::demo::summary::machines(&report));
    }
    println!(
        "\n{}\n{}",
        servers.table(),
        crate::demo::summary::text(&servers)
    );
    draw(&guest.results.join("demo.json"))?;
    println!("took {:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}

/// Runs the harness and shows the guest's output; returns the result.
fn shown(mut command: Command, json: &Path) -> Result<Report> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the harness")?;
    let output = child.stdout.take().context("the harness has no output")?;
    let mut display = Display::new();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("cannot read from the harness")?;
        display.show(&String::from_utf8_lossy(&line));
    }
    display.finish();
    let status = child.wait().context("cannot wait for the harness")?;
    ensure!(status.success(), "the demo failed in its guest: {status}");
    Report::read(json)
}

/// Draws a result that has a course over time.
fn draw(json: &Path) -> Result<()> {
    let report = Report::read(json)?;
    if report
        .variants
        .iter()
        .any(|variant| variant.looks.0.len() > 1)
    {
        println!("plot   {}", pictures::draw_beside(json)?.display());
    }
    Ok(())
}

/// The harness, with the command to run this program and the daemon in a guest.
fn harness(guest: &GuestOptions, needs: &Needs) -> Command {
    let beside = std::env::current_exe()
        .ok()
        .map(|own| own.with_file_name("uksm-vm"));
    let mut command = match std::env::var_os("UKSM_VM").map(PathBuf::from).or(beside) {
        Some(program) if program.exists() => Command::new(program),
        _ => {
            let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
            cargo.args([
                "run",
                "--quiet",
                "--package",
                "uksm-vm",
                "--bin",
                "uksm-vm",
                "--",
            ]);
            cargo
        }
    };
    // An abandoned guest would take a processor until its time is up.
    let follow = || Ok(set_parent_process_death_signal(Some(Signal::TERM))?);
    // SAFETY: the closure makes one system call, which is async-signal-safe.
    unsafe { command.pre_exec(follow) };
    command
        .args(["run", "--kernel", &guest.kernel])
        .args([
            "--memory",
            &guest.memory.unwrap_or(needs.memory_mib).to_string(),
        ])
        .args(["--bin", "uksm-bench", "--bin", "uksm"])
        .args(["--seed", &guest.seed.to_string()])
        .args(["--count", guest.count.name()])
        .args(["--cpus", cpus(guest.count, needs)])
        .args(["--timeout", &guest.timeout.to_string()])
        .arg("--results")
        .arg(&guest.results);
    command.args(needs.packed);
    let has = |switch| !guest.ablate.contains(&switch);
    if has(Ablation::Addresses) && !needs.random_addresses {
        command.args(["--parameter", FIXED_ADDRESSES]);
    }
    if has(Ablation::Memory) {
        // A first touch of the guest's memory costs the host a page fault, and KSM touches none.
        command.arg("--preallocate");
    }
    if !has(Ablation::Strings) {
        command.env("UKSM_VM_CPU", ALL_INSTRUCTIONS);
    }
    command
}
