//! Requests and answers as calls of the varlink interface.
//!
//! # Problem
//! Operators' programs, in other languages, also ask the daemon, and need a documented protocol.
//! The daemon's internal messages must remain free to change.
//!
//! # Approach
//! The interface is described in `interface/uksm.Daemon1.varlink`, which the daemon sends to any
//! client on request. Each call is a [`Request`], and each reply is made of an [`Answer`]; both
//! directions are here, for the daemon and for this program as its client, so that a test can
//! compare them with the description. Framing, introspection and the errors of the protocol are the
//! library's; a status is written and read without its values ([`statuses`]).
//!
//! # Source
//! The varlink protocol, as implemented by systemd's `varlinkctl`.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use varlink::{Call, CallTrait as _, ErrorKind, Reply};

use super::{Answer, Change, Request};
use crate::selectors::SelectorTexts;
use crate::status::groups::{GroupStatus, GroupsStatus};

mod statuses;

/// The description.
pub(super) const DESCRIPTION: &str = include_str!("../../../../interface/uksm.Daemon1.varlink");
/// The interface's name.
pub(super) const NAME: &str = "uksm.Daemon1";

/// Parameters of a call that names a group.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NameParameters {
    name: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupParameters {
    name: String,
    settings: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unset: Option<Vec<String>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BreakParameters {
    selectors: SelectorTexts,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainParameters {
    pid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProcessesParameters {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParameters {}

#[derive(Debug, Serialize, Deserialize)]
struct BreakReply {
    processes: u64,
    pages: u64,
    stopped: u64,
    #[serde(default)]
    locked: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct AccountReply {
    folder: Option<PathBuf>,
    fault: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ChangeReply {
    groups: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct RefusalParameters {
    reason: String,
}

/// The meaning of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ParsedCall {
    /// This request, and its whole answer.
    Plain(Request),
    /// The groups of a status.
    ListGroups,
}

/// Why a call is invalid.
#[derive(Debug, PartialEq, Eq)]
enum InvalidCall {
    NoMethod,
    /// The fault of the parameters.
    Bad(String),
}

fn read<'de, T: Deserialize<'de>>(parameters: &'de Value) -> Result<T, InvalidCall> {
    if !parameters.is_object() {
        return Err(InvalidCall::Bad("parameters must be an object".to_owned()));
    }
    T::deserialize(parameters).map_err(|error| InvalidCall::Bad(error.to_string()))
}

/// The meaning of a call of this method.
fn asked(method: &str, parameters: &Value) -> Result<ParsedCall, InvalidCall> {
    let nothing =
        |request: Request| read::<NoParameters>(parameters).map(|_| ParsedCall::Plain(request));
    let named = || read::<NameParameters>(parameters).map(|named| named.name);
    let change = |change: Change| ParsedCall::Plain(Request::Change(change));
    match method {
        "Status" => nothing(Request::Status),
        "ListGroups" => read::<NoParameters>(parameters).map(|_| ParsedCall::ListGroups),
        "GroupStatus" => Ok(ParsedCall::Plain(Request::Group(named()?))),
        "Account" => nothing(Request::Account),
        "Reload" => nothing(Request::Reload),
        "Break" => Ok(ParsedCall::Plain(Request::Break(
            read::<BreakParameters>(parameters)?.selectors,
        ))),
        "Explain" => {
            let ExplainParameters { pid, from } = read(parameters)?;
            let from = from.unwrap_or(0);
            Ok(ParsedCall::Plain(Request::Explain { pid, from }))
        }
        "Processes" => {
            let ProcessesParameters { group } = read(parameters)?;
            Ok(ParsedCall::Plain(Request::Processes(group)))
        }
        "AddGroup" | "SetGroup" => {
            let GroupParameters {
                name,
                settings: keys,
                unset,
            } = read(parameters)?;
            match (method, unset) {
                ("AddGroup", None) => Ok(change(Change::Add { name, keys })),
                ("AddGroup", Some(_)) => {
                    Err(InvalidCall::Bad("unset is only for SetGroup".to_owned()))
                }
                (_, unset) => Ok(change(Change::Set {
                    name,
                    keys,
                    unset: unset.unwrap_or_default(),
                })),
            }
        }
        "RemoveGroup" => Ok(change(Change::Remove { name: named()? })),
        _ => Err(InvalidCall::NoMethod),
    }
}

/// This program's call for a request: method and parameters. None for requests that only a
/// supervisor sends to its workers.
fn call_of(request: &Request) -> Option<(&'static str, Value)> {
    let named = |name: &String| json!({ "name": name });
    Some(match request {
        Request::Status => ("Status", json!({})),
        Request::Group(name) => ("GroupStatus", named(name)),
        Request::Account => ("Account", json!({})),
        Request::Reload => ("Reload", json!({})),
        Request::Break(texts) => ("Break", json!({ "selectors": texts })),
        Request::Change(Change::Add { name, keys }) => {
            ("AddGroup", json!({ "name": name, "settings": keys }))
        }
        Request::Change(Change::Set { name, keys, unset }) => (
            "SetGroup",
            json!({ "name": name, "settings": keys, "unset": unset }),
        ),
        Request::Change(Change::Remove { name }) => ("RemoveGroup", named(name)),
        Request::Explain { pid, from } => ("Explain", json!({ "pid": pid, "from": from })),
        Request::Processes(group) => ("Processes", json!({ "group": group })),
        Request::BreakSpaces(_) | Request::ExplainSpace { .. } | Request::Spaces => return None,
    })
}

/// A request as bytes.
///
/// # Errors
/// It is not in the interface, in one line.
pub(super) fn message_of(request: &Request) -> Result<Vec<u8>, String> {
    let (method, parameters) =
        call_of(request).ok_or("this call is for the daemon's own processes")?;
    let call = varlink::Request::create(format!("{NAME}.{method}"), Some(parameters));
    varlink::sansio::serialize_request(&call).map_err(|error| error.to_string())
}

/// The reply as bytes; an error of the interface if the request failed.
///
/// # Errors
/// As the library's; not expected.
fn reply_of(asked: &ParsedCall, answer: Answer) -> varlink::Result<Vec<u8>> {
    let parameters = match (asked, answer) {
        (_, Answer::Error(reason)) => return refused(reason),
        (ParsedCall::ListGroups, answer) => Ok(json!({ "groups": groups_of(answer) })),
        (ParsedCall::Plain(_), Answer::Status(status)) => return statuses::written(&status),
        (ParsedCall::Plain(_), Answer::Groups(status)) => return statuses::written(&status),
        (ParsedCall::Plain(_), Answer::Ksm(status)) => return statuses::written(&status),
        (
            _,
            Answer::Broken {
                processes,
                pages,
                stopped,
                locked,
            },
        ) => serde_json::to_value(BreakReply {
            processes,
            pages,
            stopped,
            locked,
        }),
        (_, Answer::Accounted { folder, fault }) => {
            serde_json::to_value(AccountReply { folder, fault })
        }
        (_, Answer::Changed { groups }) => serde_json::to_value(ChangeReply { groups }),
        (_, Answer::Explained(evidence)) => {
            serde_json::to_value(evidence).map(|evidence| json!({ "evidence": evidence }))
        }
        (_, Answer::Processes(processes)) => serde_json::to_value(processes),
        (_, Answer::Spaces(_)) => {
            return refused("spaces are only for the daemon's own processes".to_owned());
        }
    };
    match parameters {
        Ok(parameters) => varlink::sansio::serialize_reply(&Reply::parameters(Some(parameters))),
        Err(error) => refused(format!("the answer cannot be written: {error}")),
    }
}

/// The interface's error.
fn refused(reason: String) -> varlink::Result<Vec<u8>> {
    let parameters = serde_json::to_value(RefusalParameters { reason }).ok();
    varlink::sansio::serialize_reply(&Reply::error(format!("{NAME}.Refused"), parameters))
}

fn groups_of(answer: Answer) -> Vec<Value> {
    let groups = match answer {
        Answer::Groups(status) => {
            let GroupsStatus { groups, .. } = *status;
            groups
        }
        _ => Vec::new(),
    };
    let group = |group: GroupStatus| {
        json!({
            "name": group.name,
            "origin": group.origin,
            "pid": group.pid,
            "fault": group.fault,
            "restarts": group.restarts,
            "book": group.book,
        })
    };
    groups.into_iter().map(group).collect()
}

/// The answer in a reply to this request.
///
/// # Errors
/// It is no reply to this request, in one line.
pub(super) fn answer_of(request: &Request, message: &[u8]) -> Result<Answer, String> {
    let message = message.strip_suffix(b"\0").ok_or("it is truncated")?;
    if let Request::Status | Request::Group(_) = request
        && let Some(answer) = statuses::read(message)
    {
        return answer.map_err(|error| error.to_string());
    }
    let reply = varlink::sansio::protocol::parse_reply(message).map_err(|error| {
        // The library's own message quotes its source.
        let source = std::error::Error::source(&error).map(ToString::to_string);
        source.unwrap_or_else(|| "it is not a reply".to_owned())
    })?;
    let parameters = reply.parameters.unwrap_or_default();
    if let Some(error) = reply.error {
        if error == "org.varlink.service.MethodNotFound"
            && let Some((method, _)) = call_of(request)
        {
            return Ok(Answer::Error(format!(
                "the running daemon does not know {method}: it is older than this program: restart it"
            )));
        }
        let refused = RefusalParameters::deserialize(&parameters);
        return Ok(Answer::Error(match refused {
            Ok(RefusalParameters { reason }) => reason,
            Err(_) => format!("{error} {parameters}"),
        }));
    }
    let answer = match request {
        Request::Status | Request::Group(_) => return Err("it contains no status".to_owned()),
        Request::Account => AccountReply::deserialize(&parameters)
            .map(|AccountReply { folder, fault }| Answer::Accounted { folder, fault }),
        Request::Explain { .. } | Request::ExplainSpace { .. } => {
            Deserialize::deserialize(&parameters["evidence"]).map(Answer::Explained)
        }
        Request::Processes(_) => Deserialize::deserialize(&parameters).map(Answer::Processes),
        Request::Spaces => Deserialize::deserialize(&parameters).map(Answer::Spaces),
        Request::Break(_) | Request::BreakSpaces(_) => BreakReply::deserialize(&parameters).map(
            |BreakReply {
                 processes,
                 pages,
                 stopped,
                 locked,
             }| Answer::Broken {
                processes,
                pages,
                stopped,
                locked,
            },
        ),
        Request::Reload | Request::Change(_) => ChangeReply::deserialize(&parameters)
            .map(|ChangeReply { groups }| Answer::Changed { groups }),
    };
    answer.map_err(|error| error.to_string())
}

/// The reply to a client without rights.
///
/// # Errors
/// Not expected.
pub(super) fn no_right() -> varlink::Result<Vec<u8>> {
    let error = "org.varlink.service.PermissionDenied";
    varlink::sansio::serialize_reply(&Reply::error(error, Some(json!({}))))
}

/// The interface, to which the library dispatches.
pub(super) struct Interface<F> {
    /// Gets the daemon's answer. None if it has ended.
    pub(super) ask: F,
}

impl<F: Fn(Request) -> Option<Answer>> varlink::Interface for Interface<F> {
    fn get_description(&self) -> &'static str {
        DESCRIPTION
    }

    fn get_name(&self) -> &'static str {
        NAME
    }

    fn call_upgraded(&self, call: &mut Call<'_>, _: &mut dyn BufRead) -> varlink::Result<Vec<u8>> {
        call.reply_method_not_implemented("upgrade".to_owned())?;
        Ok(Vec::new())
    }

    fn call(&self, call: &mut Call<'_>) -> varlink::Result<()> {
        let Some(request) = call.request else {
            return call.reply_method_not_found(String::new());
        };
        let method = request.method.rsplit('.').next().unwrap_or_default();
        let is_plain = [request.more, request.oneway, request.upgrade]
            .iter()
            .all(|flag| *flag != Some(true));
        if !is_plain {
            return call.reply_method_not_implemented(request.method.to_string());
        }
        let empty = json!({});
        let parameters = request.parameters.as_ref().filter(|given| !given.is_null());
        let asked = match asked(method, parameters.unwrap_or(&empty)) {
            Ok(asked) => asked,
            Err(InvalidCall::NoMethod) => {
                return call.reply_method_not_found(request.method.to_string());
            }
            Err(InvalidCall::Bad(what)) => return call.reply_invalid_parameter(what),
        };
        let plain = match &asked {
            ParsedCall::Plain(request) => request.clone(),
            ParsedCall::ListGroups => Request::Status,
        };
        let ended = || Answer::Error("the daemon is stopping".to_owned());
        let reply = reply_of(&asked, (self.ask)(plain).unwrap_or_else(ended))?;
        let written = call.writer.write_all(&reply);
        Ok(written.map_err(|error| ErrorKind::from(&error))?)
    }
}

#[cfg(test)]
mod tests;
