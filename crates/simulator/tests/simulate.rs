//! The program: the same bytes each time, and clear errors.

use std::path::Path;
use std::process::{Command, Output};

fn simulate(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uksm-simulate"));
    command.args(arguments).current_dir(folder);
    command.output().expect("the program can be started")
}

fn folder(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("uksm-simulate-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder can be made");
    path
}

#[test]
fn an_experiment_gives_the_same_bytes_each_time_and_a_table_and_a_plot() {
    let folder = folder("twice");
    let mut seen = vec![];
    for threads in ["1", "3"] {
        let arguments = [
            "run",
            "crowd",
            "--cases",
            "10 idle",
            "--seed",
            "7",
            "--threads",
            threads,
        ];
        let output = simulate(&folder, &arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.contains("uksm-quiet") && errors.contains("[4/4]"));
        let [json, svg] = ["json", "svg"].map(|extension| {
            let name = format!("results/simulated-crowd.{extension}");
            std::fs::read_to_string(folder.join(name)).unwrap()
        });
        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed["experiment"], "crowd");
        assert_eq!(parsed["seed"], 7);
        assert!(svg.starts_with("<svg"));
        seen.push((table, json, svg));
    }
    assert!(seen[0] == seen[1], "the runs differ");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_cannot_be_run_is_refused_with_a_reason() {
    let folder = folder("refused");
    std::fs::write(folder.join("broken.toml"), "call = 'cheap'\n").unwrap();
    let refused = [
        (
            &["run", "scattered"][..],
            "no experiment 'scattered'; there are scatter",
        ),
        (&["run", "crowd", "--seed", "0"], "0 is not in 1.."),
        (
            &["run", "crowd", "--seed", "4294967296"],
            "4294967296 is not in 1..",
        ),
        (&["run", "crowd", "--cases", "9 idle"], "cases are: 10 idle"),
        (
            &["run", "crowd", "--costs", "none.toml"],
            "none.toml: neither a file nor",
        ),
        (
            &["run", "crowd", "--costs", "broken.toml"],
            "broken.toml: TOML parse error at line 1",
        ),
        (&["run", "crowd", "--set", "cpu"], "NAME=VALUE"),
        (&["run", "crowd", "--set", "cpu=200%"], "cpu"),
        (&["run", "crowd", "--set", "cqu=2%"], "cqu"),
        (
            &["run", "scatter", "--layout", "2,256,120,same"],
            "percent of equal pages '120': must be a number from 1 to 100",
        ),
        (
            &["run", "scatter", "--layout", "0,256,10,same"],
            "processes '0'",
        ),
        (
            &["run", "scatter", "--layout", "2,256,10,runs:0"],
            "'runs:0' is not same, singly, guest or runs:LENGTH",
        ),
        (
            &["run", "scatter", "--layout", "2000,1000,10,same"],
            "2000000 MiB in all: at most 1048576 can be simulated",
        ),
        (
            &["run", "crowd", "--layout", "2,256,10,same"],
            "crowd takes no layout, scatter does",
        ),
        (
            &["seed", "1", "--without", "rain"],
            "nothing is called 'rain'",
        ),
        (&["seeds", "--count", "0"], "0 is not in 1.."),
    ];
    for (arguments, reason) in refused {
        let output = simulate(&folder, arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(errors.contains(reason), "{arguments:?}: {errors}");
        assert!(!errors.contains("panicked"), "{errors}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
