//! Turns over folders that stand in for `/proc` and for control groups.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;

use super::*;
use crate::guard::Phase;
use crate::settings::SizeControl;
use crate::settings::{Limit, Rule};

const MIB: u64 = 1 << 20;
const BOUND: Duration = Duration::from_secs(20);

/// A host with control groups, each of which uses 100 MiB.
struct Host {
    root: tempfile::TempDir,
    redistribution: Redistribution,
    now: Nanos,
    events: Vec<Event>,
}

fn roots(root: &tempfile::TempDir) -> Roots {
    Roots {
        proc: root.path().join("proc"),
        cgroups: CgroupTree::fake(root.path()),
        before: root.path().join("before"),
    }
}

impl Host {
    fn new(cgroups: &[&str]) -> Host {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        for (pid, name) in (10..).zip(cgroups) {
            let folder = root.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            for (file, text) in [
                ("cgroup.controllers", "memory\n".to_owned()),
                ("cgroup.procs", format!("{pid}\n")),
                ("memory.current", (100 * MIB).to_string()),
                ("memory.high", "max\n".to_owned()),
            ] {
                std::fs::write(folder.join(file), text).unwrap();
            }
        }
        let host = Host {
            redistribution: Redistribution::new(roots(&root), Marks::standard()),
            root,
            now: 0,
            events: Vec::new(),
        };
        host.has_available(50);
        host
    }

    /// Sets the available part of its memory, in percent.
    fn has_available(&self, percent: u64) {
        let text = include_str!("../host/meminfo");
        let text = text.replace(" 252064 kB", " 100000 kB");
        let text = text.replace(" 210508 kB", &format!(" {} kB", percent * 1000));
        std::fs::write(self.root.path().join("proc/meminfo"), text).unwrap();
    }

    fn member(&self, name: &str) -> Member {
        Member {
            name: name.to_owned(),
            place: SizeControl::Cgroup {
                folder: self.root.path().join(name),
                limit: Limit::High,
            },
            base: 100 * MIB,
            ceiling: 1000 * MIB,
            weight: 1,
        }
    }

    fn group(&self, name: &str, members: &[&str]) -> Group {
        Group {
            name: name.to_owned(),
            rule: Rule::Entitlement,
            scope: Scope::Group,
            step: 500 * MIB,
            least: MIB,
            members: members.iter().map(|name| self.member(name)).collect(),
        }
    }

    /// The limit of a control group in MiB, or nothing if it has none.
    fn limit(&self, name: &str) -> Option<u64> {
        let text = std::fs::read_to_string(self.root.path().join(name).join("memory.high"));
        // Text that is written over a longer one leaves the end of that.
        let bytes = text.unwrap().lines().next()?.parse::<u64>().ok()?;
        Some(bytes / MIB)
    }

    fn turn(&mut self, freed: &[(&str, u64)]) {
        self.now += SECOND;
        let freed = freed.iter().map(|&(name, mib)| {
            let freed = FreedBy {
                bytes: mib * MIB,
                // Each process as much as any other.
                by_process: (10..20).map(|pid| (pid, 1)).collect(),
                copied: 0,
            };
            (name.to_owned(), freed)
        });
        let events = self.redistribution.turn(self.now, &freed.collect());
        self.events.extend(events);
    }

    /// Turns until a condition holds.
    fn turn_until(&mut self, freed: &[(&str, u64)], is_so: impl Fn(&Host) -> bool) {
        let end = Instant::now() + BOUND;
        while !is_so(self) {
            let status = self.redistribution.status();
            assert!(Instant::now() < end, "{status:?}\n{:?}", self.events);
            self.turn(freed);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The daemon is killed, and another one begins.
    fn crash(&mut self) {
        let new = Redistribution::new(roots(&self.root), Marks::standard());
        // Its threads put nothing back, because they are not there any more.
        std::mem::forget(std::mem::replace(&mut self.redistribution, new));
        self.events.clear();
    }

    fn member_status(&self, name: &str) -> MemberStatus {
        let status = self.redistribution.status();
        let mut members = status.groups.into_iter().flat_map(|group| group.members);
        members.find(|member| member.name == name).unwrap()
    }
}

#[test]
fn a_limit_rises_by_what_was_freed_falls_with_it_and_is_put_back() {
    let mut host = Host::new(&["one", "two"]);
    let groups = [host.group("a", &["one", "two"])];
    host.redistribution.follow(&groups);
    host.turn_until(&[("a", 80)], |host| {
        host.limit("one") == Some(140) && host.limit("two") == Some(140)
    });
    let status = host.redistribution.status();
    assert_eq!(
        (status.groups[0].freed_bytes, status.groups[0].given_bytes),
        (80 * MIB, 80 * MIB)
    );
    assert_eq!(host.member_status("one").real_bytes, Some(100 * MIB));
    host.turn_until(&[("a", 20)], |host| host.limit("one") == Some(110));
    host.turn_until(&[("a", 0)], |host| host.limit("one") == Some(100));
    assert_eq!(host.redistribution.release(), []);
    assert_eq!(host.limit("one"), None, "there was none");
}

#[test]
fn what_a_group_freed_counts_on_while_its_worker_is_away_and_not_for_ever() {
    let mut host = Host::new(&["one"]);
    let groups = [host.group("a", &["one"])];
    host.redistribution.follow(&groups);
    host.turn_until(&[("a", 80)], |host| host.limit("one") == Some(180));
    for _ in 0..59 {
        host.turn(&[]);
    }
    assert_eq!(host.member_status("one").given_bytes, 80 * MIB);
    host.turn_until(&[], |host| host.limit("one") == Some(100));
}

#[test]
fn a_host_that_is_short_gets_back_what_was_given() {
    let mut host = Host::new(&["one"]);
    let groups = [host.group("a", &["one"])];
    host.redistribution.follow(&groups);
    host.turn_until(&[("a", 80)], |host| host.limit("one") == Some(180));
    host.has_available(8);
    host.turn(&[("a", 200)]);
    assert_eq!(host.redistribution.status().phase, Phase::Holding);
    assert_eq!(host.member_status("one").given_bytes, 80 * MIB);
    host.has_available(3);
    host.turn_until(&[("a", 200)], |host| host.limit("one") == Some(100));
    let status = host.redistribution.status();
    assert_eq!(
        (status.phase, status.reason.as_str()),
        (Phase::TakingBack, "3.0% of memory is available")
    );
    let moved = host
        .events
        .iter()
        .filter(|event| matches!(event, Event::Guard(_)));
    assert_eq!(moved.count(), 2);
}

#[test]
fn a_host_that_cannot_be_seen_is_given_nothing_more() {
    let mut host = Host::new(&["one"]);
    let groups = [host.group("a", &["one"])];
    host.redistribution.follow(&groups);
    std::fs::remove_file(host.root.path().join("proc/meminfo")).unwrap();
    host.turn_until(&[("a", 80)], |host| host.limit("one") == Some(100));
    let status = host.redistribution.status();
    assert_eq!(status.phase, Phase::Holding);
    assert!(
        status.reason.contains("/proc/meminfo: "),
        "{}",
        status.reason
    );
}

#[test]
fn a_machine_that_hangs_delays_nobody_and_is_told_of_once() {
    let mut host = Host::new(&["one"]);
    let socket = host.root.path().join("qmp");
    let _silent = UnixListener::bind(&socket).unwrap();
    let mut group = host.group("a", &["one"]);
    group.members.push(Member {
        name: "machine".to_owned(),
        place: SizeControl::Machine { socket },
        ..host.member("one")
    });
    host.redistribution.follow(&[group]);
    host.turn_until(&[("a", 80)], |host| host.limit("one") == Some(180));
    let status = host.member_status("machine");
    assert_eq!((status.given_bytes, status.real_bytes), (0, None));
    host.turn_until(&[("a", 80)], |host| {
        host.member_status("machine").error.is_some()
    });
    let begin = Instant::now();
    for _ in 0..200 {
        host.turn(&[("a", 80)]);
    }
    assert!(
        begin.elapsed() < Duration::from_secs(20),
        "turns wait for nobody, which takes two seconds each time"
    );
    let failed = host
        .events
        .iter()
        .filter(|event| matches!(event, Event::Failed { .. }));
    assert_eq!(failed.count(), 1, "{:?}", host.events);
    assert!(
        host.member_status("machine")
            .error
            .unwrap()
            .contains("/qmp: ")
    );
}

#[test]
fn a_monitor_that_says_something_else_each_time_is_told_of_once_a_minute() {
    let mut host = Host::new(&["one"]);
    let socket = host.root.path().join("qmp");
    let listener = UnixListener::bind(&socket).unwrap();
    let monitor = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let send = |line: String| writeln!(&stream, "{line}").is_ok();
        let version = r#"{"qemu":{"micro":0,"minor":2,"major":9},"package":""}"#;
        send(format!(
            r#"{{"QMP":{{"version":{version},"capabilities":[]}}}}"#
        ));
        let mut count = 0;
        while let Some(Ok(line)) = lines.next() {
            count += 1;
            let refusal = format!(r#"{{"error":{{"class":"GenericError","desc":"no {count}"}}}}"#);
            let is_greeting = line.contains("qmp_capabilities");
            send(match is_greeting {
                true => r#"{"return":{}}"#.to_owned(),
                false => refusal,
            });
        }
        count
    });
    let mut group = host.group("a", &["one"]);
    group.members.push(Member {
        name: "machine".to_owned(),
        place: SizeControl::Machine { socket },
        ..host.member("one")
    });
    host.redistribution.follow(&[group]);
    let mut errors = BTreeSet::new();
    while errors.len() < 20 {
        host.turn(&[("a", 80)]);
        errors.extend(host.member_status("machine").error);
        std::thread::sleep(Duration::from_millis(10));
    }
    let failed = host
        .events
        .iter()
        .filter(|event| matches!(event, Event::Failed { member, .. } if member == "machine"));
    let minutes = usize::try_from(host.now / (60 * SECOND)).unwrap() + 1;
    assert!(failed.count() <= minutes, "{:?}", host.events);
    drop(host);
    assert!(monitor.join().unwrap() >= 20);
}

#[test]
fn a_control_group_that_vanishes_harms_no_other() {
    let mut host = Host::new(&["one", "two"]);
    let groups = [host.group("a", &["one", "two"])];
    host.redistribution.follow(&groups);
    host.turn_until(&[("a", 80)], |host| host.limit("one") == Some(140));
    std::fs::remove_dir_all(host.root.path().join("two")).unwrap();
    host.turn_until(&[("a", 80)], |host| {
        host.member_status("two").error.is_some()
    });
    host.turn_until(&[("a", 60)], |host| host.limit("one") == Some(160));
    let status = host.member_status("two");
    let error = status.error.unwrap();
    assert!(error.ends_with("/two: no such control group"), "{error}");
    assert_eq!((status.given_bytes, status.real_bytes), (0, None));
    let left = host.redistribution.release();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(host.limit("one"), None);
}

#[test]
fn who_is_configured_no_more_gets_back_what_was_there_and_others_go_on() {
    let mut host = Host::new(&["one", "two"]);
    let groups = [host.group("a", &["one", "two"])];
    host.redistribution.follow(&groups);
    host.turn_until(&[("a", 80)], |host| host.limit("one") == Some(140));
    let mut group = host.group("a", &["one"]);
    group.rule = Rule::Equal;
    host.redistribution.follow(&[group]);
    assert_eq!(
        host.member_status("one").given_bytes,
        40 * MIB,
        "it goes on"
    );
    host.turn_until(&[("a", 80)], |host| {
        host.limit("one") == Some(180) && host.limit("two").is_none()
    });
    host.redistribution.follow(&[]);
    assert!(host.redistribution.is_idle());
    host.turn_until(&[], |host| host.limit("one").is_none());
}

#[test]
fn groups_of_one_scope_divide_together_and_others_do_not() {
    let mut host = Host::new(&["one", "two", "three"]);
    let mut groups = [
        host.group("a", &["one"]),
        host.group("b", &["two"]),
        host.group("c", &["three"]),
    ];
    for group in &mut groups[..2] {
        (group.scope, group.rule) = (Scope::All, Rule::Equal);
    }
    host.redistribution.follow(&groups);
    host.turn_until(&[("a", 80), ("c", 10)], |host| {
        host.limit("one") == Some(140)
            && host.limit("two") == Some(140)
            && host.limit("three") == Some(110)
    });
}

#[test]
fn a_member_that_does_not_go_down_is_told_of_and_nobody_else_gets_its_memory() {
    let mut host = Host::new(&["one", "two"]);
    let groups = [host.group("a", &["one", "two"])];
    let used = host.root.path().join("one/memory.current");
    std::fs::write(used, (150 * MIB).to_string()).unwrap();
    host.redistribution.follow(&groups);
    host.turn_until(&[("a", 60)], |host| host.limit("two") == Some(110));
    for _ in 0..40 {
        host.turn(&[("a", 60)]);
    }
    assert_eq!(host.limit("two"), Some(110), "50 of 60 MiB are in use");
    let late = host
        .events
        .iter()
        .filter(|event| matches!(event, Event::Late { .. }));
    assert_eq!(late.count(), 1, "{:?}", host.events);
}

#[test]
fn a_killed_daemons_successor_puts_back_what_was_there_before_it() {
    let mut host = Host::new(&["one", "two"]);
    std::fs::write(host.root.path().join("two/memory.high"), "314572800\n").unwrap();
    let groups = [host.group("a", &["one", "two"])];
    let is_given = |host: &Host| host.limit("one") == Some(140) && host.limit("two") == Some(140);
    host.redistribution.follow(&groups);
    host.turn_until(&[("a", 80)], is_given);
    host.crash();
    host.redistribution.follow(&groups);
    host.turn_until(&[("a", 20)], |host| host.limit("one") == Some(110));
    assert_eq!(host.redistribution.release(), []);
    assert_eq!((host.limit("one"), host.limit("two")), (None, Some(300)));
    assert!(!host.root.path().join("before").exists());
}

#[test]
fn a_killed_daemons_successor_without_members_puts_back_what_it_finds() {
    let mut host = Host::new(&["one", "two", "three"]);
    let groups = [host.group("a", &["one", "two", "three"])];
    host.redistribution.follow(&groups);
    host.turn_until(&[("a", 90)], |host| {
        ["one", "two", "three"].map(|name| host.limit(name)) == [Some(130); 3]
    });
    host.crash();
    std::fs::rename(
        host.root.path().join("three"),
        host.root.path().join("gone"),
    )
    .unwrap();
    // One of them is a member still.
    let groups = [host.group("b", &["two"])];
    host.redistribution.follow(&groups);
    host.turn_until(&[("b", 10)], |host| {
        host.limit("one").is_none() && host.limit("two") == Some(110)
    });
    host.turn_until(&[("b", 10)], |host| {
        let put_back = host.events.iter();
        let put_back = put_back.filter(|event| matches!(event, Event::PutBack { .. }));
        put_back.count() == 2
    });
    let events: Vec<String> = host.events.iter().map(ToString::to_string).collect();
    let root = host.root.path().display();
    let one = format!("{root}/one/memory.high is max again, as before an earlier daemon");
    assert!(events.contains(&one), "{events:?}");

    host.crash();
    let left = Redistribution::put_back_only(roots(&host.root));
    assert!(
        matches!(&left[..], [Event::PutBack { error: None, .. }]),
        "{left:?}"
    );
    assert_eq!(host.limit("two"), None);
}

#[test]
fn who_ends_before_the_first_turn_puts_back_what_an_earlier_one_left() {
    let mut host = Host::new(&["one", "two"]);
    let groups = [host.group("a", &["one", "two"])];
    host.redistribution.follow(&groups);
    host.turn_until(&[("a", 80)], |host| host.limit("one") == Some(140));
    host.crash();
    let events = host.redistribution.release();
    assert!(
        events
            .iter()
            .all(|event| matches!(event, Event::PutBack { error: None, .. })),
        "{events:?}"
    );
    assert_eq!((host.limit("one"), host.limit("two")), (None, None));
    assert!(!host.root.path().join("before").exists());

    // Members are another group's, of which no turn came; one of them is left.
    let mut host = Host::new(&["one", "two"]);
    let groups = [host.group("a", &["one", "two"])];
    host.redistribution.follow(&groups);
    host.turn_until(&[("a", 80)], |host| host.limit("one") == Some(140));
    host.crash();
    host.redistribution.follow(&[host.group("b", &["two"])]);
    drop(host.redistribution.release());
    assert_eq!((host.limit("one"), host.limit("two")), (None, None));
}

#[test]
fn nothing_is_changed_that_cannot_be_written_down() {
    let mut host = Host::new(&["one"]);
    let roots = Roots {
        before: host.root.path().join("none/before"),
        ..roots(&host.root)
    };
    host.redistribution = Redistribution::new(roots, Marks::standard());
    let groups = [host.group("a", &["one"])];
    host.redistribution.follow(&groups);
    host.turn_until(&[("a", 80)], |host| {
        host.member_status("one").error.is_some()
    });
    let error = host.member_status("one").error.unwrap();
    assert!(error.contains("/none/before: "), "{error}");
    assert_eq!(host.limit("one"), None);
}

#[test]
fn copies_of_frames_that_are_given_back_are_no_writes() {
    let root = tempfile::tempdir().unwrap();
    let mut redistribution = Redistribution::new(roots(&root), Marks::standard());
    let mut written = |on_host: u64, ours: u64| {
        let seen = Observation {
            total: 1000 * MIB,
            available: 500 * MIB,
            pressure: None,
            copied: Some(on_host),
        };
        let by = FreedBy {
            copied: ours,
            ..FreedBy::default()
        };
        let freed = [("group".to_owned(), by)].into();
        redistribution
            .without_our_copies(seen, &freed)
            .copied
            .unwrap()
    };
    assert_eq!(written(1000, 300), 1000, "those before the first look");
    assert_eq!(written(1100, 380), 1020);
    // The domain is a new one.
    assert_eq!(written(1100, 0), 1020);
    assert_eq!(written(1150, 50), 1020);
}
