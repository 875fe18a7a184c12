//! When to try a download again, which addresses it may go to, and what of its URL may be shown.
//! Pure: the jitter comes from outside.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::Duration;

use volvox_protocol::time::Backoff;

/// How often a download is tried, and with which pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Tries in all.
    pub tries: u32,
    /// The pauses between them, before the jitter.
    pub backoff: Backoff,
    /// The jitter is cut to this.
    pub max_jitter: Duration,
}

impl Default for Retries {
    /// As Diego: four tries, 0.5 s doubling to 5 s, and up to 0.2 s more.
    fn default() -> Self {
        Retries {
            tries: 4,
            backoff: Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(5) },
            max_jitter: Duration::from_millis(200),
        }
    }
}

impl Retries {
    /// The pause after so many failed tries; `None`: that was the last.
    pub fn pause(&self, failed: u32, jitter: Duration) -> Option<Duration> {
        let pause = self.backoff.after(failed) + jitter.min(self.max_jitter);
        (failed < self.tries).then_some(pause)
    }
}

/// A network, as an address and how many of its bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpNetwork {
    /// Any address in it.
    pub address: IpAddr,
    /// The bits that count.
    pub prefix: u8,
}

impl IpNetwork {
    /// What no download may reach unless the cell's configuration says so: the machine itself and
    /// the cloud's metadata. The agent fetches in the name of whoever wrote the definition, so it
    /// must not be a way around the container's own walls.
    pub const NOT_FOR_DOWNLOADS: [IpNetwork; 7] = [
        IpNetwork { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), prefix: 8 },
        IpNetwork { address: IpAddr::V4(Ipv4Addr::LOCALHOST), prefix: 8 },
        IpNetwork { address: IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), prefix: 16 },
        IpNetwork { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), prefix: 128 },
        IpNetwork { address: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix: 128 },
        IpNetwork { address: IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), prefix: 10 },
        IpNetwork {
            address: IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
            prefix: 128,
        },
    ];

    /// Whether the address is in it. An IPv4 address in IPv6 clothes counts as what it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(it)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix.min(32))).unwrap_or(0);
                (net.to_bits() ^ it.to_bits()) & mask == 0
            }
            (IpAddr::V6(net), IpAddr::V6(it)) => {
                let mask =
                    u128::MAX.checked_shl(128 - u32::from(self.prefix.min(128))).unwrap_or(0);
                (net.to_bits() ^ it.to_bits()) & mask == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// A URL without what may be secret: user, password, query (signatures) and fragment. For messages,
/// and to tell whether two downloads mean the same thing.
pub fn shown_url(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = host.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// The path of `file:///a/b`, decoded. Another machine's file is none of ours.
pub fn file_path(url: &str) -> Option<PathBuf> {
    let rest = url.get(5..)?;
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
        None => rest,
    };
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        bytes.push(match (byte, after) {
            (b'%', [high, low, after @ ..]) => {
                rest = after;
                let digit =
                    |it: u8| char::from(it).to_digit(16).and_then(|it| u8::try_from(it).ok());
                digit(*high)? << 4 | digit(*low)?
            }
            (b'%' | b'?' | b'#', _) => return None,
            (byte, _) => *byte,
        });
    }
    bytes.starts_with(b"/").then(|| PathBuf::from(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_end() {
        let retries = Retries { tries: 7, ..Retries::default() };
        let pauses: Vec<u128> = (1..=7)
            .map_while(|failed| retries.pause(failed, Duration::from_secs(9)))
            .map(|it| it.as_millis())
            .collect();
        assert_eq!(pauses, [700, 1200, 2200, 4200, 5200, 5200]);
        assert_eq!(Retries::default().pause(4, Duration::ZERO), None);
        assert_eq!(Retries::default().pause(3, Duration::ZERO), Some(Duration::from_secs(2)));
    }

    #[test]
    fn secrets_of_a_url_are_not_shown() {
        for (url, shown) in [
            ("https://u:p@h/a/b?sig=1#x", "https://h/a/b"),
            ("http://h", "http://h"),
            ("http://h?x@y", "http://h"),
            ("file:/a/b", "file:/a/b"),
            ("https://a@b@h/c@d", "https://h/c@d"),
        ] {
            assert_eq!(shown_url(url), shown);
        }
    }

    #[test]
    fn file_urls_are_decoded_or_refused() {
        let path = |url| file_path(url).map(|it| it.to_string_lossy().into_owned());
        for url in ["file:///a%20b", "file:/a b", "file://localhost/a b", "FILE:///a b"] {
            assert_eq!(path(url).as_deref(), Some("/a b"), "{url}");
        }
        for url in ["file://host/a", "file:a", "file:", "file:///a?b", "file:///a%2", "file:///%g0"]
        {
            assert_eq!(path(url), None, "{url}");
        }
    }

    #[test]
    fn the_machine_and_its_metadata_are_not_for_downloads() {
        let denied = |text: &str| {
            let address = text.parse().unwrap();
            IpNetwork::NOT_FOR_DOWNLOADS.iter().any(|it| it.contains(address))
        };
        for text in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "169.254.169.254",
            "::1",
            "::",
            "fe80::1",
            "febf::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "fd00:ec2::254",
        ] {
            assert!(denied(text), "{text}");
        }
        for text in ["10.0.0.1", "128.0.0.1", "169.253.1.1", "2001:db8::1", "fd00:ec2::253"] {
            assert!(!denied(text), "{text}");
        }
        let all = IpNetwork { address: Ipv4Addr::UNSPECIFIED.into(), prefix: 0 };
        assert!(all.contains("203.0.113.9".parse().unwrap()));
    }
}
