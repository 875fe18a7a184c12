//! What can go wrong with the containers' network, and what it then looks like.

use std::io;
use std::net::Ipv4Addr;

use nix::errno::Errno;

use super::CONTAINER_NAME_BYTES;
use super::address::Ipv4Network;
use super::egress::EgressError;
use super::netlink::NetlinkError;
use super::settings::Unusable;

/// The network failed. Unless the variant says otherwise nothing was changed, or it was undone.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The configuration cannot be used; the operator mends it.
    #[error("the network cannot be set up so")]
    Config(#[from] Unusable),
    /// There is a link of the bridge's name that we did not make; the operator chooses another name.
    #[error("there is a link {bridge} that is not ours")]
    Foreign {
        /// The name.
        bridge: String,
    },
    /// Another link has an address in the subnet; the operator chooses another subnet.
    #[error("the subnet {subnet} meets the address {address} that the machine already has")]
    SubnetTaken {
        /// Ours.
        subnet: Ipv4Network,
        /// Theirs, or that of our bridge from an earlier configuration.
        address: Ipv4Addr,
    },
    /// The container's name is empty, too long or has control characters.
    #[error("a container's name has 1 to {CONTAINER_NAME_BYTES} bytes and no control characters")]
    BadName,
    /// The container is attached; the caller has lost count.
    #[error("{container} is attached already")]
    AlreadyAttached {
        /// The container.
        container: String,
    },
    /// Another container's interface has the name that this one's would have.
    #[error("the interface {interface} belongs to another container")]
    NameTaken {
        /// The interface.
        interface: String,
    },
    /// All addresses of the subnet are in use; the cell is full.
    #[error("no free address in {subnet}")]
    NoAddress {
        /// The subnet.
        subnet: Ipv4Network,
    },
    /// Not as many host ports are free as the container wants; the cell is full.
    #[error("{wanted} host ports are wanted and {free} are free")]
    NoPorts {
        /// How many the container exposes.
        wanted: usize,
        /// How many are free.
        free: u32,
    },
    /// The egress rules cannot be enforced, so the container must not run.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The kernel would not. After `detach`, `recover` and `destroy` something may be left; to call again goes on where this stopped.
    #[error("cannot {doing}")]
    Kernel {
        /// What was tried.
        doing: &'static str,
        /// The reason.
        #[source]
        source: NetlinkError,
    },
    /// A file under /proc/sys would not be written.
    #[error("cannot write {path}")]
    Sysctl {
        /// Which.
        path: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The container's namespace could not be entered.
    #[error("cannot enter the container's network namespace")]
    Namespace(#[source] io::Error),
}

/// Says what was being done when the kernel refused.
pub(super) fn doing(doing: &'static str) -> impl Fn(NetlinkError) -> NetError {
    move |source| NetError::Kernel { doing, source }
}

/// Lets one refusal pass as done.
pub(super) fn unless(errno: Errno) -> impl Fn(NetError) -> Result<(), NetError> {
    move |failure| match &failure {
        NetError::Kernel { source, .. } if source.is(errno) => Ok(()),
        _ => Err(failure),
    }
}
