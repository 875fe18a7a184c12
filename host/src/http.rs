//! The HTTP clients of our programs: what all of them have in common, and a Unix socket of this
//! machine below one, which connects to a path instead of an address.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use ureq::config::{Config, ConfigBuilder};
use ureq::http::Uri;
use ureq::tls::{Certificate, ClientCert, RootCerts, TlsConfig};
use ureq::typestate::AgentScope;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Agent, Error};

/// Configuration of a client. An answer of any status is an answer, no redirect is followed, and no
/// proxy of the environment is asked. The caller adds its time limits.
pub fn config(user_agent: &str) -> ConfigBuilder<AgentScope> {
    Config::builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .user_agent(user_agent)
}

/// TLS that trusts these authorities only. `own`: the certificate with which the client says who it
/// is; without one it is nobody.
pub fn tls(authorities: &[CertificateDer<'_>], own: Option<ClientCert>) -> TlsConfig {
    let roots = authorities.iter().map(|it| Certificate::from_der(it).to_owned());
    TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(roots.collect())))
        .client_cert(own)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build()
}

/// A client that speaks to this socket, whatever the host of a URL.
pub fn on_socket(config: Config, socket: &Path) -> Agent {
    Agent::with_parts(config, UnixConnector(socket.to_owned()), NoResolver)
}

/// Connects to one path, whatever is asked for.
#[derive(Debug)]
struct UnixConnector(PathBuf);

impl Connector<()> for UnixConnector {
    type Out = UnixTransport;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<UnixTransport>, Error> {
        let stream = UnixStream::connect(&self.0)?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(UnixTransport { stream, buffers }))
    }
}

/// Nothing is to be resolved: a path is no host. The client wants an address all the same.
#[derive(Debug)]
struct NoResolver;

impl Resolver for NoResolver {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses = self.empty();
        addresses.push(SocketAddr::from(([127, 0, 0, 1], 0)));
        Ok(addresses)
    }
}

/// An open connection.
struct UnixTransport {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl fmt::Debug for UnixTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnixTransport").finish_non_exhaustive()
    }
}

fn span(timeout: NextTimeout) -> Option<Duration> {
    timeout.not_zero().map(|span| *span)
}

/// A socket whose time is up says that it would block.
fn timed<T>(done: io::Result<T>, timeout: NextTimeout) -> Result<T, Error> {
    done.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => Error::Io(error),
    })
}

impl Transport for UnixTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        self.stream.set_write_timeout(span(timeout))?;
        let output = &self.buffers.output()[..amount];
        timed(self.stream.write_all(output), timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        self.stream.set_read_timeout(span(timeout))?;
        let input = self.buffers.input_append_buf();
        let amount = loop {
            match self.stream.read(input) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => break timed(done, timeout)?,
            }
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// An idle connection on which something waits was closed, or is out of step.
    fn is_open(&mut self) -> bool {
        if self.stream.set_nonblocking(true).is_err() {
            return false;
        }
        let silent = matches!(
            self.stream.read(&mut [0]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock
        );
        self.stream.set_nonblocking(false).is_ok() && silent
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Answers one request with this text, when the request ends with that one; gives the request.
    fn serve(listener: UnixListener, end: &'static str, answer: &'static str) -> String {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut request, mut piece) = (String::new(), [0; 1_024]);
        while !request.ends_with(end) {
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0, "the request ended as {request:?}");
            request.push_str(std::str::from_utf8(&piece[..read]).unwrap());
        }
        stream.write_all(answer.as_bytes()).unwrap();
        request
    }

    #[test]
    fn a_request_goes_over_a_socket_and_an_answer_of_any_status_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let answer = "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\ngone";
        let server = std::thread::spawn(move || serve(listener, "{}", answer));
        let agent = on_socket(config("a-test").build(), &path);
        let mut answer = agent.post("http://localhost/v1/x").send("{}").unwrap();
        let status = format!("{:?} {}", answer.version(), answer.status());
        assert_eq!(status, "HTTP/1.1 404 Not Found");
        assert_eq!(answer.body_mut().read_to_string().unwrap(), "gone");
        let request = server.join().unwrap();
        assert!(request.starts_with("POST /v1/x HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("\r\nuser-agent: a-test\r\n"), "{request}");
    }

    #[test]
    fn a_socket_without_a_server_is_told_from_one_that_is_silent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.sock");
        let ask = |patience| {
            let config = config("a-test").timeout_per_read(Some(patience)).build();
            on_socket(config, &path).get("http://localhost/").call().unwrap_err()
        };
        let error = ask(Duration::from_secs(60));
        let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        assert!(matches!(&error, Error::Io(error) if is_missing(error)), "{error:?}");
        let _silent = UnixListener::bind(&path).unwrap();
        let error = ask(Duration::from_millis(20));
        assert!(matches!(error, Error::Timeout(_)), "{error:?}");
    }
}
