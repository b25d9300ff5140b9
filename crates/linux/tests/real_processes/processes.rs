//! Real processes are followed through their lives, over a domain that needs no module.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::fake::Fake;
use rustix::io::Errno;
use uksm_linux::discovery::{Changes, Discovery as _};
use uksm_linux::proc::Proc;
use uksm_linux::processes::Processes;
use uksm_linux::selection::{GroupId, Selection, Selectors};
use uksm_policy::command::SpaceId;

/// A program of its own name that does nothing, so that no other process is chosen by it.
pub(crate) struct Program {
    folder: tempfile::TempDir,
    name: String,
}

impl Program {
    pub(crate) fn new(name: &str) -> Program {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("{name}{}", std::process::id());
        assert!(name.len() <= 15, "{name}");
        let found = ["/bin/sleep", "/usr/bin/sleep"]
            .into_iter()
            .find(|p| PathBuf::from(p).exists());
        // The name of a program is that of the link. A copy could be busy: another test's fork may
        // hold it open for writing.
        std::os::unix::fs::symlink(found.expect("sleep"), folder.path().join(&name)).unwrap();
        Program { folder, name }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    fn start(&self) -> Process {
        let child = Command::new(self.path()).arg("300").spawn().unwrap();
        let process = Process(child);
        // The name is the parent's until the exec.
        while Proc::default().stat(process.pid()).unwrap().comm != self.name {
            std::thread::yield_now();
        }
        process
    }

    pub(crate) fn selection(&self) -> Selection {
        let comms = vec![self.name.parse().unwrap()];
        Selection {
            chosen: Selectors {
                comms,
                ..Default::default()
            },
            ..Default::default()
        }
    }
}

/// Exits with the test.
struct Process(Child);

impl Process {
    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn end(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn follow(selection: Selection) -> Processes {
    Processes::new(Proc::default(), selection).unwrap()
}

/// One process list; on a busy machine its milliseconds may be over before it has begun, so the
/// rest of it follows.
fn listed(processes: &mut Processes, domain: &mut Fake) -> Changes {
    let mut all = Changes::default();
    loop {
        let changes = processes.list(domain).unwrap();
        all.arrived.extend(changes.arrived);
        all.left.extend(changes.left);
        if !changes.more {
            return all;
        }
    }
}

#[test]
fn processes_come_and_go() {
    let (program, mut domain) = (Program::new("goer"), Fake::default());
    let mut processes = follow(program.selection());
    assert_eq!(listed(&mut processes, &mut domain), Changes::default());
    let (mut one, two) = (program.start(), program.start());
    let changes = listed(&mut processes, &mut domain);
    assert_eq!((changes.arrived.len(), changes.left.len()), (2, 0));
    assert_eq!(
        changes.arrived[0].kind, changes.arrived[1].kind,
        "of one program"
    );
    assert!(changes.arrived[0].age < 60_000_000_000);
    let later = listed(&mut processes, &mut domain);
    assert_eq!(
        (later.arrived.len(), later.left.len()),
        (0, 0),
        "reported once"
    );
    let gone = domain.spaces[&one.pid()];
    one.end();
    let changes = listed(&mut processes, &mut domain);
    assert_eq!((changes.arrived.len(), changes.left), (0, vec![gone]));
    assert_eq!(domain.attached.len(), 1, "detached");
    assert_eq!(processes.targets()[0].pid, two.pid());
    assert_eq!(domain.seen.len(), 2, "nobody else was touched");
}

#[test]
fn a_space_that_died_under_a_living_process_is_attached_anew() {
    let (program, mut domain) = (Program::new("exec"), Fake::default());
    let process = program.start();
    let mut processes = follow(program.selection());
    let old = listed(&mut processes, &mut domain).arrived[0].space;
    domain.exec(process.pid());
    processes.note_dead(old);
    let changes = listed(&mut processes, &mut domain);
    assert_eq!(changes.left, [old]);
    assert_eq!(changes.arrived.len(), 1);
    assert_ne!(changes.arrived[0].space, old);
}

#[test]
fn an_exec_that_nobody_noticed_is_found_in_turn() {
    let (program, mut domain) = (Program::new("turn"), Fake::default());
    let process = program.start();
    let mut processes = follow(program.selection());
    let old = listed(&mut processes, &mut domain).arrived[0].space;
    domain.exec(process.pid());
    let mut pids = Vec::new();
    Proc::default().list(&mut pids).unwrap();
    let turns = pids.len() / uksm_linux::processes::CHECKS_PER_LIST + 3;
    let found = (0..turns)
        .map(|_| listed(&mut processes, &mut domain))
        .find(|c| !c.left.is_empty());
    let changes = found.expect("found within a round of turns");
    assert_eq!(changes.left, [old]);
    assert_eq!(
        (changes.arrived.len(), changes.arrived[0].age),
        (1, 0),
        "as old as its exec"
    );
}

#[test]
fn a_newcomer_that_execs_into_a_target_is_found_by_the_next_process_list() {
    let (program, mut domain) = (Program::new("late"), Fake::default());
    let script = format!("read x; exec {} 300", program.path().display());
    let mut child = Command::new("/bin/sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let process = Process(child);
    let mut processes = follow(program.selection());
    assert_eq!(listed(&mut processes, &mut domain), Changes::default());
    std::io::Write::write_all(&mut stdin, b"\n").unwrap();
    while Proc::default().stat(process.pid()).unwrap().comm != program.name {
        std::thread::yield_now();
    }
    assert_eq!(listed(&mut processes, &mut domain).arrived.len(), 1);
    assert_eq!(domain.seen, [process.pid()].into());
}

#[test]
fn a_process_that_becomes_another_program_is_let_go() {
    let (program, other) = (Program::new("from"), Program::new("to"));
    let mut domain = Fake::default();
    std::fs::remove_file(program.path()).unwrap();
    std::os::unix::fs::symlink("/bin/sh", program.path()).unwrap();
    let script = format!("read x; exec {} 300", other.path().display());
    let mut child = Command::new(program.path())
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let process = Process(child);
    let mut processes = follow(program.selection());
    let arrived = loop {
        let changes = listed(&mut processes, &mut domain);
        if let [arrival] = changes.arrived[..] {
            break arrival.space;
        }
        std::thread::yield_now();
    };
    std::io::Write::write_all(&mut stdin, b"\n").unwrap();
    while Proc::default().stat(process.pid()).unwrap().comm != other.name {
        std::thread::yield_now();
    }
    domain.exec(process.pid());
    processes.note_dead(arrived);
    let changes = listed(&mut processes, &mut domain);
    assert_eq!((changes.arrived, changes.left), (vec![], vec![arrived]));
    assert!(domain.attached.is_empty());
}

#[test]
fn with_all_neither_itself_nor_kernel_threads_nor_zombies_are_touched() {
    let mut domain = Fake::default();
    let zombie = Process(Command::new("/bin/true").spawn().unwrap());
    let proc = Proc::default();
    while proc.stat(zombie.pid()).unwrap().state != 'Z' {
        std::thread::yield_now();
    }
    let mut processes = follow(Selection {
        all: true,
        ..Selection::default()
    });
    let changes = listed(&mut processes, &mut domain);
    assert!(!changes.arrived.is_empty(), "somebody else is there");
    assert!(!domain.seen.contains(&std::process::id()));
    assert!(!domain.seen.contains(&zombie.pid()));
    let threads = domain
        .seen
        .iter()
        .filter(|&&pid| proc.stat(pid).is_ok_and(|s| s.flags & 0x0020_0000 != 0));
    assert_eq!(threads.count(), 0);
}

#[test]
fn one_process_that_refuses_does_not_stop_the_others() {
    let (program, mut domain) = (Program::new("no"), Fake::default());
    let (one, two, three) = (program.start(), program.start(), program.start());
    domain.refused.insert(one.pid(), Errno::PERM);
    domain.refused.insert(two.pid(), Errno::BUSY);
    let mut processes = follow(program.selection());
    assert_eq!(listed(&mut processes, &mut domain).arrived.len(), 1);
    assert_eq!(processes.targets()[0].pid, three.pid());
    let failures = processes.failures();
    let mut failures: Vec<_> = failures.map(|(pid, _, errno)| (pid, errno)).collect();
    failures.sort_by_key(|failure| failure.0);
    let mut expected = vec![(one.pid(), Errno::PERM), (two.pid(), Errno::BUSY)];
    expected.sort_by_key(|failure| failure.0);
    assert_eq!(failures, expected);
}

#[test]
fn a_process_that_refused_and_is_not_chosen_any_more_has_not_failed() {
    let (program, mut domain) = (Program::new("gone"), Fake::default());
    let process = program.start();
    domain.refused.insert(process.pid(), Errno::PERM);
    let mut processes = follow(program.selection());
    listed(&mut processes, &mut domain);
    assert_eq!(processes.failures().count(), 1);
    processes.regroup(
        vec![(GroupId(0), Program::new("other").selection())],
        vec![],
    );
    for _ in 0..1000 {
        listed(&mut processes, &mut domain);
        if processes.failures().count() == 0 {
            return;
        }
    }
    panic!("it is reported as failed for ever");
}

#[test]
fn a_newcomer_that_cannot_be_attached_for_lack_of_memory_is_attached_later() {
    let (program, mut domain) = (Program::new("short"), Fake::default());
    let process = program.start();
    let mut processes = follow(program.selection());
    // With few processes it also has its turn in the list that found it.
    domain.short = u32::MAX;
    assert!(listed(&mut processes, &mut domain).arrived.is_empty());
    let failures: Vec<_> = processes.failures().collect();
    assert_eq!(failures, [(process.pid(), GroupId(0), Errno::NOMEM)]);
    assert!(processes.shortages() >= 1);
    domain.short = 0;
    // Known processes are checked in turns.
    let arrived = (0..1000).find_map(|_| listed(&mut processes, &mut domain).arrived.pop());
    assert!(arrived.is_some(), "nobody came");
    assert_eq!(processes.failures().count(), 0);
}

#[test]
fn a_followed_process_is_not_let_go_for_lack_of_memory() {
    let (program, mut domain) = (Program::new("stay"), Fake::default());
    let _process = program.start();
    let mut processes = follow(program.selection());
    let space = listed(&mut processes, &mut domain).arrived[0].space;
    domain.short = u32::MAX;
    for _ in 0..1000 {
        assert!(listed(&mut processes, &mut domain).left.is_empty());
        if processes.shortages() > 1 {
            break;
        }
    }
    assert!(processes.shortages() > 1, "it was never its turn");
    assert!(processes.has(space) && domain.attached.contains(&space));
}

#[test]
fn memory_that_another_domain_lets_go_of_is_waited_for_at_the_start() {
    let (program, mut domain) = (Program::new("soon"), Fake::default());
    let process = program.start();
    domain.busy = 3;
    let mut selection = Selection::default();
    let pid = process.pid().to_string().parse().unwrap();
    selection.chosen.pids.push(pid);
    selection.pin(&Proc::default()).unwrap();
    follow(selection).follow_named(&mut domain).unwrap();
    assert_eq!(domain.seen, [process.pid()].into());
}

#[test]
fn a_named_process_that_refuses_is_an_error_at_the_start() {
    let (program, mut domain) = (Program::new("named"), Fake::default());
    let process = program.start();
    domain.refused.insert(process.pid(), Errno::BUSY);
    let mut selection = Selection::default();
    selection
        .chosen
        .pids
        .push(process.pid().to_string().parse().unwrap());
    selection.pin(&Proc::default()).unwrap();
    let (pid, error) = follow(selection).follow_named(&mut domain).unwrap_err();
    assert_eq!(pid, process.pid());
    assert!(
        error
            .to_string()
            .contains("another running uksm owns its memory"),
        "{error}"
    );
}

#[test]
fn a_named_process_that_ends_or_holds_its_locks_keeps_nobody_from_starting() {
    let (program, mut domain) = (Program::new("holds"), Fake::default());
    let processes = [program.start(), program.start(), program.start()];
    let mut selection = Selection::default();
    for process in &processes {
        let pid = process.pid().to_string().parse().unwrap();
        selection.chosen.pids.push(pid);
    }
    selection.pin(&Proc::default()).unwrap();
    let [first, second, third] = [0, 1, 2].map(|at: usize| processes[at].pid());
    domain.refused.insert(first, Errno::AGAIN);
    domain.refused.insert(second, Errno::SRCH);
    let left_out = follow(selection).follow_named(&mut domain).unwrap();
    let pids: Vec<u32> = left_out.iter().map(|(pid, _)| *pid).collect();
    assert_eq!(pids, [first, second]);
    assert!(domain.seen.contains(&third));
}

#[test]
fn an_id_of_another_start_is_another_process() {
    let (program, mut domain) = (Program::new("reuse"), Fake::default());
    let process = program.start();
    let start = Proc::default().stat(process.pid()).unwrap().start_ticks;
    let mut selection = Selection::default();
    selection
        .chosen
        .pids
        .push(format!("{}@{}", process.pid(), start + 1).parse().unwrap());
    assert_eq!(
        follow(selection).list(&mut domain).unwrap(),
        Changes::default()
    );
    assert!(domain.seen.is_empty());
}

#[test]
fn a_space_of_two_processes_goes_with_the_last() {
    let (program, mut domain) = (Program::new("vfork"), Fake::default());
    let (mut one, mut two) = (program.start(), program.start());
    domain.spaces = [(one.pid(), SpaceId(77)), (two.pid(), SpaceId(77))].into();
    let mut processes = follow(program.selection());
    assert_eq!(listed(&mut processes, &mut domain).arrived.len(), 1);
    one.end();
    let changes = listed(&mut processes, &mut domain);
    assert_eq!((changes.arrived.len(), changes.left.len()), (0, 0));
    assert!(processes.has(SpaceId(77)));
    two.end();
    assert_eq!(listed(&mut processes, &mut domain).left, [SpaceId(77)]);
}

#[test]
fn an_excluded_process_is_let_go_and_stays_away() {
    let (program, mut domain) = (Program::new("out"), Fake::default());
    let process = program.start();
    let mut processes = follow(program.selection());
    let space = listed(&mut processes, &mut domain).arrived[0].space;
    let pids = vec![process.pid().to_string().parse().unwrap()];
    let selectors = Selectors {
        pids,
        ..Default::default()
    };
    processes.exclude(selectors, &mut domain).unwrap();
    assert!(!processes.has(space), "nothing is asked of it any more");
    assert_eq!(
        listed(&mut processes, &mut domain).left,
        [space],
        "the policy is notified"
    );
    assert!(domain.attached.is_empty());
    assert_eq!(listed(&mut processes, &mut domain), Changes::default());
}

#[test]
fn another_selection_is_followed_and_the_last_one_let_go() {
    let (first, second) = (Program::new("first"), Program::new("second"));
    let mut domain = Fake::default();
    let (one, two) = (first.start(), second.start());
    let mut processes = follow(Selection {
        chosen: Selectors {
            pids: vec![one.pid().to_string().parse().unwrap()],
            ..Selectors::default()
        },
        ..Selection::default()
    });
    let arrived = listed(&mut processes, &mut domain).arrived;
    assert_eq!(arrived.len(), 1);
    processes.regroup(vec![(GroupId(0), second.selection())], vec![]);
    let changes = listed(&mut processes, &mut domain);
    assert_eq!(changes.left, [arrived[0].space]);
    assert_eq!(changes.arrived.len(), 1, "it was never looked for before");
    assert_eq!(processes.targets()[0].pid, two.pid());
    assert_eq!(domain.attached.len(), 1);
}
