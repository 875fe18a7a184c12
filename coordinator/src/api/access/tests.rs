//! Tokens, and who has which role.

use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_000);

fn later(seconds: u64) -> Timestamp {
    NOW + Duration::from_secs(seconds)
}

#[test]
fn a_token_is_good_until_it_ends_or_is_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = TokenFile::of(folder.path());
    let (short, _) = file.create(NOW, "ci", Role::Write, Some(Duration::from_secs(60))).unwrap();
    let (long, token) = file.create(NOW, "grafana", Role::Read, None).unwrap();
    let access = Access::open(file.clone(), BTreeMap::new()).unwrap();
    let role = |now, text: &str| access.bearer(now, text).map(|caller| caller.role);
    assert_eq!(role(NOW, &short), Some(Role::Write));
    assert_eq!(role(NOW, &short), Some(Role::Write), "known by now");
    assert_eq!(role(later(60), &short), None, "it has ended");
    assert_eq!(role(later(1_000_000), &long), Some(Role::Read));
    file.revoke(later(1), &token.id).unwrap();
    // A new process knows at once; a running one within a quarter of a second.
    let access = Access::open(file.clone(), BTreeMap::new()).unwrap();
    assert_eq!(access.bearer(later(2), &long), None);
    assert!(file.list().unwrap().iter().any(|token| token.revoked_at == Some(later(1))));
}

#[test]
fn a_running_coordinator_hears_of_changes() {
    let folder = tempfile::tempdir().unwrap();
    let file = TokenFile::of(folder.path());
    let access = Access::open(file.clone(), BTreeMap::new()).unwrap();
    let (text, _) = file.create(NOW, "ci", Role::Write, None).unwrap();
    let forget = || access.known.lock().unwrap().looked = None;
    forget();
    assert!(access.bearer(NOW, &text).is_some());
    let caller = access.bearer(NOW, &text).unwrap();
    assert!(access.is_good(NOW, &caller));
    file.revoke(NOW, "ci").unwrap();
    assert!(!access.is_good(NOW, &caller), "nor what it has open");
    forget();
    assert!(access.bearer(NOW, &text).is_none());
}

#[test]
fn what_is_almost_a_token_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = TokenFile::of(folder.path());
    let (text, token) = file.create(NOW, "ci", Role::Admin, None).unwrap();
    let access = Access::open(file, BTreeMap::new()).unwrap();
    assert!(access.bearer(NOW, &text).is_some());
    let cut = &text[..text.len() - 1];
    let other = format!("vlx_{}_{}", token.id, "0".repeat(64));
    for bad in ["", "vlx_", "vlx__", cut, &other, &token.hash, &format!("{text} ")] {
        assert!(access.bearer(NOW, bad).is_none(), "{bad:?} was let through");
    }
}

#[test]
fn secrets_are_not_on_the_disk_and_the_file_is_its_owners() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let file = TokenFile::of(folder.path());
    let (text, _) = file.create(NOW, "ci", Role::Admin, None).unwrap();
    let kept = std::fs::read_to_string(folder.path().join(TOKENS)).unwrap();
    let secret = text.rsplit('_').next().unwrap();
    assert!(!kept.contains(secret));
    let admin = file.ensure_admin(NOW).unwrap();
    for path in [folder.path().join(TOKENS), admin.clone()] {
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o077, 0);
    }
    // The same token again, unless it was taken back.
    let first = std::fs::read_to_string(&admin).unwrap();
    assert_eq!(file.ensure_admin(NOW).unwrap(), admin);
    assert_eq!(std::fs::read_to_string(&admin).unwrap(), first);
    file.revoke(NOW, "this machine").unwrap();
    file.ensure_admin(NOW).unwrap();
    assert_ne!(std::fs::read_to_string(&admin).unwrap(), first);
}

#[test]
fn names_are_checked_and_ambiguity_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = TokenFile::of(folder.path());
    for bad in ["", "a\nb", &"x".repeat(129)] {
        assert!(matches!(file.create(NOW, bad, Role::Read, None), Err(TokenError::Name(_))));
    }
    assert!(matches!(file.revoke(NOW, "x"), Err(TokenError::Unknown(_))));
    file.create(NOW, "x", Role::Read, None).unwrap();
    file.create(NOW, "x", Role::Read, None).unwrap();
    assert!(matches!(file.revoke(NOW, "x"), Err(TokenError::Ambiguous(_))));
    std::fs::write(folder.path().join(TOKENS), "{").unwrap();
    assert!(matches!(file.list(), Err(TokenError::Damaged { .. })));
    assert!("writer".parse::<Role>().unwrap_err().contains("read, write or admin"));
}

#[test]
fn certificates_are_known_by_their_whole_name() {
    let folder = tempfile::tempdir().unwrap();
    let names = [("ci.example".to_owned(), Role::Write)].into_iter().collect();
    let access = Access::open(TokenFile::of(folder.path()), names).unwrap();
    assert_eq!(access.certified(["x", "ci.example"].into_iter()).unwrap().role, Role::Write);
    for other in ["ci.example.org", "ci", "CI.EXAMPLE", ""] {
        assert_eq!(access.certified([other].into_iter()), None, "{other}");
    }
}
