//! Selectors as texts, in the form in which they are sent between processes.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};
use uksm_linux::selection::Selectors;

/// [`Selectors`], each in the form of the command line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SelectorTexts {
    /// Ids, with start times.
    #[serde(deserialize_with = "or_none")]
    pub(crate) pid: Vec<String>,
    /// Control groups.
    #[serde(deserialize_with = "or_none")]
    pub(crate) cgroup: Vec<String>,
    /// Units of systemd.
    #[serde(deserialize_with = "or_none")]
    pub(crate) unit: Vec<String>,
    /// Virtual machines of libvirt.
    #[serde(deserialize_with = "or_none")]
    pub(crate) libvirt: Vec<String>,
    /// Program names.
    #[serde(deserialize_with = "or_none")]
    pub(crate) comm: Vec<String>,
}

/// A list, or null for none.
fn or_none<'de, D: Deserializer<'de>>(list: D) -> Result<Vec<String>, D::Error> {
    Option::deserialize(list).map(Option::unwrap_or_default)
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
            libvirt: texts(&selectors.libvirt),
            comm: texts(&selectors.comms),
        }
    }
}

impl TryFrom<&SelectorTexts> for Selectors {
    /// A text that is not a selector.
    type Error = String;

    fn try_from(texts: &SelectorTexts) -> Result<Selectors, String> {
        Ok(Selectors {
            pids: parse(&texts.pid)?,
            cgroups: parse(&texts.cgroup)?,
            units: parse(&texts.unit)?,
            libvirt: parse(&texts.libvirt)?,
            comms: parse(&texts.comm)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_travel_whole() {
        let selectors = Selectors {
            pids: vec!["7@8".parse().unwrap()],
            cgroups: vec!["/a/b-*".parse().unwrap()],
            units: vec!["x*.slice".parse().unwrap()],
            libvirt: vec!["web-*".parse().unwrap()],
            comms: vec!["redis*".parse().unwrap()],
        };
        let text = serde_json::to_string(&SelectorTexts::from(&selectors)).unwrap();
        let read: SelectorTexts = serde_json::from_str(&text).unwrap();
        assert_eq!(Selectors::try_from(&read), Ok(selectors));
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
