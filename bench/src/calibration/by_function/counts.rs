//! The output of the emulator's plugin (`vm/plugin/`).
//!
//! A line each: `program NUMBER FILE`; for each window `window NUMBER`, then `owner OWNER
//! PROGRAM|user|kernel`, then `block OWNER PROGRAM|user|kernel ADDRESS LENGTH INSTRUCTIONS`, then,
//! if caches were modelled, `memory OWNER user|kernel ACCESSES L2 L2_BESIDE LLC LLC_BESIDE STREAMED
//! NEAR MEMORY WALKS`, then `end NUMBER`. An owner is a program, or `user`: all programs that are
//! not named, or a task that was only in the kernel. A block is of a program, and then its address
//! is as in the program's file, of other code in user mode, or of the kernel. Units: instructions;
//! a block's length is in instructions, too.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::{FromStr, SplitAsciiWhitespace};

use anyhow::{Context, Result, bail};

use super::hierarchy::Accesses;

/// All windows of a boot.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Files of the named programs.
    pub programs: Vec<PathBuf>,
    /// Windows by their numbers.
    pub windows: BTreeMap<usize, WindowCounts>,
}

/// The counts of one window.
#[derive(Debug, Default)]
pub(super) struct WindowCounts {
    /// The owners of executed code.
    pub owners: BTreeMap<usize, CodeLocation>,
    /// The executed blocks.
    pub blocks: Vec<Block>,
    /// Levels of accesses, by the owner's number and by the code: the kernel's, or other.
    pub memory: BTreeMap<(usize, CodeLocation), Accesses>,
}

/// A program by its number, any other one, or the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CodeLocation {
    /// A named program.
    Program(usize),
    /// Another program.
    User,
    /// The kernel and its modules.
    Kernel,
}

/// Code that is entered at one address, for one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    /// The owner's number.
    pub owner: usize,
    /// The place of the code.
    pub place: CodeLocation,
    /// Its address.
    pub address: u64,
    /// Its length.
    pub length: u64,
    /// Instructions executed in all.
    pub instructions: u64,
}

impl FromStr for CodeLocation {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<CodeLocation> {
        Ok(match text {
            "user" => CodeLocation::User,
            "kernel" => CodeLocation::Kernel,
            number => CodeLocation::Program(number.parse().context("no place")?),
        })
    }
}

impl FromStr for Counts {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Counts> {
        let mut counts = Counts::default();
        let mut open: Option<(usize, WindowCounts)> = None;
        for (number, line) in (1..).zip(text.lines()) {
            take(line, &mut counts, &mut open)
                .with_context(|| format!("line {number}: bad counts '{line}'"))?;
        }
        // A window that was incomplete when the machine ended is left out.
        Ok(counts)
    }
}

fn take(line: &str, counts: &mut Counts, open: &mut Option<(usize, WindowCounts)>) -> Result<()> {
    if let Some(program) = line.strip_prefix("program ") {
        let (_, file) = program.split_once(' ').context("no file")?;
        counts.programs.push(file.into());
        return Ok(());
    }
    let mut words = line.split_ascii_whitespace();
    match words.next().context("empty")? {
        "window" => *open = Some((next(&mut words)?, WindowCounts::default())),
        "end" => {
            let (number, window) = open.take().context("no window is open")?;
            counts.windows.insert(number, window);
        }
        "owner" => {
            let (_, window) = open.as_mut().context("no window is open")?;
            window.owners.insert(next(&mut words)?, next(&mut words)?);
        }
        "block" => {
            let (_, window) = open.as_mut().context("no window is open")?;
            let (owner, place) = (next(&mut words)?, next(&mut words)?);
            let address = words.next().context("no address")?;
            window.blocks.push(Block {
                owner,
                place,
                address: u64::from_str_radix(address, 16)?,
                length: next(&mut words)?,
                instructions: next(&mut words)?,
            });
        }
        "memory" => {
            let (_, window) = open.as_mut().context("no window is open")?;
            let whose = (next(&mut words)?, next(&mut words)?);
            let accesses = Accesses {
                all: next(&mut words)?,
                l2: next(&mut words)?,
                l2_beside: next(&mut words)?,
                llc: next(&mut words)?,
                llc_beside: next(&mut words)?,
                streamed: next(&mut words)?,
                near: next(&mut words)?,
                memory: next(&mut words)?,
                walks: next(&mut words)?,
            };
            window.memory.insert(whose, accesses);
        }
        other => bail!("'{other}' means nothing"),
    }
    Ok(())
}

fn next<T: FromStr>(words: &mut SplitAsciiWhitespace<'_>) -> Result<T> {
    let word = words.next().context("too short")?;
    word.parse().ok().with_context(|| format!("bad '{word}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_read_with_their_owners_and_blocks() {
        let text = "program 0 /a b/uksm\nwindow 0\nowner 0 0\nowner 9 kernel\n\
                    block 0 0 1f40 5 500\nblock 9 kernel ffffffff81000000 2 8\nmemory 9 kernel 9 1 8 2 7 3 6 4 5\nend 0\n\
                    window 1\nblock 8 user 7ffff7fc1000 1 1\nend 1\n";
        let counts: Counts = text.parse().unwrap();
        assert_eq!(counts.programs, [PathBuf::from("/a b/uksm")]);
        let first = &counts.windows[&0];
        assert_eq!(first.owners[&0], CodeLocation::Program(0));
        assert_eq!(first.owners[&9], CodeLocation::Kernel);
        let block = Block {
            owner: 9,
            place: CodeLocation::Kernel,
            address: 0xffff_ffff_8100_0000,
            length: 2,
            instructions: 8,
        };
        assert_eq!(first.blocks[1], block);
        let accesses = Accesses {
            all: 9,
            l2: 1,
            l2_beside: 8,
            llc: 2,
            llc_beside: 7,
            streamed: 3,
            near: 6,
            memory: 4,
            walks: 5,
        };
        assert_eq!(first.memory[&(9, CodeLocation::Kernel)], accesses);
        assert_eq!(counts.windows[&1].blocks[0].place, CodeLocation::User);
    }

    #[test]
    fn a_window_without_its_end_is_left_out() {
        let counts: Counts = "window 0\nend 0\nwindow 1\nowner 0 0\n".parse().unwrap();
        assert_eq!(counts.windows.len(), 1);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for line in [
            "block 0 0 1 1 1",
            "window",
            "window 0\nmemory 0 user 1 2 3",
            "end 0",
            "noise",
            "",
            "window 0\nblock 0 x 1 1 1",
        ] {
            let error = format!("{line}\n").parse::<Counts>().unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains("bad counts"), "{line}: {error}");
        }
    }
}
