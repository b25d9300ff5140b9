//! A PostgreSQL server as a workload, with pgbench as its client.
//!
//! # Problem
//! A database is several processes, and making its contents takes longer than an experiment may.
//!
//! # Approach
//! One database is made a boot; each server has a copy of it. Server and client come from the
//! distribution (`uksm-vm run --postgres`). Requests are pgbench's own, which one seed draws the
//! same. Nothing is written to a disk that would have to be waited for.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use uksm_testkit::child_process::ChildExit;

use crate::programs::program_setup::ProgramSetup;

/// The distribution's folder, with a folder for each version.
const HOME: &str = "/usr/lib/postgresql";
/// Databases, sockets and logs.
const FOLDER: &str = "/tmp/postgres";
/// The server does not work for root.
const USER: u32 = 1000;
/// Longest wait for a server to answer or to end.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// pgbench's tables, in its units of 100,000 accounts.
const SCALE: &str = "1";
/// The digest of its contents: pgbench's tables but the history, which contains times.
const DIGEST: &str = "select sum(hashtext(aid || ' ' || abalance)::bigint) || ' ' || \
     (select sum(hashtext(tid || ' ' || tbalance)::bigint) from pgbench_tellers) || ' ' || \
     (select count(*) from pgbench_history) from pgbench_accounts";

/// A running server. Dropping it ends it.
pub(crate) struct Postgres {
    child: Child,
    name: String,
}

/// A program of the server's, for its user.
fn program(name: &str) -> Result<Command> {
    let mut versions =
        fs::read_dir(HOME).with_context(|| format!("{HOME}: boot with --postgres"))?;
    let version = versions
        .next()
        .with_context(|| format!("{HOME}: no version"))??;
    let mut command = Command::new(version.path().join("bin").join(name));
    command
        .uid(USER)
        .gid(USER)
        .current_dir("/tmp")
        .env("PGUSER", "user")
        .env("PGDATABASE", "postgres")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command)
}

/// The output of a program; its error output is the error.
fn output_of(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_owned();
    let name = Path::new(&name).display();
    let output = command
        .output()
        .with_context(|| format!("cannot start {name}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {complaint}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Makes the database with which each server begins, if it does not exist yet.
pub(crate) fn make_database() -> Result<()> {
    let made = folder("made");
    if made.exists() {
        return Ok(());
    }
    fs::create_dir_all(FOLDER).context(FOLDER)?;
    std::os::unix::fs::chown(FOLDER, Some(USER), Some(USER)).context(FOLDER)?;
    let mut initdb = program("initdb")?;
    initdb
        .args(["--no-locale", "--encoding=UTF8", "--auth=trust"])
        .args(["--no-sync", "--wal-segsize=1", "--pgdata"])
        .arg(&made);
    output_of(&mut initdb)?;
    let mut server = Postgres::run("made", false)?;
    let mut fill = server.client("pgbench")?;
    output_of(fill.args(["--initialize", "--scale", SCALE, "--quiet"]))?;
    server.stop()
}

fn folder(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

impl Postgres {
    /// Starts a server with a copy of the database; `mergeable` offers it to in-kernel KSM.
    pub(crate) fn start(name: &str, mergeable: bool) -> Result<Postgres> {
        let own = folder(name);
        if own.exists() {
            fs::remove_dir_all(&own).with_context(|| own.display().to_string())?;
        }
        let mut copy = Command::new("/bin/cp");
        output_of(copy.arg("-a").arg(folder("made")).arg(&own))?;
        Postgres::run(name, mergeable)
    }

    fn run(name: &str, mergeable: bool) -> Result<Postgres> {
        let sockets = folder(&format!("{name}.sockets"));
        fs::create_dir_all(&sockets).with_context(|| sockets.display().to_string())?;
        std::os::unix::fs::chown(&sockets, Some(USER), Some(USER))?;
        let mut command = program("postgres")?;
        command.arg("-D").arg(folder(name)).arg("-k").arg(&sockets);
        for setting in [
            "listen_addresses=",
            "shared_buffers=16MB",
            "dynamic_shared_memory_type=mmap",
            "fsync=off",
            "jit=off",
            "autovacuum=off",
        ] {
            command.args(["-c", setting]);
        }
        let log = fs::File::create(folder(&format!("{name}.log")))?;
        command.stdout(Stdio::null()).stderr(log);
        ProgramSetup::host(mergeable).set(&mut command);
        let mut server = Postgres {
            child: command.spawn().context("cannot start postgres")?,
            name: name.to_owned(),
        };
        server.answers()?;
        Ok(server)
    }

    /// Waits until it answers.
    fn answers(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            let asked = output_of(self.client("psql")?.args(["-c", "select 1"]));
            let Err(error) = asked else {
                return Ok(());
            };
            if let Some(status) = self.child.try_wait()? {
                let log = fs::read_to_string(folder(&format!("{}.log", self.name)));
                bail!("postgres ended ({status}): {}", log.unwrap_or_default());
            }
            if begin.elapsed() > ANSWER_TIMEOUT {
                return Err(error).context("postgres does not answer");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// A client of it.
    fn client(&self, name: &str) -> Result<Command> {
        let mut command = program(name)?;
        command.env("PGHOST", folder(&format!("{}.sockets", self.name)));
        Ok(command)
    }

    /// One client makes this many transactions, drawn by the seed; returns the time of each.
    pub(crate) fn work(&mut self, seed: u64, transactions: u64) -> Result<Vec<Duration>> {
        let log = folder(&format!("{}.latencies", self.name));
        let mut command = self.client("pgbench")?;
        command
            .args(["--no-vacuum", "--client", "1", "--log"])
            .args(["--transactions", &transactions.to_string()])
            .args(["--random-seed", &seed.to_string()])
            .arg("--log-prefix")
            .arg(&log);
        let child = command.spawn().context("cannot start pgbench")?;
        let path = PathBuf::from(format!("{}.{}", log.display(), child.id()));
        let output = child.wait_with_output().context("pgbench")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "pgbench: {complaint}");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let latencies = latencies(&text)?;
        ensure!(
            latencies.len() as u64 == transactions,
            "pgbench: {} of {transactions} transactions",
            latencies.len()
        );
        Ok(latencies)
    }

    /// A digest of its contents.
    pub(crate) fn digest(&self) -> Result<String> {
        output_of(self.client("psql")?.args(["-At", "-c", DIGEST]))
    }

    /// Ends it in order, if it has not ended.
    fn stop(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
        let begin = Instant::now();
        while begin.elapsed() < ANSWER_TIMEOUT {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "postgres ended: {status}");
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("postgres does not end")
    }
}

/// The third word of a line of pgbench's log is the time of a transaction, in microseconds.
fn latencies(log: &str) -> Result<Vec<Duration>> {
    let latency = |line: &str| {
        let micros = line.split_ascii_whitespace().nth(2)?.parse().ok()?;
        Some(Duration::from_micros(micros))
    };
    log.lines()
        .map(|line| latency(line).with_context(|| format!("pgbench logs '{line}'")))
        .collect()
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.stop().is_err() {
            self.child.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_read_from_a_log_of_pgbench() {
        let log = "0 1 4800 0 1700000000 12\n0 2 350 0 1700000000 400\n";
        let micros = [4800, 350].map(Duration::from_micros);
        assert_eq!(latencies(log).unwrap(), micros);
        let error = latencies("0 1 failed 0 1 2").unwrap_err().to_string();
        assert!(error.contains("failed"), "{error}");
    }
}
