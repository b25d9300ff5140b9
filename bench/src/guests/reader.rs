//! The `/init` of a machine, which reads the files of its disk, or does nothing.
//!
//! It uses the serial console, with a prefix that no message of the kernel has:
//!
//! - at its start, answered by `ready`: has mounted the disk, and its memory is that of a machine
//!   that has been up for a while; if it has one.
//! - `check`, answered by `checked PAGES`: reads the files of its boot once more: every byte
//!   must be unchanged.
//! - `go`, answered by `done NANOSECONDS`: reads all files; reports the largest
//!   delay.
//! - `verify`, answered by `verified PAGES`: reads all of it again: every byte must be unchanged
//!   since the first reading.
//!
//! A machine that has just booted has never touched most of its memory, and new memory of a process
//! is examined first. So a reading machine fills its free memory with unique contents, and frees
//! it: later reads go into memory that exists, as in a machine that has been up for a while.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};
use uksm_testkit::kernel_file;

use super::order::{self, Piece, PieceAccess};
use super::{AGED, qemu::WORD};
use crate::contents::{PAGE, WORDS, fill, key, mix};
use crate::workload::mapping::{Kind, Reservation};

/// Mount point of the disk.
const DISK: &str = "/disk";
/// Percentage of the free memory that is filled and freed.
const AGED_PERCENT: usize = 85;
/// Longest wait for the disk to appear.
const DEVICE_LIMIT: Duration = Duration::from_secs(60);

/// The words for a machine on its kernel's command line.
#[derive(Debug, Clone, Args)]
pub(crate) struct Reader {
    /// Seed of all that is drawn
    #[arg(long)]
    seed: u64,
    /// Which machine this is
    #[arg(long)]
    number: u64,
    /// How fast it reads; without it has no disk, and does nothing
    #[arg(long)]
    kib_per_second: Option<u64>,
}

/// Runs as `/init` of a machine: powers off at the end, or after an error.
pub(crate) fn run(reader: &Reader) -> Result<()> {
    let outcome = serve(reader);
    if let Err(error) = &outcome {
        // Without a console the error is dropped.
        let _ = File::options()
            .write(true)
            .open("/dev/ttyS0")
            .map(|mut console| {
                let _ = writeln!(console, "{WORD}failed {error:#}");
            });
    }
    reboot(RebootCommand::PowerOff).context("cannot power off")?;
    outcome
}

fn serve(reader: &Reader) -> Result<()> {
    for (kind, place) in [("proc", "/proc"), ("devtmpfs", "/dev")] {
        let mounted = mount(kind, place, kind, MountFlags::empty(), None);
        mounted.with_context(|| format!("cannot mount {place}"))?;
    }
    let mut console = File::options().write(true).open("/dev/ttyS0")?;
    let commands = BufReader::new(File::open("/dev/ttyS0")?);
    let mut reading = None;
    if let Some(kib_per_second) = reader.kib_per_second {
        reading = Some((MountedDisk::open()?, kib_per_second));
        age(reader)?;
    }
    let at_boot = booted_from()?;
    writeln!(console, "{WORD}ready")?;
    for command in commands.lines() {
        match (command?.trim(), &mut reading) {
            ("go", Some((disk, kib_per_second))) => {
                let late = disk.read_all(reader, *kib_per_second)?;
                writeln!(console, "{WORD}done {}", late.as_nanos())?;
            }
            ("check", _) => {
                let (digest, pages) = booted_from()?;
                ensure!(
                    digest == at_boot.0,
                    "what it booted from is not what it was"
                );
                writeln!(console, "{WORD}checked {pages}")?;
            }
            ("verify", Some((disk, _))) => {
                writeln!(console, "{WORD}verified {}", disk.verify()?)?;
            }
            ("", _) => {}
            (other, _) => bail!("unknown command '{other}'"),
        }
    }
    Ok(())
}

/// Fills free memory with unique contents, and frees it.
fn age(reader: &Reader) -> Result<()> {
    let free = usize::try_from(kernel_file::number("/proc/meminfo", "MemAvailable")?)?;
    let pages = free / 4 * AGED_PERCENT / 100;
    let kind = Kind {
        huge: false,
        mergeable: false,
    };
    let mut reservation = Reservation::for_parts(&[pages])?;
    let mut mapping = reservation.map(pages, kind)?;
    for page in 0..pages {
        let key = key(reader.seed, AGED + reader.number, page as u64);
        fill(mapping.page_mut(page), key);
    }
    Ok(())
}

/// The mounted disk, and digests of its files.
struct MountedDisk {
    paths: Vec<PathBuf>,
    sizes: Vec<u64>,
    /// The digest of each piece at its first reading.
    digests: HashMap<Piece, u64>,
    buffer: Vec<u8>,
}

impl MountedDisk {
    fn open() -> Result<MountedDisk> {
        let folder = Path::new("/modules");
        let order = std::fs::read_to_string(folder.join("order")).context("/modules/order")?;
        for name in order.lines() {
            let module = File::open(folder.join(name)).context(name.to_owned())?;
            finit_module(&module, c"", 0).with_context(|| format!("module {name}"))?;
        }
        let begin = Instant::now();
        while !Path::new("/dev/vda").exists() {
            ensure!(begin.elapsed() < DEVICE_LIMIT, "no disk appeared");
            std::thread::sleep(Duration::from_millis(20));
        }
        mount("/dev/vda", DISK, "ext4", MountFlags::RDONLY, None)
            .context("cannot mount the disk")?;
        let mut paths = Vec::new();
        list(Path::new(DISK), &mut paths)?;
        paths.sort();
        let mut sizes = Vec::new();
        for path in &paths {
            sizes.push(std::fs::metadata(path)?.len());
        }
        Ok(MountedDisk {
            paths,
            sizes,
            digests: HashMap::new(),
            buffer: Vec::new(),
        })
    }

    /// Reads all files in the machine's order; returns the largest delay.
    fn read_all(&mut self, reader: &Reader, kib_per_second: u64) -> Result<Duration> {
        let pace = kib_per_second * 1024;
        let plan = order::accesses(&self.sizes, reader.seed, reader.number, pace);
        let begin = Instant::now();
        let mut late = Duration::ZERO;
        for PieceAccess { at, piece } in plan {
            match at.checked_sub(begin.elapsed()) {
                Some(early) => std::thread::sleep(early),
                None => late = late.max(begin.elapsed().saturating_sub(at)),
            }
            self.read(&piece)?;
        }
        Ok(late)
    }

    /// Reads all files again; returns their pages.
    fn verify(&mut self) -> Result<u64> {
        let mut pages = 0;
        for file in 0..self.paths.len() {
            for piece in order::pieces(file, self.sizes[file]) {
                self.read(&piece)?;
                pages += (piece.bytes.end - piece.bytes.start).div_ceil(PAGE as u64);
            }
        }
        Ok(pages)
    }

    /// Reads a piece, whose contents must be unchanged.
    fn read(&mut self, piece: &Piece) -> Result<()> {
        let path = &self.paths[piece.file];
        let length = usize::try_from(piece.bytes.end - piece.bytes.start)?;
        self.buffer.resize(length, 0);
        let file = File::open(path).with_context(|| path.display().to_string())?;
        file.read_exact_at(&mut self.buffer, piece.bytes.start)
            .with_context(|| path.display().to_string())?;
        let digest = digest(&self.buffer);
        let before = *self.digests.entry(piece.clone()).or_insert(digest);
        ensure!(
            before == digest,
            "{} at {}: not what was read before",
            path.display(),
            piece.bytes.start
        );
        Ok(())
    }
}

/// A digest of the files of the machine's boot, which are in its memory, and their pages.
fn booted_from() -> Result<(u64, u64)> {
    let mut paths = vec![PathBuf::from("/init")];
    list(Path::new("/modules"), &mut paths)?;
    paths.sort();
    let (mut all, mut pages) = (0, 0);
    for path in paths {
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        all = mix(all ^ digest(&bytes));
        pages += bytes.len().div_ceil(PAGE) as u64;
    }
    Ok((all, pages))
}

/// All ordinary files below a folder.
fn list(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            list(&entry.path(), paths)?;
        } else if kind.is_file() {
            paths.push(entry.path());
        }
    }
    Ok(())
}

/// A number that nearly always changes if one byte does.
fn digest(bytes: &[u8]) -> u64 {
    let mut words = [0_u64; WORDS];
    let mut digest = bytes.len() as u64;
    for page in bytes.chunks(PAGE) {
        words.fill(0);
        for (word, chunk) in words.iter_mut().zip(page.chunks(8)) {
            let mut eight = [0; 8];
            eight[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(eight);
        }
        for word in &words[..page.len().div_ceil(8)] {
            digest = mix(digest ^ word);
        }
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_changes_a_digest_wherever_it_is() {
        let bytes = vec![7; PAGE * 2 + 5];
        let whole = digest(&bytes);
        for place in [0, PAGE - 1, PAGE, PAGE * 2 + 4] {
            let mut other = bytes.clone();
            other[place] = 8;
            assert_ne!(digest(&other), whole, "{place}");
        }
        assert_ne!(digest(&bytes[1..]), whole);
    }
}
