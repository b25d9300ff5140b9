//! What redistribution says of itself.
//!
//! # Units
//! Bytes.

use serde::{Deserialize, Serialize};

use crate::guard::Phase;
use crate::policy::Rule;
use crate::settings::Scope;

/// The whole.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Status {
    /// What may be done now.
    pub phase: Phase,
    /// Why.
    pub reason: String,
    /// Memory of the host that is available; 0 if that is not known.
    pub available_bytes: u64,
    /// The groups whose members are given something.
    pub groups: Vec<GroupStatus>,
}

/// One group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// By what parts.
    pub rule: Rule,
    /// Among whom.
    pub scope: Scope,
    /// What its merging freed.
    pub freed_bytes: u64,
    /// What of it, or of others' in one scope, its members hold.
    pub given_bytes: u64,
    /// Its members.
    pub members: Vec<MemberStatus>,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// Its size without anything given.
    pub base_bytes: u64,
    /// What of what the group freed is reckoned as freed by it.
    pub freed_bytes: u64,
    /// What was asked of it, less its base.
    pub given_bytes: u64,
    /// What it is to have in the end.
    pub wanted_bytes: u64,
    /// What it really has: what its control group uses, or its machine's size. Null if that was
    /// never seen.
    pub real_bytes: Option<u64>,
    /// Why it could not be seen or changed the last time; null if it could.
    pub error: Option<String>,
}
