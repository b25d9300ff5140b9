//! `uksm account`: CPU used and memory saved by each group over time, as a basis of billing.
//!
//! # Problem
//! A status describes the present. An operator who bills groups, or pays them for the memory that
//! they free, needs the past month: how much memory was saved and for how long, and the processor
//! time and memory used for it.
//!
//! # Approach
//! The daemon writes a [`ledger`]: a [`record`] for each group and interval, with the amounts since
//! the previous record. A [`meter`] adds them up, from readings of counters that only grow and of
//! levels that go up and down; [`cpu`] has the processor time of workers, including those that
//! died. [`single_daemon`] is the meter of a daemon without groups. [`totals`] are sums that
//! continue over restarts, for monitoring. The command reads the ledger and sums it to a [`bill`];
//! it needs no daemon, but asks a running one to write its accrued amounts first.
//!
//! # Units
//! Byte-seconds: a GiB that was saved for an hour is 3600 times 2^30 of them.

pub(crate) mod bill;
pub(crate) mod cpu;
pub(crate) mod ledger;
mod ledger_reader;
pub(crate) mod meter;
mod record;
pub(crate) mod redistributed;
pub(crate) mod single_daemon;
mod time;
mod totals;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use jiff::Timestamp;

use crate::cli::{AccountArgs, SpanArgs};
use crate::control::{self, Answer, NoAnswer, Request};
use crate::failure::Failure;
use crate::log::print_line;
use crate::setting::ACCOUNT_FOLDER;
pub(crate) use bill::{GroupBill, SpanSums};
pub(crate) use ledger_reader::read;
pub(crate) use record::{Amounts, Record, TimeRange, written};

/// The group of a daemon without groups.
pub(crate) const ALL: &str = "all";

/// Timeout of the daemon for writing accrued amounts.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Sums the ledger and prints it.
///
/// # Errors
/// A bad time, a ledger that cannot be read, no such group.
pub(crate) fn account(args: &AccountArgs) -> Result<(), Failure> {
    let bounds = args.span.bounds(Timestamp::now())?;
    let LedgerPart {
        bounds: (since, until),
        folder,
        group,
    } = LedgerPart::of(&args.span, bounds);
    let mut sums = SpanSums::new(since, until);
    let torn = read(&folder, since, &mut |record, time_range| {
        sums.add(record, time_range);
    });
    let torn = torn.map_err(|line| anyhow!(line))?;
    for place in &torn {
        print_line(&format!("{place}: a torn record is left out"));
    }
    let bill = sums.bill(group.as_deref(), folder.display().to_string(), torn);
    let bill = bill.map_err(|line| anyhow!(line))?;
    Ok(crate::log::print_report(&bill, args.json)?)
}

/// Beginning and end of a span; none for an open end.
pub(crate) type Bounds = (Option<Timestamp>, Option<Timestamp>);

impl SpanArgs {
    /// The bounds that the arguments name at `now`.
    ///
    /// # Errors
    /// A bad time, or an end that is not after the beginning.
    pub(crate) fn bounds(&self, now: Timestamp) -> Result<Bounds, Failure> {
        let bound = |option: &str, text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => time::parse(text, now).map(Some).map_err(|must| {
                let line = format!("--{option} {text}: {must}");
                Failure::usage(line)
            }),
        };
        let (since, until) = (bound("since", &self.since)?, bound("until", &self.until)?);
        if let (Some(since), Some(until)) = (since, until)
            && since >= until
        {
            let line = format!("--since {since} is not before --until {until}");
            return Err(Failure::usage(line));
        }
        Ok((since, until))
    }
}

/// The requested part of a ledger.
#[derive(Debug)]
pub(crate) struct LedgerPart {
    /// The span.
    pub(crate) bounds: Bounds,
    /// The folder.
    pub(crate) folder: PathBuf,
    /// The group, if only one is requested.
    pub(crate) group: Option<String>,
}

impl LedgerPart {
    /// The part that these arguments name, after a running daemon has written its accrued amounts.
    pub(crate) fn of(args: &SpanArgs, bounds: Bounds) -> LedgerPart {
        let folder = bring_up_to_date(&args.socket);
        let folder = args.dir.clone().or(folder);
        LedgerPart {
            bounds,
            folder: folder.unwrap_or_else(|| PathBuf::from(ACCOUNT_FOLDER)),
            group: args.group.clone(),
        }
    }
}

/// Asks the daemon to write its accrued amounts, and answers the folder; on failure prints why the
/// ledger may lack the latest amounts.
fn bring_up_to_date(socket: &Path) -> Option<PathBuf> {
    let alone = |why: &str| print_line(&format!("{why}: only records written so far are used"));
    match control::ask_within(socket, &Request::Account, ANSWER_TIMEOUT) {
        Ok(Answer::Accounted { folder, fault }) => {
            match (&folder, fault) {
                (None, _) => alone("the daemon writes no accounts (account_dir is none)"),
                (Some(_), Some(fault)) => alone(&fault),
                (Some(_), None) => {}
            }
            return folder;
        }
        Ok(Answer::Error(line)) | Err(NoAnswer::Failed(line)) => alone(&line),
        Ok(_) => alone("the daemon sent an unexpected reply"),
        Err(NoAnswer::NotRunning) => alone(&format!("{}: no daemon answers", socket.display())),
    }
    None
}
