//! Text for logs and terminals, with parts chosen by others.
//!
//! # Problem
//! A process chooses its name, the names of its files and of its control groups; QEMU chooses the
//! texts of its errors. A newline in them begins a line of a log that uksm did not write, with its
//! own priority under journald (`<3>`); an escape sequence controls the reader's terminal. A text
//! without end fills the disk.
//!
//! # Approach
//! [`plain`] escapes unprintable characters, and cuts text longer than [`MAX_BYTES`]; [`start`]
//! cuts elsewhere. The daemon's log passes every message through it, and the program passes every
//! error before it ends, so that no code that names a process has to do it. A text of several
//! lines, such as a status, passes each part that others chose.
//!
//! # Source
//! sd-daemon(3): priorities at the beginning of a line.

/// Maximum length of a text, in bytes.
pub const MAX_BYTES: usize = 8192;

/// The text on one line, without invisible characters and any that a terminal would obey.
#[must_use]
pub fn plain(text: &str) -> String {
    start(text, MAX_BYTES)
}

/// The same, cut after this number of bytes.
#[must_use]
pub fn start(text: &str, max_bytes: usize) -> String {
    let mut plain = String::with_capacity(text.len().min(max_bytes));
    for c in text.chars() {
        if plain.len() > max_bytes {
            plain.push_str(" [cut]");
            break;
        }
        match c {
            // These are printable; they are escaped for other reasons.
            '\\' | '\'' | '"' => plain.push(c),
            c => plain.extend(c.escape_debug()),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_prints_stays_and_what_steers_is_escaped() {
        let fine = r#"process 7 (it's "a\b" – ü): no right"#;
        assert_eq!(plain(fine), fine);
        assert_eq!(plain("a\n<3>uksm: forged"), r"a\n<3>uksm: forged");
        assert_eq!(plain("\u{1b}]0;x\u{7}\r\t\0"), r"\u{1b}]0;x\u{7}\r\t\0");
        assert_eq!(
            plain("\u{9b}1m\u{202e}\u{2028}"),
            r"\u{9b}1m\u{202e}\u{2028}"
        );
    }

    #[test]
    fn a_text_without_end_is_cut_and_says_so() {
        for text in ["x".repeat(1 << 20), "\n".repeat(1 << 20)] {
            let cut = plain(&text);
            assert!(cut.len() < MAX_BYTES + 20 && cut.ends_with("[cut]"));
            assert!(start(&text, 100).len() < 120);
        }
    }

    proptest! {
        #[test]
        fn nothing_that_does_not_print_is_left(text in ".{0,200}|[\\x00-\\x{9f}\\u{2000}-\\u{206f}]{0,50}") {
            let plain = plain(&text);
            prop_assert!(!plain.chars().any(char::is_control), "{:?}", plain);
            prop_assert!(plain.len() <= text.len() * 10);
        }
    }
}
