//! The directory of a member: stored credentials are read back, and problems are reported.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::tls::credentials::{CredentialsError, FolderError, MemberFolder, Warning};

fn folder() -> (TempDir, MemberFolder) {
    let place = tempfile::tempdir().unwrap();
    let folder = MemberFolder::open(&place.path().join("member")).unwrap();
    (place, folder)
}

#[test]
fn what_is_stored_is_read() {
    let (place, folder) = folder();
    let credentials = Ca::new().credentials(MemberKind::Cell, "a");
    folder.store(&credentials).unwrap();
    let loaded = folder.load(NOW).unwrap();
    assert_eq!(loaded.credentials.certificate(), credentials.certificate());
    assert_eq!(loaded.credentials.key().public(), credentials.key().public());
    assert_eq!(loaded.credentials.ca(), credentials.ca());
    assert_eq!(loaded.warnings, []);
    let mode =
        |path: &str| fs::metadata(place.path().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("member"), mode("member/member.pem")), (0o700, 0o600));
    // Renewed credentials replace the old ones, and no other file is left.
    let renewed = Ca::new().credentials(MemberKind::Cell, "a");
    folder.store(&renewed).unwrap();
    let loaded = folder.load(NOW).unwrap();
    assert_eq!(loaded.credentials.certificate(), renewed.certificate());
    assert_eq!(fs::read_dir(place.path().join("member")).unwrap().count(), 1);
}

#[test]
fn what_is_wrong_is_said() {
    let (place, folder) = folder();
    let missing = folder.load(NOW).unwrap_err();
    assert!(matches!(missing, FolderError::Missing(_)));
    assert!(missing.to_string().contains("join with a token"), "{missing}");

    let ca = Ca::new();
    let credentials = ca.credentials(MemberKind::Cell, "a");
    folder.store(&credentials).unwrap();
    let path = place.path().join("member/member.pem");
    let good = fs::read_to_string(&path).unwrap();
    folder.store(&ca.credentials(MemberKind::Cell, "b")).unwrap();
    let other = fs::read_to_string(&path).unwrap();
    let at = |text: &str| text.find("-----BEGIN CERTIFICATE").unwrap();
    let mixed = format!("{}{}", &good[..at(&good)], &other[at(&other)..]);
    for (bad, says) in [
        ("", "member.pem is damaged"),
        (&good[..at(&good)], "0 certificates"),
        (&good[at(&good)..], "member.pem is damaged"),
        (&good[..good.len() / 2], "member.pem is damaged"),
        (&mixed, "the key does not belong to the certificate"),
    ] {
        fs::write(&path, bad).unwrap();
        let refused = folder.load(NOW).unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
    }
    fs::write(&path, vec![b'x'; 70_000]).unwrap();
    let refused = folder.load(NOW).unwrap_err().to_string();
    assert!(refused.contains("cannot read"), "{refused}");
}

#[test]
fn loose_modes_and_ended_certificates_are_warned_of() {
    let (place, folder) = folder();
    let credentials = Ca::new().credentials(MemberKind::Cell, "a");
    folder.store(&credentials).unwrap();
    let path = place.path().join("member/member.pem");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let late = NOW + VALIDITY + DAY;
    let loaded = folder.load(late).unwrap();
    let (not_before, not_after) = (NOW, NOW + VALIDITY);
    let loose = Warning::OpenToOthers { path, mode: 0o644 };
    assert_eq!(loaded.warnings, [loose, Warning::NotValidNow { not_before, not_after }]);
    assert!(loaded.warnings[0].to_string().contains("has mode 644"));
    assert!(!loaded.credentials.is_valid_at(late), "but it can be renewed");
}

#[test]
fn the_key_to_join_with_survives_a_crash() {
    let (place, folder) = folder();
    let key = folder.joining_key().unwrap();
    let again = MemberFolder::open(&place.path().join("member")).unwrap().joining_key().unwrap();
    assert_eq!(key.public(), again.public());
    let mut cluster = Cluster::new();
    let token = cluster.token(NOW, order());
    let reply = cluster.ask(NOW, &token, "a", &key);
    let credentials = accept_join(NOW, &token, MemberKind::Cell, &name("a"), key, reply).unwrap();
    folder.store(&credentials).unwrap();
    assert_ne!(folder.joining_key().unwrap().public(), credentials.key().public());
    fs::write(place.path().join("member/joining.pem"), "x").unwrap();
    assert!(matches!(folder.joining_key(), Err(FolderError::Damaged { .. })));
}

#[test]
fn a_file_that_a_crash_left_is_no_trouble() {
    let (place, folder) = folder();
    let left = place.path().join("member/member.new");
    fs::write(&left, "half").unwrap();
    fs::set_permissions(&left, fs::Permissions::from_mode(0o644)).unwrap();
    folder.store(&Ca::new().credentials(MemberKind::Cell, "a")).unwrap();
    assert_eq!(folder.load(NOW).unwrap().warnings, []);
    assert!(!left.exists());
}

#[test]
fn parts_that_do_not_belong_together_are_no_credentials() {
    let ca = Ca::new();
    let (a, b) = (ca.credentials(MemberKind::Cell, "a"), ca.credentials(MemberKind::Cell, "b"));
    let mixed =
        Credentials::new(Arc::clone(a.key()), b.certificate().to_vec(), ca.certificate.clone());
    assert_eq!(mixed.unwrap_err(), CredentialsError::Key);
    let other = Ca::new().certificate;
    let foreign = Credentials::new(Arc::clone(a.key()), a.certificate().to_vec(), other);
    assert!(matches!(foreign, Err(CredentialsError::Certificate(_))));
}
