//! The socket by which `status`, `break` and others reach the daemon.
//!
//! # Problem
//! Requests come from outside at any time. The worker is one thread that merges; a slow or silent
//! client must not stop it.
//!
//! # Approach
//! A thread of its own accepts one client at a time, reads a call of the varlink interface
//! ([`protocol`]), passes it to the worker through a channel, wakes the worker, and writes its
//! answer back. The worker answers between two commands. The socket's folder and file are root's
//! alone, or a group's as well ([`peer`]); messages are bounded in length and time, in both
//! directions ([`message_stream`]). A lock beside the socket is held while the daemon lives: it
//! distinguishes a running daemon from a socket that an ended one left.
//!
//! Between supervisor and workers, the same requests ([`message`]) use a channel of their own,
//! without varlink.

use std::fs::File;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use uksm_linux::sleeper::Waker;
use uksm_linux::socket_file::{self, SocketFile};
use varlink::{ConnectionHandler as _, VarlinkService};

pub(crate) mod client;
mod message;
mod message_stream;
mod peer;
mod protocol;

pub(crate) use client::{NoAnswer, ask_within};
use message::CLIENT_TIMEOUT;
pub(crate) use message::{Answer, Change, Request};
use message_stream::MessageStream;
use peer::Members;

/// Maximum length of a client's message, in bytes: some thousand process ids.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// Timeout of the call of a client that has no right.
const STRANGER_TIMEOUT: Duration = Duration::from_millis(250);

/// A request that waits for the worker.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    /// The request.
    pub(crate) request: Request,
    answer: SyncSender<Answer>,
}

impl PendingRequest {
    /// Answers it. A client that is gone is ignored.
    pub(crate) fn answer(&self, answer: Answer) {
        let _gone = self.answer.try_send(answer);
    }
}

/// The daemon's end. Dropping it removes the socket.
#[derive(Debug)]
pub(crate) struct Control {
    requests: Receiver<PendingRequest>,
    /// Shares of a core that a supervisor allows.
    shares: Receiver<f64>,
    _socket: Option<BoundSocket>,
}

/// The path of a socket, and the lock beside it.
#[derive(Debug)]
struct BoundSocket {
    // Removed before the lock is released.
    _file: SocketFile,
    _lock: File,
}

impl Control {
    /// Listens at `path`. Besides root, members of `group` may send requests.
    ///
    /// # Errors
    /// Another daemon listens there, the path is not usable, or there is no such group: one line.
    pub(crate) fn listen(
        path: &Path,
        group: Option<&str>,
        waker: Waker,
    ) -> Result<Control, String> {
        let members = group.map(Members::of).transpose()?;
        let fail = |what: &str, error| failed(path, what, &error);
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
        let lock = lock(path)?;
        // With the lock held, an existing socket is a stale one.
        socket_file::remove_stale(path)
            .map_err(|e| fail("cannot remove the file in the socket's place", e))?;
        // No client connects between bind and the change of mode: the folder may be anyone's.
        let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(path);
        rustix::process::umask(mask);
        let listener = listener.map_err(|e| fail("cannot listen", e))?;
        let file = SocketFile::of_bound(path).map_err(|e| fail("cannot listen", e))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .map_err(|e| fail("cannot restrict the socket to root", e))?;
        if let Some(members) = members {
            members.give(path).map_err(|error| {
                let group = group.unwrap_or_default();
                fail(
                    &format!("cannot give the socket to socket_group = {group}"),
                    error,
                )
            })?;
        }
        let (sender, requests) = mpsc::channel();
        std::thread::Builder::new()
            .name("uksm-control".to_owned())
            .stack_size(512 << 10)
            .spawn(move || serve(&listener, members, sender, waker))
            .map_err(|e| fail("cannot start a thread", e))?;
        let (_nobody, shares) = mpsc::channel();
        Ok(Control {
            requests,
            shares,
            _socket: Some(BoundSocket {
                _file: file,
                _lock: lock,
            }),
        })
    }

    /// A control whose requests and shares come through these channels, not from a socket.
    pub(crate) fn of_channels(
        requests: Receiver<PendingRequest>,
        shares: Receiver<f64>,
    ) -> Control {
        Control {
            requests,
            shares,
            _socket: None,
        }
    }

    /// The next request, if one waits.
    #[must_use]
    pub(crate) fn next(&self) -> Option<PendingRequest> {
        self.requests.try_recv().ok()
    }

    /// The share that a supervisor allowed last, if it has since the previous call.
    #[must_use]
    pub(crate) fn share(&self) -> Option<f64> {
        self.shares.try_iter().last()
    }
}

/// The lock beside a socket, which a daemon holds while it lives.
///
/// # Errors
/// Another daemon holds it, or it cannot be made: one line.
pub(crate) fn lock(path: &Path) -> Result<File, String> {
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    let lock = options
        .open(&lock_path)
        .map_err(|e| failed(path, "cannot make the lock of the socket", &e))?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(Errno::WOULDBLOCK) => Err(format!(
            "{}: uksm is already running: stop it, or name another place with --socket",
            path.display()
        )),
        Err(errno) => Err(failed(path, "cannot lock", &errno.into())),
    }
}

fn failed(path: &Path, what: &str, error: &std::io::Error) -> String {
    format!(
        "{}: {what}: {error}: name another place with --socket",
        path.display()
    )
}

fn serve(
    listener: &UnixListener,
    members: Option<Members>,
    worker: Sender<PendingRequest>,
    waker: Waker,
) {
    let ask = move |request: Request| hand_over(request, &worker, &waker);
    let service = VarlinkService::new(
        "uksm",
        "uksm",
        env!("CARGO_PKG_VERSION"),
        "",
        vec![Box::new(protocol::Interface { ask })],
    );
    for client in listener.incoming() {
        match client {
            Ok(client) => {
                if let Err(error) = attend(client, members, &service) {
                    tracing::debug!("a client of the socket was disconnected: {error}");
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

/// Answers the calls of one client.
///
/// # Errors
/// It sent no valid call, was too late, or has no right.
fn attend(
    client: UnixStream,
    members: Option<Members>,
    service: &VarlinkService,
) -> std::io::Result<()> {
    let is_allowed = peer::may_ask(&client, members)?;
    let mut stream = MessageStream::of(client);
    let until = Instant::now() + CLIENT_TIMEOUT;
    if !is_allowed {
        // Closing before the call was read would take the reply away from the caller.
        let _call = stream.next(MAX_MESSAGE_BYTES, Instant::now() + STRANGER_TIMEOUT);
        let refused = protocol::no_right().map_err(std::io::Error::other)?;
        return stream.write(&refused, until);
    }
    while Instant::now() < until
        && let Some(message) = stream.next(MAX_MESSAGE_BYTES, until)?
    {
        let mut reply = Vec::new();
        service
            .handle(&mut &message[..], &mut reply, None)
            .map_err(std::io::Error::other)?;
        stream.write(&reply, Instant::now() + CLIENT_TIMEOUT)?;
    }
    Ok(())
}

/// Passes a request to the worker and waits for its answer. None if the worker has ended.
pub(crate) fn hand_over(
    request: Request,
    worker: &Sender<PendingRequest>,
    waker: &Waker,
) -> Option<Answer> {
    let (sender, answer) = sync_channel(1);
    let timeout = request.timeout();
    let pending = PendingRequest {
        request,
        answer: sender,
    };
    worker.send(pending).ok()?;
    waker.wake();
    let answer = answer.recv_timeout(timeout);
    Some(answer.unwrap_or_else(|_| {
        Answer::Error("the daemon did not answer: it is busy, stopping or stuck".to_owned())
    }))
}

#[cfg(test)]
pub(crate) mod tests;
