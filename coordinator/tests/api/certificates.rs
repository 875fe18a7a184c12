//! Certificates that are asked for: who may, and what is signed.

use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use x509_parser::prelude::FromDer as _;

use crate::stage::Stage;

pub(crate) const ISSUE: &str = "/v1/certificates/issue";

fn request(key: &KeyPair) -> String {
    CertificateParams::default().serialize_request(key).unwrap().pem().unwrap()
}

/// An order that is in order, but for these keys.
pub(crate) fn order(but: &Value) -> Value {
    let csr = request(&KeyPair::generate().unwrap());
    let mut order = json!({"role": "write", "name": "ci", "csr": csr});
    for (key, value) in but.as_object().unwrap() {
        order[key] = value.clone();
    }
    order
}

#[test]
fn a_certificate_is_for_the_key_that_was_shown() {
    let stage = Stage::new();
    let key = KeyPair::generate().unwrap();
    let hosts = ["bbs.example", "10.0.0.5"];
    let order = json!({
        "role": "admin", "name": "cfdot", "csr": request(&key), "lifetime_s": 3_600, "hosts": hosts,
    });
    let made = stage.done(ISSUE, order);
    let ca = std::fs::read_to_string(stage.folder.path().join("api/ca.pem")).unwrap();
    assert_eq!(made["ca"], ca.as_str());
    let chain = made["certificate"].as_str().unwrap();
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(chain.as_bytes()).map(Result::unwrap).collect();
    let root = CertificateDer::from_pem_slice(ca.as_bytes()).unwrap();
    assert_eq!((chain.len(), &chain[1]), (2, &root));
    let (_, parsed) = x509_parser::certificate::X509Certificate::from_der(&chain[0]).unwrap();
    let (_, root) = x509_parser::certificate::X509Certificate::from_der(&root).unwrap();
    parsed.verify_signature(Some(root.public_key())).unwrap();
    assert_eq!(parsed.public_key().raw, key.subject_public_key_info());
    assert_eq!(parsed.subject().to_string(), "CN=cfdot, OU=volvox role admin");
    let ends = u64::try_from(parsed.validity().not_after.timestamp()).unwrap();
    assert_eq!(made["expires_at"], ends * 1_000_000_000);
    let begins = u64::try_from(parsed.validity().not_before.timestamp()).unwrap();
    assert_eq!(ends - begins, 3_600 + 300);
    let names = &parsed.subject_alternative_name().unwrap().unwrap().value.general_names;
    assert_eq!(names.len(), hosts.len());
    let audit = std::fs::read_to_string(stage.folder.path().join("audit.log")).unwrap();
    let line: Value = serde_json::from_str(audit.trim()).unwrap();
    assert_eq!(line["route"], "IssueCertificate");
    assert_eq!(line["subject"], "admin cfdot for 3600 s");
    assert_eq!(line["status"], 200);
}

#[test]
fn only_an_admin_may_ask_for_one() {
    let stage = Stage::new();
    let body = order(&json!({})).to_string();
    for role in ["read", "write"] {
        let shown = format!("Bearer {}", stage.token(role));
        let headers = [("authorization", shown.as_str())];
        let refused = stage.send("POST", ISSUE, Some(body.as_bytes()), &headers);
        assert_eq!(refused.status, 403, "{role}: {}", refused.text);
    }
    let headers = [("authorization", "")];
    assert_eq!(stage.send("POST", ISSUE, Some(body.as_bytes()), &headers).status, 401);
    assert!(!stage.folder.path().join("api/ca.pem").exists(), "nothing was signed");
    assert_eq!(stage.send("GET", ISSUE, None, &[]).status, 405);
}

#[test]
fn orders_that_break_a_rule_are_refused_by_name() {
    let stage = Stage::new();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::default().self_signed(&key).unwrap().pem();
    let key_of_old = KeyPair::generate().unwrap();
    let other = request(&key_of_old);
    // The head of one request, and the end of another: the signature is another's.
    let (mine, lines) = (request(&key), other.lines().count());
    let mixed: Vec<&str> =
        mine.lines().take(lines - 3).chain(other.lines().skip(lines - 3)).collect();
    for (but, path) in [
        (json!({"csr": ""}), "csr"),
        (json!({"csr": "hello"}), "csr"),
        (json!({"csr": certificate}), "csr"),
        (json!({"csr": mixed.join("\n")}), "csr"),
        (json!({"csr": "x".repeat(16_385)}), "csr"),
        (json!({"lifetime_s": 825 * 86_400 + 1}), "lifetime_s"),
        (json!({"hosts": vec!["a"; 65]}), "hosts"),
        (json!({"hosts": ["a b"]}), "hosts"),
        (json!({"hosts": ["a".repeat(300)]}), "hosts"),
        (json!({"name": ""}), "name"),
        (json!({"name": "a/b"}), "name"),
        (json!({"name": "n".repeat(256)}), "name"),
        (json!({"role": "root"}), "role"),
    ] {
        let refused = stage.post(ISSUE, order(&but));
        assert_eq!(refused.status, 400, "{but}: {}", refused.text);
        let error = &refused.json()["error"];
        assert_eq!(error["details"][0]["path"], path, "{but}: {error}");
        assert!(refused.text.len() < 1_024, "{but}: {error}");
    }
    let long = order(&json!({"csr": "x".repeat(3 << 20)}));
    assert_eq!(stage.post(ISSUE, long).status, 413);
    for missing in ["role", "name", "csr"] {
        let mut order = order(&json!({}));
        order.as_object_mut().unwrap().remove(missing);
        assert_eq!(stage.post(ISSUE, order).status, 400, "without {missing}");
    }
}

#[test]
fn those_who_ask_first_at_the_same_time_have_one_authority() {
    let stage = Stage::new();
    let asked = std::thread::scope(|scope| {
        let asking: Vec<_> =
            (0..8).map(|_| scope.spawn(|| stage.done(ISSUE, order(&json!({}))))).collect();
        asking.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    let ca = asked[0]["ca"].as_str().unwrap();
    let root = CertificateDer::from_pem_slice(ca.as_bytes()).unwrap();
    let (_, root) = x509_parser::certificate::X509Certificate::from_der(&root).unwrap();
    for made in &asked {
        let one = made["certificate"].as_str().unwrap();
        let one = CertificateDer::from_pem_slice(one.as_bytes()).unwrap();
        let (_, one) = x509_parser::certificate::X509Certificate::from_der(&one).unwrap();
        one.verify_signature(Some(root.public_key())).unwrap();
    }
}
