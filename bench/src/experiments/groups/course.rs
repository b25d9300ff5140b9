//! The daemon's status of groups and members, second by second.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

const MIB: f64 = 1_048_576.0;

/// Curves by name: seconds and values.
pub(super) type Curves = BTreeMap<String, Vec<(f64, f64)>>;

/// The state of a run at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct RunState {
    /// Bytes that merging freed, of each group.
    pub freed: BTreeMap<String, f64>,
    /// The limit of each member in bytes.
    pub limits: BTreeMap<String, f64>,
    /// The share of a core that each group may use.
    pub shares: BTreeMap<String, f64>,
    /// Processor seconds of each worker.
    pub cpu: BTreeMap<String, f64>,
    /// The status of each dynamic rate.
    pub rates: BTreeMap<String, Value>,
}

/// Reads the output of `uksm status --json`.
pub(super) fn read(answer: &Value) -> Result<RunState> {
    let groups = answer["groups"].as_array();
    let groups = groups.with_context(|| format!("no groups in {answer}"))?;
    let mut state = RunState::default();
    for group in groups {
        let name = group["name"].as_str().unwrap_or_default().to_owned();
        let cpu = &group["status"]["cpu"];
        if group["rate"].is_object() {
            state.rates.insert(name.clone(), group["rate"].clone());
        }
        if let Some(seconds) = cpu["process_seconds"].as_f64() {
            state.cpu.insert(name.clone(), seconds);
        }
        if let Some(share) = cpu["policy"]["budget_share"]
            .as_f64()
            .or(cpu["budget_share"].as_f64())
        {
            state.shares.insert(name, share);
        }
    }
    let given = answer["redistribution"]["groups"].as_array();
    for group in given.into_iter().flatten() {
        let name = group["name"].as_str().unwrap_or_default();
        let freed = group["freed_bytes"].as_f64().unwrap_or(0.0);
        state.freed.insert(name.to_owned(), freed);
        for member in group["members"].as_array().into_iter().flatten() {
            let bytes = |field: &str| member[field].as_f64().unwrap_or(0.0);
            let limit = bytes("base_bytes") + bytes("given_bytes");
            let member = member["name"].as_str().unwrap_or_default();
            state.limits.insert(format!("{name}/{member}"), limit);
        }
    }
    Ok(state)
}

/// Adds a state to the curves of MiB and of percent.
pub(super) fn add(curves: &mut Curves, seconds: f64, state: &RunState) {
    let mut push =
        |name: String, value: f64| curves.entry(name).or_default().push((seconds, value));
    for (member, bytes) in &state.limits {
        push(format!("{member} may have"), bytes / MIB);
    }
    for (group, bytes) in &state.freed {
        push(format!("{group} freed"), bytes / MIB);
    }
    let freed: f64 = state.freed.values().sum();
    push("all freed".to_owned(), freed / MIB);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_by_group_and_member() {
        let answer = serde_json::json!({
            "groups": [{"name": "fio", "status": {"cpu": {"process_seconds": 1.5, "budget_share": 0.1}}}],
            "redistribution": {"groups": [{"name": "fio", "freed_bytes": 2 << 20, "members": [
                {"name": "one", "base_bytes": 1 << 20, "given_bytes": 3 << 20}
            ]}]},
        });
        let state = read(&answer).unwrap();
        assert_eq!((state.cpu["fio"], state.shares["fio"]), (1.5, 0.1));
        let mut curves = Curves::new();
        add(&mut curves, 3.0, &state);
        assert_eq!(curves["fio/one may have"], [(3.0, 4.0)]);
        assert_eq!(curves["all freed"], [(3.0, 2.0)]);
        assert!(read(&serde_json::json!({"error": "x"})).is_err());
    }
}
