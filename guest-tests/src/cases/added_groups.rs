//! Groups that are added, changed and removed while the daemon runs.
//!
//! # Problem
//! An added group must be equal to one from a file, also while processes write, and other groups
//! must not be affected.
//!
//! # Approach
//! The program adds, changes and removes groups through the socket of a daemon with one group in
//! its file, while a process of the group writes all the time. Physical page numbers show which
//! pages are shared, process ids which workers were restarted. Raw messages are sent, too.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use super::Context;
use crate::fixtures::cgroup::Cgroup;
use crate::fixtures::daemon::{PROGRAM, SOCKET, call_daemon, program_output};
use crate::fixtures::memory::answer;
use crate::fixtures::pagemap::assert_no_merged_page_is_left;
use crate::fixtures::peer::{Own, Peer};
use crate::fixtures::process::signal;
use crate::fixtures::two_groups::{
    CONFIGURATION, NEARLY_ALL, PAGES, assert_has_frames, assert_intact, await_that, frame_count,
    group, peer_in, shared, start_daemon, worker,
};

cases! { "daemon::added_groups":
    groups_are_added_changed_and_removed_while_processes_write Policy Stock 300,
    members_of_the_socket_s_group_may_ask_and_nobody_else Policy Stock 90,
}

const FILE: &str = "v_life = \"off\"\n[group.a]\ncgroup = \"/uksm-a\"\n";
/// Pages that are written all the time, and hold their first contents at the end.
const WRITTEN: usize = 256;

fn write_for_seconds(own: &mut Own) {
    for _ in 0..60 {
        own.memory.flip(0..WRITTEN);
        sleep(Duration::from_millis(20));
        own.memory.flip(0..WRITTEN);
        sleep(Duration::from_millis(20));
    }
}

/// Output of the program while one of these peers writes.
fn said_while_it_writes(peer: &mut Peer, arguments: &[&str]) -> String {
    let writing = peer.begin(write_for_seconds);
    sleep(Duration::from_millis(100));
    let text = program_output(arguments);
    writing.end();
    text
}

fn groups_are_added_changed_and_removed_while_processes_write(_: &mut Context) {
    let [in_a, in_b] = ["a", "b"].map(Cgroup::new);
    let mut daemon = start_daemon(FILE);
    let mut a = [(); 2].map(|()| peer_in(&in_a));
    let mut b = [(); 2].map(|()| peer_in(&in_b));
    let ([one, two], [x, y]) = ([a[0].pid(), a[1].pid()], [b[0].pid(), b[1].pid()]);
    await_that(&mut daemon, "a should merge", || {
        shared(one, two) >= NEARLY_ALL
    });
    let before = worker("a");

    // An invalid change has no effect.
    for (arguments, says) in [
        (
            &["add", "b", "cgroups=/uksm-b"][..],
            "uksm: uksm group add b: cgroups: no such key: known are ",
        ),
        (
            &["add", "b", "cgroup=/uksm-b", "cpu=150%"],
            "uksm: uksm group add b: cpu = 150%: must be ",
        ),
        (
            &["add", "b", "cgroup=/uksm-b", "socket=/x"],
            "uksm: uksm group add b: socket is a setting of the daemon, not of a group",
        ),
        (
            &["add", "b", "cgroup=/uksm-a"],
            "uksm: uksm group add b: cgroup /uksm-a is also in group a (/tmp/groups.toml:2: a)",
        ),
        (
            &["add", "a", "cgroup=/uksm-b"],
            "uksm: a: is configured in /tmp/groups.toml:2: a already",
        ),
        (
            &["set", "a", "governor=low"],
            "uksm: a: is configured in /tmp/groups.toml:2: a: change it there",
        ),
        (&["remove", "b"], "uksm: b: no such group"),
        (
            &["add", "b@c", "cgroup=/uksm-b"],
            "uksm: uksm group add b@c: b@c: a group's name has 1 to 64",
        ),
    ] {
        let text = program_output(&[&["group"], arguments].concat());
        assert!(text.starts_with(says), "{arguments:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    assert!(group("b").is_null());

    let add = ["group", "add", "b", "cgroup=/uksm-b"];
    assert_eq!(said_while_it_writes(&mut b[0], &add), "added; groups: 2\n");
    await_that(&mut daemon, "the added group should merge", || {
        shared(x, y) >= NEARLY_ALL
    });
    assert_eq!(group("b")["origin"], "uksm group add");
    assert_eq!(shared(one, x), 0, "groups should share nothing");

    // It outlives its worker.
    let frames = frame_count("b");
    let first = worker("b");
    signal(first, libc::SIGKILL);
    await_that(&mut daemon, "its worker should be replaced", || {
        ![0, first].contains(&worker("b")) && group("b")["status"].is_object()
    });
    assert_has_frames("b", frames);

    // Other settings: a new worker, the same frames.
    let second = worker("b");
    let set = ["group", "set", "b", "governor=low"];
    assert_eq!(
        said_while_it_writes(&mut b[1], &set),
        "changed; groups: 2\n"
    );
    await_that(&mut daemon, "it should have another governor", || {
        group("b")["status"]["governor"] == "low"
    });
    assert!(shared(x, y) >= PAGES - 2 * WRITTEN, "what is merged stays");
    assert_ne!(worker("b"), second);
    let third = worker("b");
    // A bad key leaves it unchanged.
    let text = program_output(&["group", "set", "b", "governor=fast"]);
    assert!(
        text.contains("uksm group set b: governor = fast: must be full"),
        "{text}"
    );
    let text = program_output(&["group", "set", "b", "--unset", "cpu"]);
    assert_eq!(text, "uksm: uksm group set b: cpu: is not set\n");
    assert_eq!(worker("b"), third);

    // A reload keeps it, unless the file names it.
    assert_eq!(program_output(&["reload"]), "reloaded; groups: 2\n");
    await_that(&mut daemon, "it should be kept", || {
        group("b")["origin"] == "uksm group add" && group("b")["status"].is_object()
    });
    fs::write(
        CONFIGURATION,
        format!("{FILE}[group.b]\ncgroup = \"/uksm-b\"\n"),
    )
    .expect("a file");
    let text = program_output(&["reload"]);
    let says = "uksm: /tmp/groups.toml:4: b: `uksm group add` has added a group of this name";
    assert!(text.starts_with(says), "{text}");
    fs::write(CONFIGURATION, FILE).expect("a configuration");

    assert_eq!(
        said_while_it_writes(&mut b[0], &["group", "remove", "b"]),
        "removed; groups: 1\n"
    );
    assert_eq!(shared(x, y), 0, "nothing should be left of it");
    assert!(group("b").is_null());
    assert!(shared(one, two) >= NEARLY_ALL);
    let text = program_output(&["group", "remove", "b"]);
    assert_eq!(text, "uksm: b: no such group\n");
    assert_eq!(group("a")["restarts"], 0, "nobody else should notice");
    assert_ne!(before, 0);
    assert_intact(&mut a);
    assert_intact(&mut b);
    daemon.stop();
    drop((a, b));
    assert_no_merged_page_is_left();
}

/// Output of the program for a user with this group and no other right.
fn said_by(gid: u32, more: &[u32]) -> String {
    let mut command = Command::new(PROGRAM);
    command.args(["group", "list"]);
    let groups: Vec<libc::gid_t> = more.to_vec();
    let become_user = move || {
        // SAFETY: the list outlives the call.
        answer(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })?;
        // SAFETY: the child has one thread.
        answer(unsafe { libc::setgid(gid) })?;
        // SAFETY: as above.
        answer(unsafe { libc::setuid(1000) })
    };
    // SAFETY: system calls are all that happens between fork and exec.
    unsafe { command.pre_exec(become_user) };
    let output = command.output().expect("the program");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn members_of_the_socket_s_group_may_ask_and_nobody_else(_: &mut Context) {
    let cgroup = Cgroup::new("a");
    let mut daemon = start_daemon(&format!("socket_group = \"77\"\n{FILE}"));
    await_that(&mut daemon, "it should run", || {
        group("a")["status"].is_object()
    });
    let table = "uksm 0.1.0, process ";
    let text = said_by(77, &[]);
    assert!(text.starts_with(table), "by its group: {text}");
    let no = said_by(1000, &[1000]);
    assert!(no.contains("no right to ask the daemon"), "{no}");
    // If the socket is opened to all users by mistake, the daemon is not.
    for (path, mode) in [("/run/uksm", 0o755), (SOCKET, 0o666)] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(path, mode).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    let no = said_by(1000, &[1000, 76]);
    assert!(no.contains("org.varlink.service.PermissionDenied"), "{no}");
    let text = said_by(1000, &[1000, 76, 77]);
    assert!(text.starts_with(table), "by a supplementary group: {text}");

    let info = call_daemon("org.varlink.service.GetInfo", "{}");
    assert_eq!(
        info["parameters"]["interfaces"][1], "uksm.Daemon1",
        "{info}"
    );
    let described = call_daemon(
        "org.varlink.service.GetInterfaceDescription",
        "{\"interface\":\"uksm.Daemon1\"}",
    );
    let text = described["parameters"]["description"]
        .as_str()
        .unwrap_or_default();
    assert!(text.contains("interface uksm.Daemon1"), "{described}");
    let groups = call_daemon("uksm.Daemon1.ListGroups", "{}");
    assert_eq!(groups["parameters"]["groups"][0]["name"], "a", "{groups}");
    let refused = call_daemon(
        "uksm.Daemon1.AddGroup",
        "{\"name\":\"b\",\"settings\":{\"cpu\":\"1.5\",\"comm\":\"x\"}}",
    );
    assert_eq!(refused["error"], "uksm.Daemon1.Refused");
    let reason = refused["parameters"]["reason"].as_str().unwrap_or_default();
    assert!(
        reason.starts_with("uksm group add b: cpu = 1.5: must be "),
        "{reason}"
    );
    daemon.stop();
    drop(cgroup);
}
