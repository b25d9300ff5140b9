//! Times as an operator writes them: `2026-03-01T12:00:00Z`, `2026-03-01`, `today`, `2h`, `7d`.
//!
//! All times are in UTC, as in the ledger: a bill does not depend on its reader's time zone.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

/// The error for an invalid time.
const FORMS: &str = "must be a time like 2026-03-01T12:00:00Z, a day like 2026-03-01, today, or how long ago, like 2h or 7d";

/// The time that a text names at `now`. A day means its beginning.
///
/// # Errors
/// The valid forms.
pub(super) fn parse(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let fault = |_| FORMS.to_owned();
    let utc = now.to_zoned_datetime(TimeZone::UTC);
    let begin = |day: Date| {
        let begin = day.to_zoned_datetime(TimeZone::UTC);
        begin.map(|begin| begin.timestamp()).map_err(fault)
    };
    if text == "today" {
        return begin(utc.date());
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    if let Ok(day) = text.parse::<Date>()
        && day.to_string() == text
    {
        return begin(day);
    }
    let ago = text.parse::<Span>().map_err(fault)?;
    if ago.is_negative() {
        return Err(FORMS.to_owned());
    }
    let time = utc.checked_sub(ago).map_err(fault)?;
    Ok(time.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<String> {
        let now = "2026-03-01T01:30:00Z".parse().unwrap();
        let time = parse(text, now).map_err(|error| assert_eq!(error, FORMS));
        time.ok().map(|time| time.to_string())
    }

    #[test]
    fn each_form_is_a_time() {
        for (text, time) in [
            ("2026-02-01T12:00:00Z", "2026-02-01T12:00:00Z"),
            ("2026-02-01T12:00:00+02:00", "2026-02-01T10:00:00Z"),
            ("2026-02-01", "2026-02-01T00:00:00Z"),
            ("today", "2026-03-01T00:00:00Z"),
            ("2h", "2026-02-28T23:30:00Z"),
            ("90m", "2026-03-01T00:00:00Z"),
            ("7d", "2026-02-22T01:30:00Z"),
            ("1mo", "2026-02-01T01:30:00Z"),
        ] {
            assert_eq!(parsed(text).as_deref(), Some(time), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_or_no_sure_one_is_refused() {
        for text in [
            "",
            "7",
            "soon",
            "-2h",
            "2026-02-30",
            "20260201",
            "2026-02-01T12:00:00",
            "99999999y",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
