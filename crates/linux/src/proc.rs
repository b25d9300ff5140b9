//! Reads facts about processes from `/proc`.
//!
//! # Problem
//! The daemon reads thousands of processes within a fraction of a percent of a core. Any of them
//! can exit between two reads. Tests need processes that no kernel offers.
//!
//! # Approach
//! Only the necessary fields are cut out of the bytes. The root is a path, so that a test can use a
//! folder. A process that is gone is [`Error::Gone`], which callers skip. A parse error names file
//! and line. Reads of a file are bounded, because a process decides the length of some files
//! ([`bounded`]). Files for which the kernel takes a lock that the process can hold are read with a
//! deadline, if the process must not block the reader ([`deadline`]).
//!
//! # Source
//! proc(5).

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use uksm_policy::command::Nanos;

use bounded::Start;
use deadline::Deadlines;

pub mod bounded;
pub mod deadline;
mod error;

pub use error::{Error, Result};

/// Maximum number of bytes read of a file whose fields the kernel numbers. In `status` the ids
/// precede the list of groups, which can be long.
const MAX_FIELDS_BYTES: usize = 4096;

/// Maximum number of bytes read of `/proc/PID/cgroup`: a path of `PATH_MAX` bytes in each hierarchy
/// of version 1, and in that of version 2.
const MAX_CGROUP_BYTES: usize = 64 << 10;

/// Maximum number of bytes read of an environment. A variable beyond is not found.
const MAX_ENVIRONMENT_BYTES: usize = 256 << 10;

/// Precedes each byte of a control group's name that is no UTF-8, and each occurrence of itself.
const ESCAPE: char = char::REPLACEMENT_CHARACTER;

/// Flag of a kernel thread in `/proc/PID/stat` (`PF_KTHREAD`).
const KERNEL_THREAD: u32 = 0x0020_0000;

/// Clock ticks a second in `/proc`: `USER_HZ`, 100 on every architecture this runs on.
const TICK: Nanos = 10_000_000;

/// The fields of `/proc/PID/stat` that are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Name of the program, at most 15 bytes; processes can change it.
    pub comm: String,
    /// State letter.
    pub state: char,
    /// Its parent, or the process that adopted it.
    pub parent: u32,
    /// Task flags.
    pub flags: u32,
    /// Its start time, in ticks since the machine's start.
    pub start_ticks: u64,
}

impl Stat {
    /// Whether it has memory of its own: neither a kernel thread nor dead.
    #[must_use]
    pub fn has_memory(&self) -> bool {
        !self.is_kernel_thread() && !matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Whether it is a thread of the kernel.
    #[must_use]
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// Its age at `since_boot`.
    #[must_use]
    pub fn age(&self, since_boot: Nanos) -> Nanos {
        since_boot.saturating_sub(self.start_ticks.saturating_mul(TICK))
    }
}

/// A `/proc` file system, or a folder that looks like one.
#[derive(Debug, Clone)]
pub struct Proc {
    root: PathBuf,
    /// Deadlines of reads that can wait.
    deadlines: Option<Deadlines>,
}

impl Default for Proc {
    fn default() -> Proc {
        Proc {
            root: PathBuf::from("/proc"),
            deadlines: None,
        }
    }
}

impl Proc {
    /// The one at `root`.
    #[must_use]
    pub fn at(root: &Path) -> Proc {
        Proc {
            root: root.to_owned(),
            deadlines: None,
        }
    }

    /// The same, for a reader that no process may block: a read that would wait for a process is
    /// [`Error::Locked`] after a deadline.
    #[must_use]
    pub fn with_deadlines(mut self) -> Proc {
        self.deadlines = Some(Deadlines::default());
        self
    }

    /// Performs a read that can wait for the process, with a deadline if there is one.
    ///
    /// # Errors
    /// The error of the read; the process blocks it.
    pub fn wait_for<T: Send + 'static>(
        &self,
        pid: u32,
        read: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match &self.deadlines {
            None => read(),
            Some(deadlines) => {
                let found = deadlines.read(pid, read);
                found.unwrap_or(Err(Error::Locked { pid }))
            }
        }
    }

    /// Time of the next read of a process after [`Error::Locked`].
    #[must_use]
    pub fn due(&self, pid: u32) -> Option<Nanos> {
        self.deadlines.as_ref().map(|deadlines| deadlines.due(pid))
    }

    /// Processes that have blocked every read for long, with that time.
    #[must_use]
    pub fn locked(&self) -> Vec<(u32, Nanos)> {
        let Some(deadlines) = &self.deadlines else {
            return Vec::new();
        };
        deadlines.retain(|pid| self.path(pid, "stat").exists());
        deadlines.locked()
    }

    /// Forgets the locks of processes that no longer exist: their ids are reused.
    pub fn retain(&self, is_there: impl Fn(u32) -> bool) {
        if let Some(deadlines) = &self.deadlines {
            deadlines.retain(is_there);
        }
    }

    /// Forgets the locks of a process that has ended.
    pub fn forget(&self, pid: u32) {
        if let Some(deadlines) = &self.deadlines {
            deadlines.forget(pid);
        }
    }

    /// The ids of all processes, ascending, into `pids`.
    ///
    /// # Errors
    /// The root cannot be listed.
    pub fn list(&self, pids: &mut Vec<u32>) -> Result<()> {
        pids.clear();
        let fail = |source| Error::Read {
            path: self.root.clone(),
            source,
        };
        for entry in std::fs::read_dir(&self.root).map_err(fail)? {
            let name = entry.map_err(fail)?.file_name();
            if let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) {
                pids.push(pid);
            }
        }
        pids.sort_unstable();
        Ok(())
    }

    /// Reads `/proc/PID/stat`.
    ///
    /// # Errors
    /// Gone, unreadable, or malformed.
    pub fn stat(&self, pid: u32) -> Result<Stat> {
        let path = self.path(pid, "stat");
        let start = read(&path, pid, MAX_FIELDS_BYTES)?;
        parse_stat(&start.bytes).ok_or_else(|| Error::Parse {
            path,
            line: 1,
            what: "not the fields of a process".to_owned(),
        })
    }

    /// The process's path in the cgroup v2 tree, `/` for the root. Distinct paths stay distinct,
    /// even if names are no UTF-8.
    ///
    /// # Errors
    /// Gone, unreadable, or no cgroup v2 on this machine.
    pub fn cgroup(&self, pid: u32) -> Result<String> {
        let path = self.path(pid, "cgroup");
        let start = read(&path, pid, MAX_CGROUP_BYTES)?;
        let mut lines = start.entries(b'\n');
        let unified = lines.find_map(|line| line.strip_prefix(b"0::"));
        match unified {
            Some(cgroup) => Ok(distinct_text(cgroup)),
            None => Err(Error::Parse {
                path,
                line: 1,
                what: "no cgroup v2 entry (`0::`): choose targets by --pid or --comm".to_owned(),
            }),
        }
    }

    /// Pages of a process that are in memory and of no file. No special right is needed.
    ///
    /// # Errors
    /// Gone, unreadable, or malformed.
    pub fn resident(&self, pid: u32) -> Result<u64> {
        let path = self.path(pid, "statm");
        let start = read(&path, pid, MAX_FIELDS_BYTES)?;
        let text = String::from_utf8_lossy(&start.bytes);
        let field = |at: usize| text.split_whitespace().nth(at)?.parse::<u64>().ok();
        match (field(1), field(2)) {
            (Some(resident), Some(of_files)) => Ok(resident.saturating_sub(of_files)),
            _ => Err(Error::Parse {
                path,
                line: 1,
                what: "no resident size".to_owned(),
            }),
        }
    }

    /// The process that `pid` is a thread of; itself for a process.
    ///
    /// # Errors
    /// Gone, unreadable, or malformed.
    pub fn thread_group(&self, pid: u32) -> Result<u32> {
        let path = self.path(pid, "status");
        let start = read(&path, pid, MAX_FIELDS_BYTES)?;
        let tgid = line_of(&start, "Tgid:");
        tgid.and_then(|id| id.trim().parse().ok())
            .ok_or_else(|| Error::Parse {
                path,
                line: 1,
                what: "no Tgid".to_owned(),
            })
    }

    /// The user whose rights a process has: its effective id.
    ///
    /// # Errors
    /// Gone, unreadable, or malformed.
    pub fn user(&self, pid: u32) -> Result<u32> {
        let path = self.path(pid, "status");
        let start = read(&path, pid, MAX_FIELDS_BYTES)?;
        let ids = line_of(&start, "Uid:");
        let effective = ids.and_then(|ids| ids.split_ascii_whitespace().nth(1)?.parse().ok());
        effective.ok_or_else(|| Error::Parse {
            path,
            line: 1,
            what: "no Uid".to_owned(),
        })
    }

    /// The value of a variable in the environment that a process was started with; none if it is
    /// not set, or empty, or does not end within the first 256 KiB of the environment.
    ///
    /// # Errors
    /// Gone or unreadable; the process blocks the read.
    pub fn environment(&self, pid: u32, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path(pid, "environ");
        let read = move || read(&path, pid, MAX_ENVIRONMENT_BYTES);
        let start = self.wait_for(pid, read)?;
        let value = start.entries(0).find_map(|variable| {
            let value = variable.strip_prefix(name.as_bytes())?;
            value.strip_prefix(b"=")
        });
        Ok(value.filter(|value| !value.is_empty()).map(<[u8]>::to_vec))
    }

    /// Opens a file of a process for reading.
    ///
    /// # Errors
    /// Gone, or no right.
    pub(crate) fn open(&self, pid: u32, file: &str) -> Result<std::fs::File> {
        let path = self.path(pid, file);
        std::fs::File::open(&path).map_err(|source| failed(&path, pid, source))
    }

    /// A reader of this process's own memory use, which works even when the process may not open
    /// files any more.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn own_memory(&self) -> Result<OwnMemory> {
        let path = self.root.join("self/statm");
        let file = std::fs::File::open(&path);
        let file = file.map_err(|source| failed(&path, std::process::id(), source))?;
        Ok(OwnMemory {
            file,
            path,
            is_copy: false,
        })
    }

    pub(crate) fn path(&self, pid: u32, file: &str) -> PathBuf {
        let mut path = self.root.join(pid.to_string());
        path.push(file);
        path
    }
}

/// The memory of this process.
#[derive(Debug)]
pub struct OwnMemory {
    file: std::fs::File,
    path: PathBuf,
    /// Another process with the same program counts the program's own pages.
    is_copy: bool,
}

impl OwnMemory {
    /// The memory of one of several processes of one program, if another of them counts the
    /// program's pages.
    #[must_use]
    pub fn of_copy(mut self) -> OwnMemory {
        self.is_copy = true;
        self
    }

    /// Resident bytes.
    ///
    /// # Errors
    /// Unreadable or malformed.
    pub fn resident_bytes(&self) -> Result<u64> {
        let mut bytes = [0; 128];
        let length = self.file.read_at(&mut bytes, 0);
        let length = length.map_err(|source| failed(&self.path, std::process::id(), source))?;
        let text = String::from_utf8_lossy(&bytes[..length]);
        let field = |at: usize| text.split_whitespace().nth(at)?.parse::<u64>().ok();
        let (Some(resident), Some(of_files)) = (field(1), field(2)) else {
            return Err(Error::Parse {
                path: self.path.clone(),
                line: 1,
                what: "no resident size".to_owned(),
            });
        };
        let elsewhere = if self.is_copy { of_files } else { 0 };
        Ok(resident.saturating_sub(elsewhere) * uksm_policy::command::PAGE_SIZE)
    }
}

fn read(path: &Path, pid: u32, max_bytes: usize) -> Result<Start> {
    let file = std::fs::File::open(path);
    let start = file.and_then(|file| bounded::read_start(&file, max_bytes));
    start.map_err(|source| failed(path, pid, source))
}

/// The text after the name in a line of `status`.
fn line_of<'a>(start: &'a Start, name: &str) -> Option<&'a str> {
    let mut lines = start.entries(b'\n');
    let rest = lines.find_map(|line| line.strip_prefix(name.as_bytes()))?;
    std::str::from_utf8(rest).ok()
}

/// A text for bytes; distinct for distinct bytes.
fn distinct_text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == ESCAPE {
                escape(c.encode_utf8(&mut [0; 4]).as_bytes(), &mut text);
            } else {
                text.push(c);
            }
        }
        escape(chunk.invalid(), &mut text);
    }
    text
}

fn escape(bytes: &[u8], text: &mut String) {
    for byte in bytes {
        text.push(ESCAPE);
        text.push_str(&format!("{byte:02x}"));
    }
}

fn failed(path: &Path, pid: u32, source: std::io::Error) -> Error {
    let gone =
        source.kind() == std::io::ErrorKind::NotFound || source.raw_os_error() == Some(libc::ESRCH);
    if gone {
        Error::Gone { pid }
    } else {
        Error::Read {
            path: path.to_owned(),
            source,
        }
    }
}

/// The name stands in parentheses and may hold parentheses and spaces itself, so the fields
/// behind it are found from the last one.
fn parse_stat(bytes: &[u8]) -> Option<Stat> {
    let open = bytes.iter().position(|&b| b == b'(')?;
    let close = bytes.iter().rposition(|&b| b == b')')?;
    let comm = String::from_utf8_lossy(bytes.get(open + 1..close)?).into_owned();
    let rest = std::str::from_utf8(bytes.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // proc(5) numbers the state, here the first, as field 3.
    let field = |number: usize| fields.get(number - 3).copied();
    Some(Stat {
        comm,
        state: field(3)?.chars().next()?,
        parent: field(4)?.parse().ok()?,
        flags: field(9)?.parse().ok()?,
        start_ticks: field(22)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "71 (a) b (c) S 1 71 71 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 \
                        1234432 99 18446744073709551615 0 0 0\n";

    #[test]
    fn a_name_with_parentheses_and_spaces_is_read_whole() {
        let stat = parse_stat(LINE.as_bytes()).unwrap();
        assert_eq!(stat.comm, "a) b (c");
        assert_eq!((stat.state, stat.parent, stat.start_ticks), ('S', 1, 4242));
        assert!(stat.has_memory());
        assert_eq!(stat.age(42_430_000_000), 10_000_000);
    }

    #[test]
    fn kernel_threads_and_zombies_have_no_memory() {
        let thread = LINE.replace(" 4194560 ", " 2129984 ");
        assert!(!parse_stat(thread.as_bytes()).unwrap().has_memory());
        let zombie = LINE.replace(" S 1 ", " Z 1 ");
        assert!(!parse_stat(zombie.as_bytes()).unwrap().has_memory());
    }

    #[test]
    fn a_malformed_file_is_named_with_its_line() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("71")).unwrap();
        std::fs::write(root.path().join("71/stat"), "71 (x) S nonsense\n").unwrap();
        let error = Proc::at(root.path()).stat(71).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("/71/stat:1: not the fields of a process"),
            "{error}"
        );
    }

    fn file_of_7(name: &str, bytes: &[u8]) -> (tempfile::TempDir, Proc) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("7")).unwrap();
        std::fs::write(root.path().join("7").join(name), bytes).unwrap();
        let proc = Proc::at(root.path());
        (root, proc)
    }

    #[test]
    fn control_groups_whose_names_are_no_text_stay_distinct() {
        let paths = [
            b"/t/a\xff".as_slice(),
            b"/t/a\xfe",
            b"/t/a\xff\xfe",
            b"/t/a\\xff",
            b"/t/a\xef\xbf\xbd",
            "/t/a\u{fffd}ff".as_bytes(),
            "/t/a\u{fffd}\u{fffd}".as_bytes(),
            b"/t/a",
        ];
        let mut texts = std::collections::BTreeSet::new();
        for path in paths {
            let line = [b"1:name=x:/\n0::", path, b"\n"].concat();
            let (_root, proc) = file_of_7("cgroup", &line);
            assert!(
                texts.insert(proc.cgroup(7).unwrap()),
                "{}",
                path.escape_ascii()
            );
        }
        assert!(texts.contains("/t/a\\xff") && texts.contains("/t/a\u{fffd}ff"));
    }

    #[test]
    fn a_variable_beyond_the_bound_or_cut_off_by_it_is_not_found() {
        let behind = |filler: usize| {
            let environment = [b"F=".as_slice(), &vec![b'x'; filler], b"\0T=abc\0"].concat();
            let (_root, proc) = file_of_7("environ", &environment);
            proc.environment(7, "T").unwrap()
        };
        assert_eq!(behind(10).unwrap(), b"abc");
        let last = MAX_ENVIRONMENT_BYTES - "F=\0T=abc\0".len();
        assert_eq!(behind(last).unwrap(), b"abc");
        for filler in last + 1..last + 8 {
            assert_eq!(
                behind(filler),
                None,
                "{filler}: a part of the value is another value"
            );
        }
    }

    #[test]
    fn a_long_list_of_groups_hides_no_user() {
        let groups = "65534 ".repeat(65536);
        let status = format!("Name:\tUid:\nTgid:\t7\nUid:\t1\t33\t1\t1\nGroups:\t{groups}\n");
        let (_root, proc) = file_of_7("status", status.as_bytes());
        assert_eq!(
            (proc.user(7).unwrap(), proc.thread_group(7).unwrap()),
            (33, 7)
        );
    }

    #[test]
    fn a_process_that_is_not_there_is_gone() {
        let root = tempfile::tempdir().unwrap();
        assert!(matches!(
            Proc::at(root.path()).stat(71),
            Err(Error::Gone { pid: 71 })
        ));
    }

    #[test]
    fn processes_are_listed_ascending_and_other_entries_left_out() {
        let root = tempfile::tempdir().unwrap();
        for name in ["10", "9", "self", "meminfo", "100"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
        }
        let mut pids = Vec::new();
        Proc::at(root.path()).list(&mut pids).unwrap();
        assert_eq!(pids, [9, 10, 100]);
    }

    #[test]
    fn this_process_is_read_from_the_real_one() {
        let proc = Proc::default();
        let stat = proc.stat(std::process::id()).unwrap();
        assert!(stat.has_memory());
        assert_eq!(
            proc.thread_group(std::process::id()).unwrap(),
            std::process::id()
        );
        assert!(proc.resident(std::process::id()).unwrap() > 0);
        let own = proc.own_memory().unwrap();
        let before = own.resident_bytes().unwrap();
        let more = vec![1u8; 8 << 20];
        assert!(own.resident_bytes().unwrap() >= before + (7 << 20));
        drop(more);
        let whole = own.resident_bytes().unwrap();
        assert!(own.of_copy().resident_bytes().unwrap() < whole);
    }
}
