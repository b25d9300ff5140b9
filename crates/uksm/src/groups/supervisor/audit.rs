//! The log of merging in each group's domain.
//!
//! # Problem
//! An operator who must show that customers share nothing needs to know later which policy was in
//! force when, and how much was merged under it; and not from a worker, which may be compromised.
//!
//! # Approach
//! A line when a domain begins, when it ends, and each hour, with the module's own counts and the
//! policy that it keeps. A change of policy has a line of its own, and ends the domain. Messages
//! begin with "audit", and their fields have one meaning each:
//!
//! | field | is |
//! |---|---|
//! | `group` | the group of the domain |
//! | `policy` | `all`, `between` or `zero` |
//! | `spaces` | minimum number of spaces that must hold the contents of a frame |
//! | `across_nodes` | whether pages of different nodes of memory are merged |
//! | `merged`, `zeroed`, `broken` | pages since the domain was opened |
//! | `frames` | frames now |
//!
//! # Source
//! INFO of `interface/uksm_ioctl.h`.

use std::os::fd::OwnedFd;

use uksm_linux::module::{Device, Info, raw};
use uksm_policy::params::Contents;

use crate::config::plan::Plan;

/// The module replaces a higher limit of frames by this one.
const MAX_FRAME_LIMIT: u64 = i32::MAX as u64;

/// Whether the domain has the plan's policy of merging.
pub(super) fn keeps(plan: &Plan, info: &Info) -> bool {
    let wanted = plan.resolved.configuration(0);
    (info.policy, info.least_spaces) == (wanted.policy(), wanted.least_spaces.max(1))
}

/// Whether the domain has the plan's limits. A limit that the plan leaves open must be that of a
/// new domain, if that is known.
pub(super) fn has_limits(plan: &Plan, info: &Info, fresh: Option<&Info>) -> bool {
    let wanted = plan.resolved.configuration(0);
    let frames = match wanted.frame_limit {
        0 => fresh.map(|fresh| fresh.frame_limit),
        limit => Some(limit.min(MAX_FRAME_LIMIT)),
    };
    let sharers = match wanted.sharer_limit {
        0 => fresh.map(|fresh| fresh.sharer_limit),
        limit => Some(limit),
    };
    frames.is_none_or(|limit| limit == info.frame_limit)
        && sharers.is_none_or(|limit| limit == info.sharer_limit)
}

/// The domain that a group's worker has opened.
///
/// # Errors
/// It is no domain, or its policy or limits are not those of the plan.
pub(super) fn taken(file: OwnedFd, plan: &Plan) -> Result<Device, String> {
    let path = plan.resolved.daemon.device.clone();
    let domain = Device::from_file(file, path).map_err(|error| error.to_string())?;
    let info = domain.info().map_err(|error| error.to_string())?;
    if !keeps(plan, &info) {
        return Err("the worker opened a domain of another policy".to_owned());
    }
    if !has_limits(plan, &info, None) {
        return Err("the worker opened a domain of other limits".to_owned());
    }
    log("begins", &plan.name, &domain);
    Ok(domain)
}

/// Logs the figures of a domain.
pub(super) fn log(what: &str, group: &str, domain: &Device) {
    match domain.info() {
        Ok(info) => tracing::info!(
            group,
            policy = policy(&info).name(),
            spaces = info.least_spaces,
            across_nodes = info.policy & raw::UKSM_POLICY_NODES == 0,
            merged = info.merged,
            zeroed = info.zeroed,
            broken = info.broken,
            frames = info.frames,
            "audit: domain {what}"
        ),
        Err(error) => tracing::warn!("group {group}: no audit: {error}"),
    }
}

/// Logs a change of a group's policy, if these plans differ in it.
pub(super) fn changed(old: &Plan, new: &Plan) {
    let rule = |plan: &Plan| {
        let params = &plan.resolved.params;
        let spaces = params.merge_spaces;
        (params.merge.name(), spaces, params.merge_across_nodes)
    };
    let (before, after) = (rule(old), rule(new));
    if before != after {
        tracing::info!(
            group = new.name,
            policy = after.0,
            spaces = after.1,
            across_nodes = after.2,
            policy_before = before.0,
            spaces_before = before.1,
            across_nodes_before = before.2,
            "audit: another policy"
        );
    }
}

/// The policy of a domain.
fn policy(info: &Info) -> Contents {
    if info.policy & raw::UKSM_POLICY_ZERO != 0 {
        Contents::Zero
    } else if info.policy & raw::UKSM_POLICY_BETWEEN != 0 {
        Contents::Between
    } else {
        Contents::All
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::plans::tests::Host;

    #[test]
    fn a_domain_keeps_a_plan_if_it_was_configured_so() {
        let host = Host::new();
        let cases = [
            ("", 0, 1),
            ("merge = \"zero\"", raw::UKSM_POLICY_ZERO, 1),
            ("merge_spaces = 4", 0, 4),
            ("merge_across_nodes = false", raw::UKSM_POLICY_NODES, 1),
        ];
        for (at, (text, ..)) in cases.iter().enumerate() {
            let text = format!("[group.a]\ncomm = \"nginx\"\n{text}");
            let plan = host.plan(&text).unwrap().remove(0);
            for (other, &(_, policy, least_spaces)) in cases.iter().enumerate() {
                let info = Info {
                    policy,
                    least_spaces,
                    ..Info::default()
                };
                assert_eq!(keeps(&plan, &info), at == other, "{text}, {info:?}");
            }
        }
    }

    #[test]
    fn a_domain_has_the_limits_of_a_plan_if_it_was_configured_so() {
        let host = Host::new();
        let plan = |text: &str| {
            let text = format!("[group.a]\ncomm = \"nginx\"\n{text}");
            host.plan(&text).unwrap().remove(0)
        };
        let sharers = plan("").resolved.params.max_sharers;
        let info = |frame_limit, sharer_limit| Info {
            frame_limit,
            sharer_limit,
            ..Info::default()
        };
        let fresh = info(5000, 256);
        for (text, is_5000, is_7, has_2_sharers) in [
            ("", true, false, false),
            ("max_frames = 7", false, true, false),
            ("max_sharers = 2", false, false, true),
        ] {
            let has = |info| has_limits(&plan(text), &info, Some(&fresh));
            assert_eq!(has(info(5000, sharers)), is_5000, "{text}");
            assert_eq!(has(info(7, sharers)), is_7, "{text}");
            assert_eq!(has(info(5000, 2)), has_2_sharers, "{text}");
        }
        assert!(
            has_limits(&plan(""), &info(7, sharers), None),
            "it may be the default"
        );
        let most = plan(&format!("max_frames = {}", u64::from(u32::MAX)));
        assert!(has_limits(&most, &info(i32::MAX as u64, sharers), None));
    }
}
