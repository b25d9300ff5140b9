//! Captures processes: reads all their private pages at intervals, and keeps the identities of
//! equal pages.
//!
//! It only reads, with the rights of its user, and stops no process: a page written during the
//! reading is found in its state before or after. A page shared by fork among several of the
//! processes is one page already: it belongs to the first one.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use uksm_linux::contents::{Page, Reader};
use uksm_linux::proc::Proc;
use uksm_sketch::content::{Content, Salt};

use super::writing::{CapturedPage, Recording, Snapshot};
use crate::contents::PAGE;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Share of a core for reading.
const SHARE: f64 = 0.9;

/// What is captured.
#[derive(Debug, Args)]
pub(crate) struct CaptureOptions {
    /// A process; can be said several times
    #[arg(long = "pid", required = true)]
    pids: Vec<u32>,
    /// Milliseconds from one moment to the next
    #[arg(long, default_value_t = 5000)]
    every: u64,
    /// How many moments
    #[arg(long, default_value_t = 1)]
    moments: usize,
    /// What is captured, in words
    #[arg(long)]
    source: String,
    /// The file, which is compressed: NAME.trace.gz
    #[arg(long)]
    output: PathBuf,
}

/// Captures, and writes the trace.
///
/// # Errors
/// A process is gone or cannot be read, or the file not written.
pub(crate) fn run(options: &CaptureOptions) -> Result<()> {
    ensure!(options.moments > 0, "there must be a moment");
    let proc = Proc::default();
    let salt = Salt::new(RandomState::new().build_hasher().finish());
    let names = options.pids.iter().map(|&pid| Ok(proc.stat(pid)?.comm));
    let mut recording = Recording {
        source: options.source.clone(),
        every_ms: options.every,
        names: names.collect::<Result<_>>()?,
        moments: Vec::new(),
    };
    let begin = Instant::now();
    for moment in 0..options.moments {
        let due = Duration::from_millis(options.every * moment as u64);
        std::thread::sleep(due.saturating_sub(begin.elapsed()));
        let mut forked = HashSet::new();
        let pids = options.pids.iter();
        let snapshots = pids.map(|&pid| snapshot(&proc, pid, salt, &mut forked));
        recording.moments.push(snapshots.collect::<Result<_>>()?);
    }
    let late =
        begin.elapsed() - Duration::from_millis(options.every * (options.moments as u64 - 1));
    let packed = pack(&recording.text()?)?;
    std::fs::write(&options.output, &packed)
        .with_context(|| format!("cannot write {}", options.output.display()))?;
    println!(
        "written {}, {} KiB; the last moment took {} ms",
        options.output.display(),
        packed.len() >> 10,
        late.as_millis()
    );
    Ok(())
}

/// Compresses a trace. The same text gives the same bytes: they hold neither a time nor a name.
///
/// # Errors
/// There is no memory for it.
fn pack(text: &str) -> Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(text.as_bytes())?;
    Ok(packed.finish()?)
}

/// The pages of a process; `forked` are hashes of shared pages of the processes before it.
fn snapshot(proc: &Proc, pid: u32, salt: Salt, forked: &mut HashSet<u64>) -> Result<Snapshot> {
    let stat = proc.stat(pid)?;
    let mut snapshot = Snapshot::default();
    let mut see = |page: Page<'_>| {
        let hash = match salt.content(page.contents) {
            Content::Zero => 0,
            Content::Hashed(hash) => hash.max(1),
        };
        if page.is_shared && hash != 0 && !forked.insert(hash) {
            return;
        }
        let seen = CapturedPage {
            hash,
            zero_lines: zero_lines(page.contents),
        };
        snapshot.pages.insert(page.address / PAGE as u64, seen);
    };
    let mut reader = Reader::new(salt, u64::MAX, SHARE);
    let (mappings, is_cut) = reader
        .show(proc, pid, &stat, &mut see)
        .with_context(|| format!("process {pid}"))?;
    ensure!(!is_cut, "process {pid} has too much address space");
    let in_pages = |address: u64| address / PAGE as u64;
    snapshot.mappings = mappings
        .iter()
        .map(|mapping| (in_pages(mapping.start), in_pages(mapping.end)))
        .collect();
    Ok(snapshot)
}

/// The lines that are zeros, as bits.
fn zero_lines(page: &[u8]) -> u64 {
    let lines = page.chunks_exact(LINE).zip(0..);
    lines
        .filter(|(line, _)| line.iter().all(|&byte| byte == 0))
        .fold(0, |lines, (_, number)| lines | 1 << number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_zeros_are_bits() {
        let mut page = vec![0_u8; PAGE];
        assert_eq!(zero_lines(&page), u64::MAX);
        page[LINE * 5 + 3] = 1;
        assert_eq!(zero_lines(&page), !(1 << 5));
    }

    #[test]
    fn a_packed_trace_is_the_same_each_time_and_can_be_unpacked() {
        let text = "{\"format\":1}\n[0,0,[0,1,0,0,0]]\n".repeat(100);
        let packed = pack(&text).unwrap();
        assert!(packed.len() < text.len() && packed == pack(&text).unwrap());
        let mut unpacked = String::new();
        let mut reader = flate2::read::GzDecoder::new(&packed[..]);
        std::io::Read::read_to_string(&mut reader, &mut unpacked).unwrap();
        assert_eq!(unpacked, text);
    }

    #[test]
    fn this_process_is_captured_with_what_it_holds() {
        let mut memory = vec![0_u8; 64 * PAGE];
        for (number, page) in (1..).zip(memory.chunks_exact_mut(PAGE)) {
            page.fill(number % 4);
        }
        let salt = Salt::new(5);
        let found = snapshot(
            &Proc::default(),
            std::process::id(),
            salt,
            &mut HashSet::new(),
        )
        .unwrap();
        let first = (memory.as_ptr().addr()).div_ceil(PAGE) as u64;
        let [one, other] = [0, 4].map(|page| found.pages[&(first + page)]);
        assert_eq!(one, other, "every fourth page is the same");
        assert_ne!(one, found.pages[&(first + 1)]);
        assert!(memory.iter().any(|&byte| byte > 0));
    }
}
