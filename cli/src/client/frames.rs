//! A connection that goes on as frames after its first answer (`volvox_protocol::stream`). It never
//! waits after that: who has it also has a terminal to look after.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use volvox_protocol::api::{ApiError, LifecycleResponse};
use volvox_protocol::stream::{Frame, UPGRADE};

use super::endpoint::{EndpointUrl, ResolvedEndpoint};
use super::{CONNECT, PATIENCE, authorities, certificates};
use crate::error::Failure;

/// Bytes of the head of an answer, and of an answer that is no upgrade.
const MOST_BYTES: usize = 64 << 10;

/// What is below: a port, or a socket of this machine.
enum Plain {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Plain {
    fn set_timeouts(&self, span: Option<Duration>) -> io::Result<()> {
        match self {
            Plain::Tcp(it) => it.set_read_timeout(span).and_then(|()| it.set_write_timeout(span)),
            Plain::Unix(it) => it.set_read_timeout(span).and_then(|()| it.set_write_timeout(span)),
        }
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Plain::Tcp(it) => it.set_nonblocking(true),
            Plain::Unix(it) => it.set_nonblocking(true),
        }
    }
}

impl Read for Plain {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Plain::Tcp(it) => it.read(into),
            Plain::Unix(it) => it.read(into),
        }
    }
}

impl Write for Plain {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Plain::Tcp(it) => it.write(bytes),
            Plain::Unix(it) => it.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection that carries frames.
pub(crate) struct Frames {
    plain: Plain,
    tls: Option<Box<ClientConnection>>,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// The other end listens no more. It may have said why: that is still to be read.
    unheard: bool,
}

impl Frames {
    /// Posts a request, and has the connection when the coordinator gives it.
    pub(crate) fn open(
        found: &ResolvedEndpoint,
        path: &str,
        body: &str,
    ) -> Result<Frames, Failure> {
        let place = &found.way;
        let lost = |error: io::Error| {
            Failure::unreachable(format!("cannot reach the coordinator at {place}: {error}"))
        };
        let (plain, host) = connect(found).map_err(lost)?;
        let tls = match (&found.way, host) {
            (EndpointUrl::Url(url), Some(host)) if url.starts_with("https://") => {
                let name = ServerName::try_from(host)
                    .map_err(|error| Failure::usage(format!("{url}: {error}")))?;
                let mut tls = ClientConnection::new(Arc::new(config(found)?), name)
                    .map_err(|error| Failure::failed(format!("prepare TLS: {error}")))?;
                tls.set_buffer_limit(None);
                Some(Box::new(tls))
            }
            _ => None,
        };
        plain.set_timeouts(Some(PATIENCE)).map_err(lost)?;
        let (incoming, outgoing) = (Vec::new(), Vec::new());
        let mut frames = Frames { plain, tls, incoming, outgoing, unheard: false };
        let token = found.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n"));
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: volvox\r\n{}Content-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: Upgrade\r\nUpgrade: {UPGRADE}\r\n\r\n{body}",
            token.unwrap_or_default(),
            body.len()
        );
        frames.push(head.as_bytes()).and_then(|()| frames.flush()).map_err(lost)?;
        let head = frames.head().map_err(lost)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        if status != 101 {
            return Err(frames.refused(status, &head));
        }
        frames.plain.set_nonblocking().map_err(lost)?;
        Ok(frames)
    }

    /// Says something, as far as the other end listens; the rest when [`Frames::flush`] is called.
    pub(crate) fn send(&mut self, frame: &Frame) -> io::Result<()> {
        if self.unheard {
            return Ok(());
        }
        self.push(&frame.encode())?;
        self.flush()
    }

    /// Whether something waits to be sent.
    pub(crate) fn is_behind(&self) -> bool {
        let sealed = self.tls.as_ref().is_some_and(|tls| tls.wants_write());
        !self.unheard && (sealed || !self.outgoing.is_empty())
    }

    /// Sends what waits, as far as the other end listens. That it has closed is no failure here:
    /// [`Frames::next`] has what it said before, then the end.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.is_behind() {
            let sent = match &mut self.tls {
                Some(tls) => tls.write_tls(&mut self.plain),
                None => self.plain.write(&self.outgoing),
            };
            match sent {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) if self.tls.is_none() => drop(self.outgoing.drain(..sent)),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if is_closed(&error) => self.unheard = true,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next frame that has come; none: not yet.
    pub(crate) fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            let taken = Frame::take(&self.incoming)
                .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            if let Some((frame, used)) = taken {
                self.incoming.drain(..used);
                return Ok(Some(frame));
            }
            match self.receive() {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => tls.writer().write_all(bytes),
            None => {
                self.outgoing.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Reads what has come. That nothing has is an error, and so is the end.
    fn receive(&mut self) -> io::Result<()> {
        let mut chunk = [0; 16 << 10];
        let read = match &mut self.tls {
            None => self.plain.read(&mut chunk)?,
            Some(tls) => loop {
                match tls.reader().read(&mut chunk) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    done => break done?,
                }
                if tls.wants_write() && !self.unheard {
                    match tls.write_tls(&mut self.plain) {
                        Err(error) if is_closed(&error) => self.unheard = true,
                        done => drop(done?),
                    }
                }
                if tls.read_tls(&mut self.plain)? == 0 {
                    break 0;
                }
                tls.process_new_packets()
                    .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            },
        };
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.incoming.extend_from_slice(&chunk[..read]);
        Ok(())
    }

    /// What stands before the body of the answer.
    fn head(&mut self) -> io::Result<String> {
        const END: &[u8] = b"\r\n\r\n";
        loop {
            let found = self.incoming.windows(END.len()).position(|window| window == END);
            if let Some(at) = found {
                let head: Vec<u8> = self.incoming.drain(..at + END.len()).collect();
                return Ok(String::from_utf8_lossy(&head).into_owned());
            }
            if self.incoming.len() > MOST_BYTES {
                return Err(ErrorKind::InvalidData.into());
            }
            self.receive()?;
        }
    }

    fn refused(&mut self, status: u16, head: &str) -> Failure {
        let head = head.to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|it| it.split("\r\n").next());
        let length = length.and_then(|it| it.parse().ok()).unwrap_or(0_usize).min(MOST_BYTES);
        // A body that does not come whole is as good as none.
        while self.incoming.len() < length && self.receive().is_ok() {}
        let said: Option<ApiError> = serde_json::from_slice::<LifecycleResponse>(&self.incoming)
            .ok()
            .and_then(|answer| answer.error);
        let error = said.unwrap_or_else(|| ApiError {
            message: format!("the coordinator answered with status {status} and no upgrade"),
            ..ApiError::default()
        });
        Failure::answered(status, &error)
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

impl AsFd for Frames {
    /// To wait for: readable when [`Frames::next`] may have something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.plain {
            Plain::Tcp(it) => it.as_fd(),
            Plain::Unix(it) => it.as_fd(),
        }
    }
}

/// Connects; the name of the host, where there is one.
fn connect(found: &ResolvedEndpoint) -> io::Result<(Plain, Option<String>)> {
    let url = match &found.way {
        EndpointUrl::Unix(path) => return Ok((Plain::Unix(UnixStream::connect(path)?), None)),
        EndpointUrl::Url(url) => url,
    };
    let (usual, rest) = match url.strip_prefix("https://") {
        Some(rest) => (443, rest),
        None => (80, url.trim_start_matches("http://")),
    };
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            let no_port = |_| io::Error::new(ErrorKind::InvalidInput, "no port");
            (host, port.parse().map_err(no_port)?)
        }
        Some(_) | None => (rest, usual),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => {
                // Keys are small and wanted at once.
                let _ = stream.set_nodelay(true);
                return Ok((Plain::Tcp(stream), Some(host.to_owned())));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// TLS as for the other calls: the same authorities, the same certificate of ours.
fn config(found: &ResolvedEndpoint) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities(found)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let failed = |error: rustls::Error| Failure::failed(format!("prepare TLS: {error}"));
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_root_certificates(roots);
    match &found.certificate {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => {
            let pem = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| Failure::usage(format!("{}: no PEM: {error}", key.display())))?;
            builder.with_client_auth_cert(certificates(certificate)?, pem).map_err(failed)
        }
    }
}
