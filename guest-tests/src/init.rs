//! The program `/init` of the guest.
//!
//! Problem: a machine that boots from an initramfs alone needs a program that mounts, loads, runs,
//! reports and powers off, even after an error.
//!
//! Approach: one static program carries out one plan. It reports an action that fails as
//! [`Event::Unable`]; then it powers off. It never returns, because the kernel would panic.

mod mounts;
pub(crate) mod program;
mod runner;

use std::fs;
use std::process::Command;

use nix::sys::reboot::{RebootMode, reboot};

use crate::modules::Modules;
use crate::ports::Reporter;
use crate::{cases, kmsg, ports};
use runner::{Counts, Runner};
use uksm_vm_protocol::machine::PORT_MODULES;
use uksm_vm_protocol::messages::{Event, PLAN_PATH, Plan, VERDICT_PORT, Work};

/// Carries out the plan and powers the machine off.
pub fn init() -> ! {
    if let Err(message) = carry_out() {
        eprintln!("uksm-guest: {message}");
    }
    power_off()
}

fn power_off() -> ! {
    // SAFETY: sync takes no arguments and cannot fail.
    unsafe { libc::sync() };
    let refused = reboot(RebootMode::RB_POWER_OFF);
    // Only pid 1 of a machine gets here, and only if it lacks the right.
    eprintln!("uksm-guest: power off: {refused:?}");
    std::process::exit(1)
}

fn carry_out() -> Result<(), String> {
    mounts::mount_all().map_err(|e| e.to_string())?;
    let text = fs::read_to_string(PLAN_PATH).map_err(|e| format!("{PLAN_PATH}: {e}"))?;
    let plan: Plan = serde_json::from_str(&text).map_err(|e| format!("{PLAN_PATH}: {e}"))?;
    let modules = Modules::new(plan.modules.clone());
    for name in PORT_MODULES {
        modules.load(name).map_err(|e| e.to_string())?;
    }
    let port = ports::open(VERDICT_PORT).map_err(|e| e.to_string())?;
    let reporter = Reporter::new(port);
    let result = work(&plan, &modules, &reporter);
    if let Err(message) = &result {
        reporter.send(&Event::Unable {
            message: message.clone(),
        });
    }
    result
}

fn work(plan: &Plan, modules: &Modules, reporter: &Reporter) -> Result<(), String> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_err(|e| e.to_string())?
        .trim()
        .to_owned();
    let uptime = fs::read_to_string("/proc/uptime").map_err(|e| e.to_string())?;
    let uptime = uptime
        .split_whitespace()
        .next()
        .and_then(|w| w.parse().ok())
        .unwrap_or(0.0);
    reporter.send(&Event::Booted {
        kernel: kernel.clone(),
        uptime,
    });
    for name in &plan.load {
        modules.load(name).map_err(|e| e.to_string())?;
    }
    let counts = match &plan.work {
        Work::Probe => Counts {
            passed: 1,
            failed: 0,
        },
        Work::Tests { names } => Runner {
            kernel,
            seed: plan.seed,
            time_factor: plan.time_factor,
            modules: modules.clone(),
            reporter: reporter.clone(),
        }
        .run_all(&cases::all(), names)?,
        Work::Program {
            path,
            arguments,
            environment,
        } => {
            let status = program::run(path, arguments, environment).map_err(|e| e.to_string())?;
            reporter.send(&Event::Exited { status });
            program::send_results().map_err(|e| format!("bringing out the results: {e}"))?;
            Counts {
                passed: 1,
                failed: 0,
            }
        }
        Work::Shell => {
            shell();
            Counts {
                passed: 1,
                failed: 0,
            }
        }
    };
    let complaints = kmsg::complaints_since(None).map_err(|e| e.to_string())?;
    reporter.send(&Event::Verdict {
        passed: counts.passed,
        failed: counts.failed,
        complaints,
    });
    Ok(())
}

/// A shell with job control on the console, until it exits.
fn shell() {
    let started = Command::new("/bin/busybox")
        .args(["setsid", "-c", "/bin/busybox", "sh", "-l"])
        .env_clear()
        .env("PATH", program::SEARCH_PATH)
        .env("HOME", "/")
        .env("TERM", "linux")
        .env("ENV", "/etc/shellrc")
        .status();
    match started {
        Ok(status) => println!(
            "the shell ended with status {}",
            program::shell_status(status)
        ),
        Err(e) => eprintln!("uksm-guest: /bin/busybox: {e}"),
    }
}
