//! No window of a round's length costs more than the share.
//!
//! The share holds in a window of a round and a sleep. One piece of work is not divided, so one
//! more than fits may have begun.

use std::collections::VecDeque;

use uksm_policy::Params;
use uksm_policy::command::Nanos;

use super::violation::{Violation, violated};

/// The longest piece of work that is not divided.
const LARGEST: Nanos = 20_000_000;

/// The work in the window that ends now.
#[derive(Debug)]
pub(super) struct Budget {
    window: Nanos,
    bound: Nanos,
    work: VecDeque<(Nanos, Nanos)>,
    used: Nanos,
}

impl Budget {
    pub(super) fn new(params: &Params) -> Budget {
        let allowed = params.cpu * (params.round + params.sleep) as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a round"
        )]
        let allowed = allowed as Nanos;
        Budget {
            window: params.round,
            bound: allowed + LARGEST,
            work: VecDeque::new(),
            used: 0,
        }
    }

    pub(super) fn worked(
        &mut self,
        begun: Nanos,
        end: Nanos,
        cost: Nanos,
    ) -> Result<(), Violation> {
        self.work.push_back((begun, cost));
        self.used += cost;
        while let Some(&(first, cost)) = self.work.front()
            && end.saturating_sub(first) > self.window
        {
            self.used -= cost;
            self.work.pop_front();
        }
        if self.used > self.bound {
            let what = format!(
                "{} ns in {} ns, bound {}",
                self.used, self.window, self.bound
            );
            return violated("budget", what);
        }
        Ok(())
    }
}
