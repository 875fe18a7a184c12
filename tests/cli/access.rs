//! With what one comes to the coordinator: tokens, roles, TLS, client certificates.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
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
