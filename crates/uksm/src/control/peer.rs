//! Access rights to the daemon.
//!
//! # Problem
//! Requests can change which pages processes share, so they are root's. An operator's programs
//! should not have to be root for that.
//!
//! # Approach
//! The members of one Unix group, `socket_group`, may send all requests that root may. The socket
//! and its folder are given to that group; and since a mode can be changed by mistake, and an open
//! socket can be passed to others, the kernel is asked for the identity of the peer, with all
//! groups of its process at the time of connecting. An unknown group is an error at the start.
//!
//! # Source
//! unix(7): SO_PEERCRED; socket(7): SO_PEERGROUPS (Linux 4.13).

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Gid, Group};

/// Maximum number of groups of a process (`NGROUPS_MAX`).
const MAX_GROUPS: usize = 65_536;

/// Peers with rights, besides root and the daemon's own user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Members(Gid);

impl Members {
    /// The members of the group of this name, or number.
    ///
    /// # Errors
    /// There is no such group: one line.
    pub(super) fn of(group: &str) -> Result<Members, String> {
        if let Ok(number) = group.parse() {
            return Ok(Members(Gid::from_raw(number)));
        }
        match Group::from_name(group) {
            Ok(Some(found)) => Ok(Members(found.gid)),
            Ok(None) => Err(format!(
                "socket_group = {group}: no such group on this host"
            )),
            Err(errno) => Err(format!("socket_group = {group}: {errno}")),
        }
    }

    /// Gives them the socket, and its folder if that is private to the daemon's user.
    ///
    /// # Errors
    /// No right.
    pub(super) fn give(self, socket: &Path) -> io::Result<()> {
        let give = |path: &Path, mode: u32| {
            std::os::unix::fs::chown(path, None, Some(self.0.as_raw()))?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        };
        give(socket, 0o660)?;
        let folder = socket.parent().filter(|path| !path.as_os_str().is_empty());
        let Some(folder) = folder else {
            return Ok(());
        };
        let found = std::fs::metadata(folder)?;
        let is_ours = found.uid() == rustix::process::geteuid().as_raw();
        // They can pass through it, and cannot list it.
        if is_ours && found.mode() & 0o077 == 0 {
            give(folder, 0o710)?;
        }
        Ok(())
    }
}

/// Whether the connected peer may send requests.
///
/// # Errors
/// The kernel does not report its identity.
pub(super) fn may_ask(client: &UnixStream, members: Option<Members>) -> io::Result<bool> {
    let peer = getsockopt(client, PeerCredentials)?;
    if [0, nix::unistd::geteuid().as_raw()].contains(&peer.uid()) {
        return Ok(true);
    }
    let Some(Members(gid)) = members else {
        return Ok(false);
    };
    Ok(peer.gid() == gid.as_raw() || groups_of(client)?.contains(&gid.as_raw()))
}

/// The supplementary groups of the peer when it connected.
fn groups_of(client: &UnixStream) -> io::Result<Vec<libc::gid_t>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let bytes = std::mem::size_of_val(groups.as_slice());
        let mut length = libc::socklen_t::try_from(bytes).unwrap_or(libc::socklen_t::MAX);
        // SAFETY: the kernel writes at most `length` bytes, which the vector has, and how many it
        // wrote.
        let done = unsafe {
            libc::getsockopt(
                client.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let found = usize::try_from(length).unwrap_or(0) / size_of::<libc::gid_t>();
        if done == 0 {
            groups.truncate(found);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        // The kernel reports the length that is needed.
        if error.raw_os_error() != Some(libc::ERANGE) || found <= groups.len() || found > MAX_GROUPS
        {
            return Err(error);
        }
        groups.resize(found, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_client_come_from_the_kernel() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert!(may_ask(&ours, None).unwrap(), "who the daemon runs as");
        let mut reported = groups_of(&ours).unwrap();
        let mut own: Vec<u32> = nix::unistd::getgroups()
            .unwrap()
            .into_iter()
            .map(Gid::as_raw)
            .collect();
        reported.sort_unstable();
        own.sort_unstable();
        assert_eq!(reported, own);
    }

    #[test]
    fn a_group_is_found_by_name_and_number_and_its_socket_is_open_to_it() {
        assert_eq!(Members::of("77").unwrap(), Members(Gid::from_raw(77)));
        assert_eq!(Members::of("root").unwrap(), Members(Gid::from_raw(0)));
        assert_eq!(
            Members::of("nobody-of-this-name").unwrap_err(),
            "socket_group = nobody-of-this-name: no such group on this host"
        );
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("run");
        std::fs::create_dir(&folder).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        let socket = folder.join("socket");
        std::fs::write(&socket, "").unwrap();
        let own = Members(Gid::from_raw(rustix::process::getegid().as_raw()));
        for (before, after) in [(0o700, 0o710), (0o755, 0o755)] {
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(before)).unwrap();
            own.give(&socket).unwrap();
            assert_eq!((mode(&socket), mode(&folder)), (0o660, after));
        }
    }
}
