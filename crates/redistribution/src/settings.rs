//! What an operator says of redistribution in a group.
//!
//! # Units
//! Bytes; weights have none.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use crate::policy::Rule;

/// Among whom what a group freed is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The members of the group.
    #[default]
    Group,
    /// The members of all groups of this scope, which put together what they freed (NOGRP in
    /// Euro-Par'11).
    All,
}

/// A group whose members are given what was freed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The group's name.
    pub name: String,
    /// By what parts.
    pub rule: Rule,
    /// Among whom.
    pub scope: Scope,
    /// Most bytes that a member changes by at once.
    pub step: u64,
    /// Least bytes worth a rise.
    pub least: u64,
    /// Its members.
    pub members: Vec<Member>,
}

/// A member changes by at most this at once, by default.
pub const DEFAULT_STEP_BYTES: u64 = 64 << 20;
/// A rise by less than this is not made, by default.
pub const DEFAULT_MIN_RISE_BYTES: u64 = 4 << 20;

/// Which limit of a control group moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Limit {
    /// `memory.high`: whoever is above is slowed down.
    #[default]
    #[serde(rename = "memory.high")]
    High,
    /// `memory.max`: whoever would go above is killed.
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

/// What is made larger and smaller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// A control group, by its folder.
    Cgroup {
        /// The folder.
        folder: PathBuf,
        /// Which limit moves.
        limit: Limit,
    },
    /// A virtual machine, by the socket of its monitor.
    Machine {
        /// The socket.
        socket: PathBuf,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Cgroup { folder, limit } => write!(f, "{}/{limit}", folder.display()),
            Place::Machine { socket } => write!(f, "the balloon at {}", socket.display()),
        }
    }
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// What it is.
    pub place: Place,
    /// Its size without anything given, which it never falls below.
    pub base: u64,
    /// Its largest size.
    pub ceiling: u64,
    /// Its part where weights decide.
    pub weight: u64,
}
