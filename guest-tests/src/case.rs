//! A test that runs inside the guest, and its context.
//!
//! Problem: a test of the module may crash, hang, leave processes behind or make the kernel
//! complain, and none of that may affect the next one.
//!
//! Approach: a [`TestCase`] is an entry of a table (`cases::all`). Each runs in a forked child of
//! `/init`, within a time bound, on the kind of [`Machine`] that it names, with the module loaded.
//! It gets a [`Context`], and a panic is its failure. The runner kills processes that the test
//! leaves behind, and searches the kernel's log for complaints before the next one starts.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::kmsg;
use crate::modules::{self, ModuleError, Modules};
use crate::ports::Reporter;
use uksm_vm_protocol::machine::{MODULE, Machine};
use uksm_vm_protocol::messages::Event;

/// The module's device.
pub const DEVICE: &str = "/dev/uksm";

/// The purpose of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Shows that something works.
    Normal,
    /// Turns a safety off and passes if the damage is detected.
    NegativeControl,
    /// Long, many processes, random.
    Stress,
    /// Tests decisions of the daemon that do not depend on the kernel: `make test` runs it on one
    /// kernel.
    Policy,
    /// As [`Kind::Policy`], but takes half a minute or more: not in `make test`, but in
    /// `make long-test`.
    Long,
    /// As large as a large host, for minutes; only if a filter names it.
    Large,
}

/// One test.
pub struct TestCase {
    /// A fact: `page_changed_after_sampling_is_not_merged`.
    pub name: &'static str,
    /// Its purpose.
    pub kind: Kind,
    /// The kind of machine on which it runs.
    pub machine: Machine,
    /// Limit of its time on an emulated machine, in seconds.
    pub bound: u64,
    /// The test; it fails by panicking.
    pub run: fn(&mut Context),
}

/// The reason of a failed test: one sentence with the expected and the real state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(pub String);

impl Failure {
    /// A failure with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Every error can be returned from a test with `?`. (`Failure` itself is no
/// `Error`, so that this does not overlap with the identity conversion.)
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        Self(text)
    }
}

/// The context of a test.
pub struct Context {
    test: String,
    kernel: String,
    seed: u64,
    modules: Modules,
    reporter: Reporter,
    log_start: Option<u64>,
}

impl Context {
    pub(super) fn new(
        test: &str,
        kernel: &str,
        seed: u64,
        modules: Modules,
        reporter: Reporter,
    ) -> Self {
        let log_start = kmsg::last_sequence().ok().flatten();
        Self {
            test: test.to_owned(),
            kernel: kernel.to_owned(),
            seed,
            modules,
            reporter,
            log_start,
        }
    }

    /// Name of the running test.
    #[must_use]
    pub fn test(&self) -> &str {
        &self.test
    }

    /// The kernel, as `uname -r` has it.
    #[must_use]
    pub fn kernel_release(&self) -> &str {
        &self.kernel
    }

    /// Seed of everything random in this test. Print it in a failure.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Opens the module's device: a new domain.
    ///
    /// # Errors
    /// The device is missing or refuses.
    pub fn open_device(&self) -> Result<File, Failure> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(DEVICE)
            .map_err(|e| Failure(format!("{DEVICE}: {e}")))
    }

    /// Loads a module of the initramfs (`uksm`, `zram`, `kvm_amd`, ...) and what
    /// it depends on. Loading one that is loaded, or built in, does nothing.
    ///
    /// # Errors
    /// It is not in the initramfs, or the kernel refuses it.
    pub fn load(&self, module: &str) -> Result<(), Failure> {
        Ok(self.modules.load(module)?)
    }

    /// Loads a module with parameters (`"name=value name=value"`).
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_with(&self, module: &str, parameters: &str) -> Result<(), Failure> {
        Ok(self.modules.load_with(module, parameters)?)
    }

    /// Unloads one module, as `rmmod` does.
    ///
    /// # Errors
    /// The kernel refuses, for example because the device is open.
    pub fn unload(&self, module: &str) -> Result<(), ModuleError> {
        modules::unload(module)
    }

    /// Whether a module is loaded now.
    #[must_use]
    pub fn is_loaded(&self, module: &str) -> bool {
        modules::is_loaded(module)
    }

    /// Whether a module is in the initramfs or built into the kernel.
    #[must_use]
    pub fn has_module(&self, module: &str) -> bool {
        self.modules.knows(module)
    }

    /// Reads `/sys/module/uksm/parameters/<name>`, trimmed.
    ///
    /// # Errors
    /// No such parameter: for fault switches, the test names the wrong
    /// [`Machine`].
    pub fn parameter(&self, name: &str) -> Result<String, Failure> {
        self.read(format!("/sys/module/{MODULE}/parameters/{name}"))
    }

    /// Writes `/sys/module/uksm/parameters/<name>`.
    ///
    /// # Errors
    /// No such parameter, or a value it refuses.
    pub fn set_parameter(&self, name: &str, value: &str) -> Result<(), Failure> {
        self.write(format!("/sys/module/{MODULE}/parameters/{name}"), value)
    }

    /// Reads a small file of proc, sys or cgroup, trimmed.
    ///
    /// # Errors
    /// Names the path.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<String, Failure> {
        let path = path.as_ref();
        let text = fs::read_to_string(path).map_err(|e| at(path, &e))?;
        Ok(text.trim_end().to_owned())
    }

    /// Writes a small file of proc, sys or cgroup.
    ///
    /// # Errors
    /// Names the path.
    pub fn write(&self, path: impl AsRef<Path>, value: &str) -> Result<(), Failure> {
        let path = path.as_ref();
        fs::write(path, value).map_err(|e| at(path, &e))
    }

    /// A line `Name:  123 kB` of `/proc/meminfo` or `/proc/vmstat`-like files:
    /// the number, in the file's own unit.
    ///
    /// # Errors
    /// No such file or line, or no number there.
    pub fn field(&self, path: impl AsRef<Path>, name: &str) -> Result<u64, Failure> {
        let path = path.as_ref();
        let text = self.read(path)?;
        for line in text.lines() {
            let mut words = line.split_whitespace();
            if words
                .next()
                .is_some_and(|w| w.trim_end_matches(':') == name)
            {
                return words
                    .next()
                    .and_then(|w| w.parse().ok())
                    .ok_or_else(|| Failure(format!("{}: no number in '{line}'", path.display())));
            }
        }
        Err(Failure(format!("{}: no line '{name}'", path.display())))
    }

    /// Reports a number.
    pub fn metric(&self, name: &str, value: f64, unit: &str) {
        self.reporter.send(&Event::Metric {
            test: self.test.clone(),
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
        });
    }

    /// Reports a remark.
    pub fn note(&self, text: impl Into<String>) {
        self.reporter.send(&Event::Note {
            text: format!("{}: {}", self.test, text.into()),
        });
    }

    /// Messages of the kernel since this test began.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn kernel_log(&self) -> Result<Vec<String>, Failure> {
        Ok(kmsg::since(self.log_start)?
            .into_iter()
            .map(|r| r.text)
            .collect())
    }
}

fn at(path: &Path, error: &io::Error) -> Failure {
    Failure(format!("{}: {error}", path.display()))
}
