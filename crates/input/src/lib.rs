//! Text, names and counts from outside, in a form that is safe for the other crates.
//!
//! # Problem
//! Several crates print text from processes, monitors and workers, walk paths from others, and read
//! the same counter of the kernel. If each had its own rule for this, the rules would soon differ.
//!
//! # Approach
//! - [`plain`] makes one bounded line of any text, without anything that a terminal would obey;
//! - [`names`] checks which parts of a path name a file;
//! - [`copies`] finds the copies of merged pages among the kernel's events;
//! - [`regular_file`] reads a file that an operator names, and [`own_file`] one that only this
//!   process's user or root could have written.
//!
//! All others open no file: they map bytes to a result.

pub mod copies;
pub mod names;
pub mod own_file;
pub mod plain;
pub mod regular_file;
