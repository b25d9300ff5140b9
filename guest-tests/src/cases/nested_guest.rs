//! A virtual machine whose memory is merged under it.
//!
//! # Problem
//! KVM translates guest addresses by page tables of its own. If it is not notified that a page is
//! exchanged, the guest goes on writing to the old one.
//!
//! # Approach
//! A machine of one page of real-mode code runs in a peer: it reads a word and reports it by an
//! output instruction, after which the test merges the page; it writes the word, and reports the
//! word that it reads. The guest and the process that runs it must see the same. The negative
//! control leaves out the notification; the page is held by a pipe so that the stray write hits
//! nothing else.
//!
//! # Source
//! Intel SDM volume 2 for the code; Documentation/virt/kvm/api.rst.

use kvm_ioctls::VcpuExit;
use uksm_policy::command::Status;

use super::Context;
use crate::fixtures::contents::PAGE;
use crate::fixtures::domain::{Domain, Permit};
use crate::fixtures::fault_switches::{NO_NOTIFIER, NO_REFERENCES, with_faults};
use crate::fixtures::kvm::{load_kvm, machine_of};
use crate::fixtures::memory::Memory;
use crate::fixtures::peer::{Own, Peer};
use crate::fixtures::pins::Splice;

cases! { "nested_guest":
    a_guest_of_kvm_keeps_its_writes_when_its_memory_is_merged Normal Nested 90,
    without_the_notification_a_guest_of_kvm_loses_writes NegativeControl NestedFaults 90,
}

/// Pages of the guest: all that its 16-bit addresses can reach.
const PAGES: usize = 16;
/// The page of its code.
const CODE_PAGE: usize = 1;
/// The page that is merged.
const DATA_PAGE: usize = 8;
/// Every 16-bit word of it at first.
const OLD: u16 = 0xBEEF;
/// The word that the guest writes.
const NEW: u16 = 0x1234;

/// Reports the first two words of the data page, writes the first, and reports them again.
const CODE: [u8; 27] = [
    0xA1, 0x00, 0x80, // mov ax, [0x8000]
    0xE7, 0x10, // out 0x10, ax
    0xA1, 0x02, 0x80, // mov ax, [0x8002]
    0xE7, 0x10, // out 0x10, ax
    0xB8, 0x34, 0x12, // mov ax, 0x1234
    0xA3, 0x00, 0x80, // mov [0x8000], ax
    0xA1, 0x00, 0x80, // mov ax, [0x8000]
    0xE7, 0x10, // out 0x10, ax
    0xA1, 0x02, 0x80, // mov ax, [0x8002]
    0xE7, 0x10, // out 0x10, ax
    0xF4, // hlt
];

fn words_of(word: u16) -> u64 {
    u64::from(word) * 0x0001_0001_0001_0001
}

fn fill_data(memory: &mut Memory, page: usize) {
    for word in 0..PAGE / 8 {
        memory.set_word(page, word, words_of(OLD));
    }
}

/// Makes a machine of the peer's memory that is ready to run; with `held`, its data page is also in
/// a pipe.
fn build(own: &mut Own, held: bool) {
    let memory = &mut own.memory;
    fill_data(memory, DATA_PAGE);
    let mut code = CODE.to_vec();
    code.resize(CODE.len().next_multiple_of(8), 0);
    for (at, bytes) in code.chunks_exact(8).enumerate() {
        memory.set_word(
            CODE_PAGE,
            at,
            u64::from_le_bytes(bytes.try_into().expect("8 bytes")),
        );
    }
    let machine = machine_of(memory, PAGES);
    let cpu = &machine.cpu;
    let mut segments = cpu.get_sregs().expect("KVM_GET_SREGS");
    for segment in [&mut segments.cs, &mut segments.ds] {
        (segment.base, segment.selector) = (0, 0);
    }
    cpu.set_sregs(&segments).expect("KVM_SET_SREGS");
    let mut registers = cpu.get_regs().expect("KVM_GET_REGS");
    (registers.rip, registers.rflags) = ((CODE_PAGE * PAGE) as u64, 2);
    cpu.set_regs(&registers).expect("KVM_SET_REGS");
    own.splice = held.then(|| Splice::new(memory, DATA_PAGE..DATA_PAGE + 1));
    own.machine = Some(machine);
}

/// Runs the machine until it reports a word, or halts.
fn next_report(own: &mut Own) -> Option<u16> {
    let machine = own.machine.as_mut().expect("a machine");
    match machine.cpu.run().expect("KVM_RUN") {
        VcpuExit::IoOut(0x10, data) => Some(u16::from_le_bytes(
            data.try_into().expect("a word is two bytes"),
        )),
        VcpuExit::Hlt => None,
        other => panic!("the guest should report or halt, not {other:?}"),
    }
}

/// Merges the data page of a running machine: (was it merged, words that it reports, the host's
/// word after its write, the word of the page's partner).
fn run_merged(held: bool) -> (bool, Vec<u16>, u64, u64) {
    let mut host = Peer::new(PAGES);
    let mut partner = Peer::new(PAGES);
    partner.run(|own| fill_data(&mut own.memory, DATA_PAGE));
    host.run(move |own| build(own, held));
    let mut reports = vec![host.run(next_report).expect("a report")];
    let mut domain = Domain::open();
    let spaces = [domain.attach(&partner), domain.attach(&host)];
    let counts = domain.merge(&spaces, DATA_PAGE..DATA_PAGE + 1, Permit::default());
    while let Some(word) = host.run(next_report) {
        reports.push(word);
    }
    let host_sees = host.run(|own| own.memory.word(DATA_PAGE, 0));
    let partner_sees = partner.run(|own| own.memory.word(DATA_PAGE, 0));
    host.run(|own| own.machine = None);
    (
        counts.of(Status::Merged) == 2,
        reports,
        host_sees,
        partner_sees,
    )
}

const WRITTEN: u64 = 0xBEEF_BEEF_BEEF_1234;

fn a_guest_of_kvm_keeps_its_writes_when_its_memory_is_merged(context: &mut Context) {
    load_kvm(context);
    let (merged, reports, host, partner) = run_merged(false);
    assert!(merged, "the guest's page should merge");
    assert_eq!(reports, [OLD, OLD, NEW, OLD], "what the guest reads");
    assert_eq!(
        host, WRITTEN,
        "the host should see what the guest wrote: {host:#x}"
    );
    assert_eq!(
        partner,
        words_of(OLD),
        "the partner should not see it: {partner:#x}"
    );
}

fn without_the_notification_a_guest_of_kvm_loses_writes(context: &mut Context) {
    load_kvm(context);
    let right = (true, vec![OLD, OLD, NEW, OLD], WRITTEN, words_of(OLD));
    assert_eq!(
        with_faults(context, NO_REFERENCES, || run_merged(true)),
        right
    );
    let wrong = with_faults(context, NO_REFERENCES | NO_NOTIFIER, || run_merged(true));
    context.note(format!("without the notification: {wrong:x?}"));
    assert!(wrong.0, "the guest's page should merge");
    assert_ne!(
        wrong, right,
        "without the notification the guest's write should be lost"
    );
}
