//! KSM's knobs: uksm sets them for a while, and puts them back.
//!
//! # Problem
//! The knobs are the host's: their earlier values must come back when uksm ends, also if it is
//! killed. Only one uksm may have them.
//!
//! # Approach
//! The earlier values are written to a file before the first change. A *watcher*, a process of its
//! own that ignores the signals by which terminals and service managers end groups of processes,
//! holds the other end of a pipe: if that closes without a message, it puts everything back and
//! removes the file. If the watcher is killed as well, the next start finds the file and does so.
//! Both hold a lock on a file beside it, so that no other uksm changes anything before.
//!
//! # Source
//! flock(2): a lock belongs to the open file, which a child that inherits it shares.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use uksm_linux::ksm::original_settings::OriginalSettings;
use uksm_linux::ksm::sysfs::{Counters, Sysfs};
use uksm_linux::proc::Proc;

use crate::cli::KsmWatcherArgs;
use crate::own_program;
use crate::paths::Roots;

/// Timeout of the lock: the watcher of a daemon that was just killed needs some milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);

/// Sent to the watcher when all was put back.
const DONE: u8 = b'd';

/// The file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredSettings {
    folder: PathBuf,
    knobs: BTreeMap<String, String>,
}

/// The knobs. They are put back when this is dropped.
#[derive(Debug)]
pub(crate) struct SettingsGuard {
    sysfs: Sysfs,
    before: OriginalSettings,
    file: PathBuf,
    watcher: Child,
    is_running: bool,
    batch: u64,
    _lock: File,
}

impl SettingsGuard {
    /// Takes the knobs; first puts back the values that an earlier daemon left.
    ///
    /// # Errors
    /// Another uksm has them; they cannot be read, stored or set: one line.
    pub(crate) fn take(sysfs: Sysfs, roots: &Roots, file: &Path) -> anyhow::Result<SettingsGuard> {
        let lock = locked(file)?;
        if let Some(line) = recover(&sysfs, file)? {
            tracing::warn!("{line}");
        }
        let before = OriginalSettings::of(&sysfs)?;
        if before.ran() {
            tracing::warn!(
                "ksmd was running already, for somebody else (ksmtuned, a hypervisor): it runs in uksm's bursts from now on, and as before after that"
            );
        }
        let kept = StoredSettings {
            folder: roots.ksm_root.clone(),
            knobs: before.values().clone(),
        };
        keep(file, &kept)
            .with_context(|| format!("{}: cannot save the settings of KSM", file.display()))?;
        let watcher =
            watch(&lock, roots, file).context("cannot start the watcher of KSM's settings")?;
        let knobs = SettingsGuard {
            sysfs,
            before,
            file: file.to_owned(),
            watcher,
            is_running: false,
            batch: 0,
            _lock: lock,
        };
        OriginalSettings::begin(&knobs.sysfs)?;
        Ok(knobs)
    }

    /// KSM's counters.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn counters(&self) -> anyhow::Result<Counters> {
        Ok(self.sysfs.counters()?)
    }

    /// Pages of zeros that map the kernel's zero page; 0 if the kernel does not report them.
    pub(crate) fn zero_pages(&self) -> u64 {
        self.sysfs.read("ksm_zero_pages").unwrap_or(0)
    }

    /// Whether ksmd runs.
    pub(crate) fn is_running(&self) -> bool {
        self.is_running
    }

    /// Whether ksmd ran before.
    pub(crate) fn ran_before(&self) -> bool {
        self.before.ran()
    }

    /// Lets ksmd run with this number of pages a batch.
    ///
    /// # Errors
    /// It cannot be set.
    pub(crate) fn start(&mut self, batch: u32) -> anyhow::Result<()> {
        if self.batch != u64::from(batch) {
            self.batch = u64::from(batch);
            self.sysfs.write("pages_to_scan", self.batch)?;
        }
        if !self.is_running {
            self.is_running = true;
            self.sysfs.write("run", 1)?;
        }
        Ok(())
    }

    /// Stops ksmd; waits for the end of its batch.
    ///
    /// # Errors
    /// It cannot be set.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        if self.is_running {
            self.sysfs.write("run", 0)?;
            self.is_running = false;
        }
        Ok(())
    }
}

impl Drop for SettingsGuard {
    fn drop(&mut self) {
        match self.before.put_back(&self.sysfs) {
            // The watcher tries again, and so does the next start.
            Err(error) => tracing::error!("KSM's settings are not restored: {error}"),
            Ok(()) => {
                let _gone = std::fs::remove_file(&self.file);
                if let Some(pipe) = &mut self.watcher.stdin {
                    let _ended = pipe.write_all(&[DONE]);
                }
                tracing::info!("KSM's settings are restored");
            }
        }
        drop(self.watcher.stdin.take());
        let _ended = self.watcher.wait();
    }
}

/// The lock beside the file.
fn locked(file: &Path) -> anyhow::Result<File> {
    if let Some(folder) = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(folder)
            .with_context(|| folder.display().to_string())?;
    }
    let mut path = file.as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    let lock = options
        .open(&path)
        .with_context(|| path.display().to_string())?;
    let begun = Instant::now();
    loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(lock),
            Err(Errno::WOULDBLOCK) if begun.elapsed() < LOCK_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(anyhow!(
                    "{}: another uksm drives KSM on this host: stop it first",
                    path.display()
                ));
            }
            Err(errno) => return Err(errno).with_context(|| path.display().to_string()),
        }
    }
}

/// Writes the file, as a whole.
fn keep(file: &Path, kept: &StoredSettings) -> anyhow::Result<()> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut new = options.open(&beside)?;
    new.write_all(serde_json::to_string_pretty(kept)?.as_bytes())?;
    new.sync_all()?;
    Ok(std::fs::rename(&beside, file)?)
}

/// Puts back the values that a killed daemon left; a line if there were any.
///
/// # Errors
/// The file has no valid values, or they cannot be put back.
fn recover(sysfs: &Sysfs, file: &Path) -> anyhow::Result<Option<String>> {
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text.with_context(|| file.display().to_string())?,
    };
    let kept: Option<StoredSettings> = serde_json::from_str(&text).ok();
    let before = kept.and_then(|kept| OriginalSettings::from_values(kept.knobs));
    let before = before.ok_or_else(|| {
        anyhow!(
            "{}: does not contain settings of KSM: set KSM by hand, and remove the file",
            file.display()
        )
    })?;
    before.put_back(sysfs)?;
    std::fs::remove_file(file).with_context(|| file.display().to_string())?;
    Ok(Some(
        "an earlier daemon ended without restoring KSM's settings: they are restored now"
            .to_owned(),
    ))
}

/// Starts the watcher, which shares the lock.
fn watch(lock: &File, roots: &Roots, file: &Path) -> anyhow::Result<Child> {
    let mut command = own_program::command(&[own_program::JOURNAL_STREAM]);
    command
        .arg("ksm-watcher")
        .arg("--ksm-root")
        .arg(&roots.ksm_root)
        .arg(file);
    // Nothing is printed there: this is how the watcher shares the lock.
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::from(lock.try_clone()?));
    Ok(command.spawn()?)
}

/// `uksm ksm-watcher`: waits for the end of the daemon.
///
/// # Errors
/// The values that a killed daemon left cannot be put back.
pub(crate) fn watcher(args: &KsmWatcherArgs) -> anyhow::Result<()> {
    let _leads_one_already = rustix::process::setsid();
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        // Caught without effect: only the daemon's end counts.
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let mut word = Vec::new();
    std::io::stdin().read_to_end(&mut word)?;
    if word == [DONE] {
        return Ok(());
    }
    let sysfs = Sysfs::at(&args.ksm_root, Proc::default())?;
    if let Some(line) = recover(&sysfs, &args.file)? {
        crate::log::print_line(&line);
    }
    Ok(())
}
