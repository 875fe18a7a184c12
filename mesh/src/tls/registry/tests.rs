//! Each rule of the registry, allowed and refused, and that a refusal changes nothing.

use volvox_golden::{Golden, variants};

use super::*;
use crate::tls::tests::{DAY, NOW, name, order};

const LIFE: Duration = Duration::from_secs(30 * 86_400);
const SECRET: TokenSecret = TokenSecret([9; 16]);
const TOKEN: TokenId = TokenId([1; 8]);

fn id(n: u8) -> MemberId {
    MemberId([n; 16])
}

fn applicant(text: &str, key: u8) -> EnrolmentRequest {
    EnrolmentRequest { kind: MemberKind::Cell, name: name(text), public_key: [key; 32] }
}

fn with_token(order: TokenOrder) -> CaRegistry {
    let mut register = CaRegistry::default();
    register.create_token(NOW, TOKEN, &SECRET, order).unwrap();
    register
}

/// Enrols, and checks that a refusal leaves the registry unchanged.
fn enrol(
    register: &mut CaRegistry,
    now: Timestamp,
    fresh: u8,
    who: EnrolmentRequest,
) -> Result<CertificateContent, EnrolmentRefusal> {
    let before = crate::codec::encode(register);
    let result = register.enrol(now, LIFE, id(fresh), (TOKEN, &SECRET), who);
    if result.is_err() {
        assert_eq!(crate::codec::encode(register), before);
    }
    result
}

fn identity(terms: &CertificateContent) -> MemberIdentity {
    let CertificateContent { member, kind, name, public_key, not_before, not_after, .. } =
        terms.clone();
    MemberIdentity { member, kind, name, public_key, not_before, not_after }
}

fn uses_left(register: &CaRegistry) -> u32 {
    register.tokens[&TOKEN].uses_left
}

#[test]
fn a_token_admits_as_many_as_it_says() {
    let mut register = with_token(TokenOrder { uses: 2, ..order() });
    let first = enrol(&mut register, NOW, 1, applicant("a", 1)).unwrap();
    assert_eq!((first.member, first.name), (id(1), name("a")));
    assert_eq!((first.not_before, first.not_after), (NOW - SKEW, NOW + LIFE));
    let second = enrol(&mut register, NOW, 2, applicant("b", 2)).unwrap();
    assert!(second.serial > first.serial);
    let third = enrol(&mut register, NOW, 3, applicant("c", 3));
    assert_eq!(third, Err(EnrolmentRefusal::TokenUsedUp(TOKEN)));
}

#[test]
fn who_asks_again_is_the_same_member() {
    let mut register = with_token(order());
    let first = enrol(&mut register, NOW, 1, applicant("a", 1)).unwrap();
    assert_eq!(uses_left(&register), 0);
    let later = NOW + DAY + Duration::from_secs(60);
    let again = enrol(&mut register, later, 2, applicant("a", 1)).unwrap();
    assert_eq!(again, first, "though the token is used up and has expired");
    // If the certificate is no longer young, there is a newer one, still without using up the
    // token.
    let aged = enrol(&mut register, NOW + DAY * 10, 3, applicant("a", 1)).unwrap();
    assert_eq!((aged.member, aged.not_after), (id(1), NOW + DAY * 10 + LIFE));
    let other = enrol(&mut register, NOW, 4, applicant("a", 2));
    assert_eq!(other, Err(EnrolmentRefusal::TokenUsedUp(TOKEN)), "another key is somebody else");
    register.revoke(NOW, &MemberSelector::Member(id(1))).unwrap();
    let expelled = enrol(&mut register, NOW, 5, applicant("a", 1));
    assert_eq!(expelled, Err(EnrolmentRefusal::MemberRevoked(id(1))));
}

#[test]
fn wrong_secret_and_unknown_token_are_refused_in_the_same_words() {
    let mut register = with_token(order());
    let wrong = TokenSecret([8; 16]);
    let ask = |register: &mut CaRegistry, token, secret: &TokenSecret| {
        register.enrol(NOW, LIFE, id(1), (token, secret), applicant("a", 1)).unwrap_err()
    };
    let wrong_secret = ask(&mut register, TOKEN, &wrong);
    let unknown = ask(&mut register, TokenId([2; 8]), &SECRET);
    assert_eq!(wrong_secret.to_string(), unknown.to_string());
    assert_eq!(uses_left(&register), 1);
    assert_eq!(register.members().count(), 0);
    // Without the secret, the reply shows nothing about the token.
    let late = NOW + DAY * 2;
    let expired = register.enrol(late, LIFE, id(1), (TOKEN, &wrong), applicant("a", 1));
    assert_eq!(expired, Err(EnrolmentRefusal::TokenUnknown));
}

#[test]
fn a_token_ends() {
    let mut register = with_token(order());
    let late = NOW + DAY + Duration::from_nanos(1);
    let refused = enrol(&mut register, late, 1, applicant("a", 1));
    assert_eq!(refused, Err(EnrolmentRefusal::TokenExpired(TOKEN)));
    assert!(enrol(&mut register, NOW + DAY, 1, applicant("a", 1)).is_ok());
}

#[test]
fn a_token_is_for_one_kind_and_may_be_for_one_name() {
    let mut register = with_token(TokenOrder { cell: Some(name("a")), ..order() });
    let mut coordinator = applicant("a", 1);
    coordinator.kind = MemberKind::Coordinator;
    let refused = enrol(&mut register, NOW, 1, coordinator).unwrap_err().to_string();
    assert!(refused.ends_with("is for a Cell, not for a Coordinator"), "{refused}");
    let refused = enrol(&mut register, NOW, 1, applicant("b", 1)).unwrap_err();
    assert!(matches!(refused, EnrolmentRefusal::WrongName { .. }));
    assert!(enrol(&mut register, NOW, 1, applicant("a", 1)).is_ok());
}

#[test]
fn a_name_is_one_live_members() {
    let mut register = with_token(TokenOrder { uses: 9, ..order() });
    enrol(&mut register, NOW, 1, applicant("a", 1)).unwrap();
    let refused = enrol(&mut register, NOW, 2, applicant("a", 2)).unwrap_err();
    assert_eq!(refused.to_string(), format!("a belongs to member {}: revoke it first", id(1)));
    assert_eq!(register.revoke(NOW, &MemberSelector::Name(MemberKind::Cell, name("a"))), Ok(id(1)));
    assert!(enrol(&mut register, NOW, 2, applicant("a", 2)).is_ok());
    // A coordinator on the same machine may have the same name.
    let mut coordinator = applicant("a", 3);
    coordinator.kind = MemberKind::Coordinator;
    assert!(register.appoint(NOW, LIFE, id(3), coordinator, NameConflict::Refuse).is_ok());
}

#[test]
fn a_token_to_replace_expels_the_one_before() {
    let order =
        TokenOrder { cell: Some(name("a")), clash: NameConflict::Replace, uses: 2, ..order() };
    let mut register = with_token(order);
    enrol(&mut register, NOW, 1, applicant("a", 1)).unwrap();
    enrol(&mut register, NOW, 2, applicant("a", 2)).unwrap();
    let revoked = register.revoked();
    assert_eq!(revoked, [Revoked { member: id(1), at: NOW, until: NOW + LIFE }]);
    assert_eq!(register.live(MemberKind::Cell, &name("a")).unwrap().0, id(2));
}

#[test]
fn orders_have_limits() {
    let mut register = CaRegistry::default();
    let mut refused = |order| register.create_token(NOW, TOKEN, &SECRET, order).is_err();
    assert!(refused(TokenOrder { clash: NameConflict::Replace, ..order() }), "replaces any");
    assert!(refused(TokenOrder { uses: 0, ..order() }));
    assert!(refused(TokenOrder { uses: TOKEN_USES + 1, ..order() }));
    assert!(refused(TokenOrder { lifetime: Duration::ZERO, ..order() }));
    assert!(refused(TokenOrder { lifetime: TOKEN_LIFETIME + SECOND, ..order() }));
    assert!(refused(TokenOrder { label: "x".repeat(LABEL_BYTES + 1), ..order() }));
    assert!(refused(TokenOrder { label: "a\nb".into(), ..order() }));
    assert!(register.is_empty());
    register.create_token(NOW, TOKEN, &SECRET, order()).unwrap();
    let twice = register.create_token(NOW, TOKEN, &SECRET, order());
    assert!(matches!(twice, Err(EnrolmentRefusal::IdInUse(_))));
    for n in 1..TOKENS as u64 {
        register.create_token(NOW, TokenId((n << 9).to_be_bytes()), &SECRET, order()).unwrap();
    }
    let full = register.create_token(NOW, TokenId([0xff; 8]), &SECRET, order());
    assert_eq!(full, Err(EnrolmentRefusal::TooManyTokens));
    register.revoke_token(TOKEN).unwrap();
    assert_eq!(register.revoke_token(TOKEN), Err(EnrolmentRefusal::NoSuchToken(TOKEN)));
    assert_eq!(
        enrol(&mut register, NOW, 1, applicant("a", 1)),
        Err(EnrolmentRefusal::TokenUnknown)
    );
    assert!(register.create_token(NOW, TokenId([0xff; 8]), &SECRET, order()).is_ok());
}

#[test]
fn a_full_register_takes_no_more() {
    let mut register = with_token(order());
    for n in 0..MEMBERS as u128 {
        let text = name(&format!("m{n}"));
        let who =
            EnrolmentRequest { kind: MemberKind::Cell, name: text.clone(), public_key: [0; 32] };
        let member = RegisteredMember {
            kind: who.kind,
            name: text,
            public_key: who.public_key,
            previous_key: None,
            serial: 1,
            not_before: NOW,
            not_after: NOW + LIFE,
            last_ends: NOW + LIFE,
            joined: NOW,
            token: None,
            revoked: None,
        };
        register.members.insert(MemberId(n.to_be_bytes()), member);
    }
    assert_eq!(
        enrol(&mut register, NOW, 0xff, applicant("a", 1)),
        Err(EnrolmentRefusal::TooManyMembers)
    );
}

#[test]
fn an_id_that_is_in_use_expels_nobody() {
    let order =
        TokenOrder { cell: Some(name("a")), clash: NameConflict::Replace, uses: 2, ..order() };
    let mut register = with_token(order);
    enrol(&mut register, NOW, 1, applicant("a", 1)).unwrap();
    let refused = enrol(&mut register, NOW, 1, applicant("a", 2)).unwrap_err();
    assert!(refused.is_passing(), "with another id it works");
    assert!(register.revoked().is_empty());
}

#[test]
fn a_member_renews_long_after_its_certificate_ended() {
    let mut register = with_token(order());
    let old = enrol(&mut register, NOW, 1, applicant("a", 1)).unwrap();
    let later = NOW + DAY * 3650;
    register.prune(later);
    let new = register.renew(later, LIFE, &identity(&old), [1; 32]).unwrap();
    assert_eq!((new.member, new.not_before), (id(1), later - SKEW));
    assert!(new.serial > old.serial);
}

#[test]
fn expelled_and_unknown_members_do_not_renew() {
    let mut register = with_token(order());
    let old = identity(&enrol(&mut register, NOW, 1, applicant("a", 1)).unwrap());
    register.revoke(NOW, &MemberSelector::Member(id(1))).unwrap();
    let refused = register.renew(NOW + DAY * 20, LIFE, &old, [1; 32]);
    assert_eq!(refused, Err(EnrolmentRefusal::MemberRevoked(id(1))));
    let mut stranger = old.clone();
    stranger.member = id(9);
    let refused = register.renew(NOW, LIFE, &stranger, [1; 32]);
    assert!(matches!(refused, Err(EnrolmentRefusal::MemberUnknown(_))));
    // A deleted revoked member still cannot renew.
    assert_eq!(register.prune(NOW + LIFE + DAY + SECOND), 2);
    let refused = register.renew(NOW + LIFE * 2, LIFE, &old, [1; 32]);
    assert!(matches!(refused, Err(EnrolmentRefusal::MemberUnknown(_))));
}

#[test]
fn later_certificates_begin_later() {
    let mut register = with_token(order());
    let mut last = enrol(&mut register, NOW, 1, applicant("a", 0)).unwrap();
    let mut given = 1u8;
    // Another key each time, all in the same second.
    let refused = loop {
        match register.renew(NOW, LIFE, &identity(&last), [given; 32]) {
            Ok(next) => {
                assert!(next.not_before > last.not_before && next.not_before <= NOW);
                (last, given) = (next, given.wrapping_add(1));
            }
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, EnrolmentRefusal::TooOften(id(1)));
    assert!(refused.is_passing());
    assert!(register.renew(NOW + SECOND, LIFE, &identity(&last), [0xee; 32]).is_ok());
}

#[test]
fn the_same_key_gets_the_same_certificate_while_it_is_young() {
    let mut register = with_token(order());
    let first = enrol(&mut register, NOW, 1, applicant("a", 1)).unwrap();
    let old = identity(&first);
    assert_eq!(register.renew(NOW + DAY, LIFE, &old, [1; 32]), Ok(first.clone()));
    let second = register.renew(NOW + DAY * 15, LIFE, &old, [1; 32]).unwrap();
    assert!(second.not_before > first.not_before);
}

#[test]
fn a_clock_that_was_set_back_strands_nobody() {
    let mut register = with_token(order());
    let future = enrol(&mut register, NOW, 1, applicant("a", 1)).unwrap();
    let before = NOW - DAY * 1000;
    let now = register.renew(before, LIFE, &identity(&future), [1; 32]).unwrap();
    assert_eq!((now.not_before, now.not_after), (before - SKEW, before + LIFE));
    // The revocation still covers the certificate from the future.
    register.revoke(before, &MemberSelector::Member(id(1))).unwrap();
    assert_eq!(register.revoked()[0].until, NOW + LIFE);
}

#[test]
fn a_lost_reply_to_a_new_key_strands_nobody() {
    let mut register = with_token(order());
    let first = identity(&enrol(&mut register, NOW, 1, applicant("a", 1)).unwrap());
    let at = NOW + DAY;
    let second = register.renew(at, LIFE, &first, [2; 32]).unwrap();
    // The reply is lost: the member asks with its old key, for the same new key and then for
    // another.
    assert_eq!(register.renew(at, LIFE, &first, [2; 32]), Ok(second));
    let third = register.renew(at, LIFE, &first, [3; 32]).unwrap();
    // Now it has the third certificate and uses it. The first key, and all that it signed, is
    // invalid.
    let fourth = register.renew(at, LIFE, &identity(&third), [4; 32]).unwrap();
    let played_again = register.renew(at, LIFE, &first, [2; 32]);
    assert_eq!(played_again, Err(EnrolmentRefusal::OutdatedKey(id(1))));
    register.renew(at, LIFE, &identity(&fourth), [4; 32]).unwrap();
    let outdated = register.renew(at, LIFE, &identity(&third), [4; 32]);
    assert_eq!(outdated, Err(EnrolmentRefusal::OutdatedKey(id(1))), "the fourth was shown");
}

#[test]
fn revoking_is_for_good_and_twice_is_once() {
    let mut register = with_token(order());
    enrol(&mut register, NOW, 1, applicant("a", 1)).unwrap();
    assert_eq!(register.revoke(NOW, &MemberSelector::Member(id(1))), Ok(id(1)));
    assert_eq!(register.revoke(NOW + DAY, &MemberSelector::Member(id(1))), Ok(id(1)));
    assert_eq!(register.revoked(), [Revoked { member: id(1), at: NOW, until: NOW + LIFE }]);
    let by_name = register.revoke(NOW, &MemberSelector::Name(MemberKind::Cell, name("a")));
    assert_eq!(by_name, Err(EnrolmentRefusal::MemberUnknown("a".into())), "no live member has it");
    assert!(register.revoke(NOW, &MemberSelector::Member(id(5))).is_err());
}

#[test]
fn what_ended_is_forgotten_after_a_day() {
    let mut register = with_token(TokenOrder { uses: 2, ..order() });
    enrol(&mut register, NOW, 1, applicant("a", 1)).unwrap();
    enrol(&mut register, NOW, 2, applicant("b", 2)).unwrap();
    register.revoke(NOW, &MemberSelector::Member(id(1))).unwrap();
    assert_eq!(register.prune(NOW + DAY * 2), 0);
    assert_eq!(register.prune(NOW + DAY * 2 + SECOND), 1, "the token");
    assert_eq!(register.prune(NOW + LIFE + DAY), 0);
    assert_eq!(register.prune(NOW + LIFE + DAY + SECOND), 1, "the expelled member");
    assert!(register.revoked().is_empty());
    assert!(register.member(id(2)).is_some(), "live members stay");
}

#[test]
fn the_coordinator_appoints_itself_once() {
    let mut register = CaRegistry::default();
    let who = || EnrolmentRequest { kind: MemberKind::Coordinator, ..applicant("c", 1) };
    let first = register.appoint(NOW, LIFE, id(1), who(), NameConflict::Refuse).unwrap();
    assert_eq!(register.appoint(NOW, LIFE, id(2), who(), NameConflict::Refuse), Ok(first));
    let mut anew = who();
    anew.public_key = [2; 32];
    let refused = register.appoint(NOW, LIFE, id(2), anew.clone(), NameConflict::Refuse);
    assert!(matches!(refused, Err(EnrolmentRefusal::NameTaken { .. })));
    let second = register.appoint(NOW, LIFE, id(2), anew, NameConflict::Replace).unwrap();
    assert_eq!(second.member, id(2));
    assert_eq!(register.revoked()[0].member, id(1));
}

#[test]
fn the_registry_has_its_golden_bytes() {
    let at = Timestamp::from_nanos;
    let member = RegisteredMember {
        kind: MemberKind::Coordinator,
        name: name("a"),
        public_key: [1; 32],
        previous_key: Some([2; 32]),
        serial: 3,
        not_before: at(4),
        not_after: at(5),
        last_ends: at(6),
        joined: at(7),
        token: Some(TOKEN),
        revoked: Some(at(8)),
    };
    let bare =
        RegisteredMember { previous_key: None, token: None, revoked: None, ..member.clone() };
    let token = Token {
        hash: SECRET.hash(),
        kind: MemberKind::Cell,
        cell: Some(name("b")),
        clash: NameConflict::Replace,
        uses_left: 9,
        created: at(10),
        expires: at(11),
        label: "label".to_owned(),
    };
    let mut golden = Golden::open(env!("CARGO_MANIFEST_DIR"), "registry");
    golden.postcards(variants!(MemberKind { Cell, Coordinator }));
    golden.postcards(variants!(NameConflict { Refuse, Replace }));
    golden.postcard("Member", &member);
    let register = CaRegistry {
        members: [(id(1), member), (id(2), bare)].into_iter().collect(),
        tokens: [(TOKEN, token)].into_iter().collect(),
        last_serial: 12,
    };
    let bytes = crate::codec::encode(&register);
    let read: CaRegistry = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(format!("{read:?}"), format!("{register:?}"));
    golden.bytes("CaRegistry", &bytes);
    golden.close();
}
