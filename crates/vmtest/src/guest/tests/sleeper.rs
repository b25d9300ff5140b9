//! Tiny 32-bit programs: one fills its memory and sleeps, one calls the device.
//!
//! # Problem
//! A 32-bit process, a 32-bit caller of the device, and a program to execute in place of another
//! are needed in a guest that has no other programs, on machines without a 32-bit compiler.
//!
//! # Approach
//! An ELF file of one segment is written byte by byte. The sleeper's code fills the memory behind
//! it (its .bss) with one word and calls pause(2) for ever through the 32-bit gate; the asker's
//! opens the device, asks INFO, and exits with the first word of the answer.
//!
//! # Source
//! System V ABI, Intel386 supplement: ELF header and program header.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use uksm_linux::module::raw;

/// Where the segment is loaded.
const LOAD: u32 = 0x0804_8000;

/// Where its filled memory starts.
pub const BSS_START: u32 = LOAD + 0x1000;

/// How many pages it fills.
pub const BSS_PAGES: usize = 64;

/// What it fills them with.
pub const WORD: u32 = 0x600D_F00D;

const HEADERS: u32 = 52 + 32;

/// Writes the sleeper to a file.
///
/// # Panics
/// If it cannot be written.
pub fn write_sleeper(path: &str) {
    let words = u32::try_from(BSS_PAGES * 1024).expect("few pages");
    let mut code = vec![0xFC]; // cld
    code.push(0xBF); // mov edi, BSS_START
    code.extend(BSS_START.to_le_bytes());
    code.push(0xB9); // mov ecx, words
    code.extend(words.to_le_bytes());
    code.push(0xB8); // mov eax, WORD
    code.extend(WORD.to_le_bytes());
    code.extend([0xF3, 0xAB]); // rep stosd
    code.extend([0xB8, 29, 0, 0, 0]); // mov eax, __NR_pause
    code.extend([0xCD, 0x80]); // int 0x80
    code.extend([0xEB, 0xF7]); // jmp back to the mov

    write_program(path, &code);
}

/// Writes the asker to a file: its exit status is the API version, or 99 if a call failed.
///
/// # Panics
/// If it cannot be written.
pub fn write_asker(path: &str) {
    const DEVICE: &[u8] = b"/dev/uksm\0";
    const LENGTH: u32 = 60;
    let device = LOAD + HEADERS + LENGTH;
    let mut code = vec![0xB8, 5, 0, 0, 0]; // mov eax, __NR_open
    code.push(0xBB); // mov ebx, device
    code.extend(device.to_le_bytes());
    code.extend([0xB9, 2, 0, 0, 0]); // mov ecx, O_RDWR
    code.extend([0xCD, 0x80]); // int 0x80
    code.extend([0x89, 0xC3]); // mov ebx, eax
    code.extend([0xB8, 54, 0, 0, 0]); // mov eax, __NR_ioctl
    code.push(0xB9); // mov ecx, UKSM_IOC_INFO
    code.extend(raw::UKSM_IOC_INFO.to_le_bytes());
    code.push(0xBA); // mov edx, BSS_START
    code.extend(BSS_START.to_le_bytes());
    code.extend([0xCD, 0x80]); // int 0x80
    code.extend([0x85, 0xC0, 0x75, 0x08]); // test eax, eax; jnz to the 99
    code.extend([0x8B, 0x1D]); // mov ebx, [BSS_START]
    code.extend(BSS_START.to_le_bytes());
    code.extend([0xEB, 0x05]); // jmp over the 99
    code.extend([0xBB, 99, 0, 0, 0]); // mov ebx, 99
    code.extend([0xB8, 1, 0, 0, 0]); // mov eax, __NR_exit
    code.extend([0xCD, 0x80]); // int 0x80
    code.extend(DEVICE);
    assert_eq!(code.len(), LENGTH as usize + DEVICE.len());
    write_program(path, &code);
}

/// Writes a program of this code, which may use [`BSS_PAGES`] pages from [`BSS_START`] on.
fn write_program(path: &str, code: &[u8]) {
    let words = u32::try_from(BSS_PAGES * 1024).expect("few pages");
    let mut file = Vec::new();
    file.extend(b"\x7FELF\x01\x01\x01"); // 32-bit, little-endian
    file.resize(16, 0);
    file.extend([2, 0, 3, 0]); // an executable for the 386
    for word in [1, LOAD + HEADERS, 52, 0, 0] {
        file.extend(u32::to_le_bytes(word)); // version, entry, program headers, sections, flags
    }
    for half in [52u16, 32, 1, 40, 0, 0] {
        file.extend(half.to_le_bytes()); // sizes and counts of headers
    }
    let length = HEADERS + u32::try_from(code.len()).expect("short code");
    let memory = 0x1000 + words * 4;
    for word in [1, 0, LOAD, LOAD, length, memory, 7, 0x1000] {
        file.extend(u32::to_le_bytes(word)); // one loadable segment, rwx
    }
    file.extend(code);
    fs::write(path, file).unwrap_or_else(|error| panic!("{path}: {error}"));
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, executable).unwrap_or_else(|error| panic!("{path}: {error}"));
}
