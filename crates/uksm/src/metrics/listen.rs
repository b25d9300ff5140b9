//! Metrics over HTTP.
//!
//! # Problem
//! Anyone who can reach the port can read the figures, and can keep the server busy: each scrape
//! wakes the daemon and its workers.
//!
//! # Approach
//! An address is limited to this machine unless more is requested; a socket in the file system has
//! rights. hyper serves, on one thread. There are at most [`MAX_CLIENTS`] connections; each answers
//! one request and lives for at most [`MAX_CONNECTION_TIME`]. If all are taken, the oldest without
//! a request is closed for the next client, or else the oldest that does not read its answer, so
//! that idle clients keep no other client waiting. One other thread asks the daemon, one request at
//! a time, and at most once each [`FRESH`]: requests in between get the same answer.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use uksm_linux::socket_file::remove_stale;

use super::exposition::{self, Format};
use super::snapshot::{ANSWER_TIMEOUT, Snapshot};

/// Maximum number of connections at a time.
const MAX_CLIENTS: usize = 32;

/// Maximum lifetime of a connection.
const MAX_CONNECTION_TIME: Duration = Duration::from_secs(ANSWER_TIMEOUT.as_secs() + 2);

/// Timeout of a client's request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval of checks for a free place, while all are taken.
const RETRY: Duration = Duration::from_millis(100);

/// Lifetime of a cached answer of the daemon.
const FRESH: Duration = Duration::from_secs(1);

/// The address to listen at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// A port.
    Port(SocketAddr),
    /// A socket in the file system.
    Path(PathBuf),
}

impl Address {
    /// `unix:PATH`, `ADDRESS:PORT`, or `PORT` of this machine alone.
    ///
    /// # Errors
    /// It is none of these, or is reachable from other machines without `public`: one line.
    pub(super) fn of(text: &str, public: bool) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.is_empty() {
                true => Err("--listen unix: names no socket: must be unix:PATH".to_owned()),
                false => Ok(Address::Path(PathBuf::from(path))),
            };
        }
        let port = text
            .parse()
            .map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let address = port.or_else(|_| text.parse::<SocketAddr>()).map_err(|_| {
            format!("--listen {text}: must be PORT, ADDRESS:PORT with the address in numbers, or unix:PATH")
        })?;
        let is_own = match address.ip() {
            IpAddr::V6(ip) => ip.to_canonical().is_loopback(),
            IpAddr::V4(ip) => ip.is_loopback(),
        };
        if is_own || public {
            Ok(Address::Port(address))
        } else {
            Err(format!(
                "--listen {text}: other machines could read what is saved and by which groups: take --public to allow it, or \
                 127.0.0.1:{}",
                address.port()
            ))
        }
    }
}

/// The socket that listens.
#[derive(Debug)]
enum Listener {
    Port(tokio::net::TcpListener),
    Path(tokio::net::UnixListener),
}

/// Serves until the process is ended.
///
/// # Errors
/// The address is not available: one line.
pub(super) fn serve(address: &Address, socket: &Path) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let source = Arc::new(SnapshotSource {
        socket: socket.to_owned(),
        last: Mutex::new(None),
    });
    runtime.block_on(async {
        let (listener, place) = bind(address)?;
        crate::log::print_line(&format!("metrics are at {place}"));
        crate::systemd::notify(&[sd_notify::NotifyState::Ready]);
        accept(listener, source).await;
        Ok(())
    })
}

/// Listens, and answers where.
fn bind(address: &Address) -> Result<(Listener, String), String> {
    match address {
        Address::Port(address) => {
            let fail = |error| format!("--listen {address}: cannot listen: {error}");
            let listener = TcpListener::bind(address).map_err(fail)?;
            listener.set_nonblocking(true).map_err(fail)?;
            let address = listener.local_addr().map_err(fail)?;
            let listener = tokio::net::TcpListener::from_std(listener).map_err(fail)?;
            Ok((
                Listener::Port(listener),
                format!("http://{address}/metrics"),
            ))
        }
        Address::Path(path) => {
            let shown = path.display();
            let fail = |error| format!("--listen unix:{shown}: cannot listen: {error}");
            remove_stale(path).map_err(fail)?;
            // Its user and group may connect, and no one before the change of mode.
            let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o117));
            let listener = UnixListener::bind(path);
            rustix::process::umask(mask);
            let listener = listener.map_err(fail)?;
            listener.set_nonblocking(true).map_err(fail)?;
            let listener = tokio::net::UnixListener::from_std(listener).map_err(fail)?;
            Ok((
                Listener::Path(listener),
                format!("unix:{shown}, as /metrics"),
            ))
        }
    }
}

/// Accepts clients, for ever.
async fn accept(listener: Listener, source: Arc<SnapshotSource>) {
    let places = Arc::new(Semaphore::new(MAX_CLIENTS));
    let open = OpenConnections::default();
    for number in 0.. {
        let accepted = match &listener {
            Listener::Port(listener) => listener.accept().await.map(|(client, _)| client.into()),
            Listener::Path(listener) => listener.accept().await.map(|(client, _)| client.into()),
        };
        let client: Client = match accepted {
            Ok(client) => client,
            Err(error) => {
                crate::log::print_line(&format!("a client could not be accepted: {error}"));
                // Out of descriptors, for instance: not a reason to spin.
                tokio::time::sleep(REQUEST_TIMEOUT).await;
                continue;
            }
        };
        let place = loop {
            if places.available_permits() == 0 {
                open.close_oldest();
            }
            let place = Arc::clone(&places).acquire_owned();
            // Meanwhile a client that waited can have its answer, and not read it.
            match tokio::time::timeout(RETRY, place).await {
                Ok(Ok(place)) => break place,
                // Nothing closes the semaphore.
                Ok(Err(_)) => return,
                Err(_) => {}
            }
        };
        let caller = Caller {
            number,
            source: Arc::clone(&source),
            open: open.clone(),
        };
        let task = tokio::spawn(async move {
            match client {
                Client::Port(client) => attend(client, caller, place).await,
                Client::Path(client) => attend(client, caller, place).await,
            }
        });
        open.add(number, task.abort_handle());
    }
}

/// A connection.
enum Client {
    Port(tokio::net::TcpStream),
    Path(tokio::net::UnixStream),
}

impl From<tokio::net::TcpStream> for Client {
    fn from(client: tokio::net::TcpStream) -> Client {
        Client::Port(client)
    }
}

impl From<tokio::net::UnixStream> for Client {
    fn from(client: tokio::net::UnixStream) -> Client {
        Client::Path(client)
    }
}

/// The stage of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has sent no request.
    Silent,
    /// It waits for its answer.
    Asks,
    /// Its answer is being sent, at the speed of the reader.
    Answered,
}

/// Connections, the oldest first; at most [`MAX_CLIENTS`] and one.
#[derive(Debug, Clone, Default)]
struct OpenConnections(Arc<Mutex<VecDeque<(u64, Stage, AbortHandle)>>>);

impl OpenConnections {
    fn add(&self, number: u64, task: AbortHandle) {
        self.lock().push_back((number, Stage::Silent, task));
    }

    fn remove(&self, number: u64) {
        self.lock().retain(|(of, ..)| *of != number);
    }

    fn note(&self, number: u64, stage: Stage) {
        let mut open = self.lock();
        if let Some((_, its, _)) = open.iter_mut().find(|(of, ..)| *of == number) {
            *its = stage;
        }
    }

    /// Closes an idle connection, if there is one.
    fn close_oldest(&self) {
        let mut open = self.lock();
        let oldest = |stage| open.iter().position(|(_, its, _)| *its == stage);
        let at = oldest(Stage::Silent).or_else(|| oldest(Stage::Answered));
        if let Some((.., task)) = at.and_then(|at| open.remove(at)) {
            task.abort();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(u64, Stage, AbortHandle)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Data that a connection needs for its answer.
struct Caller {
    number: u64,
    source: Arc<SnapshotSource>,
    open: OpenConnections,
}

/// Answers one client, which takes a place until this returns.
async fn attend<C, P>(client: C, caller: Caller, _place: P)
where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Caller {
        number,
        source,
        open,
    } = caller;
    let service = service_fn(|request| {
        open.note(number, Stage::Asks);
        let reply = answer(request, Arc::clone(&source));
        let open = &open;
        async move {
            let reply = reply.await;
            open.note(number, Stage::Answered);
            reply
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(client), service);
    // Errors of a client that sends an invalid request, or none, or leaves, are ignored.
    let _let_go = tokio::time::timeout(MAX_CONNECTION_TIME, connection).await;
    open.remove(number);
}

type HttpReply = Response<Full<Bytes>>;

async fn answer(
    request: Request<Incoming>,
    source: Arc<SnapshotSource>,
) -> Result<HttpReply, Infallible> {
    if request.uri().path() != "/metrics" {
        return Ok(text_reply(
            StatusCode::NOT_FOUND,
            "metrics are at /metrics\n".to_owned(),
        ));
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut reply = text_reply(
            StatusCode::METHOD_NOT_ALLOWED,
            "metrics are only read\n".to_owned(),
        );
        let allowed = hyper::header::HeaderValue::from_static("GET, HEAD");
        reply.headers_mut().insert(ALLOW, allowed);
        return Ok(reply);
    }
    let format = wanted(&request);
    let text = tokio::task::spawn_blocking(move || source.text(format)).await;
    Ok(match text {
        Ok(Ok(text)) => reply(StatusCode::OK, format.content_type(), text),
        Ok(Err(line)) => text_reply(StatusCode::SERVICE_UNAVAILABLE, line + "\n"),
        Err(error) => text_reply(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    })
}

/// The form that a client wants: Prometheus's own only if it names that and not the other.
fn wanted(request: &Request<Incoming>) -> Format {
    let accepted = request.headers().get_all(ACCEPT).iter();
    let accepted: Vec<&str> = accepted.filter_map(|value| value.to_str().ok()).collect();
    form_of(&accepted.join(","))
}

fn form_of(accepted: &str) -> Format {
    let names = |form: &str| accepted.contains(form);
    if names("text/plain") && !names("application/openmetrics-text") {
        Format::Prometheus
    } else {
        Format::OpenMetrics
    }
}

fn text_reply(status: StatusCode, text: String) -> HttpReply {
    reply(status, "text/plain; charset=utf-8", text)
}

fn reply(status: StatusCode, content_type: &'static str, text: String) -> HttpReply {
    let mut reply = Response::new(Full::new(Bytes::from(text)));
    *reply.status_mut() = status;
    let content_type = hyper::header::HeaderValue::from_static(content_type);
    reply.headers_mut().insert(CONTENT_TYPE, content_type);
    reply
}

/// The daemon, and its last answer.
#[derive(Debug)]
struct SnapshotSource {
    socket: PathBuf,
    last: Mutex<Option<LastAnswer>>,
}

#[derive(Debug)]
struct LastAnswer {
    at: Instant,
    result: Result<Arc<Snapshot>, String>,
}

impl SnapshotSource {
    /// The daemon's figures, at most [`FRESH`] old.
    fn text(&self, format: Format) -> Result<String, String> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.take_if(|last| last.at.elapsed() >= FRESH);
        let last = last.get_or_insert_with(|| {
            let result = Snapshot::ask(&self.socket).map(Arc::new);
            let at = Instant::now();
            LastAnswer { at, result }
        });
        let snapshot = last.result.as_ref().map_err(Clone::clone)?;
        Ok(exposition::text(snapshot, format))
    }
}

#[cfg(test)]
mod tests;
