//! The machine answers every command, whatever the state of its spaces.

use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program};

use crate::fake::{Fake, writable};
use uksm_linux::discovery::Discovery as _;
use uksm_linux::driver::Machine as _;
use uksm_linux::machine::LinuxMachine;
use uksm_linux::mapping_kinds;
use uksm_linux::module::raw;
use uksm_linux::proc::Proc;
use uksm_linux::processes::Processes;
use uksm_linux::selection::{Selection, Selectors};
use uksm_linux::sleeper::Sleeper;
use uksm_policy::command::{
    Command, FoldBatch, FoldEntry, FoldKind, Lines, Mapping, Observation, PageState, Reason, Run,
    SpaceId, Status,
};

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

const UNKNOWN: SpaceId = SpaceId(999);

fn machine(domain: Fake) -> (Process, LinuxMachine<Fake>, SpaceId) {
    let process = Process(Program::new("sleep").arg("300").spawn().unwrap());
    let mut selection = Selection::default();
    selection
        .chosen
        .pids
        .push(process.0.id().to_string().parse().unwrap());
    // Its memory is that of the test until the exec.
    while Proc::default().stat(process.0.id()).unwrap().comm != "sleep" {
        std::thread::yield_now();
    }
    let processes = Processes::new(Proc::default(), selection).unwrap();
    let mut machine = LinuxMachine::new(domain, processes, Sleeper::new().unwrap());
    let Observation::Processes { arrived, .. } = machine.perform(Command::ListProcesses).unwrap()
    else {
        panic!("no process list")
    };
    let space = arrived[0].space;
    (process, machine, space)
}

fn run(space: SpaceId, count: u32) -> Run {
    Run {
        start: 0x1000,
        space,
        count,
        stride: 1,
    }
}

fn sample(runs: Vec<Run>) -> Command {
    Command::Sample {
        runs,
        lines: Lines { from: 0, to: 1 },
    }
}

fn batch(spaces: &[SpaceId]) -> Command {
    let entry = |&space: &SpaceId| FoldEntry {
        address: 0x1000,
        hash: 0,
        space,
        kind: FoldKind::Zero,
    };
    Command::Fold(FoldBatch {
        entries: spaces.iter().map(entry).collect(),
        ..Default::default()
    })
}

fn list(machine: &mut LinuxMachine<Fake>, space: SpaceId) -> Vec<Mapping> {
    let answer = machine.perform(Command::ListMappings(space)).unwrap();
    match answer {
        Observation::Mappings {
            space: of,
            mappings,
            age,
        } => {
            assert_eq!(of, space);
            assert!(age > 0, "a list is older than its answer");
            mappings
        }
        other => panic!("no mapping list: {other:?}"),
    }
}

#[test]
fn the_mapping_list_has_all_parts_in_which_pages_can_be_merged() {
    let (_process, mut machine, space) = machine(Fake::mapped());
    let expected = [
        (0x10_0000, 0x20_0000, mapping_kinds::Kind::Heap as u64),
        (0x50_0000, 0x60_0000, mapping_kinds::Kind::Stack as u64),
    ];
    for most_listed in 1..5 {
        machine.domain_mut().most_listed = most_listed;
        let found = list(&mut machine, space);
        let found: Vec<_> = found.iter().map(|m| (m.start, m.end, m.kind)).collect();
        assert_eq!(found, expected, "{most_listed} mappings a call");
    }
}

#[test]
fn sixty_thousand_mappings_of_alternating_protection_are_one_for_the_policy() {
    let (_process, mut machine, space) = machine(Fake::default());
    let domain = machine.domain_mut();
    domain.most_listed = 4096;
    domain.mappings = (1..=60_000)
        .map(|at| writable(at * 0x1000, (at + 1) * 0x1000, 0))
        .collect();
    for mapping in domain.mappings.iter_mut().step_by(2) {
        mapping.flags = raw::UKSM_MAPPING_READ;
    }
    let found = list(&mut machine, space);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].start, found[0].end), (0x1000, 60_001 * 0x1000));
}

#[test]
fn the_mapping_list_of_nobody_is_empty() {
    let (_process, mut machine, _) = machine(Fake::default());
    let listed = machine.perform(Command::ListMappings(UNKNOWN)).unwrap();
    assert_eq!(
        listed,
        Observation::Mappings {
            space: UNKNOWN,
            mappings: vec![],
            age: 0
        }
    );
}

#[test]
fn pages_of_a_space_that_was_let_go_are_dead_and_the_others_answered() {
    let (_process, mut machine, space) = machine(Fake::default());
    let runs = vec![run(UNKNOWN, 2), run(space, 3), run(UNKNOWN, 1)];
    let Observation::Sampled(pages) = machine.perform(sample(runs)).unwrap() else {
        panic!()
    };
    use PageState::{Anon, Dead};
    let states: Vec<_> = pages.iter().map(|page| page.state).collect();
    assert_eq!(states, [Dead, Dead, Anon, Anon, Anon, Dead]);
    let Observation::Folded(outcomes) = machine.perform(batch(&[UNKNOWN, space])).unwrap() else {
        panic!()
    };
    assert_eq!(
        (outcomes[0].status, outcomes[0].reason),
        (Status::Gone, Reason::Dead)
    );
    assert_eq!(outcomes[1].status, Status::Merged);
}

#[test]
fn a_dead_space_has_an_empty_mapping_list_and_leaves_with_the_next_process_list() {
    let (process, mut machine, space) = machine(Fake::default());
    machine.domain_mut().exec(process.0.id());
    let listed = machine.perform(Command::ListMappings(space)).unwrap();
    assert_eq!(
        listed,
        Observation::Mappings {
            space,
            mappings: vec![],
            age: 0
        }
    );
    let Observation::Processes { left, arrived, .. } =
        machine.perform(Command::ListProcesses).unwrap()
    else {
        panic!()
    };
    assert_eq!((left, arrived.len()), (vec![space], 1));
}

#[test]
fn a_dry_run_folds_nothing() {
    let (_process, machine, space) = machine(Fake::default());
    let mut machine = machine.dry();
    let Observation::Folded(outcomes) = machine.perform(batch(&[space, space])).unwrap() else {
        panic!()
    };
    assert!(
        outcomes
            .iter()
            .all(|o| o.status == Status::Busy && o.frame == 0)
    );
    assert_eq!(machine.withheld(), 2);
}

#[test]
fn pages_are_given_back_where_the_space_is_followed_and_its_locks_are_free() {
    let (_process, mut machine, space) = machine(Fake::default());
    let (start, end) = (0x1000, 0x3000);
    let give_back = |space| Command::GiveBack { space, start, end };
    let given_back = |next, pages, stopped| Observation::GivenBack {
        next,
        pages,
        stopped,
    };
    let nothing = machine.perform(give_back(UNKNOWN)).unwrap();
    assert_eq!(nothing, given_back(end, 0, false));
    let done = machine.perform(give_back(space)).unwrap();
    assert_eq!(done, given_back(end, 1, false));
    machine.domain_mut().short = 1;
    let stopped = machine.perform(give_back(space)).unwrap();
    assert_eq!(
        (stopped, machine.shortages()),
        (given_back(start, 0, true), 1)
    );
    machine.domain_mut().locked.insert(space);
    for _ in 0..2 {
        let locked = machine.perform(give_back(space)).unwrap();
        assert_eq!(locked, given_back(start, 0, false));
    }
    assert_eq!(machine.given_up(), 1, "the second call did not wait again");
    let domain = machine.domain_mut();
    assert_eq!((domain.broken, domain.broken_singles), (1, 1));
    let mut machine = machine.dry();
    machine.domain_mut().locked.clear();
    let nothing = machine.perform(give_back(space)).unwrap();
    assert_eq!(nothing, given_back(end, 0, false));
    assert_eq!(machine.domain_mut().broken, 1);
}

#[test]
fn breaking_up_lets_go_of_the_named_and_goes_in_stretches() {
    let (process, mut machine, space) = machine(Fake::mapped());
    let nobody = uksm_linux::selection::Selectors::default();
    let mut signs = 0;
    let none = machine
        .unmerge_selected(&nobody, &mut || signs += 1)
        .unwrap();
    assert_eq!((none.processes, none.pages, signs), (0, 0, 0));
    let mut named = uksm_linux::selection::Selectors::default();
    named.pids.push(process.0.id().to_string().parse().unwrap());
    let done = machine
        .unmerge_selected(&named, &mut || signs += 1)
        .unwrap();
    // The fake breaks one page a call.
    assert!(
        done.processes == 1 && done.pages > 0 && done.pages == signs,
        "{done:?} {signs}"
    );
    assert!(!machine.processes().has(space));
    let Observation::Processes { left, arrived, .. } =
        machine.perform(Command::ListProcesses).unwrap()
    else {
        panic!()
    };
    assert_eq!((left, arrived), (vec![space], vec![]), "and stays away");
}

/// A folder that looks like `/proc` and has one process, whose files can be changed.
fn folder_of(process: &Process) -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let id = process.0.id().to_string();
    let folder = root.path().join(&id);
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(
        Path::new("/proc").join(&id).join("stat"),
        folder.join("stat"),
    )
    .unwrap();
    (root, folder)
}

/// Makes a file unreadable though it exists, as when no file descriptor is left.
fn spoil(path: &Path) {
    std::fs::remove_file(path).unwrap();
    std::fs::create_dir(path).unwrap();
}

#[test]
fn a_process_that_cannot_be_looked_at_is_not_let_go() {
    let process = Process(Program::new("sleep").arg("300").spawn().unwrap());
    while Proc::default().stat(process.0.id()).unwrap().comm != "sleep" {
        std::thread::yield_now();
    }
    let (root, folder) = folder_of(&process);
    let mut selection = Selection::default();
    let pid = process.0.id().to_string().parse().unwrap();
    selection.chosen.pids.push(pid);
    let processes = Processes::new(Proc::at(root.path()), selection).unwrap();
    let mut machine = LinuxMachine::new(Fake::default(), processes, Sleeper::new().unwrap());
    let Observation::Processes { arrived, .. } = machine.perform(Command::ListProcesses).unwrap()
    else {
        panic!("no process list")
    };
    let space = arrived[0].space;
    spoil(&folder.join("stat"));
    let unread = machine.unread();
    for _ in 0..1000 {
        let Observation::Processes { left, .. } = machine.perform(Command::ListProcesses).unwrap()
        else {
            panic!("no process list")
        };
        assert!(left.is_empty());
        if machine.unread() > unread {
            break;
        }
    }
    assert!(machine.unread() > unread, "it was never its turn");
    assert!(machine.processes().has(space));
}

#[test]
fn a_process_whose_control_group_cannot_be_read_is_let_go_and_unmerged() {
    let process = Process(Program::new("sleep").arg("300").spawn().unwrap());
    while Proc::default().stat(process.0.id()).unwrap().comm != "sleep" {
        std::thread::yield_now();
    }
    let (root, folder) = folder_of(&process);
    std::fs::write(folder.join("cgroup"), "0::/a/b\n").unwrap();
    let mut selection = Selection::default();
    selection.chosen.cgroups.push("/a".parse().unwrap());
    let mut processes = Processes::new(Proc::at(root.path()), selection).unwrap();
    let mut domain = Fake::default();
    let arrived = processes.list(&mut domain).unwrap().arrived;
    assert_eq!(arrived.len(), 1);
    // The effect of ENAMETOOLONG, when it has moved deep enough.
    spoil(&folder.join("cgroup"));
    let moved = Selectors {
        cgroups: vec!["/a/b".parse().unwrap()],
        ..Selectors::default()
    };
    let chosen = processes.chosen(&moved);
    assert_eq!(chosen.len(), 1, "it may be there");
    processes.exclude(moved, &mut domain).unwrap();
    let left = processes.list(&mut domain).unwrap().left;
    assert_eq!(left, [arrived[0].space]);
    assert!(processes.unread() > 0 && processes.targets().is_empty());
}

#[test]
fn a_call_without_memory_gives_its_command_back_and_can_be_made_again() {
    let (_process, mut machine, space) = machine(Fake::default());
    let frames = Command::Frames {
        cursor: 0,
        count: 16,
        lines: Lines { from: 0, to: 0 },
        reap: true,
        check: false,
    };
    let commands = [sample(vec![run(space, 2)]), batch(&[space]), frames];
    for (calls, command) in (1..).zip(commands) {
        machine.domain_mut().short = 1;
        assert_eq!(
            machine.perform(command.clone()).unwrap(),
            Observation::NoMemory(command.clone())
        );
        assert_eq!(machine.shortages(), calls);
        let answer = machine.perform(command).unwrap();
        assert!(!matches!(answer, Observation::NoMemory(_)), "{answer:?}");
    }
    // The mappings of a process may be unchanged.
    machine.domain_mut().short = 1;
    let list = machine.perform(Command::ListMappings(space)).unwrap();
    assert_eq!(list, Observation::Unread { space });
    assert_eq!((machine.shortages(), machine.unread()), (4, 0));
}
