//! Where we are, and where names point to.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

/// How often names are looked up again.
pub(super) const RESOLVE_EVERY: Duration = Duration::from_secs(300);

/// The longest that one look-up may take.
const LOOK_UP: Duration = Duration::from_secs(5);

/// The addresses of `host:port` texts. A name that does not resolve is logged, and tried again later.
pub(super) async fn resolve(names: &[String]) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for name in names {
        if let Ok(address) = name.parse() {
            addresses.push(address);
            continue;
        }
        match tokio::time::timeout(LOOK_UP, tokio::net::lookup_host(name)).await {
            Ok(Ok(found)) => addresses.extend(found),
            Ok(Err(error)) => tracing::warn!(name, %error, "cannot resolve"),
            Err(_) => tracing::warn!(name, "the name service does not answer"),
        }
    }
    addresses
}

/// The address by which this machine would speak to another. Nothing is sent.
pub(super) fn towards(other: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match other {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(other).ok()?;
    let ours = socket.local_addr().ok()?.ip();
    (!ours.is_unspecified()).then_some(ours)
}

/// What to call our address at first: others will tell us if they see another one.
pub(super) fn ours(listen: SocketAddr, port: u16, seed: Option<SocketAddr>) -> SocketAddr {
    let ip = if listen.ip().is_unspecified() {
        // An address for documentation: it only has to lie beyond the default route.
        let somewhere = SocketAddr::from(([192, 0, 2, 1], 9));
        let found = seed.and_then(towards).or_else(|| towards(somewhere));
        found.unwrap_or(std::net::Ipv4Addr::LOCALHOST.into())
    } else {
        listen.ip()
    };
    SocketAddr::new(ip, port)
}
