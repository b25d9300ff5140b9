//! What the terminal can show: colours, and blocks for bars.

use std::ffi::OsString;

use ratatui::style::{Color, Style};

/// Features of the terminal, or choices of the user.
#[derive(Debug, Clone, Copy)]
pub(super) struct TerminalStyle {
    /// NO_COLOR is not set.
    pub(super) is_coloured: bool,
    /// The locale has blocks for bars; otherwise letters are used.
    pub(super) has_blocks: bool,
}

impl TerminalStyle {
    /// From the environment, by names of variables.
    pub(super) fn of_environment(value: impl Fn(&str) -> Option<OsString>) -> TerminalStyle {
        let value = |name: &str| value(name).filter(|value| !value.is_empty());
        // The first of them that is set counts, see locale(7).
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(value);
        let locale = locale.unwrap_or_default().to_ascii_lowercase();
        let locale = locale.to_string_lossy();
        TerminalStyle {
            is_coloured: value("NO_COLOR").is_none(),
            has_blocks: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    /// A style in this colour, if colours are used.
    pub(super) fn of(self, colour: Color) -> Style {
        match self.is_coloured {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }
}
