//! The messages between harness and guest.
//!
//! Problem: both sides are built at different times for different targets and
//! one of them may die in the middle of a line.
//!
//! Approach: the harness puts one JSON file, the [`Plan`], into the initramfs. The guest answers
//! with [`Event`]s, one JSON object a line, through the virtio port named [`VERDICT_PORT`]. A line
//! that does not parse is an error of the machine, not of a test. A program's output and its files
//! travel through ports of their own, so that no byte of them can be taken for an event. All times
//! are in seconds.

use serde::{Deserialize, Serialize};

/// Port of the events, guest to harness.
pub const VERDICT_PORT: &str = "uksm.verdict";
/// Port of a program's standard output, raw bytes.
pub const STDOUT_PORT: &str = "uksm.stdout";
/// Port of a program's standard error, raw bytes.
pub const STDERR_PORT: &str = "uksm.stderr";
/// Port of the result files: one tar stream, after the program ended.
pub const FILES_PORT: &str = "uksm.files";
/// Sent by the harness on it when it has all files. A write to a port returns when it is queued,
/// and queued data is lost when a machine powers off.
pub const RECEIVED: u8 = b'.';
/// All ports, in the order in which the machine has them.
pub const PORTS: [&str; 4] = [VERDICT_PORT, STDOUT_PORT, STDERR_PORT, FILES_PORT];

/// Path of the plan in the initramfs.
pub const PLAN_PATH: &str = "/plan.json";
/// Folder of the kernel modules in the initramfs.
pub const MODULE_DIR: &str = "/modules";
/// Folder whose contents are brought out of the guest after a program ended.
pub const RESULT_DIR: &str = "/results";

/// A kernel module in the initramfs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleFile {
    /// Name as in `/proc/modules` (with underscores).
    pub name: String,
    /// File name below [`MODULE_DIR`]; none if it is built into the kernel.
    pub file: Option<String>,
    /// Names of the modules that must be loaded before.
    pub needs: Vec<String>,
}

/// The guest's task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The work.
    pub work: Work,
    /// Modules present in the initramfs.
    pub modules: Vec<ModuleFile>,
    /// Names of the modules to load before the work begins.
    pub load: Vec<String>,
    /// Seed of everything that is random in this boot.
    pub seed: u64,
    /// Time bounds of tests are multiplied by this (1 under KVM, more where
    /// the machine or its kernel is slow).
    pub time_factor: u32,
}

/// The kinds of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Report that the machine works, and power off.
    Probe,
    /// Run these tests, in this order.
    Tests {
        /// Names from the table of tests.
        names: Vec<String>,
    },
    /// Run one program and return its status, output and result files.
    Program {
        /// Path in the guest.
        path: String,
        /// Arguments, without the program's name.
        arguments: Vec<String>,
        /// Additional environment, as (name, value).
        environment: Vec<(String, String)>,
    },
    /// A shell on the console.
    Shell,
}

/// One line from the guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The guest is up.
    Booted {
        /// `uname -r`.
        kernel: String,
        /// Seconds since the kernel started.
        uptime: f64,
    },
    /// A test begins.
    Started {
        /// Its name.
        test: String,
        /// Maximum number of seconds it may take.
        bound: u64,
    },
    /// A test passed.
    Passed {
        /// Its name.
        test: String,
        /// Seconds it took.
        seconds: f64,
    },
    /// A test failed.
    Failed {
        /// Its name.
        test: String,
        /// The reason.
        message: String,
        /// Seconds it took.
        seconds: f64,
    },
    /// A measured number for the record.
    Metric {
        /// The test.
        test: String,
        /// The measured quantity.
        name: String,
        /// The number.
        value: f64,
        /// Its unit.
        unit: String,
    },
    /// A remark for the reader of the log.
    Note {
        /// The text.
        text: String,
    },
    /// The program ended.
    Exited {
        /// Its exit status; 128 + signal if a signal ended it.
        status: i32,
    },
    /// The guest could not do its work at all (no module, no port, ...).
    Unable {
        /// The reason.
        message: String,
    },
    /// The last message: the plan was carried out to its end.
    Verdict {
        /// Tests passed; 1 for a program that was run to its end.
        passed: u64,
        /// Tests failed.
        failed: u64,
        /// Kernel complaints found in the kernel's own log.
        complaints: Vec<String>,
    },
}
