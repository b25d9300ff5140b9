//! The actuator of a place: of a control group, or of a balloon.

use crate::actuator::Actuator;
use crate::balloon::Balloon;
use crate::cgroup::Cgroup;
use crate::cgroup_tree::CgroupTree;
use crate::restore_journal::RestoreJournal;
use crate::settings::SizeControl;

/// The actuator that makes this place larger and smaller.
pub(crate) fn actuator(
    place: &SizeControl,
    tree: &CgroupTree,
    journal: &RestoreJournal,
) -> Box<dyn Actuator> {
    match place {
        SizeControl::Cgroup { folder, limit } => {
            Box::new(Cgroup::new(tree, folder, *limit, journal))
        }
        SizeControl::Machine { socket } => Box::new(Balloon::new(socket, journal)),
    }
}
