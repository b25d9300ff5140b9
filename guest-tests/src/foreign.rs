//! Tests of other projects, run beside the module: the guest's side.
//!
//! # Problem
//! Each program is to run in each arm under the same conditions, and its remains (files, processes,
//! settings) must not reach the next.
//!
//! # Approach
//! The program `uksm-foreign` is started by `/init`. For each arm it starts the arm's companion
//! ([`companion`]), then runs the programs one after the other, each in a cgroup and a folder of
//! its own ([`child`]) and after the same settings were written, and prints one [`Record`] a line.
//! `uksm-foreign torture` is the torturer ([`torturer`]), `uksm-foreign read-mappings` reads the
//! mappings of all processes.

pub mod child;
pub mod companion;
pub mod schedule;
pub mod torturer;

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::mount::MsFlags;

use crate::kmsg;
use crate::modules::{Modules, is_loaded};
use child::HUGETLBFS;
use companion::Companion;
use schedule::{Arm, Item, Record, SCHEDULE_PATH, Schedule};
use uksm_vm_protocol::machine::MODULE;
use uksm_vm_protocol::messages::{PLAN_PATH, Plan};

/// Runs the command of the arguments.
///
/// # Errors
/// The error, in one line.
pub fn main(arguments: &[String]) -> Result<(), String> {
    match arguments {
        [] => carry_out(),
        [word] if word == "read-mappings" => companion::read_mappings(),
        [word, spared @ ..] if word == "torture" => {
            let spared: Result<Vec<u32>, _> = spared.iter().map(|pid| pid.parse()).collect();
            let spared = spared.map_err(|e| format!("a process id: {e}"))?;
            torturer::torture(&spared).map_err(|e| e.to_string())
        }
        _ => Err("usage: uksm-foreign [read-mappings | torture PID...]".to_owned()),
    }
}

fn carry_out() -> Result<(), String> {
    let schedule: Schedule = parsed(SCHEDULE_PATH)?;
    let plan: Plan = parsed(PLAN_PATH)?;
    let modules = Modules::new(plan.modules);
    mount_hugetlbfs()?;
    for &arm in &schedule.arms {
        if arm.has_module() && !is_loaded(MODULE) {
            modules.load(MODULE).map_err(|e| e.to_string())?;
        }
        let mut companion = Companion::of(arm)?;
        for item in &schedule.items {
            write_settings(&schedule.settings);
            let record = run(arm, item, &mut companion)?;
            let line = serde_json::to_string(&record).map_err(|e| e.to_string())?;
            let mut out = io::stdout().lock();
            writeln!(out, "{line}").map_err(|e| format!("standard output: {e}"))?;
        }
        companion.end()?;
    }
    Ok(())
}

/// Mounts hugetlbfs for the tests.
fn mount_hugetlbfs() -> Result<(), String> {
    fs::create_dir_all(HUGETLBFS).map_err(|e| format!("{HUGETLBFS}: {e}"))?;
    let kind = Some("hugetlbfs");
    nix::mount::mount(kind, HUGETLBFS, kind, MsFlags::empty(), None::<&str>)
        .map_err(|e| format!("mounting {HUGETLBFS}: {e}"))
}

fn parsed<T: serde::de::DeserializeOwned>(path: &str) -> Result<T, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    serde_json::from_str(&text).map_err(|e| format!("{path}: {e}"))
}

/// Restores settings that the previous program may have changed. Settings that a kernel lacks, or
/// cannot fulfil now (huge pages), show in the program's own outcome, in all arms alike.
fn write_settings(settings: &[(String, String)]) {
    for (path, value) in settings.iter().filter(|(path, _)| Path::new(path).exists()) {
        if let Err(error) = fs::write(path, value) {
            eprintln!("uksm-foreign: {path}: {error}");
        }
    }
}

fn run(arm: Arm, item: &Item, companion: &mut Companion) -> Result<Record, String> {
    let sequence = kmsg::last_sequence().map_err(|e| e.to_string())?;
    companion.ask(item.allowed)?;
    let before = companion.torture();
    let begin = Instant::now();
    let ended = child::run(item, Duration::from_secs(item.bound))
        .map_err(|e| format!("{}: {e}", item.name))?;
    let seconds = begin.elapsed().as_secs_f64();
    let torture = companion.torture().since(before);
    companion.check()?;
    Ok(Record {
        arm,
        item: item.name.clone(),
        status: ended.status,
        seconds,
        output: ended.output,
        complaints: kmsg::complaints_since(sequence).map_err(|e| e.to_string())?,
        torture,
    })
}
