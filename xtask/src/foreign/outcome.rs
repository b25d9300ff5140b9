//! From the output of a program to named outcomes.
//!
//! # Problem
//! Self-tests report their results in several ways. Names of outcomes must be equal from run to
//! run, although the outputs contain addresses, times and process ids.
//!
//! # Approach
//! Each line is tried as TAP (`ok 3 name # SKIP why`), as one of the older ways, and else ignored;
//! numbers of TAP are dropped. A name that comes twice in one run gets a number. The exit status is
//! always an outcome of its own, and so is each complaint of the kernel.
//!
//! # Source
//! Documentation/dev-tools/ktap.rst; tools/testing/selftests/kselftest.h; stress-ng(1), EXIT
//! STATUS.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use uksm_guest_tests::foreign::schedule::{Dialect, Item, Record};

/// The outcome of one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The expected result.
    Passed,
    /// Another result.
    Failed,
    /// It failed, and its authors expect that.
    Expected,
    /// It could not be tried here.
    Skipped,
    /// The program ended with this status, or a signal (128 + number).
    Ended(i32),
    /// Its time was up.
    Unfinished,
    /// The kernel complained.
    Complaint,
    /// No report.
    Missing,
}

impl Outcome {
    /// Whether it is more than a failed check of a test: a complaint of the kernel, an end by a
    /// signal, or no end at all.
    #[must_use]
    pub const fn is_grave(self) -> bool {
        matches!(
            self,
            Self::Complaint | Self::Unfinished | Self::Ended(128..)
        )
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed => f.write_str("failed"),
            Self::Expected => f.write_str("failed as expected"),
            Self::Skipped => f.write_str("skipped"),
            Self::Ended(status) => write!(f, "ended with status {status}"),
            Self::Unfinished => f.write_str("did not end in time"),
            Self::Complaint => f.write_str("the kernel complained"),
            Self::Missing => f.write_str("not reported"),
        }
    }
}

/// Outcomes of one program, by name. The program's own end has the empty name.
pub type Outcomes = BTreeMap<String, Outcome>;

/// Exit status of a self-test that cannot run here.
const SKIP: i32 = 4;
/// Exit statuses of stress-ng: no resources, not implemented here.
const NO_RESOURCES: i32 = 3;
const NOT_IMPLEMENTED: i32 = 4;

/// The outcomes of `item` in `record`.
#[must_use]
pub fn of(item: &Item, record: &Record) -> Outcomes {
    let mut unique = UniqueOutcomes::default();
    unique
        .outcomes
        .insert(String::new(), end(item, record.status));
    match item.dialect {
        Dialect::Selftest => selftest(&record.output, &mut unique),
        Dialect::StressNg => stress_ng(&record.output, &mut unique),
    }
    for complaint in &record.complaints {
        unique.add(
            &format!("kernel: {}", without_numbers(complaint)),
            Outcome::Complaint,
        );
    }
    unique.outcomes
}

fn end(item: &Item, status: Option<i32>) -> Outcome {
    match (status, item.dialect) {
        (Some(0), _) => Outcome::Passed,
        (None, _) if item.endless => Outcome::Passed,
        (None, _) => Outcome::Unfinished,
        (Some(SKIP), Dialect::Selftest) => Outcome::Skipped,
        (Some(NO_RESOURCES | NOT_IMPLEMENTED), Dialect::StressNg) => Outcome::Skipped,
        (Some(status), _) => Outcome::Ended(status),
    }
}

/// Outcomes with unique names.
#[derive(Debug, Default)]
struct UniqueOutcomes {
    outcomes: Outcomes,
    counts: BTreeMap<String, u32>,
}

impl UniqueOutcomes {
    fn add(&mut self, name: &str, outcome: Outcome) {
        let times = self.counts.entry(name.to_owned()).or_insert(0);
        *times += 1;
        let name = match times {
            1 => name.to_owned(),
            times => format!("{name} ({times})"),
        };
        self.outcomes.insert(name, outcome);
    }
}

fn selftest(output: &str, unique: &mut UniqueOutcomes) {
    // The subject of lines that TAP only numbers, from a line before: "# [RUN] what follows is
    // about this".
    let mut about = String::new();
    // A child that a program forks may print lines that its parent had not written yet: equal lines
    // come once or twice by chance, and count once. Failures all count.
    let mut seen = BTreeSet::new();
    for line in output.lines() {
        let line = plain(line);
        let remark = line.trim_start_matches(['#', ' ']);
        if let Some(run) = remark
            .strip_prefix("[RUN]")
            .or_else(|| remark.strip_prefix("Run test:"))
        {
            about = steady(run.trim());
            continue;
        }
        let report = tap(&line).or_else(|| older(&line));
        let has_passed = matches!(report, Some((_, Outcome::Passed | Outcome::Skipped)));
        if !has_passed && line.to_ascii_lowercase().contains("corrupt") {
            unique.add(&steady(line.trim()), Outcome::Complaint);
        }
        if let Some((name, outcome)) = report {
            if outcome != Outcome::Failed && !seen.insert((about.clone(), line.clone())) {
                continue;
            }
            // Later kernels print lines of the older ways as remarks of TAP.
            let name = steady(name.trim().trim_start_matches("# "));
            if about.is_empty() || name.contains(&about) {
                unique.add(&name, outcome);
            } else {
                unique.add(&format!("{about}: {name}"), outcome);
            }
        }
    }
}

/// `ok 3 name`, `not ok 4 - name`, `ok 5 # SKIP why`, `not ok 6 name # XFAIL why`.
fn tap(line: &str) -> Option<(String, Outcome)> {
    let (rest, passed) = match line.strip_prefix("not ok ") {
        Some(rest) => (rest, false),
        None => (line.strip_prefix("ok ")?, true),
    };
    let (number, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    number.parse::<u32>().ok()?;
    let (name, remark) = rest.split_once("# ").unwrap_or((rest, ""));
    let word = remark.split_whitespace().next().unwrap_or("");
    let outcome = match (word, passed) {
        ("SKIP", _) => Outcome::Skipped,
        ("XFAIL" | "TODO", _) => Outcome::Expected,
        (_, true) => Outcome::Passed,
        (_, false) => Outcome::Failed,
    };
    // A skipped test often has its name behind that word only.
    let name = name.trim().trim_start_matches("- ");
    let name = if name.is_empty() {
        remark.strip_prefix(word).unwrap_or(remark)
    } else {
        name
    };
    Some((name.to_owned(), outcome))
}

/// The ways before TAP: `Testing x... done`, `x.... OK`, `testing x: done.`, `test  3 PASSED`,
/// `[FAIL] x`.
fn older(line: &str) -> Option<(String, Outcome)> {
    if let Some(rest) = line.strip_prefix('[') {
        let (word, rest) = rest.split_once(']')?;
        return Some((rest.trim().to_owned(), word_of(word)?));
    }
    if let Some((name, end)) = line.rsplit_once("..") {
        let word = end.trim_start_matches('.').split_whitespace().next()?;
        return Some((name.trim_end_matches('.').to_owned(), word_of(word)?));
    }
    if let Some(rest) = line.strip_prefix("testing ") {
        let (name, word) = rest.rsplit_once(':')?;
        return Some((name.to_owned(), word_of(word)?));
    }
    let (name, rest) = line.strip_prefix("test ")?.trim_start().split_once(' ')?;
    name.parse::<u32>().ok()?;
    let word = rest.split_whitespace().next()?;
    Some((format!("test {name}"), word_of(word)?))
}

fn word_of(word: &str) -> Option<Outcome> {
    let word = word.trim().trim_end_matches(['.', ':']);
    match word.to_ascii_lowercase().as_str() {
        "ok" | "pass" | "passed" | "done" => Some(Outcome::Passed),
        "fail" | "failed" => Some(Outcome::Failed),
        "skip" | "skipped" => Some(Outcome::Skipped),
        _ => None,
    }
}

/// `stress-ng: fail:  [71] vm: detected 3 bit errors while ...`
fn stress_ng(output: &str, unique: &mut UniqueOutcomes) {
    for line in output.lines() {
        for word in ["fail:", "error:"] {
            if let Some((_, text)) = plain(line).split_once(&format!("stress-ng: {word}")) {
                unique.add(
                    &format!("{word} {}", without_numbers(text.trim())),
                    Outcome::Failed,
                );
            }
        }
    }
}

/// A line without colours; if it was overwritten, as by progress, the last version.
fn plain(line: &str) -> String {
    let line = line.trim_end();
    let mut rest = line.rsplit('\r').next().unwrap_or(line);
    let mut text = String::with_capacity(rest.len());
    while let Some(start) = rest.find('\x1b') {
        text.push_str(&rest[..start]);
        let sequence = &rest[start..];
        let end = sequence.find('m').map_or(sequence.len(), |end| end + 1);
        rest = &sequence[end..];
    }
    text + rest
}

/// A name without the parts that differ from run to run: addresses, and numbers without a unit.
fn steady(name: &str) -> String {
    let words: Vec<&str> = name.split(' ').collect();
    let has_unit = |at: usize| {
        words
            .get(at + 1)
            .is_some_and(|next| next.trim_end_matches([')', ',']).ends_with(['b', 'B']))
    };
    let kept = words.iter().enumerate().map(|(at, word)| {
        let digits = word.trim_matches(['(', ')', ',', '.', ':', '[', ']', '%']);
        let is_address = digits
            .strip_prefix("0x")
            .is_some_and(|hex| hex.len() >= 6 && hex.chars().all(|c| c.is_ascii_hexdigit()));
        let is_number =
            !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
        if is_address {
            "0x..."
        } else if is_number && !has_unit(at) {
            "#"
        } else {
            word
        }
    });
    kept.collect::<Vec<_>>().join(" ")
}

/// A text with `#` for each number.
fn without_numbers(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut in_number = false;
    for c in text.chars() {
        let digit =
            c.is_ascii_digit() || (in_number && c.is_ascii_hexdigit()) || (in_number && c == 'x');
        if !digit {
            kept.push(c);
        } else if !in_number {
            kept.push('#');
        }
        in_number = digit;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use uksm_guest_tests::foreign::schedule::{Allowed, Arm, TortureCounts};

    fn outcomes_of(dialect: Dialect, status: Option<i32>, output: &str) -> Outcomes {
        let item = Item {
            name: "x".into(),
            program: "/x".into(),
            arguments: Vec::new(),
            dialect,
            bound: 1,
            endless: false,
            allowed: Allowed::FULL,
        };
        let record = Record {
            arm: Arm::Bare,
            item: "x".into(),
            status,
            seconds: 1.0,
            output: output.into(),
            complaints: Vec::new(),
            torture: TortureCounts::default(),
        };
        of(&item, &record)
    }

    fn lines(output: &str) -> Vec<(String, Outcome)> {
        let mut outcomes = outcomes_of(Dialect::Selftest, Some(0), output);
        assert_eq!(outcomes.remove(""), Some(Outcome::Passed));
        outcomes.into_iter().collect()
    }

    fn one(output: &str, name: &str, outcome: Outcome) {
        assert_eq!(lines(output), [(name.to_owned(), outcome)], "{output}");
    }

    #[test]
    fn tap_is_understood_without_its_numbers() {
        one(
            "ok 7 MREMAP within range",
            "MREMAP within range",
            Outcome::Passed,
        );
        one("not ok 12 - seal", "seal", Outcome::Failed);
        one("ok 3 # SKIP no hugetlb", "no hugetlb", Outcome::Skipped);
        one("ok 3 pins # SKIP no debugfs", "pins", Outcome::Skipped);
        one(
            "not ok 9 longterm # XFAIL known",
            "longterm",
            Outcome::Expected,
        );
        assert!(lines("TAP version 13\n1..4\n# ok, ready\nok then\n").is_empty());
    }

    #[test]
    fn ways_before_tap_are_understood() {
        one(
            "Testing move on anon... done",
            "Testing move on anon",
            Outcome::Passed,
        );
        one(
            "Testing wp on shmem... skipped [reason: not supported]",
            "Testing wp on shmem",
            Outcome::Skipped,
        );
        one(
            "Collapse full PTE table....\x1b[32m  OK\x1b[0m",
            "Collapse full PTE table",
            Outcome::Passed,
        );
        one(
            "# Collapse full PTE table...\x1b[32mOK\x1b[0m",
            "Collapse full PTE table",
            Outcome::Passed,
        );
        one(
            "\rMake pages 1/2...\rMake pages 2/2....\x1b[32m OK\x1b[0m",
            "Make pages 2/2",
            Outcome::Passed,
        );
        one(
            "Split page.... Fail: not huge",
            "Split page",
            Outcome::Failed,
        );
        one(
            "testing UFFDIO_ZEROPAGE: done.",
            "UFFDIO_ZEROPAGE",
            Outcome::Passed,
        );
        one("test  3 PASSED (iteration 1)", "test #", Outcome::Passed);
        one("[FAIL]\tmlock differs", "mlock differs", Outcome::Failed);
        assert!(lines("testing events (fork): userfaults: 4 missing (4+0)").is_empty());
    }

    #[test]
    fn names_do_not_change_from_run_to_run() {
        let first = lines("ok 1 mapped at 0x7f0012345000\nok 2 mapped at 0x7f0012346000");
        let second = lines("ok 1 mapped at 0x7fff12345000\nok 2 mapped at 0x7fff12346000");
        assert_eq!(first, second);
        assert_eq!(
            first.len(),
            2,
            "what is reported twice counts twice: {first:?}"
        );
        assert_eq!(
            lines("ok 100 Extra pages 35 (0.1%), extra faults 194. with THP (16 kB)"),
            lines("ok 100 Extra pages 3 (0.0%), extra faults 7. with THP (16 kB)")
        );
        assert_ne!(lines("ok 1 THP (16 kB)"), lines("ok 1 THP (32 kB)"));
    }

    #[test]
    fn lines_that_a_child_prints_once_more_count_once() {
        let once = "has pkeys: 1\ntest  0 PASSED (iteration 1)\ntest  1 PASSED (iteration 1)\n";
        assert_eq!(lines(&[once, once].concat()), lines(once));
        assert_eq!(lines(once).len(), 2);
        let failure = "[FAIL]\tmlock differs\n";
        assert_eq!(lines(&[failure, failure].concat()).len(), 2);
        let runs = "# [RUN] a\n[PASS] x\n# [RUN] b\n[PASS] x\n";
        let again = "# [RUN] a\n[PASS] x\n# [RUN] b\n[FAIL] x\n";
        let outcomes = lines(&[runs, again].concat());
        assert!(
            outcomes.contains(&("b: x (2)".to_owned(), Outcome::Failed)),
            "{outcomes:?}"
        );
    }

    #[test]
    fn corrupt_memory_is_a_complaint_wherever_it_is_printed() {
        let complained = |line| lines(line).iter().any(|(_, outcome)| outcome.is_grave());
        assert!(complained("Page 3 is corrupted: 0"));
        assert!(complained(
            "ERROR: nr 7 memory corruption 1 2 (errno=0, @a.c:1)"
        ));
        assert!(!complained("ok 3 no corruption of unrelated pages"));
    }

    #[test]
    fn what_a_number_is_about_is_part_of_its_name() {
        let run =
            "# [RUN] fork ... with base page\nok 1 No leak\n# [RUN] vmsplice\nnot ok 2 No leak";
        assert_eq!(
            lines(run),
            [
                (
                    "fork ... with base page: No leak".to_owned(),
                    Outcome::Passed
                ),
                ("vmsplice: No leak".to_owned(), Outcome::Failed)
            ]
        );
    }

    #[test]
    fn the_end_of_a_program_is_an_outcome() {
        let end = |dialect, status| outcomes_of(dialect, status, "")[""];
        assert_eq!(end(Dialect::Selftest, Some(4)), Outcome::Skipped);
        assert_eq!(end(Dialect::Selftest, Some(1)), Outcome::Ended(1));
        assert_eq!(end(Dialect::Selftest, Some(139)), Outcome::Ended(139));
        assert_eq!(end(Dialect::Selftest, None), Outcome::Unfinished);
        assert_eq!(end(Dialect::StressNg, Some(2)), Outcome::Ended(2));
        assert_eq!(end(Dialect::StressNg, Some(4)), Outcome::Skipped);
    }

    #[test]
    fn failed_verifications_of_stress_ng_are_named_without_their_numbers() {
        let output = "stress-ng: info:  [70] dispatching hogs: 2 vm\n\
            stress-ng: fail:  [71] vm: detected 3 bit errors\n\
            stress-ng: fail:  [72] vm: detected 14 bit errors\n";
        let outcomes = outcomes_of(Dialect::StressNg, Some(2), output);
        let name = "fail: [#] vm: detected # bit errors";
        assert_eq!(outcomes.get(name), Some(&Outcome::Failed), "{outcomes:?}");
        assert_eq!(outcomes.get(&format!("{name} (2)")), Some(&Outcome::Failed));
        assert_eq!(outcomes[""], Outcome::Ended(2));
    }
}
