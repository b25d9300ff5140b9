//! The nodes of a red-black tree, balanced by their colours: nothing here reads the contents of
//! pages.
//!
//! # Problem
//! A tree in wrong order must still be balanced and taken apart by pointers alone, as in the
//! kernel.
//!
//! # Approach
//! Nodes lie in an array and refer to each other by index; index 0 is the black leaf that stands
//! for all leaves.
//!
//! # Source
//! Cormen et al., *Introduction to Algorithms*, chapter 13; `lib/rbtree.c`.

use crate::memory::PageAddress;

/// The leaf.
pub(super) const NIL: u32 = 0;

/// A side of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }
}

/// A node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    /// The place of the page.
    pub(super) place: PageAddress,
    /// Its contents when it was inserted.
    pub(super) entered: u64,
    parent: u32,
    children: [u32; 2],
    is_red: bool,
}

/// All nodes.
#[derive(Debug)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: u32,
}

impl Default for Nodes {
    fn default() -> Nodes {
        let leaf = Node {
            place: (uksm_policy::command::SpaceId(0), 0),
            entered: 0,
            parent: NIL,
            children: [NIL; 2],
            is_red: false,
        };
        Nodes {
            nodes: vec![leaf],
            free: vec![],
            root: NIL,
        }
    }
}

impl Nodes {
    /// The root, or the leaf.
    pub(super) fn root(&self) -> u32 {
        self.root
    }

    /// A node.
    pub(super) fn get(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    /// All nodes that ever existed, with their places.
    pub(super) fn places(&self) -> impl Iterator<Item = (u32, PageAddress)> {
        (1..).zip(self.nodes[1..].iter().map(|node| node.place))
    }

    /// The node on one side below a node, or the leaf.
    pub(super) fn child(&self, node: u32, side: Side) -> u32 {
        self.get(node).children[side as usize]
    }

    /// Inserts a node on the empty side of a parent; the leaf is the parent of the root.
    pub(super) fn insert(
        &mut self,
        place: PageAddress,
        entered: u64,
        parent: u32,
        side: Side,
    ) -> u32 {
        let node = Node {
            place,
            entered,
            parent,
            children: [NIL; 2],
            is_red: true,
        };
        let at = if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = node;
            at
        } else {
            self.nodes.push(node);
            u32::try_from(self.nodes.len() - 1).expect("fewer nodes than ids")
        };
        if parent == NIL {
            self.root = at;
        } else {
            self.set_child(parent, side, at);
        }
        self.balance_inserted(at);
        at
    }

    /// Removes a node.
    pub(super) fn erase(&mut self, node: u32) {
        let [left, right] = self.get(node).children;
        let (moved, was_red);
        if left == NIL || right == NIL {
            moved = if left == NIL { right } else { left };
            was_red = self.get(node).is_red;
            self.replace(node, moved);
        } else {
            let mut next = right;
            while self.child(next, Side::Left) != NIL {
                next = self.child(next, Side::Left);
            }
            was_red = self.get(next).is_red;
            moved = self.child(next, Side::Right);
            if self.parent(next) == node {
                self.node(moved).parent = next;
            } else {
                self.replace(next, moved);
                self.set_child(next, Side::Right, right);
            }
            self.replace(node, next);
            self.set_child(next, Side::Left, left);
            self.node(next).is_red = self.get(node).is_red;
        }
        if !was_red {
            self.balance_erased(moved);
        }
        self.free.push(node);
    }

    fn node(&mut self, node: u32) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    fn parent(&self, node: u32) -> u32 {
        self.get(node).parent
    }

    fn is_red(&self, node: u32) -> bool {
        self.get(node).is_red
    }

    fn set_child(&mut self, parent: u32, side: Side, child: u32) {
        self.node(parent).children[side as usize] = child;
        self.node(child).parent = parent;
    }

    fn side(&self, node: u32) -> Side {
        if self.child(self.parent(node), Side::Left) == node {
            Side::Left
        } else {
            Side::Right
        }
    }

    /// Puts a node, with its subtree, in place of another.
    fn replace(&mut self, old: u32, new: u32) {
        let parent = self.parent(old);
        if parent == NIL {
            self.root = new;
            self.node(new).parent = NIL;
        } else {
            let side = self.side(old);
            self.set_child(parent, side, new);
        }
    }

    /// Moves a node down to one side, and its child on the other side up.
    fn rotate(&mut self, node: u32, side: Side) {
        let up = self.child(node, side.other());
        let between = self.child(up, side);
        self.replace(node, up);
        self.node(node).children[side.other() as usize] = between;
        if between != NIL {
            self.node(between).parent = node;
        }
        self.set_child(up, side, node);
    }

    fn balance_inserted(&mut self, mut node: u32) {
        while self.is_red(self.parent(node)) {
            let parent = self.parent(node);
            let above = self.parent(parent);
            let side = self.side(parent);
            let uncle = self.child(above, side.other());
            if self.is_red(uncle) {
                self.node(parent).is_red = false;
                self.node(uncle).is_red = false;
                self.node(above).is_red = true;
                node = above;
                continue;
            }
            if self.side(node) != side {
                node = parent;
                self.rotate(node, side);
            }
            let parent = self.parent(node);
            self.node(parent).is_red = false;
            self.node(above).is_red = true;
            self.rotate(above, side.other());
        }
        let root = self.root;
        self.node(root).is_red = false;
    }

    fn balance_erased(&mut self, mut node: u32) {
        while node != self.root && !self.is_red(node) {
            let parent = self.parent(node);
            let side = self.side(node);
            let mut sibling = self.child(parent, side.other());
            if self.is_red(sibling) {
                self.node(sibling).is_red = false;
                self.node(parent).is_red = true;
                self.rotate(parent, side);
                sibling = self.child(parent, side.other());
            }
            let [near, far] = [side, side.other()].map(|side| self.child(sibling, side));
            if !self.is_red(near) && !self.is_red(far) {
                self.node(sibling).is_red = true;
                node = parent;
                continue;
            }
            if !self.is_red(far) {
                self.node(near).is_red = false;
                self.node(sibling).is_red = true;
                self.rotate(sibling, side.other());
                sibling = self.child(parent, side.other());
            }
            self.node(sibling).is_red = self.is_red(parent);
            self.node(parent).is_red = false;
            let far = self.child(sibling, side.other());
            self.node(far).is_red = false;
            self.rotate(parent, side);
            node = self.root;
        }
        self.node(node).is_red = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uksm_policy::command::SpaceId;
    use uksm_policy::mix::SplitMix64;

    /// Black nodes on each path down, and the keys in order.
    fn walk(nodes: &Nodes, node: u32, keys: &mut Vec<u64>) -> u32 {
        if node == NIL {
            return 1;
        }
        let below = [Side::Left, Side::Right].map(|side| nodes.child(node, side));
        for child in below.into_iter().filter(|&child| child != NIL) {
            assert_eq!(nodes.parent(child), node);
            assert!(!(nodes.is_red(node) && nodes.is_red(child)), "two red ones");
        }
        let left = walk(nodes, below[0], keys);
        keys.push(nodes.get(node).entered);
        assert_eq!(left, walk(nodes, below[1], keys), "black nodes differ");
        left + u32::from(!nodes.is_red(node))
    }

    #[test]
    fn it_is_balanced_and_in_order_whatever_comes_and_goes() {
        let mut random = SplitMix64::new(7);
        let mut nodes = Nodes::default();
        let mut known: Vec<(u64, u32)> = vec![];
        for step in 0..4000 {
            if random.below(5) < 3 || known.is_empty() {
                let key = random.below(1 << 40);
                let (mut parent, mut side) = (NIL, Side::Left);
                let mut at = nodes.root();
                while at != NIL {
                    parent = at;
                    side = if key < nodes.get(at).entered {
                        Side::Left
                    } else {
                        Side::Right
                    };
                    at = nodes.child(at, side);
                }
                let node = nodes.insert((SpaceId(1), step), key, parent, side);
                known.push((key, node));
            } else {
                let at = usize::try_from(random.below(known.len() as u64)).unwrap();
                nodes.erase(known.swap_remove(at).1);
            }
            if step % 16 == 0 {
                let mut keys = vec![];
                walk(&nodes, nodes.root(), &mut keys);
                let mut expected: Vec<u64> = known.iter().map(|&(key, _)| key).collect();
                expected.sort_unstable();
                assert_eq!(keys, expected);
            }
        }
        assert!(known.len() > 500);
    }
}
