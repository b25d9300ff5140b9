//! The events of random processes.

/// Kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Spawn,
    Exit,
    Fork,
    Exec,
    Map,
    Unmap,
    Grow,
    Write,
    Pin,
    Unpin,
    SwapOut,
    Touch,
    Discard,
    Lock,
    Unlock,
    Refuse,
    Poison,
    Change,
}

impl Event {
    pub(crate) const ALL: [(Event, &'static str); 18] = [
        (Event::Spawn, "spawn"),
        (Event::Exit, "exit"),
        (Event::Fork, "fork"),
        (Event::Exec, "exec"),
        (Event::Map, "map"),
        (Event::Unmap, "unmap"),
        (Event::Grow, "grow"),
        (Event::Write, "write"),
        (Event::Pin, "pin"),
        (Event::Unpin, "unpin"),
        (Event::SwapOut, "swap-out"),
        (Event::Touch, "touch"),
        (Event::Discard, "discard"),
        (Event::Lock, "lock"),
        (Event::Unlock, "unlock"),
        (Event::Refuse, "refuse"),
        (Event::Poison, "poison"),
        (Event::Change, "change"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Event::ALL[self as usize].1
    }
}
