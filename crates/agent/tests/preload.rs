//! The library in real processes: advice takes effect in them and nowhere else, and they do not
//! notice.
//!
//! ksmd does not run for this: offered memory has the flag `mg` in smaps.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, listen, recv, send, socket_with,
};
use uksm_interface::advice::{
    Advice, DONE, Message, NOT_ANONYMOUS, Outcomes, Range, SOCKET_VARIABLE,
};

const PAGE: u64 = 4096;
const PAGES: usize = 64;

/// Maximum time of any wait here, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The library, beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    let names = [folder, folder.parent().unwrap()].map(|at| at.join("libuksm_agent.so"));
    let found = names.iter().find(|path| path.exists());
    found.expect("cargo builds it with its tests").clone()
}

/// Acts as the daemon.
struct Daemon {
    folder: tempfile::TempDir,
    socket: OwnedFd,
}

/// One agent.
struct Agent {
    socket: OwnedFd,
    pid: u32,
}

fn readable(socket: &OwnedFd, patience: Duration) -> bool {
    let time = Timespec::try_from(patience).unwrap();
    poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&time)).unwrap() > 0
}

impl Daemon {
    fn new() -> Daemon {
        let folder = tempfile::tempdir().unwrap();
        let (unix, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(unix, kind, SocketFlags::CLOEXEC, None).unwrap();
        bind(
            &socket,
            &SocketAddrUnix::new(folder.path().join("agents")).unwrap(),
        )
        .unwrap();
        listen(&socket, 8).unwrap();
        Daemon { folder, socket }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("agents")
    }

    fn accept(&self) -> Agent {
        assert!(readable(&self.socket, PATIENCE), "no agent came");
        let socket = accept_with(&self.socket, SocketFlags::CLOEXEC).unwrap();
        let peer = getsockopt(&socket, PeerCredentials).unwrap();
        let pid = u32::try_from(peer.pid()).unwrap();
        Agent { socket, pid }
    }

    fn nobody_comes_within(&self, patience: Duration) -> bool {
        !readable(&self.socket, patience)
    }
}

impl Agent {
    fn send(&self, bytes: &[u8]) {
        send(&self.socket, bytes, SendFlags::NOSIGNAL).unwrap();
    }

    /// Its answer; none if it closed.
    fn answer(&self) -> Option<Vec<u32>> {
        assert!(readable(&self.socket, PATIENCE), "no answer");
        let mut bytes = [0u8; 1024];
        let (length, _) = recv(&self.socket, &mut bytes, RecvFlags::empty()).ok()?;
        let bytes = bytes.get(..length).filter(|bytes| !bytes.is_empty())?;
        Some(Outcomes::parse(bytes).unwrap().as_slice().to_vec())
    }

    fn advise(&self, advice: Advice, ranges: &[(u64, u64)]) -> Vec<u32> {
        let range = |&(start, end): &(u64, u64)| Range { start, end };
        let ranges: Vec<Range> = ranges.iter().map(range).collect();
        self.send(Message::new(advice, &ranges).bytes().as_slice());
        self.answer().expect("it should go on")
    }
}

fn preloaded(program: &Path, socket: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("LD_PRELOAD", library())
        .env(SOCKET_VARIABLE, socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A process of this test with three kinds of mapped memory.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    anonymous: u64,
    file: u64,
    shared: u64,
}

impl Program {
    fn start(socket: &Path) -> Program {
        let mut child = preloaded(&std::env::current_exe().unwrap(), socket)
            .args(["--exact", "child", "--ignored", "--nocapture"])
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("mapped ") {
            line.clear();
            assert!(
                output.read_line(&mut line).unwrap() > 0,
                "the child did not come so far"
            );
        }
        let (_, line) = line.trim_end().split_once("mapped ").unwrap();
        let places: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        Program {
            input: child.stdin.take(),
            child,
            output,
            anonymous: places[0],
            file: places[1],
            shared: places[2],
        }
    }

    /// Whether in-kernel KSM may merge the mapping at this address.
    fn is_offered(&self, address: u64) -> bool {
        let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", self.child.id())).unwrap();
        let mut is_here = false;
        for line in smaps.lines() {
            let range = line
                .split_once(' ')
                .and_then(|(range, _)| range.split_once('-'));
            if let Some((start, end)) = range
                && let (Ok(start), Ok(end)) =
                    (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16))
            {
                is_here = (start..end).contains(&address);
            }
            if is_here && let Some(flags) = line.strip_prefix("VmFlags:") {
                return flags.split_whitespace().any(|flag| flag == "mg");
            }
        }
        panic!("{address:x} is in no mapping");
    }

    /// Ends it; returns whether it found nothing wrong.
    fn end(mut self) -> bool {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap().success()
    }
}

/// Run by [`Program::start`] alone.
#[test]
#[ignore = "a process for the other tests"]
fn child() {
    let bytes = PAGES * 4096;
    let mut anonymous = memmap2::MmapMut::map_anon(bytes).unwrap();
    anonymous.fill(7);
    let file = tempfile::tempfile().unwrap();
    file.set_len(bytes as u64).unwrap();
    // SAFETY: no other process has the file.
    let mut private = unsafe { memmap2::MmapOptions::new().map_copy(&file) }.unwrap();
    private.fill(7);
    let options = memmap2::MmapOptions::new();
    // SAFETY: no other process has the file.
    let mut shared = unsafe { options.map_mut(&file) }.unwrap();
    shared.fill(9);
    let at = |memory: &[u8]| memory.as_ptr() as usize;
    println!("mapped {} {} {}", at(&anonymous), at(&private), at(&shared));
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).unwrap();
    assert!(
        anonymous
            .iter()
            .chain(private.iter())
            .all(|&byte| byte == 7)
    );
}

#[test]
fn ranges_of_anonymous_memory_are_offered_and_withdrawn_and_no_others() {
    let daemon = Daemon::new();
    let program = Program::start(&daemon.path());
    let agent = daemon.accept();
    assert_eq!(agent.pid, program.child.id());
    let bytes = PAGES as u64 * PAGE;
    let whole = |start: u64| (start, start + bytes);
    assert!(!program.is_offered(program.anonymous));
    let part = (program.anonymous, program.anonymous + 16 * PAGE);
    let ranges = [
        part,
        whole(program.file),
        whole(program.shared),
        (PAGE, 2 * PAGE),
    ];
    let expected = [DONE, NOT_ANONYMOUS, NOT_ANONYMOUS, NOT_ANONYMOUS];
    assert_eq!(agent.advise(Advice::Merge, &ranges), expected);
    assert!(program.is_offered(program.anonymous));
    assert!(
        !program.is_offered(program.anonymous + 16 * PAGE),
        "no more than the range"
    );
    assert!(!program.is_offered(program.file) && !program.is_offered(program.shared));
    let beyond = (program.anonymous, program.anonymous + (1 << 40));
    assert_eq!(agent.advise(Advice::Merge, &[beyond]), [NOT_ANONYMOUS]);
    assert_eq!(agent.advise(Advice::Unmerge, &[part]), [DONE]);
    assert!(!program.is_offered(program.anonymous));
    assert!(program.end());
}

#[test]
fn a_malformed_message_ends_the_agent_and_not_the_program() {
    let long = [&b"uksA"[..], &[1, 0, 64, 0], &[0; 64 * 16]].concat();
    for bytes in [&b"nonsense"[..], &[0], &long] {
        let daemon = Daemon::new();
        let program = Program::start(&daemon.path());
        let agent = daemon.accept();
        agent.send(bytes);
        assert_eq!(agent.answer(), None);
        assert!(daemon.nobody_comes_within(Duration::from_secs(2)));
        assert!(program.end());
    }
}

#[test]
fn exec_closes_the_connection_and_the_next_program_has_its_own() {
    let daemon = Daemon::new();
    let mut shell = preloaded(Path::new("/bin/sh"), &daemon.path())
        .args(["-c", "read line; exec cat"])
        .spawn()
        .unwrap();
    let first = daemon.accept();
    let mut input = shell.stdin.take().unwrap();
    input.write_all(b"go\n").unwrap();
    assert_eq!(first.answer(), None);
    let second = daemon.accept();
    assert_eq!((first.pid, second.pid), (shell.id(), shell.id()));
    drop(input);
    assert!(shell.wait().unwrap().success());
}

#[test]
fn a_forked_child_takes_no_advice_and_the_next_program_in_it_does() {
    let daemon = Daemon::new();
    let mut shell = preloaded(Path::new("/bin/sh"), &daemon.path())
        .args(["-c", "(read line; exec cat); echo done"])
        .spawn()
        .unwrap();
    let parent = daemon.accept();
    assert_eq!(parent.pid, shell.id());
    assert!(daemon.nobody_comes_within(Duration::from_secs(2)));
    let mut input = shell.stdin.take().unwrap();
    input.write_all(b"go\n").unwrap();
    let child = daemon.accept();
    assert_ne!(child.pid, parent.pid);
    drop(input);
    assert_eq!(child.answer(), None, "it ended");
    let output = shell.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"done\n");
}

/// Number of sockets of a process.
fn sockets(pid: &str) -> usize {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = links.map(|link| std::fs::read_link(link.unwrap().path()).unwrap());
    links
        .filter(|link| link.to_string_lossy().starts_with("socket:"))
        .count()
}

#[test]
fn neither_the_program_nor_a_forked_child_has_the_connection_and_advice_works() {
    let daemon = Daemon::new();
    let script = "read go; (read me rest </proc/self/stat; echo $me; read go); echo done";
    let mut shell = preloaded(Path::new("/bin/sh"), &daemon.path())
        .args(["-c", script])
        .spawn()
        .unwrap();
    let agent = daemon.accept();
    assert_eq!(agent.pid, shell.id());
    let mut input = shell.stdin.take().unwrap();
    input.write_all(b"fork\n").unwrap();
    let mut output = BufReader::new(shell.stdout.take().unwrap());
    let mut child = String::new();
    output.read_line(&mut child).unwrap();
    let (parent, child) = (agent.pid.to_string(), child.trim_end());
    assert_ne!(parent, child);
    assert_eq!((sockets(&parent), sockets(child)), (0, 0));
    let none = [(PAGE, 2 * PAGE)];
    assert_eq!(agent.advise(Advice::Merge, &none), [NOT_ANONYMOUS]);
    input.write_all(b"end\n").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "done\n");
    assert!(shell.wait().unwrap().success());
}

/// Builds a program of `tests/programs`, and returns a command that runs it with the library.
fn built(name: &str, daemon: &Daemon) -> Command {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let program = daemon.folder.path().join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-pthread", "-o"]).arg(&program);
    let compiled = compiler.arg(source).status();
    assert!(compiled.unwrap().success(), "{name}");
    preloaded(&program, &daemon.path())
}

fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_child_whose_filter_kills_for_threads_lives() {
    let daemon = Daemon::new();
    let mut program = built("filtered_fork", &daemon);
    assert_eq!(
        output_of(&mut program),
        "the child lives\nthe child exited: 0\n"
    );
    assert_eq!(daemon.accept().answer(), None, "the parent had an agent");
}

#[test]
fn a_program_that_is_started_with_a_filter_lives_without_an_agent() {
    let daemon = Daemon::new();
    let mut program = built("filtered_fork", &daemon);
    let output = output_of(program.arg("exec"));
    assert_eq!(output, "the program lives\n");
    // The answers before and after the filter.
    assert_eq!(daemon.accept().answer(), None);
    assert!(daemon.nobody_comes_within(Duration::from_millis(100)));
}

#[test]
fn fork_ends_in_a_program_whose_allocator_is_locked_meanwhile() {
    let daemon = Daemon::new();
    let mut program = built("allocator_fork", &daemon);
    assert_eq!(output_of(&mut program), "the child exited: 0\n".repeat(3));
    assert_eq!(daemon.accept().answer(), None, "the parent had an agent");
}

#[test]
fn a_program_says_what_it_says_without_the_library_with_and_without_daemon() {
    let daemon = Daemon::new();
    let nowhere = daemon.folder.path().join("nobody");
    let script = "echo out; echo err >&2; trap 'echo caught' USR1; kill -USR1 $$; sleep 1; ls /proc/$$/fd; exit 3";
    let output = |command: &mut Command| {
        let output = command.args(["-c", script]).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let plain = output(&mut Command::new("/bin/sh"));
    assert_eq!(plain.0, Some(3));
    assert_eq!(
        output(&mut preloaded(Path::new("/bin/sh"), &nowhere)),
        plain
    );
    let served = output(&mut preloaded(Path::new("/bin/sh"), &daemon.path()));
    assert_eq!(served, plain);
}

#[test]
fn a_daemon_that_comes_later_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::new();
    let path = folder.path().join("later");
    let program = Program::start(&path);
    std::thread::sleep(Duration::from_millis(200));
    let begun = Instant::now();
    std::fs::rename(daemon.path(), &path).unwrap();
    let agent = daemon.accept();
    assert_eq!(agent.pid, program.child.id());
    assert!(begun.elapsed() < PATIENCE);
    assert!(program.end());
}

#[test]
fn a_socket_of_another_user_is_not_listened_to() {
    let daemon = Daemon::new();
    // Only root can give a file away; the positive case above has a socket of the process's own
    // user.
    let given = std::os::unix::fs::chown(daemon.path(), Some(54_321), None);
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(given.is_ok(), is_root);
    let program = Program::start(&daemon.path());
    assert_eq!(daemon.nobody_comes_within(Duration::from_secs(2)), is_root);
    assert!(program.end());
    assert!(daemon.socket.as_fd().try_clone_to_owned().is_ok());
}
