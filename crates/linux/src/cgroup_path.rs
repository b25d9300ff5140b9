//! The systemd unit and the Kubernetes pod in the path of a control group.
//!
//! # Problem
//! A path has many names. Some were given by the system, others by a process to which a control
//! group was delegated, and such a process can give any name.
//!
//! # Approach
//! A unit is the service or scope right below the slices at the root of the tree: these are made by
//! systemd's system manager. Control groups below a unit are delegated to the processes in it, and
//! named by them; so are those below any other control group. For the same reason a pod is a
//! control group right below the slices that Kubernetes' node agent makes at the root of the tree.
//!
//! # Source
//! The names of pods' control groups are those of the Kubernetes node agent, with its drivers
//! `systemd` and `cgroupfs`.

/// The first names of a path; all, if it has fewer.
pub(crate) fn cut(path: &str, depth: usize) -> String {
    let names: Vec<&str> = path.split('/').skip(1).take(depth).collect();
    format!("/{}", names.join("/"))
}

/// The names of a path that the system manager gave: slices from the root on, and the service or
/// scope right below them.
pub(crate) fn units(path: &str) -> impl Iterator<Item = &str> {
    let mut is_below_slices = true;
    path.split('/').skip(1).take_while(move |name| {
        let is_slice = name.ends_with(".slice");
        let is_unit = is_slice || name.ends_with(".service") || name.ends_with(".scope");
        std::mem::replace(&mut is_below_slices, is_slice) && is_unit
    })
}

/// The path of the unit that is no slice.
pub(crate) fn unit(path: &str) -> Option<String> {
    let (last, name) = units(path).enumerate().last()?;
    (!name.ends_with(".slice")).then(|| cut(path, last + 1))
}

/// The id of the pod, and the path of its control group. A control group elsewhere in the tree with
/// the name of a pod is none: a container with control groups of its own can name them like another
/// customer's pod.
pub(crate) fn pod(path: &str) -> Option<(String, String)> {
    let names: Vec<&str> = path.split('/').skip(1).collect();
    let (&root, below) = names.split_first()?;
    let is_slice = match root {
        "kubepods.slice" => true,
        "kubepods" => false,
        _ => return None,
    };
    let (class, depth) = match (below.first().copied()?, is_slice) {
        ("kubepods-burstable.slice", true) => ("burstable-", 2),
        ("kubepods-besteffort.slice", true) => ("besteffort-", 2),
        ("burstable" | "besteffort", false) => ("", 2),
        _ => ("", 1),
    };
    let name = names.get(depth)?;
    let id = if is_slice {
        let name = name.strip_prefix("kubepods-")?.strip_prefix(class)?;
        // A dash would mean another slice below.
        name.strip_prefix("pod")?
            .strip_suffix(".slice")?
            .replace('_', "-")
    } else {
        name.strip_prefix("pod")?.to_owned()
    };
    let is_id = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_plain = !id.is_empty() && id.chars().all(is_id);
    is_plain.then(|| (id, cut(path, depth + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_one_of_the_system_manager() {
        for (path, of) in [
            ("/user.slice/x", None),
            ("/init.scope", Some("/init.scope")),
            (
                "/system.slice/a.service/b.service",
                Some("/system.slice/a.service"),
            ),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/b.service",
                Some("/user.slice/user-1000.slice/user@1000.service"),
            ),
            ("/user.slice", None),
            ("/user.slice/mine/b.service", None),
            ("/mine/b.service", None),
            ("/../system.slice/b.service", None),
            ("/", None),
        ] {
            assert_eq!(unit(path).as_deref(), of, "{path}");
        }
    }

    #[test]
    fn a_pod_is_known_by_both_drivers_names_and_only_where_its_agent_makes_it() {
        let id = "0b1c-2d";
        for (path, depth) in [
            ("/kubepods.slice/kubepods-pod0b1c_2d.slice/cri-1.scope", 2),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0b1c_2d.slice/cri-1.scope/x",
                3,
            ),
            (
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0b1c_2d.slice",
                3,
            ),
            ("/kubepods/pod0b1c-2d/5ac1", 2),
            ("/kubepods/burstable/pod0b1c-2d/5ac1", 3),
            ("/kubepods/besteffort/pod0b1c-2d", 3),
        ] {
            let of = cut(path, depth);
            assert_eq!(pod(path), Some((id.to_owned(), of)), "{path}");
        }
        for path in [
            "/",
            "/kubepods",
            "/kubepods.slice/kubepods-burstable.slice",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-pod0b1c_2d.slice",
            "/kubepods.slice/kubepods-pod.slice",
            "/kubepods.slice/x.scope/kubepods-pod0b1c_2d.slice",
            "/kubepods/burstable/x/pod0b1c-2d",
            "/machine.slice/c.scope/kubepods.slice/kubepods-pod0b1c_2d.slice/cri-1.scope",
            "/machine.slice/kubepods/pod0b1c-2d",
        ] {
            assert_eq!(pod(path), None, "{path}");
        }
    }
}
