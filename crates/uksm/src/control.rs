//! The socket by which `status` and `break` reach the daemon.
//!
//! Questions come from outside at any time. The worker is one thread that merges; a client that is
//! slow or silent must not stop it. So a thread of its own accepts one client at a time, reads one
//! line of JSON, hands it to the worker through a channel, wakes the worker, and writes back its
//! answer as one line. The worker answers between two commands. The socket's folder and file are
//! root's alone; requests are bounded in length and time. A lock beside the socket is held while the
//! daemon lives: it tells a running daemon from a socket that an ended one left.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, sync_channel};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use uksm_linux::wake::Waker;

use crate::groups::channel::Channel;
use crate::groups::line::Listener;
use crate::groups::setup::{Order, Word};
use crate::selectors::SelectorTexts;
use crate::status::Status;
use crate::status::groups::GroupsStatus;

/// Longest request: some thousand process ids.
const LONGEST: u64 = 64 << 10;

/// A client that sends nothing for this long is disconnected.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest wait for an answer: breaking up large processes takes long.
const LONGEST_ANSWER: Duration = Duration::from_secs(600);

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// How are you?
    Status,
    /// How is the group of this name?
    Group(String),
    /// Write down what has accrued since the last record of the ledger.
    Account,
    /// Read the configuration again.
    Reload,
    /// Unmerge these, and leave them alone from now on.
    Break(SelectorTexts),
    /// Unmerge these spaces; a supervisor's to its worker.
    BreakSpaces(Vec<u32>),
}

/// What the daemon answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// To [`Request::Status`] of a daemon without groups, and to [`Request::Group`].
    Status(Box<Status>),
    /// To [`Request::Status`] of one with groups.
    Groups(Box<GroupsStatus>),
    /// To [`Request::Break`] and [`Request::BreakSpaces`].
    Broken {
        /// Processes looked at.
        processes: u64,
        /// Pages unmerged.
        pages: u64,
        /// Processes in which memory did not suffice.
        stopped: u64,
    },
    /// To [`Request::Account`].
    Accounted {
        /// The folder of the ledger; none if none is written.
        folder: Option<PathBuf>,
        /// Why it could not be written, in one line.
        fault: Option<String>,
    },
    /// To [`Request::Reload`].
    Reloaded {
        /// Groups there are now.
        groups: u64,
    },
    /// It could not be done.
    Error(String),
}

/// A request that waits for the worker.
#[derive(Debug)]
pub(crate) struct Pending {
    /// What is asked.
    pub(crate) request: Request,
    answer: SyncSender<Answer>,
}

impl Pending {
    /// Answers it. A client that is gone is ignored.
    pub(crate) fn answer(&self, answer: Answer) {
        let _gone = self.answer.try_send(answer);
    }
}

/// The daemon's end. The socket goes with it.
#[derive(Debug)]
pub(crate) struct Control {
    requests: Receiver<Pending>,
    _place: Option<Place>,
}

/// Where a socket is, and the lock beside it.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    _lock: File,
}

impl Control {
    /// Listens at `path`.
    ///
    /// # Errors
    /// Another daemon does, or the place cannot be had: one line.
    pub(crate) fn listen(path: &Path, waker: Waker) -> Result<Control, String> {
        let fail = |what: &str, error: std::io::Error| {
            format!(
                "{}: {what}: {error}: name another place with --socket",
                path.display()
            )
        };
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder {
            let mut builder = std::fs::DirBuilder::new();
            builder.recursive(true).mode(0o700);
            builder
                .create(folder)
                .map_err(|e| fail("cannot make the folder of the socket", e))?;
        }
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options
            .open(&lock_path)
            .map_err(|e| fail("cannot make the lock of the socket", e))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(format!(
                    "{}: uksm is already running: stop it, or name another place with --socket",
                    path.display()
                ));
            }
            Err(errno) => return Err(fail("cannot lock", errno.into())),
        }
        // With the lock held, a socket that is there was left behind.
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(fail("cannot remove what is in the socket's place", error));
            }
            _ => {}
        }
        // Nobody connects between bind and the change of mode: the folder may be anyone's.
        let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(path);
        rustix::process::umask(mask);
        let listener = listener.map_err(|e| fail("cannot listen", e))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .map_err(|e| fail("cannot make the socket root's alone", e))?;
        let (sender, requests) = mpsc::channel();
        std::thread::Builder::new()
            .name("uksm-control".to_owned())
            .stack_size(256 << 10)
            .spawn(move || serve(&listener, &sender, &waker))
            .map_err(|e| fail("cannot start a thread", e))?;
        Ok(Control {
            requests,
            _place: Some(Place {
                path: path.to_owned(),
                _lock: lock,
            }),
        })
    }

    /// Takes questions from a supervisor, and passes on to the listener what it tells of spaces; its end asks for a stop.
    ///
    /// # Errors
    /// No thread can be started: one line.
    pub(crate) fn of_supervisor(
        channel: Channel,
        listener: Listener,
        waker: Waker,
    ) -> Result<Control, String> {
        let (sender, requests) = mpsc::channel();
        std::thread::Builder::new()
            .name("uksm-control".to_owned())
            .stack_size(512 << 10)
            .spawn(move || {
                if let Err(error) = obey(&channel, &listener, &sender, &waker) {
                    tracing::warn!("the supervisor cannot be heard: {error}");
                }
                waker.stop();
            })
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Control {
            requests,
            _place: None,
        })
    }

    /// The next request, if one waits.
    #[must_use]
    pub(crate) fn next(&self) -> Option<Pending> {
        self.requests.try_recv().ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.path);
    }
}

fn serve(listener: &UnixListener, worker: &Sender<Pending>, waker: &Waker) {
    for client in listener.incoming() {
        match client {
            Ok(client) => {
                if let Err(error) = attend(client, worker, waker) {
                    tracing::debug!("a client of the socket was let go: {error}");
                }
            }
            Err(error) => {
                // Out of descriptors, for instance: not a reason to spin.
                tracing::warn!("cannot accept a client: {error}");
                std::thread::sleep(CLIENT_TIMEOUT);
            }
        }
    }
}

fn attend(mut client: UnixStream, worker: &Sender<Pending>, waker: &Waker) -> std::io::Result<()> {
    client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new((&client).take(LONGEST)).read_line(&mut line)?;
    let answer = match serde_json::from_str(&line) {
        Ok(request) => match hand_over(request, worker, waker) {
            Some(answer) => answer,
            None => return Ok(()),
        },
        Err(error) => Answer::Error(format!("the request was not understood: {error}")),
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    client.write_all(&text)
}

/// Has the worker answer. None if it has ended.
fn hand_over(request: Request, worker: &Sender<Pending>, waker: &Waker) -> Option<Answer> {
    let (sender, answer) = sync_channel(1);
    let pending = Pending {
        request,
        answer: sender,
    };
    worker.send(pending).ok()?;
    waker.wake();
    let answer = answer.recv_timeout(LONGEST_ANSWER);
    Some(answer.unwrap_or_else(|_| {
        Answer::Error("the daemon did not answer: it is stopping or stuck".to_owned())
    }))
}

/// Passes on what a supervisor asks, until it ends or the worker does.
fn obey(
    channel: &Channel,
    listener: &Listener,
    worker: &Sender<Pending>,
    waker: &Waker,
) -> std::io::Result<()> {
    while let Some((order, _)) = channel.receive(None)? {
        let (number, request) = match order {
            Order::Ask(number, request) => (number, request),
            Order::Spaces(notes) => {
                listener.hear(notes);
                continue;
            }
            // It has begun long ago.
            Order::Setup(_) | Order::Hints => continue,
        };
        let Some(answer) = hand_over(request, worker, waker) else {
            break;
        };
        if let Err(error) = channel.send(&Word::Answer(number, answer), None) {
            let line = Answer::Error(format!("the answer cannot be sent: {error}"));
            channel.send(&Word::Answer(number, line), None)?;
        }
    }
    Ok(())
}

/// Why a client got no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// Nobody listens there.
    NotRunning,
    /// Something else, in one line.
    Failed(String),
}

/// Asks the daemon at `path`.
///
/// # Errors
/// No daemon, no right, no answer.
pub(crate) fn ask(path: &Path, request: &Request) -> Result<Answer, NoAnswer> {
    ask_within(path, request, LONGEST_ANSWER)
}

/// The same, with as much patience as is given.
///
/// # Errors
/// As [`ask`]; no answer in time.
pub(crate) fn ask_within(
    path: &Path,
    request: &Request,
    patience: Duration,
) -> Result<Answer, NoAnswer> {
    use std::io::ErrorKind;
    let fail = |error: std::io::Error| NoAnswer::Failed(format!("{}: {error}", path.display()));
    let mut stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) => {
            return Err(match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => NoAnswer::NotRunning,
                ErrorKind::PermissionDenied => NoAnswer::Failed(format!(
                    "{}: no right to ask the daemon: run as root",
                    path.display()
                )),
                _ => fail(error),
            });
        }
    };
    stream.set_read_timeout(Some(patience)).map_err(fail)?;
    let mut text = serde_json::to_vec(request).map_err(|error| fail(error.into()))?;
    text.push(b'\n');
    stream.write_all(&text).map_err(fail)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(fail)?;
    serde_json::from_str(&line).map_err(|error| {
        let path = path.display();
        NoAnswer::Failed(format!(
            "{path}: the daemon's answer was not understood: {error}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uksm_linux::wake::Sleeper;

    fn place() -> (tempfile::TempDir, PathBuf, Sleeper) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("run/uksm.sock");
        (root, path, Sleeper::new().unwrap())
    }

    #[test]
    fn a_request_wakes_the_worker_and_its_answer_comes_back() {
        let (_root, path, mut sleeper) = place();
        let control = Control::listen(&path, sleeper.waker().unwrap()).unwrap();
        let asked = path.clone();
        let client = std::thread::spawn(move || {
            let request = Request::Break(SelectorTexts {
                pid: vec!["7@8".into()],
                ..SelectorTexts::default()
            });
            ask(&asked, &request).unwrap()
        });
        let pending = loop {
            sleeper.sleep(uksm_linux::clock::now() + 60_000_000_000, &[]);
            if let Some(pending) = control.next() {
                break pending;
            }
        };
        assert!(matches!(&pending.request, Request::Break(texts) if texts.pid == ["7@8"]));
        pending.answer(Answer::Broken {
            processes: 1,
            pages: 2,
            stopped: 0,
        });
        assert_eq!(
            client.join().unwrap(),
            Answer::Broken {
                processes: 1,
                pages: 2,
                stopped: 0
            }
        );
    }

    #[test]
    fn a_second_daemon_is_refused_and_a_left_socket_is_not_a_daemon() {
        let (_root, path, sleeper) = place();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        assert!(matches!(
            ask(&path, &Request::Status),
            Err(NoAnswer::NotRunning)
        ));
        let first = Control::listen(&path, sleeper.waker().unwrap()).unwrap();
        let error = Control::listen(&path, sleeper.waker().unwrap()).unwrap_err();
        assert!(error.contains("uksm is already running"), "{error}");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn nonsense_is_answered_and_not_passed_on() {
        let (_root, path, sleeper) = place();
        let control = Control::listen(&path, sleeper.waker().unwrap()).unwrap();
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"{\"explode\":1}\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.contains("not understood"), "{line}");
        assert!(control.next().is_none());
    }
}
