//! Agents that answer, do not answer, or are not the process that the kernel names.

use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use proptest::prelude::*;
use rustix::net::{RecvFlags, SendFlags, connect, recv, send};
use uksm_interface::advice::{Message, NOT_ANONYMOUS, Outcomes};

use super::*;

const SECOND: Nanos = 1_000_000_000;

fn agents() -> (tempfile::TempDir, Agents) {
    let folder = tempfile::tempdir().unwrap();
    let agents = Agents::listen(&folder.path().join("agents")).unwrap();
    (folder, agents)
}

fn packets() -> OwnedFd {
    let kind = SocketType::SEQPACKET;
    socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
}

fn connected(folder: &tempfile::TempDir) -> OwnedFd {
    let socket = packets();
    let path = folder.path().join("agents");
    connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

/// A process that connects this socket, which the test has as well, and then runs this program.
fn connecting(socket: &OwnedFd, folder: &tempfile::TempDir, program: &[&str]) -> Child {
    let path = SocketAddrUnix::new(folder.path().join("agents")).unwrap();
    let raw = socket.as_raw_fd();
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).stdin(Stdio::piped());
    let connect = move || {
        // SAFETY: the test keeps it open until the process runs its program.
        let socket = unsafe { BorrowedFd::borrow_raw(raw) };
        Ok(connect(socket, &path)?)
    };
    // SAFETY: the closure makes one system call.
    unsafe { command.pre_exec(connect) };
    command.spawn().unwrap()
}

fn accept(agents: &mut Agents) -> Vec<(SpaceId, u32)> {
    agents.accept(&Proc::default())
}

/// Answers messages with these answers.
fn answering(socket: OwnedFd, answers: Vec<Vec<u8>>) -> std::thread::JoinHandle<Vec<Message>> {
    std::thread::spawn(move || {
        let answered = answers.into_iter().map(|answer| {
            let mut bytes = [0; 1024];
            let (length, _) = recv(&socket, &mut bytes, RecvFlags::empty()).unwrap();
            send(&socket, &answer, SendFlags::NOSIGNAL).unwrap();
            Message::parse(&bytes[..length]).unwrap()
        });
        answered.collect()
    })
}

fn ranges(count: u64) -> Vec<Range> {
    let range = |at| Range {
        start: at * 8192,
        end: at * 8192 + 4096,
    };
    (1..=count).map(range).collect()
}

/// The first result of collecting that is not empty.
fn collected(agents: &mut Agents) -> AgentEvents {
    let begun = clock::now();
    loop {
        let collected = agents.collect(clock::now());
        if collected != AgentEvents::default() || clock::now() - begun > 30 * SECOND {
            return collected;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn lost(spaces: &[SpaceId]) -> AgentEvents {
    AgentEvents {
        answers: vec![],
        lost: spaces.to_vec(),
    }
}

#[test]
fn advice_is_passed_on_in_parts_and_outcomes_come_back_in_order() {
    let (folder, mut agents) = agents();
    let socket = connected(&folder);
    let came = accept(&mut agents);
    assert_eq!((came.len(), came[0].1), (1, std::process::id()));
    let space = came[0].0;
    assert!(agents.is_still_itself(space, &Proc::default()).unwrap());
    let mut first = [DONE; 32];
    first[7] = NOT_ANONYMOUS;
    let answers =
        [&first[..], &[12, DONE]].map(|all| Outcomes::new(all).bytes().as_slice().to_vec());
    let thread = answering(socket, answers.to_vec());
    agents
        .advise(space, Advice::Merge, &ranges(34), clock::now())
        .unwrap();
    assert!(!agents.is_idle(space));
    let first_part = collected(&mut agents);
    assert_eq!(first_part.answers, [(space, first.to_vec())]);
    let second = collected(&mut agents);
    assert_eq!(second.answers, [(space, vec![12, DONE])]);
    assert!(agents.is_idle(space));
    let messages = thread.join().unwrap();
    let sent: Vec<Range> = messages.iter().flat_map(|m| m.ranges().to_vec()).collect();
    assert_eq!(sent, ranges(34));
    assert_eq!(
        collected(&mut agents),
        lost(&[space]),
        "the thread closed it"
    );
    assert_eq!(agents.count(), 0);
}

#[test]
fn one_message_holds_advice_of_one_kind() {
    let (folder, mut agents) = agents();
    let socket = connected(&folder);
    let space = accept(&mut agents)[0].0;
    let one = Outcomes::new(&[DONE]).bytes().as_slice().to_vec();
    let thread = answering(socket, vec![one.clone(), one]);
    for advice in [Advice::Merge, Advice::Unmerge] {
        agents
            .advise(space, advice, &ranges(1), clock::now())
            .unwrap();
    }
    while !agents.is_idle(space) {
        collected(&mut agents);
    }
    let kinds: Vec<Advice> = thread.join().unwrap().iter().map(|m| m.advice).collect();
    assert_eq!(kinds, [Advice::Merge, Advice::Unmerge]);
}

#[test]
fn who_answers_wrongly_is_let_go() {
    let short = Outcomes::new(&[DONE]).bytes().as_slice().to_vec();
    for answer in [b"nonsense".to_vec(), short, vec![0; 2000]] {
        let (folder, mut agents) = agents();
        let socket = connected(&folder);
        let space = accept(&mut agents)[0].0;
        let thread = answering(socket, vec![answer]);
        agents
            .advise(space, Advice::Merge, &ranges(2), clock::now())
            .unwrap();
        assert_eq!(collected(&mut agents), lost(&[space]));
        thread.join().unwrap();
        assert_eq!(agents.process_of(space), None);
        let now = clock::now();
        assert_eq!(
            agents.advise(space, Advice::Merge, &ranges(1), now),
            Err(AgentLost)
        );
    }
}

#[test]
fn a_silent_agent_is_waited_for_by_nobody_and_let_go_in_time() {
    let (folder, mut agents) = agents();
    let silent: Vec<(OwnedFd, Child)> = (0..20)
        .map(|_| {
            let socket = packets();
            let child = connecting(&socket, &folder, &["cat"]);
            (socket, child)
        })
        .collect();
    let spaces: Vec<SpaceId> = accept(&mut agents).iter().map(|came| came.0).collect();
    assert_eq!(spaces.len(), 20);
    let begun = clock::now();
    for &space in &spaces {
        agents
            .advise(space, Advice::Merge, &ranges(100), begun)
            .unwrap();
    }
    agents.expire(begun + SECOND);
    assert_eq!(agents.collect(begun + SECOND), AgentEvents::default());
    agents.expire(begun + 10 * SECOND);
    assert_eq!(agents.collect(begun + 10 * SECOND), lost(&spaces));
    let taken = clock::now() - begun;
    assert!(taken < 2 * SECOND, "they were waited for: {taken} ns");
    for (_socket, mut child) in silent {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn an_answer_that_is_there_counts_though_the_daemon_is_late() {
    let (folder, mut agents) = agents();
    let socket = connected(&folder);
    let space = accept(&mut agents)[0].0;
    let now = clock::now();
    agents
        .advise(space, Advice::Merge, &ranges(1), now)
        .unwrap();
    let answer = Outcomes::new(&[DONE]).bytes();
    send(&socket, answer.as_slice(), SendFlags::NOSIGNAL).unwrap();
    let late = now + 100 * SECOND;
    assert_eq!(agents.collect(late).answers, [(space, vec![DONE])]);
    agents.expire(late);
    assert_eq!(agents.count(), 1);
}

#[test]
fn who_speaks_unasked_is_let_go() {
    let (folder, mut agents) = agents();
    let socket = connected(&folder);
    let space = accept(&mut agents)[0].0;
    assert_eq!(agents.collect(0), AgentEvents::default());
    send(&socket, b"hello", SendFlags::NOSIGNAL).unwrap();
    assert_eq!(agents.collect(0), lost(&[space]));
}

#[test]
fn more_than_can_wait_for_an_answer_lets_the_agent_go() {
    let (folder, mut agents) = agents();
    let _socket = connected(&folder);
    let space = accept(&mut agents)[0].0;
    let many = ranges(1 << 18);
    agents.advise(space, Advice::Merge, &many, 0).unwrap();
    agents
        .advise(space, Advice::Merge, &ranges(32), 0)
        .expect("as many as are out");
    assert_eq!(
        agents.advise(space, Advice::Merge, &ranges(1), 0),
        Err(AgentLost)
    );
    assert_eq!(agents.collect(0), lost(&[space]));
}

#[test]
fn everybody_may_connect_and_the_socket_goes_with_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let only_own = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(folder.path(), only_own).unwrap();
    let path = folder.path().join("agents");
    let agents = Agents::listen(&path).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(folder.path())), (0o666, 0o711));
    drop(agents);
    assert!(!path.exists());
}

#[test]
fn a_file_with_contents_is_not_removed_for_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("file");
    std::fs::write(&path, "precious").unwrap();
    assert!(Agents::listen(&path).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn a_process_has_one_connection_which_is_its_newest() {
    let (folder, mut agents) = agents();
    let sockets: Vec<OwnedFd> = (0..100).map(|_| connected(&folder)).collect();
    let came = accept(&mut agents);
    assert_eq!((came.len(), agents.count()), (100, 1));
    let newest = came[99].0;
    assert_eq!(agents.spaces(), [newest]);
    let older: Vec<SpaceId> = came[..99].iter().map(|came| came.0).collect();
    assert_eq!(agents.collect(0), lost(&older));
    agents.advise(newest, Advice::Merge, &ranges(1), 0).unwrap();
    let mut bytes = [0; 1024];
    recv(&sockets[99], &mut bytes, RecvFlags::DONTWAIT).expect("the newest is advised");
}

#[test]
fn connections_of_a_user_and_of_all_are_bounded() {
    for limits in [Limits { all: 9, of_user: 2 }, Limits { all: 2, of_user: 9 }] {
        let (folder, mut agents) = agents();
        agents.limits = limits;
        let sockets: Vec<OwnedFd> = (0..4).map(|_| packets()).collect();
        let mut children: Vec<Child> = sockets
            .iter()
            .map(|socket| connecting(socket, &folder, &["cat"]))
            .collect();
        assert_eq!(accept(&mut agents).len(), 2, "{limits:?}");
        assert_eq!(agents.count(), 2);
        // One that ends makes room, though its socket is still held.
        children[0].kill().unwrap();
        children[0].wait().unwrap();
        assert_eq!(collected(&mut agents).lost.len(), 1);
        let _next = connected(&folder);
        assert_eq!(accept(&mut agents).len(), 1);
        for child in &mut children[1..] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

#[test]
fn a_flood_of_connections_is_taken_in_bounded_parts() {
    let (folder, mut agents) = agents();
    let _own = connected(&folder);
    assert_eq!(accept(&mut agents).len(), 1);
    let path = folder.path().join("agents");
    let flood = std::thread::spawn(move || {
        let address = SocketAddrUnix::new(path).unwrap();
        for _ in 0..1000 {
            let socket = packets();
            let _refused_at_the_end = connect(&socket, &address);
        }
    });
    let mut rounds = 0;
    while !flood.is_finished() {
        assert!(accept(&mut agents).len() <= MAX_ACCEPTED_AT_ONCE);
        agents.collect(clock::now());
        rounds += 1;
    }
    flood.join().unwrap();
    assert!(rounds >= 6, "{rounds}");
}

#[test]
fn a_connection_whose_process_has_ended_is_none_though_its_socket_is_held() {
    let (folder, mut agents) = agents();
    let held = packets();
    let mut child = connecting(&held, &folder, &["true"]);
    child.wait().unwrap();
    assert_eq!(accept(&mut agents), []);
    assert_eq!(agents.count(), 0);

    let held = packets();
    let mut child = connecting(&held, &folder, &["cat"]);
    let came = accept(&mut agents);
    assert_eq!((came.len(), came[0].1), (1, child.id()));
    let space = came[0].0;
    let proc = Proc::default();
    assert!(agents.is_still_itself(space, &proc).unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    // Nothing is reported between the exit and the next collection, either.
    assert!(!agents.is_still_itself(space, &proc).unwrap_or(false));
    assert_eq!(
        agents.advise(space, Advice::Merge, &ranges(1), 0),
        Err(AgentLost)
    );
    assert_eq!(agents.collect(0), lost(&[space]));
    let mut bytes = [0; 1024];
    let (length, _) = recv(&held, &mut bytes, RecvFlags::DONTWAIT).unwrap();
    assert_eq!(length, 0, "closed, and nothing was sent");
}

#[test]
fn where_the_kernel_names_an_id_only_a_young_process_is_refused() {
    let (folder, agents) = agents();
    let proc = Proc::default();
    let own = connected(&folder);
    let socket = accept_with(&agents.listener, SocketFlags::CLOEXEC).unwrap();
    let start_ticks = proc.stat(std::process::id()).unwrap().start_ticks;
    let begun = start_ticks * 10_000_000;
    assert!(Peer::checked(&socket, None, &proc, begun).is_none());
    assert!(Peer::checked(&socket, None, &proc, begun + 10_000_000).is_some());
    drop(own);
    // The id of a process that has ended is unused, or that of a younger process.
    let held = packets();
    let mut child = connecting(&held, &folder, &["true"]);
    let drained_at = clock::since_boot();
    child.wait().unwrap();
    let socket = accept_with(&agents.listener, SocketFlags::CLOEXEC).unwrap();
    assert!(Peer::checked(&socket, None, &proc, drained_at).is_none());
}

#[test]
fn numbers_of_spaces_are_used_again_and_stay_below_their_end() {
    let (folder, mut agents) = agents();
    agents.next = END_OF_SPACES - 1;
    let mut children = Vec::new();
    let mut sockets = Vec::new();
    for _ in 0..2 {
        let socket = packets();
        children.push(connecting(&socket, &folder, &["cat"]));
        sockets.push(socket);
    }
    let came: Vec<u32> = accept(&mut agents).iter().map(|came| came.0.0).collect();
    assert_eq!(came, [END_OF_SPACES - 1, 1]);
    agents.next = END_OF_SPACES - 1;
    let _own = connected(&folder);
    assert_eq!(accept(&mut agents)[0].0, SpaceId(2), "those are taken");
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever an agent sends, it is an answer or the end of the connection.
    #[test]
    fn no_bytes_of_an_agent_do_more_than_end_it(
        bytes in proptest::collection::vec(any::<u8>(), 1..700),
        is_answer: bool,
        asked in 0_u64..40,
    ) {
        let (folder, mut agents) = agents();
        let socket = connected(&folder);
        let space = accept(&mut agents)[0].0;
        if asked > 0 {
            agents.advise(space, Advice::Merge, &ranges(asked), 0).unwrap();
        }
        let mut bytes = bytes;
        if is_answer {
            let head = Outcomes::new(&[DONE]).bytes();
            let length = 6.min(bytes.len());
            bytes[..length].copy_from_slice(&head.as_slice()[..length]);
        }
        send(&socket, &bytes, SendFlags::NOSIGNAL).unwrap();
        let collected = agents.collect(0);
        let most = usize::try_from(asked.min(32)).unwrap();
        match collected.answers.as_slice() {
            [] => prop_assert_eq!(collected.lost, [space]),
            [(of, outcomes)] => {
                prop_assert_eq!(*of, space);
                prop_assert_eq!(outcomes.len(), most);
            }
            _ => prop_assert!(false, "{:?}", collected),
        }
    }
}

#[test]
fn a_socket_at_which_some_wait_all_the_time_is_drained_too() {
    let (folder, mut agents) = agents();
    let begun = agents.drained_at;
    let before = clock::since_boot();
    let mut sockets = Vec::new();
    for _ in 0..4 {
        // The maximum accepted at a time: the call does not notice that none is left.
        sockets.extend((0..MAX_ACCEPTED_AT_ONCE).map(|_| connected(&folder)));
        assert_eq!(accept(&mut agents).len(), MAX_ACCEPTED_AT_ONCE);
    }
    assert!(agents.drained_at >= before && agents.drained_at > begun);
}
