//! jvm: several Java virtual machines with the same service, idle after a collection.
//!
//! Each (`--crowd N`: N of them, four by default) has a heap of 48 MiB (`--size`) that is touched
//! from the start. A third of it holds records, nine tenths of them equal in all. All have worked
//! and collected their garbage before a merging system starts. A run lasts for its whole time,
//! unless 95 % of the equal pages are merged before.
//!
//! The heap of the serial collector is private memory. That of ZGC is a memfd that is mapped
//! several times, so it cannot be merged: there, `uksm explain` and `uksm doctor` must name it.
//!
//! Zeros have columns of their own: `equal_zero_mib` were zeros before, `zero_mib` map the zero
//! page after.
//!
//! Source: dolohow/uksm#23, where KSM saved three times as much of JVMs as UKSM.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use uksm_results::clock::Clock;
use uksm_results::report::{Measured, Report};

use crate::comparison::rounds::interleave_by;
use crate::comparison::trial::{Trial, TrialResult, end_after};
use crate::comparison::watch::Watch;
use crate::guests::huge_pages;
use crate::measure::duplicates::equal_pages;
use crate::measure::pagemap::Counter;
use crate::programs::line_program::LineProgram;
use crate::programs::program_setup::ProgramSetup;
use crate::setup::Setup;
use crate::units::mib;
use crate::variants::uksm::Uksm;
use crate::variants::{System, Variant, ksm};

/// The runtime, where the harness packs it (`uksm-vm run --java`).
const PROGRAM: &str = "/bin/java";
const FOLDER: &str = "/tmp/jvm";
const SERVICE: &str = include_str!("jvm/Service.java");
/// Time for a virtual machine to settle after its service is at rest.
const SETTLE_TIME: Duration = Duration::from_secs(3);
/// Longest wait for an answer about memory that cannot be merged.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs all variants.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("jvm")?;
    ensure!(
        setup.clock == Clock::Time,
        "jvm waits for threads of others: count time"
    );
    huge_pages(setup.huge)?;
    compile()?;
    let count = setup.crowd.first().copied().unwrap_or(4);
    let zero_pages = [(ksm::KsmSwitch::ZeroPages, true)];
    let settings = [
        (Variant::uksm_governor("full"), 60),
        (Variant::ksm_unlimited(), 90),
        (
            Variant::ksm_unlimited().switched("ksm-zero-pages", &zero_pages),
            90,
        ),
    ];
    let trials = settings.map(|(variant, seconds)| Trial {
        variant,
        case: format!("{count} JVMs"),
        specs: Vec::new(),
        limit: setup.limit_or(seconds),
        max_runs: usize::MAX,
    });
    let once = |trial: &Trial, setup: &Setup| once(trial, setup, count);
    report.variants = interleave_by(&once, &trials, setup.repeats.min(3), setup)?;
    report.compare("uksm-full");
    report.variants.push(shared_heap(setup)?);
    Ok(report)
}

/// One run: fresh services, merged, and checked.
fn once(trial: &Trial, setup: &Setup, count: usize) -> Result<TrialResult> {
    let mut services = Vec::new();
    for number in 0..count {
        let is_offered = trial.variant.needs_mergeable();
        services.push(Service::start(number, setup, "Serial", is_offered)?);
    }
    let mut digests = Vec::new();
    for service in &mut services {
        service.answer("worked ")?;
        digests.push(service.digest()?);
    }
    sleep(SETTLE_TIME);
    let pids: Vec<u32> = services.iter().map(Service::pid).collect();
    let equal = equal_pages(&pids)?;
    let mergeable_mib = mib(equal.mergeable());
    let mut counter = Counter::new()?;
    let before = counter.count(&pids)?;
    let mut watch = Watch::new(&pids, setup)?;
    watch.begin()?;
    let mut system = trial.variant.start(setup, &pids)?;
    trial.watch(&mut watch, system.as_mut(), mergeable_mib)?;
    let after = counter.count(&pids)?;
    let mut run = end_after(trial, system, watch, mergeable_mib, move || {
        for (service, before) in services.iter_mut().zip(digests) {
            let after = service.digest()?;
            ensure!(after == before, "records became {after} from {before}");
        }
        // The records of all are unchanged; other pages are not checked.
        Ok(0)
    })?;
    run.figures.extend([
        ("mapped_mib".to_owned(), mib(before.mapped)),
        ("equal_zero_mib".to_owned(), mib(equal.zero.len())),
        (
            "zero_mib".to_owned(),
            mib(after.zero.saturating_sub(before.zero)),
        ),
    ]);
    run.add_half();
    trial.print_progress(&run);
    Ok(run)
}

/// Two services whose heap is shared memory: the reports on it, and the saving beside it.
fn shared_heap(setup: &Setup) -> Result<Measured> {
    let mut services = Vec::new();
    for number in 0..2 {
        services.push(Service::start(number, setup, "Z", false)?);
    }
    for service in &mut services {
        service.answer("worked ")?;
    }
    let pids: Vec<u32> = services.iter().map(Service::pid).collect();
    let before = Counter::new()?.count(&pids)?;
    let options = ["--governor", "full"].map(str::to_owned);
    let mut system = Uksm::start(&setup.uksm, &options, &pids)?;
    let heap_mib = setup.size_or(48) as f64;
    let mut variant = Measured {
        name: "uksm-full".to_owned(),
        case: "2 JVMs, ZGC".to_owned(),
        ..Measured::default()
    };
    let end = Instant::now() + ANSWER_TIMEOUT;
    for &pid in &pids {
        loop {
            let explained = system.asked(&["explain", "--json", &pid.to_string()])?;
            let shared = mib(usize::try_from(pages(&explained, "shared-mapping"))?);
            if shared >= heap_mib {
                variant.figures.insert("shared_mib".to_owned(), shared);
                break;
            }
            ensure!(
                Instant::now() < end,
                "explain names {shared} MiB of shared memory of {heap_mib}: {explained:#}"
            );
            sleep(Duration::from_millis(500));
        }
    }
    let found = doctor(setup)?;
    for pid in &pids {
        let named = format!("java ({pid}): ");
        let mut lines = found.iter();
        let line = lines.find(|line| line.starts_with(&named));
        let line = line.with_context(|| format!("doctor says of shared memory: {found:?}"))?;
        println!("doctor: {line}");
        ensure!(line.contains("as /memfd:java_heap"), "{line}");
    }
    let after = Counter::new()?.count(&pids)?;
    variant.saved_mib = mib(after.saved()) - mib(before.saved());
    variant.finished = true;
    variant.counters = system.report();
    system.stop()?;
    Ok(variant)
}

/// Pages of the process for which `uksm explain` gives this reason.
fn pages(explained: &Value, reason: &str) -> u64 {
    let reasons = explained["processes"][0]["reasons"].as_array();
    let mut reasons = reasons.into_iter().flatten();
    let found = reasons.find(|why| why["reason"] == reason);
    found.and_then(|why| why["pages"].as_u64()).unwrap_or(0)
}

/// Processes with shared memory, a line each, as `uksm doctor` lists them.
fn doctor(setup: &Setup) -> Result<Vec<String>> {
    let mut command = Command::new(&setup.uksm);
    let output = command.args(["doctor", "--json"]).output()?;
    let found: Value = serde_json::from_slice(&output.stdout).context("uksm doctor")?;
    let mut checks = found["checks"].as_array().into_iter().flatten();
    let check = checks.find(|check| check["name"] == "shared-memory");
    let lines = check.and_then(|check| check["details"].as_array());
    let lines = lines.into_iter().flatten().filter_map(Value::as_str);
    Ok(lines.map(str::to_owned).collect())
}

/// Compiles the service: the runtime has the compiler's classes.
fn compile() -> Result<()> {
    fs::create_dir_all(FOLDER).context(FOLDER)?;
    let source = format!("{FOLDER}/Service.java");
    fs::write(&source, SERVICE).with_context(|| source.clone())?;
    let status = Command::new(PROGRAM)
        .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
        .args(["-m", "jdk.compiler/com.sun.tools.javac.Main"])
        .args(["-d", FOLDER, &source])
        .status();
    let status = status.with_context(|| format!("cannot start {PROGRAM}: boot with --java"))?;
    ensure!(status.success(), "{source} cannot be compiled: {status}");
    Ok(())
}

/// A virtual machine with its service. Dropping it ends it.
struct Service(LineProgram);

impl Service {
    /// Starts one with this collector; `mergeable` offers it to in-kernel KSM.
    fn start(number: usize, setup: &Setup, collector: &str, mergeable: bool) -> Result<Service> {
        let heap_mib = setup.size_or(48);
        let records = heap_mib * 1000 / 3;
        let mut command = Command::new(PROGRAM);
        command
            .arg(format!("-Xms{heap_mib}m"))
            .arg(format!("-Xmx{heap_mib}m"))
            .arg(format!("-XX:+Use{collector}GC"))
            .args(["-XX:+AlwaysPreTouch", "-XX:TieredStopAtLevel=1"])
            .args(["-cp", FOLDER, "Service"])
            .args([number.to_string(), records.to_string()]);
        ProgramSetup::host(mergeable).set(&mut command);
        let program = LineProgram::start("a JVM", &mut command).context(PROGRAM)?;
        Ok(Service(program))
    }

    fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// A digest of its records.
    fn digest(&mut self) -> Result<u64> {
        self.0.command("digest")?;
        self.answer("digest ")
    }

    fn answer(&mut self, word: &str) -> Result<u64> {
        // The virtual machine writes warnings to the same stream.
        self.0.answer(word, |line| print!("JVM: {line}"))
    }
}
