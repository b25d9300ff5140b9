//! A process whose environment is as long as it likes, read by the real program.

use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};

/// How long the environment is.
const ENVIRONMENT_BYTES: usize = 1 << 30;

/// What the program may take at most. A read of the whole environment would take 1 GiB.
const MAX_RESIDENT_KIB: i64 = 100 << 10;

/// `struct prctl_mm_map` of `linux/prctl.h`.
#[repr(C)]
struct MemoryMap {
    start_code: u64,
    end_code: u64,
    start_data: u64,
    end_data: u64,
    start_brk: u64,
    brk: u64,
    start_stack: u64,
    arg_start: u64,
    arg_end: u64,
    env_start: u64,
    env_end: u64,
    auxv: u64,
    auxv_size: u32,
    exe_fd: u32,
}

/// Where this process's memory lies, as `/proc/PID/stat` has it (proc(5) numbers the fields).
fn own_layout() -> MemoryMap {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    let field = |number: usize| fields[number - 3].parse::<u64>().unwrap();
    MemoryMap {
        start_code: field(26),
        end_code: field(27),
        start_stack: field(28),
        start_data: field(45),
        end_data: field(46),
        start_brk: field(47),
        brk: field(47),
        arg_start: field(48),
        arg_end: field(49),
        env_start: 0,
        env_end: 0,
        auxv: 0,
        auxv_size: 0,
        exe_fd: u32::MAX,
    }
}

/// A process that says of itself that its environment is that long, and ends when the test does.
struct LongEnvironment(libc::pid_t);

impl LongEnvironment {
    fn new() -> LongEnvironment {
        let mut layout = own_layout();
        let (mut read, write) = std::io::pipe().unwrap();
        // SAFETY: between fork and _exit the child makes system calls only, on memory that it has
        // mapped itself.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork");
        if pid == 0 {
            be_long(&mut layout, write.as_raw_fd());
        }
        drop(write);
        let mut done = [0];
        read.read_exact(&mut done)
            .expect("the child has its environment");
        assert_eq!(done[0], 0, "prctl(PR_SET_MM_MAP): errno {}", done[0]);
        LongEnvironment(pid)
    }
}

/// What the child does: it reports an errno of one byte, and waits.
fn be_long(layout: &mut MemoryMap, report: i32) -> ! {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let null = std::ptr::null_mut();
    // SAFETY: new memory at an address of the kernel's choice.
    let start = unsafe { libc::mmap(null, ENVIRONMENT_BYTES, protection, flags, -1, 0) };
    layout.env_start = start.addr() as u64;
    layout.env_end = layout.env_start + ENVIRONMENT_BYTES as u64;
    // SAFETY: it moves no memory.
    layout.brk = unsafe { libc::sbrk(0) }.addr() as u64;
    let size = size_of::<MemoryMap>();
    // SAFETY: the kernel reads the structure, whose size stands beside it.
    let done = unsafe { libc::prctl(libc::PR_SET_MM, libc::PR_SET_MM_MAP, layout, size, 0) };
    let error = std::io::Error::last_os_error().raw_os_error();
    let errno = error.filter(|_| done != 0).unwrap_or(0);
    let errno = u8::try_from(errno).unwrap_or(u8::MAX);
    // SAFETY: one byte that lives.
    unsafe { libc::write(report, (&raw const errno).cast(), 1) };
    loop {
        // SAFETY: no memory is concerned.
        unsafe { libc::pause() };
    }
}

impl Drop for LongEnvironment {
    fn drop(&mut self) {
        // SAFETY: the process is a child of this one that nobody has waited for.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        // SAFETY: null is no place to write to.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}

#[test]
fn an_environment_of_any_length_takes_little_memory() {
    let long = LongEnvironment::new();
    let mut program = Command::new(env!("CARGO_BIN_EXE_uksm"))
        .args(["group", "suggest", "--boundary", "env:TENANT", "--pid"])
        .arg(long.0.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    program.wait().unwrap();
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes to the structure, and nowhere else.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) };
    // SAFETY: zeroes are a value of it, and the kernel has written it.
    let usage = unsafe { usage.assume_init() };
    let resident = usage.ru_maxrss;
    assert!(resident < MAX_RESIDENT_KIB, "{resident} KiB");
}
