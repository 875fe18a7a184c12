//! Every reader of strangers' bytes, on thousands of harmed inputs: none panics, and what is read can
//! be written and read again. The fuzz targets of the same names look longer; this runs always.

use std::time::Duration;

use volvox_mesh::identity::MemberKind;
use volvox_mesh::request::RpcRefusal;
use volvox_mesh::request::frame::{self, REPLY_HEAD, ReplyHead, RequestHead};
use volvox_mesh::tls::authority::Authority;
use volvox_mesh::tls::certificate::{CaCertificate, read_unsigned};
use volvox_mesh::tls::enrol::accept_join;
use volvox_mesh::tls::enrol::{EnrolReply, EnrolRequest, answer, request_join, request_renewal};
use volvox_mesh::tls::key::MemberKey;
use volvox_mesh::tls::registry::{NameConflict, TokenOrder};
use volvox_mesh::tls::token::JoinToken;
use volvox_protocol::id::CellId;
use volvox_protocol::random::SplitMix;
use volvox_protocol::time::Timestamp;

const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);
const ROUNDS: usize = 5_000;

/// Samples of what the readers read.
struct Samples {
    token: JoinToken,
    certificate: Vec<u8>,
    ca: Vec<u8>,
    requests: Vec<Vec<u8>>,
    replies: Vec<Vec<u8>>,
}

fn samples() -> Samples {
    let folder = tempfile::tempdir().expect("a sample is good");
    let day = Duration::from_secs(86_400);
    let mut authority =
        Authority::open(NOW, &folder.path().join("ca"), day * 30).expect("a sample is good");
    let order = TokenOrder {
        kind: MemberKind::Cell,
        cell: None,
        clash: NameConflict::Refuse,
        uses: 1,
        lifetime: day,
        label: "a sample".into(),
    };
    let addresses = vec!["10.0.0.1:7400".into(), "[fd00::1]:7400".into()];
    let token = authority.create_token(NOW, addresses, order).expect("a sample is good");
    let name = CellId::new("cell-1").expect("a sample is good");
    let key = std::sync::Arc::new(MemberKey::generate().expect("a sample is good"));
    let join = request_join(&token, MemberKind::Cell, &name, &key);
    let issued = answer(&mut authority, NOW, &join);
    let refused = answer(&mut authority, NOW, &join_again(&token, &name));
    let EnrolReply::Issued { certificate, ca, .. } = issued.clone() else { panic!("{issued:?}") };
    let replies = vec![issued.encode(), refused.encode()];
    let cell =
        accept_join(NOW, &token, MemberKind::Cell, &name, key, issued).expect("a sample is good");
    let renewal = request_renewal(&cell, &MemberKey::generate().expect("a sample is good"));
    let requests = vec![join.encode(), renewal.encode()];
    Samples { token, certificate, ca, requests, replies }
}

/// By another key: the token is used up.
fn join_again(token: &JoinToken, name: &CellId) -> EnrolRequest {
    request_join(token, MemberKind::Cell, name, &MemberKey::generate().expect("a sample is good"))
}

/// Changes, cuts, repeats or adds bytes; sometimes it is noise altogether.
fn harmed(random: &mut SplitMix, sample: &[u8]) -> Vec<u8> {
    let byte = |random: &mut SplitMix| random.next().to_le_bytes()[0];
    let mut bytes = sample.to_vec();
    if random.once_in(8) {
        return (0..random.below(400)).map(|_| byte(random)).collect();
    }
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len().max(1)).min(bytes.len());
        match random.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, byte(random)),
            2 => bytes.extend_from_within(at..),
            3 if at < bytes.len() => bytes[at] = byte(random),
            _ if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            _ => {}
        }
    }
    bytes
}

#[test]
fn no_harmed_certificate_panics_or_is_believed() {
    let samples = samples();
    let ca = CaCertificate::parse(&samples.ca).unwrap();
    let identity = ca.read(&samples.certificate).unwrap();
    let mut random = SplitMix(1);
    let mut claimed = 0;
    for round in 0..ROUNDS {
        let sample = if round % 5 == 0 { &samples.ca } else { &samples.certificate };
        let der = harmed(&mut random, sample);
        if let Ok((identity, _)) = read_unsigned(&der) {
            claimed += 1;
            assert!(identity.not_before < identity.not_after);
        }
        if let Ok(read) = ca.read(&der) {
            assert_eq!((read, &der), (identity.clone(), &samples.certificate));
        }
        let _ = CaCertificate::parse(&der);
    }
    assert!(claimed > 50, "{claimed}: the signature has to be looked at to know");
}

#[test]
fn no_harmed_enrolment_panics() {
    let samples = samples();
    let mut random = SplitMix(2);
    let mut read = 0;
    for round in 0..ROUNDS {
        let bytes = harmed(&mut random, &samples.requests[round % 2]);
        if let Ok(request) = EnrolRequest::decode(&bytes) {
            read += 1;
            let again = request.encode();
            assert_eq!(EnrolRequest::decode(&again).unwrap().encode(), again);
        }
        let bytes = harmed(&mut random, &samples.replies[round % 2]);
        if let Ok(reply) = EnrolReply::decode(&bytes) {
            read += 1;
            assert_eq!(EnrolReply::decode(&reply.encode()).unwrap(), reply);
        }
    }
    assert!(read > 100, "{read}");
}

#[test]
fn no_harmed_token_panics_or_is_taken_for_another() {
    let samples = samples();
    let line = samples.token.line();
    let mut random = SplitMix(3);
    for _ in 0..ROUNDS {
        let bytes = harmed(&mut random, line.as_bytes());
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(read) = JoinToken::parse(&text) {
            let same = (read.ca(), read.id()) == (samples.token.ca(), samples.token.id());
            assert!(same && read.addresses() == samples.token.addresses(), "{text}");
        }
    }
}

#[test]
fn no_harmed_head_of_a_request_panics() {
    let mut random = SplitMix(4);
    let (mut requests, mut replies) = (0, 0);
    for round in 0..ROUNDS {
        let head = RequestHead {
            method: u16::try_from(round).unwrap(),
            deadline: Duration::from_millis(random.next() >> 32),
            length: u32::MAX,
        };
        let bytes = harmed(&mut random, &head.encode());
        if let Some((head, _)) = bytes.split_first_chunk()
            && let Some(read) = RequestHead::decode(head)
        {
            requests += 1;
            assert_eq!(read.encode(), *head);
        }
        let reply = frame::reply(Err(RpcRefusal::Failed("no room".into())));
        let bytes = harmed(&mut random, &reply);
        if let Some((head, text)) = bytes.split_first_chunk::<REPLY_HEAD>()
            && let Some(read) = ReplyHead::decode(head)
        {
            replies += 1;
            assert!(!read.refusal(text).to_string().is_empty());
        }
    }
    assert!(requests > 1_000 && replies > 1_000, "{requests} and {replies}");
}
