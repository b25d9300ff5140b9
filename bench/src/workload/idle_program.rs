//! A program that does nothing, for processes by the thousand.
//!
//! # Problem
//! Any ordinary program costs a hundred pages and a millisecond to start, and holds the same pages
//! in every process, so that an experiment would merge those.
//!
//! # Approach
//! A file in the kernel's format with a few instructions in it: they map a few pages, write one
//! word to each mapping, and sleep for ever. The starting process may write more, through
//! `/proc/PID/mem`.
//!
//! # Source
//! elf(5); the System V ABI for x86-64.

use std::fs::{self, Permissions};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};

use crate::contents::PAGE;

/// Mappings of a process, besides those that the kernel gives it.
pub(super) const MAPPINGS: usize = 8;
/// Length of each, of which the first page is written.
const MAPPING_BYTES: usize = 2 * PAGE;
/// Distance of two mappings: the space between keeps them apart.
const STRIDE: usize = 2 * MAPPING_BYTES;
/// Address of the first, far from the kernel's own choices.
const FIRST: usize = 0x1000_0000;
/// Address of the mapped file: the usual one of a program that is not relocated.
const BASE: u64 = 0x40_0000;

/// Length of the file's header, and of a row of its table of segments.
const HEADER: u16 = 64;
const SEGMENT: u16 = 56;
const SEGMENTS: u16 = 2;

std::arch::global_asm!(
    ".pushsection .rodata.uksm_idler, \"a\", @progbits",
    ".global uksm_idler",
    "uksm_idler:",
    "mov r12d, {first}",
    "2:",
    "mov eax, 9", // mmap
    "mov edi, r12d",
    "mov esi, {bytes}",
    "mov edx, 3",     // read, write
    "mov r10d, 0x32", // private, anonymous, fixed
    "mov r8, -1",
    "xor r9d, r9d",
    "syscall",
    "mov dword ptr [r12], r12d",
    "add r12d, {stride}",
    "cmp r12d, {end}",
    "jb 2b",
    "3:",
    "mov eax, 34", // pause
    "syscall",
    "jmp 3b",
    ".global uksm_idler_end",
    "uksm_idler_end:",
    ".popsection",
    first = const FIRST,
    bytes = const MAPPING_BYTES,
    stride = const STRIDE,
    end = const FIRST + MAPPINGS * STRIDE,
);

unsafe extern "C" {
    static uksm_idler: u8;
    static uksm_idler_end: u8;
}

/// The instructions, as the assembler left them.
fn code() -> &'static [u8] {
    let (start, end) = (&raw const uksm_idler, &raw const uksm_idler_end);
    let length = end.addr() - start.addr();
    // SAFETY: both symbols are of one read-only section, the second behind the first.
    unsafe { std::slice::from_raw_parts(start, length) }
}

/// Addresses of the pages that a process has written.
pub(super) fn pages() -> impl Iterator<Item = u64> {
    (0..MAPPINGS).map(|mapping| (FIRST + mapping * STRIDE) as u64)
}

/// Writes the program to a file.
pub(super) fn write(path: &Path) -> Result<()> {
    fs::write(path, image()).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(path, Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make {} a program", path.display()))
}

/// The file: a header, one segment with everything in it, and a mark that the stack is not
/// executable.
fn image() -> Vec<u8> {
    let start = HEADER + SEGMENTS * SEGMENT;
    let bytes = u64::from(start) + code().len() as u64;
    let mut image = Vec::new();
    image.extend(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    put(&mut image, &[2_u16, 62]); // a program, x86-64
    put(&mut image, &[1_u32]);
    put(&mut image, &[BASE + u64::from(start), u64::from(HEADER), 0]);
    put(&mut image, &[0_u32]);
    put(&mut image, &[HEADER, SEGMENT, SEGMENTS, 64, 0, 0]);
    let mut segment = |kind: u32, flags: u32, file: Range<u64>, align: u64| {
        put(&mut image, &[kind, flags]);
        let length = file.end - file.start;
        put(
            &mut image,
            &[file.start, BASE + file.start, BASE + file.start],
        );
        put(&mut image, &[length, length, align]);
    };
    segment(1, 5, 0..bytes, PAGE as u64); // to be mapped; read, execute
    segment(0x6474_e551, 6, 0..0, 16); // the stack; read, write
    image.extend(code());
    image
}

/// Appends numbers in x86-64's byte order.
fn put<N: Copy + Into<u64>>(image: &mut Vec<u8>, numbers: &[N]) {
    for &number in numbers {
        let bytes: u64 = number.into();
        image.extend(&bytes.to_le_bytes()[..size_of::<N>()]);
    }
}
