//! Root at work on a coordinator's data folder. What is made there must be the coordinator's, whose user
//! could not read what is root's; and whoever took that user over may have put links there, which root
//! must not follow. So root never works in the folder as root: it becomes the owner first.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::Context as _;
use nix::unistd::{
    Gid, Uid, getegid, geteuid, getgroups, setegid, seteuid, setgid, setgroups, setuid,
};

/// Root becomes the owner of the data folder, for good.
pub(crate) fn become_owner(folder: &Path) -> anyhow::Result<()> {
    let Some((user, group)) = foreign(folder).as_ref().map(ids) else { return Ok(()) };
    setgroups(&[group])
        .and_then(|()| setgid(group))
        .and_then(|()| setuid(user))
        .with_context(|| format!("become the owner of {}, user {user}", folder.display()))
}

/// Does something in the data folder as its owner, and is root again afterwards: for what has to do
/// with files that only root may reach, too.
pub(crate) fn as_owner<T>(
    folder: &Path,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let Some((user, group)) = foreign(folder).as_ref().map(ids) else { return work() };
    let (root, root_group) = (geteuid(), getegid());
    let groups = getgroups().context("read the groups of root")?;
    let was = setgroups(&[group]).and_then(|()| setegid(group)).and_then(|()| seteuid(user));
    let done = was
        .with_context(|| format!("become the owner of {}, user {user}", folder.display()))
        .and_then(|()| work());
    seteuid(root)
        .and_then(|()| setegid(root_group))
        .and_then(|()| setgroups(&groups))
        .context("become root again")?;
    done
}

/// Whether root would work in somebody else's folder.
pub(crate) fn is_foreign(folder: &Path) -> bool {
    foreign(folder).is_some()
}

/// The folder, if we are root and it is somebody else's.
fn foreign(folder: &Path) -> Option<Metadata> {
    let found = std::fs::metadata(folder).ok()?;
    (geteuid().is_root() && found.uid() != 0).then_some(found)
}

fn ids(folder: &Metadata) -> (Uid, Gid) {
    (Uid::from_raw(folder.uid()), Gid::from_raw(folder.gid()))
}
