//! Stretches of a run whose instructions are counted by function.
//!
//! # Problem
//! The emulator sees the guest's instructions, and knows of no variants.
//!
//! # Approach
//! This program executes an instruction without effect, by which the emulator's plugin recognises
//! the beginning or the end of a window (`vm/plugin/markers.h`). The plugin numbers windows as they
//! are opened, and so does this program.
//!
//! # Units
//! Seconds of CPU and MiB, as everywhere in results.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use uksm_results::report::Window;

/// The displacements that identify the instructions.
const BEGIN: u32 = 0x6b73_5501;
const END: u32 = 0x6b73_5502;

/// Windows opened so far.
static OPENED: AtomicUsize = AtomicUsize::new(0);

/// A window that is open.
#[derive(Debug)]
pub(crate) struct OpenWindow {
    number: usize,
    cpu_before: Duration,
    until_mib: f64,
}

impl OpenWindow {
    /// Opens a window until `until_mib` are saved. `cpu_before` is the system's CPU so far.
    pub(crate) fn open(until_mib: f64, cpu_before: Duration) -> OpenWindow {
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        mark::<BEGIN>();
        OpenWindow {
            number,
            cpu_before,
            until_mib,
        }
    }

    /// Whether it ends at this saving.
    pub(crate) fn ends_with(&self, saved_mib: f64) -> bool {
        saved_mib >= self.until_mib
    }

    /// Closes it. `cpu` is the system's CPU by now.
    pub(crate) fn close(self, cpu: Duration, saved_mib: f64) -> Window {
        mark::<END>();
        Window {
            number: self.number,
            cpu_seconds: cpu.saturating_sub(self.cpu_before).as_secs_f64(),
            saved_mib,
            reached: self.ends_with(saved_mib),
        }
    }
}

/// `nop dword ptr [rax + rax + MARK]`, in the form of eight bytes.
fn mark<const MARK: u32>() {
    // SAFETY: it is a NOP, which touches no memory, register or flag.
    unsafe {
        std::arch::asm!(
            ".byte 0x0f, 0x1f, 0x84, 0x00",
            ".long {mark}",
            mark = const MARK,
            options(nomem, nostack, preserves_flags)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugin_knows_the_same_marks() {
        let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../vm/plugin/markers.h");
        let header = std::fs::read_to_string(header).unwrap();
        for line in [
            format!("#define MARK_BEGIN {BEGIN:#x}u"),
            format!("#define MARK_END {END:#x}u"),
            "#define MARK_OPCODE { 0x0f, 0x1f, 0x84, 0x00 }".to_owned(),
        ] {
            assert!(header.lines().any(|own| own == line), "{line}");
        }
    }

    #[test]
    fn windows_are_numbered_as_they_are_opened_and_say_whether_they_saw_their_end() {
        let first = OpenWindow::open(9.5, Duration::from_secs(1));
        let second = OpenWindow::open(9.5, Duration::ZERO);
        assert!(second.number > first.number);
        let closed = first.close(Duration::from_secs(3), 9.6);
        assert!(closed.reached && (closed.cpu_seconds - 2.0).abs() < 1e-9);
        assert!(!second.close(Duration::from_secs(3), 9.4).reached);
    }
}
