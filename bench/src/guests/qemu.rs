//! One virtual machine: started, talked with, ended.
//!
//! The connection is its serial console, which is QEMU's standard input and output. A machine that
//! goes away or does not answer is [`LostMachine`]: an emulated processor whose guests run guests
//! now and then drops an interrupt, which does not concern the measurement.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use uksm_testkit::child_process::ChildExit;

use super::PARTS;
use crate::disk_machines::Aio;
use crate::units::MIB_PAGES;

/// Prefix of the reports of a machine's `/init`.
pub(super) const WORD: &str = "reader: ";
/// Lines of the console that are shown of a lost machine.
const TAIL: usize = 12;

/// A machine that went away, or does not answer.
#[derive(Debug, thiserror::Error)]
#[error("machine {number} is lost, waiting for '{word}': {why}; it said last:\n{tail}")]
pub(crate) struct LostMachine {
    number: usize,
    word: String,
    why: String,
    tail: String,
}

/// Limit of the tries of a run whose machines get lost.
const TRIES: u32 = 4;

/// Runs `once`, again if a machine gets lost; returns the number of tries, too. `name` is for
/// messages.
///
/// # Errors
/// An error other than a lost machine; or the last one lost.
pub(crate) fn again_if_lost<T>(
    name: &str,
    mut once: impl FnMut() -> Result<T>,
) -> Result<(T, u32)> {
    let mut tries = 1;
    loop {
        match once() {
            Ok(done) => return Ok((done, tries)),
            Err(error) if error.is::<LostMachine>() && tries < TRIES => {
                println!("{name}: try {tries} of {TRIES}: {error:#}");
                tries += 1;
            }
            Err(error) => return Err(error).with_context(|| name.to_owned()),
        }
    }
}

/// The configuration of a machine.
#[derive(Debug, Clone)]
pub(crate) struct GuestSpec {
    /// Its number; each has an order of its own.
    pub number: usize,
    /// Seed of all draws.
    pub seed: u64,
    /// Its memory.
    pub memory_mib: usize,
    /// Whether QEMU offers the memory to in-kernel KSM.
    pub mergeable: bool,
    /// The disk that it reads; without one it does nothing.
    pub disk: Option<GuestDisk>,
}

/// The disk of a machine.
#[derive(Debug, Clone)]
pub(crate) struct GuestDisk {
    /// Its path.
    pub file: PathBuf,
    /// QEMU's interface to it.
    pub aio: Aio,
    /// The machine's reading rate.
    pub kib_per_second: u64,
}

impl GuestDisk {
    /// QEMU's arguments for it.
    fn arguments(&self) -> [(&'static str, String); 2] {
        let aio = match self.aio {
            Aio::Threads => "threads",
            Aio::IoUring => "io_uring",
        };
        let file = self.file.display();
        let drive = format!("id=disk,if=none,format=raw,readonly=on,file={file},aio={aio}");
        let device = "virtio-blk-device,drive=disk".to_owned();
        [("-drive", drive), ("-device", device)]
    }
}

impl GuestSpec {
    /// Pages of its memory, which is one mapping of QEMU.
    pub(crate) fn pages(&self) -> usize {
        self.memory_mib * MIB_PAGES
    }

    /// QEMU's arguments. Memory is kept as QEMU does by default, except for the offer to KSM.
    fn arguments(&self) -> Vec<String> {
        let merge = if self.mergeable { "on" } else { "off" };
        let part = |name: &str| Path::new(PARTS).join(name).display().to_string();
        let disk = self.disk.as_ref();
        let reading = disk.map(|disk| format!(" --kib-per-second {}", disk.kib_per_second));
        let kernel = format!(
            "console=ttyS0 quiet loglevel=1 panic=-1 rdinit=/init -- guest-reader --seed {} --number {}{}",
            self.seed,
            self.number,
            reading.unwrap_or_default()
        );
        let pairs = [
            (
                "-machine",
                format!("microvm,accel=kvm,rtc=on,mem-merge={merge}"),
            ),
            ("-L", PARTS.to_owned()),
            ("-cpu", "host".to_owned()),
            ("-m", format!("{}M", self.memory_mib)),
            ("-kernel", part("kernel")),
            ("-initrd", part("initramfs")),
            ("-append", kernel),
            ("-display", "none".to_owned()),
            ("-serial", "stdio".to_owned()),
        ];
        let alone = ["-nodefaults", "-no-user-config", "-no-reboot"];
        alone
            .map(str::to_owned)
            .into_iter()
            .chain(
                pairs
                    .into_iter()
                    .chain(self.disk.iter().flat_map(GuestDisk::arguments))
                    .flat_map(|(name, value)| [name.to_owned(), value]),
            )
            .collect()
    }
}

/// A running machine. Dropping it ends it.
pub(crate) struct Guest {
    number: usize,
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    /// The lines of its console that were no answers.
    console: Vec<String>,
}

impl Guest {
    /// Starts a machine; it is up when it reports `ready`.
    pub(crate) fn start(spec: &GuestSpec) -> Result<Guest> {
        let mut child = Command::new("qemu-system-x86_64")
            .args(spec.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start QEMU: boot with --nested")?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            child.end();
            bail!("QEMU has no console");
        };
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim().to_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Guest {
            number: spec.number,
            child,
            input,
            lines,
            console: Vec::new(),
        })
    }

    /// QEMU's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends the machine a command.
    pub(crate) fn command(&mut self, command: &str) -> Result<()> {
        let sent = writeln!(self.input, "{command}").and_then(|()| self.input.flush());
        Ok(sent.map_err(|error| self.lost(command, &error.to_string()))?)
    }

    /// Waits for this report of the machine; returns the text behind it.
    ///
    /// # Errors
    /// [`LostMachine`], or a failure that the machine reports.
    pub(crate) fn wait(&mut self, word: &str, limit: Duration) -> Result<String> {
        let begin = Instant::now();
        loop {
            let left = limit.saturating_sub(begin.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(found) = answer(&line, word)? {
                        return Ok(found);
                    }
                    self.console.push(line);
                }
                Err(error) => return Err(self.lost(word, &error.to_string()).into()),
            }
        }
    }

    /// The answer, if it has arrived.
    pub(crate) fn answered(&mut self, word: &str) -> Result<Option<String>> {
        while let Ok(line) = self.lines.try_recv() {
            if let Some(found) = answer(&line, word)? {
                return Ok(Some(found));
            }
            self.console.push(line);
        }
        Ok(None)
    }

    /// The error that it went away or did not report this, with the last lines of its console.
    pub(crate) fn lost(&self, word: &str, why: &str) -> LostMachine {
        let tail = &self.console[self.console.len().saturating_sub(TAIL)..];
        LostMachine {
            number: self.number,
            word: word.to_owned(),
            why: why.to_owned(),
            tail: tail.join("\n"),
        }
    }
}

/// The text of a console line behind this word; an error if the line reports a failure.
fn answer(line: &str, word: &str) -> Result<Option<String>> {
    // A message of the kernel may stand in front.
    let Some((_, report)) = line.split_once(WORD) else {
        return Ok(None);
    };
    if let Some(why) = report.strip_prefix("failed ") {
        bail!("a machine says: {why}");
    }
    let rest = report.strip_prefix(word);
    Ok(rest.map(|rest| rest.trim().to_owned()))
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.child.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(aio: Aio, mergeable: bool) -> GuestSpec {
        GuestSpec {
            number: 1,
            seed: 3,
            memory_mib: 128,
            mergeable,
            disk: Some(GuestDisk {
                file: "/d".into(),
                aio,
                kib_per_second: 512,
            }),
        }
    }

    #[test]
    fn variants_differ_by_what_is_offered_to_ksm_and_cases_by_how_the_disk_is_asked() {
        let of = |aio, mergeable| spec(aio, mergeable).arguments().join(" ");
        let plain = of(Aio::Threads, false);
        assert!(plain.contains("mem-merge=off") && plain.contains("file=/d,aio=threads"));
        assert_eq!(
            of(Aio::Threads, true),
            plain.replace("mem-merge=off", "mem-merge=on")
        );
        assert_eq!(
            of(Aio::IoUring, false),
            plain.replace("aio=threads", "aio=io_uring")
        );
    }

    #[test]
    fn answers_are_distinguished_from_messages_of_the_kernel_and_failures() {
        let done = answer("[ 1.0] x reader: done 17\r", "done").unwrap();
        assert_eq!(done.as_deref(), Some("17"));
        assert_eq!(answer("reader: ready", "done").unwrap(), None);
        assert_eq!(answer("done 17", "done").unwrap(), None);
        let error = answer("reader: failed no disk", "done").unwrap_err();
        assert!(error.to_string().contains("no disk"));
    }
}
