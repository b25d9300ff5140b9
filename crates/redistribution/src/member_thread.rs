//! One member's actuator, in a thread of its own.
//!
//! # Problem
//! A call to a monitor that hangs takes seconds to time out, and the write that lowers a limit ends
//! only when the kernel has reclaimed. The supervisor must wait for neither, nor one member for
//! another.
//!
//! # Approach
//! A thread for each member executes the last order. An order that has not begun is replaced by the
//! next one, so that at most one waits. The result of the last one can be read at any time. A
//! thread that is stuck in the kernel is abandoned at the end, after a bounded wait.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::actuator::{Actuator, Error, Sizes};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Look,
    Set(u64),
    Release,
}

/// The last report of a member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct MemberReport {
    /// Its size at the last successful look; none if it is gone.
    pub(crate) sizes: Option<Sizes>,
    /// Why the last order failed.
    pub(crate) error: Option<String>,
    /// Orders done.
    pub(crate) done: u64,
}

#[derive(Debug, Default)]
struct Mailbox {
    order: Option<Order>,
    is_released: bool,
    report: MemberReport,
}

#[derive(Debug, Default)]
struct Shared {
    mailbox: Mutex<Mailbox>,
    change: Condvar,
}

impl Shared {
    fn mailbox(&self) -> MutexGuard<'_, Mailbox> {
        // Every change under this lock is complete in itself.
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread of a member. When dropped, it puts back the original value, without a wait.
#[derive(Debug)]
pub(crate) struct MemberThread {
    shared: Arc<Shared>,
}

impl MemberThread {
    /// Begins with a look.
    ///
    /// # Errors
    /// No more threads.
    pub(crate) fn new(actuator: Box<dyn Actuator>) -> std::io::Result<MemberThread> {
        let shared = Arc::new(Shared::default());
        shared.mailbox().order = Some(Order::Look);
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("uksm-member".to_owned())
            .spawn(move || work(actuator, &theirs))?;
        Ok(MemberThread { shared })
    }

    /// Asks for a size, and a look at the result.
    pub(crate) fn set(&self, bytes: u64) {
        self.order(Order::Set(bytes));
    }

    /// Asks for a look.
    pub(crate) fn look(&self) {
        self.order(Order::Look);
    }

    fn order(&self, order: Order) {
        self.shared.mailbox().order = Some(order);
        self.shared.change.notify_all();
    }

    /// The last report.
    pub(crate) fn report(&self) -> MemberReport {
        self.shared.mailbox().report.clone()
    }

    /// Orders to put back the original value.
    pub(crate) fn release(&self) {
        self.order(Order::Release);
    }

    /// The result of [`MemberThread::release`], once it is known.
    pub(crate) fn released(&self) -> Option<Result<(), String>> {
        let mailbox = self.shared.mailbox();
        let error = || mailbox.report.error.clone().map_or(Ok(()), Err);
        mailbox.is_released.then(error)
    }

    /// Waits until the original value is put back, or until the deadline, and returns why it was
    /// not.
    pub(crate) fn await_release(&self, deadline: Instant) -> Result<(), String> {
        let mut mailbox = self.shared.mailbox();
        while !mailbox.is_released {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("it does not answer".to_owned());
            }
            let left = left.min(Duration::from_secs(1));
            let waited = self.shared.change.wait_timeout(mailbox, left);
            mailbox = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(mailbox);
        self.released().unwrap_or(Ok(()))
    }
}

impl Drop for MemberThread {
    fn drop(&mut self) {
        self.release();
    }
}

fn work(mut actuator: Box<dyn Actuator>, shared: &Shared) {
    loop {
        let order = next(shared);
        let done = match order {
            Order::Look => actuator.look().map(Some),
            Order::Set(bytes) => set(&mut *actuator, bytes).map(Some),
            Order::Release => actuator.release().map(|()| None),
        };
        let mut mailbox = shared.mailbox();
        mailbox.report.done += 1;
        mailbox.report.error = match done {
            Ok(sizes) => {
                if sizes.is_some() {
                    mailbox.report.sizes = sizes;
                }
                None
            }
            Err(error) => {
                if error.is_gone() {
                    mailbox.report.sizes = None;
                }
                Some(error.to_string())
            }
        };
        mailbox.is_released = order == Order::Release;
        shared.change.notify_all();
        if mailbox.is_released {
            return;
        }
    }
}

fn set(actuator: &mut dyn Actuator, bytes: u64) -> Result<Sizes, Error> {
    actuator.set(bytes)?;
    actuator.look()
}

/// Waits for an order.
fn next(shared: &Shared) -> Order {
    let mut mailbox = shared.mailbox();
    loop {
        if let Some(order) = mailbox.order.take() {
            return order;
        }
        let waited = shared.change.wait(mailbox);
        mailbox = waited.unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// An actuator that waits for a message before each set, and reports the size asked.
    struct Slow {
        go: Receiver<()>,
        asked: Sender<u64>,
    }

    impl Actuator for Slow {
        fn look(&mut self) -> Result<Sizes, Error> {
            Ok(Sizes {
                real: 7,
                processes: vec![],
            })
        }

        fn set(&mut self, bytes: u64) -> Result<(), Error> {
            self.asked.send(bytes).unwrap();
            self.go.recv().unwrap();
            Err(Error::wrong(std::path::Path::new("/x"), "refused"))
        }

        fn release(&mut self) -> Result<(), Error> {
            Ok(())
        }
    }

    fn slow() -> (MemberThread, Sender<()>, Receiver<u64>) {
        let ((go, theirs), (sender, asked)) = (channel(), channel());
        let slow = Slow {
            go: theirs,
            asked: sender,
        };
        (MemberThread::new(Box::new(slow)).unwrap(), go, asked)
    }

    fn wait_for(thread: &MemberThread, done: u64) -> MemberReport {
        let mut mailbox = thread.shared.mailbox();
        while mailbox.report.done < done {
            mailbox = thread.shared.change.wait(mailbox).unwrap();
        }
        mailbox.report.clone()
    }

    #[test]
    fn orders_that_nobody_has_begun_are_replaced_by_the_last() {
        let (thread, go, asked) = slow();
        assert_eq!(wait_for(&thread, 1).sizes.unwrap().real, 7);
        thread.set(1);
        assert_eq!(asked.recv().unwrap(), 1);
        thread.set(2);
        thread.set(3);
        go.send(()).unwrap();
        assert_eq!(asked.recv().unwrap(), 3);
        go.send(()).unwrap();
        let report = wait_for(&thread, 3);
        assert_eq!(report.error.as_deref(), Some("/x: refused"));
        assert_eq!(report.sizes.unwrap().real, 7, "what was seen stays known");
    }

    #[test]
    fn a_member_that_hangs_is_not_waited_for_at_the_end() {
        let (thread, go, asked) = slow();
        wait_for(&thread, 1);
        thread.set(1);
        asked.recv().unwrap();
        thread.release();
        let begin = Instant::now();
        let left = thread.await_release(begin + Duration::from_millis(30));
        assert_eq!(left, Err("it does not answer".to_owned()));
        go.send(()).unwrap();
        let bound = Instant::now() + Duration::from_secs(30);
        assert_eq!(thread.await_release(bound), Ok(()));
    }
}
