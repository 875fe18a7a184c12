//! A caller: one connection, with TLS or without, that is kept; one request after the other.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// What speaks and hears.
trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A connection to the API.
pub(crate) struct Client {
    stream: BufReader<Box<dyn Stream>>,
    token: String,
}

/// What trusts the coordinator's own certificate.
pub(crate) fn trust(ca: &Path) -> anyhow::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).context("read the API's certificate")?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

impl Client {
    pub(crate) fn connect(
        address: &str,
        tls: Option<&Arc<ClientConfig>>,
        token: &str,
    ) -> anyhow::Result<Client> {
        let tcp = TcpStream::connect(address).context("connect")?;
        tcp.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match tls {
            None => Box::new(tcp),
            Some(tls) => {
                let name = ServerName::try_from("localhost")?;
                let connection = ClientConnection::new(Arc::clone(tls), name)?;
                Box::new(StreamOwned::new(connection, tcp))
            }
        };
        Ok(Client { stream: BufReader::with_capacity(1 << 16, stream), token: token.to_owned() })
    }

    /// Posts a JSON body and gives the answer's; it must be a good one.
    pub(crate) fn post(&mut self, path: &str, body: &[u8]) -> anyhow::Result<Vec<u8>> {
        self.post_as("application/json", path, body)
    }

    /// Posts a body of this type and gives the answer's; it must be a good one.
    pub(crate) fn post_as(
        &mut self,
        kind: &str,
        path: &str,
        body: &[u8],
    ) -> anyhow::Result<Vec<u8>> {
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
             content-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            self.token,
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        let stream = self.stream.get_mut();
        stream.write_all(&request)?;
        stream.flush()?;
        self.answer().with_context(|| format!("POST {path}"))
    }

    fn answer(&mut self) -> anyhow::Result<Vec<u8>> {
        let (mut length, mut chunked) = (0, false);
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.trim_end().to_owned();
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let head = line.trim_end().to_ascii_lowercase();
            if head.is_empty() {
                break;
            }
            if let Some(given) = head.strip_prefix("content-length: ") {
                length = given.parse()?;
            }
            chunked |= head == "transfer-encoding: chunked";
        }
        let mut body = Vec::new();
        if chunked {
            loop {
                line.clear();
                self.stream.read_line(&mut line)?;
                let size = usize::from_str_radix(line.trim_end(), 16)?;
                let begin = body.len();
                body.resize(begin + size + 2, 0);
                self.stream.read_exact(&mut body[begin..])?;
                body.truncate(begin + size);
                if size == 0 {
                    break;
                }
            }
        } else {
            body.resize(length, 0);
            self.stream.read_exact(&mut body)?;
        }
        ensure!(status.contains(" 200 "), "{status}: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }
}
