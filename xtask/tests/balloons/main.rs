//! Memory is given to real virtual machines, and taken from them, by real balloons.
//!
//! # Problem
//! Simulated monitors behave as the test's author assumes of QEMU.
//!
//! # Approach
//! The whole loop of redistribution, with frequent turns, with two machines at a time. The test
//! sets the memory that merging freed: no page is merged here, since the module is loaded in guests
//! only. The memory of a machine is read at its monitor, and inside. Machines vanish, hang and
//! refuse; then the other one must have its share, and turns must not wait.
//!
//! # Units
//! MiB; a turn is a second of the loop's clock.

mod machine;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use uksm_redistribution::cgroup_tree::CgroupTree;
use uksm_redistribution::guard::Marks;
use uksm_redistribution::settings::{Group, Member, Rule, Scope, SizeControl};
use uksm_redistribution::status::MemberStatus;
use uksm_redistribution::{Event, Freed, FreedBy, Nanos, Redistribution, Roots};

use machine::{Balloon, MEMORY, Machine};

const MIB: u64 = 1 << 20;
const SECOND: Nanos = 1_000_000_000;
/// Memory of a machine without given memory.
const BASE: u64 = 160;
/// Emulated balloons move some hundred MiB a second, on a busy machine less.
const BOUND: Duration = Duration::from_secs(120);
/// A turn never waits; this is its limit on a busy machine.
const TURN_LIMIT: Duration = Duration::from_millis(500);
/// Limit of late turns among hundreds: a machine halts at times, while a turn that waits does so
/// each time.
const MAX_LATE: u32 = 3;

/// Two machines of one group.
struct Host {
    machines: Vec<Machine>,
    redistribution: Redistribution,
    now: Nanos,
    events: Vec<Event>,
    /// Turns that took longer than [`TURN_LIMIT`].
    late: u32,
    folder: tempfile::TempDir,
}

fn member(name: &str, socket: &Path) -> Member {
    Member {
        name: name.to_owned(),
        place: SizeControl::Machine {
            socket: socket.to_owned(),
        },
        base: BASE * MIB,
        ceiling: MEMORY * MIB,
        weight: 1,
    }
}

impl Host {
    fn new(balloons: [Balloon; 2]) -> Host {
        let folder = tempfile::tempdir().expect("a folder");
        let mut machines: Vec<Machine> = ["one", "two"]
            .iter()
            .zip(balloons)
            .map(|(name, balloon)| Machine::start(&folder.path().join(name), balloon))
            .collect();
        for machine in &mut machines {
            machine.await_up();
        }
        // The guard sees a host with enough memory, independent of this host.
        let text = std::fs::read_to_string("/proc/meminfo").expect("this host");
        let calm = text
            .replace("MemAvailable:", "Was:")
            .replace("MemTotal:", "MemAvailable:");
        let total = text.lines().find(|line| line.starts_with("MemTotal:"));
        let total = total.expect("this host's memory");
        std::fs::write(folder.path().join("meminfo"), format!("{total}\n{calm}")).expect("a file");
        let mut redistribution = Redistribution::new(
            Roots {
                proc: folder.path().to_owned(),
                cgroups: CgroupTree::mounted_at(Path::new("/sys/fs/cgroup")),
                before: folder.path().join("before"),
            },
            Marks::standard(),
        );
        redistribution.follow(&[Group {
            name: "machines".to_owned(),
            rule: Rule::Entitlement,
            scope: Scope::Group,
            step: 64 * MIB,
            least: MIB,
            members: ["one", "two"]
                .iter()
                .zip(&machines)
                .map(|(name, machine)| member(name, &machine.socket()))
                .collect(),
        }]);
        Host {
            machines,
            redistribution,
            now: 0,
            events: Vec::new(),
            late: 0,
            folder,
        }
    }

    /// One turn, before which the two have freed this much.
    fn turn(&mut self, freed: [u64; 2]) {
        self.now += SECOND;
        let pids = self.machines.iter().map(Machine::pid);
        let by_process: BTreeMap<u32, u64> = pids.zip(freed).collect();
        let bytes = freed.iter().sum::<u64>() * MIB;
        let by = FreedBy {
            bytes,
            by_process,
            copied: 0,
        };
        let freed = Freed::from([("machines".to_owned(), by)]);
        let begin = Instant::now();
        self.events
            .extend(self.redistribution.turn(self.now, &freed));
        self.late += u32::from(begin.elapsed() >= TURN_LIMIT);
        assert!(self.late <= MAX_LATE, "{:?}", begin.elapsed());
    }

    fn status(&self, machine: usize) -> MemberStatus {
        self.redistribution.status().groups[0].members[machine].clone()
    }

    /// The real memory of a machine, by its monitor.
    fn real(&self, machine: usize) -> Option<u64> {
        Some(self.status(machine).real_bytes? / MIB)
    }

    fn turn_until(&mut self, freed: [u64; 2], is_so: impl Fn(&Host) -> bool) {
        let end = Instant::now() + BOUND;
        while !is_so(self) {
            let status = self.redistribution.status();
            assert!(Instant::now() < end, "{status:?}\n{:?}", self.events);
            self.turn(freed);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn log_lines(&self) -> Vec<String> {
        self.events.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn memory_is_given_and_taken_as_the_policy_says() {
    let mut host = Host::new([Balloon::Whole; 2]);
    let before = host.machines[0].has().expect("it is up");
    host.turn_until([0, 0], |host| {
        host.real(0) == Some(BASE) && host.real(1) == Some(BASE)
    });
    let lost = |host: &Host| before - host.machines[0].has().expect("it is up");
    host.turn_until([0, 0], |host| lost(host) == MEMORY - BASE);
    host.turn_until([48, 16], |host| {
        host.real(0) == Some(BASE + 48) && host.real(1) == Some(BASE + 16)
    });
    host.turn_until([48, 16], |host| lost(host) == MEMORY - BASE - 48);
    host.turn_until([8, 16], |host| {
        host.real(0) == Some(BASE + 8) && host.real(1) == Some(BASE + 16)
    });
    assert_eq!(host.redistribution.release(), []);
    host.redistribution.follow(&[]);
    let end = Instant::now() + BOUND;
    while lost(&host) > 0 {
        assert!(Instant::now() < end, "what was there should be put back");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(!host.folder.path().join("before").exists());
}

#[test]
fn a_machine_that_is_killed_midway_harms_nobody_and_one_started_anew_is_taken_on() {
    let mut host = Host::new([Balloon::Whole; 2]);
    host.turn_until([60, 20], |host| host.real(1) == Some(BASE + 20));
    host.turn([0, 40]);
    host.machines[0].signal(Signal::SIGKILL);
    host.turn_until([0, 40], |host| host.status(0).error.is_some());
    host.turn_until([0, 64], |host| {
        host.real(1).is_some_and(|real| real > BASE + 20)
    });
    let error = host.status(0).error.expect("it is gone");
    assert!(error.contains("/one/qmp: "), "{error}");
    host.machines[0] = Machine::start(&host.folder.path().join("one"), Balloon::Whole);
    host.machines[0].await_up();
    host.turn_until([8, 32], |host| {
        host.real(0) == Some(BASE + 8) && host.real(1) == Some(BASE + 32)
    });
    let answers = |line: &String| line == "group machines: one answers again";
    assert!(
        host.log_lines().iter().any(answers),
        "{:?}",
        host.log_lines()
    );
}

#[test]
fn a_machine_that_hangs_keeps_nobody_waiting_and_goes_on_afterwards() {
    let mut host = Host::new([Balloon::Whole; 2]);
    host.turn_until([30, 30], |host| {
        host.real(0) == Some(BASE + 30) && host.real(1) == Some(BASE + 30)
    });
    host.machines[0].signal(Signal::SIGSTOP);
    host.turn_until([0, 40], |host| host.status(0).error.is_some());
    host.turn_until([0, 70], |host| host.real(1) == Some(BASE + 40));
    assert_eq!(
        host.real(0),
        Some(BASE + 30),
        "what it holds is nobody else's"
    );
    let error = host.status(0).error.expect("it hangs");
    assert!(error.ends_with("no answer in time"), "{error}");
    // More than may be late: a turn that waits for it is late each time.
    for _ in 0..10 {
        host.turn([0, 70]);
    }
    host.machines[0].signal(Signal::SIGCONT);
    host.turn_until([0, 70], |host| {
        host.real(0) == Some(BASE) && host.real(1) == Some(BASE + 70)
    });
}

#[test]
fn machines_that_refuse_are_told_of_and_what_they_hold_is_given_to_nobody() {
    let mut host = Host::new([Balloon::NoDriver, Balloon::Whole]);
    host.turn_until([0, 0], |host| host.real(1) == Some(BASE));
    host.turn_until([0, 150], |host| {
        host.real(1) == Some(BASE + 150 - (MEMORY - BASE))
    });
    for _ in 0..40 {
        host.turn([0, 150]);
    }
    assert_eq!(host.real(0), Some(MEMORY), "its kernel has no balloon");
    assert_eq!(host.real(1), Some(BASE + 150 - (MEMORY - BASE)));
    let late = "group machines: one has 256.0 MiB and should have gone down to 160.0 MiB";
    let lines = host.log_lines();
    assert_eq!(
        lines.iter().filter(|line| *line == late).count(),
        1,
        "{lines:?}"
    );
    drop(host);

    let mut host = Host::new([Balloon::None, Balloon::Whole]);
    host.turn_until([0, 40], |host| {
        host.real(1) == Some(BASE + 40) && host.status(0).error.is_some()
    });
    let error = host.status(0).error.expect("it has no balloon");
    assert!(
        error.ends_with("/one/qmp: query-balloon: No balloon device has been activated"),
        "{error}"
    );
    assert!(host.machines[0].has().is_some(), "it goes on");
}
