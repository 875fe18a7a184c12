//! Health checks that the cell makes itself, from outside of the container's processes.

use serde::{Deserialize, Deserializer};

use crate::record::{one_of, record};

record! {
    /// How the cell finds out whether an instance is well.
    #[derive(Default)]
    pub struct CheckDefinition {
        /// Liveness: failing one of these is a crash.
        checks: Vec<Check> = "checks" omit,
        /// The source name of their log lines.
        log_source: String = "log_source" always,
        /// Readiness: failing one of these takes the instance out of routing.
        readiness_checks: Vec<Check> = "readiness_checks" omit,
    }
}

one_of! {
    /// One check.
    pub enum Check ("a check") {
        /// A connection can be made.
        Tcp(TcpCheck) = 0 "tcp_check",
        /// A request is answered with status 200.
        Http(HttpCheck) = 1 "http_check",
    }
}

impl<'de> Deserialize<'de> for Check {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Check::read_one_of(from)
    }
}

record! {
    /// A connection can be made.
    #[derive(Default)]
    pub struct TcpCheck {
        /// The port in the container.
        port: u32 = "port" always,
        /// 0: the cell's default.
        connect_timeout_ms: u64 = "connect_timeout_ms" omit,
        /// Between two checks of a healthy instance. 0: the cell's default.
        interval_ms: u64 = "interval_ms" omit,
    }
}

record! {
    /// A request is answered with status 200.
    #[derive(Default)]
    pub struct HttpCheck {
        /// The port in the container.
        port: u32 = "port" always,
        /// 0: the cell's default.
        request_timeout_ms: u64 = "request_timeout_ms" omit,
        /// The path of the request; empty: `/`.
        path: String = "path" always,
        /// Between two checks of a healthy instance. 0: the cell's default.
        interval_ms: u64 = "interval_ms" omit,
    }
}
