//! Who may speak protobuf, in which words it is refused, and over which TLS.

use volvox_coordinator::api::access::Role;
use volvox_protocol::diego::message as m;

use crate::client::{Client, NOTHING, Stage, desire, order};

#[test]
fn a_certificate_without_a_word_means_protobuf() {
    let stage = Stage::new();
    let mut client = stage.admin();
    client.send("POST /v1/ping", "", b"");
    let answer = client.answer();
    assert_eq!((answer.status, &answer.body[..]), (200, &[0x08, 0x01][..]));
    assert_eq!(answer.header("content-type"), "application/x-protobuf");
    // Who asks for JSON, or calls as only our own clients do, has it.
    for (line, headers, body) in [
        ("POST /v1/ping", "content-type: application/json\r\n", &b"{}"[..]),
        ("POST /v1/ping", "accept: application/json\r\n", b"{}"),
        ("GET /v1/ping", "", b""),
        ("POST /v1/cells/states", "", b"{}"),
    ] {
        client.send(line, headers, body);
        let answer = client.answer();
        assert_eq!(answer.header("content-type"), "application/json", "{line} {headers}");
        assert_eq!(answer.status, 200, "{line} {headers}");
    }
    // Our own routes have no messages.
    let answer = client.post("/v1/lrp_deployments/list", &NOTHING);
    assert_eq!((answer.status, answer.header("content-type")), (415, "application/json"));
    let answer = client.post("/v1/nothing", &NOTHING);
    assert_eq!((answer.status, answer.header("content-type")), (404, "application/json"));
    client.send("GET /v1/domains/upsert", "content-type: application/x-protobuf\r\n", b"");
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("allow")), (405, "POST"));
}

#[test]
fn a_role_that_does_not_suffice_is_told_in_field_one() {
    let stage = Stage::new();
    let mut reader = stage.client("eyes", Role::Read);
    let request = m::UpsertDomainRequest { domain: "d".into(), ttl: 0 };
    let refused = reader.refused("/v1/domains/upsert", &request);
    assert_eq!(refused, (0, "this needs the role write, yours is read".into()));
    let ping: m::PingResponse = reader.call("/v1/ping", &NOTHING);
    assert!(ping.available);
    let mut writer = stage.client("hands", Role::Write);
    writer.done("/v1/domains/upsert", &request);
    let audit = std::fs::read_to_string(stage.folder.path().join("audit.log")).unwrap();
    assert!(audit.contains(r#""caller":"certificate:hands""#), "{audit}");
    assert!(audit.contains(r#""request_id":"trace-1""#), "{audit}");
}

#[test]
fn a_role_counts_only_in_what_our_own_authority_signed() {
    // Another coordinator's certificate says admin; here its name has a role of the configuration's.
    let elsewhere = Stage::new();
    let foreign = elsewhere.certificate("guest", Role::Admin);
    let folder = tempfile::tempdir().unwrap();
    let lines =
        format!("api.tls.client_ca = {:?}\napi.certificates.guest = \"read\"\n", foreign.ca);
    let stage = Stage::with(folder, &lines);
    let ours = stage.certificate("ops", Role::Admin);
    let mixed = volvox_coordinator::api::tls::Written { ca: ours.ca, ..foreign };
    let mut guest = Client::connect(stage.address, &mixed, crate::client::ANY);
    let request = m::UpsertDomainRequest { domain: "d".into(), ttl: 0 };
    let refused = guest.refused("/v1/domains/upsert", &request);
    assert_eq!(refused.1, "this needs the role write, yours is read");
}

#[test]
fn peers_with_tls_1_2_and_rsa_only_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let rsa =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples/rsa-for-tests.pem");
    let data = folder.path();
    let served = order(
        data,
        "server",
        Role::Read,
        data.join("server"),
        Some(rsa.clone()),
        &["localhost", "127.0.0.1"],
    );
    let shown = order(data, "cc", Role::Write, data.join("cc"), Some(rsa), &[]);
    let lines =
        format!("api.tls.certificate = {:?}\napi.tls.key = {:?}\n", served.cert, served.key);
    let stage = Stage::with(folder, &lines);
    // What Diego's components offer a peer of that version.
    let suites = |name: &str| name.starts_with("TLS_ECDHE_RSA_WITH_AES");
    let mut client = Client::with_suites(stage.address, &shown, &[&rustls::version::TLS12], suites);
    desire(&mut client, "p", 1);
    let mut newer = Client::connect(stage.address, &shown, &[&rustls::version::TLS13]);
    let ping: m::PingResponse = newer.call("/v1/ping", &NOTHING);
    assert!(ping.available);
}

#[test]
fn a_certificate_that_was_asked_for_is_good_and_only_admins_may_ask() {
    use std::path::PathBuf;
    let stage = Stage::new();
    let key = rcgen::KeyPair::generate().unwrap();
    let csr = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
    let order = serde_json::json!({"role": "cell", "name": "cell-1", "csr": csr.pem().unwrap()});
    let ask = |client: &mut Client| {
        let headers = "content-type: application/json\r\n";
        client.send("POST /v1/certificates/issue", headers, order.to_string().as_bytes());
        client.answer()
    };
    for (name, role) in [("eyes", Role::Read), ("hands", Role::Write), ("cell-1", Role::Cell)] {
        let refused = ask(&mut stage.client(name, role));
        assert_eq!(refused.status, 403, "{role:?}");
    }
    let made = ask(&mut stage.admin());
    assert_eq!(made.status, 200);
    let made: serde_json::Value = serde_json::from_slice(&made.body).unwrap();
    let put = |name: &str, text: &str| -> PathBuf {
        let path = stage.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let shown = volvox_coordinator::api::tls::Written {
        ca: put("a-ca.pem", made["ca"].as_str().unwrap()),
        cert: put("a-cert.pem", made["certificate"].as_str().unwrap()),
        key: put("a-key.pem", &key.serialize_pem()),
    };
    let mut cell = Client::connect(stage.address, &shown, crate::client::ANY);
    let ping: m::PingResponse = cell.call("/v1/ping", &NOTHING);
    assert!(ping.available);
    let request = m::UpsertDomainRequest { domain: "d".into(), ttl: 0 };
    let refused = cell.refused("/v1/domains/upsert", &request);
    assert_eq!(refused.1, "this needs the role write, yours is cell");
}

#[test]
fn a_connection_with_a_certificate_may_idle_for_longer_than_a_stranger_s() {
    let stage = Stage::with(tempfile::tempdir().unwrap(), "api.limits.header_s = 1\n");
    let mut client = stage.admin();
    let ping: m::PingResponse = client.call("/v1/ping", &NOTHING);
    assert!(ping.available);
    // Who came later and says nothing is let go, and that is the clock of this test.
    let mut stranger = std::net::TcpStream::connect(stage.address).unwrap();
    assert_eq!(std::io::Read::read(&mut stranger, &mut [0]).unwrap(), 0);
    let ping: m::PingResponse = client.call("/v1/ping", &NOTHING);
    assert!(ping.available, "on the same connection");
}

#[test]
fn a_connection_with_a_certificate_does_not_idle_for_ever() {
    let lines = "api.limits.header_s = 1\napi.limits.idle_s = 1\n";
    let stage = Stage::with(tempfile::tempdir().unwrap(), lines);
    let mut client = stage.admin();
    let _: m::PingResponse = client.call("/v1/ping", &NOTHING);
    assert!(client.is_let_go());
}

#[test]
fn a_new_server_certificate_is_shown_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_owned();
    let hosts = ["localhost", "127.0.0.1"];
    let serve = || order(&data, "server", Role::Read, data.join("server"), None, &hosts);
    let served = serve();
    let lines =
        format!("api.tls.certificate = {:?}\napi.tls.key = {:?}\n", served.cert, served.key);
    let stage = Stage::with(folder, &lines);
    let mut before = stage.admin();
    let _: m::PingResponse = before.call("/v1/ping", &NOTHING);
    let first = before.shown_certificate();
    assert_eq!(stage.admin_after_a_ping().shown_certificate(), first);
    serve();
    let after = stage.admin_after_a_ping();
    assert_ne!(after.shown_certificate(), first);
    // The connection that was there goes on, and the metric knows when the new one ends.
    before.send("GET /metrics", "", b"");
    let text = String::from_utf8(before.answer().body).unwrap();
    let name = "volvox_http_certificate_expiry_timestamp_seconds ";
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    assert!(line.parse::<u64>().unwrap() > 1_700_000_000, "{line}");
}
