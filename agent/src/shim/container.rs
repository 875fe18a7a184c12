//! Makes the container: namespaces, ids, cgroup, root file system, and a first process that does
//! nothing but reap.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use super::sys::{self, Fork};
use super::{mounts, pipe};
use crate::runtime::cgroup::{Cgroup, Hierarchy};
use crate::runtime::spec::ContainerSpec;

/// A container that is there: its first process, and what leads into it.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) init: i32,
    pub(crate) pidfd: OwnedFd,
    pub(crate) cgroup: Cgroup,
    pub(crate) namespaces: i32,
}

impl Container {
    /// Makes it. When this fails nothing of it runs; the caller removes the folders.
    pub(crate) fn create(spec: &ContainerSpec, folder: &Path) -> io::Result<Self> {
        let cgroup = Cgroup::new(Hierarchy::detect()?, &spec.id);
        cgroup.create(&spec.limits)?;
        let root = mounts::prepare(spec, folder)?;
        let (go, say_go) = pipe()?;
        let (hear, say) = pipe()?;
        let user = if spec.privileged { 0 } else { libc::CLONE_NEWUSER };
        match sys::fork(sys::NAMESPACES | user)? {
            Fork::Child => {
                drop((say_go, hear));
                begin(spec, &cgroup, &root, go, say)
            }
            Fork::Parent(init, pidfd) => {
                drop((go, say));
                let made = admit(spec, init, say_go).and_then(|()| listen(hear));
                if let Err(error) = made {
                    let _ = sys::signal(std::os::fd::AsFd::as_fd(&pidfd), libc::SIGKILL);
                    let _ = sys::wait_for(init);
                    let _ = cgroup.destroy();
                    return Err(error);
                }
                let namespaces = sys::NAMESPACES | libc::CLONE_NEWCGROUP | user;
                Ok(Container { init, pidfd, cgroup, namespaces })
            }
        }
    }
}

/// From outside: gives the first process its ids, and lets it go on.
fn admit(spec: &ContainerSpec, init: i32, mut say_go: File) -> io::Result<()> {
    if !spec.privileged {
        let map = format!("0 {} {}\n", spec.first_id, spec.ids);
        std::fs::write(format!("/proc/{init}/uid_map"), &map)?;
        std::fs::write(format!("/proc/{init}/gid_map"), &map)?;
    }
    say_go.write_all(b"!")
}

/// Hears whether the first process could furnish its house.
fn listen(mut hear: File) -> io::Result<()> {
    let mut said = String::new();
    hear.read_to_string(&mut said)?;
    match said.as_str() {
        "ready" => Ok(()),
        "" => Err(io::Error::other("the container's first process died while it was made")),
        complaint => Err(io::Error::other(complaint.to_owned())),
    }
}

/// Inside: the container's first process, from its first step to its last.
fn begin(spec: &ContainerSpec, cgroup: &Cgroup, root: &Path, mut go: File, mut say: File) -> ! {
    let mut word = [0];
    let made =
        cgroup.join().and_then(|()| go.read_exact(&mut word)).and_then(|()| settle_in(spec, root));
    let said = match &made {
        Ok(()) => say.write_all(b"ready"),
        Err(error) => say.write_all(format!("make the container: {error}").as_bytes()),
    };
    if made.is_err() || said.is_err() {
        sys::exit_now(1);
    }
    drop((go, say));
    reap_for_ever()
}

fn settle_in(spec: &ContainerSpec, root: &Path) -> io::Result<()> {
    mounts::enter(root)?;
    sys::unshare(libc::CLONE_NEWCGROUP)?;
    sys::become_user(0, 0, &[])?;
    mounts::furnish()?;
    sys::set_host_name(&spec.id)?;
    // It must not outlive the shim, be looked into, or be able to do anything.
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)?;
    sys::prctl(libc::PR_SET_DUMPABLE, 0)?;
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    sys::set_capabilities(0)
}

fn reap_for_ever() -> ! {
    // What the shim had open is none of the container's business.
    sys::close_from(0);
    loop {
        while sys::reap().is_some() {}
        sys::wait_for_child_signal();
    }
}
