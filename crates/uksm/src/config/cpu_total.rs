//! The share of a core that all groups may use together (`cpu_total`).
//!
//! # Problem
//! Groups whose rate is dynamic divide a total. A total below the minimum of the groups is an error
//! at its line.
//!
//! # Units
//! Millionths of a core.

use uksm_redistribution::rates::{Share, millionths};

use super::plan::Plan;
use crate::setting::Origin;

/// The total of groups whose rate is dynamic: `cpu_total` without the shares of the others, or else
/// the sum of their `cpu`.
pub(crate) fn total<'a>(plans: impl Iterator<Item = &'a Plan> + Clone) -> Share {
    match cpu_total(plans.clone()) {
        Some(total) => total.saturating_sub(configured(plans, false)),
        None => configured(plans.clone(), true).max(least(plans)),
    }
}

/// The configured total.
fn cpu_total<'a>(mut plans: impl Iterator<Item = &'a Plan>) -> Option<Share> {
    plans.next()?.resolved.daemon.cpu_total.map(millionths)
}

/// The sum of `cpu` of groups whose rate is dynamic, or of the others.
fn configured<'a>(plans: impl Iterator<Item = &'a Plan>, is_dynamic: bool) -> Share {
    let plans = plans.filter(|plan| plan.rate.is_some() == is_dynamic);
    plans.map(|plan| millionths(plan.resolved.params.cpu)).sum()
}

fn least<'a>(plans: impl Iterator<Item = &'a Plan>) -> Share {
    let dynamic = plans.filter_map(|plan| plan.rate);
    dynamic.map(|terms| terms.least).sum()
}

/// Checks that `cpu_total`, set at `origin`, has room for the minimum of all groups.
///
/// # Errors
/// It has not.
pub(super) fn check(plans: &[Plan], origin: Option<&Origin>) -> Result<(), String> {
    let Some(total) = cpu_total(plans.iter()) else {
        return Ok(());
    };
    let fixed = configured(plans.iter(), false);
    let must = fixed + least(plans.iter());
    if must <= total {
        return Ok(());
    }
    let percent = |share: Share| share as f64 / 1e4;
    let origin = origin.map_or("cpu_total".to_owned(), ToString::to_string);
    Err(format!(
        "{origin}: {}% of a core is less than the groups need: {}% by cpu of groups with a fixed \
         rate, and {}% by cpu_least of the others",
        percent(total),
        percent(fixed),
        percent(must - fixed),
    ))
}

#[cfg(test)]
mod tests {
    use crate::config::plans::tests::Host;

    const DYNAMIC: &str = "[group.a]\ncgroup = \"/tenants/a\"\nrate = \"dynamic\"\n";

    #[test]
    fn a_dynamic_rate_has_bounds_and_begins_at_cpu() {
        let host = Host::new();
        let plans = host
            .plan(&format!(
                "cpu_total = \"50%\"\n{DYNAMIC}cpu = 0.2\ncpu_most = \"40%\"\n\
                 [group.b]\ncgroup = \"/tenants/b\"\ncpu = 0.1\n"
            ))
            .unwrap();
        let terms = plans[0].rate.unwrap();
        assert_eq!(
            (terms.least, terms.most, terms.start),
            (10_000, 400_000, 200_000)
        );
        assert_eq!(plans[1].rate, None);
        assert_eq!(super::total(plans.iter()), 400_000);
        let plans = host.plan(&format!("{DYNAMIC}cpu = 0.2\n")).unwrap();
        assert_eq!(super::total(plans.iter()), 200_000);
    }

    #[test]
    fn what_cannot_be_kept_is_refused_at_its_line() {
        let host = Host::new();
        for (text, says) in [
            (
                "cpu_least = 0.1\ncpu_most = 0.05\n",
                "config.toml:4: cpu_least: cpu_least is more",
            ),
            ("cpu_least = 2\n", "config.toml:4: cpu_least = 2: "),
            ("rate = \"fast\"\n", "config.toml:4: "),
            (
                "bottom_cpu = 0.1\n",
                "config.toml:3: rate: cpu_least is less than bottom_cpu",
            ),
            (
                "level_shares = [\"0.2%\", \"2%\", \"3%\", \"95%\"]\n",
                "config.toml:3: rate: level_shares cannot be set",
            ),
        ] {
            let text = format!("{DYNAMIC}{text}");
            let error = host.plan(&text).expect_err(&text);
            assert!(error.contains(says), "{error}");
        }
        for (text, says) in [
            (
                "[group.a]\ncgroup = \"/tenants/a\"\ncpu_least = 0.1\n".to_owned(),
                "config.toml:3: cpu_least: the group's rate is fixed",
            ),
            (
                format!(
                    "cpu_total = \"30%\"\n{DYNAMIC}[group.b]\ncgroup = \"/tenants/b\"\ncpu = 0.295\n"
                ),
                "config.toml:1: cpu_total: 30% of a core is less than the groups need: 29.5% by \
                 cpu of groups with a fixed rate, and 1% by cpu_least of the others",
            ),
            (
                format!("{DYNAMIC}cpu_total = \"30%\"\n"),
                "cpu_total is a setting of the daemon, not of a group",
            ),
        ] {
            let error = host.plan(&text).expect_err(&text);
            assert!(error.contains(says), "{error}");
        }
    }
}
