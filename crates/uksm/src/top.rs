//! `uksm top`.
use crate::Failure;
use crate::cli::TopArgs;
/// x
pub(crate) fn top(args: &TopArgs) -> Result<(), Failure> {
    let _ = (args.interval, args.once, &args.socket);
    Ok(())
}
