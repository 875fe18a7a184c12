//! How a container is reached.

use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use volvox_protocol::actual_lrp::PortMapping;

/// How a container is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerNetwork {
    /// The cell, from outside.
    pub external_address: IpAddr,
    /// The container, inside of the cell.
    pub internal_address: IpAddr,
    /// The container's second address, if it has one.
    pub internal_ipv6: Option<Ipv6Addr>,
    /// The container's ports, each once, the main one first. A host port of 0 is none.
    pub ports: Vec<PortMapping>,
}
