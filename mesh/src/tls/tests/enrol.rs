//! Joining and renewing, from the request to the credentials.

use proptest::prelude::*;
use volvox_golden::{Golden, variants};

use super::*;
use crate::codec::CodecError;
use crate::identity::{Authenticator, Signature};
use crate::tls::enrol::{
    EnrolError, EnrolRequest, Join, MESSAGE_BYTES, REASON_BYTES, Renew, accept_renewal,
    request_renewal,
};
use crate::tls::registry::MemberSelector;
use crate::tls::token::{TokenId, TokenSecret};

fn reason(reply: EnrolReply) -> String {
    match reply {
        EnrolReply::Refused { reason, .. } => reason,
        EnrolReply::Issued { .. } => panic!("it was granted"),
    }
}

#[test]
fn a_cell_joins() {
    let mut cluster = Cluster::new();
    let cell = cluster.cell(NOW, "cell-1");
    let (us, them) = (cell.authenticator(), cluster.cell(NOW, "cell-2").authenticator());
    let identity = them.identity(NOW, cell.certificate()).unwrap();
    assert_eq!(&*identity, cell.identity());
    assert_eq!((identity.kind, identity.name.as_str()), (MemberKind::Cell, "cell-1"));
    let signature = us.sign(b"I have room");
    assert!(them.verify(&identity, b"I have room", &signature));
    assert!(!them.verify(&identity, b"I have more", &signature));
    // A signature for another purpose is not valid for a statement.
    assert!(!them.verify(&identity, b"I have room", &cell.key().sign_raw(b"I have room")));
}

#[test]
fn a_request_must_be_signed_with_its_key() {
    let mut cluster = Cluster::new();
    let token = cluster.token(NOW, order());
    let key = MemberKey::generate().unwrap();
    let asked = request_join(&token, MemberKind::Cell, &name("a"), &key);
    type Change = fn(&mut crate::tls::enrol::Join);
    let changes: [Change; 4] = [
        |join| join.name = name("b"),
        |join| join.kind = MemberKind::Coordinator,
        |join| join.public_key = MemberKey::generate().unwrap().public(),
        |join| join.public_key = [0; 32],
    ];
    for change in changes {
        let EnrolRequest::Join(mut join) = asked.clone() else { unreachable!() };
        change(&mut join);
        let reply = answer(&mut cluster.authority, NOW, &EnrolRequest::Join(join));
        assert_eq!(reason(reply), "the request is not signed with the key that it names");
    }
    assert_eq!(cluster.authority.register().members().count(), 0);
}

#[test]
fn a_member_renews_with_the_same_key_and_with_another() {
    let mut cluster = Cluster::new();
    let first = cluster.cell(NOW, "a");
    let later = first.renew_at(0);
    let mut renew = |old: &Credentials, key: Arc<MemberKey>, now| {
        let request = EnrolRequest::decode(&request_renewal(old, &key).encode()).unwrap();
        let reply = answer(&mut cluster.authority, now, &request);
        accept_renewal(now, old, key, reply)
    };
    let second = renew(&first, Arc::clone(first.key()), later).unwrap();
    assert_eq!(second.identity().member, first.identity().member);
    assert!(second.identity().not_before > first.identity().not_before);
    let third = renew(&second, Arc::new(MemberKey::generate().unwrap()), later).unwrap();
    assert_ne!(third.identity().public_key, first.identity().public_key);
    // After years without a connection.
    let much_later = NOW + DAY * 1500;
    assert!(!third.is_valid_at(much_later));
    let fourth = renew(&third, Arc::clone(third.key()), much_later).unwrap();
    assert!(fourth.is_valid_at(much_later));
    assert_eq!(fourth.identity().member, first.identity().member);
}

#[test]
fn who_may_not_renew() {
    let mut cluster = Cluster::new();
    let (cell, other) = (cluster.cell(NOW, "a"), cluster.cell(NOW, "b"));
    let ask = |cluster: &mut Cluster, request: &EnrolRequest| {
        reason(answer(&mut cluster.authority, NOW + DAY * 20, request))
    };
    // The certificate of another member.
    let EnrolRequest::Renew(mut stolen) = request_renewal(&other, other.key()) else {
        unreachable!()
    };
    stolen.certificate = cell.certificate().to_vec();
    assert!(ask(&mut cluster, &EnrolRequest::Renew(stolen)).contains("not signed"));
    // The key of another member, which could then sign for this one.
    let EnrolRequest::Renew(mut foreign_key) = request_renewal(&cell, cell.key()) else {
        unreachable!()
    };
    foreign_key.public_key = other.key().public();
    assert!(ask(&mut cluster, &EnrolRequest::Renew(foreign_key)).contains("not signed"));
    let EnrolRequest::Renew(mut claimed) = request_renewal(&cell, other.key()) else {
        unreachable!()
    };
    claimed.new_proof = claimed.proof;
    assert!(ask(&mut cluster, &EnrolRequest::Renew(claimed)).contains("not signed"));
    // A member of another cluster.
    let stranger = Cluster::new().cell(NOW, "a");
    let refused = ask(&mut cluster, &request_renewal(&stranger, stranger.key()));
    assert!(refused.contains("not from this cluster's authority"), "{refused}");
    cluster.authority.revoke(NOW, &MemberSelector::Member(cell.identity().member)).unwrap();
    let refused = ask(&mut cluster, &request_renewal(&cell, cell.key()));
    assert!(refused.contains("was revoked"), "{refused}");
}

#[test]
fn a_wrong_reply_is_not_taken() {
    let mut cluster = Cluster::new();
    let token = cluster.token(NOW, order());
    let key = Arc::new(MemberKey::generate().unwrap());
    let good = cluster.ask(NOW, &token, "a", &key);
    let check = |now, kind, text: &str, key: &Arc<MemberKey>, reply: &EnrolReply| {
        accept_join(now, &token, kind, &name(text), Arc::clone(key), reply.clone())
    };
    assert!(check(NOW, MemberKind::Cell, "a", &key, &good).is_ok());
    let not_ours = |result: Result<Credentials, EnrolError>| {
        assert!(matches!(result, Err(EnrolError::NotOurs(_))), "{result:?}");
    };
    not_ours(check(NOW, MemberKind::Cell, "b", &key, &good));
    not_ours(check(NOW, MemberKind::Coordinator, "a", &key, &good));
    not_ours(check(NOW, MemberKind::Cell, "a", &Arc::new(MemberKey::generate().unwrap()), &good));
    let wrong_clock = check(NOW - DAY, MemberKind::Cell, "a", &key, &good).unwrap_err();
    assert_eq!(wrong_clock, EnrolError::Clock);

    let EnrolReply::Issued { certificate, ca, member } = good else { unreachable!() };
    let issued = |certificate: &[u8], ca: &[u8], member| EnrolReply::Issued {
        certificate: certificate.to_vec(),
        ca: ca.to_vec(),
        member,
    };
    not_ours(check(
        NOW,
        MemberKind::Cell,
        "a",
        &key,
        &issued(&certificate, &ca, MemberId([1; 16])),
    ));
    let other = Ca::new();
    let theirs = issue(&other.key, &other.terms(&key, MemberKind::Cell, "a"));
    let reply = issued(&theirs, other.certificate.der(), member);
    let refused = check(NOW, MemberKind::Cell, "a", &key, &reply);
    assert!(matches!(refused, Err(EnrolError::WrongAuthority { .. })), "{refused:?}");
    let refused = check(NOW, MemberKind::Cell, "a", &key, &issued(&theirs, &ca, member));
    assert!(matches!(refused, Err(EnrolError::Certificate(_))), "{refused:?}");
    let no = EnrolReply::Refused { reason: "no".into(), again: true };
    let refused = check(NOW, MemberKind::Cell, "a", &key, &no).unwrap_err();
    assert_eq!(refused, EnrolError::Refused { reason: "no".into(), again: true });
}

#[test]
fn a_renewal_is_for_the_same_member() {
    let mut cluster = Cluster::new();
    let old = cluster.cell(NOW, "a");
    cluster.authority.revoke(NOW, &MemberSelector::Member(old.identity().member)).unwrap();
    let token = cluster.token(NOW, order());
    let reply = cluster.ask(NOW, &token, "a", old.key());
    let refused = accept_renewal(NOW, &old, Arc::clone(old.key()), reply).unwrap_err();
    assert_eq!(refused, EnrolError::NotOurs("it is for another member"));
}

#[test]
fn messages_have_limits() {
    let cell = Ca::new().credentials(MemberKind::Cell, "a");
    let EnrolRequest::Renew(mut renew) = request_renewal(&cell, cell.key()) else { unreachable!() };
    renew.certificate = vec![0; 2049];
    let refused = EnrolRequest::decode(&EnrolRequest::Renew(renew).encode()).unwrap_err();
    assert_eq!(refused, CodecError::TooLarge { given: 2049, limit: 2048 });
    let refused = EnrolRequest::decode(&vec![0; MESSAGE_BYTES + 1]).unwrap_err();
    assert!(matches!(refused, CodecError::TooLarge { .. }));
    let member = MemberId([1; 16]);
    let long = EnrolReply::Issued { certificate: vec![], ca: vec![0; 2049], member };
    assert!(EnrolReply::decode(&long.encode()).is_err());
    let loud = EnrolReply::Refused { reason: "\x1b[31mé".repeat(900), again: false };
    let read = reason(EnrolReply::decode(&loud.encode()).unwrap());
    assert!(read.len() <= REASON_BYTES && read.starts_with("[31mé[31mé"), "{read}");
}

#[test]
fn a_request_does_not_show_the_secret() {
    let mut cluster = Cluster::new();
    let token = cluster.token(NOW, order());
    let request =
        request_join(&token, MemberKind::Cell, &name("a"), &MemberKey::generate().unwrap());
    assert!(format!("{request:?}").contains("secret: secret"));
}

proptest! {
    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = EnrolReply::decode(&bytes);
        if let Ok(request) = EnrolRequest::decode(&bytes) {
            let reply = answer(&mut Cluster::new().authority, NOW, &request);
            let refused = matches!(reply, EnrolReply::Refused { .. });
            prop_assert!(refused);
        }
    }
}

#[test]
fn requests_and_replies_have_their_golden_bytes() {
    let signature = |byte| Signature(std::array::from_fn(|at| byte + u8::from(at >= 32))).into();
    let join = Join {
        token: TokenId([1; 8]),
        secret: TokenSecret([2; 16]),
        kind: MemberKind::Coordinator,
        name: name("a"),
        public_key: [3; 32],
        proof: signature(4),
    };
    let renew = Renew {
        certificate: vec![1, 2, 3],
        public_key: [6; 32],
        proof: signature(7),
        new_proof: signature(9),
    };
    let mut golden = Golden::open(env!("CARGO_MANIFEST_DIR"), "enrolment");
    for (name, request) in variants!(EnrolRequest { Join(join), Renew(renew) }) {
        let bytes = request.encode();
        assert_eq!(EnrolRequest::decode(&bytes).unwrap().encode(), bytes);
        golden.bytes(name, &bytes);
    }
    golden.postcards(variants!(EnrolReply {
        Issued { certificate: vec![1], ca: vec![2], member: MemberId([3; 16]) },
        Refused { reason: "r".to_owned(), again: true },
    }));
    golden.close();
}
