//! Names in a path.
//!
//! # Problem
//! An empty name, `.` and `..` name no file of their own: a path with one of them leads elsewhere
//! than it appears to.

/// Whether a part of a path names a file in its folder.
#[must_use]
pub fn is_name(part: &[u8]) -> bool {
    !matches!(part, b"" | b"." | b"..") && !part.contains(&b'/')
}

/// The first part of a path from the root that names no file; the root itself has none.
#[must_use]
pub fn first_no_name(path: &str) -> Option<&str> {
    let below = path.strip_prefix('/')?;
    if below.is_empty() {
        return None;
    }
    below.split('/').find(|part| !is_name(part.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_lead_elsewhere_are_no_names() {
        for part in ["", ".", "..", "a/b"] {
            assert!(!is_name(part.as_bytes()), "{part}");
        }
        for part in ["...", ".a", "a.", " ", "\u{fffd}"] {
            assert!(is_name(part.as_bytes()), "{part}");
        }
        for (path, part) in [("/a/../b", ".."), ("//a", ""), ("/a/", ""), ("/.", ".")] {
            assert_eq!(first_no_name(path), Some(part), "{path}");
        }
        for path in ["/", "/a", "/a/b...", "a/.."] {
            assert_eq!(first_no_name(path), None, "{path}");
        }
    }
}
