//! Options of `uksm explain`.

use std::path::PathBuf;

use clap::Args;
use uksm_linux::selection::Selectors;

use super::targets::TargetArgs;
use crate::paths::Roots;

/// Options of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A process id, or the path of a control group, which begins with /
    #[arg(value_name = "PID|CGROUP")]
    what: Vec<String>,
    #[command(flatten)]
    targets: TargetArgs,
    /// List every region
    #[arg(long)]
    pub(crate) regions: bool,
    /// Print one JSON object, with all regions
    #[arg(long)]
    pub(crate) json: bool,
    /// The daemon's socket
    #[arg(long, value_name = "PATH", default_value = crate::setting::SOCKET)]
    pub(crate) socket: PathBuf,
    #[command(flatten)]
    pub(crate) roots: Roots,
}

impl ExplainArgs {
    /// The processes that were named; none named is an error.
    ///
    /// # Errors
    /// Nothing was named, or what was is no process id and no path.
    pub(crate) fn selectors(&self) -> Result<Selectors, String> {
        let mut selectors = self.targets.selectors();
        if self.targets.all {
            selectors.comms.push("*".parse()?);
        }
        for what in &self.what {
            if what.starts_with('/') {
                selectors.cgroups.push(what.parse()?);
            } else if what.starts_with(|c: char| c.is_ascii_digit()) {
                selectors.pids.push(what.parse()?);
            } else {
                return Err(format!(
                    "explain: '{what}' is neither a process id nor a path of a control group: name others with --unit, \
                     --libvirt or --comm"
                ));
            }
        }
        if selectors.is_empty() {
            return Err(
                "explain: which process? Name a process id, a control group, --unit, --libvirt or --comm"
                    .to_owned(),
            );
        }
        Ok(selectors)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Action, parse};
    use crate::setting::Settings;

    fn selectors(line: &str) -> Result<uksm_linux::selection::Selectors, String> {
        let words = line.split_whitespace().map(Into::into);
        match parse(words, &mut Settings::default(), String::new())
            .unwrap()
            .action
        {
            Action::Explain(args) => args.selectors(),
            other => panic!("not explain: {other:?}"),
        }
    }

    #[test]
    fn a_number_is_a_process_and_a_path_a_control_group() {
        let line =
            "uksm explain 4711 /tenants/web --comm redis* --unit a.service --libvirt vm-1 12@34";
        let selectors = selectors(line).unwrap();
        let pids: Vec<String> = selectors.pids.iter().map(ToString::to_string).collect();
        assert_eq!(pids, ["4711", "12@34"]);
        assert_eq!(
            (
                selectors.cgroups.len(),
                selectors.comms.len(),
                selectors.units.len(),
                selectors.libvirt.len()
            ),
            (1, 1, 1, 1)
        );
    }

    #[test]
    fn what_is_neither_is_named() {
        let error = selectors("uksm explain redis-server").unwrap_err();
        assert!(
            error.contains("'redis-server'") && error.contains("--comm"),
            "{error}"
        );
        assert!(selectors("uksm explain 12x").is_err());
        assert!(
            selectors("uksm explain")
                .unwrap_err()
                .contains("which process?")
        );
    }
}
