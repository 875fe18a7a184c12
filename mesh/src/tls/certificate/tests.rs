//! The format of certificates, and that no other bytes are accepted as one.

use proptest::prelude::*;
use rcgen::CustomExtension;

use super::*;
use crate::tls::tests::{Ca, NOW};

fn error(what: Result<MemberIdentity, CertificateError>) -> String {
    what.unwrap_err().to_string()
}

#[test]
fn a_certificate_is_small_and_says_who() {
    let ca = Ca::new();
    let key = MemberKey::generate().unwrap();
    for (kind, name) in
        [(MemberKind::Cell, "cell-z1-0042"), (MemberKind::Coordinator, "coordinator-1.example")]
    {
        let terms = ca.terms(&key, kind, name);
        let der = issue(&ca.key, &terms);
        println!("certificate of {name}: {} bytes", der.len());
        assert!(der.len() < 400, "{}", der.len());
        let identity = ca.certificate.read_at(NOW, &der).unwrap();
        let CertificateContent { member, kind, name, public_key, not_before, not_after, .. } =
            terms.clone();
        assert_eq!(
            identity,
            MemberIdentity { member, kind, name, public_key, not_before, not_after }
        );
        assert_eq!(issue(&ca.key, &terms), der, "the same terms, the same bytes");
    }
    let longest = "x".repeat(255);
    let der = issue(&ca.key, &ca.terms(&key, MemberKind::Coordinator, &longest));
    assert_eq!(ca.certificate.read(&der).unwrap().name.as_str(), longest);
    println!("the authority's: {} bytes, longest: {}", ca.certificate.der().len(), der.len());
}

#[test]
fn it_is_valid_from_its_first_second_to_its_last() {
    let ca = Ca::new();
    let key = MemberKey::generate().unwrap();
    let terms = ca.terms(&key, MemberKind::Cell, "a");
    let der = issue(&ca.key, &terms);
    let nano = Duration::from_nanos(1);
    assert!(ca.certificate.read_at(terms.not_before, &der).is_ok());
    assert!(ca.certificate.read_at(terms.not_after, &der).is_ok());
    for wrong in [terms.not_before - nano, terms.not_after + nano, Timestamp::ZERO] {
        assert_eq!(ca.certificate.read_at(wrong, &der), Err(CertificateError::Expired));
    }
    assert!(ca.certificate.read(&der).is_ok(), "an ended one can still be read");
    // No certificate is valid after the CA's own has expired.
    let mut late = terms;
    late.not_after = NOW + CA_VALIDITY * 2;
    let der = issue(&ca.key, &late);
    let after = NOW + CA_VALIDITY + Duration::from_secs(1);
    assert_eq!(ca.certificate.read_at(after, &der), Err(CertificateError::Expired));
}

#[test]
fn times_beyond_all_calendars_do_not_panic() {
    let ca = Ca::new();
    let key = MemberKey::generate().unwrap();
    let mut terms = ca.terms(&key, MemberKind::Cell, "a");
    (terms.not_before, terms.not_after) = (Timestamp::ZERO, Timestamp::NEVER);
    assert!(ca.certificate.read_at(NOW, &issue(&ca.key, &terms)).is_ok());
    CaCertificate::parse(&issue_ca(Timestamp::NEVER - CA_VALIDITY, &key)).unwrap();
}

#[test]
fn another_authoritys_certificate_is_foreign() {
    let (ca, other) = (Ca::new(), Ca::new());
    let key = MemberKey::generate().unwrap();
    let der = issue(&other.key, &other.terms(&key, MemberKind::Cell, "a"));
    assert_eq!(ca.certificate.read(&der), Err(CertificateError::Foreign));
    // A self-signed certificate with the right names.
    let der = issue(&key, &ca.terms(&key, MemberKind::Coordinator, "a"));
    assert_eq!(ca.certificate.read(&der), Err(CertificateError::Foreign));
}

#[test]
fn an_authority_is_no_member_and_a_member_no_authority() {
    let ca = Ca::new();
    let refused = error(ca.certificate.read(ca.certificate.der()));
    assert!(refused.contains("authority's, not a member's"), "{refused}");
    let member = ca.credentials(MemberKind::Coordinator, "a");
    let refused = CaCertificate::parse(member.certificate()).unwrap_err().to_string();
    assert!(refused.contains("not an authority's"), "{refused}");
}

/// A certificate that the CA signed, but with another structure.
fn shaped(
    ca: &Ca,
    shape: impl FnOnce(&mut CertificateParams),
) -> Result<MemberIdentity, CertificateError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let uri = format!("volvox://{}/cell/a", MemberId([7; 16]));
    params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    shape(&mut params);
    let issuer = Issuer::new(ca_params(NOW), &ca.key);
    let der = params.signed_by(&PublicKey([1; 32]), &issuer).unwrap();
    ca.certificate.read(der.der())
}

#[test]
fn what_is_signed_must_still_have_our_shape() {
    let ca = Ca::new();
    assert!(shaped(&ca, |_| {}).is_ok());
    // Absent and false mean the same; a later release may add more.
    assert!(shaped(&ca, |params| params.is_ca = IsCa::ExplicitNoCa).is_ok());
    let uses = |usage| shaped(&ca, |params| params.key_usages = vec![usage]);
    assert!(uses(KeyUsagePurpose::DigitalSignature).is_ok());
    assert!(error(uses(KeyUsagePurpose::KeyCertSign)).contains("not for connections"));
    let unknown = || CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99_999, 1], vec![5, 0]);
    assert!(shaped(&ca, |params| params.custom_extensions.push(unknown())).is_ok());
    let critical = shaped(&ca, |params| {
        let mut unknown = unknown();
        unknown.set_criticality(true);
        params.custom_extensions.push(unknown);
    });
    assert!(error(critical).contains("unknown critical part"));

    for uses in [vec![], vec![ExtendedKeyUsagePurpose::ServerAuth]] {
        let refused = shaped(&ca, |params| params.extended_key_usages = uses);
        assert!(error(refused).contains("both ends"));
    }
    let member = MemberId([7; 16]);
    for uri in [
        "https://example.org".to_owned(),
        format!("volvox://{member}/king/a"),
        format!("volvox://{member}/cell/"),
        format!("volvox://{member}/cell/a/b"),
        format!("volvox://{member}/cell"),
        format!("volvox://{}/cell/a", &member.to_string()[1..]),
        format!("volvox://{}/cell/a", member.to_string().replace('7', "A")),
    ] {
        let refused = shaped(&ca, |params| {
            params.subject_alt_names = vec![SanType::URI(uri.clone().try_into().unwrap())];
        });
        assert!(error(refused).contains("does not name one member"), "{uri}");
    }
    let twice =
        shaped(&ca, |params| params.subject_alt_names.push(params.subject_alt_names[0].clone()));
    assert!(error(twice).contains("does not name one member"));
    let host = shaped(&ca, |params| {
        params.subject_alt_names = vec![SanType::DnsName("example.org".try_into().unwrap())];
    });
    assert!(error(host).contains("does not name one member"));
}

#[test]
fn a_member_with_another_kind_of_key_is_refused() {
    let ca = Ca::new();
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let issuer = Issuer::new(ca_params(NOW), &ca.key);
    let der = CertificateParams::default().signed_by(&key, &issuer).unwrap();
    assert!(error(ca.certificate.read(der.der())).contains("its key is not Ed25519"));
    let signed_by_it = CertificateParams::default().self_signed(&key).unwrap();
    assert!(error(ca.certificate.read(signed_by_it.der())).contains("not an Ed25519 certificate"));
}

#[test]
fn lengths_are_exact() {
    let ca = Ca::new();
    let der = ca.credentials(MemberKind::Cell, "a").certificate().to_vec();
    for length in 0..der.len() {
        assert!(matches!(ca.certificate.read(&der[..length]), Err(CertificateError::Malformed(_))));
    }
    let longer = [&der[..], &[0]].concat();
    assert!(matches!(ca.certificate.read(&longer), Err(CertificateError::Malformed(_))));
    let huge = vec![0x30; CERTIFICATE_BYTES + 1];
    assert!(error(ca.certificate.read(&huge)).contains("the limit is 2048"));
}

#[test]
fn a_length_has_one_spelling() {
    let body = |length: usize| [&vec![1; length - 74][..], &TAIL, &[7; 64]].concat();
    let with = |head: &[u8], length| [head, &body(length)].concat();
    assert!(split(&with(&[0x30, 0x81, 0x80], 0x80)).is_ok());
    assert!(split(&with(&[0x30, 0x82, 0x01, 0x00], 0x100)).is_ok());
    assert!(split(&with(&[0x30, 0x81, 0x7f], 0x7f)).is_err());
    assert!(split(&with(&[0x30, 0x82, 0x00, 0xff], 0xff)).is_err());
    assert!(split(&with(&[0x30, 0x83, 0x00, 0x01, 0x00], 0x100)).is_err());
}

#[test]
fn renewal_is_due_at_half_of_life_and_spread_over_an_eighth() {
    let (from, to) = (NOW, NOW + Duration::from_secs(80));
    assert_eq!(renew_at(from, to, 0), NOW + Duration::from_secs(40));
    assert!(renew_at(from, to, u16::MAX) < NOW + Duration::from_secs(50));
    assert!(renew_at(from, to, u16::MAX) > NOW + Duration::from_secs(49));
    assert_eq!(renew_at(to, from, 9), to, "a life of nothing");
}

fn flip(bytes: &mut [u8], changes: &[(prop::sample::Index, u8)]) {
    for (at, with) in changes {
        let at = at.index(bytes.len());
        bytes[at] ^= with;
    }
}

proptest! {
    #[test]
    fn no_changed_certificate_is_taken(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4),
    ) {
        let ca = Ca::new();
        let der = ca.credentials(MemberKind::Cell, "cell-1").certificate().to_vec();
        let mut changed = der.clone();
        flip(&mut changed, &changes);
        prop_assume!(changed != der);
        prop_assert!(ca.certificate.read(&changed).is_err());
        let _ = read_unsigned(&changed);
        let _ = CaCertificate::parse(&changed);
    }

    /// As if the CA itself wrote invalid data: the parser must not panic on it either.
    #[test]
    fn signed_nonsense_does_not_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let ca = Ca::new();
        let mut der = ca.credentials(MemberKind::Cell, "cell-1").certificate().to_vec();
        let end = der.len() - 74;
        flip(&mut der[4..end], &changes);
        let signature = ca.key.sign_raw(&der[4..end]);
        let start = der.len() - 64;
        der[start..].copy_from_slice(&signature.0);
        let _ = ca.certificate.read(&der);
    }

    #[test]
    fn any_bytes_do_not_panic(body in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = read_unsigned(&body);
        let mut der = vec![0x30, 0x82, 0, 0];
        der.extend_from_slice(&body);
        der.extend_from_slice(&TAIL);
        der.extend_from_slice(&[7; 64]);
        let length = u16::try_from(der.len() - 4).unwrap();
        der[2..4].copy_from_slice(&length.to_be_bytes());
        prop_assert!(read_unsigned(&der).is_err());
        prop_assert!(CaCertificate::parse(&der).is_err());
    }
}
