//! Addresses that are allowed, answers over HTTP, and the number of requests to the daemon.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use super::*;
use crate::control::Answer;
use crate::control::tests::fake::{self, FakeDaemon};

fn refused(text: &str) -> String {
    Address::of(text, false).unwrap_err()
}

#[test]
fn an_address_is_of_this_machine_unless_more_is_asked_for() {
    for (text, address) in [
        ("9465", "127.0.0.1:9465"),
        ("127.0.0.9:1", "127.0.0.9:1"),
        ("[::1]:7", "[::1]:7"),
        ("[::ffff:127.0.0.1]:7", "[::ffff:127.0.0.1]:7"),
    ] {
        let expected = Address::Port(address.parse().unwrap());
        assert_eq!(Address::of(text, false), Ok(expected), "{text}");
    }
    assert_eq!(
        refused("0.0.0.0:9465"),
        "--listen 0.0.0.0:9465: other machines could read what is saved and by which groups: take --public to allow it, or \
         127.0.0.1:9465"
    );
    for text in ["[::]:1", "192.0.2.1:9", "[2001:db8::1]:9"] {
        assert!(refused(text).contains("--public"), "{text}");
        assert!(Address::of(text, true).is_ok(), "{text}");
    }
    for text in ["", "localhost:9", "127.0.0.1", "70000", "unix"] {
        assert!(
            refused(text).contains("must be PORT, ADDRESS:PORT"),
            "{text}"
        );
    }
    assert!(refused("unix:").contains("names no socket"));
    assert_eq!(
        Address::of("unix:/x", false),
        Ok(Address::Path("/x".into()))
    );
}

/// Serves in a thread that ends with the test program.
fn served(daemon: &Path, place: &Path) {
    let (daemon, address) = (daemon.to_owned(), Address::Path(place.to_owned()));
    std::thread::spawn(move || serve(&address, &daemon));
    let until = Instant::now() + Duration::from_secs(20);
    while UnixStream::connect(place).is_err() {
        assert!(
            Instant::now() < until,
            "nobody listens at {}",
            place.display()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The reply to this request.
fn reply_to(place: &Path, request: &str) -> String {
    let mut client = UnixStream::connect(place).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    reply
}

fn get(place: &Path, accept: &str) -> String {
    reply_to(
        place,
        &format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n"),
    )
}

#[test]
fn metrics_are_at_their_path_in_the_form_that_is_wanted() {
    let root = tempfile::tempdir().unwrap();
    let daemon = FakeDaemon::new(&root.path().join("uksm.sock"), |_| {
        fake::groups(vec![fake::group("web", 512)])
    });
    let place = root.path().join("metrics.sock");
    served(daemon.path(), &place);
    let reply = get(
        &place,
        "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
    );
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
    assert!(
        reply.contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{reply}"
    );
    assert!(reply.ends_with("# EOF\n"), "{reply}");
    let reply = get(&place, "text/plain");
    assert!(
        reply.contains("content-type: text/plain; version=0.0.4"),
        "{reply}"
    );
    assert!(
        !reply.contains("# EOF") && reply.contains("uksm_up 1"),
        "{reply}"
    );
    for (request, replied_with) in [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 404 "),
        (
            "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 405 ",
        ),
        ("nonsense\r\n\r\n", "HTTP/1.1 400 "),
    ] {
        let reply = reply_to(&place, request);
        assert!(reply.starts_with(replied_with), "{request}: {reply}");
    }
    let head = reply_to(&place, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(
        head.contains("200 OK") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
}

#[test]
fn silent_clients_do_not_delay_others() {
    let root = tempfile::tempdir().unwrap();
    let daemon = FakeDaemon::new(&root.path().join("uksm.sock"), |_| {
        fake::groups(vec![fake::group("web", 512)])
    });
    let place = root.path().join("metrics.sock");
    served(daemon.path(), &place);
    let silent: Vec<_> = (0..6 * MAX_CLIENTS)
        .map(|_| UnixStream::connect(&place).unwrap())
        .collect();
    let begin = Instant::now();
    let reply = get(&place, "text/plain");
    let took = begin.elapsed();
    drop(silent);
    assert!(reply.contains("uksm_up 1"), "{reply}");
    // Six times as many clients as places once took six times the timeout of a silent client.
    assert!(took < REQUEST_TIMEOUT, "{took:?}");
}

#[test]
fn clients_that_read_no_answer_give_way_after_silent_ones() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let open = OpenConnections::default();
    let tasks: Vec<_> = (0..4)
        .map(|number| {
            let task = runtime.spawn(std::future::pending::<()>());
            open.add(number, task.abort_handle());
            task
        })
        .collect();
    open.note(0, Stage::Asks);
    open.note(1, Stage::Answered);
    open.note(2, Stage::Answered);
    let left = || open.lock().iter().map(|(of, ..)| *of).collect::<Vec<_>>();
    for expected in [vec![0, 1, 2], vec![0, 2], vec![0], vec![0]] {
        open.close_oldest();
        assert_eq!(
            left(),
            expected,
            "one that waits for the daemon keeps its place"
        );
    }
    let ended = |task: tokio::task::JoinHandle<()>| runtime.block_on(task).is_err();
    assert!(tasks.into_iter().skip(1).all(ended), "they are closed");
}

#[test]
fn repeated_request_does_not_reach_the_daemon() {
    let root = tempfile::tempdir().unwrap();
    let daemon = FakeDaemon::new(&root.path().join("uksm.sock"), |_| {
        fake::groups(vec![fake::group("web", 512)])
    });
    let source = SnapshotSource {
        socket: daemon.path().to_owned(),
        last: Mutex::new(None),
    };
    let texts: Vec<String> = (0..20)
        .map(|_| source.text(Format::OpenMetrics).unwrap())
        .collect();
    // Twenty texts may take longer than the lifetime of an answer.
    assert!(daemon.asked() < 4, "{}", daemon.asked());
    assert!(texts[0].contains("uksm_up 1"));
    let aged = Instant::now().checked_sub(FRESH).unwrap();
    source.last.lock().unwrap().as_mut().unwrap().at = aged;
    let before = daemon.asked();
    source.text(Format::Prometheus).unwrap();
    assert_eq!(daemon.asked(), before + 1);
}

#[test]
fn a_daemon_that_refuses_is_unavailable_and_one_that_is_gone_is_down() {
    let root = tempfile::tempdir().unwrap();
    let socket = root.path().join("uksm.sock");
    let place = root.path().join("metrics.sock");
    served(&socket, &place);
    let reply = get(&place, "*/*");
    assert!(
        reply.contains("200 OK") && reply.contains("uksm_up 0\n"),
        "{reply}"
    );
    std::thread::sleep(FRESH);
    let _daemon = FakeDaemon::new(&socket, |_| Answer::Error("stopping".to_owned()));
    let reply = get(&place, "*/*");
    assert!(
        reply.contains("503 Service Unavailable") && reply.ends_with("stopping\n"),
        "{reply}"
    );
}

#[test]
fn a_socket_that_was_left_makes_room_and_anything_else_does_not() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("metrics.sock");
    drop(UnixListener::bind(&path).unwrap());
    remove_stale(&path).unwrap();
    assert!(!path.exists());
    let _listens = UnixListener::bind(&path).unwrap();
    remove_stale(&path).unwrap();
    assert!(path.exists());
    let line = serve(&Address::Path(path), Path::new("/none")).unwrap_err();
    assert!(
        line.contains("metrics.sock: cannot listen: Address already in use"),
        "{line}"
    );
    let file = root.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    let line = serve(&Address::Path(file.clone()), Path::new("/none")).unwrap_err();
    assert!(
        line.contains("/file: cannot listen: Address already in use"),
        "{line}"
    );
    assert!(file.exists());
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Port(taken.local_addr().unwrap());
    let line = serve(&address, Path::new("/none")).unwrap_err();
    let expected = format!("--listen {}: cannot listen: ", taken.local_addr().unwrap());
    assert!(line.starts_with(&expected), "{line}");
}
