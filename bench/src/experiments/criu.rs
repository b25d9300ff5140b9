//! criu: a family of processes that is merged, written to files, restored and merged again.
//!
//! A parent of 20 MiB (`--size`) and three children (`--crowd N`: N of them) that each wrote the
//! same by themselves, and one MiB of their own. The daemon merges them; criu writes them to files,
//! with memory tracked from a first write on (`pre-dump`, soft-dirty bits), which ends them; and
//! restores them. All print a digest of their memory all the time, which must not change. Figures
//! are the sums of their proportional shares (`Pss`) at each stage.
//!
//! Source: checkpoint-restore/criu#2386, where families no longer share after a restore.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use uksm_results::clock::Clock;
use uksm_results::report::{Measured, Report};

use crate::setup::Setup;
use crate::variants::Variant;

const FOLDER: &str = "/tmp/criu";
const PYTHON: &str = "/usr/bin/python3";
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Required share of the possible saving: all but a fifth, which includes the interpreters' own
/// memory.
const NEARLY_ALL: f64 = 0.8;

/// The program of a family: MiB common to all, children.
const FAMILY: &str = r"
import os, random, sys, time, zlib
mib, children = int(sys.argv[1]), int(sys.argv[2])
def filled():
    return bytearray(random.Random(7).randbytes(mib << 20))
number = 0
memory = filled()
for child in range(1, children + 1):
    if os.fork() == 0:
        number = child
        # Equal, and written by itself.
        memory[:] = filled()
        break
own = bytearray(random.Random(100 + number).randbytes(1 << 20))
while True:
    text = f'{os.getpid()} {zlib.crc32(own, zlib.crc32(memory))} {time.monotonic()}'
    with open(f'/tmp/criu/new-{number}', 'w') as out:
        out.write(text)
    os.rename(f'/tmp/criu/new-{number}', f'/tmp/criu/answer-{number}')
    # Written with what it holds: pages are copied, contents stay.
    memory[:4096] = memory[:4096]
    time.sleep(0.2)
";

/// The last report of one process.
#[derive(Debug, Clone, PartialEq)]
struct Answer {
    pid: u32,
    digest: String,
    at: String,
}

/// Runs it once.
pub(super) fn run(setup: &Setup) -> Result<Report> {
    let mut report = setup.report("criu")?;
    ensure!(
        setup.clock == Clock::Time,
        "criu waits for what others do: count time"
    );
    let children = setup.crowd.first().copied().unwrap_or(3);
    let size = setup.size_or(20);
    for folder in ["", "/first", "/last"] {
        let path = format!("{FOLDER}{folder}");
        fs::create_dir_all(&path).with_context(|| path.clone())?;
    }
    done("/bin/ip", &["link", "set", "lo", "up"])?;
    let mut figures = BTreeMap::new();
    let mut note = |name: &str, value: f64| {
        println!("{name}: {value:.1}");
        figures.insert(name.to_owned(), value);
    };
    let mut parent = start(size, children)?;
    family(children, None)?;
    // Memory that Python needed for filling is given back.
    sleep(Duration::from_secs(3));
    let before = family(children, None)?;
    let pids: Vec<u32> = before.iter().map(|answer| answer.pid).collect();
    let own = pss_mib(&pids)?;
    note("own_mib_before", own);
    let saved = NEARLY_ALL * (size * children) as f64;
    let variant = Variant::uksm_governor("full");
    let mut system = variant.start(setup, &pids)?;
    note("own_mib_merged", merged(&pids, own - saved)?);

    let tree = pids[0].to_string();
    let from = ["-t", &tree, "--track-mem", "-D"];
    let begun = Instant::now();
    criu("pre-dump", &from, "first", &[])?;
    note("images_mib_first", images_mib("first")?);
    criu("dump", &from, "last", &["--prev-images-dir", "../first"])?;
    note("images_mib_last", images_mib("last")?);
    note("dump_seconds", begun.elapsed().as_secs_f64());
    parent.wait().context("the parent")?;
    system.stop()?;
    criu("restore", &["-d", "-D"], "last", &[])?;
    let after = family(children, Some(&before))?;
    let restored = pss_mib(&pids)?;
    note("own_mib_restored", restored);
    let begun = Instant::now();
    let mut system = variant.start(setup, &pids)?;
    note("own_mib_merged_again", merged(&pids, restored - saved)?);
    note("merged_again_seconds", begun.elapsed().as_secs_f64());
    let last = family(children, Some(&after))?;
    for (before, last) in before.iter().zip(&last) {
        ensure!(
            (before.pid, &before.digest) == (last.pid, &last.digest),
            "{before:?} became {last:?}"
        );
    }
    let counters = system.report();
    system.stop()?;
    for pid in pids {
        let pid = i32::try_from(pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        let pid = pid.context("a process id")?;
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
    }
    report.variants.push(Measured {
        name: variant.name,
        case: format!("{children} children"),
        saved_mib: restored - figures["own_mib_merged_again"],
        mergeable_mib: (size * children) as f64,
        finished: true,
        counters,
        figures,
        ..Measured::default()
    });
    Ok(report)
}

/// Starts a family without a terminal or pipe to this program.
fn start(size: usize, children: usize) -> Result<Child> {
    Command::new("/bin/setsid")
        .args([PYTHON, "-B", "-S", "-c", FAMILY])
        .args([size.to_string(), children.to_string()])
        .env("PYTHONHOME", "/usr")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start Python: boot with --python and --criu")
}

/// The report of each process, the parent first, as soon as each has reported after `before`.
fn family(children: usize, before: Option<&[Answer]>) -> Result<Vec<Answer>> {
    let end = Instant::now() + ANSWER_TIMEOUT;
    let answer = |number: usize| {
        let text = fs::read_to_string(format!("{FOLDER}/answer-{number}")).ok()?;
        let mut words = text.split_whitespace().map(str::to_owned);
        Some(Answer {
            pid: words.next()?.parse().ok()?,
            digest: words.next()?,
            at: words.next()?,
        })
    };
    loop {
        let all: Option<Vec<Answer>> = (0..=children).map(answer).collect();
        if let Some(all) = all {
            let is_new = |answer: &Answer| {
                before.is_none_or(|before| before.iter().all(|of| of.at != answer.at))
            };
            if all.iter().all(is_new) {
                return Ok(all);
            }
        }
        ensure!(Instant::now() < end, "the family says nothing");
        sleep(Duration::from_millis(50));
    }
}

/// Waits until these processes have at most this many MiB together; returns their MiB.
fn merged(pids: &[u32], most_mib: f64) -> Result<f64> {
    let end = Instant::now() + ANSWER_TIMEOUT;
    loop {
        let own = pss_mib(pids)?;
        if own <= most_mib {
            return Ok(own);
        }
        ensure!(Instant::now() < end, "{own} MiB are left of {most_mib}");
        sleep(Duration::from_millis(100));
    }
}

/// Their proportional shares: a page that several map is divided among them.
fn pss_mib(pids: &[u32]) -> Result<f64> {
    let mut sum = 0.0;
    for pid in pids {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:"));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB"));
        let kib: f64 = kib.context("no Pss_Anon")?.trim().parse()?;
        sum += kib / 1024.0;
    }
    Ok(sum)
}

fn images_mib(folder: &str) -> Result<f64> {
    let mut bytes = 0;
    for entry in fs::read_dir(format!("{FOLDER}/{folder}"))? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes as f64 / f64::from(1 << 20))
}

/// One step of criu, with its files in this folder.
fn criu(step: &str, options: &[&str], folder: &str, more: &[&str]) -> Result<()> {
    let folder = format!("{FOLDER}/{folder}");
    let log = format!("{FOLDER}/{step}.log");
    let words = [&[step], options, &[&folder, "-v2", "-o", &log], more].concat();
    done("/usr/sbin/criu", &words).with_context(|| {
        let log_text = fs::read_to_string(Path::new(&log)).unwrap_or_default();
        format!("criu {step}: {log_text}")
    })
}

fn done(program: &str, words: &[&str]) -> Result<()> {
    let status = Command::new(program).args(words).status();
    let status = status.with_context(|| format!("cannot start {program}: boot with --criu"))?;
    ensure!(status.success(), "{program} {words:?}: {status}");
    Ok(())
}
