//! A coordinator with TLS on a port of its own, and a client that speaks to it as Diego's do: HTTP/1.1,
//! one connection for many calls, a certificate, protobuf.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConnection, StreamOwned, SupportedProtocolVersion};
use volvox_coordinator::api::access::Role;
use volvox_coordinator::api::tls::{CertificateRequest, IssueRequest, Written, issue};
use volvox_coordinator::config::CoordinatorConfig;
use volvox_coordinator::run::{self, Coordinator};
use volvox_protocol::diego::message as m;

/// How long anything may take before it counts as not happening.
const PATIENCE: Duration = Duration::from_secs(30);

/// A coordinator at work, until it is dropped.
pub(crate) struct Stage {
    pub(crate) folder: tempfile::TempDir,
    coordinator: Option<Coordinator>,
    runtime: tokio::runtime::Runtime,
    pub(crate) address: SocketAddr,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        Stage::with(tempfile::tempdir().unwrap(), "")
    }

    pub(crate) fn with(folder: tempfile::TempDir, lines: &str) -> Stage {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        // Cells that speak by HTTP are not in the mesh: they are not to be found missing meanwhile.
        let text = format!(
            "name = \"test\"\napi.listen = [\"127.0.0.1:0\"]\nmesh.listen = \"127.0.0.1:0\"\n\
             shutdown.grace_s = 2\napi.tls.on_loopback = true\ncells.settle_s = 100000\n{lines}"
        );
        let config = CoordinatorConfig::parse(&text, Some(folder.path())).unwrap();
        let coordinator = runtime.block_on(run::start(config, None)).unwrap();
        let address = coordinator.addresses()[0];
        Stage { folder, coordinator: Some(coordinator), runtime, address }
    }

    /// Has a certificate made.
    pub(crate) fn certificate(&self, name: &str, role: Role) -> Written {
        certificate(self.folder.path(), name, role)
    }

    /// A client with a certificate of this name and role.
    pub(crate) fn client(&self, name: &str, role: Role) -> Client {
        Client::connect(self.address, &self.certificate(name, role), ANY)
    }

    pub(crate) fn admin(&self) -> Client {
        self.client("ops", Role::Admin)
    }

    /// The same with its handshake behind it.
    pub(crate) fn admin_after_a_ping(&self) -> Client {
        let mut client = self.admin();
        let ping: m::PingResponse = client.call("/v1/ping", &NOTHING);
        assert!(ping.available);
        client
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(coordinator) = self.coordinator.take() {
            self.runtime.block_on(coordinator.stop());
        }
    }
}

pub(crate) fn certificate(data_dir: &Path, name: &str, role: Role) -> Written {
    let folder = data_dir.join(format!("client-{name}-{}", role.name()));
    order(data_dir, name, role, folder, None, &[])
}

pub(crate) fn order(
    data_dir: &Path,
    name: &str,
    role: Role,
    folder: PathBuf,
    key: Option<PathBuf>,
    hosts: &[&str],
) -> Written {
    let terms = CertificateRequest {
        name: name.parse().unwrap(),
        role,
        lifetime: Duration::from_secs(3_600),
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
    };
    let order = IssueRequest { terms, key, folder, force: true };
    issue(volvox_mesh::tls::config::system_clock()(), data_dir, &order).unwrap()
}

/// The versions of TLS that a client speaks.
pub(crate) const ANY: &[&SupportedProtocolVersion] =
    &[&rustls::version::TLS13, &rustls::version::TLS12];

/// One connection.
pub(crate) struct Client {
    stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str())
    }
}

impl Client {
    pub(crate) fn connect(
        address: SocketAddr,
        shown: &Written,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Client {
        Client::with_suites(address, shown, versions, |_| true)
    }

    /// With only those cipher suites whose names pass.
    pub(crate) fn with_suites(
        address: SocketAddr,
        shown: &Written,
        versions: &[&'static SupportedProtocolVersion],
        suites: impl Fn(&str) -> bool,
    ) -> Client {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&shown.ca).unwrap()).unwrap();
        let mut provider = rustls::crypto::ring::default_provider();
        provider.cipher_suites.retain(|suite| suites(&format!("{:?}", suite.suite())));
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(&shown.cert).unwrap().collect();
        let key = PrivateKeyDer::from_pem_file(&shown.key).unwrap();
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain.unwrap(), key)
            .unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let tcp = TcpStream::connect(address).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream: BufReader::new(StreamOwned::new(tls, tcp)) }
    }

    /// The certificate that the coordinator showed on this connection.
    pub(crate) fn shown_certificate(&self) -> Vec<u8> {
        let shown = self.stream.get_ref().conn.peer_certificates().unwrap();
        shown[0].to_vec()
    }

    /// Sends a request as it is told.
    pub(crate) fn send(&mut self, line: &str, headers: &str, body: &[u8]) {
        let length = body.len();
        let head = format!(
            "{line} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{headers}\r\n"
        );
        let stream = self.stream.get_mut();
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        stream.flush().unwrap();
    }

    /// The head of an answer.
    pub(crate) fn head(&mut self) -> (u16, Vec<(String, String)>) {
        let first = self.line();
        let status = first.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        (status, headers)
    }

    /// The next line, without its end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end_matches(['\r', '\n']).to_owned()
    }

    /// Whether the other side ends the connection, with or without a word, before patience does.
    pub(crate) fn is_let_go(&mut self) -> bool {
        use std::io::ErrorKind::{TimedOut, WouldBlock};
        match self.stream.fill_buf() {
            Ok(more) => more.is_empty(),
            Err(error) => !matches!(error.kind(), TimedOut | WouldBlock),
        }
    }

    /// A whole answer; the connection stays.
    pub(crate) fn answer(&mut self) -> Answer {
        let (status, headers) = self.head();
        let mut answer = Answer { status, headers, body: Vec::new() };
        if answer.header("transfer-encoding") == "chunked" {
            loop {
                let size = usize::from_str_radix(self.line().trim_end_matches(';'), 16).unwrap();
                let mut chunk = vec![0; size + 2];
                self.stream.read_exact(&mut chunk).unwrap();
                answer.body.extend_from_slice(&chunk[..size]);
                if size == 0 {
                    break;
                }
            }
        } else {
            let length = answer.header("content-length").parse().unwrap_or(0);
            answer.body.resize(length, 0);
            self.stream.read_exact(&mut answer.body).unwrap();
        }
        answer
    }

    /// Posts a message as Diego's clients do, and has the answer.
    pub(crate) fn post(&mut self, path: &str, request: &impl Message) -> Answer {
        let headers = "content-type: application/x-protobuf\r\nx-vcap-request-id: trace-1\r\n";
        self.send(&format!("POST {path}"), headers, &request.encode_to_vec());
        self.answer()
    }

    /// Posts a message; the answer must be one, with status 200.
    pub(crate) fn call<A: Message + Default>(&mut self, path: &str, request: &impl Message) -> A {
        let answer = self.post(path, request);
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("content-type"), "application/x-protobuf", "{path}");
        A::decode(&answer.body[..]).unwrap()
    }

    /// Posts a message that must be taken.
    pub(crate) fn done(&mut self, path: &str, request: &impl Message) {
        let answer: m::ActualLrpLifecycleResponse = self.call(path, request);
        assert_eq!(answer.error, None, "{path}");
    }

    /// Posts a message that must be refused, and says why: the number and the text.
    pub(crate) fn refused(&mut self, path: &str, request: &impl Message) -> (i32, String) {
        let answer: m::ActualLrpLifecycleResponse = self.call(path, request);
        let error = answer.error.unwrap_or_else(|| panic!("{path} was taken"));
        (error.kind, error.message)
    }
}

/// No request.
pub(crate) const NOTHING: () = ();

pub(crate) fn action() -> m::Action {
    let run = m::RunAction { path: "/bin/true".into(), user: "vcap".into(), ..Default::default() };
    m::Action { run_action: Some(Box::new(run)), ..Default::default() }
}

/// A desired LRP with all that older readers do not know.
pub(crate) fn lrp(guid: &str, instances: i32) -> m::DesiredLrp {
    let layer = |kind: m::LayerType, to: &str| m::ImageLayer {
        url: format!("http://blobs{to}"),
        destination_path: to.into(),
        layer_type: kind.into(),
        media_type: m::MediaType::Tgz.into(),
        digest_algorithm: m::DigestAlgorithm::Sha256.into(),
        digest_value: "ab".into(),
        ..Default::default()
    };
    let tag = m::MetricTagValue { fixed: "app".into(), dynamic: 0 };
    m::DesiredLrp {
        process_guid: guid.into(),
        domain: "apps".into(),
        root_fs: "preloaded:fs4".into(),
        instances,
        action: Some(action()),
        monitor: Some(m::Action {
            timeout_action: Some(Box::new(m::TimeoutAction {
                action: Some(action()),
                timeout_ms: 1_500,
                ..Default::default()
            })),
            ..Default::default()
        }),
        start_timeout_ms: 61_000,
        memory_mb: 64,
        disk_mb: 32,
        ports: vec![8080],
        routes: Some(m::ProtoRoutes { routes: [("cf-router".into(), b"[1]".to_vec())].into() }),
        log_guid: "log".into(),
        annotation: "note".into(),
        legacy_download_user: "vcap".into(),
        image_layers: vec![
            layer(m::LayerType::Shared, "/shared"),
            layer(m::LayerType::Exclusive, "/exclusive"),
        ],
        metric_tags: [("source_id".into(), tag)].into(),
        ..Default::default()
    }
}

pub(crate) fn desire(client: &mut Client, guid: &str, instances: i32) {
    let desired_lrp = Some(lrp(guid, instances));
    client.done("/v1/desired_lrp/desire.r2", &m::DesireLrpRequest { desired_lrp });
}

/// A task that is in order.
pub(crate) fn task(guid: &str) -> m::DesireTaskRequest {
    m::DesireTaskRequest {
        task_definition: Some(m::TaskDefinition {
            root_fs: "preloaded:fs4".into(),
            action: Some(action()),
            image_layers: lrp("x", 1).image_layers,
            legacy_download_user: "vcap".into(),
            result_file: "/result".into(),
            ..Default::default()
        }),
        task_guid: guid.into(),
        domain: "apps".into(),
    }
}
