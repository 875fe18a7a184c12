//! Makes the container: namespaces, ids, cgroup, root file system, and a first process that does
//! nothing but reap.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use super::disk::Disk;
use super::mounts::PreparedMounts;
use super::{mounts, pipe, seccomp};
use crate::container::spec::ContainerSpec;
use crate::kernel::cgroup::Cgroup;
use crate::kernel::sys::{self, Fork};

/// A container that is there: its first process, and what leads into it.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) init: i32,
    pub(crate) pidfd: OwnedFd,
    pub(crate) cgroup: Cgroup,
    pub(crate) namespaces: i32,
    /// Whether its root is the host's root.
    pub(crate) is_privileged: bool,
    /// What keeps its writes within its limits.
    pub(crate) disk: Disk,
    /// What is not as it should be, and yet no reason not to run.
    pub(crate) notes: Vec<String>,
}

impl Container {
    /// Makes it. When this fails nothing of it runs; the caller removes the folders.
    pub(crate) fn create(spec: &ContainerSpec, folder: &Path) -> io::Result<Self> {
        let cgroup = Cgroup::new(spec.cgroup.clone(), &spec.id);
        cgroup.create(&spec.limits)?;
        mounts::isolate()?;
        let root = folder.join(mounts::ROOT);
        let (go, mut say_go) = pipe()?;
        let (hear, say) = pipe()?;
        let user = if spec.privileged { 0 } else { libc::CLONE_NEWUSER };
        match sys::fork(sys::NAMESPACES | user)? {
            Fork::Child => {
                drop((say_go, hear));
                begin(spec, &cgroup, &root, go, say)
            }
            Fork::Parent(init, pidfd) => {
                drop((go, say));
                let made = admit(spec, folder, init).and_then(|prepared| {
                    say_go.write_all(b"!")?;
                    listen(hear).map(|()| prepared)
                });
                match made {
                    Ok(PreparedMounts { disk, notes }) => {
                        let namespaces = sys::NAMESPACES | sys::LATER_NAMESPACES | user;
                        let is_privileged = spec.privileged;
                        Ok(Container {
                            init,
                            pidfd,
                            cgroup,
                            namespaces,
                            is_privileged,
                            disk,
                            notes,
                        })
                    }
                    Err(error) => {
                        let _ = sys::signal(pidfd.as_fd(), libc::SIGKILL);
                        let _ = sys::wait_for(init);
                        let _ = cgroup.destroy();
                        Err(error)
                    }
                }
            }
        }
    }
}

/// From outside: gives the first process its ids and its root file system, which is mounted only now
/// because its layers show the ids of the new user namespace. It joins its cgroup itself.
fn admit(spec: &ContainerSpec, folder: &Path, init: i32) -> io::Result<PreparedMounts> {
    forget_oom_score(&init.to_string())?;
    let users = if spec.privileged {
        None
    } else {
        let map = format!("0 {} {}\n", spec.first_id, spec.ids);
        std::fs::write(format!("/proc/{init}/uid_map"), &map)?;
        std::fs::write(format!("/proc/{init}/gid_map"), &map)?;
        Some(File::open(format!("/proc/{init}/ns/user"))?)
    };
    mounts::prepare(spec, folder, users.as_ref().map(AsFd::as_fd))
}

/// Gives a process the kernel's ordinary chance to be killed when memory is short. The unit makes the
/// agent and its shims the last ones to go, and what runs in a container would have that from them.
/// From a process with CAP_SYS_RESOURCE this is also the least that the container can come back to.
pub(super) fn forget_oom_score(process: &str) -> io::Result<()> {
    let file = format!("/proc/{process}/oom_score_adj");
    match std::fs::write(&file, "0") {
        // Without the capability a score above 0 may have to stay: that protects nobody.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let score = std::fs::read_to_string(&file)?;
            if score.starts_with('-') { Err(error) } else { Ok(()) }
        }
        written => written,
    }
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
    // Whatever it hangs in from here on, it does not outlive the shim.
    let made = sys::die_with_reader(say.as_fd())
        .and_then(|()| cgroup.join())
        .and_then(|()| go.read_exact(&mut word))
        .and_then(|()| settle_in(spec, root, &say));
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

fn settle_in(spec: &ContainerSpec, root: &Path, say: &File) -> io::Result<()> {
    sys::unshare(sys::LATER_NAMESPACES)?;
    mounts::enter(root)?;
    sys::become_user(0, 0, &[])?;
    // The kernel has forgotten it with the change of users.
    sys::die_with_reader(say.as_fd())?;
    mounts::furnish()?;
    sys::set_host_name(&spec.id)?;
    // It must not be looked into, or be able to do anything.
    sys::prctl(libc::PR_SET_DUMPABLE, 0)?;
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    for capability in 0..64 {
        // The kernel does not know all 64: those it does not know cannot be had.
        let _ = sys::prctl(libc::PR_CAPBSET_DROP, capability);
    }
    sys::set_capabilities(0)?;
    seccomp::apply(&seccomp::compile()?)
}

fn reap_for_ever() -> ! {
    // What the shim had open is none of the container's business.
    sys::close_from(0);
    loop {
        while sys::reap().is_some() {}
        sys::wait_for_child_signal();
    }
}
