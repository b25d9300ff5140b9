//! The outputs of a running machine.
//!
//! Problem: several streams come at once, and one of them may be silent, broken
//! or cut off in the middle of a line.
//!
//! Approach: QEMU connects each port and the console to a socket of ours; a
//! thread for each reads to the end. Events and console lines go to one queue;
//! a program's output goes straight to where the caller wants it; result files
//! are unpacked as they come.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result};

use uksm_vm_protocol::messages::{
    Event, FILES_PORT, PORTS, RECEIVED, STDERR_PORT, STDOUT_PORT, VERDICT_PORT,
};

/// Name of the console's socket.
pub const CONSOLE: &str = "console";

/// One message of the machine.
#[derive(Debug)]
pub enum Message {
    /// An event.
    Event(Event),
    /// A line on the verdict port that is no event.
    Garbled(String),
    /// A line of the console.
    Console(String),
    /// The verdict port was closed: the machine is gone.
    End,
}

/// Destinations of a program's output.
pub struct Sinks {
    /// Its standard output.
    pub stdout: Box<dyn Write + Send>,
    /// Its standard error.
    pub stderr: Box<dyn Write + Send>,
    /// The folder for its result files; dropped if none.
    pub results: Option<PathBuf>,
    /// A copy of every console line.
    pub console: Box<dyn Write + Send>,
}

/// The listening ends of all streams.
#[derive(Debug)]
pub struct Sockets {
    listeners: Vec<(String, PathBuf, UnixListener)>,
}

impl Sockets {
    /// Makes the sockets in a folder; without the console's if a person uses it.
    ///
    /// # Errors
    /// A socket cannot be made.
    pub fn listen(folder: &Path, with_console: bool) -> Result<Self> {
        let names = PORTS.into_iter().chain(with_console.then_some(CONSOLE));
        let listeners = names
            .map(|name| {
                let path = folder.join(name);
                let listener =
                    UnixListener::bind(&path).with_context(|| path.display().to_string())?;
                Ok((name.to_owned(), path, listener))
            })
            .collect::<Result<_>>()?;
        Ok(Self { listeners })
    }

    /// Names and paths, for QEMU's command line.
    pub fn paths(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.listeners
            .iter()
            .map(|(name, path, _)| (name.as_str(), path.as_path()))
    }

    /// Waits until QEMU has connected all of them, and starts reading.
    ///
    /// # Errors
    /// QEMU ended (`alive` returns false) or a socket fails.
    pub fn accept(self, sinks: Sinks, mut alive: impl FnMut() -> bool) -> Result<Streams> {
        let (sender, messages) = channel();
        let mut sinks = PendingSinks::from(sinks);
        let mut threads = Vec::new();
        for (name, path, listener) in self.listeners {
            listener.set_nonblocking(true)?;
            let stream = loop {
                match listener.accept() {
                    Ok((stream, _)) => break stream,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        anyhow::ensure!(
                            alive(),
                            "QEMU ended before it connected {}",
                            path.display()
                        );
                        thread::sleep(std::time::Duration::from_millis(5));
                    }
                    Err(e) => return Err(e).with_context(|| path.display().to_string()),
                }
            };
            stream.set_nonblocking(false)?;
            threads.push(sinks.spawn(&name, stream, sender.clone()));
        }
        Ok(Streams { messages, threads })
    }
}

/// Reads all streams of a running machine.
pub struct Streams {
    /// Events and console lines, as they come.
    pub messages: Receiver<Message>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Streams {
    /// Waits until every stream has been read to its end; QEMU must be gone.
    ///
    /// # Errors
    /// A result file could not be written.
    pub fn finish(self) -> io::Result<()> {
        let mut result = Ok(());
        for thread in self.threads {
            let ended = thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a reader panicked")));
            result = result.and(ended);
        }
        result
    }
}

/// The sinks, each until its stream is connected.
struct PendingSinks {
    stdout: Option<Box<dyn Write + Send>>,
    stderr: Option<Box<dyn Write + Send>>,
    console: Option<Box<dyn Write + Send>>,
    results: Option<PathBuf>,
}

impl From<Sinks> for PendingSinks {
    fn from(sinks: Sinks) -> Self {
        Self {
            stdout: Some(sinks.stdout),
            stderr: Some(sinks.stderr),
            console: Some(sinks.console),
            results: sinks.results,
        }
    }
}

impl PendingSinks {
    fn spawn(
        &mut self,
        name: &str,
        stream: UnixStream,
        sender: Sender<Message>,
    ) -> JoinHandle<io::Result<()>> {
        match name {
            VERDICT_PORT => thread::spawn(move || {
                read_events(stream, &sender);
                Ok(())
            }),
            STDOUT_PORT => copy(stream, self.stdout.take()),
            STDERR_PORT => copy(stream, self.stderr.take()),
            FILES_PORT => {
                let results = self.results.take();
                thread::spawn(move || read_files(stream, results.as_deref()))
            }
            _ => {
                let log = self.console.take().unwrap_or_else(|| Box::new(io::sink()));
                thread::spawn(move || read_console(stream, log, &sender))
            }
        }
    }
}

fn copy(mut stream: UnixStream, sink: Option<Box<dyn Write + Send>>) -> JoinHandle<io::Result<()>> {
    let mut sink = sink.unwrap_or_else(|| Box::new(io::sink()));
    thread::spawn(move || {
        let mut buffer = [0_u8; 8192];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(length) => {
                    // A reader that ended must not stop the machine.
                    let _gone = sink
                        .write_all(&buffer[..length])
                        .and_then(|()| sink.flush());
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    })
}

fn read_events(stream: UnixStream, sender: &Sender<Message>) {
    for line in BufReader::new(stream).split(b'\n') {
        let Ok(line) = line else { break };
        let text = String::from_utf8_lossy(&line);
        let message = match serde_json::from_str(&text) {
            Ok(event) => Message::Event(event),
            Err(_) => Message::Garbled(text.into_owned()),
        };
        // The receiver is gone if the run was given up.
        if sender.send(message).is_err() {
            break;
        }
    }
    let _receiver_gone = sender.send(Message::End);
}

fn read_console(
    stream: UnixStream,
    mut log: Box<dyn Write + Send>,
    sender: &Sender<Message>,
) -> io::Result<()> {
    for line in BufReader::new(stream).split(b'\n') {
        let Ok(line) = line else { break };
        let text = String::from_utf8_lossy(&line)
            .trim_end_matches('\r')
            .to_owned();
        writeln!(log, "{text}").and_then(|()| log.flush())?;
        if sender.send(Message::Console(text)).is_err() {
            break;
        }
    }
    Ok(())
}

fn read_files(mut stream: UnixStream, folder: Option<&Path>) -> io::Result<()> {
    let mut first = [0_u8; 1];
    // No byte at all: no program ran, or it did not finish.
    if stream.read(&mut first)? == 0 {
        return Ok(());
    }
    let mut archive = tar::Archive::new(first.as_slice().chain(&stream));
    archive.set_preserve_permissions(false);
    let unpacked = match folder {
        None => archive
            .entries()
            .and_then(|mut entries| entries.try_for_each(|entry| entry.map(drop))),
        Some(folder) => archive.unpack(folder),
    };
    // The machine waits for this, even if the files could not be written. A machine that is gone
    // does not.
    let _gone = (&stream).write_all(&[RECEIVED]);
    // Read to the end in any case: a full socket would stop the guest.
    io::copy(&mut stream, &mut io::sink())?;
    unpacked
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends one file as a machine does; returns the answer before the connection ends.
    fn sent(folder: Option<&Path>) -> (io::Result<()>, Vec<u8>) {
        let (here, there) = UnixStream::pair().unwrap();
        let machine = thread::spawn(move || {
            let mut archive = tar::Builder::new(&there);
            let mut header = tar::Header::new_gnu();
            header.set_size(300_000);
            header.set_cksum();
            let contents = vec![7; 300_000];
            archive
                .append_data(&mut header, "result.json", &contents[..])
                .unwrap();
            archive.into_inner().unwrap();
            let mut answer = [0];
            (&there).read_exact(&mut answer).unwrap();
            answer.to_vec()
        });
        let read = read_files(here, folder);
        (read, machine.join().unwrap())
    }

    #[test]
    fn a_machine_is_told_when_all_its_files_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let (read, answer) = sent(Some(folder.path()));
        read.unwrap();
        assert_eq!(answer, [RECEIVED]);
        let file = std::fs::read(folder.path().join("result.json")).unwrap();
        assert_eq!(file, vec![7; 300_000]);
    }

    #[test]
    fn it_is_told_where_nobody_wants_them_or_they_cannot_be_written_too() {
        let (read, answer) = sent(None);
        assert!(read.is_ok() && answer == [RECEIVED]);
        let (read, answer) = sent(Some(Path::new("/proc/nowhere")));
        assert!(read.is_err() && answer == [RECEIVED]);
    }
}
