//! Forgets the connections of a container that is gone, so that the next one with its address does
//! not inherit what it was allowed. To forget is best effort: kernels before 6.8 or so cannot choose
//! connections by one address, and there the pool's order (`pool.rs`) has to do.

use std::net::Ipv4Addr;

use super::netlink::{NetlinkError, Socket};
use super::wire::NetlinkMessage;

const CT_DELETE: u16 = 1 << 8 | 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_FILTER: u16 = 25;
const CTA_TUPLE_IP: u16 = 1;
const CTA_IP_V4_SRC: u16 = 1;
/// Of the filter: only the source address is compared.
const SOURCE_ONLY: u32 = 1;
const AF_INET: u8 = 2;

/// Forgets what the address began, and what was mapped to it.
pub(super) fn forget(socket: &mut Socket, address: Ipv4Addr) -> Result<(), NetlinkError> {
    for (tuple, flags) in [(CTA_TUPLE_ORIG, 1), (CTA_TUPLE_REPLY, 2)] {
        let message = NetlinkMessage::new(CT_DELETE, 0, &[AF_INET, 0, 0, 0])
            .nest(tuple, |tuple| {
                tuple.nest(CTA_TUPLE_IP, |ip| ip.attr(CTA_IP_V4_SRC, &address.octets()))
            })
            .nest(CTA_FILTER, |filter| {
                let other = 3 - flags;
                filter.u32(flags, SOURCE_ONLY).u32(other, 0)
            });
        socket.request(message)?;
    }
    Ok(())
}
