//! Each check on a host where all is right, and on hosts with one fault; the catalogue, its
//! document and the output.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rustix::io::Errno;
use uksm_linux::module;

use super::check::Severity;
use super::checks::catalogue;
use super::host::kernel;
use super::report::{CheckResult, DoctorReport};
use super::unpack::unpack;
use crate::control::NoAnswer;

mod cases;
mod distributions;
mod fake;

use cases::{CASES, Case};
use fake::Fake;

fn row<'a>(report: &'a DoctorReport, name: &str) -> &'a CheckResult {
    let row = report.rows().iter().find(|row| row.name == name);
    row.unwrap_or_else(|| panic!("no check {name}"))
}

/// The reports on hosts with one fault.
static SPOILED: LazyLock<Vec<(&Case, DoctorReport)>> = LazyLock::new(|| {
    let report = |case: &Case| {
        let mut fake = Fake::right();
        (case.spoil)(&mut fake);
        fake.report()
    };
    CASES.iter().map(|case| (case, report(case))).collect()
});

#[test]
fn all_is_ok_on_a_host_where_all_is_right() {
    let report = Fake::right().report();
    for row in report.rows() {
        assert_eq!(row.severity, Severity::Ok, "{}: {}", row.name, row.what);
        assert!(
            row.commands.is_empty() && row.details.is_empty(),
            "{}",
            row.name
        );
        assert_eq!(row.unread, None, "{}", row.name);
    }
    assert_eq!(report.refusal(Severity::Warning), None);
}

#[test]
fn each_check_finds_its_fault_with_its_severity() {
    for (case, report) in SPOILED.iter() {
        let row = row(report, case.check);
        let all = format!(
            "{} {} {}",
            row.what,
            row.details.join(" "),
            row.commands.join(" ")
        );
        assert_eq!(row.severity, case.severity, "{}: {all}", case.check);
        for says in case.says {
            assert!(all.contains(says), "{}: no {says:?} in {all}", case.check);
        }
    }
}

#[test]
fn each_check_has_a_case_of_the_worst_that_it_can_find_and_of_nothing_worse() {
    let mut worst: BTreeMap<&str, Severity> = BTreeMap::new();
    for case in CASES {
        let seen = worst.entry(case.check).or_insert(Severity::Ok);
        *seen = case.severity.max(*seen);
    }
    for check in catalogue() {
        assert_eq!(worst.get(check.name), Some(&check.worst), "{}", check.name);
    }
}

#[test]
fn nothing_is_asked_of_the_module_where_in_kernel_ksm_is_driven() {
    let fake = Fake::right();
    fake.write(
        fake::CONFIG,
        "backend = \"ksm\"\n[targets]\ncomm = [\"redis-server\"]\n",
    );
    fake.remove("sys/module/uksm");
    fake.remove("sys/kernel/btf");
    fake.write("sys/kernel/mm/ksm/run", "1\n");
    fake.write("proc/sys/kernel/osrelease", "5.15.0-generic\n");
    let report = fake.report();
    for check in super::checks::OF_MODULE_ONLY {
        let row = row(&report, check);
        assert_eq!(row.severity, Severity::Ok, "{check}: {}", row.what);
        assert!(row.what.contains("without the module"), "{}", row.what);
    }
}

#[test]
fn what_cannot_be_read_is_a_note_that_names_the_file() {
    for (check, path) in [
        ("architecture", "proc/sys/kernel/arch"),
        ("kernel-version", "proc/sys/kernel/osrelease"),
        ("kernel-version", "proc/sys/kernel/version"),
        ("kernel-ksm", "sys/kernel/mm/ksm/run"),
        ("kernel-options", "boot/config-6.12.0-1-amd64"),
        ("kernel-symbols", "proc/kallsyms"),
        ("lockdown", "sys/kernel/security/lockdown"),
        ("pressure", "proc/pressure/memory"),
        ("ptrace-scope", "proc/sys/kernel/yama/ptrace_scope"),
        ("huge-pages", "sys/kernel/mm/transparent_hugepage/enabled"),
        (
            "khugepaged",
            "sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none",
        ),
        ("ksm", "sys/kernel/mm/ksm/run"),
        ("overcommit", "proc/sys/vm/overcommit_memory"),
        ("swap", "proc/swaps"),
        ("headroom", "proc/meminfo"),
        ("cgroup-v2", "sys/fs/cgroup/cgroup.controllers"),
        ("processes-read", "proc/71/maps"),
    ] {
        let fake = Fake::right();
        fake.spoil(path);
        let report = fake.report();
        let row = row(&report, check);
        assert_eq!(row.severity, Severity::Note, "{check}: {}", row.what);
        let all = format!("{} {}", row.what, row.details.join(" "));
        assert!(all.contains(path), "{check}: {all}");
    }
}

#[test]
fn unreadable_sources_are_reported_by_the_checks_that_need_them() {
    let fake = Fake::right();
    fake.spoil("proc/71/maps");
    fake.open(72, "/dev/vfio/12");
    let report = fake.report();
    assert!(
        row(&report, "vfio")
            .unread
            .as_ref()
            .unwrap()
            .contains("1 could not")
    );
    assert!(
        report
            .to_string()
            .contains("in part: of the processes 1 could not")
    );
}

#[test]
fn memory_of_unselected_processes_is_a_note() {
    let fake = Fake::right();
    fake.process(80, "other", "/usr/bin/other", "VmLck:\t   65536 kB\n");
    assert_eq!(
        row(&fake.report(), "locked-memory").severity,
        Severity::Note
    );
    fake.write(fake::CONFIG, "[rule.users]\nby = \"user\"\n");
    let severity = row(&fake.report(), "locked-memory").severity;
    assert_eq!(severity, Severity::Warning, "a rule about all");
    fake.write(
        fake::CONFIG,
        "[targets]\nall = true\nexclude = { comm = \"other\" }\n",
    );
    assert_eq!(
        row(&fake.report(), "locked-memory").severity,
        Severity::Note
    );
}

#[test]
fn options_that_are_packed_are_read_as_well() {
    let fake = Fake::right();
    fake.remove("boot");
    let options = b"CONFIG_MODULES=y\nCONFIG_KALLSYMS=y\nCONFIG_KSM=y\n";
    fake.put("proc/config.gz", &fake::gzip(options));
    let report = fake.report();
    assert_eq!(
        row(&report, "kernel-options").details,
        ["CONFIG_KPROBES is not set"]
    );
    fake.write("proc/config.gz", "no gzip");
    let report = fake.report();
    let row = row(&report, "kernel-options");
    assert!(row.what.contains("proc/config.gz: "), "{}", row.what);
}

#[test]
fn device_closed_to_the_user_is_no_error_of_the_host() {
    let mut fake = Fake::right();
    fake.device = Err(module::Error::Open {
        path: PathBuf::from("/dev/uksm"),
        errno: Errno::PERM,
    });
    assert_eq!(row(&fake.report(), "device").severity, Severity::Error);
    fake.write("proc/self/status", "CapEff:\t0000000000000000\n");
    assert_eq!(row(&fake.report(), "device").severity, Severity::Note);
}

#[test]
fn daemon_closed_to_the_user_is_no_warning() {
    let mut fake = Fake::right();
    fake.daemon = || Err(NoAnswer::Failed("no right".to_owned()));
    assert_eq!(row(&fake.report(), "daemon").severity, Severity::Warning);
    fake.write("proc/self/status", "CapEff:\t0000000000000000\n");
    assert_eq!(row(&fake.report(), "daemon").severity, Severity::Note);
}

#[test]
fn a_module_at_another_place_is_found_by_what_depmod_knows() {
    let fake = Fake::right();
    fake.remove(fake::MODULE);
    let own = format!("lib/modules/{}", fake::RELEASE);
    let module = fake::file_of_module(fake::RELEASE, "DEF", true);
    fake.put(&format!("{own}/packed/uksm/uksm.ko"), &module);
    let list = "kernel/fs/ext4.ko: kernel/fs/jbd2.ko\npacked/uksm/uksm.ko:\n";
    fake.write(&format!("{own}/modules.dep"), list);
    let report = fake.report();
    let installed = row(&report, "module-installed");
    assert_eq!(installed.severity, Severity::Ok, "{}", installed.what);
    assert!(
        installed.what.ends_with("packed/uksm/uksm.ko is there"),
        "{}",
        installed.what
    );
    assert_eq!(row(&report, "module-current").severity, Severity::Warning);
}

#[test]
fn a_packed_module_is_judged_like_any_other() {
    for (suffix, pack) in fake::PACKERS {
        let fake = Fake::right();
        fake.remove(fake::MODULE);
        fake.remove("sys/module/uksm");
        fake.write("sys/module/module/parameters/sig_enforce", "Y\n");
        let place = format!("{}.{suffix}", fake::MODULE);
        let judged = |kernel, is_signed, check| {
            let module = fake::file_of_module(kernel, "ABC", is_signed);
            fake.put(&place, &pack(&module));
            let report = fake.report();
            let row = row(&report, check);
            (row.severity, row.what.clone())
        };
        let (severity, what) = judged("6.1.0-9-amd64", true, "module-current");
        assert_eq!(severity, Severity::Error, "{what}");
        let text = format!("/{place} was built for kernel 6.1.0-9-amd64");
        assert!(what.starts_with(&text), "{what}");
        for (is_signed, expected) in [(true, Severity::Note), (false, Severity::Error)] {
            let (severity, what) = judged(fake::RELEASE, is_signed, "signature");
            assert_eq!(severity, expected, "{suffix}: {what}");
        }
        fake.write(&place, "not packed");
        let report = fake.report();
        let row = row(&report, "module-current");
        let why = format!("cannot be determined: /{place}: ");
        assert_eq!(row.severity, Severity::Note, "{}", row.what);
        assert!(row.what.starts_with(&why), "{}", row.what);
    }
}

#[test]
fn contents_are_unpacked_up_to_the_bound() {
    let contents = vec![7; 3 << 20];
    for (suffix, pack) in fake::PACKERS {
        let name = format!("uksm.ko.{suffix}");
        let packed = pack(&contents);
        assert!(packed.len() < contents.len(), "{suffix}");
        assert_eq!(unpack(&name, &packed, 3 << 20).unwrap(), contents);
        let error = unpack(&name, &packed, (3 << 20) - 1).unwrap_err();
        assert_eq!(error.to_string(), "is longer than 3145727 bytes");
        let half = &packed[..packed.len() / 2];
        assert!(unpack(&name, half, 3 << 20).is_err(), "{suffix}");
    }
}

#[test]
fn a_dictionary_of_any_length_takes_bounded_memory() {
    // The header of a block: LZMA2 with a dictionary of 4 GiB less one byte.
    let stream = *b"\xfd7zXZ\0\0\x01\x69\x22\xde\x36";
    let block = *b"\x02\0\x21\x01\x28\0\0\0";
    let mut checksum = flate2::Crc::new();
    checksum.update(&block);
    let packed = [&stream[..], &block, &checksum.sum().to_le_bytes()].concat();
    let error = unpack("uksm.ko.xz", &packed, 1 << 20).unwrap_err();
    assert!(error.to_string().contains("mem_limit"), "{error}");
}

#[test]
fn a_module_with_debug_information_is_read_to_its_end() {
    let fake = Fake::right();
    let other = fake::long_file_of_module("6.1.0", "ABC", true, 12 << 20);
    fake.put(fake::MODULE, &other);
    let report = fake.report();
    let what = &row(&report, "module-current").what;
    assert!(what.contains("was built for kernel 6.1.0, and"), "{what}");
}

#[test]
fn only_an_error_refuses_unless_warnings_shall() {
    let fake = Fake::right();
    fake.write("proc/sys/vm/overcommit_memory", "2\n");
    let report = fake.report();
    assert_eq!(report.refusal(Severity::Error), None);
    let line = report.refusal(Severity::Warning).unwrap();
    assert_eq!(line, "doctor: warnings: overcommit");
    fake.write("proc/sys/kernel/yama/ptrace_scope", "3\n");
    let line = fake.report().refusal(Severity::Error).unwrap();
    assert_eq!(line, "doctor: uksm cannot merge here: ptrace-scope");
}

#[test]
fn checks_of_what_a_host_lacks_are_counted_apart() {
    let fake = Fake::right();
    fake.remove("proc/72");
    fake.remove("run/systemd");
    let report = fake.report();
    let text = report.to_string();
    let listed = text.split("not applicable: ").nth(1).unwrap();
    let listed = listed.split("\n\n").next().unwrap();
    for name in ["qemu-shared", "qemu-balloon", "unit"] {
        assert!(listed.contains(name), "{name} in {text}");
    }
    let json = serde_json::to_value(&report).unwrap();
    let rows = json["checks"].as_array().unwrap().iter();
    let idle = rows.filter(|row| row["applies"] == false).count();
    assert!(
        text.contains(&format!(" ok, {idle} not applicable, 0 notes")),
        "{text}"
    );
}

#[test]
fn no_line_is_wider_than_a_terminal_or_steers_it() {
    let fake = Fake::right();
    let long = "\u{1b}[31mred\u{7}".repeat(30);
    fake.process(90, &long, "kvm -mem-prealloc", "VmLck:\t   65536 kB\n");
    let hostile = fake.report().to_string();
    assert!(hostile.contains(r"\u{1b}[31mred\u{7}"), "{hostile}");
    let texts = SPOILED.iter().map(|(_, report)| report.to_string());
    for text in texts.chain([hostile, Fake::right().report().to_string()]) {
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }
}

/// The commands in a text for people, with continued lines joined.
fn pasted(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(first) = line.trim_start().strip_prefix("$ ") else {
            continue;
        };
        let mut command = first.to_owned();
        while let Some(part) = command.strip_suffix(" \\") {
            command = format!("{part} {}", lines.next().unwrap().trim());
        }
        commands.push(command);
    }
    commands.sort();
    commands
}

#[test]
fn commands_can_be_pasted_and_are_whole_in_json() {
    let mut continued = 0;
    for (case, report) in SPOILED.iter() {
        let text = report.to_string();
        continued += text.lines().filter(|line| line.ends_with(" \\")).count();
        let json = serde_json::to_value(report).unwrap();
        let rows = json["checks"].as_array().unwrap().iter();
        let shown = rows.flat_map(|row| row["commands"].as_array().unwrap());
        let mut shown: Vec<&str> = shown.map(|command| command.as_str().unwrap()).collect();
        shown.sort_unstable();
        assert_eq!(pasted(&text), shown, "{}", case.check);
        assert_eq!(json["version"], 1);
    }
    assert!(continued > 0, "no command was too long for a line");
}

#[test]
fn failed_check_shows_its_cost_and_its_remedy() {
    for (case, report) in SPOILED.iter() {
        let json = serde_json::to_value(report).unwrap();
        let mut rows = json["checks"].as_array().unwrap().iter();
        let row = rows.find(|row| row["name"] == case.check).unwrap();
        if row["unread"].is_null() {
            assert!(row["cost"].is_string() && row["mend"].is_string(), "{row}");
        }
    }
    let right = serde_json::to_value(Fake::right().report()).unwrap();
    assert!(right["checks"][0]["cost"].is_null());
}

#[test]
fn names_are_unique_and_of_small_letters() {
    let mut names = BTreeSet::new();
    for check in catalogue() {
        assert!(names.insert(check.name), "{} twice", check.name);
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(check.name.chars().all(is_plain), "{}", check.name);
    }
}

#[test]
fn the_document_has_the_catalogue_as_it_is() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
    let text = std::fs::read_to_string(path).unwrap();
    let cell = |text: &str| text.replace('|', "\\|");
    let expected: Vec<String> = catalogue()
        .map(|check| {
            let [finds, mend] = [check.finds, check.mend].map(cell);
            format!("| `{}` | {} | {finds} | {mend} |", check.name, check.worst)
        })
        .collect();
    let checks = text.lines().skip_while(|line| *line != "## Checks");
    let rows = checks.filter(|line| line.starts_with("| `"));
    let rows: Vec<&str> = rows.collect();
    assert_eq!(
        rows,
        expected,
        "docs/doctor.md should have:\n{}\n",
        expected.join("\n")
    );
}

#[test]
fn the_symbols_are_those_that_the_module_looks_up() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/symbol_list.h");
    let text = std::fs::read_to_string(path).unwrap();
    let listed: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("UKSM_SYMBOL(")?.strip_suffix(");"))
        .collect();
    let known: BTreeSet<&str> = kernel::SYMBOLS.into_iter().flatten().copied().collect();
    let mut unlisted: Vec<&str> = known.difference(&listed).copied().collect();
    unlisted.retain(|name| *name != "kallsyms_lookup_name");
    assert_eq!(unlisted, [""; 0], "not looked up by the module");
    // Functions that only some configurations need.
    let sometimes: Vec<&str> = listed.difference(&known).copied().collect();
    assert_eq!(
        sometimes,
        [
            "__mem_cgroup_charge",
            "__mmu_notifier_invalidate_range",
            "__pte_offset_map_lock",
            "__split_huge_page_to_list_to_order",
            "hugetlb_total_pages",
            "pte_offset_map_lock",
            "split_huge_page_to_list",
            "split_huge_page_to_list_to_order",
        ]
    );
}

#[test]
fn this_host_is_read() {
    use crate::doctor::host::Host;
    use crate::doctor::probe::Root;
    use crate::doctor::sources::Sources;
    let sources = Sources {
        mappings_apart: &|| false,
        device: &|path| {
            Err(module::Error::Missing {
                path: path.to_owned(),
            })
        },
        daemon: &|_| Err(NoAnswer::NotRunning),
    };
    let report = DoctorReport::of(&Host::read(&Root::at_path(Path::new("/")), None, &sources));
    assert_eq!(row(&report, "architecture").severity, Severity::Ok);
    assert!(row(&report, "processes-read").severity <= Severity::Note);
    assert!(row(&report, "headroom").what.contains("iB"));
}
