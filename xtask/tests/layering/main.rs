//! The tree keeps its rules.
//!
//! Problem: a rule of architecture without a check is broken after a few changes.
//!
//! Approach: each rule reads the tree (manifests as TOML, Rust as tokens, the rest as text) and
//! returns the places that break it. For each rule there is a test that the real tree keeps it, and
//! one that it catches a small tree which breaks it.

mod circles;
mod documents;
mod imports;
mod inputs;
mod licences;
mod modules;
mod names;
mod shape;
mod tree;

/// The result of a rule in a tree that keeps it.
fn none() -> Vec<String> {
    Vec::new()
}
