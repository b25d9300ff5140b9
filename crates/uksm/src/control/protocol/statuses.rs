//! Replies that are a status, written and read without a tree of values between.
//!
//! # Problem
//! The status of 200 groups is 0.9 MB, and is requested at each scrape. The library's reply is a
//! tree of values: building and writing it, or reading it and converting it to a status, takes
//! several times as long as writing or reading the status directly.
//!
//! # Approach
//! The same message, except that fields are in the order of their declaration. All other replies,
//! errors above all, are the library's.

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use varlink::ErrorKind;

use crate::control::Answer;

#[derive(Serialize, Deserialize)]
struct StatusReply<T> {
    parameters: T,
}

#[derive(Serialize, Deserialize)]
struct StatusParameters<T> {
    status: T,
}

/// The fields that distinguish kinds of status.
#[derive(Deserialize)]
struct StatusKind {
    groups: Option<IgnoredAny>,
    backend: Option<IgnoredAny>,
}

/// The reply with this status, as bytes.
///
/// # Errors
/// As the library's; not expected.
pub(super) fn written(status: &impl Serialize) -> varlink::Result<Vec<u8>> {
    let reply = StatusReply {
        parameters: StatusParameters { status },
    };
    let mut message =
        serde_json::to_vec(&reply).map_err(|error| ErrorKind::SerdeJsonSer(error.classify()))?;
    message.push(0);
    Ok(message)
}

/// The status in a reply, without the byte that ends it; none if the reply has no status.
///
/// # Errors
/// It is a status that this program does not understand.
pub(super) fn read(message: &[u8]) -> Option<serde_json::Result<Answer>> {
    let kind: StatusReply<StatusParameters<StatusKind>> = serde_json::from_slice(message).ok()?;
    Some(match kind.parameters.status {
        StatusKind {
            groups: Some(_), ..
        } => status(message).map(Answer::Groups),
        StatusKind {
            backend: Some(_), ..
        } => status(message).map(Answer::Ksm),
        _ => status(message).map(Answer::Status),
    })
}

fn status<T: DeserializeOwned>(message: &[u8]) -> serde_json::Result<T> {
    let reply: StatusReply<StatusParameters<T>> = serde_json::from_slice(message)?;
    Ok(reply.parameters.status)
}
