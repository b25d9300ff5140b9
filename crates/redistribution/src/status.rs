//! The status of redistribution.
//!
//! # Units
//! Bytes.

use serde::{Deserialize, Serialize};

use crate::guard::Phase;
use crate::settings::Scope;
use crate::targets::Rule;

/// The status of all groups.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RedistributionStatus {
    /// The phase of the guard.
    pub phase: Phase,
    /// Why.
    pub reason: String,
    /// Available memory of the host; 0 if unknown.
    pub available_bytes: u64,
    /// The groups whose members are given memory.
    pub groups: Vec<GroupStatus>,
}

/// One group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// The rule of division.
    pub rule: Rule,
    /// The members among which it is divided.
    pub scope: Scope,
    /// Memory that its merging freed.
    pub freed_bytes: u64,
    /// Freed memory that its members hold, its own or that of others in one scope.
    pub given_bytes: u64,
    /// Its members.
    pub members: Vec<MemberStatus>,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// Its size without given memory.
    pub base_bytes: u64,
    /// Its part of the memory that the group freed.
    pub freed_bytes: u64,
    /// The size asked of it, less its base.
    pub given_bytes: u64,
    /// Its final size.
    pub wanted_bytes: u64,
    /// Its real size: the memory that its control group uses, or its machine's size. Null if it was
    /// never seen.
    pub real_bytes: Option<u64>,
    /// Why it could not be seen or changed the last time; null if it could.
    pub error: Option<String>,
}
