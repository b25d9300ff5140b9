//! The command line.
//!
//! clap's derive declares what is fixed. Options that are settings are added from
//! [`setting::rows`], so that a new parameter needs no word here. An error is one line that names
//! the thing: clap's errors of several lines are cut to their first.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use uksm_input::plain::plain;
use uksm_linux::selection::{Selection, Selectors};
use uksm_policy::params::Row;
use uksm_policy::report::Field;

use crate::account::bill;
use crate::paths::Roots;
use crate::setting::{self, Origin, Settings};

mod analyze;
mod doctor;
mod exec;
mod explain;
mod group;
mod metrics;
mod option_value;
mod report;
mod span;
mod status;
mod suggest;
mod targets;
mod top;

pub(crate) use analyze::AnalyzeArgs;
pub(crate) use doctor::DoctorArgs;
pub(crate) use exec::{ExecArgs, KsmWatcherArgs, Merge};
pub(crate) use explain::ExplainArgs;
pub(crate) use group::{GroupAction, GroupArgs};
pub(crate) use metrics::MetricsArgs;
pub(crate) use report::ReportArgs;
pub(crate) use span::SpanArgs;
pub(crate) use status::StatusArgs;
pub(crate) use suggest::SuggestArgs;
use targets::{ExcludeArgs, TargetArgs};
pub(crate) use top::TopArgs;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "uksm",
    version,
    about = "Memory deduplication for unmodified Linux"
)]
#[command(
    after_help = "Errors are one line on standard error; the exit status is 0 for success, \
                        1 for a failure, 2 for a wrong command line or configuration. The packages \
                        install documents named docs/NAME as /usr/share/doc/uksm/NAME."
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) action: Action,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Estimate how much memory of this host is duplicate; reads only, and needs neither module nor
    /// daemon
    Analyze(AnalyzeArgs),
    /// Merge equal pages of the named processes until stopped
    Run(RunArgs),
    /// Show what the running daemon does and saves
    Status(StatusArgs),
    /// List, change and suggest groups of the running daemon
    Group(GroupArgs),
    /// Show what each group cost and saved over time
    Account(AccountArgs),
    /// Write an HTML file that shows savings and costs over time
    Report(ReportArgs),
    /// Check what on this host keeps uksm from running, or from saving more; changes nothing
    Doctor(DoctorArgs),
    /// Explain why memory of processes is, or is not, merged, and what would change that
    Explain(ExplainArgs),
    /// Show what the running daemon does and saves, as it changes
    Top(TopArgs),
    /// Export figures of the running daemon as metrics for monitoring
    Metrics(MetricsArgs),
    /// Start a program so that in-kernel KSM may merge its memory; for `run --backend ksm`
    Exec(ExecArgs),
    /// Make the running daemon read its configuration again
    Reload(ReloadArgs),
    /// Run the worker of one group; only `uksm run` starts it
    #[command(hide = true)]
    Worker,
    /// Put KSM's knobs back when the daemon is gone
    #[command(hide = true)]
    KsmWatcher(KsmWatcherArgs),
    /// Give merged pages of the named processes their own copies again
    Break(BreakArgs),
    /// Print a completion script for a shell
    #[command(hide = true)]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder
    #[command(hide = true)]
    Man {
        /// The folder.
        folder: PathBuf,
    },
}

/// Options of `run` other than settings.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    targets: TargetArgs,
    #[command(flatten)]
    excluded: ExcludeArgs,
    /// Configuration file; files of conf.d beside it are read after it [default:
    /// /etc/uksm/config.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Read no configuration file
    #[arg(long, conflicts_with = "config")]
    pub(crate) no_config: bool,
    /// Restore limits and balloons that a killed daemon had set for members of its groups, and
    /// exit; does nothing while a daemon runs
    #[arg(long)]
    pub(crate) put_back: bool,
    /// Where what was set of KSM is kept while `--backend ksm` drives it.
    #[arg(long, hide = true, default_value = "/run/uksm/ksm-before.json")]
    pub(crate) ksm_before: PathBuf,
    #[command(flatten)]
    pub(crate) roots: Roots,
}

/// Options of `account`.
#[derive(Debug, Args)]
pub(crate) struct AccountArgs {
    #[command(flatten)]
    pub(crate) span: SpanArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `reload`.
#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {
    /// The daemon's socket
    #[arg(long, value_name = "PATH", default_value = crate::setting::SOCKET)]
    pub(crate) socket: PathBuf,
}

/// Options of `break`.
#[derive(Debug, Args)]
pub(crate) struct BreakArgs {
    #[command(flatten)]
    targets: TargetArgs,
    /// The daemon's socket
    #[arg(long, value_name = "PATH", default_value = crate::setting::SOCKET)]
    pub(crate) socket: PathBuf,
    /// The module's device, for when no daemon runs
    #[arg(long, value_name = "PATH", default_value = uksm_linux::module::DEVICE_PATH)]
    pub(crate) device: PathBuf,
    #[command(flatten)]
    pub(crate) roots: Roots,
}

impl RunArgs {
    /// The processes that were named on the command line.
    ///
    /// # Errors
    /// A bad `--exclude`.
    pub(crate) fn targets(&self) -> Result<Selection, String> {
        self.targets.selection(&self.excluded)
    }
}

impl BreakArgs {
    /// The processes that were named; none named is an error.
    ///
    /// # Errors
    /// Nothing was named.
    pub(crate) fn selectors(&self) -> Result<Selectors, String> {
        let mut selectors = self.targets.selectors();
        if self.targets.all {
            selectors.comms.push("*".parse()?);
        }
        if selectors.is_empty() {
            return Err(
                "break: no targets: name processes with --pid, --cgroup, --unit, --libvirt or \
                 --comm, or use --all"
                    .to_owned(),
            );
        }
        Ok(selectors)
    }
}

/// The command with all settings as options. `checks` is the help of `uksm doctor`.
pub(crate) fn command(checks: String) -> clap::Command {
    Cli::command()
        .mut_subcommand("run", |run| {
            let run = run.after_help(options_with_ksm());
            setting::rows().fold(run, with_option)
        })
        .mut_subcommand("status", |status| {
            status.after_long_help(fields_of_status())
        })
        .mut_subcommand("account", |account| {
            account.after_long_help(fields_of_accounts())
        })
        .mut_subcommand("doctor", |doctor| doctor.after_long_help(checks))
}

/// The settings that have a meaning with `--backend ksm`.
fn options_with_ksm() -> String {
    let options = setting::OF_KSM.map(|name| format!("--{}", setting::option(name)));
    format!(
        "With --backend ksm (docs/ksm-backend.md) processes are named in the same way, and these \
         are all settings that may be given: {}",
        options.join(", ")
    )
}

/// What each field of a bill and of a record is.
fn fields_of_accounts() -> String {
    let mut text = "The JSON object has its version (1), since and until (null if there is no bound), folder, \
                    torn (records that a crash has torn, which do not count) and groups. Pages \
                    are 4 KiB. GiB h of \
                    the table are byte-seconds divided by 3600 * 2^30.\n"
        .to_owned();
    for (about, fields) in bill::sections() {
        text += &format!("\n{about}\n");
        for Field { name, doc } in fields {
            text += &format!("  {name}: {doc}\n");
        }
    }
    text
}

/// What each field of a status is.
fn fields_of_status() -> String {
    let mut text =
        "Fields of the JSON object. Pages are 4 KiB, shares are parts of one core. Each \
                    line for reading has the name of its object.\n"
            .to_owned();
    for (section, about, fields) in crate::status::sections() {
        text += &format!("\n{about}\n");
        for Field { name, doc } in fields {
            let dot = if section.is_empty() { "" } else { "." };
            text += &format!("  {section}{dot}{name}: {doc}\n");
        }
    }
    text
}

/// Other names of options: (setting, option).
const ALIASES: [(&str, &str); 1] = [("index_bytes", "index-memory")];

fn with_option(run: clap::Command, row: Row) -> clap::Command {
    let mut help = row.doc;
    if !row.bounds.is_empty() {
        help += &format!(" ({})", row.bounds);
    }
    help += &format!(" [default: {}]", row.value);
    let mut arg = Arg::new(row.name)
        .long(setting::option(row.name))
        .value_name(row.unit.to_uppercase())
        .allow_hyphen_values(true)
        .help(help);
    for (name, alias) in ALIASES {
        if name == row.name {
            arg = arg.visible_alias(alias);
        }
    }
    if row.is_switch {
        arg = arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true");
    }
    run.arg(arg)
}

/// Parses the command line; settings of `run` go to `settings`. `checks` is the help of `uksm
/// doctor`.
///
/// # Errors
/// clap's, also for `--help` and `--version`.
pub(crate) fn parse(
    words: impl IntoIterator<Item = OsString>,
    settings: &mut Settings,
    checks: String,
) -> Result<Cli, clap::Error> {
    let matches = command(checks).try_get_matches_from(words)?;
    let cli = Cli::from_arg_matches(&matches)?;
    if let Some(run) = matches.subcommand_matches("run") {
        take_settings(run, settings);
    }
    Ok(cli)
}

fn take_settings(run: &ArgMatches, settings: &mut Settings) {
    for name in setting::names() {
        if let Some(value) = run.get_one::<String>(name) {
            let option = format!("--{}", setting::option(name));
            settings.set(name, value.clone(), Origin::Option(option));
        }
    }
}

/// The command that a command line asks for, with its own before it: `uksm group list`.
fn command_of(words: impl IntoIterator<Item = OsString>) -> String {
    let uksm = command(String::new());
    let mut names = vec![uksm.get_name()];
    let mut asked = &uksm;
    for word in words.into_iter().skip(1) {
        match asked.find_subcommand(&word) {
            Some(named) => asked = named,
            None if word.as_encoded_bytes().starts_with(b"-") => continue,
            None => break,
        }
        names.push(asked.get_name());
    }
    names.join(" ")
}

/// The commands that the help of a command lists.
fn listed_commands(help: &str) -> String {
    let names: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    names.join(", ")
}

/// The first line of a clap error about a command line, and where to look further.
#[must_use]
pub(crate) fn one_line(error: &clap::Error, words: impl IntoIterator<Item = OsString>) -> String {
    let words: Vec<OsString> = words.into_iter().collect();
    let mut text = error.render().to_string();
    // What follows takes the text apart by its lines.
    for word in words.iter().filter_map(|word| word.to_str()) {
        if word.contains('\n') {
            text = text.replace(word, &plain(word));
        }
    }
    let command = command_of(words);
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let names = listed_commands(&text);
        return format!("{command} needs a command ({names}): see `{command} --help`");
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    // A missing argument is named on the lines behind the first.
    let mut lines = text.lines().map(str::trim);
    let mut line = lines.next().unwrap_or_default().to_owned();
    if line.ends_with(':') {
        for more in lines.take_while(|more| !more.is_empty()) {
            line.push(' ');
            line.push_str(more);
        }
    }
    let tip = text
        .lines()
        .map(str::trim)
        .find_map(|l| l.strip_prefix("tip: "));
    match tip {
        Some(tip) => format!("{line}: {tip}"),
        None => format!("{line}: see `{command} --help`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    mod guides;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(Into::into).collect()
    }

    fn refusal(line: &str) -> String {
        let mut settings = Settings::default();
        let error = parse(words(line), &mut settings, String::new()).expect_err(line);
        one_line(&error, words(line))
    }

    #[test]
    fn errors_name_the_help_of_their_command() {
        let unknown = refusal("uksm run --nonsense");
        assert!(unknown.ends_with("see `uksm run --help`"), "{unknown}");
        let words = ["uksm", "run", "--pid", "7\nx"].map(OsString::from);
        let error = parse(words.clone(), &mut Settings::default(), String::new());
        let broken = one_line(&error.unwrap_err(), words);
        assert!(broken.contains("for '--pid <PID>'"), "{broken}");
        let value = refusal("uksm group suggest --budget x");
        assert!(
            value.ends_with("see `uksm group suggest --help`"),
            "{value}"
        );
        let group = refusal("uksm group");
        assert!(
            group.starts_with("uksm group needs a command (list, "),
            "{group}"
        );
        assert!(group.ends_with("see `uksm group --help`"), "{group}");
        let none = refusal("uksm");
        assert!(
            none.starts_with("uksm needs a command (analyze, run, "),
            "{none}"
        );
        assert!(none.ends_with("see `uksm --help`"), "{none}");
    }

    #[test]
    fn every_setting_is_an_option() {
        command(String::new()).debug_assert();
        for row in setting::rows() {
            let option = format!("--{}", setting::option(row.name));
            let mut settings = Settings::default();
            let line = format!("uksm run --pid 1 {option}={}", row.value);
            parse(words(&line), &mut settings, String::new())
                .unwrap_or_else(|e| panic!("{line}: {e}"));
            assert_eq!(settings.text(row.name), Some(&*row.value), "{option}");
        }
    }

    #[test]
    fn help_describes_each_setting_with_its_bounds() {
        let mut command = command(crate::doctor::checks_in_words());
        let run = command.find_subcommand_mut("run").unwrap();
        let help = run.render_help().to_string();
        for row in setting::rows() {
            assert!(!row.doc.is_empty(), "{}", row.name);
            let option = format!("--{}", setting::option(row.name));
            let line = help.lines().find(|line| {
                let words = line.trim_start().strip_prefix(&option);
                words.is_some_and(|rest| rest.starts_with([' ', '[']))
            });
            let line = line.unwrap_or_else(|| panic!("no {option} in {help}"));
            let says = [row.doc, row.bounds, format!("[default: {}]", row.value)];
            assert!(says.iter().all(|says| line.contains(says)), "{line}");
        }
    }

    #[test]
    fn help_lists_the_settings_of_in_kernel_ksm() {
        let mut command = command(crate::doctor::checks_in_words());
        let run = command.find_subcommand_mut("run").unwrap();
        let help = run.render_help().to_string();
        let (_, list) = help.split_once("With --backend ksm").unwrap();
        assert!(list.contains("--agent-socket, --governor, "), "{list}");
        assert!(!list.contains("--max-frames"), "{list}");
    }

    #[test]
    fn an_unknown_option_is_one_line_that_names_it() {
        let line = refusal("uksm run --all --v-dupe 1");
        assert!(
            line.contains("--v-dupe") && line.contains("--v-dup'"),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn exclude_takes_names_ids_and_groups() {
        let line =
            "uksm run --all --exclude sshd --exclude pid:7 --exclude cgroup:/a --exclude comm:x*";
        let Action::Run(run) = parse(words(line), &mut Settings::default(), String::new())
            .unwrap()
            .action
        else {
            panic!("not run")
        };
        let targets = run.targets().unwrap();
        assert!(targets.all);
        let excluded = &targets.excluded;
        assert_eq!(
            (
                excluded.comms.len(),
                excluded.pids.len(),
                excluded.cgroups.len()
            ),
            (2, 1, 1)
        );
    }

    #[test]
    fn break_without_targets_is_an_error() {
        let Action::Break(args) =
            parse(words("uksm break"), &mut Settings::default(), String::new())
                .unwrap()
                .action
        else {
            panic!("not break")
        };
        assert!(
            args.selectors()
                .unwrap_err()
                .starts_with("break: no targets")
        );
    }
}
