//! Who may: tokens, roles, certificates, the socket, TLS, and what is written down.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};

use crate::stage::{Stage, eventually, lrp};

#[test]
fn nobody_gets_in_without_a_token() {
    let stage = Stage::new();
    for (path, methods) in stage.document()["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let method = method.to_ascii_uppercase();
            let body = (method == "POST").then_some(&b"{}"[..]);
            for shown in ["", "Bearer", "Bearer x", "Basic YTpi", "Bearer vlx_00000000_0"] {
                let answer = stage.send(&method, path, body, &[("authorization", shown)]);
                if operation["security"] == json!([]) {
                    assert_eq!(answer.status, 200, "{method} {path} is open");
                } else {
                    assert_eq!(answer.status, 401, "{method} {path} with {shown:?}");
                    assert_eq!(answer.header("www-authenticate"), "Bearer");
                    assert_eq!(answer.json()["error"]["type"], "Unauthorized");
                }
            }
        }
    }
    let details = stage.send("GET", "/readyz?verbose", None, &[("authorization", "")]);
    assert_eq!(details.status, 401);
    assert!(stage.get("/readyz?verbose").text.contains("[+] board"));
}

#[test]
fn a_role_may_what_it_may() {
    let stage = Stage::new();
    let (read, write) = (stage.token("read"), stage.token("write"));
    for (path, methods) in stage.document()["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let Some(needs) = operation["description"].as_str() else { continue };
            let method = method.to_ascii_uppercase();
            // No request: those who may are told so, those who may not are told that.
            let body = (method == "POST").then_some(&b"{"[..]);
            let path = if method == "GET" { format!("{path}?%zz") } else { path.clone() };
            for (token, role, allowed) in [
                (&read, "read", needs.contains("role read")),
                (&write, "write", !needs.contains("admin")),
            ] {
                let shown = format!("Bearer {token}");
                let answer = stage.send(&method, &path, body, &[("authorization", &shown)]);
                let expected = if allowed { 400 } else { 403 };
                assert_eq!(answer.status, expected, "{method} {path} by {role}");
            }
        }
    }
}

#[test]
fn a_token_that_is_taken_back_is_refused_soon() {
    use volvox_coordinator::api::access::TokenFile;
    let stage = Stage::new();
    let shown = format!("Bearer {}", stage.token("read"));
    let ping = || stage.send("GET", "/v1/ping", None, &[("authorization", &shown)]).status;
    eventually("the new token is known", || (ping() == 200).then_some(()));
    let now = volvox_mesh::tls::config::system_clock()();
    TokenFile::of(stage.folder.path()).revoke(now, "read").unwrap();
    eventually("the token is refused", || (ping() == 401).then_some(()));
    assert_eq!(stage.get("/v1/ping").status, 200, "others are not");
}

#[test]
fn every_change_leaves_a_line() {
    let stage = Stage::new();
    let id = [("x-vcap-request-id", "0123456789abcdef")];
    let body = json!({"desired_lrp": lrp("p", 1)}).to_string();
    let path = "/v1/desired_lrp/desire.r2";
    assert_eq!(stage.send("POST", path, Some(body.as_bytes()), &id).status, 200);
    assert_eq!(stage.send("POST", path, Some(body.as_bytes()), &id).status, 409);
    stage.get("/v1/actual_lrps/list");
    let read = format!("Bearer {}", stage.token("read"));
    stage.send("POST", "/v1/tasks/delete", Some(b"{}"), &[("authorization", &read)]);
    let lines = std::fs::read_to_string(stage.folder.path().join("audit.log")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "changes only, and only by those who may: {lines:#?}");
    for (line, status) in lines.iter().zip([200, 409]) {
        assert_eq!(line["route"], "DesireDesiredLRP");
        assert_eq!(line["subject"], "p");
        assert_eq!(line["status"], status);
        assert_eq!(line["role"], "admin");
        assert_eq!(line["request_id"], "0123456789abcdef");
        assert!(line["caller"].as_str().unwrap().starts_with("token:"));
        assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    }
    assert!(lines[1]["error"].as_str().unwrap().contains("already exists"));
    let text = std::fs::read_to_string(stage.folder.path().join("audit.log")).unwrap();
    assert!(!text.contains(&stage.token), "no secret in the audit");
}

#[test]
fn who_hangs_up_leaves_a_line_all_the_same() {
    let stage = Stage::new();
    for nth in 0..20 {
        let body = json!({"desired_lrp": lrp(&format!("p{nth}"), 1)}).to_string();
        let request = format!(
            "POST /v1/desired_lrp/desire.r2 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
             content-length: {}\r\n\r\n{body}",
            stage.token,
            body.len()
        );
        let mut stream = std::net::TcpStream::connect(stage.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
    }
    // What has happened and what was written down come to the same.
    eventually("every change has its line", || {
        let desired = stage.get("/v1/desired_lrps/list.r3?fields=process_guid");
        let desired = desired.json()["desired_lrps"].as_array().unwrap().len();
        let audit = std::fs::read_to_string(stage.folder.path().join("audit.log")).unwrap();
        let lines = audit.lines().filter(|line| line.contains("\"status\":200")).count();
        (desired > 0 && lines == desired).then_some(())
    });
}

#[test]
fn a_stream_ends_with_its_token() {
    use std::io::{BufRead as _, BufReader};
    use volvox_coordinator::api::access::TokenFile;
    let stage = Stage::new();
    let token = stage.token("read");
    let answer = crate::stage::agent()
        .get(format!("http://{}/v1/events/tasks.r1", stage.address))
        .header("authorization", format!("Bearer {token}"))
        .call()
        .unwrap();
    let mut lines = BufReader::new(answer.into_body().into_reader()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), ": events of Volvox");
    let now = volvox_mesh::tls::config::system_clock()();
    TokenFile::of(stage.folder.path()).revoke(now, "read").unwrap();
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(rest.contains(&"event: closing".to_owned()), "{rest:?}");
}

#[test]
fn strangers_cannot_take_the_room_for_bodies() {
    let stage = Stage::with("api.limits.bodies_mb = 2\n");
    let hold = "GET /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 2000000\r\n\r\n";
    let _held: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(stage.address).unwrap();
            stream.write_all(hold.as_bytes()).unwrap();
            stream
        })
        .collect();
    stage.done("/v1/domains/upsert", json!({"domain": "d", "ttl": 1}));
}

#[test]
fn the_socket_needs_no_token() {
    let stage = Stage::new();
    let mut socket = UnixStream::connect(stage.folder.path().join("api.sock")).unwrap();
    let request = "GET /v1/members/list HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(stage.folder.path().join("api.sock")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
}

/// An authority for client certificates, as PEM, and one that makes them.
struct Clients {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Clients {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Clients { pem, issuer: Issuer::new(params, key) }
    }

    fn issue(&self, name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        (certificate.der().clone(), key)
    }
}

/// One request over TLS, trusting what the coordinator made for itself.
fn over_tls(
    stage: &Stage,
    certificate: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    request: &str,
) -> Result<String, String> {
    let mut roots = rustls::RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(stage.folder.path().join("api/ca.pem")).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match certificate {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key).unwrap(),
    };
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut tcp = std::net::TcpStream::connect(stage.address).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
    stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        // The other side may hang up without a TLS goodbye.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
        Err(error) => return Err(error.to_string()),
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[test]
fn client_certificates_have_the_role_of_their_name() {
    let folder = tempfile::tempdir().unwrap();
    let (clients, strangers) = (Clients::new(), Clients::new());
    let ca = folder.path().join("clients.pem");
    std::fs::write(&ca, &clients.pem).unwrap();
    let lines = format!(
        "api.tls.on_loopback = true\napi.tls.client_ca = {ca:?}\n\
         api.certificates.reader = \"read\"\napi.certificates.writer = \"write\"\n"
    );
    let stage = Stage::plain(folder, &lines);
    let get = |path: &str, token: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{token}\r\n")
    };
    let post = "POST /v1/domains/upsert HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                content-type: application/json\r\ncontent-length: 22\r\n\r\n{\"domain\":\"d\",\"ttl\":1}";
    let status = |answer: Result<String, String>| answer.unwrap()[9..12].to_owned();
    let reader = || Some(clients.issue("reader"));
    assert_eq!(status(over_tls(&stage, reader(), &get("/v1/ping", ""))), "200");
    assert_eq!(status(over_tls(&stage, reader(), post)), "403");
    assert_eq!(status(over_tls(&stage, Some(clients.issue("writer")), post)), "200");
    assert_eq!(
        status(over_tls(&stage, Some(clients.issue("nobody")), &get("/v1/ping", ""))),
        "401"
    );
    assert_eq!(status(over_tls(&stage, None, &get("/v1/ping", ""))), "401");
    let token = format!("authorization: Bearer {}\r\n", stage.token);
    assert_eq!(status(over_tls(&stage, None, &get("/v1/ping", &token))), "200");
    // One of another authority does not even get to ask.
    let stranger = over_tls(&stage, Some(strangers.issue("writer")), &get("/v1/ping", ""));
    assert!(stranger.is_err() || stranger.as_deref() == Ok(""), "{stranger:?}");
    // Without TLS there is no answer either.
    let mut plain = std::net::TcpStream::connect(stage.address).unwrap();
    plain.write_all(get("/livez", "").as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}
