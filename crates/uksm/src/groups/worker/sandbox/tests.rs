//! A thread of this process, without capabilities and with the filter, tries to reach out.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::*;

/// `F_SETSIG` of `asm-generic/fcntl.h`.
const F_SETSIG: i64 = 10;

/// The answers of `tried` in a thread that is confined as a worker.
fn confined<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    confined_to(allowed(std::process::id()).unwrap(), act)
}

/// The same, where these calls are allowed.
fn confined_to<T: Send + 'static>(
    allowed: AllowedCalls,
    act: impl FnOnce() -> T + Send + 'static,
) -> T {
    let thread = std::thread::spawn(move || {
        super::give_up_capabilities().unwrap();
        seccompiler::apply_filter(&program(allowed).unwrap()).unwrap();
        act()
    });
    thread.join().unwrap()
}

/// A system call with numbers only.
fn call(number: i64, arguments: [i64; 6]) -> io::Result<i64> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the tests below pass numbers and null pointers, and addresses of memory that lives
    // until the call returns; none of the calls that succeed changes memory that anybody else uses.
    let answer = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}

/// Where this lies.
fn address<T>(of: &T) -> i64 {
    i64::try_from((&raw const *of).addr()).unwrap()
}

fn is_refused<T>(answer: io::Result<T>) -> bool {
    answer.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
}

/// A process that sleeps, of another user if there is the right to make one.
struct Sleeping(Child);

impl Sleeping {
    fn new(user: Option<u32>) -> Sleeping {
        let mut command = Command::new("/bin/sleep");
        command.arg("60");
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        Sleeping(command.spawn().unwrap())
    }

    fn pid(&self) -> i64 {
        i64::from(self.0.id())
    }

    /// Whether no signal has ended it.
    fn lives(&mut self) -> bool {
        std::thread::sleep(Duration::from_millis(100));
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn what_is_open_works_and_nothing_can_be_opened() {
    let (mut here, there) = UnixStream::pair().unwrap();
    let (refusals, worked) = confined(move || {
        let own = std::process::id();
        let refusals = [
            is_refused(File::open("/dev/null")),
            is_refused(File::open("/proc/self/maps")),
            is_refused(UdpSocket::bind("127.0.0.1:0")),
            is_refused(UnixStream::pair()),
            is_refused(Command::new("/bin/true").spawn()),
            uksm_linux::pidfd::open(own).is_err(),
            is_refused(there.set_nonblocking(true)),
        ];
        let worked = here.write_all(b"x").is_ok() && vec![1u8; 64 << 20].len() == 64 << 20;
        (refusals, worked)
    });
    assert_eq!(refusals, [true; 7]);
    assert!(worked);
    File::open("/dev/null").unwrap();
}

#[test]
fn no_process_can_be_sent_a_signal() {
    let mut other = Sleeping::new(None);
    let pid = other.pid();
    let refusals = confined(move || {
        let kill = i64::from(libc::SIGKILL);
        [
            (libc::SYS_tgkill, [pid, pid, kill, 0, 0, 0]),
            (libc::SYS_tkill, [pid, kill, 0, 0, 0, 0]),
            (libc::SYS_kill, [pid, kill, 0, 0, 0, 0]),
            (libc::SYS_kill, [-1, 0, 0, 0, 0, 0]),
            (libc::SYS_rt_sigqueueinfo, [pid, kill, 0, 0, 0, 0]),
            (libc::SYS_rt_tgsigqueueinfo, [pid, pid, kill, 0, 0, 0]),
            (libc::SYS_pidfd_send_signal, [0, kill, 0, 0, 0, 0]),
            (libc::SYS_timer_create, [0; 6]),
        ]
        .map(|(number, arguments)| is_refused(call(number, arguments)))
    });
    assert_eq!(refusals, [true; 8]);
    assert!(other.lives());
}

/// Negative control: the tests here would notice a filter that looks at calls alone.
#[test]
fn a_filter_without_arguments_lets_signals_out() {
    let free = |call| {
        let mut allowed = allowed(std::process::id()).unwrap();
        allowed.insert(call, vec![]);
        allowed
    };
    let mut other = Sleeping::new(None);
    let pid = other.pid();
    let kill = i64::from(libc::SIGKILL);
    confined_to(free(libc::SYS_tgkill), move || {
        call(libc::SYS_tgkill, [pid, pid, kill, 0, 0, 0]).unwrap();
    });
    assert!(!other.lives());
    let mut other = Sleeping::new(is_root().then_some(65534));
    let pid = other.pid();
    let (here, mut there) = UnixStream::pair().unwrap();
    confined_to(free(libc::SYS_fcntl), move || {
        let fd = i64::from(here.as_raw_fd());
        for [command, argument] in [
            [i64::from(libc::F_SETOWN), pid],
            [F_SETSIG, kill],
            [i64::from(libc::F_SETFL), i64::from(libc::O_ASYNC)],
        ] {
            call(libc::SYS_fcntl, [fd, command, argument, 0, 0, 0]).unwrap();
        }
        there.write_all(b"x").unwrap();
        drop(here);
    });
    assert!(!other.lives());
}

#[test]
fn the_kernel_sends_no_signal_on_its_behalf() {
    // Of another user, where the test has the right to make such a process.
    let mut other = Sleeping::new(is_root().then_some(65534));
    let pid = other.pid();
    let (here, mut there) = UnixStream::pair().unwrap();
    let refusals = confined(move || {
        let fd = i64::from(here.as_raw_fd());
        let owner = [0_i32; 2];
        let refusals = [
            [fd, i64::from(libc::F_SETOWN), pid],
            [fd, 15 /* F_SETOWN_EX */, address(&owner)],
            [fd, F_SETSIG, i64::from(libc::SIGKILL)],
            [fd, i64::from(libc::F_SETFL), i64::from(libc::O_ASYNC)],
            [fd, i64::from(libc::F_SETLEASE), 0],
            [fd, i64::from(libc::F_NOTIFY), 0],
            [fd, i64::from(libc::F_SETLKW), 0],
        ]
        .map(|[fd, command, argument]| {
            is_refused(call(libc::SYS_fcntl, [fd, command, argument, 0, 0, 0]))
        });
        let by_ioctl = [
            0x5452, /* FIOASYNC */
            0x8901, /* FIOSETOWN */
            0x8902, /* SIOCSPGRP */
        ]
        .map(|request| is_refused(call(libc::SYS_ioctl, [fd, request, 0, 0, 0, 0])));
        let _ = there.write_all(b"x");
        drop(here);
        (refusals, by_ioctl)
    });
    assert_eq!(refusals, ([true; 7], [true; 3]));
    assert!(other.lives());
}

#[test]
fn nothing_is_changed_of_other_processes_and_nothing_learnt() {
    let mut other = Sleeping::new(None);
    let pid = other.pid();
    let refusals = confined(move || {
        let clock_of_other = i64::from(!u32::try_from(pid).unwrap() << 3 | 2);
        [
            (libc::SYS_prlimit64, [pid, 0, 0, 0, 0, 0]),
            (libc::SYS_sched_setaffinity, [pid, 0, 0, 0, 0, 0]),
            (libc::SYS_sched_setscheduler, [pid, 0, 0, 0, 0, 0]),
            (libc::SYS_sched_setattr, [pid, 0, 0, 0, 0, 0]),
            (libc::SYS_sched_getaffinity, [pid, 0, 0, 0, 0, 0]),
            (libc::SYS_setpriority, [0, pid, 19, 0, 0, 0]),
            (libc::SYS_ioprio_set, [1, pid, 0, 0, 0, 0]),
            (libc::SYS_process_vm_readv, [pid, 0, 0, 0, 0, 0]),
            (libc::SYS_process_vm_writev, [pid, 0, 0, 0, 0, 0]),
            (libc::SYS_process_madvise, [0, 0, 0, 0, 0, 0]),
            (libc::SYS_process_mrelease, [0, 0, 0, 0, 0, 0]),
            (libc::SYS_pidfd_open, [pid, 0, 0, 0, 0, 0]),
            (libc::SYS_pidfd_getfd, [0, 0, 0, 0, 0, 0]),
            (libc::SYS_ptrace, [0, pid, 0, 0, 0, 0]),
            (libc::SYS_kcmp, [pid, pid, 0, 0, 0, 0]),
            (libc::SYS_get_robust_list, [pid, 0, 0, 0, 0, 0]),
            (libc::SYS_migrate_pages, [pid, 0, 0, 0, 0, 0]),
            (libc::SYS_move_pages, [pid, 0, 0, 0, 0, 0]),
            (libc::SYS_clock_gettime, [clock_of_other, 0, 0, 0, 0, 0]),
            (libc::SYS_clock_nanosleep, [clock_of_other, 0, 0, 0, 0, 0]),
        ]
        .map(|(number, arguments)| (number, is_refused(call(number, arguments))))
    });
    assert_eq!(refusals, refusals.map(|(number, _)| (number, true)));
    assert!(other.lives());
}

#[test]
fn it_gets_no_rights_no_threads_and_no_ways_around_the_filter() {
    let refusals = confined(|| {
        [
            (
                libc::SYS_prctl,
                [i64::from(libc::PR_SET_NAME), 0, 0, 0, 0, 0],
            ),
            (libc::SYS_seccomp, [0; 6]),
            (libc::SYS_setuid, [0; 6]),
            (libc::SYS_clone, [0; 6]),
            (libc::SYS_clone3, [0; 6]),
            (libc::SYS_fork, [0; 6]),
            (libc::SYS_execve, [0; 6]),
            (libc::SYS_execveat, [0; 6]),
            (libc::SYS_unshare, [0; 6]),
            (libc::SYS_setns, [0; 6]),
            (libc::SYS_personality, [0; 6]),
            (libc::SYS_bpf, [0; 6]),
            (libc::SYS_perf_event_open, [0; 6]),
            (libc::SYS_io_uring_setup, [0; 6]),
            (libc::SYS_userfaultfd, [0; 6]),
            (libc::SYS_memfd_create, [0; 6]),
            (libc::SYS_shmget, [0; 6]),
            (libc::SYS_mq_open, [0; 6]),
            (libc::SYS_keyctl, [0; 6]),
            (libc::SYS_pkey_mprotect, [0; 6]),
            (libc::SYS_membarrier, [0; 6]),
            (libc::SYS_mlockall, [0; 6]),
            // The other numbering of calls of this machine.
            (0x4000_0000 | libc::SYS_getpid, [0; 6]),
        ]
        .map(|(number, arguments)| (number, is_refused(call(number, arguments))))
    });
    assert_eq!(refusals, refusals.map(|(number, _)| (number, true)));
}

#[test]
fn messages_go_to_the_other_end_of_what_is_open_and_to_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = UnixDatagram::bind(&path).unwrap();
    log.set_nonblocking(true).unwrap();
    let socket = UnixDatagram::unbound().unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    let refusals = confined(move || {
        let options = [i64::from(libc::SOL_SOCKET), i64::from(libc::SO_PASSCRED)];
        let fd = i64::from(here.as_raw_fd());
        [
            is_refused(socket.send_to(b"forged", &path)),
            is_refused(call(libc::SYS_sendmsg, [fd, 0, 0, 0, 0, 0])),
            is_refused(call(libc::SYS_sendmmsg, [fd, 0, 0, 0, 0, 0])),
            is_refused(call(libc::SYS_connect, [fd, 0, 0, 0, 0, 0])),
            is_refused(call(libc::SYS_bind, [fd, 0, 0, 0, 0, 0])),
            is_refused(call(
                libc::SYS_setsockopt,
                [fd, options[0], options[1], 0, 0, 0],
            )),
            rustix::net::send(&here, b"x", rustix::net::SendFlags::NOSIGNAL) == Ok(1),
        ]
    });
    assert_eq!(refusals, [true; 7]);
    drop(there);
    assert!(log.recv(&mut [0; 8]).is_err(), "nothing came");
}

#[test]
fn of_the_module_only_the_calls_of_a_worker_are_left() {
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .unwrap();
    let answers = confined(move || {
        let fd = i64::from(null.as_raw_fd());
        (0..16_u32)
            .map(move |number| {
                let of_module = |size: u32, direction: u32| {
                    i64::from(direction << 30 | size << 16 | 0xde << 8 | number)
                };
                let any_size = is_refused(call(libc::SYS_ioctl, [fd, of_module(1, 3), 0, 0, 0, 0]));
                let known = WORKER_CALLS.iter().find(|&&known| known & 0xff == number);
                let known = known.map(|&known| {
                    let answer = call(libc::SYS_ioctl, [fd, i64::from(known), 0, 0, 0, 0]);
                    // The filter lets it pass, and the null device has no such call.
                    answer.is_err_and(|error| error.raw_os_error() == Some(libc::ENOTTY))
                });
                (any_size, known)
            })
            .collect::<Vec<_>>()
    });
    let known = answers
        .iter()
        .filter(|(_, known)| *known == Some(true))
        .count();
    assert_eq!(known, WORKER_CALLS.len());
    assert!(answers.iter().all(|(is_refused, _)| *is_refused));
    use uksm_linux::module::raw::{UKSM_IOC_ATTACH, UKSM_IOC_CONFIGURE, UKSM_IOC_SEAL};
    for call in [UKSM_IOC_ATTACH, UKSM_IOC_CONFIGURE, UKSM_IOC_SEAL] {
        assert!(!WORKER_CALLS.contains(&call));
    }
}

#[test]
fn its_own_descriptors_signals_and_waiting_work() {
    let (here, there) = UnixStream::pair().unwrap();
    let answers = confined(move || {
        let own = i64::from(std::process::id());
        let thread = call(libc::SYS_gettid, [0; 6]).unwrap();
        let word = 0_u32;
        let word = address(&word);
        let (wake, wait) = (
            i64::from(libc::FUTEX_WAKE),
            i64::from(libc::FUTEX_WAIT_BITSET),
        );
        let private = i64::from(libc::FUTEX_PRIVATE_FLAG);
        let realtime = i64::from(libc::FUTEX_CLOCK_REALTIME);
        let shared = i64::from(libc::FUTEX_LOCK_PI);
        let past = libc::timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        let past = address(&past);
        let late = call(
            libc::SYS_futex,
            [word, wait | private | realtime, 0, past, 0, 1],
        );
        let end = Instant::now() + Duration::from_millis(5);
        std::thread::sleep(Duration::from_millis(5));
        let (sender, receiver) = std::sync::mpsc::channel();
        sender.send(1).unwrap();
        [
            there.as_raw_fd() >= 0 && there.try_clone().is_ok(),
            call(
                libc::SYS_fcntl,
                [
                    i64::from(here.as_raw_fd()),
                    i64::from(libc::F_GETFL),
                    0,
                    0,
                    0,
                    0,
                ],
            )
            .is_ok(),
            call(libc::SYS_tgkill, [own, thread, 0, 0, 0, 0]).is_ok(),
            call(libc::SYS_futex, [word, wake | private, 1, 0, 0, 0]).is_ok(),
            late.is_err_and(|error| error.raw_os_error() == Some(libc::ETIMEDOUT)),
            is_refused(call(libc::SYS_futex, [word, shared, 0, 0, 0, 0])),
            Instant::now() >= end,
            receiver.recv_timeout(Duration::from_millis(5)) == Ok(1),
            receiver.recv_timeout(Duration::from_millis(5)).is_err(),
            std::time::SystemTime::now() > std::time::UNIX_EPOCH,
            uksm_linux::clock::process_cpu() > 0,
        ]
    });
    assert_eq!(answers, [true; 11]);
}

#[test]
fn memory_is_never_executable_nor_the_hosts_to_reserve_nor_ksms() {
    const PAGE: i64 = 4096;
    let answers = confined(|| {
        let protection = i64::from(libc::PROT_READ | libc::PROT_WRITE);
        let executable = i64::from(libc::PROT_EXEC);
        let private = i64::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let map = |protection, flags| call(libc::SYS_mmap, [0, PAGE, protection, flags, -1, 0]);
        let memory = map(protection, private).unwrap();
        let advise = |advice| {
            call(
                libc::SYS_madvise,
                [memory, PAGE, i64::from(advice), 0, 0, 0],
            )
        };
        [
            is_refused(map(protection | executable, private)),
            is_refused(map(protection, private | i64::from(libc::MAP_HUGETLB))),
            is_refused(map(protection, private | i64::from(libc::MAP_LOCKED))),
            is_refused(call(
                libc::SYS_mprotect,
                [memory, PAGE, executable, 0, 0, 0],
            )),
            is_refused(advise(libc::MADV_MERGEABLE)),
            is_refused(advise(libc::MADV_HWPOISON)),
            advise(libc::MADV_DONTNEED).is_ok() && advise(libc::MADV_FREE).is_ok(),
            call(
                libc::SYS_mprotect,
                [memory, PAGE, i64::from(libc::PROT_READ), 0, 0, 0],
            )
            .is_ok(),
            call(
                libc::SYS_mremap,
                [
                    memory,
                    PAGE,
                    2 * PAGE,
                    i64::from(libc::MREMAP_MAYMOVE),
                    0,
                    0,
                ],
            )
            .and_then(|moved| call(libc::SYS_munmap, [moved, 2 * PAGE, 0, 0, 0, 0]))
            .is_ok(),
        ]
    });
    assert_eq!(answers, [true; 9]);
}
