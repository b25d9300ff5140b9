//! Processes by the thousand that do nothing, and storms of processes that soon end.
//!
//! # Problem
//! A host has thousands of processes with nothing to merge, and others come and go all the time;
//! both must cost next to nothing, and must not delay others.
//!
//! # Approach
//! All of them run one tiny program (see [`idle_program`]). Pages of a crowd are written by its
//! parent, all different; they are read back at the end. Processes of a storm are started at even
//! times by a thread, and killed after their life. All hold the few words that the program writes.
//!
//! # Units
//! A process has [`PAGES`] pages of its own.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use uksm_testkit::child_process::ChildExit;

use super::idle_program;
use crate::contents::{self, PAGE, WORDS};

/// Pages that a process of a crowd holds.
const PAGES: usize = idle_program::MAPPINGS;

/// The family of their contents.
const FAMILY: u64 = 10;

/// Longest wait for a process to map its pages.
const START_LIMIT: Duration = Duration::from_secs(30);

/// The program, as a file that is removed at drop.
struct ProgramFile(PathBuf);

impl ProgramFile {
    fn new(name: &str) -> Result<ProgramFile> {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        idle_program::write(&path)?;
        Ok(ProgramFile(path))
    }

    fn start(&self) -> Result<Child> {
        Command::new(&self.0)
            .env_clear()
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", self.0.display()))
    }
}

impl Drop for ProgramFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Processes that do nothing. Dropping it ends them.
pub(crate) struct Crowd {
    seed: u64,
    children: Vec<Child>,
    program: ProgramFile,
}

impl Crowd {
    /// Starts this many processes, and writes their pages.
    pub(crate) fn start(count: usize, seed: u64) -> Result<Crowd> {
        let mut crowd = Crowd {
            seed,
            children: Vec::with_capacity(count),
            program: ProgramFile::new("uksm-idle")?,
        };
        for number in 0..count {
            let child = crowd.program.start();
            let child = child.with_context(|| format!("process {number} of {count}"))?;
            crowd.children.push(child);
        }
        for number in 0..count {
            crowd.fill(number)?;
        }
        Ok(crowd)
    }

    /// Writes the pages of a process.
    fn fill(&self, number: usize) -> Result<()> {
        let memory = self.mapped(number)?;
        let mut page = vec![0; WORDS];
        for (key, address) in self.pages(number) {
            contents::fill(&mut page, key);
            let bytes: Vec<u8> = page.iter().flat_map(|word| word.to_ne_bytes()).collect();
            memory
                .write_all_at(&bytes, address)
                .with_context(|| format!("{}: cannot write {address:#x}", self.name(number)))?;
        }
        Ok(())
    }

    /// The memory of a process as soon as the process has written to its last page, and so to all:
    /// later writes stay.
    fn mapped(&self, number: usize) -> Result<File> {
        let (_, last) = self.pages(number).last().context("no pages")?;
        let begin = Instant::now();
        loop {
            // A process that just starts may still have the memory of its parent, and an open file
            // would stay with that: each try opens it again.
            let memory = self.memory(number)?;
            let mut word = [0; 4];
            if memory.read_exact_at(&mut word, last).is_ok() && word != [0; 4] {
                return Ok(memory);
            }
            ensure!(
                begin.elapsed() < START_LIMIT,
                "{}: wrote no page at {last:#x}",
                self.name(number)
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The name of a process in messages.
    fn name(&self, number: usize) -> String {
        format!("process {}", self.children[number].id())
    }

    fn memory(&self, number: usize) -> Result<File> {
        let path = format!("/proc/{}/mem", self.children[number].id());
        let mut options = File::options();
        options.read(true).write(true);
        options.open(Path::new(&path)).with_context(|| path.clone())
    }

    /// Key and address of each page of a process.
    fn pages(&self, number: usize) -> impl Iterator<Item = (u64, u64)> {
        let (seed, first) = (self.seed, number * PAGES);
        let key = move |page| contents::key(seed, FAMILY, (first + page) as u64);
        idle_program::pages()
            .enumerate()
            .map(move |(page, address)| (key(page), address))
    }

    /// Reads all pages of all processes; returns the number of unchanged ones.
    ///
    /// # Errors
    /// If one is changed, or a process has ended.
    pub(crate) fn verify(&self) -> Result<u64> {
        let mut verified = 0;
        let mut bytes = vec![0; PAGE];
        for number in 0..self.children.len() {
            let memory = self.memory(number)?;
            for (key, address) in self.pages(number) {
                memory
                    .read_exact_at(&mut bytes, address)
                    .with_context(|| format!("{}: cannot read {address:#x}", self.name(number)))?;
                let words: Vec<u64> = bytes
                    .chunks_exact(8)
                    .map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")))
                    .collect();
                ensure!(
                    contents::holds(&words, key),
                    "{}: memory at {address:#x} is not what was written",
                    self.name(number)
                );
                verified += 1;
            }
        }
        Ok(verified)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
        }
        for child in &mut self.children {
            child.end();
        }
    }
}

/// The strength of a storm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wind {
    /// Processes started a second.
    pub rate: u32,
    /// Life of each.
    pub life: Duration,
}

/// A running storm. Dropping it ends it.
pub(crate) struct Storm {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<u64>>>,
    begin: Instant,
}

impl Storm {
    /// Starts it.
    pub(crate) fn start(wind: Wind) -> Result<Storm> {
        let program = ProgramFile::new("uksm-storm")?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || blow(&program, wind, &stopped));
        Ok(Storm {
            stop,
            thread: Some(thread),
            begin: Instant::now(),
        })
    }

    /// Ends it; returns the number of processes started a second. On a busy machine these are fewer
    /// than requested.
    pub(crate) fn end(mut self) -> Result<f64> {
        let seconds = self.begin.elapsed().as_secs_f64();
        let started = self.join().context("the storm had ended")??;
        Ok(started as f64 / seconds)
    }

    fn join(&mut self) -> Option<Result<u64>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.join();
    }
}

/// Starts and ends processes until `stop`; returns the number started.
fn blow(program: &ProgramFile, wind: Wind, stop: &AtomicBool) -> Result<u64> {
    let period = Duration::from_secs(1) / wind.rate;
    let mut alive = VecDeque::new();
    let mut started = 0;
    let mut next = Instant::now();
    let outcome = loop {
        if stop.load(Ordering::Relaxed) {
            break Ok(started);
        }
        match program.start() {
            Ok(child) => alive.push_back((Instant::now(), child)),
            Err(error) => break Err(error),
        }
        started += 1;
        let old = |(since, _): &(Instant, Child)| since.elapsed() >= wind.life;
        while alive.front().is_some_and(old) {
            if let Some((_, mut child)) = alive.pop_front() {
                child.end();
            }
        }
        // A delay is not compensated: a burst of processes would be another storm.
        next = (next + period).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    };
    for (_, mut child) in alive {
        child.end();
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_holds_distinct_pages_and_notices_one_that_changed() {
        let crowd = Crowd::start(3, 7).unwrap();
        assert_eq!(crowd.verify().unwrap(), 3 * PAGES as u64);
        let keys: std::collections::HashSet<u64> = (0..3)
            .flat_map(|number| crowd.pages(number))
            .map(|(key, _)| key)
            .collect();
        assert_eq!(keys.len(), 3 * PAGES);
        let (_, address) = crowd.pages(1).last().unwrap();
        let memory = crowd.memory(1).unwrap();
        memory.write_all_at(&[0], address + 4095).unwrap();
        let error = crowd.verify().unwrap_err().to_string();
        assert!(error.contains(&crowd.name(1)), "{error}");
    }

    #[test]
    fn a_storm_starts_processes_until_it_ends() {
        let wind = Wind {
            rate: 100,
            life: Duration::from_millis(20),
        };
        let storm = Storm::start(wind).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let rate = storm.end().unwrap();
        assert!(rate > 1.0 && rate < 110.0, "{rate}");
    }
}
