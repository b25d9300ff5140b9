//! A tiny 32-bit program that fills its memory and sleeps.
//!
//! # Problem
//! A 32-bit process, and a program to execute in place of another, are needed in a guest that has
//! no other programs, on machines without a 32-bit compiler.
//!
//! # Approach
//! An ELF file of one segment is written byte by byte: its code fills the memory behind it (its
//! .bss) with one word and calls pause(2) for ever through the 32-bit gate.
//!
//! # Source
//! System V ABI, Intel386 supplement: ELF header and program header.

use std::fs;

/// Where the segment is loaded.
const LOAD: u32 = 0x0804_8000;

/// Where its filled memory starts.
pub const BSS_START: u32 = LOAD + 0x1000;

/// How many pages it fills.
pub const BSS_PAGES: usize = 64;

/// What it fills them with.
pub const WORD: u32 = 0x600D_F00D;

const HEADERS: u32 = 52 + 32;

/// Writes the program to a file.
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
}
