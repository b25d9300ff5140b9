//! The description of the interface is compared with the messages: every call and reply, field by
//! field.

use std::collections::BTreeSet;

use varlink_parser::{IDL, VStruct, VStructOrEnum, VType, VTypeExt};

use super::*;
use crate::status::Status;
use crate::status::evidence::{
    Evidence, PageKind, Partner, ProcessStanding, Range, Region, RegionStanding, Sighting, Terms,
};
use crate::status::processes::{ProcessFigures, ProcessList, ProcessSums};

fn described() -> IDL<'static> {
    IDL::try_from(DESCRIPTION).unwrap()
}

/// Checks that a value is of a type, and has no field that is not described.
fn assert_is(idl: &IDL<'_>, of: &VTypeExt<'_>, value: &Value, what: &str) {
    let inside = |of: &VTypeExt<'_>, value: &Value| assert_is(idl, of, value, what);
    match of {
        VTypeExt::Option(of) => {
            if !value.is_null() {
                inside(of, value);
            }
        }
        VTypeExt::Array(of) => {
            let items = value
                .as_array()
                .unwrap_or_else(|| panic!("{what}: {value}"));
            for item in items {
                inside(of, item);
            }
        }
        VTypeExt::Dict(of) => {
            let items = value
                .as_object()
                .unwrap_or_else(|| panic!("{what}: {value}"));
            for item in items.values() {
                inside(of, item);
            }
        }
        VTypeExt::Plain(VType::String) => assert!(value.is_string(), "{what}: {value}"),
        VTypeExt::Plain(VType::Int) => assert!(value.is_i64(), "{what}: {value}"),
        VTypeExt::Plain(VType::Float) => assert!(value.is_f64(), "{what}: {value}"),
        VTypeExt::Plain(VType::Bool) => assert!(value.is_boolean(), "{what}: {value}"),
        VTypeExt::Plain(VType::Object) => assert!(value.is_object(), "{what}: {value}"),
        VTypeExt::Plain(VType::Typename(name)) => match &idl.typedefs[name].elt {
            VStructOrEnum::VStruct(of) => assert_has(idl, of, value, name),
            VStructOrEnum::VEnum(_) => panic!("{name}: no such type is used"),
        },
        VTypeExt::Plain(_) => panic!("{what}: no such type is used"),
    }
}

/// The same for a struct.
fn assert_has(idl: &IDL<'_>, of: &VStruct<'_>, value: &Value, what: &str) {
    let object = value
        .as_object()
        .unwrap_or_else(|| panic!("{what}: {value}"));
    for field in &of.elts {
        let name = format!("{what}.{}", field.name);
        assert_is(
            idl,
            &field.vtype,
            object.get(field.name).unwrap_or(&Value::Null),
            &name,
        );
    }
    let known: BTreeSet<&str> = of.elts.iter().map(|field| field.name).collect();
    for name in object.keys() {
        assert!(
            known.contains(name.as_str()),
            "{what}: {name} is not described"
        );
    }
}

/// A reply as parsed by the library.
fn parsed(message: &[u8]) -> Reply {
    let message = message.strip_suffix(b"\0").unwrap();
    varlink::sansio::protocol::parse_reply(message).unwrap()
}

fn keys(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn groups() -> Answer {
    let group = GroupStatus {
        name: "web".to_owned(),
        origin: "/x:3: web".to_owned(),
        pid: Some(7),
        fault: Some("no such control group yet".to_owned()),
        book: Some("/x".to_owned()),
        ..GroupStatus::default()
    };
    Answer::Groups(Box::new(GroupsStatus {
        groups: vec![group, GroupStatus::default()],
        ..GroupsStatus::default()
    }))
}

/// Evidence with all fields, on a followed process.
fn evidence() -> Answer {
    let region = Region {
        start: 0x1000,
        end: 0x9000,
        level: 1,
        standing: RegionStanding::CowBroken,
        left_seconds: Some(4.0),
        age_seconds: 60.0,
        merged: 1,
        read_in_full: true,
        sampled: 8,
        hits: 2,
        broken: 0.75,
        strikes: 2,
        busy: 0,
        busy_left_seconds: None,
        huge_again_left_seconds: None,
        read: 8,
        seen: vec![Sighting {
            what: PageKind::Own,
            partner: Partner::OwnOnly,
            pages: 8,
        }],
    };
    let terms = Terms {
        v_cow: Some(0.5),
        no_frames_left_seconds: Some(1.0),
        ..Terms::default()
    };
    Answer::Explained(Box::new(Evidence {
        group: Some("web".to_owned()),
        terms: Some(terms),
        is_listed: true,
        regions: vec![region],
        sparse: vec![Range {
            start: 0,
            end: 4096,
        }],
        next: Some(0x9000),
        ..Evidence::of(ProcessStanding::Followed, None)
    }))
}

/// Figures of a process with all fields.
fn processes() -> Answer {
    let sums = ProcessSums {
        resident_pages: 5,
        merged_pages: 4,
        left_pages: 3,
        read_pages: 2,
        work_seconds: 0.25,
    };
    Answer::Processes(Box::new(ProcessList {
        uptime_seconds: 61.5,
        processes: vec![ProcessFigures {
            pid: 7,
            comm: "redis".to_owned(),
            sums,
        }],
        left_out: 1,
    }))
}

/// All requests, each with an answer.
fn examples() -> Vec<(Request, Answer)> {
    let status = || Answer::Status(Box::default());
    let changed = Answer::Changed { groups: 3 };
    let name = || "web".to_owned();
    let broken = Answer::Broken {
        processes: 1,
        pages: 2,
        stopped: 3,
        locked: 4,
    };
    let accounted = |folder: Option<&str>| Answer::Accounted {
        folder: folder.map(PathBuf::from),
        fault: folder.map(str::to_owned),
    };
    let texts = SelectorTexts {
        pid: vec!["7@8".to_owned()],
        comm: vec!["redis*".to_owned()],
        ..SelectorTexts::default()
    };
    let set = Change::Set {
        name: name(),
        keys: keys(&[("cpu", "3%")]),
        unset: vec!["book".to_owned()],
    };
    let add = Change::Add {
        name: name(),
        keys: keys(&[("cgroup", "/x"), ("exclude.comm", "sshd")]),
    };
    vec![
        (Request::Status, status()),
        (Request::Status, groups()),
        (Request::Group(name()), status()),
        (Request::Account, accounted(None)),
        (Request::Account, accounted(Some("/x"))),
        (Request::Reload, changed.clone()),
        (Request::Break(texts), broken),
        (Request::Change(add), changed.clone()),
        (Request::Change(set), changed.clone()),
        (Request::Change(Change::Remove { name: name() }), changed),
        (Request::Explain { pid: 7, from: 9 }, evidence()),
        (
            Request::Explain { pid: 7, from: 0 },
            Answer::Explained(Box::new(Evidence::of(
                ProcessStanding::NotAttached,
                Some("no right".to_owned()),
            ))),
        ),
        (Request::Processes(None), processes()),
        (Request::Processes(Some(name())), processes()),
        (Request::Reload, Answer::Error("/x:3: no".to_owned())),
    ]
}

#[test]
fn the_description_is_of_this_interface() {
    let idl = described();
    assert_eq!(idl.name, NAME);
    assert_eq!(idl.error_keys, ["Refused"]);
    for (name, method) in &idl.methods {
        assert!(!method.doc.is_empty(), "{name} has no description");
    }
}

#[test]
fn calls_and_replies_are_as_described_and_are_understood() {
    let idl = described();
    let mut methods: BTreeSet<&str> = idl.methods.keys().copied().collect();
    for (request, answer) in examples() {
        let (name, parameters) = call_of(&request).unwrap();
        let method = &idl.methods[name];
        assert_has(&idl, &method.input, &parameters, name);
        let asked = asked(name, &parameters).unwrap();
        assert_eq!(asked, ParsedCall::Plain(request.clone()));

        let message = reply_of(&asked, answer.clone()).unwrap();
        let reply = parsed(&message);
        let parameters = reply.parameters.clone().unwrap();
        match &reply.error {
            None => assert_has(&idl, &method.output, &parameters, name),
            Some(error) => {
                let error = error.strip_prefix(NAME).unwrap().trim_start_matches('.');
                assert_has(&idl, &idl.errors[error].parm, &parameters, error);
            }
        }
        assert_eq!(answer_of(&request, &message), Ok(answer));
        methods.remove(name);
    }
    // This program does not call it: it shows more.
    assert_eq!(methods.into_iter().collect::<Vec<_>>(), ["ListGroups"]);
    let asked = asked("ListGroups", &json!({})).unwrap();
    for (answer, count) in [(groups(), 2), (Answer::Status(Box::<Status>::default()), 0)] {
        let message = reply_of(&asked, answer).unwrap();
        let reply = parsed(&message).parameters.unwrap();
        assert_has(
            &idl,
            &idl.methods["ListGroups"].output,
            &reply,
            "ListGroups",
        );
        assert_eq!(reply["groups"].as_array().unwrap().len(), count);
    }
}

#[test]
fn lists_that_are_left_out_are_empty_and_what_is_not_described_is_refused() {
    let few = json!({ "selectors": { "pid": ["7"], "unit": null } });
    let Ok(ParsedCall::Plain(Request::Break(texts))) = asked("Break", &few) else {
        panic!("a list that is left out is empty");
    };
    assert_eq!((texts.pid.len(), texts.unit.len()), (1, 0));
    for (method, parameters) in [
        ("Break", json!({})),
        ("Break", json!({ "selectors": { "pids": [] } })),
        ("Status", json!({ "x": 1 })),
        ("Status", json!([])),
        ("GroupStatus", json!({})),
        ("Explain", json!({})),
        ("Explain", json!({ "pid": -1 })),
        ("Processes", json!({ "group": 1 })),
        ("Processes", json!({ "pid": 7 })),
        ("AddGroup", json!({ "name": "x" })),
        ("AddGroup", json!({ "name": "x", "settings": { "cpu": 1 } })),
        (
            "AddGroup",
            json!({ "name": "x", "settings": {}, "unset": [] }),
        ),
    ] {
        let no = asked(method, &parameters);
        assert!(
            matches!(no, Err(InvalidCall::Bad(_))),
            "{method} {parameters}: {no:?}"
        );
    }
    assert_eq!(asked("status", &json!({})), Err(InvalidCall::NoMethod));
    assert_eq!(call_of(&Request::BreakSpaces(vec![1])), None);
    assert_eq!(call_of(&Request::Spaces), None);
    assert_eq!(
        asked("Processes", &json!({ "group": null })),
        Ok(ParsedCall::Plain(Request::Processes(None)))
    );
    assert_eq!(
        asked("Explain", &json!({ "pid": 7 })),
        Ok(ParsedCall::Plain(Request::Explain { pid: 7, from: 0 }))
    );
}

#[test]
fn invalid_reply_has_a_reason() {
    for (message, says) in [
        (&b""[..], "it is truncated"),
        (b"{\"parameters\":{}}", "it is truncated"),
        (b"{\"parameters\":{}}\0", "missing field"),
        (b"{\0", "EOF while parsing"),
    ] {
        let error = answer_of(&Request::Reload, message).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
    for (message, says) in [
        (&b"{\"parameters\":{}}\0"[..], "it contains no status"),
        (
            b"{\"parameters\":{\"status\":{\"groups\":1}}}\0",
            "expected a sequence",
        ),
        (
            b"{\"parameters\":{\"status\":{\"pid\":1}}}\0",
            "missing field",
        ),
        (b"{\"parameters\":{\"status\":{\"pid\"", "it is truncated"),
        (
            b"{\"parameters\":{\"status\":{\"pid\"\0",
            "EOF while parsing",
        ),
    ] {
        let error = answer_of(&Request::Status, message).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
    let other =
        b"{\"error\":\"org.varlink.service.MethodNotFound\",\"parameters\":{\"method\":\"x\"}}\0";
    assert_eq!(
        answer_of(&Request::Reload, other),
        Ok(Answer::Error(
            "the running daemon does not know Reload: it is older than this program: restart it"
                .to_owned()
        ))
    );
    let other = b"{\"error\":\"org.varlink.service.InvalidParameter\",\"parameters\":{\"parameter\":\"x\"}}\0";
    assert_eq!(
        answer_of(&Request::Reload, other),
        Ok(Answer::Error(
            "org.varlink.service.InvalidParameter {\"parameter\":\"x\"}".to_owned()
        ))
    );
}
