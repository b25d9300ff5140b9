//! The emulator's plugin that counts a guest's instructions by task and block (`vm/plugin/`).
//!
//! Problem: it is loaded into QEMU, so it must fit the QEMU that is installed.
//!
//! Approach: it is compiled from its sources once and kept in the cache. Before a guest is built,
//! QEMU is asked whether it supports plugins at all; whether it accepts this one, it reports when
//! it starts.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::{cache, qemu, tool};

/// The compiler.
const COMPILER: &str = "cc";
/// Its flags; a warning is an error.
const FLAGS: [&str; 9] = [
    "-std=gnu11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fPIC",
    "-fvisibility=hidden",
    "-shared",
    "-o",
];

/// The plugin's file, built if necessary.
///
/// # Errors
/// There is no compiler, it does not compile, or QEMU takes no plugins.
pub fn build() -> Result<PathBuf> {
    let help = tool::output(tool::command(qemu::PROGRAM).arg("-help"))?;
    if !help.lines().any(|line| line.starts_with("-plugin ")) {
        bail!(
            "{}: this build of QEMU takes no plugins, so it cannot profile a guest; Debian's does",
            qemu::PROGRAM
        );
    }
    let mut files = fs::read_dir(folder())
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map(|files: Vec<PathBuf>| files)
        .with_context(|| folder().display().to_string())?;
    files.sort();
    let key = cache::key_of(&[&FLAGS.join(" ")], &folder(), &files)?;
    let built = cache::entry("plugins", &key, |entry| {
        let sources = files
            .iter()
            .filter(|file| file.extension() == Some(OsStr::new("c")));
        let mut compile = tool::command(COMPILER);
        compile
            .args(FLAGS)
            .arg(entry.join("profile.so"))
            .args(sources);
        tool::output(&mut compile).map(|_| ())
    })
    .context("building the plugin that counts instructions")?;
    Ok(built.join("profile.so"))
}

/// The value of QEMU's option `-plugin`: the plugin, its output file, whether it models caches, and
/// the programs whose code it distinguishes.
#[must_use]
pub fn option(plugin: &Path, output: &Path, caches: bool, programs: &[PathBuf]) -> OsString {
    let mut option = OsString::from("file=");
    option.push(escaped(plugin));
    option.push(",out=");
    option.push(escaped(output));
    if caches {
        option.push(",caches=on");
    }
    for program in programs {
        option.push(",program=");
        option.push(escaped(program));
    }
    option
}

fn folder() -> PathBuf {
    tool::tree().join("vm/plugin")
}

/// A comma ends a value; two are one.
fn escaped(path: &Path) -> OsString {
    OsString::from(path.to_string_lossy().replace(',', ",,"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// Load address of the test's machine: one MiB, the lowest that the boot protocol allows.
    const LOADED_AT: u32 = 0x10_0000;
    /// Rounds of its loop, of two instructions.
    const ROUNDS: u32 = 100_000;
    /// Elements of its string instruction.
    const ELEMENTS: u32 = 1000;

    /// A kernel by the first multiboot protocol. It opens a window, runs a loop and a repeated
    /// store, closes the window, and ends QEMU.
    fn kernel() -> Vec<u8> {
        let word = u32::to_le_bytes;
        let (magic, flags) = (0x1bad_b002_u32, 0x0001_0000_u32);
        // The header contains its own place, that of the rest of the file, and the entry point
        // behind it.
        let checksum = 0_u32.wrapping_sub(magic).wrapping_sub(flags);
        let addresses = [LOADED_AT, LOADED_AT, 0, 0, LOADED_AT + 32];
        let header = [magic, flags, checksum].into_iter().chain(addresses);
        let mut file: Vec<u8> = header.flat_map(word).collect();
        let mark = |number: u32| [&[0x0f, 0x1f, 0x84, 0x00][..], &word(number)].concat();
        file.extend(mark(0x6b73_5501));
        file.extend([&[0xb9][..], &word(ROUNDS)].concat()); // mov ecx, ROUNDS
        file.extend([0x49, 0x75, 0xfd]); // dec ecx; jnz back
        file.extend([&[0xb9][..], &word(ELEMENTS)].concat()); // mov ecx, ELEMENTS
        file.extend([&[0xbf][..], &word(2 * LOADED_AT)].concat()); // mov edi, free memory
        file.extend([0xfc, 0xf3, 0xab]); // cld; rep stosd
        file.extend(mark(0x6b73_5502));
        file.extend([0xe6, 0xf4]); // out 0xf4, al
        file.extend([0xeb, 0xfe]); // for ever
        file
    }

    #[test]
    fn instructions_of_a_loop_of_known_length_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("counts");
        let kernel_file = folder.path().join("kernel");
        fs::write(&kernel_file, kernel()).unwrap();
        let plugin = option(&build().unwrap(), &output, true, &[]);
        let mut child = tool::command(qemu::PROGRAM)
            .args(["-nodefaults", "-no-user-config", "-display", "none"])
            .args(["-accel", "tcg,thread=single", "-m", "16M"])
            .args(["-icount", "shift=0,sleep=off"])
            .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"])
            .arg("-kernel")
            .arg(&kernel_file)
            .arg("-plugin")
            .arg(plugin)
            .spawn()
            .unwrap();
        let begin = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if begin.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let counts = fs::read_to_string(&output).unwrap();
        let ended = counts.lines().last();
        assert_eq!(ended, Some("end 0"), "{counts}");
        let mut blocks = Vec::new();
        for line in counts.lines().filter(|line| line.starts_with("block ")) {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words[2], "user", "{line}");
            blocks.push(words[5].parse::<u64>().unwrap());
        }
        // The loop, except for its first round, which is in the block of the marker.
        assert!(
            blocks.contains(&(2 * u64::from(ROUNDS) - 2)),
            "no loop: {counts}"
        );
        // A repeated string instruction is one for each element, and one that ends it.
        let rest = blocks.iter().sum::<u64>() - 2 * u64::from(ROUNDS) + 2;
        let elements = u64::from(ELEMENTS);
        assert!((elements..elements + 20).contains(&rest), "{counts}");
        // It wrote 63 lines of one page one after the other. The second is near the first, and
        // these two announce that more will come.
        let accesses = format!("{ELEMENTS} 0 0 0 0 61 1 1 1");
        let memory = counts.lines().find(|line| line.starts_with("memory "));
        assert!(
            memory.is_some_and(|line| line.ends_with(&format!(" user {accesses}"))),
            "{accesses}: {counts}"
        );
    }

    #[test]
    fn a_comma_in_a_path_is_no_end_of_it() {
        let path = Path::new;
        let option = option(
            path("/a,b/p.so"),
            path("/o"),
            false,
            &["/x".into(), "/y,".into()],
        );
        assert_eq!(
            option,
            "file=/a,,b/p.so,out=/o,program=/x,program=/y,,".to_owned()[..]
        );
    }
}
