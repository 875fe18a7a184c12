//! Root at work on a coordinator's data folder: what is made there must be the coordinator's, whose user
//! could not read what is root's.

use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt as _, lchown};
use std::path::Path;

use anyhow::Context as _;
use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};

/// Root becomes the owner of the data folder, for good.
pub(super) fn become_owner(folder: &Path) -> anyhow::Result<()> {
    let Some(found) = foreign(folder) else { return Ok(()) };
    let (user, group) = (Uid::from_raw(found.uid()), Gid::from_raw(found.gid()));
    setgroups(&[group])
        .and_then(|()| setgid(group))
        .and_then(|()| setuid(user))
        .with_context(|| format!("become the owner of {}, user {user}", folder.display()))
}

/// Root gives what it made in the data folder to the folder's owner.
pub(super) fn hand_over(folder: &Path) -> anyhow::Result<()> {
    let Some(owner) = foreign(folder) else { return Ok(()) };
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let named = || format!("hand {} over", folder.display());
        for entry in std::fs::read_dir(&folder).with_context(named)? {
            let entry = entry.with_context(named)?;
            let about = entry.metadata().with_context(named)?;
            if about.uid() == 0 {
                let (user, group) = (owner.uid(), owner.gid());
                lchown(entry.path(), Some(user), Some(group)).with_context(named)?;
            }
            if about.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}

/// The folder, if we are root and it is somebody else's.
fn foreign(folder: &Path) -> Option<Metadata> {
    let found = std::fs::metadata(folder).ok()?;
    (geteuid().is_root() && found.uid() != 0).then_some(found)
}
