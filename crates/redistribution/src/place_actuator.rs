//! The actuator of a place: of a control group, or of a balloon.

use crate::actuator::Actuator;
use crate::balloon::Balloon;
use crate::before::Book;
use crate::cgroup::Cgroup;
use crate::cgroup_tree::CgroupTree;
use crate::settings::Place;

/// The actuator that makes this place larger and smaller.
pub(crate) fn actuator(place: &Place, tree: &CgroupTree, book: &Book) -> Box<dyn Actuator> {
    match place {
        Place::Cgroup { folder, limit } => Box::new(Cgroup::new(tree, folder, *limit, book)),
        Place::Machine { socket } => Box::new(Balloon::new(socket, book)),
    }
}
