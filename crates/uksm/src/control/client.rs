//! The client's end: asks a daemon.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{Answer, CLIENT_TIMEOUT, Request, protocol};

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
    // Should its worker not answer, the daemon says so itself.
    ask_within(path, request, request.patience() + CLIENT_TIMEOUT)
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
    let fail = |error: std::io::Error| {
        let path = path.display();
        NoAnswer::Failed(match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => format!(
                "{path}: the daemon did not answer within {} s: it is busy, stopping or stuck",
                patience.as_secs_f64()
            ),
            _ => format!("{path}: {error}"),
        })
    };
    let mut stream = match UnixStream::connect(path) {
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
    stream.set_read_timeout(Some(patience)).map_err(fail)?;
    stream.set_write_timeout(Some(patience)).map_err(fail)?;
    let message = protocol::message_of(request).map_err(NoAnswer::Failed)?;
    match stream.write_all(&message) {
        // The daemon was done before it had read all, and has said why.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.map_err(fail)?,
    }
    let mut reply = Vec::new();
    BufReader::new(stream)
        .read_until(0, &mut reply)
        .map_err(fail)?;
    protocol::answer_of(request, &reply).map_err(|error| {
        let path = path.display();
        NoAnswer::Failed(format!(
            "{path}: the daemon's answer was not understood: {error}"
        ))
    })
}
