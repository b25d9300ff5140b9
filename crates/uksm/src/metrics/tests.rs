//! Each figure of the daemon is exported once, in both forms, and soon enough.

mod promtool;

use std::time::{Duration, Instant};

use super::*;
use crate::control::Answer;
use crate::control::tests::fake::{self, FakeDaemon, FakeWorkers};
use crate::status::groups::GroupStatus;

pub(super) fn asked(answer: Answer) -> Arc<Snapshot> {
    let root = tempfile::tempdir().unwrap();
    let answer = std::sync::Mutex::new(Some(answer));
    let daemon = FakeDaemon::new(&root.path().join("uksm.sock"), move |_| {
        answer.lock().unwrap().take().expect("it is asked once")
    });
    let snapshot = Snapshot::ask(daemon.path()).unwrap();
    assert_eq!(daemon.asked(), 1);
    Arc::new(snapshot)
}

fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "{line}\n{text}");
    }
}

#[test]
fn groups_are_labelled_by_name_and_a_missing_worker_has_no_figures() {
    let mut gone = fake::group("web", 0);
    (gone.status, gone.restarts) = (None, 3);
    let snapshot = asked(fake::groups(vec![fake::group("db \"1\"", 512), gone]));
    let text = exposition::text(&snapshot, Format::OpenMetrics);
    has(
        &text,
        &[
            "# TYPE uksm_up gauge",
            "uksm_up 1",
            "uksm_build_info{version=\"0.1.0\"} 1",
            "uksm_groups 2",
            "uksm_supervisor_memory_bytes 1048576",
            "uksm_group_up{group=\"db \\\"1\\\"\"} 1",
            "uksm_group_up{group=\"web\"} 0",
            "uksm_worker_restarts_total{group=\"web\"} 3",
            "# HELP uksm_saved_bytes Memory saved by merging, by kind of page: mappings of \
             frames less frames, and mappings of the zero page",
            "# UNIT uksm_saved_bytes bytes",
            "uksm_saved_bytes{group=\"db \\\"1\\\"\",by=\"frames\"} 2097152",
            "uksm_net_saved_bytes{group=\"db \\\"1\\\"\"} 1048576",
            "# TYPE uksm_tried_pages counter",
            "uksm_tried_pages_total{group=\"db \\\"1\\\"\",outcome=\"busy\"} 5",
            "uksm_regions{group=\"db \\\"1\\\"\",level=\"2\"} 125",
            "uksm_cpu_seconds_total{group=\"db \\\"1\\\"\"} 1.5",
            "uksm_cpu_budget_ratio{group=\"db \\\"1\\\"\"} 0.2",
        ],
    );
    assert!(!text.contains("saved_bytes{group=\"web\""), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn a_daemon_without_groups_is_the_group_that_accounts_have() {
    let snapshot = asked(Answer::Status(Box::new(fake::status(100))));
    let text = exposition::text(&snapshot, Format::Prometheus);
    has(
        &text,
        &[
            "uksm_groups 0",
            "uksm_group_up{group=\"all\"} 1",
            // Savings below the daemon's own memory.
            "uksm_net_saved_bytes{group=\"all\"} -638976",
            // The older form has no UNIT, and the type is that of the name with its end.
            "# TYPE uksm_cpu_seconds_total counter",
        ],
    );
    assert!(
        !text.contains("supervisor_memory") && !text.contains("# UNIT"),
        "{text}"
    );
}

#[test]
fn a_daemon_that_does_not_run_is_down_and_one_that_refuses_is_a_failure() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("uksm.sock");
    let nobody = Arc::new(Snapshot::ask(&path).unwrap());
    let text = exposition::text(&nobody, Format::OpenMetrics);
    has(&text, &["uksm_up 0"]);
    assert!(
        !text.contains("group_up") && !text.contains("uptime"),
        "{text}"
    );
    let _daemon = FakeDaemon::new(&path, |_| Answer::Error("stopping".to_owned()));
    assert_eq!(Snapshot::ask(&path).unwrap_err(), "stopping");
}

#[test]
fn every_row_has_a_figure_where_all_is_known() {
    let mut group = fake::group("web", 512);
    group.rate = Some(uksm_redistribution::rates::RateStatus::default());
    let Answer::Groups(mut status) = fake::groups(vec![group]) else {
        unreachable!("groups")
    };
    let freed = uksm_redistribution::status::GroupStatus {
        name: "web".to_owned(),
        rule: uksm_redistribution::settings::Rule::Equal,
        scope: uksm_redistribution::settings::Scope::Group,
        freed_bytes: 4096,
        given_bytes: 0,
        members: vec![],
    };
    status.written_on_host = Some(3);
    let redistribution = status
        .redistribution
        .insert(uksm_redistribution::status::RedistributionStatus::default());
    redistribution.groups.push(freed);
    let text = exposition::text(&asked(Answer::Groups(status)), Format::OpenMetrics);
    let described = text
        .lines()
        .filter(|line| line.starts_with("# TYPE "))
        .count();
    let rows = catalogue::of_daemon().len()
        + catalogue::of_groups().len()
        + catalogue::status::rows().len();
    assert_eq!(described, rows, "{text}");
    has(
        &text,
        &[
            "uksm_redistribution_freed_bytes{group=\"web\"} 4096",
            "uksm_redistribution_phase{phase=\"holding\"} 1",
            "uksm_redistribution_phase{phase=\"giving\"} 0",
        ],
    );
}

/// The bound is 50 ms for the installed program; tests are built without optimisation and run
/// beside others. All is real except the workers' figures: reading those takes them two verbs of
/// the module and a file of `/proc`.
#[test]
fn two_hundred_workers_take_one_request_and_little_time() {
    let root = tempfile::tempdir().unwrap();
    let workers = FakeWorkers::new(200, |n| Answer::Status(Box::new(fake::status(n * 100))));
    let daemon = FakeDaemon::new(&root.path().join("uksm.sock"), move |_| {
        let group = |(n, answer)| match answer {
            Answer::Status(status) => GroupStatus {
                status: Some(status),
                ..fake::group(&format!("group-{n}"), 0)
            },
            other => panic!("{other:?}"),
        };
        fake::groups(workers.ask().into_iter().enumerate().map(group).collect())
    });
    let mut times = Vec::new();
    for _ in 0..5 {
        let begun = Instant::now();
        let snapshot = Arc::new(Snapshot::ask(daemon.path()).unwrap());
        let text = exposition::text(&snapshot, Format::OpenMetrics);
        times.push(begun.elapsed());
        assert!(text.contains("uksm_saved_bytes{group=\"group-199\",by=\"frames\"} 81510400"));
    }
    assert_eq!(daemon.asked(), 5);
    times.sort();
    crate::log::print_line(&format!(
        "a scrape of 200 groups: {:?} ({:?} to {:?})",
        times[2], times[0], times[4]
    ));
    let bound = if cfg!(debug_assertions) { 3000 } else { 50 };
    // The minimum: other tests run beside this one.
    assert!(times[0] < Duration::from_millis(bound), "{times:?}");
}
