//! The directory of the certificate authority (CA): what is on disk, and what is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::tls::authority::AuthorityError;
use crate::tls::registry::{EnrolmentRefusal, MemberSelector};

fn open_again(cluster: &Cluster) -> Result<Authority, AuthorityError> {
    Authority::open(NOW, &cluster.folder.path().join("ca"), VALIDITY)
}

/// Closes the CA and keeps its directory.
fn closed(cluster: Cluster) -> TempDir {
    let Cluster { authority, folder } = cluster;
    drop(authority);
    folder
}

#[test]
fn only_the_owner_may_look() {
    let mut cluster = Cluster::new();
    cluster.token(NOW, order());
    let folder = cluster.folder.path().join("ca");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for file in ["authority.pem", "register"] {
        assert_eq!(mode(&folder.join(file)), 0o600, "{file}");
    }
    let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn a_use_of_a_token_is_not_regained_by_a_crash() {
    let mut cluster = Cluster::new();
    let token = cluster.token(NOW, order());
    let key = MemberKey::generate().unwrap();
    let first = cluster.ask(NOW, &token, "a", &key);
    let fingerprint = cluster.authority.ca().fingerprint();
    let mut cluster = cluster.reopen(NOW);
    assert_eq!(cluster.authority.ca().fingerprint(), fingerprint);
    let other = cluster.ask(NOW, &token, "b", &MemberKey::generate().unwrap());
    let EnrolReply::Refused { reason, again } = other else { panic!("{other:?}") };
    assert!(reason.contains("used up") && !again, "{reason}");
    assert_eq!(cluster.ask(NOW, &token, "a", &key), first, "but a lost reply is given again");
}

#[test]
fn expelled_stays_expelled() {
    let mut cluster = Cluster::new();
    let cell = cluster.cell(NOW, "a");
    let member = cell.identity().member;
    cluster.authority.revoke(NOW, &MemberSelector::Name(MemberKind::Cell, name("a"))).unwrap();
    let cluster = cluster.reopen(NOW + DAY);
    assert_eq!(cluster.authority.register().revoked()[0].member, member);
}

#[test]
fn two_processes_do_not_share_an_authority() {
    let cluster = Cluster::new();
    let refused = open_again(&cluster).unwrap_err();
    assert!(matches!(refused, AuthorityError::InUse(_)), "{refused}");
}

#[test]
fn a_damaged_register_is_refused_and_left_alone() {
    let mut cluster = Cluster::new();
    cluster.cell(NOW, "a");
    let folder = closed(cluster);
    let path = folder.path().join("ca/register");
    let good = fs::read(&path).unwrap();
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let newer = [b"volvox register 2\n", &good[18..]].concat();
    for (bad, says) in [
        (flipped, "checksum"),
        (good[..good.len() - 1].to_vec(), "checksum"),
        (good[..20].to_vec(), "it is cut"),
        (newer, "this release's version"),
        (Vec::new(), "no register"),
    ] {
        fs::write(&path, &bad).unwrap();
        let refused = Authority::open(NOW, &folder.path().join("ca"), VALIDITY).unwrap_err();
        assert!(refused.to_string().contains(says), "{refused}");
        assert!(refused.to_string().contains("restore the folder from a backup"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), bad);
    }
    fs::write(&path, good).unwrap();
    assert!(Authority::open(NOW, &folder.path().join("ca"), VALIDITY).is_ok());
}

#[test]
fn a_missing_file_is_not_made_anew() {
    for (missing, says) in
        [("register", "register is damaged"), ("authority.pem", "is missing, but")]
    {
        let mut cluster = Cluster::new();
        cluster.cell(NOW, "a");
        let folder = closed(cluster);
        fs::remove_file(folder.path().join("ca").join(missing)).unwrap();
        let refused = Authority::open(NOW, &folder.path().join("ca"), VALIDITY).unwrap_err();
        assert!(refused.to_string().contains(says), "{refused}");
        assert!(!folder.path().join("ca").join(missing).exists());
    }
}

#[test]
fn a_first_start_that_was_cut_is_started_again() {
    let folder = closed(Cluster::new());
    fs::remove_file(folder.path().join("ca/authority.pem")).unwrap();
    let authority = Authority::open(NOW, &folder.path().join("ca"), VALIDITY).unwrap();
    let fingerprint = authority.ca().fingerprint();
    drop(authority);
    let again = Authority::open(NOW, &folder.path().join("ca"), VALIDITY).unwrap();
    assert_eq!(again.ca().fingerprint(), fingerprint);
}

#[test]
fn another_authoritys_files_are_refused() {
    let (ours, theirs) = (closed(Cluster::new()), closed(Cluster::new()));
    let (ours, theirs) = (ours.path().join("ca"), theirs.path().join("ca"));
    fs::copy(theirs.join("register"), ours.join("register")).unwrap();
    let refused = Authority::open(NOW, &ours, VALIDITY).unwrap_err().to_string();
    assert!(refused.contains("another authority's register"), "{refused}");
    fs::write(ours.join("authority.pem"), "hello").unwrap();
    let refused = Authority::open(NOW, &ours, VALIDITY).unwrap_err().to_string();
    assert!(refused.contains("authority.pem is damaged"), "{refused}");
}

#[test]
fn a_key_with_another_authoritys_certificate_is_refused() {
    let (ours, theirs) = (closed(Cluster::new()), closed(Cluster::new()));
    let path = ours.path().join("ca/authority.pem");
    let read =
        |folder: &TempDir| fs::read_to_string(folder.path().join("ca/authority.pem")).unwrap();
    let (our, their) = (read(&ours), read(&theirs));
    let at = |text: &str| text.find("-----BEGIN CERTIFICATE").unwrap();
    fs::write(&path, format!("{}{}", &our[..at(&our)], &their[at(&their)..])).unwrap();
    let refused = Authority::open(NOW, &ours.path().join("ca"), VALIDITY).unwrap_err().to_string();
    assert!(refused.contains("do not belong together"), "{refused}");
}

#[test]
fn a_full_disk_changes_nothing() {
    let mut cluster = Cluster::new();
    let token = cluster.token(NOW, order());
    // The new file cannot be created, because a directory has its name.
    let in_the_way = cluster.folder.path().join("ca/register.new");
    fs::create_dir(&in_the_way).unwrap();
    let key = MemberKey::generate().unwrap();
    let refused = cluster.ask(NOW, &token, "a", &key);
    let EnrolReply::Refused { reason, again } = refused else { panic!("{refused:?}") };
    assert!(again && !reason.contains("register"), "{reason}");
    assert_eq!(cluster.authority.register().members().count(), 0);
    fs::remove_dir(&in_the_way).unwrap();
    assert!(matches!(cluster.ask(NOW, &token, "a", &key), EnrolReply::Issued { .. }));
}

#[test]
fn validity_has_bounds_and_ends_with_the_authority() {
    let folder = tempfile::tempdir().unwrap();
    for validity in [Duration::from_secs(59), DAY * 366] {
        let refused = Authority::open(NOW, folder.path(), validity).unwrap_err();
        assert!(matches!(refused, AuthorityError::Validity(_)), "{refused}");
    }
    let mut cluster = Cluster::new();
    let end = cluster.authority.ca().not_after();
    let last = cluster.cell(end - DAY, "a");
    assert_eq!(last.identity().not_after, end);
}

#[test]
fn the_coordinator_appoints_itself_at_every_start() {
    let mut cluster = Cluster::new();
    let key = Arc::new(MemberKey::generate().unwrap());
    let appoint = |cluster: &mut Cluster, public_key| {
        let (kind, name) = (MemberKind::Coordinator, name("c1"));
        cluster.authority.appoint(NOW, kind, name, public_key, NameConflict::Refuse)
    };
    let first = appoint(&mut cluster, key.public()).unwrap();
    let mut cluster = cluster.reopen(NOW);
    assert_eq!(appoint(&mut cluster, key.public()).unwrap(), first);
    let refused = appoint(&mut cluster, [1; 32]).unwrap_err();
    assert!(
        matches!(refused, AuthorityError::Refused(EnrolmentRefusal::NameTaken { .. })),
        "{refused}"
    );
    let ca = cluster.authority.ca().clone();
    let credentials = Credentials::new(key, first.certificate, ca).unwrap();
    assert_eq!(credentials.identity().kind, MemberKind::Coordinator);
}

#[test]
fn tokens_are_listed_without_their_secrets_and_taken_back() {
    let mut cluster = Cluster::new();
    let token = cluster.token(NOW, order());
    let file = fs::read(cluster.folder.path().join("ca/register")).unwrap();
    assert!(!file.windows(16).any(|bytes| bytes == token.secret().0), "only its hash is stored");
    let listed: Vec<_> = cluster.authority.register().tokens().collect();
    assert_eq!(listed[0].0, token.id());
    assert_eq!((listed[0].1.uses_left, listed[0].1.label.as_str()), (1, "rack 7"));
    cluster.authority.revoke_token(token.id()).unwrap();
    let refused = cluster.ask(NOW, &token, "a", &MemberKey::generate().unwrap());
    assert!(matches!(refused, EnrolReply::Refused { again: false, .. }));
    let bad = cluster.authority.create_token(NOW, vec!["nowhere".into()], order());
    assert!(matches!(bad, Err(AuthorityError::Token(_))));
    assert_eq!(cluster.authority.prune(NOW).unwrap(), 0);
}
