//! Files of `/proc/PID` that a process decides, with any bytes: nothing panics, and a process
//! cannot pass for another one.

use std::path::Path;

use proptest::prelude::*;
use uksm_linux::ksm::memory;
use uksm_linux::proc::{self, Proc};

const PID: u32 = 7;

/// The result of reading a process with these files.
fn with<T>(files: &[(&str, &[u8])], read: impl FnOnce(&Proc) -> T) -> T {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join(PID.to_string());
    std::fs::create_dir(&folder).unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
    read(&Proc::at(Path::new(root.path())))
}

/// Pieces of lines that the readers look for, and any bytes between.
fn lines() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"7 (".to_vec()),
        Just(b") S 1 71 71 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 1 9\n".to_vec()),
        Just(b"0::/".to_vec()),
        Just(b"Tgid:\t7".to_vec()),
        Just(b"Uid:\t1 2 3 4".to_vec()),
        Just(b"TENANT=x".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\0".to_vec()),
        Just(b" 18446744073709551616 ".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..30),
    ];
    proptest::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_bytes_are_an_answer_or_an_error(bytes in lines()) {
        let files = ["stat", "cgroup", "status", "statm", "environ"].map(|name| (name, bytes.as_slice()));
        with(&files, |proc| {
            let _stat = proc.stat(PID);
            let _cgroup = proc.cgroup(PID);
            let _thread_group = proc.thread_group(PID);
            let _user = proc.user(PID);
            let _resident = proc.resident(PID);
            let _value = proc.environment(PID, "TENANT");
        });
    }

    /// A name can contain any text; the fields behind it are the kernel's.
    #[test]
    fn no_name_changes_the_fields_behind_it(
        name in proptest::collection::vec(any::<u8>().prop_filter("ends a name", |&byte| byte != 0), 0..16)
    ) {
        let rest = b") S 3 71 71 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 1 9\n";
        let line = [b"7 (", name.as_slice(), rest].concat();
        let stat = with(&[("stat", &line)], |proc| proc.stat(PID)).unwrap();
        prop_assert_eq!((stat.state, stat.parent, stat.start_ticks), ('S', 3, 4242));
        prop_assert_eq!(stat.comm, String::from_utf8_lossy(&name).into_owned());
    }

    /// A variable is found by its whole name only, not in another one's value.
    #[test]
    fn a_variable_is_found_by_its_whole_name(value in "[^\\x00]{1,40}", other in "[^\\x00=]{1,20}") {
        prop_assume!(other != "TENANT");
        let line = format!("{other}=TENANT=no\0XTENANT=no\0TENANT={value}\0TENANT=second\0");
        let found = with(&[("environ", line.as_bytes())], |proc| proc.environment(PID, "TENANT"));
        prop_assert_eq!(found.unwrap(), Some(value.into_bytes()));
    }
}

/// Opening a pipe without a writer never ends, like waiting for the lock of a process.
#[test]
fn a_process_that_holds_its_lock_holds_up_no_reader_with_deadlines() {
    let root = tempfile::tempdir().unwrap();
    for pid in ["7", "8"] {
        std::fs::create_dir(root.path().join(pid)).unwrap();
    }
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    let held = ["environ", "maps", "ksm_stat", "mem"].map(|file| root.path().join("7").join(file));
    for path in &held {
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
    }
    std::fs::write(root.path().join("8/environ"), b"TENANT=a\0").unwrap();
    let proc = Proc::at(root.path()).with_deadlines();
    let begun = std::time::Instant::now();
    let is_locked = |error: &proc::Error| matches!(error, proc::Error::Locked { pid: 7 });
    for _ in 0..20 {
        assert!(is_locked(&proc.environment(7, "TENANT").unwrap_err()));
        assert!(is_locked(&memory::anonymous(&proc, 7).unwrap_err()));
        assert!(is_locked(&memory::offered(&proc, 7, true).unwrap_err()));
        assert!(is_locked(&memory::Memory::of(&proc, 7).unwrap_err()));
        assert_eq!(proc.environment(8, "TENANT").unwrap().unwrap(), b"a");
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(10));
    assert!(
        proc.due(7) > Some(uksm_linux::clock::now()),
        "it is tried again later"
    );
}
