//! `uksm exec`: starts a program so that in-kernel KSM may merge its memory.
//!
//! # Problem
//! Only a process itself can offer its memory. Programs do not.
//!
//! # Approach
//! With `--merge all` the kernel is asked, before the program begins, to let all of the process be
//! merged; this lasts over fork and exec, needs no daemon and no library, and ksmd alone decides
//! where merging pays. With `--merge advised` the dynamic linker loads the agent into the program;
//! the agent takes advice from a daemon with `--backend ksm`, now or later. A static program loads
//! no library: it is refused with an error, not silently left unmerged.
//!
//! # Source
//! prctl(2) (`PR_SET_MEMORY_MERGE`, Linux 6.4), ld.so(8).

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, anyhow};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use rustix::io::Errno;

use crate::cli::{ExecArgs, Merge};
use crate::failure::Failure;
use crate::log::print_line;

/// The variable from which the agent gets the daemon's socket; `uksm_interface::advice` has the
/// same name.
const SOCKET_VARIABLE: &str = uksm_linux::ksm::agents::SOCKET_VARIABLE;

/// The library's name.
const LIBRARY: &str = "libuksm_agent.so";

/// Folders where `make install` and packages put it, relative to the program.
const FOLDERS: [&str; 3] = ["../lib/uksm", "../libexec/uksm", "."];

/// Becomes the program.
///
/// # Errors
/// It cannot be started with merging: one line, and it was not started.
pub(crate) fn exec(args: &ExecArgs) -> Result<(), Failure> {
    let (program, rest) = args.command.split_first().ok_or_else(|| {
        Failure::usage("exec: no command: uksm exec -- COMMAND ARGUMENTS".to_owned())
    })?;
    let mut command = Command::new(program);
    command.args(rest);
    match args.merge {
        Merge::All => offer_all()?,
        Merge::Advised => {
            let library = library(args.agent.as_deref())?;
            let path = found(Path::new(program));
            if path.as_deref().is_some_and(is_static) {
                return Err(anyhow!(
                    "{}: is linked statically and loads no library: take --merge all",
                    Path::new(program).display()
                )
                .into());
            }
            command.env("LD_PRELOAD", preload(&library));
            command.env(SOCKET_VARIABLE, &args.agent_socket);
        }
    }
    let error = command.exec();
    Err(anyhow!("{}: {error}", Path::new(program).display()).into())
}

/// Lets the kernel merge all memory of this process, and of the program that it becomes.
fn offer_all() -> anyhow::Result<()> {
    match uksm_linux::ksm::memory::offer_all() {
        Err(Errno::INVAL) => Err(anyhow!(
            "--merge all: this kernel has no PR_SET_MEMORY_MERGE (Linux 6.4): take --merge advised"
        )),
        Err(errno) => Err(errno).context("--merge all: prctl"),
        Ok(()) => {
            if uksm_linux::ksm::memory::keeps_mappings_apart().unwrap_or(false) {
                print_line(
                    "--merge all: this kernel joins no neighboring mappings of such a program (Linux 6.4 to 6.16): one \
                     that makes many mappings needs a higher vm.max_map_count, or --merge advised",
                );
            }
            Ok(())
        }
    }
}

/// The library: the named one, or the one beside this program.
fn library(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let found = match named {
        Some(path) => Some(path.to_owned()).filter(|path| path.is_file()),
        None => {
            let paths = FOLDERS.iter().map(|at| folder.join(at).join(LIBRARY));
            paths.into_iter().find(|path| path.is_file())
        }
    };
    let looked = named.map_or(folder.join(FOLDERS[0]).join(LIBRARY), Path::to_owned);
    let found = found.ok_or_else(|| {
        anyhow!(
            "{}: no agent there: install it (`make install`), name it with --agent, or take --merge all",
            looked.display()
        )
    })?;
    let whole = found
        .canonicalize()
        .with_context(|| found.display().to_string())?;
    match whole.to_string_lossy().contains([' ', ':']) {
        // The dynamic linker takes both for separators.
        true => Err(anyhow!(
            "{}: LD_PRELOAD takes no path with a space or colon",
            whole.display()
        )),
        false => Ok(whole),
    }
}

/// The library, before those that are preloaded already.
fn preload(library: &Path) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        value.push(":");
        value.push(before);
    }
    value
}

/// The file of a program's name.
fn found(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return Some(program.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// Whether the program runs without a dynamic linker. A file that is not ELF has an interpreter, of
/// which nothing is known.
fn is_static(path: &Path) -> bool {
    let Ok(bytes) = std::fs::read(path) else {
        return false;
    };
    let Ok(header) = object::elf::FileHeader64::<object::Endianness>::parse(&*bytes) else {
        return false;
    };
    let Ok(endian) = header.endian() else {
        return false;
    };
    let Ok(segments) = header.program_headers(endian, &*bytes) else {
        return false;
    };
    !segments
        .iter()
        .any(|segment| segment.p_type(endian) == object::elf::PT_INTERP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_a_dynamic_linker_are_recognized() {
        let shell = found(Path::new("sh")).unwrap();
        assert!(!is_static(&shell), "{}", shell.display());
        // The dynamic linker itself has none.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let linker = maps.lines().find_map(|line| {
            let path = line.split_whitespace().nth(5)?;
            path.contains("/ld-linux").then(|| PathBuf::from(path))
        });
        if let Some(linker) = linker {
            assert!(is_static(&linker));
        }
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert!(!is_static(&script) && !is_static(&folder.path().join("none")));
    }

    #[test]
    fn what_was_preloaded_stays() {
        // LD_PRELOAD is not set in tests.
        let value = preload(Path::new("/a/libuksm_agent.so"));
        let text = value.to_string_lossy().into_owned();
        assert!(text.starts_with("/a/libuksm_agent.so"), "{text}");
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let line = library(Some(Path::new("/none/x.so")))
            .unwrap_err()
            .to_string();
        assert!(line.starts_with("/none/x.so: no agent there"), "{line}");
    }
}
