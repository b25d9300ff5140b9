//! Processes with known contents, which a test starts: its own program, to run [`child`] alone.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

const PAGE: usize = 4096;

/// Tells the child which contents to have, as words: `0..640` are numbers, each on a page;
/// `0..5*100` on a hundred pages each; `zero*20` are pages of zeros that were written;
/// `offered:0..640` is offered to in-kernel KSM; `rewritten:0..640` hold something else every few
/// milliseconds; `maps*20` are mappings of one page.
const PAGES: &str = "UKSM_TEST_PAGES";

/// A process that ends with its owner.
pub(crate) struct Known(Child);

impl Known {
    /// With these contents, and these variables.
    pub(crate) fn start(pages: &str, variables: &[(&str, &str)]) -> Known {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "known::child", "--ignored", "--nocapture"])
            // With more, another thread says after a minute that this runs for long, and writes
            // memory of its own.
            .arg("--test-threads=1")
            .env(PAGES, pages)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_ready = lines.any(|line| line.unwrap().contains("ready"));
        assert!(is_ready, "the child did not come so far");
        let child = Known(child);
        // On its way to sleep it touches memory of its own.
        while !child.sleeps() {
            std::thread::yield_now();
        }
        child
    }

    /// Whether each thread does.
    fn sleeps(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let stats =
            threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")));
        stats
            .flatten()
            .all(|stat| stat.rsplit(") ").next().unwrap().starts_with('S'))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

/// What the program says to who names a process by `--pid` that it has no right to, behind these
/// arguments: one line, which begins with that process. Where the test runs as root, nobody names a
/// process of root. Elsewhere it is process 1.
pub(crate) fn refused(arguments: &[&str]) -> String {
    let child = Known::start("0..10", &[]);
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let pid = if is_root { child.pid() } else { 1 };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("uksm");
    // Nobody may not be able to reach the folder of the build.
    let open_to_all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open_to_all).unwrap();
    // Another program copies it, so that no fork of another test holds it open for writing.
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_uksm"))
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let mut command = Command::new(&program);
    command.args(arguments).args(["--pid", &pid.to_string()]);
    if is_root {
        command.uid(65534).gid(65534);
    }
    let output = command.output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), line.lines().count()),
        (Some(1), 1),
        "{line}"
    );
    assert!(line.starts_with(&format!("uksm: --pid {pid}: ")), "{line}");
    line
}

impl Drop for Known {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Pages of these numbers, each `times` times. Number 0 is zeros.
fn pages(numbers: std::ops::Range<usize>, times: usize) -> memmap2::MmapMut {
    let mut map = memmap2::MmapMut::map_anon(numbers.len() * times * PAGE).unwrap();
    for (page, bytes) in map.chunks_exact_mut(PAGE).enumerate() {
        let number = (numbers.start + page / times) as u64;
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&number.to_ne_bytes());
        }
    }
    map
}

/// Changes one word of each page again and again, beginning with numbers that no page has.
fn rewrite(mut maps: Vec<memmap2::MmapMut>) {
    for round in u64::MAX / 2.. {
        for page in maps.iter_mut().flat_map(|map| map.chunks_exact_mut(PAGE)) {
            page[..8].copy_from_slice(&round.to_ne_bytes());
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
#[ignore = "is what the other tests start"]
fn child() {
    let told = std::env::var(PAGES).expect("this is started by the other tests");
    let mut held = Vec::new();
    let mut sealed = Vec::new();
    let mut rewritten = Vec::new();
    for word in told.split(' ') {
        let (what, is_offered) = match word.strip_prefix("offered:") {
            Some(what) => (what, true),
            None => (word, false),
        };
        let (what, is_rewritten) = match what.strip_prefix("rewritten:") {
            Some(what) => (what, true),
            None => (what, false),
        };
        let (what, times) = what.split_once('*').unwrap_or((what, "1"));
        let times: usize = times.parse().unwrap();
        match what.split_once("..") {
            Some((first, end)) => {
                let (first, end): (usize, usize) = (first.parse().unwrap(), end.parse().unwrap());
                held.push(pages(first + 1..end + 1, times));
            }
            None if what == "zero" => held.push(pages(0..1, times)),
            None => {
                assert_eq!(what, "maps");
                for number in 0..times {
                    // Neighbours of unlike rights stay apart.
                    let map = pages(1..2, 1);
                    match number % 2 {
                        0 => held.push(map),
                        _ => sealed.push(map.make_read_only().unwrap()),
                    }
                }
            }
        }
        if is_offered {
            let _a_kernel_may_have_no_ksm = held.last().unwrap().advise(memmap2::Advice::Mergeable);
        }
        if is_rewritten {
            rewritten.extend(held.pop());
        }
    }
    println!("ready");
    if !rewritten.is_empty() {
        std::thread::spawn(move || rewrite(rewritten));
    }
    let _until_it_is_closed = std::io::stdin().read(&mut [0]);
}
