//! Settings by name: what the daemon is told, and by whom.
//!
//! A setting comes from a file or from the command line. An error in it names where it stands, also
//! when two settings contradict each other. So settings are kept as texts by name, each with its
//! [`Origin`]; the last to set one wins. [`Settings::resolve`] reads them when all are there.
//!
//! The policy's parameters are rows of [`Params`], the daemon's own are rows of [`DaemonSettings`]
//! below.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use tracing::Level;
use uksm_linux::module::{Configuration, DEVICE_PATH};
use uksm_linux::selection::Selection;
use uksm_policy::command::Nanos;
use uksm_policy::params::form::{Choice, Form, choice, count, optional, share, switch, time};
use uksm_policy::params::{Governor, ParamError, Params, Row};
use uksm_redistribution::guard::Marks;

mod backend;
mod paths;

pub(crate) use backend::Backend;
use paths::{FolderOrNone, path};

const SECOND: Nanos = 1_000_000_000;
const MINUTE: Nanos = 60 * SECOND;

/// Where the daemon listens.
pub(crate) const SOCKET: &str = "/run/uksm/uksm.sock";

/// Where the ledger is.
pub(crate) const ACCOUNT_FOLDER: &str = "/var/lib/uksm/accounts";

/// Where agents reach it.
pub(crate) const AGENT_SOCKET: &str = "/run/uksm/agents.sock";

/// The settings that have a meaning with the backend `ksm`.
pub(crate) const OF_KSM: [&str; 12] = [
    "backend",
    "agent_socket",
    "governor",
    "cpu",
    "round",
    "sleep",
    "v_dup",
    "seed",
    "nice",
    "socket",
    "socket_group",
    "log",
];

uksm_policy::parameters! {
    /// What the daemon is told besides the policy's parameters.
    #[derive(Debug, Clone, PartialEq)]
    pub(crate) struct DaemonSettings, made by standard() {
        /// How much processor time to use: 95% of a core and a round in 2s; 47.5%, 4s; 23.75%, 8s;
        /// 1%, 20s.
        /// Parameters given by name override its values.
        governor: Governor = Governor::Full, Governor::form();

        /// Seed of random choices and of the line hash, to repeat a run; for experiments.
        ///
        /// `None` takes over the seed of the last daemon, or makes a random one: see
        /// `hash_seed.rs`.
        seed: Option<u64> = None, optional("random", count(1..=u64::MAX));

        /// Most frames to hold; auto is the machine's limit.
        max_frames: Option<u64> = None, optional("auto", count(1..=1 << 52));

        /// Sample and report, merge nothing.
        dry_run: bool = false, switch();

        /// Niceness of the daemon, where several tasks want one processor; ksmd's is 5.
        nice: u64 = 5, count(0..=19);

        /// Which mechanism merges: the module, or in-kernel KSM, which is global and merges only
        /// processes that cooperate.
        ///
        /// `docs/ksm-backend.md`.
        backend: Backend = Backend::Module, Backend::form();

        /// Socket for agents of processes that `uksm exec` started, with `backend = "ksm"`.
        agent_socket: PathBuf = PathBuf::from(AGENT_SOCKET), path();

        /// The module's device.
        device: PathBuf = PathBuf::from(DEVICE_PATH), path();

        /// Socket on which the daemon answers `status`, `break` and other commands.
        socket: PathBuf = PathBuf::from(SOCKET), path();

        /// Unix group, by name or number, whose members may send the daemon all requests, like
        /// root.
        socket_group: Option<String> = None, NameOrNone;

        /// Folder of the ledger: costs and savings of groups over time, for `account`.
        account_dir: Option<PathBuf> = Some(PathBuf::from(ACCOUNT_FOLDER)), FolderOrNone;

        /// Interval between records of the ledger.
        account_interval: Nanos = MINUTE, time(SECOND..=24 * 60 * MINUTE);

        /// Days for which the ledger is kept.
        account_days: u64 = 90, count(1..=36_500);

        /// Largest share of a core for all groups together.
        ///
        /// `None` is what `cpu` says of each.
        cpu_total: Option<f64> = None, optional("none", share(0.002..=1024.0));

        /// With less than this share of the host's memory available, members of groups get no more
        /// memory; 0% turns this off.
        headroom_hold: f64 = Marks::standard().hold_below, share(0.0..=1.0);

        /// With less than this share available, members give back the memory that they got; 0%
        /// turns this off.
        headroom_take: f64 = Marks::standard().take_below, share(0.0..=1.0);

        /// While some tasks wait for memory for more than this share of the time, members get no
        /// more memory; 100% turns this off.
        pressure_hold: f64 = Marks::standard().some_above, share(0.001..=1.0);

        /// While all tasks wait for memory for more than this share of the time, members give back
        /// the memory that they got; 100% turns this off.
        pressure_take: f64 = Marks::standard().full_above, share(0.001..=1.0);

        /// How much to log, to standard error.
        log: Level = Level::INFO, log_level();
    }
}

/// A name of something on this host; `none`, or no text, is none.
struct NameOrNone;

impl Form for NameOrNone {
    type Value = Option<String>;

    fn unit(&self) -> &'static str {
        "name"
    }

    fn bounds(&self) -> String {
        "none, or a name".to_owned()
    }

    fn read(&self, text: &str) -> Option<Self::Value> {
        let is_none = text.is_empty() || text == "none";
        Some((!is_none).then(|| text.to_owned()))
    }

    fn show(&self, value: &Self::Value) -> String {
        value.clone().unwrap_or_else(|| "none".to_owned())
    }

    fn accepts(&self, _: &Self::Value) -> bool {
        true
    }
}

fn log_level() -> Choice<Level, 5> {
    let levels = [
        ("error", Level::ERROR),
        ("warn", Level::WARN),
        ("info", Level::INFO),
        ("debug", Level::DEBUG),
        ("trace", Level::TRACE),
    ];
    choice("level", levels)
}

/// Every setting with its default: the daemon's own, and every parameter of the policy.
pub(crate) fn rows() -> impl Iterator<Item = Row> {
    let daemon = DaemonSettings::standard();
    let params = Params::governor(daemon.governor);
    daemon.rows().into_iter().chain(params.rows())
}

/// The names of [`rows`].
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    DaemonSettings::NAMES.iter().chain(Params::NAMES).copied()
}

/// The setting of this name, if there is one.
pub(crate) fn named(name: &str) -> Option<&'static str> {
    names().find(|known| *known == name)
}

/// The option of a setting.
pub(crate) fn option(name: &str) -> String {
    name.replace('_', "-")
}

/// Where a setting was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
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

/// Settings as they were told, and where.
pub(crate) type Texts = BTreeMap<&'static str, (String, Origin)>;

/// Everything the daemon was told.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    texts: Texts,
    /// The processes.
    pub(crate) targets: Selection,
}

/// Everything the daemon was told, understood.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedSettings {
    /// The daemon's own settings, checked.
    pub(crate) daemon: DaemonSettings,
    /// The policy's parameters, checked.
    pub(crate) params: Params,
}

impl DaemonSettings {
    /// The marks of the guard.
    pub(crate) fn marks(&self) -> Marks {
        Marks {
            hold_below: self.headroom_hold,
            take_below: self.headroom_take,
            some_above: self.pressure_hold,
            full_above: self.pressure_take,
            ..Marks::standard()
        }
    }
}

impl ResolvedSettings {
    /// All settings as texts, which [`Settings::of_texts`] reads.
    pub(crate) fn texts(&self) -> BTreeMap<String, String> {
        let all = self.daemon.texts().into_iter().chain(self.params.texts());
        all.map(|(name, text)| (name.to_owned(), text)).collect()
    }

    /// The constants of the domain.
    pub(crate) fn configuration(&self, hash_seed: u64) -> Configuration {
        Configuration {
            hash_seed,
            frame_limit: self.daemon.max_frames.unwrap_or(0),
            sharer_limit: self.params.max_sharers,
            merge: self.params.merge,
            least_spaces: self.params.merge_spaces,
            keeps_nodes: !self.params.merge_across_nodes,
        }
    }
}

/// Settings of the daemon that can also be a group's.
const ALSO_OF_GROUPS: [&str; 5] = ["governor", "seed", "max_frames", "dry_run", "nice"];

/// Settings that are the daemon's as a whole, and no group's.
pub(crate) fn of_daemon_alone() -> impl Iterator<Item = &'static str> {
    let names = DaemonSettings::NAMES.iter().copied();
    names.filter(|name| !ALSO_OF_GROUPS.contains(name))
}

impl Settings {
    /// Sets one; a later call wins. The name must be one of [`rows`].
    pub(crate) fn set(&mut self, name: &'static str, text: String, origin: Origin) {
        self.texts.insert(name, (text, origin));
    }

    /// Those of [`ResolvedSettings::texts`].
    ///
    /// # Errors
    /// A name that is none.
    pub(crate) fn of_texts(texts: &BTreeMap<String, String>) -> Result<Settings, String> {
        let mut settings = Settings::default();
        for (name, text) in texts {
            let Some(known) = named(name) else {
                return Err(format!("{name}: no such setting"));
            };
            settings.set(known, text.clone(), Origin::Option(name.clone()));
        }
        Ok(settings)
    }

    /// What one was set to.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(|(text, _)| text.as_str())
    }

    /// Where one was set.
    pub(crate) fn origin(&self, name: &str) -> Option<&Origin> {
        self.texts.get(name).map(|(_, origin)| origin)
    }

    /// Takes over what `stronger` sets. Its targets replace those here if it names any, lest
    /// somebody who names one process merges all that a file names; what is excluded adds up.
    pub(crate) fn yield_to(&mut self, stronger: Settings) {
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
    pub(crate) fn resolve(&self) -> Result<ResolvedSettings, String> {
        let refuse = |error| self.refuse(&error);
        let mut daemon = DaemonSettings::standard();
        for name in DaemonSettings::NAMES {
            if let Some(text) = self.text(name) {
                daemon.set(name, text).map_err(refuse)?;
            }
        }
        daemon.check_each().map_err(refuse)?;
        if daemon.headroom_take > daemon.headroom_hold {
            let (name, value, bounds) = match self.text("headroom_take") {
                Some(_) => (
                    "headroom_take",
                    daemon.headroom_take,
                    "must be at most headroom_hold",
                ),
                None => (
                    "headroom_hold",
                    daemon.headroom_hold,
                    "must be at least headroom_take",
                ),
            };
            return Err(self.refuse(&ParamError {
                name: name.to_owned(),
                value: value.to_string(),
                bounds: bounds.to_owned(),
            }));
        }
        let mut params = Params::governor(daemon.governor);
        for name in Params::NAMES {
            if let Some(text) = self.text(name) {
                params.set(name, text).map_err(refuse)?;
            }
        }
        params.check().map_err(refuse)?;
        Ok(ResolvedSettings { daemon, params })
    }

    fn refuse(&self, error: &ParamError) -> String {
        refuse(&self.texts, error)
    }
}

/// Says where a refused setting was made.
pub(crate) fn refuse(texts: &Texts, error: &ParamError) -> String {
    match texts.get(error.name.as_str()) {
        Some((text, origin)) => format!("{origin} = {text}: {}", error.bounds),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn with(pairs: &[(&'static str, &str)]) -> Settings {
        let mut settings = Settings::default();
        for &(name, text) in pairs {
            let option = Origin::Option(format!("--{}", option(name)));
            settings.set(name, text.to_owned(), option);
        }
        settings
    }

    fn refused(pairs: &[(&'static str, &str)]) -> String {
        with(pairs).resolve().expect_err("accepted")
    }

    #[test]
    fn the_default_is_the_full_governor() {
        let resolved = Settings::default().resolve().unwrap();
        assert_eq!(resolved.params, Params::governor(Governor::Full));
        let configuration = Configuration {
            sharer_limit: 256,
            least_spaces: 1,
            ..Configuration::default()
        };
        assert_eq!(resolved.configuration(0), configuration);
        assert_eq!(resolved.daemon.socket, PathBuf::from(SOCKET));
        assert_eq!(
            resolved.daemon.account_dir,
            Some(PathBuf::from(ACCOUNT_FOLDER))
        );
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
    fn the_governors_of_the_help_are_those_of_the_policy() {
        let help = rows().find(|row| row.name == "governor").unwrap().doc;
        let mut rest = help.as_str();
        for governor in Governor::ALL {
            for row in Params::governor(governor).rows() {
                if ["cpu", "round"].contains(&row.name) {
                    let (_, behind) = rest.split_once(&row.value).expect(&row.value);
                    rest = behind;
                }
            }
        }
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
        let within = refused(&[("merge", "within")]);
        assert_eq!(within, "--merge = within: must be all, between or zero");
        assert!(refused(&[("log", "5")]).starts_with("--log = 5: must be error, warn"));
        let cpu = refused(&[("cpu", "150%")]);
        assert!(
            cpu.starts_with("--cpu = 150%: must be ") && cpu.contains("95"),
            "{cpu}"
        );
    }

    #[test]
    fn each_refusal_names_the_bounds_once() {
        let texts = [
            "nonsense", "", "-1", "0", "3", "0%", "101%", "1000", "1ns", "99h", "4KiB", "9PiB",
            "1,2",
        ];
        let mut refusals = 0;
        for row in rows() {
            for text in texts {
                let Err(line) = with(&[(row.name, text)]).resolve() else {
                    continue;
                };
                let option = format!("--{} = {text}: must ", option(row.name));
                assert!(line.starts_with(&option), "{line}");
                assert_eq!(line.matches("must").count(), 1, "{line}");
                assert!(!line.contains("expected"), "{line}");
                refusals += 1;
            }
        }
        assert!(refusals > 2 * rows().count(), "only {refusals}");
    }

    #[test]
    fn accounts_are_turned_off_by_none_or_by_nothing() {
        for (text, folder) in [("", None), ("none", None), ("/x", Some("/x".into()))] {
            let daemon = with(&[("account_dir", text)]).resolve().unwrap().daemon;
            assert_eq!(daemon.account_dir, folder);
        }
        let line = refused(&[("account_interval", "10ms")]);
        assert_eq!(line, "--account-interval = 10ms: must be 1s to 24h");
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

    /// The documents whose names of settings and fields must exist.
    const DOCUMENTS: [&str; 4] = ["operating", "settings", "groups", "monitoring"];

    fn document(name: &str) -> String {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        std::fs::read_to_string(format!("{folder}/{name}.md")).unwrap()
    }

    #[test]
    fn the_manual_names_only_settings_and_fields_that_exist() {
        let groups = serde_json::to_value(crate::status::groups::GroupsStatus::default()).unwrap();
        let settings = names().map(|name| -> &str { name });
        let sections = crate::status::sections().into_iter();
        let fields = sections.flat_map(|(section, _, fields)| {
            let names = fields.into_iter().map(|field| field.name);
            names.chain([section])
        });
        let accounts = crate::account::bill::sections().into_iter();
        let accounts = accounts.flat_map(|(_, fields)| fields.into_iter().map(|field| field.name));
        let given = crate::config::members::names().into_iter();
        let given = given.chain(crate::config::rate::names());
        let of_rules = crate::config::rules::names();
        let of_module = ["frame_percent"].into_iter();
        let known = settings
            .chain(fields)
            .chain(accounts)
            .chain(given)
            .chain(of_module);
        let of_all = groups.as_object().unwrap().keys().map(String::as_str);
        let known: BTreeSet<&str> = known.chain(of_rules).chain(of_all).collect();
        let mut found = 0;
        for name in DOCUMENTS {
            let manual = document(name);
            // Names are what stands between backquotes and has an underscore.
            let words = manual.split('`').skip(1).step_by(2).flat_map(|code| {
                code.split(|c: char| !(c.is_ascii_lowercase() || c == '_'))
                    .filter(|word| word.trim_matches('_').contains('_'))
            });
            for word in words {
                assert!(
                    known.contains(word),
                    "docs/{name}.md: `{word}` does not exist"
                );
                found += 1;
            }
        }
        assert!(found > 10, "only {found} names in {DOCUMENTS:?}");
    }

    #[test]
    fn each_setting_is_a_row_of_the_reference_with_its_default() {
        let reference = document("settings");
        let expected = rows().map(|row| format!("| `{}` | {} |", row.name, row.value));
        let has = |row: &String| reference.lines().any(|line| line.starts_with(row.as_str()));
        let missing: Vec<String> = expected.filter(|row| !has(row)).collect();
        assert_eq!(missing, Vec::<String>::new(), "docs/settings.md");
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
