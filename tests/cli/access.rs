//! With what one comes to the coordinator: tokens, roles, TLS, client certificates.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use volvox_coordinator::api::access::TokenFile;
use volvox_mesh::tls::config::system_clock;

use crate::stage::{Said, Stage, program, said};

fn token(stage: &Stage, role: &str) -> String {
    let file = TokenFile::of(&stage.data());
    file.create(system_clock()(), role, role.parse().unwrap(), None).unwrap().0
}

fn volvox(at: &str, words: &[&str]) -> Said {
    let mut command = program();
    command.args(["--api", at]).args(words);
    said(command)
}

const RUN: [&str; 6] = ["run", "web", "--rootfs", "host:", "--", "/bin/true"];

#[test]
fn tokens_say_what_one_may() {
    let stage = Stage::new();
    let at = format!("http://{}", stage.address());
    let none = volvox(&at, &["ps"]);
    assert!(none.code == 4 && none.err.contains("--token-file"), "{none:?}");
    let read = token(&stage, "read");
    assert_eq!(volvox(&at, &["--token", &read, "ps"]).code, 0);
    let refused = volvox(&at, &[&["--token", read.as_str()], &RUN[..]].concat());
    assert_eq!(refused.code, 4, "{refused:?}");
    let file = stage.file("token", &format!("{}\n", token(&stage, "write")));
    assert_eq!(volvox(&at, &[&["--token-file", file.as_str()], &RUN[..]].concat()).code, 0);
    let refused = volvox(&at, &["--token-file", &file, "join-token", "list"]);
    assert!(refused.code == 4 && refused.err.contains("ask an operator"), "{refused:?}");
    let mut by_environment = program();
    by_environment.env("VOLVOX_API", &at).env("VOLVOX_TOKEN_FILE", &file).args(["apps"]);
    assert_eq!(said(by_environment).code, 0);
}

#[test]
fn tls_is_spoken_and_strangers_are_not_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let clients = folder.path().join("clients.pem");
    std::fs::write(&clients, params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "ci");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let lines = format!(
        "api.tls.on_loopback = true\napi.tls.client_ca = {clients:?}\napi.certificates.ci = \"write\"\n"
    );
    let stage = Stage::at(folder, &lines);
    let at = format!("https://{}", stage.address());
    let ca = stage.data().join("api/ca.pem");
    let ca = ca.to_str().unwrap();
    let unknown = volvox(&at, &["--ca", clients.to_str().unwrap(), "ps"]);
    assert!(unknown.code == 5 && unknown.err.contains("--ca"), "{unknown:?}");
    assert_eq!(volvox(&at, &["--ca", ca, "ps"]).code, 4, "no token");
    let token = token(&stage, "read");
    let listed = volvox(&at, &["--ca", ca, "--token", &token, "ps"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    let cert = stage.file("ci.pem", &certificate.pem());
    let key = stage.file("ci.key", &key.serialize_pem());
    let own = ["--ca", ca, "--cert", &cert, "--key", &key];
    let done = volvox(&at, &[&own[..], &RUN[..]].concat());
    assert_eq!(done.code, 0, "{done:?}");
    let events = volvox(&at, &[&own[..], &["events", "--snapshot", "--count", "2"]].concat());
    assert!(events.out.contains("desired_lrp_created          web"), "{events:?}");
    let swapped = volvox(&at, &["--ca", ca, "--cert", &key, "--key", &cert, "ps"]);
    assert_eq!(swapped.code, 2, "{swapped:?}");
    let plain = volvox(&format!("http://{}", stage.address()), &["ps"]);
    assert!(plain.code == 5, "{plain:?}");
}

/// Posts to a route of the BBS as Diego's clients do, with the files of a folder: status and body.
fn diego(stage: &Stage, files: &Path, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let read = |name: &str| std::fs::read(files.join(name)).unwrap();
    let certificates = |name: &str| -> Vec<Certificate<'static>> {
        let (pem, mut found) = (read(name), Vec::new());
        for item in parse_pem(&pem) {
            if let PemItem::Certificate(certificate) = item.unwrap() {
                found.push(certificate);
            }
        }
        found
    };
    let key = PrivateKey::from_pem(&read("key.pem")).unwrap();
    let own = ClientCert::new_with_certs(&certificates("cert.pem"), key);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(certificates("ca.pem"))))
        .client_cert(Some(own))
        .unversioned_rustls_crypto_provider(provider)
        .build();
    let config = ureq::Agent::config_builder().tls_config(tls).proxy(None);
    let agent = config.timeout_global(Some(Duration::from_secs(30))).build().new_agent();
    let post = agent.post(format!("https://{}{path}", stage.address()));
    let mut answer = post.content_type("application/x-protobuf").send(body).unwrap();
    assert_eq!(answer.headers()["content-type"], "application/x-protobuf");
    (answer.status().as_u16(), answer.body_mut().read_to_vec().unwrap())
}

#[test]
fn a_certificate_is_issued_and_diegos_routes_take_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let stage = Stage::with("api.tls.on_loopback = true\n");
    let folder = stage.folder.path().join("here");
    std::fs::create_dir(&folder).unwrap();
    let issue = |words: &[&str]| {
        let mut command = stage.command(&[&["cert", "issue"], words].concat());
        command.current_dir(&folder);
        said(command)
    };
    // The shortest that there is.
    let done = issue(&["--role", "admin"]);
    assert_eq!(
        (done.code, done.out.as_str()),
        (0, "./ca.pem\n./cert.pem\n./key.pem\n"),
        "{done:?}"
    );
    let mode = std::fs::metadata(folder.join("key.pem")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = issue(&["--role", "admin"]);
    assert!(again.code == 2 && again.err.contains("./ca.pem is there already"), "{again:?}");
    assert!(again.err.contains("--force"), "{again:?}");
    let key = std::fs::read(folder.join("key.pem")).unwrap();
    assert_eq!(issue(&["--role", "admin", "--force"]).code, 0);
    assert_ne!(std::fs::read(folder.join("key.pem")).unwrap(), key, "a new key each time");
    assert_eq!(diego(&stage, &folder, "/v1/ping", b""), (200, vec![0x08, 0x01]));
    // A domain `d`, for ever: an empty answer is one without an error.
    assert_eq!(diego(&stage, &folder, "/v1/domains/upsert", b"\x0a\x01d"), (200, vec![]));
    // A role that does not suffice, in another folder, for programs.
    let made = issue(&["--role", "read", "--name", "eyes", "--out", "eyes", "--json"]).json();
    assert_eq!((&made["role"], &made["name"]), (&"read".into(), &"eyes".into()));
    assert_eq!(made["key"], "eyes/key.pem");
    assert!(made["expires_at"].as_u64().is_some());
    let (status, body) = diego(&stage, &folder.join("eyes"), "/v1/domains/upsert", b"\x0a\x01d");
    assert_eq!(status, 200);
    assert!(String::from_utf8_lossy(&body).contains("needs the role write, yours is read"));
    // And the program itself comes with it.
    let file = |name: &str| folder.join("eyes").join(name).to_str().unwrap().to_owned();
    let own = [file("ca.pem"), file("cert.pem"), file("key.pem")];
    let at = format!("https://{}", stage.address());
    let own = ["--ca", &own[0], "--cert", &own[1], "--key", &own[2]];
    assert_eq!(volvox(&at, &[&own[..], &["ps"]].concat()).code, 0);
    let refused = volvox(&at, &[&own[..], &["cert", "issue", "--role", "admin"]].concat());
    assert!(refused.code == 4 && refused.err.contains("role admin"), "{refused:?}");
}

#[test]
fn certificates_that_cannot_be_had_are_refused_in_words() {
    let stage = Stage::new();
    let out = stage.folder.path().join("out");
    let out = out.to_str().unwrap();
    let no_key = stage.file("no-key.pem", "nothing");
    for (words, expected) in [
        (&["--role", "root"][..], "possible values: read, write, cell, admin"),
        (&["--role", "cell"], "needs --name"),
        (&["--role", "read", "--name", "a/b"], "may only contain"),
        (&["--role", "read", "--expires", "0"], "--expires"),
        (&["--role", "read", "--expires", "826d"], "825 days"),
        (&["--role", "read", "--host", "a b"], "no name or address"),
        (&["--role", "read", "--private-key", &no_key], "no-key.pem"),
    ] {
        let refused = stage.volvox(&[&["cert", "issue", "--out", out][..], words].concat());
        assert_eq!(refused.code, 2, "{words:?}: {refused:?}");
        assert!(refused.err.contains(expected), "{words:?}: {refused:?}");
    }
    let rsa =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../coordinator/tests/samples/rsa-for-tests.pem");
    stage.done(&["cert", "issue", "--role", "write", "--private-key", rsa, "--out", out]);
    let file = stage.file("a-file", "");
    let refused = stage.volvox(&["cert", "issue", "--role", "read", "--out", &file]);
    assert!(refused.code == 1 && refused.err.contains("a-file"), "{refused:?}");
}
