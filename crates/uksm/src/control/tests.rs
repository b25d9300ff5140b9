//! The socket: access rights, refused calls, and replies.

pub(crate) mod fake;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;

use proptest::prelude::*;

use super::client::ask;
use super::*;
use crate::selectors::SelectorTexts;
use uksm_linux::sleeper::Sleeper;

fn place() -> (tempfile::TempDir, PathBuf, Sleeper) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("run/uksm.sock");
    (root, path, Sleeper::new().unwrap())
}

#[test]
fn a_request_wakes_the_worker_and_its_answer_comes_back() {
    let (_root, path, mut sleeper) = place();
    let control = Control::listen(&path, None, sleeper.waker().unwrap()).unwrap();
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
        locked: 0,
    });
    assert_eq!(
        client.join().unwrap(),
        Answer::Broken {
            processes: 1,
            pages: 2,
            stopped: 0,
            locked: 0
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
    let first = Control::listen(&path, None, sleeper.waker().unwrap()).unwrap();
    let error = Control::listen(&path, None, sleeper.waker().unwrap()).unwrap_err();
    assert!(error.contains("uksm is already running"), "{error}");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(first);
    assert!(!path.exists());
}

#[test]
fn a_daemon_that_does_not_answer_is_named_with_how_long_it_was_waited_for() {
    let (_root, path, _sleeper) = place();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    // A listener that never accepts counts as connected all the same.
    let _stuck = UnixListener::bind(&path).unwrap();
    let answer = ask_within(&path, &Request::Status, Duration::from_millis(50));
    let line = match answer {
        Err(NoAnswer::Failed(line)) => line,
        other => panic!("{other:?}"),
    };
    let path = path.display();
    assert_eq!(
        line,
        format!("{path}: the daemon did not answer within 0.05 s: it is busy, stopping or stuck")
    );
}

/// What a client says of a daemon that writes `part` again and again, with this pause.
fn said_of_one_that_writes(part: &'static [u8], pause: Duration) -> String {
    let (_root, path, _sleeper) = place();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let listener = UnixListener::bind(&path).unwrap();
    let daemon = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        while client.write_all(part).is_ok() {
            std::thread::sleep(pause);
        }
    });
    let answer = ask_within(&path, &Request::Status, Duration::from_secs(2));
    daemon.join().unwrap();
    match answer {
        Err(NoAnswer::Failed(line)) => line,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_without_an_end_is_refused_in_time_and_within_a_length() {
    let slow = said_of_one_that_writes(b"{", Duration::from_millis(100));
    assert!(slow.contains("did not answer within 2 s"), "{slow}");
    let long = said_of_one_that_writes(&[b'x'; 1 << 20], Duration::ZERO);
    assert!(
        long.contains("a message of more than 67108864 bytes"),
        "{long}"
    );
}

/// The reply to these bytes until the daemon closes.
fn replied(path: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    // The daemon may close before it has read everything.
    let _let_go = stream.write_all(bytes);
    let mut reply = Vec::new();
    let _reset = BufReader::new(stream).read_until(0, &mut reply);
    String::from_utf8(reply).unwrap()
}

#[test]
fn nonsense_is_answered_and_not_passed_on() {
    let (_root, path, sleeper) = place();
    let control = Control::listen(&path, None, sleeper.waker().unwrap()).unwrap();
    for (said, replied_with) in [
        (
            "{\"method\":\"uksm.Daemon1.Explode\"}",
            "org.varlink.service.MethodNotFound",
        ),
        (
            "{\"method\":\"uksm.Daemon2.Status\"}",
            "org.varlink.service.InterfaceNotFound",
        ),
        (
            "{\"method\":\"uksm.Daemon1.Status\",\"more\":true}",
            "org.varlink.service.MethodNotImplemented",
        ),
        (
            "{\"method\":\"uksm.Daemon1.Status\",\"parameters\":{\"x\":1}}",
            "org.varlink.service.InvalidParameter",
        ),
        ("\"status\"", ""),
        ("{", ""),
    ] {
        let reply = replied(&path, format!("{said}\0").as_bytes());
        let is_so = match replied_with {
            "" => reply.is_empty(),
            error => reply.contains(error),
        };
        assert!(is_so, "{said}: {reply}");
    }
    assert!(control.next().is_none());
}

#[test]
fn client_that_sends_too_much_is_disconnected_and_others_are_answered() {
    let (_root, path, sleeper) = place();
    let _control = Control::listen(&path, None, sleeper.waker().unwrap()).unwrap();
    let mut long = b"{\"method\":\"".to_vec();
    long.resize(MAX_MESSAGE_BYTES + 4096, b'x');
    assert_eq!(replied(&path, &long), "");
    let call = b"{\"method\":\"org.varlink.service.GetInfo\"}\0";
    let twice = [call.as_slice(), call.as_slice()].concat();
    let reply = replied(&path, &twice);
    assert!(
        reply.contains("\"interfaces\":[\"org.varlink.service\",\"uksm.Daemon1\"]"),
        "{reply}"
    );
}

#[test]
fn silent_client_is_disconnected_in_time() {
    let (_root, path, sleeper) = place();
    let _control = Control::listen(&path, None, sleeper.waker().unwrap()).unwrap();
    let silent = UnixStream::connect(&path).unwrap();
    let begun = Instant::now();
    let reply = replied(&path, b"{\"method\":\"org.varlink.service.GetInfo\"}\0");
    assert!(reply.contains("uksm.Daemon1"), "{reply}");
    assert!(
        begun.elapsed() < CLIENT_TIMEOUT * 6,
        "{:?}",
        begun.elapsed()
    );
    drop(silent);
}

/// A call with pieces of the interface, and anything in their places.
fn calls() -> impl Strategy<Value = Vec<u8>> {
    let method = prop_oneof![
        "(org.varlink.service.GetInfo|org.varlink.service.GetInterfaceDescription)",
        "uksm.Daemon1.(Status|GroupStatus|ListGroups|Account|Reload|Break|Explain|Processes|AddGroup|SetGroup|RemoveGroup)",
        ".{0,30}",
    ];
    let value = prop_oneof![
        Just("{}".to_owned()),
        Just("null".to_owned()),
        Just("18446744073709551616".to_owned()),
        Just(r#"{"name":"a/../b","settings":{"pid":"1"}}"#.to_owned()),
        Just(r#"{"selectors":{"pid":["-1"],"comm":["["]}}"#.to_owned()),
        Just(r#"{"pid":-1,"from":1e300}"#.to_owned()),
        Just(r#"{"group":["x"]}"#.to_owned()),
        Just("[".repeat(30_000)),
        "[\\x00-\\x7f]{0,60}",
    ];
    let call = (
        method,
        value,
        proptest::collection::vec(any::<(u16, u8)>(), 0..4),
    );
    call.prop_map(|(method, value, changes)| {
        let method = serde_json::Value::from(method);
        let mut bytes = format!(r#"{{"method":{method},"parameters":{value}}}"#).into_bytes();
        for (at, byte) in changes {
            let at = usize::from(at) % bytes.len();
            bytes[at] = byte;
        }
        bytes.push(0);
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Any call is answered or its connection closed, and the answer is bounded.
    #[test]
    fn no_call_makes_the_listener_panic(call in calls()) {
        let ask = |_request: Request| Some(Answer::Error("refused".to_owned()));
        let interface: Box<dyn varlink::Interface + Send + Sync> =
            Box::new(protocol::Interface { ask });
        let service = VarlinkService::new("uksm", "uksm", "0", "", vec![interface]);
        let mut reply = Vec::new();
        let _let_go = service.handle(&mut &call[..], &mut reply, None);
        prop_assert!(reply.len() < 256 << 10, "{} bytes", reply.len());
    }
}
