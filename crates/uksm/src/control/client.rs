//! The client's end: asks a daemon, and prints its answer.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::anyhow;

use super::message::{Answer, CLIENT_TIMEOUT, Request};
use super::message_stream::MessageStream;
use super::protocol;
use crate::failure::Failure;
use crate::log;

/// Most bytes of an answer: some hundred times what a status of 1,000 groups has.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Why a client got no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// No daemon listens there.
    NotRunning,
    /// Something else, in one line.
    Failed(String),
}

/// Asks the daemon at `path`.
///
/// # Errors
/// No daemon, no right, no answer.
pub(crate) fn ask(path: &Path, request: &Request) -> Result<Answer, NoAnswer> {
    // If its worker does not answer, the daemon reports that itself.
    ask_within(path, request, request.timeout() + CLIENT_TIMEOUT)
}

/// The same, with this timeout.
///
/// # Errors
/// As [`ask`]; no answer in time.
pub(crate) fn ask_within(
    path: &Path,
    request: &Request,
    timeout: Duration,
) -> Result<Answer, NoAnswer> {
    use std::io::ErrorKind;
    let fail = |error: std::io::Error| {
        let path = path.display();
        NoAnswer::Failed(match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => format!(
                "{path}: the daemon did not answer within {} s: it is busy, stopping or stuck",
                timeout.as_secs_f64()
            ),
            _ => format!("{path}: {error}"),
        })
    };
    let stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) => {
            return Err(match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => NoAnswer::NotRunning,
                ErrorKind::PermissionDenied => NoAnswer::Failed(format!(
                    "{}: no right to ask the daemon: run as root, or as a member of its socket_group",
                    path.display()
                )),
                _ => fail(error),
            });
        }
    };
    let mut stream = MessageStream::of(stream);
    let until = Instant::now() + timeout;
    let message = protocol::message_of(request).map_err(NoAnswer::Failed)?;
    match stream.write(&message, until) {
        // The daemon closed before it had read all, and has sent the reason.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.map_err(fail)?,
    }
    let reply = stream.next(MAX_ANSWER_BYTES, until).map_err(fail)?;
    let reply = reply.unwrap_or_default();
    protocol::answer_of(request, &reply).map_err(|error| {
        let path = path.display();
        NoAnswer::Failed(format!(
            "{path}: the daemon's answer was not understood: {error}"
        ))
    })
}

/// The answer of the daemon at `socket`; an error names the remedy.
///
/// # Errors
/// As [`ask`].
pub(crate) fn asked(socket: &Path, request: &Request) -> Result<Answer, Failure> {
    ask(socket, request).map_err(|why| unanswered(socket, why))
}

/// Why there is no answer, and the remedy.
pub(crate) fn unanswered(socket: &Path, why: NoAnswer) -> Failure {
    let line = match why {
        NoAnswer::Failed(line) => line,
        NoAnswer::NotRunning => format!(
            "{}: no daemon answers: start one with `uksm run` or `systemctl start uksm`, or \
             name its socket with --socket",
            socket.display()
        ),
    };
    anyhow!(line).into()
}

/// Prints an answer, as JSON or for people.
///
/// # Errors
/// The answer is an error, or belongs to another question; it cannot be written.
pub(crate) fn show(answer: &Answer, json: bool) -> Result<(), Failure> {
    let printed = match answer {
        Answer::Status(status) => log::print_report(status, json),
        Answer::Groups(status) => log::print_report(status, json),
        Answer::Ksm(status) => log::print_report(status, json),
        Answer::Error(error) => Err(anyhow!(error.clone())),
        Answer::Accounted { .. }
        | Answer::Broken { .. }
        | Answer::Changed { .. }
        | Answer::Explained(_)
        | Answer::Processes(_)
        | Answer::Spaces(_) => Err(anyhow!("the daemon sent an unexpected reply")),
    };
    Ok(printed?)
}
