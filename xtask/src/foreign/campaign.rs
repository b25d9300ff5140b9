//! One run on one kernel: pack, boot, collect, compare, report.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::compare::{Comparison, compare};
use super::report;
use super::{selftests, stress_ng};
use uksm_guest_tests::foreign::schedule::{
    Arm, Item, RUNNER_PATH, Record, SCHEDULE_PATH, SUITE_DIR, Schedule,
};
use uksm_vm::accel::Clock;
use uksm_vm::boot::{self, Boot, Outputs};
use uksm_vm::initramfs::Initramfs;
use uksm_vm::kernel::Kernel;
use uksm_vm::module_build::Variant;
use uksm_vm::verdict::Ending;
use uksm_vm::{kvm_probe, program_run, programs, tool};
use uksm_vm_protocol::machine::Machine;
use uksm_vm_protocol::messages::{Event, Work};

/// The kernels of a run that names none: those whose source the machine's package sources offer.
pub const KERNELS: [&str; 3] = ["6.1", "6.12", "newest"];
/// The needs of the self-tests: memory, and huge pages of hugetlbfs in it.
const MEMORY_MIB: u32 = 2048;
const HUGE_PAGES: &str = "136";
/// One of the tests needs three processors.
const PROCESSORS: u32 = 4;
/// Least pages a program that the torturer must have exchanged for a valid run, and the least share
/// of programs that it must have reached: the shortest end before it finds two equal pages in them,
/// and the memory of some is shared, of huge pages, or pinned. On 6.12 it reached 67 to 71 % of
/// them.
const MIN_EXCHANGED: u64 = 500;
const MIN_REACHED_PERCENT: usize = 65;
/// Longest time of a run: a program that hangs is ended by its own bound.
const BOUND: Duration = Duration::from_secs(3600);

/// The selection of programs and arms.
#[derive(Debug, Clone, Default)]
pub struct ProgramSelection {
    /// Only items whose names contain one of these; all if empty.
    pub filters: Vec<String>,
    /// Arms to run; all if empty. The first is always included, as the reference of the others.
    pub arms: Vec<Arm>,
    /// Seed of everything random.
    pub seed: u64,
}

/// Settings of the kernel before each program. Addresses are not random: huge pages of a mapping
/// depend on its address.
const SETTINGS: [(&str, &str); 11] = [
    ("/proc/sys/kernel/randomize_va_space", "0"),
    ("/proc/sys/vm/drop_caches", "3"),
    ("/proc/sys/vm/compact_memory", "1"),
    ("/proc/sys/vm/nr_hugepages", HUGE_PAGES),
    ("/proc/sys/vm/overcommit_memory", "0"),
    ("/proc/sys/kernel/shmmax", "268435456"),
    ("/proc/sys/kernel/shmall", "4194304"),
    ("/proc/sys/debug/exception-trace", "0"),
    ("/sys/kernel/mm/ksm/run", "0"),
    ("/sys/kernel/mm/transparent_hugepage/enabled", "always"),
    ("/sys/kernel/mm/transparent_hugepage/defrag", "madvise"),
];

/// Runs the suites on one kernel; returns whether the module went unnoticed.
///
/// # Errors
/// A file is missing, or a program does not build.
pub fn run(kernel: &Kernel, selection: &ProgramSelection) -> Result<bool> {
    let (items, files) = pack(kernel, selection)?;
    let schedule = Schedule {
        arms: Arm::ALL
            .into_iter()
            .filter(|arm| {
                selection.arms.is_empty() || *arm == Arm::Bare || selection.arms.contains(arm)
            })
            .collect(),
        items,
        settings: SETTINGS
            .iter()
            .map(|(path, value)| ((*path).to_owned(), (*value).to_owned()))
            .collect(),
    };
    let folder = new_folder(kernel)?;
    println!("outputs of all programs: {}", folder.display());
    let (records, ending) = boot(kernel, &schedule, files, &folder, selection.seed)?;
    let comparison = compare(&schedule.items, &schedule.arms, &records);
    write(
        &folder.join("records.json"),
        &serde_json::to_string(&records)?,
    )?;
    Ok(print_summary(
        kernel,
        &schedule,
        &comparison,
        &records,
        &ending,
    ))
}

fn pack(kernel: &Kernel, selection: &ProgramSelection) -> Result<(Vec<Item>, Initramfs)> {
    let mut files = Initramfs::new();
    let built = selftests::get(kernel.series)?;
    let absent: Vec<&str> = selftests::absent(&built).into_iter().collect();
    println!(
        "{}: not among its self-tests: {}",
        kernel.name,
        absent.join(", ")
    );
    let mut items = selftests::items(&built);
    items.extend(stress_ng::items());
    let wanted = |item: &Item| {
        selection.filters.is_empty()
            || selection
                .filters
                .iter()
                .any(|filter| item.name.contains(filter.as_str()))
    };
    items.retain(wanted);
    anyhow::ensure!(
        !items.is_empty(),
        "no program has a name with {}",
        selection.filters.join(" or ")
    );
    for program in &built.programs {
        let place = format!("{SUITE_DIR}/{program}");
        files.file(place, &built.folder.join(program), 0o755)?;
    }
    let stress = stress_ng::get()?;
    let place = format!("{SUITE_DIR}/stress-ng");
    files.program(place, &stress.program, &stress.libraries)?;
    let own = programs::build(&["uksm-foreign", "uksm"])?;
    files.file(RUNNER_PATH, &own["uksm-foreign"], 0o755)?;
    files.file("/bin/uksm", &own["uksm"], 0o755)?;
    program_run::pack_busybox(&mut files)?;
    Ok((items, files))
}

fn boot(
    kernel: &Kernel,
    schedule: &Schedule,
    mut files: Initramfs,
    folder: &Path,
    seed: u64,
) -> Result<(Vec<Record>, Ending)> {
    files.contents(SCHEDULE_PATH, serde_json::to_vec(schedule)?, 0o644);
    let accel = kvm_probe::detect(kernel, Clock::Time)?;
    println!(
        "kernel {} ({}), {accel}, seed {seed}, {} programs in {} arms",
        kernel.release,
        kernel.version,
        schedule.items.len(),
        schedule.arms.len()
    );
    let records = Arc::new(Mutex::new(Vec::new()));
    let boot = Boot {
        label: "foreign".into(),
        kernel,
        accel,
        machine: Machine::Numa,
        memory_mib: MEMORY_MIB,
        cpus: PROCESSORS,
        preallocate: false,
        disk_mib: None,
        work: Work::Program {
            path: RUNNER_PATH.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
        },
        variant: Some(Variant::Shipped),
        load: false,
        load_too: Vec::new(),
        again_if_lost: false,
        kernel_modules: &[],
        files,
        parameters: vec!["log_buf_len=8M".into(), "secretmem.enable=1".into()],
        plugin: None,
        seed,
        time_factor: 1,
        bound: BOUND * kernel.time_factor,
    };
    let outputs = Outputs {
        stdout: Box::new(RecordReader {
            line: Vec::new(),
            name: kernel.name.clone(),
            folder: folder.to_owned(),
            records: Arc::clone(&records),
        }),
        stderr: Box::new(io::stderr()),
        results: None,
        interactive: false,
        event: &mut |event| {
            if let Event::Unable { message } = event {
                eprintln!("the guest: {message}");
            }
        },
    };
    let report = boot::run(boot, outputs)?;
    let status = report.collector.exit_status();
    let ending = match report.ending {
        Ending::Passed if status != Some(0) => {
            Ending::Failed(vec![format!("the runner ended with status {status:?}")])
        }
        ending => ending,
    };
    if !matches!(ending, Ending::Passed) {
        println!(
            "--- end of {}\n{}\n---",
            report.log.display(),
            boot::console_tail(&report.log)
        );
    }
    let records = records.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((records.clone(), ending))
}

/// Reads records from the runner's output, line by line, and reports each.
struct RecordReader {
    line: Vec<u8>,
    name: String,
    folder: PathBuf,
    records: Arc<Mutex<Vec<Record>>>,
}

impl Write for RecordReader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            if byte != b'\n' {
                self.line.push(byte);
                continue;
            }
            match serde_json::from_slice::<Record>(&self.line) {
                Ok(record) => {
                    let status = record
                        .status
                        .map_or("-".to_owned(), |status| status.to_string());
                    println!(
                        "{}  {:8}  {}  status {status}, {:.1} s, {} exchanged",
                        self.name,
                        record.arm,
                        record.item,
                        record.seconds,
                        record.torture.exchanged()
                    );
                    if let Err(error) = keep(&self.folder, &record) {
                        eprintln!("{error:#}");
                    }
                    self.records
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(record);
                }
                // Then the item has no record, which fails the run.
                Err(error) => eprintln!(
                    "no record: {error}: {}",
                    String::from_utf8_lossy(&self.line)
                ),
            }
            self.line.clear();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An empty folder for the output of each program, for the analysis of differences.
fn new_folder(kernel: &Kernel) -> Result<PathBuf> {
    let folder = tool::tree()
        .join("results")
        .join(format!("foreign-{}", kernel.name));
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    for arm in Arm::ALL {
        let place = folder.join(arm.to_string());
        fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
    }
    Ok(folder)
}

fn keep(folder: &Path, record: &Record) -> Result<()> {
    let name = format!("{}.txt", record.item.replace(['/', ' '], "_"));
    write(
        &folder.join(record.arm.to_string()).join(name),
        &record.output,
    )
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}

fn print_summary(
    kernel: &Kernel,
    schedule: &Schedule,
    comparison: &Comparison,
    records: &[Record],
    ending: &Ending,
) -> bool {
    let pressure = report::pressure(records);
    println!("\n{}\n", kernel.release);
    println!("{}", report::table(&schedule.arms, comparison, records));
    println!(
        "torturer: {:?}; it exchanged more than a few pages in {} of {} programs, not in: {}",
        pressure.torture,
        pressure.reached,
        pressure.items,
        pressure.untouched.join(", ")
    );
    println!("unsteady without the module: {}", comparison.unsteady.len());
    print!("{}", report::splits(&comparison.unsteady));
    println!(
        "different with the module: {}",
        comparison.differences.len()
    );
    print!("{}", report::splits(&comparison.differences));
    println!("different for a known reason: {}", comparison.known.len());
    print!("{}", report::explained(&comparison.known));
    for (arm, item) in &comparison.missing {
        println!("  {item}: arm {arm} has no record");
    }
    let mut passed = comparison.is_equal();
    let items = u64::try_from(pressure.items).unwrap_or(u64::MAX);
    let exchanged = pressure.torture.exchanged() >= MIN_EXCHANGED * items.max(1);
    let reached = pressure.reached * 100 >= MIN_REACHED_PERCENT * pressure.items;
    let tortured = schedule.arms.contains(&Arm::Tortured);
    if !tortured || !exchanged || !reached {
        println!("FAIL: the torturer exchanged too few pages to prove anything");
        passed = false;
    }
    if let Some(reason) = reason(ending, records) {
        println!("FAIL: {reason}");
        passed = false;
    }
    println!(
        "{}: {}",
        kernel.name,
        if passed {
            "equal in all arms"
        } else {
            "NOT equal in all arms"
        }
    );
    passed
}

/// The reason for which the machine's ending fails the run. A complaint of the kernel that also
/// occurs without the module is an outcome like others, and was compared.
fn reason(ending: &Ending, records: &[Record]) -> Option<String> {
    match ending {
        Ending::Passed => None,
        Ending::KernelDied(reason) | Ending::Lost(reason) => Some(reason.clone()),
        Ending::Failed(reasons) => {
            let known = |reason: &&String| {
                records
                    .iter()
                    .filter(|record| !record.arm.has_module())
                    .flat_map(|record| &record.complaints)
                    .any(|complaint| reason.contains(complaint.as_str()))
            };
            reasons.iter().find(|reason| !known(reason)).cloned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uksm_guest_tests::foreign::schedule::TortureCounts;

    fn record(arm: Arm, complaints: &[&str]) -> Record {
        Record {
            arm,
            item: "a b/c".into(),
            status: Some(0),
            seconds: 1.0,
            output: "ok 1 x".into(),
            complaints: complaints.iter().map(ToString::to_string).collect(),
            torture: TortureCounts::default(),
        }
    }

    #[test]
    fn records_are_read_however_the_stream_is_cut_and_kept_at_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bare")).unwrap();
        let records = Arc::new(Mutex::new(Vec::new()));
        let mut reader = RecordReader {
            line: Vec::new(),
            name: "6.12".into(),
            folder: folder.path().into(),
            records: Arc::clone(&records),
        };
        let sent = record(Arm::Bare, &[]);
        let line = serde_json::to_string(&sent).unwrap() + "\nno record\n";
        for part in line.as_bytes().chunks(7) {
            reader.write_all(part).unwrap();
        }
        assert_eq!(*records.lock().unwrap(), [sent]);
        let kept = fs::read_to_string(folder.path().join("bare/a_b_c.txt")).unwrap();
        assert_eq!(kept, "ok 1 x");
    }

    #[test]
    fn only_complaints_that_the_kernel_makes_without_the_module_are_no_reason() {
        let ending = Ending::Failed(vec!["kernel: WARNING: CPU: 1 at mm/a.c".into()]);
        let without = [record(Arm::Busy, &["WARNING: CPU: 1 at mm/a.c"])];
        let with = [record(Arm::Idle, &["WARNING: CPU: 1 at mm/a.c"])];
        assert_eq!(reason(&ending, &without), None);
        assert!(reason(&ending, &with).is_some());
        assert!(reason(&Ending::Lost("gone".into()), &without).is_some());
        assert_eq!(reason(&Ending::Passed, &[]), None);
    }
}
