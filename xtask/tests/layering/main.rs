//! The tree keeps to its rules.
//!
//! Problem: a rule of architecture that nobody checks is gone after a few
//! changes.
//!
//! Approach: each rule reads the tree (manifests as TOML, Rust as tokens, the
//! rest as text) and gives the places that break it. For each rule there is a
//! test that the real tree keeps it, and one that a small tree which breaks it
//! is caught.

mod circles;
mod documents;
mod imports;
mod inputs;
mod licences;
mod modules;
mod shape;
mod tree;

/// What a rule finds in a tree that keeps it.
fn none() -> Vec<String> {
    Vec::new()
}
