//! Text, names and counts from elsewhere, as the other crates may use them.
//!
//! # Problem
//! Several crates show what processes, monitors and workers chose, walk paths that others wrote,
//! and read the same counter of the kernel. A rule that each of them has by itself is soon another
//! rule in each.
//!
//! # Approach
//! - [`plain`] makes one bounded line of any text, without anything that a terminal would obey;
//! - [`names`] tells which parts of a path name something;
//! - [`copies`] finds the copies of merged pages among the kernel's events;
//! - [`own_file`] reads a file that this process or root wrote, and nobody else could.
//!
//! All others open no file: bytes come in, and an answer goes out.

pub mod copies;
pub mod names;
pub mod own_file;
pub mod plain;
