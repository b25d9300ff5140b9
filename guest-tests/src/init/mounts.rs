//! The guest's file systems.
//!
//! They are those that every Linux system has at these places, and a tmpfs for files of programs.
//! If a mount fails, the guest reports its name and ends.

use std::fs;
use std::io;

use nix::mount::{MsFlags, mount};

const MOUNTS: [(&str, &str, &str); 6] = [
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", ""),
    ("tmpfs", "/tmp", ""),
    ("tmpfs", "/run", ""),
    ("cgroup2", "/sys/fs/cgroup", ""),
];

/// Optional ones: Debian's kernels have them, a small debug kernel may not.
const OPTIONAL: [(&str, &str); 2] = [
    ("debugfs", "/sys/kernel/debug"),
    ("tracefs", "/sys/kernel/tracing"),
];

/// Mounts everything, turns the cgroup controllers on and makes `/results`.
///
/// # Errors
/// Names the mount that failed.
pub(super) fn mount_all() -> io::Result<()> {
    for (kind, place, data) in MOUNTS {
        // A folder of sysfs cannot be made, and need not be.
        if !place.starts_with("/sys/") {
            fs::create_dir_all(place)?;
        }
        match mount(Some(kind), place, Some(kind), MsFlags::empty(), Some(data)) {
            // The kernel mounted devtmpfs itself (CONFIG_DEVTMPFS_MOUNT).
            Ok(()) | Err(nix::errno::Errno::EBUSY) => {}
            Err(errno) => {
                return Err(io::Error::other(format!(
                    "mounting {kind} on {place}: {errno}"
                )));
            }
        }
    }
    for (kind, place) in OPTIONAL {
        let _absent_is_fine = mount(
            Some(kind),
            place,
            Some(kind),
            MsFlags::empty(),
            None::<&str>,
        );
    }
    fs::create_dir_all("/dev/shm")?;
    mount(
        Some("tmpfs"),
        "/dev/shm",
        Some("tmpfs"),
        MsFlags::empty(),
        None::<&str>,
    )?;
    fs::create_dir_all("/dev/pts")?;
    let _without_terminals = mount(
        Some("devpts"),
        "/dev/pts",
        Some("devpts"),
        MsFlags::empty(),
        None::<&str>,
    );
    fs::create_dir_all(uksm_vm_protocol::messages::RESULT_DIR)?;
    enable_controllers()
}

/// Turns every cgroup controller on for the root's children.
fn enable_controllers() -> io::Result<()> {
    let available = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers")?;
    for controller in available.split_whitespace() {
        // `cpu` is refused while realtime tasks exist in it; tests that need a controller check for
        // it themselves.
        let _refused = fs::write(
            "/sys/fs/cgroup/cgroup.subtree_control",
            format!("+{controller}"),
        );
    }
    Ok(())
}
