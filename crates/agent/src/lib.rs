//! Receives the daemon's advice inside a process: a library that `uksm exec` has preloaded.
//!
//! # Problem
//! Only a process itself can offer its memory to in-kernel KSM. The program must not notice the
//! code in it that does so.
//!
//! # Approach
//! The library starts one thread, with all signals blocked, so that no handler of the program ever
//! runs on it. The thread connects to the daemon (`connection`), receives advice about ranges,
//! checks that they are anonymous memory (`own_memory`), and passes them to the kernel. It
//! allocates nothing, prints nothing, and has a table of file descriptors of its own, so that
//! neither the program nor a child that it forks has the connection. Without a daemon it searches
//! for one at intervals. It ends for good if a message is malformed, if the process gets a system
//! call filter, or if all other threads have ended. If a filter is active at the start of the
//! program, no thread is made.
//!
//! The library does nothing in a forked child: it has no handler of fork. Making a thread there
//! would take locks of an allocator that are held at that moment, and a filter of the child may
//! kill for any system call. Offered memory stays offered after a fork, and the next program that
//! the child runs has an agent of its own.
//!
//! `docs/ksm-backend.md` lists the effects that a program can notice all the same: there is one
//! thread more.
//!
//! # Source
//! ld.so(8) (`LD_PRELOAD`), madvise(2), `proc_pid_status(5)` (`Seccomp`), seccomp(2).

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use rustix::thread::{Timespec, nanosleep, set_name};
use uksm_interface::advice::SOCKET_VARIABLE;

mod connection;
mod own_memory;
mod system_call_filter;

use connection::{Connection, ConnectionEnd};
use system_call_filter::{is_filtered, starts_filtered};

/// Size of the thread's stack: messages and lines of maps are some KiB.
const STACK_BYTES: usize = 256 << 10;

/// Time between searches for a daemon, at first and at most.
const RETRY_SECONDS: (i64, i64) = (1, 60);

/// Run by the dynamic linker before the program.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    if socket().is_some() && !starts_filtered() {
        start_thread();
    }
}

/// The path in the environment that the process was started with.
fn socket() -> Option<&'static CStr> {
    let mut name = [0u8; 32];
    name.get_mut(..SOCKET_VARIABLE.len())?
        .copy_from_slice(SOCKET_VARIABLE.as_bytes());
    // SAFETY: the name ends in a zero byte, and no code changes the environment: the program has
    // not begun, or this is the thread's first act.
    let value = unsafe { libc::getenv(name.as_ptr().cast()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: the environment's texts end in a zero byte and stay where they are.
    let path = unsafe { CStr::from_ptr(value) };
    (!path.is_empty()).then_some(path)
}

/// Starts the thread with all signals blocked. If that fails, there is none.
fn start_thread() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills the set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the first set was filled, the second one is.
    if unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) } != 0 {
        return;
    }
    create_thread();
    // SAFETY: the set was filled by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
}

fn create_thread() {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: fills the attributes.
    if unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY: the attributes were filled.
    unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK_BYTES) };
    let detached = libc::PTHREAD_CREATE_DETACHED;
    // SAFETY: the attributes were filled.
    unsafe { libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), detached) };
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: the function takes no argument, and lives as long as the library.
    let _none = unsafe {
        libc::pthread_create(
            thread.as_mut_ptr(),
            attributes.as_ptr(),
            work,
            ptr::null_mut(),
        )
    };
    // SAFETY: they are not used any more.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
}

extern "C" fn work(_: *mut c_void) -> *mut c_void {
    if is_filtered() {
        return ptr::null_mut();
    }
    // Without one, which Linux has had since 5.9, a forked child would have the connection, too.
    if !connection::own_table() {
        return ptr::null_mut();
    }
    let _unnamed = set_name(c"uksm-agent");
    if let Some(path) = socket() {
        take_advice(path);
    }
    ptr::null_mut()
}

fn take_advice(path: &CStr) {
    let (shortest, longest) = RETRY_SECONDS;
    let mut wait = shortest;
    while !is_filtered() && !own_memory::is_alone() {
        if let Some(connection) = Connection::to(path) {
            let end = connection.serve();
            drop(connection);
            if end == ConnectionEnd::ForGood {
                return;
            }
            wait = shortest;
        }
        sleep(wait);
        wait = (wait * 2).min(longest);
    }
}

fn sleep(seconds: i64) {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    // No signal ends it.
    let _slept = nanosleep(&time);
}
