//! Turns the messages of a machine into one ending.
//!
//! Problem: a machine that dies without a message must count neither as a failed test nor as a
//! passed one. A kernel that complains fails a run, even if all tests passed.
//!
//! Approach: the [`Collector`] takes all messages; when the machine is gone it names the
//! [`Ending`]. Only the guest's own last event makes a verdict, and it must agree with the earlier
//! reports and with the request.

use crate::channel::Message;
use uksm_vm_protocol::markers::{self, Severity};
use uksm_vm_protocol::messages::Event;

/// The ending of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Everything requested was done and passed; the kernel did not complain.
    Passed,
    /// Tests failed, or the kernel complained; the reasons.
    Failed(Vec<String>),
    /// The kernel died; its last message.
    KernelDied(String),
    /// The machine was lost: no verdict, and no message of the kernel with the reason.
    Lost(String),
}

/// One test's result.
#[derive(Debug, Clone, PartialEq)]
pub struct TestResult {
    /// The test.
    pub name: String,
    /// The reason for a failure.
    pub failure: Option<String>,
    /// Seconds it took.
    pub seconds: f64,
}

/// All messages of a run.
#[derive(Debug, Default)]
pub struct Collector {
    expected_tests: u64,
    running: Option<String>,
    results: Vec<TestResult>,
    complaints: Vec<String>,
    fatal: Option<String>,
    unable: Option<String>,
    verdict: Option<(u64, u64)>,
    exit_status: Option<i32>,
    garbled: Option<String>,
}

impl Collector {
    /// Collector of a run in which this number of tests was requested.
    #[must_use]
    pub fn new(expected_tests: u64) -> Self {
        Self {
            expected_tests,
            ..Self::default()
        }
    }

    /// Processes one message.
    pub fn take(&mut self, message: &Message) {
        match message {
            Message::Event(event) => self.take_event(event),
            Message::Garbled(line) => {
                self.garbled.get_or_insert_with(|| line.clone());
            }
            Message::Console(line) => match markers::severity(line) {
                None => {}
                Some(Severity::Complaint) => self.complain(line),
                Some(Severity::Fatal) => {
                    self.complain(line);
                    self.fatal.get_or_insert_with(|| line.clone());
                }
            },
            Message::End => {}
        }
    }

    fn complain(&mut self, line: &str) {
        self.complaints
            .push(format!("kernel{}: {line}", self.during()));
    }

    fn take_event(&mut self, event: &Event) {
        match event {
            Event::Started { test, .. } => self.running = Some(test.clone()),
            Event::Passed { test, seconds } => self.finish(test, None, *seconds),
            Event::Failed {
                test,
                message,
                seconds,
            } => self.finish(test, Some(message.clone()), *seconds),
            Event::Exited { status } => self.exit_status = Some(*status),
            Event::Unable { message } => self.unable = Some(message.clone()),
            Event::Verdict {
                passed,
                failed,
                complaints,
            } => {
                self.verdict = Some((*passed, *failed));
                // The console has most of them already.
                let unheard = |line: &&String| {
                    !self
                        .complaints
                        .iter()
                        .any(|received| received.contains(line.as_str()))
                };
                let unheard: Vec<String> = complaints
                    .iter()
                    .filter(unheard)
                    .map(|l| format!("kernel: {l}"))
                    .collect();
                self.complaints.extend(unheard);
            }
            Event::Booted { .. } | Event::Metric { .. } | Event::Note { .. } => {}
        }
    }

    fn finish(&mut self, test: &str, failure: Option<String>, seconds: f64) {
        self.running = None;
        self.results.push(TestResult {
            name: test.to_owned(),
            failure,
            seconds,
        });
    }

    fn during(&self) -> String {
        self.running
            .as_ref()
            .map(|test| format!(" during {test}"))
            .unwrap_or_default()
    }

    /// Whether the kernel reported that it is dying.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.fatal.is_some()
    }

    /// Whether the guest has sent its verdict.
    #[must_use]
    pub fn has_verdict(&self) -> bool {
        self.verdict.is_some()
    }

    /// The tests that were finished.
    #[must_use]
    pub fn results(&self) -> &[TestResult] {
        &self.results
    }

    /// Whether a test was started at all.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.running.is_some() || !self.results.is_empty()
    }

    /// The program's exit status, if it ended.
    #[must_use]
    pub fn exit_status(&self) -> Option<i32> {
        self.exit_status
    }

    /// The ending; `gone` describes how the machine ended.
    #[must_use]
    pub fn ending(&self, gone: &str) -> Ending {
        if let Some(line) = &self.fatal {
            return Ending::KernelDied(format!("the kernel died{}: {line}", self.during()));
        }
        if let Some(message) = &self.unable {
            return Ending::Failed(vec![format!("the guest{}: {message}", self.during())]);
        }
        let Some((passed, failed)) = self.verdict else {
            return Ending::Lost(format!("no verdict{}: {gone}", self.during()));
        };
        if let Some(line) = &self.garbled {
            return Ending::Lost(format!(
                "the verdict port carried a line that is no event: '{line}'"
            ));
        }
        let mut reasons: Vec<String> = self
            .results
            .iter()
            .filter_map(|result| {
                result
                    .failure
                    .as_ref()
                    .map(|why| format!("{}: {why}", result.name))
            })
            .collect();
        let counted = u64::try_from(self.results.len()).unwrap_or(u64::MAX);
        if self.expected_tests > 0 && (counted != self.expected_tests || passed + failed != counted)
        {
            reasons.push(format!(
                "{} tests were asked for, {counted} reported, {} counted in the verdict",
                self.expected_tests,
                passed + failed
            ));
        }
        if failed > 0 && reasons.is_empty() {
            reasons.push(format!("the verdict counts {failed} failed"));
        }
        reasons.extend(self.complaints.iter().cloned());
        if reasons.is_empty() {
            Ending::Passed
        } else {
            Ending::Failed(reasons)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(test: &str) -> Message {
        Message::Event(Event::Started {
            test: test.into(),
            bound: 10,
        })
    }
    fn passed(test: &str) -> Message {
        Message::Event(Event::Passed {
            test: test.into(),
            seconds: 1.0,
        })
    }
    fn failed(test: &str) -> Message {
        Message::Event(Event::Failed {
            test: test.into(),
            message: "no".into(),
            seconds: 1.0,
        })
    }
    fn verdict(passed: u64, failed: u64) -> Message {
        Message::Event(Event::Verdict {
            passed,
            failed,
            complaints: Vec::new(),
        })
    }
    fn console(line: &str) -> Message {
        Message::Console(line.into())
    }
    fn ending(expected: u64, messages: &[Message]) -> Ending {
        let mut collector = Collector::new(expected);
        for message in messages {
            collector.take(message);
        }
        collector.ending("QEMU ended")
    }

    #[test]
    fn all_passed_with_a_verdict_is_passed() {
        assert_eq!(
            ending(1, &[started("a"), passed("a"), verdict(1, 0)]),
            Ending::Passed
        );
    }

    #[test]
    fn no_verdict_is_lost_even_if_every_test_passed() {
        let end = ending(1, &[started("a"), passed("a")]);
        assert!(
            matches!(&end, Ending::Lost(why) if why.contains("QEMU ended")),
            "{end:?}"
        );
    }

    #[test]
    fn machine_that_goes_away_during_a_test_is_lost_and_names_the_test() {
        let end = ending(1, &[started("a")]);
        assert!(
            matches!(&end, Ending::Lost(why) if why.contains("during a")),
            "{end:?}"
        );
    }

    #[test]
    fn machine_that_says_nothing_at_all_is_lost() {
        assert!(matches!(ending(0, &[]), Ending::Lost(_)));
    }

    #[test]
    fn failed_test_with_a_verdict_is_failed_not_lost() {
        let end = ending(
            2,
            &[
                started("a"),
                failed("a"),
                started("b"),
                passed("b"),
                verdict(1, 1),
            ],
        );
        assert_eq!(end, Ending::Failed(vec!["a: no".into()]));
    }

    #[test]
    fn panic_is_a_dead_kernel_not_a_lost_machine() {
        let end = ending(
            1,
            &[
                started("a"),
                console("[ 1.0] Kernel panic - not syncing: x"),
            ],
        );
        assert!(
            matches!(&end, Ending::KernelDied(why) if why.contains("during a")),
            "{end:?}"
        );
    }

    #[test]
    fn complaint_fails_a_run_whose_tests_passed() {
        let end = ending(
            1,
            &[
                started("a"),
                console("[ 1.0] WARNING: CPU: 0 PID: 1 at x"),
                passed("a"),
                verdict(1, 0),
            ],
        );
        assert!(
            matches!(&end, Ending::Failed(why) if why[0].contains("during a")),
            "{end:?}"
        );
    }

    #[test]
    fn complaint_only_in_the_kernels_log_fails_the_run() {
        let complaints = vec!["BUG: Bad page state in process x".to_owned()];
        let end = ending(
            1,
            &[
                passed("a"),
                Message::Event(Event::Verdict {
                    passed: 1,
                    failed: 0,
                    complaints,
                }),
            ],
        );
        assert!(
            matches!(&end, Ending::Failed(why) if why.len() == 1),
            "{end:?}"
        );
    }

    #[test]
    fn fewer_tests_than_asked_for_is_failed() {
        assert!(matches!(
            ending(2, &[passed("a"), verdict(1, 0)]),
            Ending::Failed(_)
        ));
    }

    #[test]
    fn verdict_that_contradicts_the_reports_is_failed() {
        assert!(matches!(
            ending(1, &[passed("a"), verdict(0, 1)]),
            Ending::Failed(_)
        ));
    }

    #[test]
    fn guest_that_could_not_load_the_module_has_failed() {
        let unable = Message::Event(Event::Unable {
            message: "loading module uksm: ENOENT".into(),
        });
        let end = ending(1, &[unable]);
        assert!(
            matches!(&end, Ending::Failed(why) if why[0].contains("uksm")),
            "{end:?}"
        );
    }

    #[test]
    fn garbled_verdict_port_is_lost() {
        let end = ending(
            1,
            &[
                passed("a"),
                Message::Garbled("{\"eve".into()),
                verdict(1, 0),
            ],
        );
        assert!(matches!(end, Ending::Lost(_)));
    }
}
