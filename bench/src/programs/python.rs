//! Real Python processes as a workload: each imports the same modules, or one builds them.
//!
//! # Problem
//! Processes that load the same code from the same files hold similar memory, and its equal pages
//! are not planned.
//!
//! # Approach
//! A process waits, imports large modules of the standard library on command, and waits again. At
//! the end it reports a digest of all its code, which must be the same in all. Or it reads sources
//! of the library, and compiles them to files or sums up the read bytes, or only moves or touches
//! memory or forks.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::line_program::LineProgram;
use super::program_setup::ProgramSetup;

/// The interpreter, where the harness packs it (`uksm-vm run --python`).
const PROGRAM: &str = "/usr/bin/python3";

/// The program of a process; commands and answers are lines.
const SCRIPT: &str = r"
import sys
import importlib, pkgutil, types, zlib
OMITTED = {'antigravity', 'this', 'idlelib', 'tkinter', 'turtle', 'turtledemo', 'test', 'ensurepip', 'lib2to3'}
names = sorted(module.name for module in pkgutil.iter_modules([importlib.__path__[0] + '/..']))
names = [name for name in names if name not in OMITTED and not name.startswith('_')]
sys.stdin.readline()
for name in sys.argv[1:] or names:
    try:
        importlib.import_module(name)
    except ImportError:
        pass
print('imported', len(sys.modules), flush=True)
while sys.stdin.readline():
    crc = 0
    for name in sorted(sys.modules):
        for key, value in sorted(vars(sys.modules[name]).items()):
            if isinstance(value, types.FunctionType):
                crc = zlib.crc32(value.__code__.co_code, crc)
    print('digest', crc, flush=True)
";

/// The program of a process that builds, reads, moves or touches memory or forks: a number of
/// files, MiB or forks, and of repetitions.
const WORK: &str = r"
import sys
import marshal, mmap, os, random, zlib
work, most, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
top = os.path.dirname(os.__file__)
names = sorted(os.path.join(top, name) for name in os.listdir(top) if name.endswith('.py'))
files = [name for name in names if os.path.isfile(name)][:most]
if work == 'memory':
    memory = memoryview(bytearray(random.Random(7).randbytes(most << 20)))
    print('ready', most, flush=True)
else:
    print('ready', len(files), flush=True)
sys.stdin.readline()
COMPILE = '''
import marshal, sys
with open(sys.argv[1], 'rb') as source:
    text = marshal.dumps(compile(source.read(), sys.argv[1], 'exec'))
with open(sys.argv[2], 'wb') as built:
    built.write(text)
'''
def make(files, crc):
    waiting, running = list(enumerate(files)), 0
    while waiting or running:
        while waiting and running < 4:
            number, name = waiting.pop(0)
            arguments = [sys.executable, '-B', '-S', '-c', COMPILE, name, f'/tmp/built-{number}']
            os.posix_spawn(sys.executable, arguments, os.environ)
            running += 1
        running -= 1
        if os.wait()[1]:
            sys.exit('a compiler failed')
    for number in range(len(files)):
        with open(f'/tmp/built-{number}', 'rb') as built:
            crc = zlib.crc32(built.read(), crc)
    return crc
crc = 0
for _ in range(times):
    if work == 'memory':
        memory[:-64] = memory[64:]
        continue
    if work == 'make':
        crc = make(files, crc)
        continue
    for name in files:
        if work == 'fault':
            with mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
                memory[::4096] = bytes(256)
            continue
        if work == 'table':
            with mmap.mmap(-1, 128 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
                memory.madvise(mmap.MADV_NOHUGEPAGE)
                memory[::2 << 20] = bytes(64)
            continue
        if work == 'fork':
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
            continue
        with open(name, 'rb') as source:
            text = source.read()
        if work == 'build':
            text = marshal.dumps(compile(text, name, 'exec'))
            with open('/tmp/built', 'wb') as built:
                built.write(text)
        crc = zlib.crc32(text, crc)
if work == 'memory':
    crc = zlib.crc32(memory)
print('done', crc, flush=True)
sys.stdin.readline()
";

/// A running process. Dropping it ends it.
pub(crate) struct Python {
    program: LineProgram,
    made: u64,
}

impl Python {
    /// Starts a process that waits; `mergeable` offers it to in-kernel KSM. `alike` fixes all
    /// values that Python draws for each process.
    pub(crate) fn start(mergeable: bool, alike: bool) -> Result<Python> {
        Python::run(SCRIPT, &[], ProgramSetup::host(mergeable), alike)
    }

    /// Starts a process that waits, to import these modules alone: with Python's random values for
    /// each process, as in any service.
    pub(crate) fn service(modules: &[&str], program_setup: ProgramSetup) -> Result<Python> {
        let modules: Vec<String> = modules.iter().map(|&name| name.to_owned()).collect();
        Python::run(SCRIPT, &modules, program_setup, false)
    }

    /// Starts a process that waits to work on the first `files` sources of the standard library,
    /// `times` times: to `build` each, or to `read` it, or to `make` all with four compilers at a
    /// time, each a process. For `memory` it fills this many MiB and moves them by 64 bytes,
    /// `times` times. For `fault` it maps a MiB for each and touches its pages, for `table` it maps
    /// 128 MiB for each and touches a page in 2 MiB, for `fork` it forks a child that ends.
    /// `mergeable` offers it to in-kernel KSM.
    pub(crate) fn worker(work: &str, files: u32, times: u32, mergeable: bool) -> Result<Python> {
        let arguments = [work.to_owned(), files.to_string(), times.to_string()];
        let mut python = Python::run(WORK, &arguments, ProgramSetup::host(mergeable), true)?;
        let found = python.answer("ready ")?;
        ensure!(found == u64::from(files), "the library has {found} files");
        Ok(python)
    }

    /// Makes it work; returns a digest of its results.
    pub(crate) fn work(&mut self) -> Result<u64> {
        self.program.command("work")?;
        self.made = self.answer("done ")?;
        Ok(self.made)
    }

    /// The digest of its last results; 0 before.
    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    fn run(
        script: &str,
        arguments: &[String],
        program_setup: ProgramSetup,
        alike: bool,
    ) -> Result<Python> {
        let mut command = Command::new(PROGRAM);
        command
            .args(["-B", "-c", script])
            .args(arguments)
            .env("PYTHONHOME", "/usr")
            .env("PYTHONHASHSEED", if alike { "0" } else { "random" });
        program_setup.set(&mut command);
        let program = LineProgram::start("Python", &mut command)
            .with_context(|| format!("cannot start {PROGRAM}: boot with --python"))?;
        Ok(Python { program, made: 0 })
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Makes it import; it does so beside others with the same command.
    pub(crate) fn import(&mut self) -> Result<()> {
        self.program.command("import")
    }

    /// Waits until it has imported; returns the number of its modules.
    pub(crate) fn imported(&mut self) -> Result<u64> {
        self.answer("imported ")
    }

    /// A digest of its code.
    pub(crate) fn digest(&mut self) -> Result<u64> {
        self.program.command("digest")?;
        self.answer("digest ")
    }

    fn answer(&mut self, word: &str) -> Result<u64> {
        // A module may print text when it is imported.
        self.program.answer(word, |_| {})
    }
}
