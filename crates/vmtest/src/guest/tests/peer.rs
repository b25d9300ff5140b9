//! A process under test that does what it is told.
//!
//! # Problem
//! Tests merge the memory of *other* processes, and in between those must fill, check, write,
//! fork, move and pin their pages, at exactly the right moment.
//!
//! # Approach
//! A peer is forked from the test, so that a function has the same address in both. The test
//! sends a function and its captured values over a pipe; the peer runs it on its own state
//! ([`Own`]) and sends the value back. Functions and values are plain bytes (`Copy`), and a panic
//! in the peer becomes a panic in the test. The peer dies with its test, and holds no other file
//! of it: an inherited device file would keep the module in use.
//!
//! # Units
//! One order is outstanding at a time, unless [`Peer::begin`] and [`Running::end`] part them.

use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fs::File, process};

use super::memory::{Huge, Memory, answer};
use super::nested_guest::Machine;
use super::pins::{FixedBuffers, Splice};

/// The state of a peer, which orders work on.
#[derive(Debug)]
pub struct Own {
    /// The pages under test.
    pub memory: Memory,
    /// Pages given to a pipe.
    pub splice: Option<Splice>,
    /// Pages registered with an io_uring.
    pub buffers: Option<FixedBuffers>,
    /// A virtual machine made of the memory.
    pub machine: Option<Machine>,
}

/// A process under test. It is killed when this is dropped.
#[derive(Debug)]
pub struct Peer {
    pid: i32,
    orders: File,
    answers: File,
}

/// Runs an order: reads its captured values, does it, writes the answer.
type Trampoline = fn(&mut Own, &mut File, &mut File) -> io::Result<()>;

/// Largest captured values and largest answer, in bytes.
const LARGEST: usize = 1024;

impl Peer {
    /// Starts a peer with `pages` untouched pages, without huge pages.
    #[must_use]
    pub fn new(pages: usize) -> Peer {
        Peer::with(pages, Huge::Never)
    }

    /// Starts a peer with `pages` pages, page `i` holding class `i % distinct` of `seed`.
    #[must_use]
    pub fn filled(pages: usize, seed: u64, distinct: usize) -> Peer {
        let mut peer = Peer::new(pages);
        peer.run(move |own| own.memory.fill(seed, distinct));
        peer
    }

    /// Starts a peer with `pages` untouched pages.
    #[must_use]
    pub fn with(pages: usize, huge: Huge) -> Peer {
        let (orders_out, orders_in) = pipe();
        let (answers_out, answers_in) = pipe();
        // SAFETY: the test process has one thread, so the child may go on as an ordinary process.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => panic!("fork of a peer: {}", io::Error::last_os_error()),
            0 => {
                let keep = [orders_out.as_raw_fd(), answers_in.as_raw_fd()];
                die_with_parent();
                close_all_but(keep);
                let done = serve(pages, huge, File::from(orders_out), File::from(answers_in));
                leave(i32::from(done.is_err()));
            }
            _ => {
                let mut peer = Peer {
                    pid,
                    orders: File::from(orders_in),
                    answers: File::from(answers_out),
                };
                // Until it answers, it may still be mapping its memory.
                peer.run(|_| ());
                peer
            }
        }
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Has the peer do `order` and returns its value.
    ///
    /// # Panics
    /// If the order panicked or the peer died.
    pub fn run<F, R>(&mut self, order: F) -> R
    where
        F: FnOnce(&mut Own) -> R + Copy + 'static,
        R: Copy + 'static,
    {
        self.begin(order).end()
    }

    /// Has the peer start `order`, and returns at once.
    ///
    /// # Panics
    /// If the peer died.
    pub fn begin<F, R>(&mut self, order: F) -> Running<'_, R>
    where
        F: FnOnce(&mut Own) -> R + Copy + 'static,
        R: Copy + 'static,
    {
        const { assert!(size_of::<F>() <= LARGEST && size_of::<R>() <= LARGEST) };
        let trampoline: Trampoline = perform::<F, R>;
        let mut message = bytes_of(&trampoline);
        message.extend(bytes_of(&order));
        self.orders
            .write_all(&message)
            .unwrap_or_else(|error| panic!("peer {} takes no orders: {error}", self.pid));
        Running {
            peer: self,
            value: PhantomData,
        }
    }

    /// Ends the peer in the ordinary way and waits for it; its exit must be clean.
    ///
    /// # Panics
    /// If it ended in another way.
    pub fn exit(mut self) {
        let pid = mem::replace(&mut self.pid, 0);
        let orders = mem::replace(&mut self.orders, null_file());
        drop(orders);
        let status = wait(pid);
        assert!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
            "peer {pid} should exit cleanly, its status is {status:#x}"
        );
    }

    /// Kills the peer as `kill -9` does and waits for it.
    pub fn kill(mut self) {
        self.end_by_force();
    }

    fn end_by_force(&mut self) {
        let pid = mem::replace(&mut self.pid, 0);
        if pid > 0 {
            signal(pid, libc::SIGKILL);
            wait(pid);
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.end_by_force();
    }
}

/// An order that a peer is doing.
#[derive(Debug)]
#[must_use = "an order whose answer is not read blocks the next"]
pub struct Running<'a, R> {
    peer: &'a mut Peer,
    value: PhantomData<R>,
}

impl<R: Copy + 'static> Running<'_, R> {
    /// Waits for the order to end and returns its value.
    ///
    /// # Panics
    /// If the order panicked or the peer died.
    pub fn end(self) -> R {
        let pid = self.peer.pid;
        let mut panicked = [0u8];
        self.peer
            .answers
            .read_exact(&mut panicked)
            .unwrap_or_else(|error| panic!("peer {pid} died while doing an order: {error}"));
        assert!(
            panicked == [0],
            "an order to peer {pid} panicked; see its message above"
        );
        read_value(&mut self.peer.answers)
            .unwrap_or_else(|error| panic!("peer {pid} died while answering: {error}"))
    }
}

/// The life of a peer: orders, until their pipe is closed.
fn serve(pages: usize, huge: Huge, mut orders: File, mut answers: File) -> io::Result<()> {
    let mut own = Own {
        memory: Memory::anonymous(pages, huge),
        splice: None,
        buffers: None,
        machine: None,
    };
    loop {
        let trampoline: Trampoline = match read_value(&mut orders) {
            Ok(trampoline) => trampoline,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        trampoline(&mut own, &mut orders, &mut answers)?;
    }
}

/// The trampoline of an order of type `F`.
fn perform<F, R>(own: &mut Own, orders: &mut File, answers: &mut File) -> io::Result<()>
where
    F: FnOnce(&mut Own) -> R + Copy + 'static,
    R: Copy + 'static,
{
    let order: F = read_value(orders)?;
    match catch_unwind(AssertUnwindSafe(|| order(own))) {
        Ok(value) => {
            let mut message = vec![0u8];
            message.extend(bytes_of(&value));
            answers.write_all(&message)
        }
        Err(_) => answers.write_all(&[1]),
    }
}

/// The bytes of a plain value, padding read as whatever it is.
fn bytes_of<T: Copy>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0u8; size_of::<T>()];
    let source = std::ptr::from_ref(value).cast::<u8>();
    // SAFETY: both are size_of::<T>() bytes long and do not overlap. Padding has no meaning, and
    // read_value of the same type overwrites the same bytes with it.
    unsafe { std::ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), size_of::<T>()) };
    bytes
}

/// Reads a value that [`bytes_of`] wrote for the same type in a process of the same program.
fn read_value<T: Copy>(file: &mut File) -> io::Result<T> {
    let mut bytes = vec![0u8; size_of::<T>()];
    file.read_exact(&mut bytes)?;
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the sizes are equal.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast(), bytes.len());
    }
    // SAFETY: the bytes are those of a T of the forked parent or child, in which functions and
    // statics have the same addresses; T is 'static and Copy, so it holds nothing else.
    Ok(unsafe { value.assume_init() })
}

/// Forks; the child does `work` and exits with its value, the parent gets its id.
///
/// # Panics
/// If no process can be made.
pub fn fork(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: tests and peers have one thread, so the child may go on as an ordinary process.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => panic!("fork: {}", io::Error::last_os_error()),
        0 => {
            die_with_parent();
            let status = catch_unwind(AssertUnwindSafe(work)).unwrap_or(101);
            leave(status)
        }
        _ => pid,
    }
}

/// Like [`fork`], for a child that outlives this test's files: it keeps none of them.
pub fn fork_alone(work: impl FnOnce() -> i32) -> i32 {
    fork(|| {
        close_all_but([2, 2]);
        work()
    })
}

/// Waits for a child and returns its wait status.
///
/// # Panics
/// If there is no such child.
pub fn wait(pid: i32) -> i32 {
    let mut status = 0;
    loop {
        // SAFETY: status outlives the call.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        if waited == pid {
            return status;
        }
        let error = io::Error::last_os_error();
        assert!(
            error.kind() == io::ErrorKind::Interrupted,
            "waitpid({pid}): {error}"
        );
    }
}

/// Sends a signal to a process that the tests started.
pub fn signal(pid: i32, signal: i32) {
    assert!(
        pid > 1,
        "only processes of the tests are signalled, not {pid}"
    );
    // SAFETY: kill touches no memory.
    let _gone_already = unsafe { libc::kill(pid, signal) };
}

/// Sleeps until a signal comes, for ever.
pub fn pause() -> ! {
    loop {
        // SAFETY: pause touches no memory.
        let _interrupted = unsafe { libc::pause() };
    }
}

/// Ends this process without running anything of its parent's.
pub fn leave(status: i32) -> ! {
    // SAFETY: _exit does not return and touches no memory.
    unsafe { libc::_exit(status) }
}

/// A pidfd of a process.
///
/// # Errors
/// What pidfd_open(2) says.
pub fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open touches no memory.
    let file = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    let file = i32::try_from(file).expect("file descriptors fit an int");
    // SAFETY: the kernel has just given this descriptor to us.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// A pipe that exec closes: (out, in).
#[must_use]
pub fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: ends has room for two descriptors.
    answer(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }).expect("pipe2");
    // SAFETY: the kernel has just given this descriptor to us.
    let out = unsafe { OwnedFd::from_raw_fd(ends[0]) };
    // SAFETY: the kernel has just given this descriptor to us.
    let into = unsafe { OwnedFd::from_raw_fd(ends[1]) };
    (out, into)
}

fn null_file() -> File {
    File::open("/dev/null").expect("/dev/null")
}

fn die_with_parent() {
    // SAFETY: PR_SET_PDEATHSIG touches no memory.
    let _ = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Closes every file but standard input, output, error and `keep`.
fn close_all_but(keep: [i32; 2]) {
    let (low, high) = (keep[0].min(keep[1]), keep[0].max(keep[1]));
    for (first, last) in [(3, low - 1), (low + 1, high - 1), (high + 1, i32::MAX)] {
        if first <= last {
            // SAFETY: the child owns its descriptors; the owners of these are never used in it.
            let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
            if closed != 0 {
                process::abort();
            }
        }
    }
}
