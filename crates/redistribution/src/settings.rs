//! The operator's settings of redistribution in a group.
//!
//! # Units
//! Bytes; weights have none.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use crate::targets::Rule;

/// The members among which a group's freed memory is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The members of the group.
    #[default]
    Group,
    /// The members of all groups of this scope, which pool their freed memory (NOGRP in
    /// Euro-Par'11).
    All,
}

/// A group whose members are given freed memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The group's name.
    pub name: String,
    /// The rule of division.
    pub rule: Rule,
    /// The members among which it is divided.
    pub scope: Scope,
    /// Limit of bytes by which a member changes at once.
    pub step: u64,
    /// Smallest rise.
    pub least: u64,
    /// Its members.
    pub members: Vec<Member>,
}

/// Default limit of a member's change at once.
pub const DEFAULT_STEP_BYTES: u64 = 64 << 20;
/// Default of the smallest rise.
pub const DEFAULT_MIN_RISE_BYTES: u64 = 4 << 20;

/// The limit of a control group that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Limit {
    /// `memory.high`: processes above it are slowed down.
    #[default]
    #[serde(rename = "memory.high")]
    High,
    /// `memory.max`: processes that would exceed it are killed.
    #[serde(rename = "memory.max")]
    Max,
}

impl Limit {
    /// The name of its file.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            Limit::High => "memory.high",
            Limit::Max => "memory.max",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file())
    }
}

/// The object that is made larger and smaller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeControl {
    /// A control group, by its folder.
    Cgroup {
        /// The folder.
        folder: PathBuf,
        /// The limit that moves.
        limit: Limit,
    },
    /// A virtual machine, by the socket of its monitor.
    Machine {
        /// The socket.
        socket: PathBuf,
    },
}

impl fmt::Display for SizeControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeControl::Cgroup { folder, limit } => write!(f, "{}/{limit}", folder.display()),
            SizeControl::Machine { socket } => write!(f, "the balloon at {}", socket.display()),
        }
    }
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// The object that is made larger and smaller.
    pub place: SizeControl,
    /// Its size without given memory, which it never falls below.
    pub base: u64,
    /// Its largest size.
    pub ceiling: u64,
    /// Its part where the rule is by weights.
    pub weight: u64,
}
