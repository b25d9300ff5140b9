//! One redis-server: started, queried, ended.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use redis::{Client, Connection};
use uksm_testkit::child_process::ChildExit;

use crate::programs::program_setup::ProgramSetup;

/// Longest wait for a server to load its file.
const LOAD_LIMIT: Duration = Duration::from_secs(90);

/// The place of servers.
#[derive(Debug, Clone)]
pub(crate) struct Installation {
    /// The redis-server program.
    pub program: PathBuf,
    /// Directory of the data file and the sockets.
    pub directory: PathBuf,
}

impl Installation {
    /// The place of this program's servers, which is made if it is missing.
    pub(crate) fn of(program: PathBuf) -> Result<Installation> {
        let directory = PathBuf::from("/tmp/redis");
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(Installation { program, directory })
    }
}

/// A running server. Dropping it ends it.
pub(crate) struct Server {
    child: Child,
    connection: Connection,
    name: String,
    socket: PathBuf,
}

impl Server {
    /// Starts a server that loads the data file, if there is one; `mergeable` offers it to KSM.
    pub(crate) fn start(place: &Installation, name: &str, mergeable: bool) -> Result<Server> {
        Server::start_in(place, name, ProgramSetup::host(mergeable))
    }

    /// The same, with this setup.
    pub(crate) fn start_in(
        place: &Installation,
        name: &str,
        program_setup: ProgramSetup,
    ) -> Result<Server> {
        let socket = place.directory.join(format!("{name}.socket"));
        let mut command = Command::new(&place.program);
        command
            .args([
                "--port",
                "0",
                "--save",
                "",
                "--appendonly",
                "no",
                "--rdbcompression",
                "no",
            ])
            .args(["--enable-debug-command", "yes", "--loglevel", "warning"])
            .args(["--disable-thp", "yes", "--dbfilename", "data.rdb"])
            .arg("--dir")
            .arg(&place.directory)
            .arg("--unixsocket")
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        program_setup.set(&mut command);
        let mut child = command.spawn().with_context(|| {
            format!(
                "cannot start {} (KSM for it needs Linux 6.4)",
                place.program.display()
            )
        })?;
        match connect(&socket, &mut child) {
            Ok(connection) => Ok(Server {
                child,
                connection,
                name: name.to_owned(),
                socket,
            }),
            Err(error) => {
                child.end();
                Err(error).with_context(|| format!("redis-server {name}"))
            }
        }
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A connection for queries.
    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// One more connection.
    pub(crate) fn connect(&mut self) -> Result<Connection> {
        connect(&self.socket, &mut self.child)
            .with_context(|| format!("redis-server {}", self.name))
    }

    /// Waits until the data file is loaded.
    pub(crate) fn loaded(&mut self) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < LOAD_LIMIT {
            if redis::cmd("PING")
                .query::<String>(&mut self.connection)
                .is_ok()
            {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!(
            "redis-server {} did not load its file in {} s",
            self.name,
            LOAD_LIMIT.as_secs()
        )
    }

    /// Loads the data file again, in place of the server's contents; returns when it is loaded.
    pub(crate) fn reload(connection: &mut Connection) -> Result<()> {
        redis::cmd("DEBUG")
            .arg("RELOAD")
            .arg("NOSAVE")
            .query::<()>(connection)
            .context("a redis-server cannot load its file")
    }

    /// A digest of all keys and values.
    pub(crate) fn digest(&mut self) -> Result<String> {
        redis::cmd("DEBUG")
            .arg("DIGEST")
            .query(&mut self.connection)
            .with_context(|| format!("redis-server {}: no DEBUG DIGEST", self.name))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.end();
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn connect(socket: &std::path::Path, child: &mut Child) -> Result<Connection> {
    let client = Client::open(format!("redis+unix://{}", socket.display()))
        .with_context(|| format!("bad socket path {}", socket.display()))?;
    let begin = Instant::now();
    loop {
        match client.get_connection() {
            Ok(connection) => return Ok(connection),
            Err(error) if begin.elapsed() > LOAD_LIMIT => {
                return Err(error).context("does not answer");
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
        if let Some(status) = child.try_wait().context("cannot wait")? {
            bail!("ended on its own: {status}");
        }
    }
}
