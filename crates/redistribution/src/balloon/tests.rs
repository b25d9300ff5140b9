//! Correct monitors and faulty ones: a thread behind a socket plays each.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;
use std::time::Instant;

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
const GREETING: &str = r#"{"QMP":{"version":{"qemu":{"micro":0,"minor":2,"major":9},"package":""},"capabilities":["oob"]}}"#;
const EVENT: &str =
    r#"{"timestamp":{"seconds":1,"microseconds":2},"event":"NOT_KNOWN_YET","data":{"x":1}}"#;

/// A socket behind which a thread plays a monitor, once for each connection.
struct Machine {
    folder: tempfile::TempDir,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl Machine {
    /// `play` gets each connection in turn, and the lines received before.
    fn new(
        connections: usize,
        play: impl Fn(UnixStream, &mut Vec<String>) -> std::io::Result<()> + Send + 'static,
    ) -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("qmp")).unwrap();
        let thread = std::thread::spawn(move || {
            let mut received = Vec::new();
            for _ in 0..connections {
                let (stream, _) = listener.accept().unwrap();
                // A monitor that cannot write to a closed connection has ended, too.
                let _ = play(stream, &mut received);
            }
            received
        });
        Machine {
            folder,
            thread: Some(thread),
        }
    }

    fn balloon(&self) -> Balloon {
        let mut balloon = Balloon::new(&self.folder.path().join("qmp"), &RestoreJournal::default());
        balloon.timeout = Duration::from_secs(60);
        balloon
    }

    /// All lines that it received.
    fn received(&mut self) -> Vec<String> {
        self.thread.take().unwrap().join().unwrap()
    }
}

fn command(line: &str) -> &str {
    let behind = line.split("\"execute\":\"").nth(1).unwrap_or_default();
    behind.split('"').next().unwrap_or_default()
}

/// A monitor that answers correctly, except where `answer` decides otherwise: for a command and the
/// number of times that it came.
fn play(
    stream: &UnixStream,
    received: &mut Vec<String>,
    mut answer: impl FnMut(&str, usize) -> Option<String>,
) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    writeln!(out, "{GREETING}")?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        let name = command(&line).to_owned();
        received.push(line);
        let times = received.iter().filter(|line| command(line) == name).count();
        match answer(&name, times) {
            Some(text) => writeln!(out, "{EVENT}\n{text}")?,
            None => writeln!(out, "{{\"return\":{{}}}}")?,
        }
    }
    Ok(())
}

fn actual(bytes: u64) -> String {
    format!("{{\"return\":{{\"actual\":{bytes}}}}}")
}

#[test]
fn the_balloon_is_asked_and_its_size_read_back_between_events_nobody_knows() {
    let mut machine = Machine::new(1, |stream, received| {
        play(&stream, received, |name, times| {
            (name == "query-balloon").then(|| actual([900, 700][times.min(2) - 1] * MIB))
        })
    });
    let mut balloon = machine.balloon();
    let sizes = balloon.look().unwrap();
    assert_eq!(sizes.real, 900 * MIB);
    assert_eq!(
        sizes.processes,
        [std::process::id()],
        "this process plays the machine"
    );
    balloon.set(700 * MIB).unwrap();
    balloon.set(700 * MIB).unwrap();
    assert_eq!(balloon.look().unwrap().real, 700 * MIB);
    balloon.release().unwrap();
    let received = machine.received();
    let names: Vec<&str> = received.iter().map(|line| command(line)).collect();
    assert_eq!(
        names,
        [
            "qmp_capabilities",
            "query-balloon",
            "balloon",
            "query-balloon",
            "balloon"
        ],
        "asked once, and what was there is put back: {received:?}"
    );
    assert!(
        received[2].contains("734003200") && received[4].contains("943718400"),
        "{received:?}"
    );
}

#[test]
fn a_slow_balloon_shows_its_real_size() {
    let machine = Machine::new(1, |stream, received| {
        play(&stream, received, |name, _| {
            (name == "query-balloon").then(|| actual(900 * MIB))
        })
    });
    let mut balloon = machine.balloon();
    balloon.set(700 * MIB).unwrap();
    assert_eq!(
        balloon.look().unwrap().real,
        900 * MIB,
        "it never gets there"
    );
}

#[test]
fn a_refusal_is_told_and_the_connection_stays() {
    let mut machine = Machine::new(1, |stream, received| {
        play(&stream, received, |name, _| {
            (name == "query-balloon").then(|| {
                r#"{"error":{"class":"DeviceNotActive","desc":"No balloon device has been activated"}}"#
                    .to_owned()
            })
        })
    });
    let mut balloon = machine.balloon();
    for _ in 0..2 {
        let error = balloon.look().unwrap_err().to_string();
        assert!(
            error.ends_with("/qmp: query-balloon: No balloon device has been activated"),
            "{error}"
        );
    }
    drop(balloon);
    assert_eq!(machine.received().len(), 3, "one connection");
}

#[test]
fn words_of_a_monitor_are_one_line_and_cut() {
    let machine = Machine::new(1, |stream, received| {
        play(&stream, received, |name, _| {
            (name == "query-balloon").then(|| {
                let desc = format!("x\\n<3>forged \\u001b[2J {}", "y".repeat(10_000));
                format!(r#"{{"error":{{"class":"GenericError","desc":"{desc}"}}}}"#)
            })
        })
    });
    let mut balloon = machine.balloon();
    let error = balloon.look().unwrap_err().to_string();
    assert!(
        error.contains(r"query-balloon: x\n<3>forged \u{1b}[2J yyy"),
        "{error}"
    );
    assert!(error.len() < 700 && error.ends_with(" [cut]"), "{error}");
}

/// For a monitor that does not answer.
const SHORT: Duration = Duration::from_millis(300);

/// The error that a monitor causes.
fn fault(play: impl Fn(&mut UnixStream) -> std::io::Result<()> + Send + 'static) -> String {
    fault_within(Duration::from_secs(60), play)
}

/// The same, with this time for the monitor.
fn fault_within(
    timeout: Duration,
    play: impl Fn(&mut UnixStream) -> std::io::Result<()> + Send + 'static,
) -> String {
    let mut machine = Machine::new(2, move |mut stream, received| {
        if received.is_empty() {
            received.push("one".to_owned());
            return play(&mut stream);
        }
        super::tests::play(&stream, received, |name, _| {
            (name == "query-balloon").then(|| actual(5))
        })
    });
    let mut balloon = machine.balloon();
    let usual = std::mem::replace(&mut balloon.timeout, timeout);
    let begin = Instant::now();
    let error = balloon.look().unwrap_err().to_string();
    assert!(begin.elapsed() < Duration::from_secs(30), "{error}");
    balloon.timeout = usual;
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("/qmp: "), "{error}");
    assert_eq!(balloon.look().unwrap().real, 5, "the next time all is well");
    drop(balloon);
    machine.received();
    error
}

/// Waits until the other side closes.
fn wait_for_the_end(stream: &mut UnixStream) {
    let mut bytes = Vec::new();
    let _ = std::io::Read::read_to_end(stream, &mut bytes);
}

#[test]
fn a_monitor_that_hangs_is_left_after_a_while() {
    let error = fault_within(SHORT, |stream| {
        wait_for_the_end(stream);
        Ok(())
    });
    assert!(
        error.ends_with("no monitor answers: no answer in time"),
        "{error}"
    );
    // Long enough for its greeting to arrive.
    let error = fault_within(10 * SHORT, |stream| {
        writeln!(stream, "{GREETING}\n{{\"return\":{{}}}}")?;
        wait_for_the_end(stream);
        Ok(())
    });
    assert!(
        error.ends_with("query-balloon: no answer in time"),
        "{error}"
    );
}

#[test]
fn a_monitor_that_drips_is_left_after_the_same_while() {
    let error = fault_within(SHORT, |stream| {
        for byte in GREETING.bytes().cycle() {
            stream.write_all(&[byte])?;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    });
    assert!(error.ends_with("no answer in time"), "{error}");
}

#[test]
fn a_monitor_that_vanishes_is_told_at_once() {
    let error = fault(|_| Ok(()));
    assert!(error.contains("no monitor answers"), "{error}");
    let error = fault(|stream| writeln!(stream, "{GREETING}\n{{\"return\":{{}}}}"));
    // Whether the question or its answer met the closed connection is a race.
    assert!(
        error.contains("closed the connection")
            || error.contains("Broken pipe")
            || error.contains("reset"),
        "{error}"
    );
}

#[test]
fn garbage_is_no_answer() {
    for garbage in ["\u{1}\u{2}garbage", "[1, 2]", r#"{"QMP": 7}"#, "{}"] {
        let error = fault(move |stream| {
            writeln!(stream, "{garbage}")?;
            wait_for_the_end(stream);
            Ok(())
        });
        assert!(error.contains("no monitor answers"), "{garbage}: {error}");
    }
    let error = fault(|stream| {
        writeln!(
            stream,
            "{GREETING}\n{{\"return\":{{}}}}\n{}",
            actual(1).replace('1', "-1")
        )?;
        wait_for_the_end(stream);
        Ok(())
    });
    assert!(
        error.ends_with("query-balloon: a size of -1 bytes"),
        "{error}"
    );
}

#[test]
fn a_line_without_an_end_is_cut_off() {
    let error = fault(|stream| {
        loop {
            stream.write_all(&[b'x'; 8192])?;
        }
    });
    assert!(error.contains("a line of more than"), "{error}");
}

#[test]
fn a_socket_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none");
    let error = Balloon::new(&path, &RestoreJournal::default())
        .look()
        .unwrap_err();
    assert!(
        error.to_string().starts_with(&path.display().to_string()),
        "{error}"
    );
}

/// Lines as monitors write them, broken in places.
fn monitor_bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(br#"{"QMP":{"version":{"qemu":{"micro":0,"minor":2,"major":7},"package":""},"capabilities":[]}}"#.to_vec()),
        Just(br#"{"return":{}}"#.to_vec()),
        Just(br#"{"return":{"actual":-1}}"#.to_vec()),
        Just(br#"{"return":{"actual":99999999999999999999}}"#.to_vec()),
        Just(br#"{"event":"BALLOON_CHANGE","data":{"actual":1},"timestamp":{"seconds":1,"microseconds":2}}"#.to_vec()),
        Just(br#"{"error":{"class":"GenericError","desc":"\u0000\n"}}"#.to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(vec![b'['; 2000]),
        proptest::collection::vec(any::<u8>(), 0..60),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// For any output of a monitor that then ends: a size, or one line of bounded length.
    #[test]
    fn any_bytes_of_a_monitor_are_a_size_or_an_error(bytes in monitor_bytes()) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&bytes).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let mut monitor = Qmp::new(Answers::new(ours));
        monitor.inner_mut().allow(Duration::from_secs(60));
        let Ok(_greeting) = monitor.handshake() else {
            return Ok(());
        };
        if let Err(error) = monitor.execute(&qmp::query_balloon {}) {
            let text = plain::start(&error.to_string(), MAX_WORDS_BYTES);
            prop_assert!(text.len() < MAX_WORDS_BYTES + 20 && !text.contains('\n'), "{}", text);
        }
    }
}
