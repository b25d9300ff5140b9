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

/// Output and files of an experiment, run on this many threads.
fn run(folder: &Path, experiment: &str, rest: &[&str], threads: &str) -> [String; 3] {
    let mut arguments = vec!["run", experiment, "--seed", "7", "--threads", threads];
    arguments.extend(rest);
    let output = simulate(folder, &arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{experiment}: {errors}");
    assert!(errors.contains("to simulate"), "{errors}");
    let table = String::from_utf8(output.stdout).unwrap();
    let [json, svg] = ["json", "svg"].map(|extension| {
        let name = format!("results/simulated-{experiment}.{extension}");
        std::fs::read_to_string(folder.join(name)).unwrap()
    });
    [table, json, svg]
}

#[test]
fn each_experiment_gives_the_same_bytes_each_time_and_a_table_and_a_plot() {
    let folder = folder("twice");
    let peers = "uksm-full,ksm-advisor";
    for (experiment, rest) in [
        ("crowd", &["--cases", "10 idle"][..]),
        ("scatter", &["--layout", "3,32,40,guest"]),
        ("idle", &["--cases", "100 idle", "--variants", "uksm-quiet"]),
        ("scale", &["--cases", "1 GiB", "--times", "2"]),
        ("mixed", &["--cases", "fleet", "--variants", peers]),
        ("boots", &["--cases", "25 guests", "--variants", "uksm-low"]),
        (
            "hints",
            &[
                "--cases",
                "5 ",
                "--variants",
                "uksm-at-2,xlh-100,oracle,uksm-index",
            ],
        ),
        ("realism", &["--cases", "20-same", "--costs", "counted"]),
    ] {
        let [once, again] = ["1", "3"].map(|threads| run(&folder, experiment, rest, threads));
        assert!(once == again, "the runs of {experiment} differ");
        let [table, json, svg] = once;
        assert!(table.contains("uksm-"), "{table}");
        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed["experiment"], experiment);
        assert_eq!(parsed["seed"], 7);
        assert!(svg.starts_with("<svg"));
    }
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
        (
            &["seeds", "--first", "4294967295", "--count", "2"],
            "the last seed is 4294967295",
        ),
        (&["run", "crowd", "--times", "0"], "0 is not in 1..=100"),
        (
            &[
                "run",
                "crowd",
                "--cases",
                "10 idle",
                "--output",
                "broken.toml/x",
            ],
            "cannot create broken.toml/x",
        ),
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
