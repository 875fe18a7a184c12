//! The words for what a check found. The driver makes the check and names the fault.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// What was wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckFault {
    /// No connection could be made.
    Tcp {
        /// Where to.
        address: IpAddr,
        /// Which port.
        port: u32,
        /// Why not.
        error: String,
    },
    /// No connection was made in time.
    TcpTimedOut {
        /// Where to.
        address: IpAddr,
        /// Which port.
        port: u32,
        /// In which time.
        timeout: Duration,
    },
    /// The request could not be made. Whatever the reason, Diego calls it refused.
    HttpRefused {
        /// The path of the request.
        path: String,
        /// Which port.
        port: u32,
    },
    /// There was no answer in time.
    HttpTimedOut {
        /// The path of the request.
        path: String,
        /// Which port.
        port: u32,
        /// In which time.
        timeout: Duration,
    },
    /// There was another answer than 200.
    HttpStatus {
        /// The path of the request.
        path: String,
        /// Which port.
        port: u32,
        /// What was answered.
        status: u16,
        /// After which time.
        elapsed: Duration,
    },
    /// The container has no address.
    NoInterface,
}

impl fmt::Display for CheckFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tcp = "failed to make TCP connection to";
        let http = "failed to make HTTP request to";
        match self {
            CheckFault::Tcp { address, port, error } => {
                write!(f, "{tcp} {address}:{port}: {error}")
            }
            CheckFault::TcpTimedOut { address, port, timeout } => {
                write!(f, "{tcp} {address}:{port}: timed out after {} seconds", seconds(*timeout))
            }
            CheckFault::HttpRefused { path, port } => {
                write!(f, "{http} '{path}' on port {port}: connection refused")
            }
            CheckFault::HttpTimedOut { path, port, timeout } => {
                let timeout = seconds(*timeout);
                write!(f, "{http} '{path}' on port {port}: timed out after {timeout} seconds")
            }
            CheckFault::HttpStatus { path, port, status, elapsed } => {
                let elapsed = elapsed.as_millis();
                write!(
                    f,
                    "{http} '{path}' on port {port}: received status code {status} in {elapsed}ms"
                )
            }
            CheckFault::NoInterface => write!(f, "failure to find suitable interface"),
        }
    }
}

/// Seconds with two decimals, halves up.
fn seconds(span: Duration) -> String {
    let hundredths = (span.as_nanos() + 5_000_000) / 10_000_000;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_diegos_words() {
        let address: IpAddr = "10.255.0.9".parse().unwrap();
        let path = || "/ok".to_owned();
        let (port, second) = (8080, Duration::from_secs(1));
        for (fault, text) in [
            (
                CheckFault::Tcp { address, port, error: "connection refused".into() },
                "failed to make TCP connection to 10.255.0.9:8080: connection refused",
            ),
            (
                CheckFault::TcpTimedOut { address, port, timeout: second },
                "failed to make TCP connection to 10.255.0.9:8080: timed out after 1.00 seconds",
            ),
            (
                CheckFault::HttpRefused { path: path(), port },
                "failed to make HTTP request to '/ok' on port 8080: connection refused",
            ),
            (
                CheckFault::HttpTimedOut {
                    path: path(),
                    port,
                    timeout: Duration::from_millis(255),
                },
                "failed to make HTTP request to '/ok' on port 8080: timed out after 0.26 seconds",
            ),
            (
                CheckFault::HttpStatus { path: path(), port, status: 503, elapsed: second },
                "failed to make HTTP request to '/ok' on port 8080: \
                 received status code 503 in 1000ms",
            ),
            (CheckFault::NoInterface, "failure to find suitable interface"),
        ] {
            assert_eq!(fault.to_string(), text);
        }
    }
}
