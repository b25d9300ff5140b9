//! Selectors and selections as texts, as they travel between processes.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uksm_linux::selection::{Selection, Selectors};

/// [`Selectors`], each as it is written on the command line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SelectorTexts {
    /// Ids, with start times.
    pub(crate) pid: Vec<String>,
    /// Control groups.
    pub(crate) cgroup: Vec<String>,
    /// Units of systemd.
    pub(crate) unit: Vec<String>,
    /// Program names.
    pub(crate) comm: Vec<String>,
}

/// [`Selection`] as texts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct SelectionTexts {
    all: bool,
    chosen: SelectorTexts,
    excluded: SelectorTexts,
    others: Vec<SelectionTexts>,
}

fn texts<T: Display>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

fn parse<T: FromStr<Err = String>>(texts: &[String]) -> Result<Vec<T>, String> {
    texts.iter().map(|text| text.parse()).collect()
}

impl From<&Selectors> for SelectorTexts {
    fn from(selectors: &Selectors) -> SelectorTexts {
        SelectorTexts {
            pid: texts(&selectors.pids),
            cgroup: texts(&selectors.cgroups),
            unit: texts(&selectors.units),
            comm: texts(&selectors.comms),
        }
    }
}

impl TryFrom<&SelectorTexts> for Selectors {
    /// A text that is no selector.
    type Error = String;

    fn try_from(texts: &SelectorTexts) -> Result<Selectors, String> {
        Ok(Selectors {
            pids: parse(&texts.pid)?,
            cgroups: parse(&texts.cgroup)?,
            units: parse(&texts.unit)?,
            comms: parse(&texts.comm)?,
        })
    }
}

impl From<&Selection> for SelectionTexts {
    fn from(selection: &Selection) -> SelectionTexts {
        SelectionTexts {
            all: selection.all,
            chosen: (&selection.chosen).into(),
            excluded: (&selection.excluded).into(),
            others: selection.others.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<&SelectionTexts> for Selection {
    /// A text that is no selector.
    type Error = String;

    fn try_from(texts: &SelectionTexts) -> Result<Selection, String> {
        let others = texts.others.iter().map(TryInto::try_into);
        Ok(Selection {
            all: texts.all,
            chosen: (&texts.chosen).try_into()?,
            excluded: (&texts.excluded).try_into()?,
            others: others.collect::<Result<_, String>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_travels_whole() {
        let selectors = |comm: &str| Selectors {
            pids: vec!["7@8".parse().unwrap()],
            cgroups: vec!["/a/b-*".parse().unwrap()],
            units: vec!["x*.slice".parse().unwrap()],
            comms: vec![comm.parse().unwrap()],
        };
        let other = Selection {
            all: true,
            excluded: selectors("y"),
            ..Selection::default()
        };
        let selection = Selection {
            all: false,
            chosen: selectors("redis*"),
            excluded: selectors("z"),
            others: vec![other],
        };
        let text = serde_json::to_string(&SelectionTexts::from(&selection)).unwrap();
        let read: SelectionTexts = serde_json::from_str(&text).unwrap();
        assert_eq!(Selection::try_from(&read), Ok(selection));
    }

    #[test]
    fn a_text_that_is_no_selector_is_named() {
        let texts = SelectorTexts {
            unit: vec!["nginx".to_owned()],
            ..SelectorTexts::default()
        };
        let error = Selectors::try_from(&texts).unwrap_err();
        assert!(error.starts_with("'nginx' is not a unit"), "{error}");
    }
}
