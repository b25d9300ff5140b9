//! Merged pages, and the memory of a device that the kernel simulates.
//!
//! # Problem
//! A collecting module shows the pages that the kernel takes out of a page table. Only a driver
//! with memory of its own migrates pages to a device and back.
//!
//! # Approach
//! `lib/test_hmm.c` of the kernel is such a driver; its memory is ordinary memory that no processor
//! reaches. Stock kernels do not have it; our debug kernels do. The test migrates merged and other
//! pages of a process to the device: with `uksm` loaded and without, all must stay. With the guard
//! switched off, unmerged pages go there and come back, so the calls are the right ones. In another
//! machine, processors reach the device's memory: pages there are mapped as ordinary ones are, and
//! must not be merged.
//!
//! # Source
//! `kernel/guard_migration.c`; lib/test_hmm_uapi.h of the kernel.

use std::fs::File;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::path::Path;

use uksm_policy::command::{Lines, Page, PageState, Status};
use uksm_vm_protocol::machine::MODULE;

use super::Context;
use crate::fixtures::contents::PAGE;
use crate::fixtures::domain::{Domain, Permit, address};
use crate::fixtures::pagemap::pfns;
use crate::fixtures::peer::{Own, Peer};

cases! { "guard::device_memory":
    merged_pages_stay_with_the_machine Normal Faults 60,
    pages_on_a_coherent_device_are_not_merged Normal Coherent 60,
}

const PAGES: usize = 64;
const SEED: u64 = 54;
/// A device whose memory no processor reaches.
const PRIVATE: &str = "/dev/hmm_dmirror0";
/// A device whose memory processors reach.
const COHERENT: &str = "/dev/hmm_dmirror2";
const GPU_MIGRATION: &str = "/sys/module/uksm_guard/parameters/gpu_migration";

/// `struct hmm_dmirror_cmd`.
#[repr(C)]
struct Command {
    address: u64,
    buffer: u64,
    pages: u64,
    copied: u64,
    faults: u64,
}

/// HMM_DMIRROR_MIGRATE_TO_DEV and HMM_DMIRROR_MIGRATE_TO_SYS.
const TO_DEVICE: u64 = 0xC028_4802;
const TO_MACHINE: u64 = 0xC028_4803;

/// The driver, for this process.
struct Driver {
    device: File,
    /// The driver's copies of the pages.
    copies: Vec<u64>,
}

impl Driver {
    fn open(device: &str) -> Driver {
        let device = File::options().read(true).write(true).open(device);
        Driver {
            device: device.expect("the device of test_hmm"),
            copies: vec![0; PAGES * PAGE / 8],
        }
    }

    /// Gives the driver an order about all pages.
    fn order(&mut self, order: u64) -> Result<(), Option<i32>> {
        let mut command = Command {
            address: address(0),
            buffer: self.copies.as_mut_ptr().expose_provenance() as u64,
            pages: PAGES as u64,
            copied: 0,
            faults: 0,
        };
        // SAFETY: the command outlives the call, and its buffer has room for all pages.
        match unsafe { libc::ioctl(self.device.as_raw_fd(), order, &raw mut command) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().raw_os_error()),
        }
    }
}

/// Makes the driver take all pages of this process to its device, and back; returns the number of
/// pages on the device, by the copies that it returns.
fn to_the_device_and_back(own: &mut Own) -> usize {
    let mut driver = Driver::open(PRIVATE);
    let taken = driver.order(TO_DEVICE);
    // The device has no page to return.
    assert!(
        taken.is_ok() || taken == Err(Some(libc::ENOENT)),
        "{taken:?}"
    );
    let is_there = taken.is_ok();
    assert_eq!(driver.order(TO_MACHINE), Ok(()));
    let copies = driver.copies;
    let taken = (0..PAGES).filter(|page| {
        let first = own.memory.word(*page, 0);
        is_there && copies[page * PAGE / 8] == first
    });
    taken.count()
}

fn assert_stay(peer: &mut Peer) {
    let before = pfns(peer.pid(), 0..PAGES);
    assert_eq!(peer.run(to_the_device_and_back), 0, "none should be taken");
    assert_eq!(pfns(peer.pid(), 0..PAGES), before);
    assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
}

fn merged_pages_stay_with_the_machine(context: &mut Context) {
    if !Path::new(PRIVATE).exists() {
        context.note("this kernel simulates no device: guard:: has a module that collects");
        return;
    }
    let mut peers = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let mut other = Peer::filled(PAGES, SEED, PAGES);
    let mut domain = Domain::open();
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.merged(), 2 * PAGES, "{counts:?}");
    peers.iter_mut().for_each(assert_stay);
    // The price of the guard.
    assert_stay(&mut other);

    drop(domain);
    context.unload(MODULE).expect("unloading the module");
    peers.iter_mut().for_each(assert_stay);
    for peer in &mut peers {
        peer.run(|own| own.memory.flip(0..PAGES));
        peer.run(|own| own.memory.flip(0..PAGES));
        assert_stay(peer);
    }
    peers.into_iter().for_each(Peer::exit);
    context.load(MODULE).expect("loading the module again");

    let set = |value| context.write(GPU_MIGRATION, value).expect("a parameter");
    set("1");
    let taken = other.run(to_the_device_and_back);
    set("0");
    assert_eq!(taken, PAGES, "without the guard all should be taken");
    assert_eq!(
        other.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)),
        0
    );
}

fn pages_on_a_coherent_device_are_not_merged(context: &mut Context) {
    if !Path::new(COHERENT).exists() {
        context.note("this kernel simulates no device");
        return;
    }
    let mut peers = [(); 2].map(|()| Peer::filled(PAGES, SEED, PAGES));
    let mut domain = Domain::open();
    let spaces = peers.each_ref().map(|peer| domain.attach(peer));
    context.write(GPU_MIGRATION, "1").expect("a parameter");
    for peer in &mut peers {
        let taken = peer.run(|_| {
            let mut driver = Driver::open(COHERENT);
            let taken = driver.order(TO_DEVICE);
            // Open until this process ends: the driver returns all pages when it is closed.
            let _ = driver.device.into_raw_fd();
            taken
        });
        assert_eq!(taken, Ok(()));
    }
    for space in spaces {
        let seen = domain.sample(space, 0..PAGES, Lines { from: 0, to: 0 });
        let is_other = |page: &Page| page.state == PageState::Other;
        assert!(seen.iter().all(is_other), "{:?}", seen.first());
    }
    // The guard, which maps no frame while it is switched off, is on again.
    context.write(GPU_MIGRATION, "0").expect("a parameter");
    let counts = domain.merge(&spaces, 0..PAGES, Permit::default());
    assert_eq!(counts.of(Status::Refused), 2 * PAGES, "{counts:?}");
    for peer in &mut peers {
        assert_eq!(peer.run(|own| own.memory.changed(SEED, PAGES, 0..PAGES)), 0);
    }
}
