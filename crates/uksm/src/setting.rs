//! Settings by name: what the daemon is told, and by whom.
//!
//! # Problem
//! A setting can come from a file or the command line; an error in it must name where it stands,
//! also when two settings contradict each other.
//!
//! # Approach
//! Settings are texts by name, each with its [`Origin`]; the last to set one wins. They are read
//! only when all are there: [`Settings::resolve`] makes the policy's parameters and the daemon's
//! own numbers of them. The policy's parameters come from its own table.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use uksm_linux::module::{Configuration, DEVICE_PATH};
use uksm_linux::selection::Selection;
use uksm_policy::params::{Governor, ParamError, Params, TABLE};

/// Where the daemon listens.
pub const SOCKET: &str = "/run/uksm/uksm.sock";

/// What a setting is.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Its name in files; options write `-` for `_`.
    pub name: &'static str,
    /// Another option for it.
    pub alias: Option<&'static str>,
    /// What kind of value it takes.
    pub unit: &'static str,
    /// The value if nobody sets it.
    pub default: &'static str,
    /// What it must be.
    pub bounds: &'static str,
    /// What it does.
    pub doc: &'static str,
}

impl Spec {
    /// Whether it is on or off.
    #[must_use]
    pub fn is_switch(&self) -> bool {
        self.bounds == "true or false"
    }
}

const fn own(
    name: &'static str,
    unit: &'static str,
    default: &'static str,
    bounds: &'static str,
    doc: &'static str,
) -> Spec {
    Spec {
        name,
        alias: None,
        unit,
        default,
        bounds,
        doc,
    }
}

/// The daemon's own settings.
const OWN: [Spec; 7] = [
    own(
        "governor",
        "name",
        "full",
        "full, medium, low or quiet",
        "how eager to be; parameters given by name override its values",
    ),
    own(
        "seed",
        "number",
        "random",
        "random, or 1 to 2^64-1",
        "repeats a run's choices, and its line hash",
    ),
    own(
        "max_frames",
        "number",
        "auto",
        "auto, or 1 to 2^52",
        "most frames to hold; auto is a quarter of memory",
    ),
    own(
        "dry_run",
        "word",
        "false",
        "true or false",
        "sample and report, merge nothing",
    ),
    own("device", "path", DEVICE_PATH, "", "the module's device"),
    own(
        "socket",
        "path",
        SOCKET,
        "",
        "where `status` and `break` reach the daemon",
    ),
    own(
        "log",
        "level",
        "info",
        "error, warn, info, debug or trace",
        "how much to log",
    ),
];

/// Every setting: the daemon's own, and every parameter of the policy.
pub fn specs() -> impl Iterator<Item = Spec> {
    let params = TABLE.iter().map(|p| Spec {
        name: p.name,
        alias: (p.name == "index_bytes").then_some("index-memory"),
        unit: p.unit,
        default: p.default,
        bounds: p.bounds,
        doc: p.doc,
    });
    OWN.into_iter().chain(params)
}

/// Where a setting was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// By an option.
    Option(String),
    /// By a line of a file.
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key.
        key: String,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Option(option) => f.write_str(option),
            Origin::Line { path, line, key } => write!(f, "{}:{line}: {key}", path.display()),
        }
    }
}

/// Everything the daemon was told.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    texts: BTreeMap<&'static str, (String, Origin)>,
    /// The processes.
    pub targets: Selection,
}

/// Everything the daemon was told, understood.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The governor.
    pub governor: Governor,
    /// The policy's parameters, checked.
    pub params: Params,
    /// The seed, if one was given.
    pub seed: Option<u64>,
    /// The domain's constants; the seed of its hash is still to be filled in.
    pub configuration: Configuration,
    /// Whether nothing is to be merged.
    pub dry_run: bool,
    /// The module's device.
    pub device: PathBuf,
    /// Where to listen.
    pub socket: PathBuf,
    /// How much to log.
    pub log: tracing::Level,
}

impl Settings {
    /// Sets one; a later call wins. The name must be one of [`specs`].
    pub fn set(&mut self, name: &'static str, text: String, origin: Origin) {
        self.texts.insert(name, (text, origin));
    }

    /// What one was set to.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(|(text, _)| text.as_str())
    }

    /// Takes over what `stronger` sets. Its targets replace those here if it names any, lest
    /// somebody who names one process merges all that a file names; what is excluded adds up.
    pub fn yield_to(&mut self, stronger: Settings) {
        self.texts.extend(stronger.texts);
        let mut excluded = std::mem::take(&mut self.targets.excluded);
        excluded.extend(stronger.targets.excluded);
        if stronger.targets.all || !stronger.targets.chosen.is_empty() {
            self.targets.all = stronger.targets.all;
            self.targets.chosen = stronger.targets.chosen;
        }
        self.targets.excluded = excluded;
    }

    /// Reads all of them.
    ///
    /// # Errors
    /// The first that is out of bounds or contradicts others, and where it was set.
    pub fn resolve(&self) -> Result<Resolved, String> {
        let governor: Governor = match self.text("governor") {
            Some(text) => text.parse().map_err(|_| self.refuse("governor"))?,
            None => Governor::Full,
        };
        let seed = self.number("seed", "random", 1..=u64::MAX)?;
        let params = self.params(governor)?;
        Ok(Resolved {
            governor,
            seed,
            configuration: Configuration {
                hash_seed: 0,
                frame_limit: self.number("max_frames", "auto", 1..=1 << 52)?.unwrap_or(0),
                sharer_limit: params.max_sharers,
            },
            params,
            dry_run: self.switch("dry_run")?,
            device: PathBuf::from(self.text("device").unwrap_or(DEVICE_PATH)),
            socket: PathBuf::from(self.text("socket").unwrap_or(SOCKET)),
            log: match self.text("log") {
                Some(text @ ("error" | "warn" | "info" | "debug" | "trace")) => {
                    text.parse().map_err(|_| self.refuse("log"))?
                }
                Some(_) => return Err(self.refuse("log")),
                None => tracing::Level::INFO,
            },
        })
    }

    fn params(&self, governor: Governor) -> Result<Params, String> {
        let mut params = Params::governor(governor);
        for spec in TABLE {
            if let Some(text) = self.text(spec.name) {
                params
                    .set(spec.name, text)
                    .map_err(|error| self.explain(&error))?;
            }
        }
        params.check().map_err(|error| self.explain(&error))?;
        Ok(params)
    }

    /// Says where a refused parameter was set.
    fn explain(&self, error: &ParamError) -> String {
        match self.texts.get(error.name.as_str()) {
            Some((text, origin)) => format!("{origin} = {text}: {}", error.bounds),
            None => error.to_string(),
        }
    }

    fn refuse(&self, name: &str) -> String {
        let bounds = OWN
            .iter()
            .find(|spec| spec.name == name)
            .map_or("", |spec| spec.bounds);
        match self.texts.get(name) {
            Some((text, origin)) => format!("{origin} = {text}: must be {bounds}"),
            None => format!("{name}: must be {bounds}"),
        }
    }

    fn number(
        &self,
        name: &str,
        unset: &str,
        bounds: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, String> {
        match self.text(name) {
            None => Ok(None),
            Some(text) if text == unset => Ok(None),
            Some(text) => match text.parse() {
                Ok(number) if bounds.contains(&number) => Ok(Some(number)),
                _ => Err(self.refuse(name)),
            },
        }
    }

    fn switch(&self, name: &str) -> Result<bool, String> {
        match self.text(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(self.refuse(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&'static str, &str)]) -> Settings {
        let mut settings = Settings::default();
        for &(name, text) in pairs {
            let option = Origin::Option(format!("--{}", name.replace('_', "-")));
            settings.set(name, text.to_owned(), option);
        }
        settings
    }

    fn refused(pairs: &[(&'static str, &str)]) -> String {
        with(pairs).resolve().expect_err("accepted")
    }

    #[test]
    fn nothing_told_is_the_full_governor() {
        let resolved = Settings::default().resolve().unwrap();
        assert_eq!(resolved.params, Params::governor(Governor::Full));
        let configuration = Configuration {
            sharer_limit: 256,
            ..Configuration::default()
        };
        assert_eq!(resolved.configuration, configuration);
        assert_eq!(resolved.socket, PathBuf::from(SOCKET));
    }

    #[test]
    fn parameters_override_the_governor_wherever_they_stand() {
        let resolved = with(&[("cpu", "30%"), ("governor", "quiet")])
            .resolve()
            .unwrap();
        assert_eq!(resolved.params.cpu, 0.3);
        assert_eq!(
            resolved.params.round,
            Params::governor(Governor::Quiet).round
        );
    }

    #[test]
    fn a_bad_value_names_its_option_and_bounds() {
        assert_eq!(
            refused(&[("governor", "fast")]),
            "--governor = fast: must be full, medium, low or quiet"
        );
        assert_eq!(
            refused(&[("seed", "0")]),
            "--seed = 0: must be random, or 1 to 2^64-1"
        );
        assert_eq!(
            refused(&[("max_sharers", "1")]),
            "--max-sharers = 1: must be 2 to 256"
        );
        assert_eq!(
            refused(&[("dry_run", "maybe")]),
            "--dry-run = maybe: must be true or false"
        );
        assert!(refused(&[("log", "5")]).starts_with("--log = 5: must be error, warn"));
        let cpu = refused(&[("cpu", "150%")]);
        assert!(
            cpu.starts_with("--cpu = 150%: must be ") && cpu.contains("95"),
            "{cpu}"
        );
    }

    #[test]
    fn every_refusal_says_once_what_the_value_must_be() {
        let texts = [
            "nonsense", "", "-1", "0", "3", "0%", "101%", "1000", "1ns", "99h", "4KiB", "9PiB",
            "1,2",
        ];
        let mut refusals = 0;
        for spec in specs() {
            for text in texts {
                let Err(line) = with(&[(spec.name, text)]).resolve() else {
                    continue;
                };
                let option = format!("--{} = {text}: must ", spec.name.replace('_', "-"));
                assert!(line.starts_with(&option), "{line}");
                assert_eq!(line.matches("must").count(), 1, "{line}");
                assert!(!line.contains("expected"), "{line}");
                refusals += 1;
            }
        }
        assert!(refusals > 2 * TABLE.len(), "only {refusals}");
    }

    #[test]
    fn contradictory_parameters_name_one_that_was_set() {
        let rounds = refused(&[("levels", "3"), ("level_rounds", "1s,1s")]);
        assert!(
            rounds.starts_with("--level-rounds = 1s,1s: must name one time "),
            "{rounds}"
        );
        let shares = refused(&[("level_shares", "50%,10%,20%,95%")]);
        assert!(shares.starts_with("--level-shares = "), "{shares}");
    }

    #[test]
    fn the_manual_tells_every_setting() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating.md");
        let manual = std::fs::read_to_string(path).unwrap();
        for spec in OWN {
            assert!(
                manual.contains(&format!("| `{}` |", spec.name)),
                "{path}: no {}",
                spec.name
            );
        }
        for p in TABLE {
            let row = format!(
                "| `{}` | {} | {} | {} |",
                p.name, p.default, p.bounds, p.doc
            );
            assert!(manual.contains(&row), "{path}: missing or outdated: {row}");
        }
    }

    #[test]
    fn targets_of_the_command_line_replace_those_of_files() {
        let mut file = Settings::default();
        file.targets.all = true;
        file.targets.excluded.comms.push("sshd".parse().unwrap());
        let mut line = Settings::default();
        line.targets.chosen.pids.push("7".parse().unwrap());
        file.yield_to(line);
        assert!(!file.targets.all);
        assert_eq!(file.targets.chosen.pids.len(), 1);
        assert_eq!(file.targets.excluded.comms.len(), 1);
    }
}
