//! Processes of several groups: a supervisor attaches them, and their workers hold the spaces.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::{Child, Stdio};
use std::rc::Rc;

use crate::fake::Fake;
use crate::processes::Program;
use rustix::io::Errno;
use uksm_linux::discovery::{Changes, Discovery as _};
use uksm_linux::driver::Machine as _;
use uksm_linux::machine::LinuxMachine;
use uksm_linux::module::{self, AttachAnswer, Error, Verb};
use uksm_linux::proc::Proc;
use uksm_linux::processes::{Attach, Processes, SpaceChanges};
use uksm_linux::selection::{GroupId, Grouping};
use uksm_linux::supervised_spaces::{SpaceNotice, SpaceReport, SupervisedSpaces, Supervisor};
use uksm_policy::command::{Command, Observation, SpaceArrival, SpaceId};

const A: GroupId = GroupId(1);
const B: GroupId = GroupId(2);

/// Children of a shell, since a supervisor does not follow its own.
struct Others(Child, Vec<u32>);

impl Others {
    fn start(program: &Program, count: usize) -> Others {
        let script = format!(
            "for i in $(seq {count}); do {} 300 & echo $!; done; wait",
            program.path().display()
        );
        let mut shell = std::process::Command::new("sh");
        let shell = shell.args(["-c", &script]).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let pids: Vec<u32> = lines
            .take(count)
            .map(|line| line.unwrap().parse().unwrap())
            .collect();
        let name = program.path();
        let name = name.file_name().unwrap().to_str().unwrap();
        for &pid in &pids {
            while Proc::default().stat(pid).unwrap().comm != name {
                std::thread::yield_now();
            }
        }
        Others(shell, pids)
    }

    fn end(pid: u32) {
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for &pid in &self.1 {
            if Proc::default().stat(pid).is_ok() {
                Others::end(pid);
            }
        }
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A domain for each group, if it has one already.
#[derive(Default)]
struct Domains(BTreeMap<GroupId, Fake>);

impl Attach for Domains {
    fn attach(&mut self, group: GroupId, process: BorrowedFd<'_>) -> module::Result<AttachAnswer> {
        match self.0.get_mut(&group) {
            Some(domain) => uksm_linux::domain::Domain::attach(domain, process),
            None => Err(Error::Call {
                verb: Verb::Attach,
                errno: Errno::NXIO,
            }),
        }
    }
}

fn followed(first: &Program, second: &Program) -> Processes {
    let groups = vec![(A, first.selection()), (B, second.selection())];
    let processes = Processes::of_groups(Proc::default(), Grouping::of(groups));
    processes.unwrap().for_supervisor()
}

/// One list; on a busy machine its milliseconds may be over before it has begun, so the rest of it
/// follows.
fn discovered(processes: &mut Processes, domains: &mut Domains) -> SpaceChanges {
    let mut all = SpaceChanges::default();
    loop {
        let news = processes.discover(domains).unwrap();
        all.arrived.extend(news.arrived);
        all.left.extend(news.left);
        if !news.more {
            return all;
        }
    }
}

#[test]
fn each_process_is_attached_in_the_domain_of_its_group_as_soon_as_there_is_one() {
    let (first, second) = (Program::new("ga"), Program::new("gb"));
    let (_a, b) = (Others::start(&first, 2), Others::start(&second, 1));
    let mut processes = followed(&first, &second);
    let mut domains = Domains::default();
    domains.0.insert(A, Fake::default());
    let news = discovered(&mut processes, &mut domains);
    assert!(news.arrived.iter().all(|arrived| arrived.group == A));
    assert_eq!(news.arrived.len(), 2);
    let failures: Vec<_> = processes.failures().collect();
    assert_eq!(failures, [(b.1[0], B, Errno::NXIO)]);
    domains.0.insert(B, Fake::default());
    processes.has_domain(B);
    let news = discovered(&mut processes, &mut domains);
    let arrived: Vec<_> = news
        .arrived
        .iter()
        .map(|new| (new.group, new.pid))
        .collect();
    assert_eq!(arrived, [(B, b.1[0])]);
}

#[test]
fn who_moves_is_attached_only_when_it_has_parted() {
    let (first, second) = (Program::new("gc"), Program::new("gd"));
    let others = Others::start(&first, 1);
    let pid = others.1[0];
    let mut processes = followed(&first, &second);
    let mut domains = Domains([(A, Fake::default()), (B, Fake::default())].into());
    let space = discovered(&mut processes, &mut domains).arrived[0]
        .arrival
        .space;
    let swapped = vec![(A, second.selection()), (B, first.selection())];
    processes.regroup(swapped, vec![]);
    let news = discovered(&mut processes, &mut domains);
    let left = news.left[0];
    assert_eq!((left.group, left.space, left.lives), (A, space, true));
    for _ in 0..100 {
        let news = discovered(&mut processes, &mut domains);
        assert_eq!((news.arrived.len(), news.left.len()), (0, 0));
    }
    assert!(
        domains.0[&B].seen.is_empty(),
        "it shares pages with A still"
    );
    processes.note_detached(&[(A, space)].into());
    let news = discovered(&mut processes, &mut domains);
    assert_eq!((news.arrived[0].group, news.arrived[0].pid), (B, pid));
    // A group without a domain has no processes.
    processes.has_no_domain(B);
    assert!(processes.targets().is_empty());
    domains.0.insert(B, Fake::default());
    let news = discovered(&mut processes, &mut domains);
    assert_eq!((news.arrived[0].group, news.arrived[0].pid), (B, pid));
    Others::end(pid);
    while Proc::default().stat(pid).is_ok() {
        std::thread::yield_now();
    }
    let left = discovered(&mut processes, &mut domains).left[0];
    assert_eq!(
        (left.group, left.lives, left.was_reported),
        (B, false, true)
    );
}

/// A supervisor that is a list; the test has it, too.
#[derive(Debug, Default)]
struct List {
    notices: VecDeque<SpaceNotice>,
    reports: Vec<SpaceReport>,
    refuses: bool,
}

#[derive(Debug)]
struct Shared(Rc<RefCell<List>>, OwnedFd);

impl Supervisor for Shared {
    fn receive(&mut self) -> Option<SpaceNotice> {
        self.0.borrow_mut().notices.pop_front()
    }

    fn send(&mut self, reports: &[SpaceReport]) -> bool {
        let mut list = self.0.borrow_mut();
        if !list.refuses {
            list.reports.extend(reports);
        }
        !list.refuses
    }

    fn events(&self) -> BorrowedFd<'_> {
        self.1.as_fd()
    }
}

/// A worker to which the spaces of these processes were handed over.
struct Worker {
    domain: Fake,
    spaces: SupervisedSpaces<Shared>,
    list: Rc<RefCell<List>>,
}

impl Worker {
    fn of(pids: &[u32]) -> (Worker, Vec<SpaceId>) {
        let list = Rc::<RefCell<List>>::default();
        let file = std::fs::File::open("/dev/null").unwrap();
        let supervisor = Shared(Rc::clone(&list), file.into());
        let mut worker = Worker {
            domain: Fake::mapped(),
            spaces: SupervisedSpaces::new(supervisor),
            list,
        };
        let spaces = pids.iter().map(|&pid| worker.arrive(pid)).collect();
        (worker, spaces)
    }

    fn arrive(&mut self, pid: u32) -> SpaceId {
        self.arrive_with(pid, false)
    }

    fn arrive_with(&mut self, pid: u32, is_mixed: bool) -> SpaceId {
        let pidfd = uksm_linux::pidfd::open(pid).unwrap().unwrap();
        let attached = uksm_linux::domain::Domain::attach(&mut self.domain, pidfd.as_fd());
        let (space, kind, age) = (attached.unwrap().space, 1, 2);
        let arrival = SpaceArrival { space, kind, age };
        let notice = SpaceNotice::Arrived {
            pid,
            arrival,
            is_mixed,
        };
        self.list.borrow_mut().notices.push_back(notice);
        space
    }

    fn leave(&self, space: SpaceId, lives: bool) {
        let notice = SpaceNotice::Left { space, lives };
        self.list.borrow_mut().notices.push_back(notice);
    }

    fn list(&mut self) -> Changes {
        self.spaces.list(&mut self.domain).unwrap()
    }

    fn reports(&self) -> Vec<SpaceReport> {
        self.list.borrow().reports.clone()
    }
}

#[test]
fn only_the_worker_detaches_and_reports_it() {
    let program = Program::new("ge");
    let others = Others::start(&program, 2);
    let (mut worker, spaces) = Worker::of(&others.1);
    let arrived: Vec<_> = worker.list().arrived.iter().map(|new| new.space).collect();
    assert_eq!(arrived, spaces);
    assert!(worker.spaces.has(spaces[0]));
    assert_eq!(worker.spaces.process_of(spaces[1]), Some(others.1[1]));
    worker.leave(spaces[0], false);
    assert!(
        worker.domain.attached.contains(&spaces[0]),
        "it may be in a call"
    );
    assert_eq!(worker.list().left, [spaces[0]]);
    assert_eq!(worker.domain.attached, [spaces[1]].into());
    assert_eq!(worker.reports(), [SpaceReport::Detached(spaces[0])]);
    assert_eq!(
        worker.domain.broken, 0,
        "a process that ended has nothing to break"
    );
    // A space that was never reported is not mentioned, and detached all the same.
    let again = worker.arrive(others.1[0]);
    worker.leave(again, false);
    assert_eq!(worker.list(), Changes::default());
    assert_eq!(worker.reports().len(), 2);
}

#[test]
fn who_leaves_alive_is_detached_only_when_its_pages_are_broken() {
    let program = Program::new("gf");
    let others = Others::start(&program, 1);
    let (mut worker, spaces) = Worker::of(&others.1);
    let space = spaces[0];
    worker.list();
    worker.domain.short = u32::MAX;
    worker.leave(space, true);
    assert_eq!(worker.list().left, [space], "it is merged no more");
    assert!(!worker.spaces.has(space) && worker.domain.attached.contains(&space));
    assert_eq!((worker.domain.broken, worker.reports()), (0, vec![]));
    let due = worker.spaces.ready_at().unwrap();
    assert!(due > uksm_linux::clock::now(), "tried again later");
    worker.domain.short = 0;
    while worker.domain.attached.contains(&space) {
        worker.list();
    }
    assert!(worker.domain.broken > 0);
    assert_eq!(worker.spaces.counts().parted, worker.domain.broken);
    assert_eq!(worker.reports(), [SpaceReport::Detached(space)]);
    assert_eq!(worker.spaces.ready_at(), None);
}

#[test]
fn who_can_have_frames_of_another_group_is_merged_only_when_they_are_broken() {
    let program = Program::new("gi");
    let others = Others::start(&program, 2);
    let (mut worker, _) = Worker::of(&[]);
    let space = worker.arrive_with(others.1[0], true);
    worker.domain.short = u32::MAX;
    assert_eq!(worker.list(), Changes::default());
    assert!(!worker.spaces.has(space), "no memory for copies yet");
    worker.domain.short = 0;
    let arrived = loop {
        let changes = worker.list();
        if !changes.arrived.is_empty() {
            break changes.arrived;
        }
    };
    assert!(worker.domain.broken > 0 && worker.spaces.has(space));
    assert_eq!((arrived.len(), arrived[0].space), (1, space));
    assert_eq!(worker.spaces.ready_at(), None);

    // A space that leaves before that was never reported; and it is unmerged from this group as any
    // other.
    let space = worker.arrive_with(others.1[1], true);
    worker.domain.short = u32::MAX;
    worker.list();
    worker.leave(space, true);
    assert!(worker.list().left.is_empty());
    worker.domain.short = 0;
    while worker.domain.attached.contains(&space) {
        assert!(worker.list().arrived.is_empty());
    }
    assert_eq!(worker.reports(), [SpaceReport::Detached(space)]);
}

#[test]
fn what_is_broken_for_good_is_not_merged_again_also_if_it_was_not_heard_of() {
    let program = Program::new("gh");
    let others = Others::start(&program, 2);
    let (worker, spaces) = Worker::of(&others.1);
    let Worker {
        domain,
        spaces: handed_over,
        list,
    } = worker;
    let sleeper = uksm_linux::sleeper::Sleeper::new().unwrap();
    let mut machine = LinuxMachine::new(domain, handed_over, sleeper);
    let processes = |machine: &mut LinuxMachine<Fake, SupervisedSpaces<Shared>>| match machine
        .perform(Command::ListProcesses)
        .unwrap()
    {
        Observation::Processes { arrived, left, .. } => {
            (arrived.iter().map(|new| new.space).collect(), left)
        }
        other => panic!("{other:?}"),
    };
    // The second is broken before it is reported.
    let first = list.borrow_mut().notices.pop_back().unwrap();
    assert_eq!(processes(&mut machine), (vec![spaces[0]], vec![]));
    list.borrow_mut().notices.push_back(first);
    let done = machine.break_spaces(&spaces, &mut || ()).unwrap();
    assert_eq!(done.processes, 2);
    assert!(spaces.iter().all(|&space| !machine.processes().has(space)));
    assert_eq!(processes(&mut machine), (vec![], vec![spaces[0]]));
    assert!(spaces.iter().all(|&space| !machine.processes().has(space)));
    assert!(list.borrow().reports.is_empty(), "they are attached still");
}

#[test]
fn what_a_supervisor_does_not_hear_is_said_again() {
    let program = Program::new("gg");
    let others = Others::start(&program, 1);
    let (mut worker, spaces) = Worker::of(&others.1);
    worker.list();
    worker.list.borrow_mut().refuses = true;
    worker.spaces.note_dead(spaces[0]);
    worker.spaces.note_dead(spaces[0]);
    worker.spaces.note_dead(SpaceId(99));
    assert_eq!(worker.spaces.ready_at(), Some(0));
    worker.list.borrow_mut().refuses = false;
    worker.list();
    assert_eq!(
        worker.reports(),
        [SpaceReport::Dead(spaces[0])],
        "once, and of its own"
    );
    assert_eq!(worker.spaces.ready_at(), None);
}
