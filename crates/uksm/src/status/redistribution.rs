//! Redistribution in a status, as text: a line for the guard, and one for each member.

use uksm_redistribution::status::{MemberStatus, RedistributionStatus};

use super::mib;
use uksm_input::plain::plain;

/// The lines.
pub(super) fn lines(status: &RedistributionStatus) -> Vec<String> {
    let mut lines = vec![format!(
        "redistribution: {}, because of: {}",
        status.phase, status.reason
    )];
    for group in &status.groups {
        let of = &group.name;
        lines.extend(
            group
                .members
                .iter()
                .map(|own| format!("{of}: {}", line(own))),
        );
    }
    lines
}

fn line(member: &MemberStatus) -> String {
    let real = member.real_bytes.map_or_else(
        || "of unknown size".to_owned(),
        |real| format!("has {}", shown(real)),
    );
    let fault = member.error.as_ref();
    let fault = fault.map_or_else(String::new, |error| format!("; {}", plain(error)));
    format!(
        "{} {real}; may have {} and {} that were freed{fault}",
        member.name,
        shown(member.base_bytes),
        shown(member.given_bytes)
    )
}

fn shown(bytes: u64) -> String {
    let pages = bytes / uksm_policy::command::PAGE_SIZE;
    format!("{:.1} MiB", mib(i64::try_from(pages).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use uksm_redistribution::guard::Phase;
    use uksm_redistribution::settings::{Rule, Scope};
    use uksm_redistribution::status::GroupStatus;

    use super::*;

    #[test]
    fn each_member_is_a_line_with_its_fault() {
        let member = MemberStatus {
            name: "one".to_owned(),
            base_bytes: 64 << 20,
            freed_bytes: 0,
            given_bytes: 1 << 20,
            wanted_bytes: 0,
            real_bytes: None,
            error: Some("/run/one: refused".to_owned()),
        };
        let group = GroupStatus {
            name: "web".to_owned(),
            rule: Rule::Equal,
            scope: Scope::Group,
            freed_bytes: 0,
            given_bytes: 0,
            members: vec![member],
        };
        let status = RedistributionStatus {
            phase: Phase::Holding,
            reason: "8.0% of memory is available".to_owned(),
            available_bytes: 0,
            groups: vec![group],
        };
        assert_eq!(
            lines(&status),
            [
                "redistribution: holding, because of: 8.0% of memory is available",
                "web: one of unknown size; may have 64.0 MiB and 1.0 MiB that were freed; /run/one: refused",
            ]
        );
    }
}
