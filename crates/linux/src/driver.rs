//! The loop that lets a policy drive a machine.
//!
//! # Problem
//! The policy keeps to a CPU budget, and the cost of a command includes its time in the kernel. The
//! policy has no clock.
//!
//! # Approach
//! One [`Driver::turn`] gives the policy the time, the observation, and the processor time of this
//! thread since the previous turn. Then the machine performs the command that the policy returned.
//! The time of the policy's own step and that of the command are two figures, because different
//! payers may have to pay for them; together they are all of the thread's time. Clocks are passed
//! in as [`Clocks`], so that a test can set them.

use uksm_policy::command::{Command, Nanos, Observation, Spent};

use crate::clock;

/// Performs commands.
pub trait Machine {
    /// The error that ends a run.
    type Error;

    /// Performs one command and returns its observation.
    ///
    /// # Errors
    /// The run cannot go on. A failure of one process or page is an observation, not an error.
    fn perform(&mut self, command: Command) -> Result<Observation, Self::Error>;
}

/// The clocks of a driver.
pub trait Clocks {
    /// Time since an arbitrary start.
    fn now(&mut self) -> Nanos;
    /// Processor time of this thread, kernel time included.
    fn cpu(&mut self) -> Nanos;
}

/// The clocks of this host.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostClocks;

impl Clocks for HostClocks {
    fn now(&mut self) -> Nanos {
        clock::now()
    }
    fn cpu(&mut self) -> Nanos {
        clock::thread_cpu()
    }
}

/// Drives a machine.
#[derive(Debug)]
pub struct Driver<C> {
    clocks: C,
    observation: Observation,
    /// Processor time at the end of the last step, and the time of that step.
    cpu: Nanos,
    step: Nanos,
}

impl<C: Clocks> Driver<C> {
    /// A driver at the start of a run.
    pub fn new(mut clocks: C) -> Driver<C> {
        let cpu = clocks.cpu();
        Driver {
            clocks,
            observation: Observation::Started,
            cpu,
            step: 0,
        }
    }

    /// One command: `step` receives the time, the time used since the last turn, and the
    /// observation.
    ///
    /// # Errors
    /// The error of the machine.
    pub fn turn<M: Machine>(
        &mut self,
        step: impl FnOnce(Nanos, Spent, Observation) -> Command,
        machine: &mut M,
    ) -> Result<(), M::Error> {
        let begun = self.clocks.cpu();
        let spent = Spent {
            step: self.step,
            call: begun.saturating_sub(self.cpu),
        };
        let observation = std::mem::replace(&mut self.observation, Observation::Woke);
        let command = step(self.clocks.now(), spent, observation);
        self.cpu = self.clocks.cpu();
        self.step = self.cpu.saturating_sub(begun);
        self.observation = machine.perform(command)?;
        Ok(())
    }

    /// Runs `work` at no cost for the policy, because an operator requested it.
    pub fn aside<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let before = self.clocks.cpu();
        let answer = work();
        self.cpu += self.clocks.cpu().saturating_sub(before);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    struct Scripted(Rc<Cell<Nanos>>);

    impl Clocks for Scripted {
        fn now(&mut self) -> Nanos {
            self.0.get() * 10
        }
        fn cpu(&mut self) -> Nanos {
            self.0.get()
        }
    }

    struct Counting(Rc<Cell<Nanos>>);

    impl Machine for Counting {
        type Error = String;
        fn perform(&mut self, command: Command) -> Result<Observation, String> {
            self.0.set(self.0.get() + 5);
            match command {
                Command::Sleep { .. } => Ok(Observation::Woke),
                Command::ListProcesses => Ok(Observation::Processes {
                    arrived: vec![],
                    left: vec![],
                    more: false,
                    resized: vec![],
                    event_source: uksm_policy::command::EventSource::Processes,
                }),
                other => Err(format!("{other:?}")),
            }
        }
    }

    #[test]
    fn step_and_command_are_two_figures_and_what_was_aside_is_in_neither() {
        let cpu = Rc::new(Cell::new(100));
        let mut driver = Driver::new(Scripted(Rc::clone(&cpu)));
        let mut machine = Counting(Rc::clone(&cpu));
        let mut seen = Vec::new();
        let policy = Rc::clone(&cpu);
        for _ in 0..3 {
            let step = |now, spent, observation| {
                policy.set(policy.get() + 2);
                seen.push((now, spent, observation));
                Command::Sleep {
                    until: 0,
                    events_wake_from: 0,
                    hints_wake_from: u64::MAX,
                }
            };
            driver.turn(step, &mut machine).unwrap();
            driver.aside(|| cpu.set(cpu.get() + 1000));
        }
        let spent = Spent { step: 2, call: 5 };
        assert_eq!(
            seen,
            [
                (1000, Spent::default(), Observation::Started),
                (11070, spent, Observation::Woke),
                (21140, spent, Observation::Woke)
            ]
        );
    }

    #[test]
    fn an_error_of_the_machine_ends_the_turn() {
        let cpu = Rc::new(Cell::new(0));
        let mut driver = Driver::new(Scripted(Rc::clone(&cpu)));
        let answer = driver.turn(
            |_, _, _| Command::ListMappings(uksm_policy::command::SpaceId(3)),
            &mut Counting(cpu),
        );
        assert!(answer.unwrap_err().contains("ListMappings"));
    }
}
