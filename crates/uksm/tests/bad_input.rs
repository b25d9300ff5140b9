//! What is wrong with a command line, a configuration or a host is told in one line that names the
//! thing and what to do; the exit status is not zero, and nothing was changed.
//!
//! These run the program itself on folders that stand in for the kernel's file systems. What needs
//! the module (wrong version, a process that another daemon owns, no right to a process) runs in
//! guests.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A place of its own for each test.
struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("ksm")).unwrap();
        std::fs::write(root.path().join("ksm/run"), "0\n").unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(root.path(), mode).unwrap();
        Place { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uksm"));
        command.args(arguments);
        if arguments.first() == Some(&"run") {
            command.arg("--socket").arg(self.path("run/uksm.sock"));
            command.arg("--ksm-root").arg(self.path("ksm"));
            if !arguments.contains(&"--config") {
                command.arg("--no-config");
            }
            if !arguments.contains(&"--device") {
                command.arg("--device").arg(self.path("no-device"));
            }
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs, checks that it failed as it should, and answers the line.
    fn refused(&self, status: i32, arguments: &[&str]) -> String {
        self.check(status, self.command(arguments))
    }

    fn check(&self, status: i32, mut command: Command) -> String {
        let output = command.output().unwrap();
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{line}");
        assert_eq!(line.lines().count(), 1, "not one line: {line}");
        assert!(line.starts_with("uksm: ") && line.ends_with('\n'), "{line}");
        assert!(output.stdout.is_empty());
        assert!(!self.path("run").exists(), "something was changed");
        line.trim_end().to_owned()
    }

    /// A folder that looks like `/proc` with one process.
    fn process(&self, pid: u32, flags: u32, state: char) -> PathBuf {
        let folder = self.path("proc").join(pid.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        let stat =
            format!("{pid} (x) {state} 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 500 4096 1 0\n");
        std::fs::write(folder.join("stat"), stat).unwrap();
        std::fs::write(folder.join("status"), format!("Name:\tx\nTgid:\t{pid}\n")).unwrap();
        self.path("proc")
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn unknown_option() {
    let line = Place::new().refused(2, &["run", "--all", "--v-dupe", "1"]);
    assert!(line.contains("unexpected argument '--v-dupe'"), "{line}");
}

#[test]
fn unknown_key() {
    let place = Place::new();
    let file = place.path("config.toml");
    std::fs::write(&file, "governor = \"low\"\nv_dupe = 1\n").unwrap();
    let line = place.refused(2, &["run", "--all", "--config", text(&file)]);
    assert!(
        line.contains("config.toml:2: v_dupe: no such key: known are "),
        "{line}"
    );
}

#[test]
fn value_out_of_range_on_the_command_line() {
    let line = Place::new().refused(2, &["run", "--all", "--cpu", "150%"]);
    assert_eq!(line, "uksm: --cpu = 150%: must be 0.2% to 95%");
}

#[test]
fn a_total_of_groups_without_groups() {
    let line = Place::new().refused(2, &["run", "--all", "--cpu-total", "50%"]);
    assert_eq!(
        line,
        "uksm: --cpu-total: there are no groups: set cpu instead"
    );
}

#[test]
fn value_out_of_range_in_a_file_of_conf_d() {
    let place = Place::new();
    let file = place.path("config.toml");
    std::fs::write(&file, "").unwrap();
    std::fs::create_dir(place.path("conf.d")).unwrap();
    std::fs::write(place.path("conf.d/10.toml"), "\n\nstrength = 65\n").unwrap();
    let line = place.refused(2, &["run", "--all", "--config", text(&file)]);
    assert!(
        line.contains("conf.d/10.toml:3: strength = 65: must be "),
        "{line}"
    );
}

#[test]
fn contradictory_parameters() {
    let place = Place::new();
    let rounds = ["run", "--all", "--levels", "3", "--level-rounds", "1s,1s"];
    let line = place.refused(2, &rounds);
    assert!(
        line.starts_with("uksm: --level-rounds = 1s,1s: must name one time "),
        "{line}"
    );
    let shares = ["run", "--all", "--level-shares", "0.2%,50%,20%,95%"];
    let line = place.refused(2, &shares);
    assert!(line.starts_with("uksm: --level-shares = "), "{line}");
}

#[test]
fn configuration_that_cannot_be_read() {
    let place = Place::new();
    let line = place.refused(
        2,
        &["run", "--all", "--config", text(&place.path("none.toml"))],
    );
    assert!(
        line.contains("none.toml: cannot read the configuration: No such file"),
        "{line}"
    );
    let line = place.refused(2, &["run", "--all", "--config", text(&place.path("ksm"))]);
    assert!(
        line.contains("/ksm: cannot read the configuration: "),
        "{line}"
    );
}

#[test]
fn no_targets() {
    let line = Place::new().refused(2, &["run"]);
    assert!(
        line.starts_with("uksm: no targets: name processes with --pid"),
        "{line}"
    );
}

#[test]
fn no_such_process() {
    let place = Place::new();
    let proc = place.process(70, 0, 'S');
    let line = place.refused(1, &["run", "--pid", "71", "--proc-root", text(&proc)]);
    assert_eq!(line, "uksm: --pid 71: no such process");
}

#[test]
fn process_id_used_again() {
    let place = Place::new();
    let proc = place.process(70, 0, 'S');
    let line = place.refused(1, &["run", "--pid", "70@499", "--proc-root", text(&proc)]);
    assert!(
        line.contains("--pid 70@499: the id was used again, or the tick is wrong: ")
            && line.contains("70@500"),
        "{line}"
    );
}

#[test]
fn kernel_thread_and_zombie() {
    let place = Place::new();
    let proc = place.process(70, 0x0020_0000, 'S');
    place.process(71, 0, 'Z');
    let line = place.refused(1, &["run", "--pid", "70", "--proc-root", text(&proc)]);
    assert!(line.contains("--pid 70: a kernel thread: "), "{line}");
    let line = place.refused(1, &["run", "--pid", "71", "--proc-root", text(&proc)]);
    assert!(line.contains("--pid 71: a zombie: "), "{line}");
}

#[test]
fn not_a_process_id() {
    let line = Place::new().refused(2, &["run", "--pid", "redis"]);
    assert!(line.contains("'redis' is not a process id"), "{line}");
}

#[test]
fn program_name_that_can_match_nothing() {
    let line = Place::new().refused(2, &["run", "--comm", "gnome-terminal-server"]);
    assert!(line.contains("write 'gnome-terminal-'"), "{line}");
}

#[test]
fn module_missing() {
    let line = Place::new().refused(1, &["run", "--all"]);
    assert!(
        line.contains("/no-device: the uksm module is not loaded: `uksm doctor` says how"),
        "{line}"
    );
}

#[test]
fn unsupported_kernel() {
    let place = Place::new();
    std::fs::remove_dir_all(place.path("ksm")).unwrap();
    let line = place.refused(1, &["run", "--all"]);
    assert!(
        line.contains("unsupported kernel: ") && line.contains("CONFIG_KSM"),
        "{line}"
    );
}

#[test]
fn device_of_something_else() {
    let line = Place::new().refused(1, &["run", "--all", "--device", "/dev/null"]);
    assert!(
        line.contains("/dev/null: does not answer as a uksm device"),
        "{line}"
    );
}

#[test]
fn no_right_to_the_device() {
    let place = Place::new();
    let device = place.path("device");
    std::fs::write(&device, "").unwrap();
    std::fs::set_permissions(&device, std::fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = place.command(&["run", "--all", "--device", text(&device)]);
    if is_root() {
        // Root is held up by no mode, and the program must be where nobody may run it.
        let program = place.path("uksm");
        // By another process: a copy that this one still holds open could not be started.
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_uksm"))
            .arg(&program)
            .status();
        assert!(copied.unwrap().success());
        let mut as_nobody = Command::new(&program);
        as_nobody.args(command.get_args()).uid(65534).gid(65534);
        command = as_nobody;
    }
    let line = place.check(1, command);
    assert!(
        line.contains("/device: cannot open: permission denied: run as root"),
        "{line}"
    );
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn status_without_a_daemon() {
    let place = Place::new();
    let socket = place.path("none.sock");
    let line = place.refused(1, &["status", "--socket", text(&socket)]);
    assert!(
        line.contains("none.sock: no daemon answers: start one with `uksm run`"),
        "{line}"
    );
}

#[test]
fn break_without_targets_or_module() {
    let place = Place::new();
    let (socket, ksm) = (place.path("none.sock"), place.path("ksm"));
    let line = place.refused(2, &["break", "--socket", text(&socket)]);
    assert!(line.contains("break: no targets"), "{line}");
    let device = place.path("none");
    let line = place.refused(
        1,
        &[
            "break",
            "--comm",
            "x",
            "--socket",
            text(&socket),
            "--device",
            text(&device),
            "--ksm-root",
            text(&ksm),
        ],
    );
    assert!(
        line.contains("/none: the uksm module is not loaded"),
        "{line}"
    );
}

#[test]
fn groups_that_cannot_run_are_named() {
    let place = Place::new();
    let file = place.path("config.toml");
    let run = |configuration: &str, status: i32| {
        std::fs::write(&file, configuration).unwrap();
        place.refused(status, &["run", "--config", text(&file)])
    };
    let line = run("[group.a]\ncomm = \"x\"\n", 1);
    assert!(line.contains("the uksm module is not loaded"), "{line}");
    let line = run("[group.a]\ncomm = \"x\"\n[group.b]\ncomm = \"x\"\n", 2);
    assert!(
        line.contains("config.toml:3: b: comm x is also in group a"),
        "{line}"
    );
    let line = place.refused(2, &["worker"]);
    assert!(
        line.contains("only `uksm run` starts this command"),
        "{line}"
    );
    let line = place.refused(1, &["group", "list", "--socket", text(&place.path("none"))]);
    assert!(line.contains("no daemon answers"), "{line}");
}

#[test]
fn version_and_help_are_no_errors() {
    for argument in ["--version", "--help"] {
        let output = Place::new().command(&[argument]).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty());
        assert!(String::from_utf8(output.stdout).unwrap().contains("uksm"));
    }
}

#[test]
fn completions_and_manual_pages_are_made() {
    let place = Place::new();
    let output = place.command(&["completions", "bash"]).output().unwrap();
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("--v-dup")
    );
    let folder = place.path("man");
    std::fs::create_dir(&folder).unwrap();
    assert!(
        place
            .command(&["man", text(&folder)])
            .status()
            .unwrap()
            .success()
    );
    let page = std::fs::read_to_string(folder.join("uksm-run.1")).unwrap();
    assert!(page.contains("v\\-dup"), "{page}");
}

#[test]
fn an_answer_that_cannot_be_written_is_an_error_unless_its_reader_has_ended() {
    let place = Place::new();
    let socket = place.path("none").display().to_string();
    for words in [
        &["metrics", "--socket", &socket][..],
        &["completions", "bash"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let output = place.command(words).stdout(full.unwrap()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("standard output: No space left"), "{said}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = place.command(words).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

#[test]
fn a_command_whose_output_cannot_be_written_fails_as_it_would_otherwise() {
    let place = Place::new();
    for stream in ["stdout", "stderr"] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let socket = place.path("none").display().to_string();
        let mut command = place.command(&["status", "--socket", &socket]);
        match stream {
            "stdout" => command.stdout(full.unwrap()).stderr(Stdio::null()),
            _ => command.stderr(full.unwrap()),
        };
        let status = command.status().unwrap();
        assert_eq!(status.code(), Some(1), "{stream}: {status}");
    }
}
