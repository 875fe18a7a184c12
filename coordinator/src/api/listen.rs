//! Takes connections: TCP, with or without TLS, and a socket of this machine.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::Api;
use super::preauth::PreauthPermit;
use super::server::Peer;
use super::tls::{Tls, names_of};
use super::write_timeout::WriteTimeout;

/// Connections that the kernel keeps for us until we take them.
const BACKLOG: u32 = 4_096;
/// Headers of one request.
const HEADERS: usize = 100;
/// Bytes of a request's head.
const HEAD_BYTES: usize = 32 << 10;
/// The pause after the system had no descriptor for a connection.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(50);

/// Why nothing can be heard at an address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {at}: {source}")]
pub struct ListenError {
    /// Where.
    pub at: String,
    /// Why.
    pub source: io::Error,
}

/// A place where connections arrive.
#[derive(Debug)]
pub enum Listener {
    /// A port, with TLS or without.
    Tcp(TcpListener, Option<Arc<Tls>>),
    /// A socket of this machine.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens on a port.
    pub fn tcp(address: SocketAddr, tls: Option<Arc<Tls>>) -> Result<Self, ListenError> {
        let failed = |source| ListenError { at: address.to_string(), source };
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let socket = socket.map_err(failed)?;
        socket.set_reuseaddr(true).map_err(failed)?;
        // Connections inherit it: readers of Diego's streams are told nothing for hours, and one that is
        // gone without a word would be kept for ever.
        socket.set_keepalive(true).map_err(failed)?;
        socket.bind(address).map_err(failed)?;
        Ok(Listener::Tcp(socket.listen(BACKLOG).map_err(failed)?, tls))
    }

    /// Listens on a socket that only its owner may use. One that a dead coordinator left is replaced: the
    /// caller holds the lock of the data folder, so no living one is there.
    pub fn unix(path: &Path) -> Result<Self, ListenError> {
        let failed = |source| ListenError { at: path.display().to_string(), source };
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        let owner_only = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, owner_only).map_err(failed)?;
        Ok(Listener::Unix(listener, path.to_owned()))
    }

    /// The port's address.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tcp(listener, _) => listener.local_addr().ok(),
            Listener::Unix(..) => None,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // Gone already is as good.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Serves the API at all these places until it is stopped; then waits for the calls under way, at
/// most for `grace`.
pub async fn serve(api: Arc<Api>, listeners: Vec<Listener>, grace: Duration) {
    let house = Arc::new(Acceptor { api });
    let mut places = JoinSet::new();
    for listener in listeners {
        places.spawn(accept(Arc::clone(&house), listener));
    }
    let mut connections = JoinSet::new();
    while let Some(ended) = places.join_next().await {
        if let Ok(left) = ended {
            connections.spawn(async move { left.join_all().await });
        }
    }
    let waiting = tokio::time::timeout(grace, connections.join_all());
    if waiting.await.is_err() {
        tracing::warn!(grace_s = grace.as_secs(), "calls under way were cut off");
    }
}

struct Acceptor {
    api: Arc<Api>,
}

/// Takes connections until the API stops, and gives back those that are still there.
async fn accept(house: Arc<Acceptor>, listener: Listener) -> JoinSet<()> {
    let mut stopping = house.api.stopping.subscribe();
    let mut connections = JoinSet::new();
    loop {
        let arrived = tokio::select! {
            arrived = arrive(&house, &listener) => arrived,
            // An error means that the API is gone: then there is nothing to serve either.
            _ = stopping.wait_for(|stopping| *stopping) => return connections,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        match arrived {
            Ok(connection) => {
                connections.spawn(connection);
            }
            Err(error) => {
                // One that went away by itself is nobody's trouble.
                if error.kind() != io::ErrorKind::ConnectionAborted {
                    tracing::warn!(%error, "no connection could be taken");
                    tokio::time::sleep(OUT_OF_DESCRIPTORS).await;
                }
            }
        }
    }
}

/// The next connection, as the work that serves it.
async fn arrive(
    house: &Arc<Acceptor>,
    listener: &Listener,
) -> io::Result<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>> {
    let house = Arc::clone(house);
    match listener {
        Listener::Tcp(listener, tls) => {
            let (stream, address) = listener.accept().await?;
            // Answers are small and wanted at once.
            let _ = stream.set_nodelay(true);
            let ip = address.ip().to_canonical();
            let peer = Peer {
                address: address.to_string(),
                ip,
                certificate: Vec::new(),
                issued: None,
                owner: None,
            };
            let place = house.api.lobby.enter(ip);
            let stream = WriteTimeout::new(stream, house.api.limits.stall_time);
            let tls = tls.clone();
            Ok(Box::pin(async move {
                match tls {
                    None => house.converse(stream, peer, Some(place)).await,
                    Some(tls) => house.encrypted(stream, tls, peer, place).await,
                }
            }))
        }
        Listener::Unix(listener, _) => {
            let (stream, _) = listener.accept().await?;
            let user = stream.peer_cred()?.uid();
            let peer = Peer {
                address: format!("uid {user}"),
                ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
                certificate: Vec::new(),
                issued: None,
                owner: Some(user),
            };
            let stream = WriteTimeout::new(stream, house.api.limits.stall_time);
            // No stranger comes this way.
            Ok(Box::pin(async move { house.converse(stream, peer, None).await }))
        }
    }
}

impl Acceptor {
    async fn encrypted<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        tls: Arc<Tls>,
        mut peer: Peer,
        mut place: (PreauthPermit, oneshot::Receiver<()>),
    ) {
        let handshake = TlsAcceptor::from(tls.for_next()).accept(stream);
        let handshake = tokio::time::timeout(self.api.limits.header_time, handshake);
        let stream = tokio::select! {
            done = handshake => match done {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    tracing::debug!(%error, peer = peer.address, "TLS");
                    return;
                }
                Err(_) => return,
            },
            _ = &mut place.1 => return,
        };
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        if let Some(certificate) = certificates.first() {
            peer.certificate = names_of(certificate);
            peer.issued = tls.issued(certificates);
        }
        self.converse(stream, peer, Some(place)).await;
    }

    /// One connection, from its first request to its last.
    async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        peer: Peer,
        place: Option<(PreauthPermit, oneshot::Receiver<()>)>,
    ) {
        let (seated, mut is_seated) = watch::channel(place.is_none());
        let (ticket, go) = place.unzip();
        let (api, peer) = (Arc::clone(&self.api), Arc::new(peer));
        let service = service_fn(|request| {
            let (api, peer, seated) = (Arc::clone(&api), Arc::clone(&peer), seated.clone());
            async move {
                let welcome = || {
                    seated.send_if_modified(|seated| !std::mem::replace(seated, true));
                };
                Ok::<_, std::convert::Infallible>(api.answer(&peer, request, welcome).await)
            }
        });
        let limits = &self.api.limits;
        // For hyper a head begins when the last answer has ended: this is also how long a connection may
        // idle. An authority that we trust knows who shows a certificate, so it may take its time.
        let head_time = if peer.certificate.is_empty() {
            limits.header_time
        } else {
            limits.idle_time.max(limits.header_time)
        };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head_time)
            .max_headers(HEADERS)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut connection = pin!(connection);
        let mut stopping = self.api.stopping.subscribe();
        // A stranger may be turned out at any moment.
        let mut stopped = false;
        let go = async {
            // A ticket that was given up is no order to go.
            let Some(Ok(())) = (match go {
                Some(go) => Some(go.await),
                None => None,
            }) else {
                return std::future::pending::<()>().await;
            };
        };
        let mut go = pin!(go);
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::trace!(%error, peer = peer.address, "a connection ended");
                    }
                    return;
                }
                () = &mut go => return,
                _ = is_seated.wait_for(|seated| *seated) => break,
                _ = stopping.wait_for(|stopping| *stopping), if !stopped => {
                    stopped = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
        drop(ticket);
        let Ok(_seat) = self.api.seats.try_acquire() else {
            tracing::warn!(peer = peer.address, "too many connections: one was closed");
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
            return;
        };
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::trace!(%error, peer = peer.address, "a connection ended");
                    }
                    return;
                }
                _ = stopping.wait_for(|stopping| *stopping), if !stopped => {
                    stopped = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}
