//! Address of this machine, and name resolution.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use volvox_protocol::time::Backoff;

/// Interval of name resolution when all names were resolved.
const RESOLVE_EVERY: Duration = Duration::from_secs(300);

/// Wait after a resolution in which a name failed.
const RESOLVE_AGAIN: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(60) };

/// Decides when to resolve the names again: soon, as long as some are not resolved.
#[derive(Debug, Default)]
pub(super) struct Names {
    failures: u32,
}

impl Names {
    /// Records the result of a resolution. Returns the wait until the next one.
    pub(super) fn looked_up(&mut self, is_complete: bool) -> Duration {
        if is_complete {
            self.failures = 0;
            return RESOLVE_EVERY;
        }
        self.failures = self.failures.saturating_add(1);
        RESOLVE_AGAIN.after(self.failures)
    }
}

/// Result of [`resolve`].
#[derive(Debug, Default)]
pub(super) struct ResolvedNames {
    /// Addresses, in the order of the names.
    pub(super) addresses: Vec<SocketAddr>,
    /// Whether each name has at least one address.
    pub(super) is_complete: bool,
}

/// Time limit for resolving one name.
const LOOK_UP: Duration = Duration::from_secs(5);

/// Resolves `host:port` texts. A name that does not resolve is logged, and tried again later.
pub(super) async fn resolve(names: &[String]) -> ResolvedNames {
    let mut addresses = Vec::new();
    let mut is_complete = true;
    for name in names {
        let before = addresses.len();
        if let Ok(address) = name.parse() {
            addresses.push(address);
            continue;
        }
        match tokio::time::timeout(LOOK_UP, tokio::net::lookup_host(name)).await {
            Ok(Ok(found)) => addresses.extend(found),
            Ok(Err(error)) => tracing::warn!(name, %error, "cannot resolve"),
            Err(_) => tracing::warn!(name, "the name service does not answer"),
        }
        is_complete &= addresses.len() > before;
    }
    ResolvedNames { addresses, is_complete }
}

/// Local address that this machine would use to reach `other`. Nothing is sent. `None`: no route.
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

/// The address that this member publishes first. Peers report another one if they see it.
pub(super) fn ours(listen: SocketAddr, port: u16, seed: Option<SocketAddr>) -> SocketAddr {
    let ip = if listen.ip().is_unspecified() {
        // An address for documentation: it only needs to be behind the default route.
        let somewhere = SocketAddr::from(([192, 0, 2, 1], 9));
        let found = seed.and_then(towards).or_else(|| towards(somewhere));
        found.unwrap_or(std::net::Ipv4Addr::LOCALHOST.into())
    } else {
        listen.ip()
    };
    SocketAddr::new(ip, port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_found_are_looked_up_again_soon_and_then_more_seldom() {
        let mut names = Names::default();
        let waits: Vec<u64> = (0..9).map(|_| names.looked_up(false).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(names.looked_up(true), RESOLVE_EVERY);
        assert_eq!(names.looked_up(false).as_secs(), 1, "as at first");
        (0..100).for_each(|_| assert!(names.looked_up(false).as_secs() <= 60));
    }

    #[tokio::test]
    async fn a_name_without_an_address_leaves_the_others() {
        let names = ["127.0.0.1:7", "not a name:7", "127.0.0.2:7"].map(str::to_owned);
        let found = resolve(&names).await;
        let expected: Vec<SocketAddr> =
            vec!["127.0.0.1:7".parse().unwrap(), "127.0.0.2:7".parse().unwrap()];
        assert_eq!((found.addresses, found.is_complete), (expected, false));
        assert!(resolve(&names[..1]).await.is_complete);
    }
}
