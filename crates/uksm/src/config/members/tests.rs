//! Valid files of redistribution, and the errors for mistakes.

use super::*;
use crate::config::plans::tests::Host;

const MIB: u64 = 1 << 20;

/// The groups a and b with these lines.
fn plan(a: &str, b: &str) -> Result<Vec<Option<settings::Group>>, String> {
    let text = format!("[group.a]\ncomm = \"nginx\"\n{a}\n[group.b]\ncomm = \"redis\"\n{b}\n");
    let plans = Host::new().plan(&text)?;
    Ok(plans.into_iter().map(|plan| plan.giving).collect())
}

const ONE: &str = "redistribute = \"equal\"\n[group.a.member.one]\ncgroup = \"/tenants/a/one\"\nbase = \"64MiB\"\n";

#[test]
fn a_rule_and_its_members_are_read() {
    let text = "redistribute = \"weights\"\nredistribute_step = \"1GiB\"\nredistribute_scope = \"all\"\n\
                [group.a.member.one]\ncgroup = \"/tenants/a/one\"\nbase = \"64MiB\"\nlimit = \"memory.max\"\n\
                [group.a.member.two]\nqmp = \"/run/none/two.sock\"\nbase = \"1GiB\"\nceiling = \"2GiB\"\nweight = 3\n";
    let read = plan(text, "").unwrap();
    let member = |name: &str, place, base, ceiling, weight| settings::Member {
        name: name.to_owned(),
        place,
        base,
        ceiling,
        weight,
    };
    let folder = PathBuf::from("/sys/fs/cgroup/tenants/a/one");
    let limit = Limit::Max;
    let socket = PathBuf::from("/run/none/two.sock");
    assert_eq!(
        read[0],
        Some(settings::Group {
            name: "a".to_owned(),
            rule: Rule::Weights,
            scope: Scope::All,
            step: 1 << 30,
            least: DEFAULT_MIN_RISE_BYTES,
            members: vec![
                member(
                    "one",
                    SizeControl::Cgroup { folder, limit },
                    64 * MIB,
                    u64::MAX,
                    1
                ),
                member("two", SizeControl::Machine { socket }, 1 << 30, 2 << 30, 3),
            ],
        })
    );
    assert_eq!(read[1], None, "nothing is said of it");
}

#[test]
fn redistribution_can_be_turned_off_where_members_stand() {
    let text = ONE.replace("equal", "none");
    assert_eq!(plan(&text, "").unwrap()[0], None);
}

#[test]
fn each_mistake_is_reported_with_its_line() {
    let changed = |from: &str, to: &str| ONE.replace(from, to);
    let file = std::env::current_exe().unwrap();
    let no_socket = changed(
        "cgroup = \"/tenants/a/one\"",
        &format!("qmp = \"{}\"", file.display()),
    );
    let long = format!("qmp = \"/{}\"", "x".repeat(MAX_SOCKET));
    for (text, expected) in [
        (
            changed("equal", "fair"),
            "3: redistribute = fair: must be none, equal, ",
        ),
        (changed("64MiB", "64MB"), "6: base = 64MB: must be "),
        (changed("64MiB", "1"), "6: base = 1: must be "),
        (changed("base = \"64MiB\"", ""), "4: one: base is missing"),
        (
            changed("base", "bass"),
            "6: bass: no such key: known are base, ceiling, cgroup, limit, qmp, weight",
        ),
        (
            changed("\"64MiB\"", "\"64MiB\"\nceiling = \"63MiB\""),
            "7: ceiling = 63MiB: is less than the member's base",
        ),
        (
            changed("\"64MiB\"", "\"64MiB\"\nweight = 0"),
            "7: weight = 0: must be 1 to ",
        ),
        (
            changed("\"64MiB\"", "\"64MiB\"\nlimit = \"memory.low\""),
            "7: limit = memory.low: must be memory.high",
        ),
        (
            changed("/tenants/a/one", "tenants/a"),
            "5: cgroup: 'tenants/a' is not the path",
        ),
        (
            changed("/tenants/a/one", "/tenants/*"),
            "5: cgroup: '/tenants/*': a member must be one",
        ),
        (
            changed("/tenants/a/one", "/"),
            "5: cgroup: '/': a member must be one",
        ),
        (
            changed("cgroup", "qmp").replace("/tenants", "tenants"),
            "5: qmp: 'tenants/a/one' is not a path",
        ),
        (
            changed("cgroup = \"/tenants/a/one\"", &long),
            "5: qmp: '/xxx",
        ),
        (
            changed("/tenants/a/one", "/tenants/a/../one"),
            "5: cgroup: '/tenants/a/../one' is not the path of a control group",
        ),
        (
            changed("cgroup = \"/tenants/a/one\"", "qmp = \"/run/a/../b\""),
            "5: qmp: '/run/a/../b' has an empty name",
        ),
        (
            changed("cgroup = \"/tenants/a/one\"", "qmp = \"/run//b\""),
            "5: qmp: '/run//b' has an empty name",
        ),
        (no_socket, "5: qmp: '/"),
        (
            changed("cgroup", "qmp") + "limit = \"memory.max\"\n",
            "7: limit: only control groups have a limit",
        ),
        (
            changed("cgroup", "qmp") + "cgroup = \"/x\"\n",
            "5: qmp: a member is a control group or",
        ),
        (
            changed("cgroup = \"/tenants/a/one\"", ""),
            "4: one: names no control group and no machine",
        ),
        (
            "redistribute = \"equal\"\n".to_owned(),
            "3: redistribute: the group has no members",
        ),
        (
            changed("redistribute = \"equal\"", ""),
            "4: one: group a has this member",
        ),
        (
            changed("\"equal\"", "\"equal\"\nredistribute_step = \"2MiB\""),
            "4: redistribute_step: the largest change in a second",
        ),
        (
            changed("[group.a.member.one]", "member = 1\n[x]"),
            "4: member: must be a table",
        ),
    ] {
        let error = plan(&text, "").unwrap_err();
        let expected = format!("/config.toml:{expected}");
        assert!(
            error.contains(&expected),
            "{text}\n{error}\nand not\n{expected}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn two_groups_do_not_move_one_limit_nor_divide_by_two_rules() {
    let twice = ONE.replace("group.a", "group.b").replace(".one", ".other");
    let error = plan(ONE, &twice).unwrap_err();
    assert!(
        error.contains(":11: other: /sys/fs/cgroup/tenants/a/one is a member already (")
            && error.contains(":4: one)"),
        "{error}"
    );
    let all = |text: &str| text.replace("[group", "redistribute_scope = \"all\"\n[group");
    let other = twice.replace("a/one", "b/one");
    plan(&all(ONE), &all(&other)).unwrap();
    let weights = other.replace("equal", "weights");
    plan(&all(ONE), &weights).unwrap();
    let error = plan(&all(ONE), &all(&weights)).unwrap_err();
    assert!(
        error
            .contains(":11: redistribute: groups that divide memory together need the same rule (")
            && error.contains(":3: redistribute has another)"),
        "{error}"
    );
}
