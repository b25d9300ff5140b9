//! The machine answers every command, whatever became of the spaces in it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program};

use crate::fake::Fake;
use uksm_linux::discovery::Discovery as _;
use uksm_linux::driver::Machine as _;
use uksm_linux::machine::LinuxMachine;
use uksm_linux::mappings::MappingLists;
use uksm_linux::proc::Proc;
use uksm_linux::processes::Processes;
use uksm_linux::selection::Selection;
use uksm_linux::wake::Sleeper;
use uksm_linux::{clock, maps};
use uksm_policy::command::{
    Command, FoldBatch, FoldEntry, FoldKind, Lines, Observation, PageState, Reason, Run, SpaceId,
    Status,
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

#[test]
fn the_mapping_list_holds_heap_and_stack() {
    let (_process, mut machine, space) = machine(Fake::default());
    // Right after the exec there is only a stack.
    let mappings = loop {
        let answer = machine.perform(Command::ListMappings(space)).unwrap();
        let Observation::Mappings {
            space: of,
            mappings,
            ..
        } = answer
        else {
            panic!("no mapping list")
        };
        assert_eq!(of, space);
        if mappings.iter().any(|m| m.kind == maps::Kind::Heap as u64) {
            break mappings;
        }
        std::thread::yield_now();
    };
    assert!(
        mappings.iter().any(|m| m.kind == maps::Kind::Stack as u64),
        "{mappings:?}"
    );
    assert!(mappings.windows(2).all(|pair| pair[0].end <= pair[1].start));
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
fn sixty_thousand_mappings_are_one_region_and_read_at_a_bounded_cost() {
    // Pages side by side of alternating protection cannot become one mapping.
    let mut held = Vec::new();
    let mut writable = Vec::new();
    for _ in 0..30_000 {
        writable.push(memmap2::MmapMut::map_anon(4096).unwrap());
        let page = memmap2::MmapMut::map_anon(4096).unwrap();
        held.push(page.make_read_only().unwrap());
    }
    let (proc, me, space) = (Proc::default(), std::process::id(), SpaceId(1));
    let mut text = Vec::new();
    proc.maps(me, &mut text).unwrap();
    let lines = text.iter().filter(|&&b| b == b'\n').count();
    assert!(lines >= 60_000, "{lines} mappings");
    let mut lists = MappingLists::default();
    let start = clock::thread_cpu();
    let (mappings, _) = lists.list(&proc, me, space).unwrap();
    let first = clock::thread_cpu() - start;
    assert!(
        mappings.len() < 1000,
        "{} mappings for the policy",
        mappings.len()
    );
    let start = clock::thread_cpu();
    for _ in 0..10 {
        assert_eq!(lists.list(&proc, me, space).unwrap().0, mappings);
    }
    let again = (clock::thread_cpu() - start) / 10;
    println!("{lines} mappings: {first} ns read, {again} ns kept");
    assert!(again * 20 < first, "{again} ns again, {first} ns at first");
}

#[test]
fn breaking_up_lets_go_of_the_named_and_goes_in_stretches() {
    let (process, mut machine, space) = machine(Fake::default());
    let nobody = uksm_linux::selection::Selectors::default();
    let mut signs = 0;
    let none = machine.break_up(&nobody, &mut || signs += 1).unwrap();
    assert_eq!((none.processes, none.pages, signs), (0, 0, 0));
    let mut named = uksm_linux::selection::Selectors::default();
    named.pids.push(process.0.id().to_string().parse().unwrap());
    let done = machine.break_up(&named, &mut || signs += 1).unwrap();
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
    for name in ["stat", "maps"] {
        std::fs::copy(Path::new("/proc").join(&id).join(name), folder.join(name)).unwrap();
    }
    (root, folder)
}

/// Makes a file one that cannot be read, though it is there: what no file descriptor left does.
fn spoil(path: &Path) {
    std::fs::remove_file(path).unwrap();
    std::fs::create_dir(path).unwrap();
}

#[test]
fn what_cannot_be_read_of_a_process_is_not_taken_for_nothing() {
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
    let list =
        |machine: &mut LinuxMachine<Fake>| machine.perform(Command::ListMappings(space)).unwrap();
    let before = list(&mut machine);
    assert!(
        matches!(&before, Observation::Mappings { mappings, .. } if !mappings.is_empty()),
        "{before:?}"
    );
    spoil(&folder.join("maps"));
    for reads in 1..4 {
        assert_eq!(list(&mut machine), Observation::Unread { space });
        assert_eq!(machine.unread(), reads);
    }
    // A process that has ended has no mappings, but its memory can live on in another.
    std::fs::remove_dir(folder.join("maps")).unwrap();
    std::fs::write(folder.join("maps"), "").unwrap();
    assert_eq!(list(&mut machine), Observation::Unread { space });
    // Nor is the process let go because it cannot be looked at.
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
fn a_call_without_memory_gives_its_command_back_and_can_be_made_again() {
    let (_process, mut machine, space) = machine(Fake::default());
    let frames = Command::Frames {
        cursor: 0,
        count: 16,
        lines: Lines { from: 0, to: 0 },
        reap: true,
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
    // A mapping list reads a page to see whose mappings these are.
    machine.domain_mut().short = 1;
    let list = machine.perform(Command::ListMappings(space)).unwrap();
    assert_eq!(list, Observation::Unread { space });
    assert_eq!((machine.shortages(), machine.unread()), (4, 0));
}
