//! A member that is a virtual machine: its balloon, over QMP.
//!
//! # Problem
//! A guest is made smaller by its balloon driver, which takes memory from it at once, slowly, or
//! never. QEMU may hang, close its socket, serve another client, or be newer than the protocol
//! known here.
//!
//! # Approach
//! The crate `qapi` has the protocol and its types. It reads through [`Answers`], which bounds time
//! and length and leaves events out, so that no output of QEMU can block or end the daemon. The
//! connection is kept until an error; then a new one is made at the next call, because a late
//! answer would be taken for the next one. The size is always read back.
//!
//! # Units
//! Bytes. A call takes at most [`TIMEOUT`] for each command.
//!
//! # Source
//! QEMU Machine Protocol: `balloon`, `query-balloon`.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use qapi::{ExecuteError, Qmp, qmp};
use socket2::{Domain, SockAddr, Socket, Type};
use uksm_input::plain;

use crate::actuator::{Actuator, Error, Sizes};
use crate::restore_journal::{ObjectIdentity, RestoreJournal};
use crate::settings::SizeControl;
use answers::Answers;
use socket_path::SocketFile;

mod answers;
mod socket_path;

/// The time within which QEMU must answer a command.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Limit of the shown part of an error, which may contain text of the monitor.
const MAX_WORDS_BYTES: usize = 400;

/// A virtual machine's balloon.
pub(crate) struct Balloon {
    socket: PathBuf,
    timeout: Duration,
    connection: Option<Connection>,
    place: SizeControl,
    journal: RestoreJournal,
    /// The size before the first change, and the identity of its machine.
    before: Option<(ObjectIdentity, u64)>,
    /// The size that was asked for last.
    asked: Option<u64>,
}

/// A connection to a monitor, after its greeting.
struct Connection {
    monitor: Qmp<Answers>,
    /// The machine's process.
    pid: u32,
}

impl Balloon {
    /// The balloon of the machine whose monitor listens at this socket.
    pub(crate) fn new(socket: &Path, journal: &RestoreJournal) -> Balloon {
        Balloon {
            place: SizeControl::Machine {
                socket: socket.to_owned(),
            },
            journal: journal.clone(),
            socket: socket.to_owned(),
            timeout: TIMEOUT,
            connection: None,
            before: None,
            asked: None,
        }
    }

    fn fault(&self, what: &dyn std::fmt::Display) -> Error {
        Error::wrong(
            &self.socket,
            plain::start(&what.to_string(), MAX_WORDS_BYTES),
        )
    }

    fn reach(&self) -> std::io::Result<UnixStream> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        // It bounds connecting as well: a monitor that does not accept has a queue.
        socket.set_write_timeout(Some(self.timeout))?;
        let file = SocketFile::open(&self.socket)?;
        socket.connect(&SockAddr::unix(file.path())?)?;
        Ok(UnixStream::from(socket))
    }

    fn connect(&self) -> Result<Connection, Error> {
        let stream = self
            .reach()
            .map_err(|error| Error::file(&self.socket, error))?;
        let peer = getsockopt(&stream, PeerCredentials)
            .map_err(|errno| Error::file(&self.socket, errno.into()))?;
        // The kernel returns 0 for a process outside the own PID namespace.
        let pid = u32::try_from(peer.pid()).ok().filter(|&pid| pid > 0);
        let pid = pid.ok_or_else(|| {
            self.fault(&"its QEMU is outside this PID namespace, so its process is not known")
        })?;
        let mut monitor = Qmp::new(Answers::new(stream));
        monitor.inner_mut().allow(self.timeout);
        monitor
            .handshake()
            .map_err(|error| self.fault(&format!("no monitor answers: {error}")))?;
        Ok(Connection { monitor, pid })
    }

    /// Executes a command, on the existing connection or a new one.
    fn execute<C: qapi::Command>(&mut self, command: &C) -> Result<C::Ok, Error> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        connection.monitor.inner_mut().allow(self.timeout);
        match connection.monitor.execute(command) {
            Ok(answer) => {
                self.connection = Some(connection);
                Ok(answer)
            }
            // QEMU understood and refused: the connection is as good as before.
            Err(ExecuteError::Qapi(refusal)) => {
                self.connection = Some(connection);
                Err(self.fault(&format!("{}: {}", C::NAME, refusal.desc)))
            }
            Err(ExecuteError::Io(error)) => Err(self.fault(&format!("{}: {error}", C::NAME))),
        }
    }

    fn actual(&mut self) -> Result<u64, Error> {
        let actual = self.execute(&qmp::query_balloon {})?.actual;
        u64::try_from(actual).map_err(|_| {
            self.connection = None;
            self.fault(&format!("query-balloon: a size of {actual} bytes"))
        })
    }

    fn identity(&self) -> Result<ObjectIdentity, Error> {
        let found = SocketFile::open(&self.socket).and_then(|file| file.metadata());
        let found = found.map_err(|error| Error::file(&self.socket, error))?;
        Ok(ObjectIdentity::of(&found))
    }

    /// The size before the first change: the present size, if there was no change; `now` if it is
    /// known already.
    fn before(&mut self, now: Option<u64>) -> Result<(ObjectIdentity, u64), Error> {
        let identity = self.identity()?;
        if let Some(known) = self.before
            && known.0 == identity
        {
            return Ok(known);
        }
        let found = self.journal.find(&self.place, identity);
        let before = match found.and_then(|text| text.parse().ok()).or(now) {
            Some(before) => before,
            None => self.actual()?,
        };
        Ok(*self.before.insert((identity, before)))
    }

    fn put_back(&mut self) -> Result<(), Error> {
        let identity = self.identity()?;
        // A machine that was started anew has its own size, and one without an entry was not
        // changed.
        let before = self.journal.find(&self.place, identity);
        match before.and_then(|text| text.parse().ok()) {
            Some(before) => self.ask(before),
            None => Ok(()),
        }
    }

    /// Whether no process has the socket any more.
    fn is_gone(&self) -> bool {
        let error = self.reach().err();
        error.is_some_and(|error| Error::file(&self.socket, error).is_gone())
    }

    fn ask(&mut self, bytes: u64) -> Result<(), Error> {
        let value = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.execute(&qmp::balloon { value })?;
        Ok(())
    }
}

impl Actuator for Balloon {
    fn look(&mut self) -> Result<Sizes, Error> {
        let real = self.actual()?;
        self.before(Some(real))?;
        let process = self.connection.as_ref().map(|own| own.pid);
        Ok(Sizes {
            real,
            processes: process.into_iter().collect(),
        })
    }

    fn set(&mut self, bytes: u64) -> Result<(), Error> {
        let (identity, before) = self.before(None)?;
        self.journal
            .note(&self.place, identity, &before.to_string())?;
        // A machine that was started anew behind the same socket does not know the size.
        if self.asked == Some(bytes) && self.connection.is_some() {
            return Ok(());
        }
        self.asked = None;
        self.ask(bytes)?;
        self.asked = Some(bytes);
        Ok(())
    }

    fn release(&mut self) -> Result<(), Error> {
        let done = self.put_back();
        if done.is_ok() || self.is_gone() {
            self.journal.forget(&self.place)?;
        }
        (self.before, self.asked) = (None, None);
        self.connection = None;
        done
    }
}

#[cfg(test)]
mod tests;
