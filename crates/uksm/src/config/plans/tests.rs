//! Configured groups, over a folder in place of `/proc`.

use std::path::Path;

use uksm_linux::selection::{GroupId, Grouping, Value};

use super::*;
use crate::config;
use crate::setting::Settings;

/// A host of four processes: (id, program, control group).
const PROCESSES: [(u32, &str, &str); 4] = [
    (10, "nginx", "/tenants/a"),
    (11, "redis", "/tenants/a/cache"),
    (12, "nginx", "/tenants/b"),
    (13, "sshd", "/system.slice/ssh.service"),
];

pub(crate) struct Host(tempfile::TempDir);

impl Host {
    pub(crate) fn new() -> Host {
        let root = tempfile::tempdir().unwrap();
        for (pid, comm, cgroup) in PROCESSES {
            let folder = root.path().join(pid.to_string());
            std::fs::create_dir(&folder).unwrap();
            let stat =
                format!("{pid} ({comm}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {pid} 4096 1 0\n");
            std::fs::write(folder.join("stat"), stat).unwrap();
            std::fs::write(folder.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
            std::fs::write(folder.join("status"), format!("Tgid:\t{pid}\n")).unwrap();
        }
        Host(root)
    }

    pub(crate) fn plan(&self, text: &str) -> Result<Vec<Plan>, String> {
        self.plans(text).map(|plans| plans.groups)
    }

    pub(crate) fn plans(&self, text: &str) -> Result<Plans, String> {
        let file = self.0.path().join("config.toml");
        std::fs::write(&file, text).unwrap();
        let mut config = Config::default();
        config::read(&file, true, &mut config)?;
        plan(&config, &Proc::at(self.0.path()))
            .map_err(|error| error.replace(&*self.0.path().to_string_lossy(), ""))
    }

    fn refused(&self, text: &str) -> String {
        let error = self.plan(text).expect_err(text);
        assert_eq!(error.lines().count(), 1, "{error}");
        error.replace(&*self.0.path().to_string_lossy(), "")
    }

    /// The processes of each plan.
    fn members(&self, plans: &[Plan]) -> Vec<Vec<u32>> {
        let proc = Proc::at(self.0.path());
        let ids = (0..).map(GroupId);
        let groups = ids.zip(plans.iter().map(|plan| plan.selection.clone()));
        let mut grouping = Grouping::of(groups.collect());
        let mut members = vec![Vec::new(); plans.len()];
        for (pid, ..) in PROCESSES {
            let stat = proc.stat(pid).unwrap();
            if let Some(group) = grouping.group_of(&proc, (pid, &stat), None).unwrap() {
                members[group.0 as usize].push(pid);
            }
        }
        members
    }
}

#[test]
fn each_process_is_in_one_group() {
    let host = Host::new();
    let plans = host
        .plan(
            "governor = \"low\"\nv_dup = 0.2\n[targets.exclude]\ncomm = \"redis\"\n\
             [group.rest]\nall = true\n\
             [group.b]\ncgroup = \"/tenants/b\"\ngovernor = \"quiet\"\nmax_frames = 7\n\
             [group.a]\ncgroup = \"/tenants/a\"\nbook = \"/tenants/a\"\n",
        )
        .unwrap();
    let names: Vec<&str> = plans.iter().map(|plan| plan.name.as_str()).collect();
    assert_eq!(
        names,
        ["a", "b", "rest"],
        "by name, and what is left at the end"
    );
    assert_eq!(host.members(&plans), [vec![10], vec![12], vec![13]]);
    let governors = plans
        .iter()
        .map(|plan| plan.resolved.daemon.governor.name());
    assert_eq!(governors.collect::<Vec<_>>(), ["low", "quiet", "low"]);
    assert_eq!(plans[1].resolved.daemon.max_frames, Some(7));
    assert_eq!(plans[1].resolved.params.v_dup, 0.2);
    assert_eq!(
        plans[0].book.as_ref().unwrap().folder(),
        "/sys/fs/cgroup/tenants/a"
    );
    assert!(plans.iter().all(|plan| plan.resolved.params.hint_runs > 0));
    let bottom: f64 = plans
        .iter()
        .map(|plan| plan.resolved.params.bottom_cpu)
        .sum();
    assert!((bottom - 0.002).abs() < 1e-9, "one for the host: {bottom}");
}

#[test]
fn worker_gets_the_resolved_settings() {
    let host = Host::new();
    let plans = host
        .plan("[group.a]\ncomm = \"nginx\"\ngovernor = \"quiet\"\ncpu = \"3%\"\nhint_runs = 2\n")
        .unwrap();
    let resolved = Settings::of_texts(&plans[0].texts)
        .unwrap()
        .resolve()
        .unwrap();
    assert_eq!(resolved.params, plans[0].resolved.params);
    assert_eq!(resolved.daemon, plans[0].resolved.daemon);
    assert_eq!((resolved.params.cpu, resolved.params.hint_runs), (0.03, 2));
}

#[test]
fn groups_that_name_the_same_are_refused() {
    let host = Host::new();
    for (a, b, expected) in [
        ("comm = \"x*\"", "comm = \"x*\"", "comm x*"),
        ("pid = 10", "pid = \"10@10\"", "pid 10"),
        (
            "unit = \"x.service\"",
            "unit = \"x.service\"",
            "unit x.service",
        ),
        ("cgroup = \"/x\"", "cgroup = \"/x/y\"", "cgroup /x/y"),
        ("cgroup = \"/x/y\"", "cgroup = \"/x\"", "cgroup /x/y"),
        ("cgroup = \"/t/*\"", "cgroup = \"/t/y\"", "cgroup /t/y"),
        ("all = true", "all = true", "all"),
    ] {
        let error = host.refused(&format!("[group.a]\n{a}\n[group.b]\n{b}\n"));
        let expected = format!(
            "/config.toml:3: b: {expected} is also in group a (/config.toml:1: a): exclude it from one \
             of them"
        );
        assert_eq!(error, expected);
    }
    host.plan(
        "[group.a]\ncgroup = \"/x\"\nexclude = { cgroup = \"/x/y\" }\n\
         [group.b]\ncgroup = \"/x/y\"\n",
    )
    .unwrap();
}

#[test]
fn process_in_two_groups_is_named_and_does_not_prevent_the_start() {
    let host = Host::new();
    let text = "[group.web]\ncomm = \"nginx\"\n[group.b]\ncgroup = \"/tenants/b\"\n";
    let plans = host.plan(text).unwrap();
    assert_eq!(
        host.members(&plans),
        [vec![12], vec![10]],
        "the first by name has it"
    );
    let proc = Proc::at(host.0.path());
    assert_eq!(
        conflicts::among_processes(&plans, &proc),
        [
            "process 12 (nginx) matches groups b and web, and stays in b: exclude it from one of them"
        ]
    );
    let text = text.replace(
        "[group.b]",
        "exclude = { cgroup = \"/tenants/b\" }\n[group.b]",
    );
    let plans = host.plan(&text).unwrap();
    assert!(conflicts::among_processes(&plans, &proc).is_empty());
}

#[test]
fn a_name_that_steers_a_terminal_is_escaped() {
    let host = Host::new();
    let stat = "12 (a\u{1b}]0;x\u{7}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12 4096 1 0\n";
    std::fs::write(host.0.path().join("12/stat"), stat).unwrap();
    let text = "[group.web]\ncomm = \"a*\"\n[group.b]\ncgroup = \"/tenants/b\"\n";
    let plans = host.plan(text).unwrap();
    let lines = conflicts::among_processes(&plans, &Proc::at(host.0.path()));
    assert!(
        lines[0].starts_with("process 12 (a\\u{1b}]0;x\\u{7}) matches"),
        "{lines:?}"
    );
    assert!(!lines[0].contains(char::is_control), "{lines:?}");
}

#[test]
fn a_process_that_has_ended_keeps_no_file_from_being_read() {
    let host = Host::new();
    let plans = host
        .plan("[group.a]\npid = [99, 10]\n[group.b]\npid = 98\n")
        .unwrap();
    assert_eq!(host.members(&plans), [vec![10], vec![]]);
}

#[test]
fn each_mistake_names_its_line() {
    let host = Host::new();
    for (text, expected) in [
        (
            "[group.a]\nv_dupe = 1\n",
            "/config.toml:2: v_dupe: no such key: known are account_days, ",
        ),
        ("group = 1\n", "/config.toml:1: group: must be a table"),
        ("[group]\na = 1\n", "/config.toml:2: a: must be a table"),
        (
            "[group.\"a b\"]\n",
            "/config.toml:1: a b: a group's name has 1 to 64 letters",
        ),
        (
            "[group.a]\nlog = \"info\"\ncomm = \"x\"\n",
            "/config.toml:1: a: log is a setting of the daemon",
        ),
        ("[group.a]\n", "/config.toml:1: a: no targets"),
        (
            "[group.a]\ncpu = 1.5\ncomm = \"x\"\n",
            "/config.toml:2: cpu = 1.5: must be ",
        ),
        (
            "[group.a]\nbook = \"/x/*\"\n",
            "/config.toml:2: book: '/x/*': name one control group that pays",
        ),
        (
            "[group.a]\nbook = \"x\"\n",
            "/config.toml:2: book: 'x' is not the path of a control group",
        ),
        (
            "[group.a]\nall = true\ncomm = \"x\"\n",
            "/config.toml:1: a: all means every process",
        ),
        (
            "[targets]\ncomm = \"x\"\n[group.a]\ncomm = \"x\"\n",
            "/config.toml:3: a: groups and targets cannot both be named",
        ),
    ] {
        let error = host.refused(text);
        assert!(error.starts_with(expected), "{text:?}: {error}");
    }
}

#[test]
fn rules_are_tried_in_the_order_of_their_lines_and_their_groups_inherit() {
    let host = Host::new();
    let plans = host
        .plans(
            "v_dup = 0.2\n[targets.exclude]\ncomm = \"redis\"\n\
             [rule.z]\nby = \"cgroup:2\"\ncgroup = \"/tenants\"\nbook = \"self\"\nmost = 7\n\
             governor = \"quiet\"\ndissolve_after = \"5s\"\nmax_frames = 9\n\
             [group.one]\npid = 10\n\
             [rule.a]\nby = \"user\"\nbook = \"/x\"\n",
        )
        .unwrap();
    let names: Vec<&str> = plans.rules.iter().map(|plan| &*plan.rule.name).collect();
    assert_eq!(names, ["z", "a"]);
    let [z, a] = &plans.rules[..] else {
        unreachable!();
    };
    assert_eq!((z.rule.most, z.dissolve_after), (7, 5_000_000_000));
    assert_eq!((a.rule.most, a.dissolve_after), (256, 30_000_000_000));
    assert!(a.rule.selection.all && !z.rule.selection.all);
    assert_eq!(a.rule.selection.excluded.comms.len(), 1, "as all groups");
    let value = Value {
        text: "/tenants/[a]".to_owned(),
        cgroup: Some("/tenants/[a]".to_owned()),
    };
    let group = z.group(&value);
    assert!(group.name.starts_with("z@tenants+_a_~"), "{}", group.name);
    assert_eq!(group.origin, "rule z, cgroup:2 /tenants/[a]");
    assert_eq!(
        group.book.unwrap().folder(),
        "/sys/fs/cgroup/tenants/[a]",
        "nothing in it is a pattern"
    );
    assert_eq!(group.resolved.daemon.governor.name(), "quiet");
    assert_eq!(group.resolved.daemon.max_frames, Some(9));
    assert_eq!(group.resolved.params.v_dup, 0.2);
    let of_a = a.group(&value);
    assert_eq!(of_a.book.unwrap().folder(), "/sys/fs/cgroup/x");
    let bottom = |plan: &Plan| plan.resolved.params.bottom_cpu;
    let (one, of_z) = (bottom(&plans.groups[0]), bottom(&z.group(&value)));
    let whole = one + 7.0 * of_z + 0.002 / 3.0;
    assert!((whole - 0.002).abs() < 1e-9, "one for the host: {whole}");
}

#[test]
fn each_mistake_in_a_rule_names_its_line() {
    let host = Host::new();
    let labels = host.0.path().join("labels");
    std::fs::write(&labels, "/t/a blue\n\n/t/b\n").unwrap();
    let file = format!("[rule.a]\nby = \"file:{}\"\n", labels.display());
    for (text, expected) in [
        ("rule = 1\n", "/config.toml:1: rule: must be a table"),
        (
            "[rule.a]\nv_dup = 0.1\n",
            "/config.toml:1: a: by is missing: write by = ",
        ),
        (
            "[rule.a]\n\nby = \"tenant\"\n",
            "/config.toml:3: by: 'tenant' forms no groups: write cgroup:DEPTH, user, ",
        ),
        (
            "[rule.a]\nby = \"cgroup:99\"\n",
            "/config.toml:2: by: '99' is not a depth of control groups",
        ),
        (
            "[rule.a]\nby = \"user\"\nmost = 0\n",
            "/config.toml:3: most = 0: must be 1 to 4096",
        ),
        (
            "[rule.a]\nby = \"user\"\ndissolve_after = \"5\"\n",
            "/config.toml:3: dissolve_after = 5: must be 1s to 24h",
        ),
        (
            "[rule.a]\nby = \"user\"\nbook = \"self\"\n",
            "/config.toml:3: book = self: a group formed by user has no control group",
        ),
        (
            "[rule.a]\nby = \"unit\"\nbook = \"/x/*\"\n",
            "/config.toml:3: book: '/x/*': name one control group that pays",
        ),
        (
            "[rule.a]\nby = \"unit\"\ncpu = 1.5\n",
            "/config.toml:3: cpu = 1.5: must be ",
        ),
        (
            "[rule.a]\nby = \"unit\"\nlog = \"info\"\n",
            "/config.toml:1: a: log is a setting of the daemon",
        ),
        (
            "[rule.a]\nby = \"unit\"\nall = true\ncomm = \"x\"\n",
            "/config.toml:1: a: a rule has all = true, or",
        ),
        (
            "[rule.a]\nby = \"unit\"\nmember = 1\n",
            "/config.toml:3: member: no such key: known are account_days, ",
        ),
        (
            "[rule.\"a@b\"]\nby = \"unit\"\n",
            "/config.toml:1: a@b: a rule's name has 1 to 24 letters",
        ),
        (
            "[group.\"a@b\"]\ncomm = \"x\"\n",
            "/config.toml:1: a@b: a group's name has 1 to 64 letters",
        ),
        (
            "[targets]\ncomm = \"x\"\n[rule.a]\nby = \"unit\"\n",
            "/config.toml:3: a: groups and targets cannot both be named",
        ),
        (
            &file,
            "/config.toml:2: by: /labels:3: a line must be the path",
        ),
    ] {
        let error = host.plans(text).expect_err(text);
        let error = error.replace(&*host.0.path().to_string_lossy(), "");
        assert!(error.starts_with(expected), "{text:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    std::fs::create_dir(host.0.path().join("conf.d")).unwrap();
    let second = host.0.path().join("conf.d/b.toml");
    std::fs::write(&second, "[rule.a]\nby = \"user\"\n").unwrap();
    let error = host.refused("[rule.a]\nby = \"user\"\n");
    assert!(error.starts_with("/conf.d/b.toml:1: a: is set in /config.toml:1: a already"));
}

#[test]
fn a_group_stands_in_one_file() {
    let host = Host::new();
    std::fs::create_dir(host.0.path().join("conf.d")).unwrap();
    let second = host.0.path().join("conf.d/b.toml");
    std::fs::write(&second, "\n[group.a]\ncomm = \"y\"\n").unwrap();
    let error = host.refused("[group.a]\ncomm = \"x\"\n");
    assert_eq!(
        error,
        "/conf.d/b.toml:2: a: is set in /config.toml:1: a already"
    );
    assert!(Path::new(&second).exists());
}
