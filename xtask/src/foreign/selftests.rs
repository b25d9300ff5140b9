//! The kernel's own tests of its memory management, built from the distribution's source.
//!
//! # Problem
//! They belong to their kernel: each series has others, and they are in no package.
//!
//! # Approach
//! The parts of the source package of the kernel's series that the tests need are unpacked and
//! built by the tests' own makefile, linked statically against libraries whose packages are only
//! unpacked. The programs go to the cache. A test that a series lacks, or that does not build, is
//! in no arm; the run reports it.
//!
//! # Source
//! `tools/testing/selftests/mm` (`vm` before 6.3), and the script `run_vmtests.sh` in it, from
//! which the arguments come; those of stress programs are smaller here, for emulated machines.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use uksm_guest_tests::foreign::schedule::{Allowed, Dialect, Item, SUITE_DIR};
use uksm_vm::kernel::Series;
use uksm_vm::source::KernelSource;
use uksm_vm::{cache, packages, tool};

/// Version of the build: increased with every change of it.
const RECIPE: &str = "5";
/// The parts of the source that they need.
const PARTS: [&str; 9] = [
    "Makefile",
    "Kbuild",
    "Kconfig",
    "arch/x86",
    "include",
    "mm/gup_test.h",
    "scripts",
    "tools",
    "usr",
];
/// Packages with the static libraries that they need.
const LIBRARIES: [&str; 3] = ["libcap-dev", "libnuma-dev", "liburing-dev"];
/// The changes: file, and command of sed. The first two are made smaller for an emulated machine:
/// one repeats the same for a minute, several times, in the other each test takes a fault a page,
/// of 8192. One test is removed from the third on 6.1, whose folder that is: there it finds at
/// another of 512 pages in each run, with and without the module, that it got no huge one, and the
/// program ends with all later tests untried. Retries, by faults or by madvise, did not help.
const CHANGES: [(&str, &str); 3] = [
    (
        "migration.c",
        r"s/^#define RUNTIME[ \t]*([0-9]*)/#define RUNTIME (3)/",
    ),
    ("uffd-unit-tests.c", r"s/(32UL << 20)/(4UL << 20)/"),
    (
        "../vm/khugepaged.c",
        r"/^[ \t]*TEST(collapse_compound_extreme,/d",
    ),
];

/// Built programs of one series.
#[derive(Debug, Clone)]
pub struct Selftests {
    /// Their folder.
    pub folder: PathBuf,
    /// Their names.
    pub programs: BTreeSet<String>,
}

/// Builds the tests of a series, or takes them from the cache.
///
/// # Errors
/// The source is not available, or no test builds.
pub fn get(series: Series) -> Result<Selftests> {
    let source = KernelSource::of(series)?;
    let package = source.package();
    let key = format!("{}_{RECIPE}", package.version);
    let folder = cache::entry("selftests", &key, |folder| {
        eprintln!(
            "building the self-tests of {} {}",
            package.name, package.version
        );
        let scratch = tempfile::tempdir().context("folder of the source")?;
        source.extract(scratch.path(), &PARTS)?;
        build(scratch.path(), folder)
    })?;
    let programs: BTreeSet<String> = fs::read_dir(&folder)
        .with_context(|| folder.display().to_string())?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    if programs.is_empty() {
        bail!("{}: no self-test was built", folder.display());
    }
    Ok(Selftests { folder, programs })
}

fn build(tree: &Path, target: &Path) -> Result<()> {
    let libraries = tree.join("libraries");
    fs::create_dir(&libraries)?;
    let offered: Vec<_> = LIBRARIES
        .iter()
        .map(|&name| packages::candidate(name)?.with_context(|| packages::unknown(name)))
        .collect::<Result<_>>()?;
    packages::unpack(&offered, &libraries)?;
    let tests = ["mm", "vm"]
        .map(|name| tree.join("tools/testing/selftests").join(name))
        .into_iter()
        .find(|folder| folder.is_dir())
        .context("the source has no self-tests of memory management")?;
    for (file, change) in CHANGES {
        let file = tests.join(file);
        if file.exists() {
            tool::output(tool::command("sed").args(["-i", change]).arg(file))?;
        }
    }
    make(tree, &["headers"], &[])?;
    let output = tree.join("built");
    fs::create_dir(&output)?;
    let flags = format!(
        "-static -isystem {0}/usr/include -L{0}/usr/lib/x86_64-linux-gnu",
        libraries.display()
    );
    let settings = [
        format!("OUTPUT={}", output.display()),
        format!("KHDR_INCLUDES=-isystem {}/usr/include", tree.display()),
        // One of their scripts searches for liburing with the bare compiler.
        format!("CC=gcc -isystem {}/usr/include", libraries.display()),
        format!("EXTRA_CFLAGS={flags}"),
    ];
    // Some do not build: those that need a header outside of these parts, or a 32-bit C library.
    let _some_fail = make(&tests, &["-k"], &settings);
    // This program of 6.12 lacks a header that all others include.
    let khugepaged = output.join("khugepaged");
    if !khugepaged.exists() {
        let mut settings = settings.to_vec();
        settings.pop();
        settings.push(format!("EXTRA_CFLAGS={flags} -include ../kselftest.h"));
        make(&tests, &[&khugepaged.to_string_lossy()], &settings)?;
    }
    for entry in fs::read_dir(&output)? {
        let path = entry?.path();
        let name = path.file_name().context("an entry has a name")?;
        let target = target.join(name);
        tool::output(tool::command("strip").arg("-o").arg(&target).arg(&path))?;
    }
    Ok(())
}

fn make(folder: &Path, targets: &[&str], settings: &[String]) -> Result<()> {
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut make = tool::command("make");
    make.arg("-C")
        .arg(folder)
        .arg(format!("-j{jobs}"))
        .arg("ARCH=x86_64")
        .args(targets)
        .args(settings)
        // Variables of a make that runs us would reach this one.
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .env_remove("MFLAGS");
    tool::output(&mut make).map(drop)
}

/// A self-test and its arguments.
struct Test {
    program: &'static str,
    arguments: &'static [&'static str],
    bound: u64,
    endless: bool,
    allowed: Allowed,
}

const fn test(program: &'static str, arguments: &'static [&'static str], bound: u64) -> Test {
    Test {
        program,
        arguments,
        bound,
        endless: false,
        allowed: Allowed::FULL,
    }
}

impl Test {
    /// The test, with a torturer that leaves out actions which the test checks.
    const fn with(self, allowed: Allowed) -> Self {
        Self { allowed, ..self }
    }
}

/// For tests that check that their huge pages are still huge, or that compare two readings of a
/// page table: during any split of a huge page its entries are those of a migration, which pagemap
/// shows as swapped out.
const KEEP_HUGE: Allowed = Allowed {
    split: false,
    ..Allowed::FULL
};
/// For tests that compare the RSS of untouched, mlocked pages with the mapping's size.
const KEEP_RSS: Allowed = Allowed {
    zero: false,
    ..Allowed::FULL
};

/// Left out: `hmm-tests` (needs a module that stock kernels lack), `hugetlb-soft-offline` and
/// `hugetlb-read-hwpoison` (they take memory of the machine away for good), `write_to_hugetlbfs` (a
/// part of a script about cgroups), `virtual_address_range` (maps 128 TiB in steps, which takes an
/// emulated machine minutes). `uffd-unit-tests` runs once for each of its tests, so that one that
/// hangs on a slow machine does not hide the others; a name stands for all that contain it.
const TESTS: &[Test] = &[
    test("cow", &[], 300).with(KEEP_HUGE),
    test("gup_longterm", &[], 120),
    test("gup_test", &["-ct", "-F", "0x1", "0", "19", "0x1000"], 60),
    test("mkdirty", &[], 60).with(KEEP_HUGE),
    test("madv_populate", &[], 60),
    test("mremap_test", &[], 240),
    test("mremap_dontunmap", &[], 60),
    test("map_fixed_noreplace", &[], 60),
    test("map_populate", &[], 60),
    test("mseal_test", &[], 120),
    test("seal_elf", &[], 60),
    test("mdwe_test", &[], 60),
    test("droppable", &[], 60),
    test("memfd_secret", &[], 60),
    test("mlock-random-test", &[], 60),
    test("mlock2-tests", &[], 60).with(KEEP_RSS),
    test("on-fault-limit", &[], 60),
    test("mrelease_test", &[], 60),
    test("pagemap_ioctl", &[], 300),
    test("soft-dirty", &[], 120).with(KEEP_HUGE),
    test("migration", &[], 120),
    test("protection_keys_64", &[], 180),
    test("pkey_sighandler_tests_64", &[], 60),
    test("uffd-unit-tests", &["-f", "register-ioctls"], 45),
    test("uffd-unit-tests", &["-f", "zeropage"], 45),
    test("uffd-unit-tests", &["-f", "move"], 90),
    test("uffd-unit-tests", &["-f", "wp-fork"], 45),
    test("uffd-unit-tests", &["-f", "wp-unpopulated"], 45),
    test("uffd-unit-tests", &["-f", "minor"], 90),
    test("uffd-unit-tests", &["-f", "sigbus"], 45),
    test("uffd-unit-tests", &["-f", "events"], 120),
    test("uffd-unit-tests", &["-f", "poison"], 90),
    test("uffd-stress", &["anon", "8", "4"], 120),
    test("uffd-stress", &["shmem", "8", "4"], 120),
    test("uffd-stress", &["shmem-private", "8", "4"], 120),
    test("uffd-stress", &["hugetlb", "32", "4"], 120),
    test("uffd-stress", &["hugetlb-private", "32", "4"], 120),
    test("userfaultfd", &["anon", "8", "4"], 120),
    test("userfaultfd", &["anon:dev", "8", "4"], 120),
    test("userfaultfd", &["shmem", "8", "4"], 120),
    test("userfaultfd", &["hugetlb", "32", "4"], 120),
    test(
        "userfaultfd",
        &["hugetlb_shared", "32", "4", "/huge/uffd"],
        120,
    ),
    test("ksm_functional_tests", &[], 120),
    test("ksm_tests", &["-M", "-p", "10"], 60),
    test("ksm_tests", &["-U"], 60),
    test("ksm_tests", &["-Z", "-p", "10", "-z", "0"], 60),
    test("ksm_tests", &["-Z", "-p", "10", "-z", "1"], 60),
    test("ksm_tests", &["-N", "-m", "1"], 60),
    test("ksm_tests", &["-N", "-m", "0"], 60),
    test("ksm_tests", &["-P", "-s", "16"], 120),
    test("ksm_tests", &["-C", "-p", "100"], 120),
    test("khugepaged", &["all:anon"], 300).with(KEEP_HUGE),
    test("split_huge_page_test", &[], 45).with(KEEP_HUGE),
    Test {
        program: "transhuge-stress",
        arguments: &["-d", "5", "64"],
        bound: 20,
        endless: true,
        allowed: Allowed::FULL,
    },
    test("compaction_test", &[], 180),
    test("hugepage-mmap", &[], 60),
    test("hugepage-shm", &[], 60),
    test("hugepage-mremap", &["/huge/mremap"], 60),
    test("hugepage-vmemmap", &[], 60),
    test("hugetlb-madvise", &["/huge/madvise"], 60),
    test("hugetlb_dio", &[], 60),
    test("hugetlb_fault_after_madv", &[], 60),
    test("hugetlb_madv_vs_map", &[], 60),
    test("map_hugetlb", &[], 60),
    test("thuge-gen", &[], 60),
    test("va_128TBswitch", &[], 60),
    test("va_high_addr_switch", &[], 60),
];

/// The runs of the tests that were built.
#[must_use]
pub fn items(built: &Selftests) -> Vec<Item> {
    TESTS
        .iter()
        .filter(|test| built.programs.contains(test.program))
        .map(|test| Item {
            name: [&[test.program], test.arguments].concat().join(" "),
            program: format!("{SUITE_DIR}/{}", test.program),
            arguments: test.arguments.iter().map(ToString::to_string).collect(),
            dialect: Dialect::Selftest,
            bound: test.bound,
            endless: test.endless,
            allowed: test.allowed,
        })
        .collect()
}

/// Tests of the table that this series lacks.
#[must_use]
pub fn absent(built: &Selftests) -> BTreeSet<&'static str> {
    TESTS
        .iter()
        .map(|test| test.program)
        .filter(|program| !built.programs.contains(*program))
        .collect()
}
