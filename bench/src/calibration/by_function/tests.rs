//! Tests from the output of emulator, guest and symbols to a profile and its tables.

use uksm_results::report::{Measured, Report, Window};

use super::names::Names;
use super::profile::{Function, Owner, Profile};
use super::{counts::Counts, table};

/// The kernel's functions in this boot.
const KERNEL: &str = "ffffffff81000000 T copy\nffffffff81001000 t do_idle\n\
                      ffffffff81002000 t cmp_and_merge_page\nffffffffc0200000 t fold\t[uksm]\n";

/// A window of the daemon (0), of a task that is ksmd (9), of one that idles (10), of a kernel
/// thread (11) and of other programs (8). There is no symbol of the daemon's code.
const COUNTS: &str = "window 4\n\
    owner 0 0\nowner 8 user\nowner 9 kernel\nowner 10 kernel\nowner 11 kernel\n\
    block 0 0 10 5 500\n\
    block 0 user 7ffff7fc1000 1 7\n\
    block 0 kernel ffffffffc0200010 4 400\n\
    block 0 kernel ffffffffc0200020 3 300\n\
    block 0 kernel ffffffff81000000 2 60\n\
    block 8 user 400000 2 20\n\
    block 8 kernel ffffffff81000000 2 30\n\
    block 9 kernel ffffffff81002004 2 90\n\
    block 9 kernel ffffffff81000000 2 10\n\
    block 10 kernel ffffffff81001000 1 3\n\
    block 11 kernel ffffffff81000000 2 40\n\
    memory 0 user 100 1 0 2 0 3 8 4 5\nmemory 0 kernel 50 1 0 0 0 0 0 10 0\nmemory 9 kernel 7 0 0 0 0 0 0 1 0\n\
    end 4\n";

fn window(number: usize, cpu_seconds: f64) -> Window {
    Window {
        number,
        cpu_seconds,
        saved_mib: 0.5,
        reached: true,
    }
}

fn profile(windows: Vec<Window>) -> anyhow::Result<Profile> {
    let folder = tempfile::tempdir().unwrap();
    let kernel = folder.path().join("x.symbols");
    std::fs::write(&kernel, KERNEL).unwrap();
    // Any program with a name like the daemon's will do, without a symbol at such a low address.
    let daemon = folder.path().join("uksm");
    std::fs::copy(std::env::current_exe().unwrap(), &daemon).unwrap();
    let text = format!("program 0 {}\n{COUNTS}", daemon.display());
    let counts: Counts = text.parse().unwrap();
    let report = Report {
        experiment: "x".into(),
        variants: vec![Measured {
            name: "uksm-full".into(),
            windows,
            ..Measured::default()
        }],
        ..Report::default()
    };
    let names = Names::read(&counts, &kernel).unwrap();
    names.profile(&report, &counts)
}

#[test]
fn each_instruction_has_one_owner_and_one_function() {
    let profile = profile(vec![window(4, 1e-6)]).unwrap();
    let run = &profile.runs[0];
    let sum = |owner| run.sum(|function| function.owner == owner);
    let sums = Owner::ALL.map(sum);
    assert_eq!(sums, [507, 760, 100, 20, 30, 40, 3]);
    let first = Function {
        owner: Owner::DaemonKernel,
        place: "[uksm]".into(),
        name: "fold".into(),
        instructions: 700,
        blocks: vec![(0x10, 4, 400), (0x20, 3, 300)],
    };
    assert_eq!(run.functions[0], first);
    let found = run.functions.iter().filter(|f| f.name == "copy");
    assert_eq!(found.count(), 4, "one for each owner");
}

#[test]
fn accesses_have_owners_and_make_a_time_of_the_system() {
    let profile = profile(vec![window(4, 1e-6)]).unwrap();
    let run = &profile.runs[0];
    let memory = |owner| run.accesses.get(&owner).map(|accesses| accesses.memory);
    assert_eq!(memory(Owner::DaemonUser), Some(4));
    assert_eq!(memory(Owner::DaemonKernel), Some(10));
    assert_eq!(memory(Owner::Ksmd), Some(1));
    // 0.3 an instruction: copy() is none of the kernel's loops. Then the accesses nearer than
    // memory, 4 streamed and 8 near.
    let time = run.modelled_time(80.0).unwrap();
    let nearer = 2.0 * 2.0 + 2.0 * 10.0 + 5.0 * 10.0 + 3.0 * 4.0 + 8.0 * 8.0;
    assert!(
        (time - (1367.0 * 0.3 + nearer + 15.0 * 80.0)).abs() < 1e-6,
        "{time}"
    );
    let text = table::text(&profile, &[]);
    assert!(text.contains("modelled at 160 ns"), "{text}");
}

#[test]
fn systems_are_compared_a_saved_page_at_each_latency() {
    let mut profile = profile(vec![window(4, 1e-6)]).unwrap();
    let mut theirs = profile.runs[0].clone();
    theirs.variant = "ksm-unlimited".into();
    theirs.saved_pages /= 2.0;
    profile.runs.push(theirs);
    let text = table::text(&profile, &[]);
    let line =
        "modelled time ksm-unlimited : uksm-full : 2.00 at 40 ns, 2.00 at 80 ns, 2.00 at 160 ns";
    assert!(text.ends_with(&format!("{line}\n")), "{text}");
}

#[test]
fn a_profile_reads_back_as_written() {
    let profile = profile(vec![window(4, 1e-6)]).unwrap();
    let text = serde_json::to_string(&profile).unwrap();
    assert_eq!(serde_json::from_str::<Profile>(&text).unwrap(), profile);
}

#[test]
fn a_table_divides_by_the_pages_saved_and_shows_blocks_where_asked() {
    let profile = profile(vec![window(4, 1.5e-6)]).unwrap();
    let text = table::text(&profile, &["fold".to_owned()]);
    // A row's words behind its beginning.
    let row = |start: &[&str]| {
        let mut rows = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let found = rows.find(|words| words.starts_with(start));
        found.unwrap_or_else(|| panic!("no {start:?}:\n{text}"))[start.len()..].join(" ")
    };
    assert!(text.contains("128 pages saved"), "{text}");
    // 507 + 760 + 100 of the system, of 1460 in all.
    assert_eq!(row(&["fold", "[uksm]"]), "700 51.2 % 5.5");
    assert_eq!(row(&["ksmd"]), "100 6.8 % 0.8");
    assert_eq!(row(&["0x20"]), "3 100 300 42.9 % 2.3");
    assert!(text.contains("with 1,500, +9.7 %"), "{text}");
    assert!(!table::text(&profile, &[]).contains("0x20"));
}

#[test]
fn a_window_that_the_emulator_did_not_see_is_an_error() {
    let error = profile(vec![window(5, 1.0)]).unwrap_err().to_string();
    assert!(error.contains("no window 5 (uksm-full"), "{error}");
}

#[test]
fn of_several_runs_the_median_one_is_shown() {
    let times = [3.0, 1.0, 2.0];
    let profile = profile(times.map(|seconds| window(4, seconds)).to_vec()).unwrap();
    let shown = profile.medians();
    assert_eq!(shown.len(), 1);
    assert!((shown[0].clock - 2e9).abs() < 1.0);
}
