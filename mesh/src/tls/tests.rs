//! Tests of several modules together, and the test cluster that other tests use too.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use volvox_protocol::id::CellId;
use volvox_protocol::time::Timestamp;

use super::authority::{Authority, VALIDITY};
use super::certificate::{CaCertificate, CertificateContent, issue, issue_ca};
use super::credentials::Credentials;
use super::enrol::{EnrolReply, accept_join, answer, request_join};
use super::key::MemberKey;
use super::registry::{NameConflict, TokenOrder};
use super::token::JoinToken;
use crate::identity::{MemberId, MemberKind};

mod authority;
mod credentials;
mod enrol;
mod handshake;

pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// A day in 2026.
pub(super) const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);

pub(super) fn name(text: &str) -> CellId {
    CellId::new(text).unwrap()
}

pub(super) fn order() -> TokenOrder {
    TokenOrder {
        kind: MemberKind::Cell,
        cell: None,
        clash: NameConflict::Refuse,
        uses: 1,
        lifetime: DAY,
        label: "rack 7".into(),
    }
}

/// A certificate authority (CA) without a directory, for tests of certificates.
pub(super) struct Ca {
    pub(super) key: MemberKey,
    pub(super) certificate: CaCertificate,
}

impl Ca {
    pub(super) fn new() -> Self {
        let key = MemberKey::generate().unwrap();
        let certificate = CaCertificate::parse(&issue_ca(NOW, &key)).unwrap();
        Ca { key, certificate }
    }

    pub(super) fn terms(
        &self,
        key: &MemberKey,
        kind: MemberKind,
        text: &str,
    ) -> CertificateContent {
        CertificateContent {
            member: MemberId([7; 16]),
            kind,
            name: name(text),
            public_key: key.public(),
            serial: 300,
            not_before: NOW,
            not_after: NOW + VALIDITY,
        }
    }

    pub(super) fn credentials(&self, kind: MemberKind, text: &str) -> Credentials {
        let key = Arc::new(MemberKey::generate().unwrap());
        let certificate = issue(&self.key, &self.terms(&key, kind, text));
        Credentials::new(key, certificate, self.certificate.clone()).unwrap()
    }
}

/// A CA in a directory of its own.
pub(super) struct Cluster {
    pub(super) authority: Authority,
    pub(super) folder: TempDir,
}

impl Cluster {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::open(NOW, &folder.path().join("ca"), VALIDITY).unwrap();
        Cluster { authority, folder }
    }

    /// Reopens the CA as after `kill -9`: only the disk is left.
    pub(super) fn reopen(self, now: Timestamp) -> Self {
        let Cluster { authority, folder } = self;
        drop(authority);
        let authority = Authority::open(now, &folder.path().join("ca"), VALIDITY).unwrap();
        Cluster { authority, folder }
    }

    pub(super) fn token(&mut self, now: Timestamp, order: TokenOrder) -> JoinToken {
        let token = self.authority.create_token(now, vec!["10.0.0.1:7400".into()], order).unwrap();
        JoinToken::parse(&token.line()).unwrap()
    }

    pub(super) fn ask(
        &mut self,
        now: Timestamp,
        token: &JoinToken,
        text: &str,
        key: &MemberKey,
    ) -> EnrolReply {
        let request = request_join(token, MemberKind::Cell, &name(text), key);
        let read = super::enrol::EnrolRequest::decode(&request.encode()).unwrap();
        let reply = answer(&mut self.authority, now, &read);
        EnrolReply::decode(&reply.encode()).unwrap()
    }

    /// A cell that joined with a token of its own.
    pub(super) fn cell(&mut self, now: Timestamp, text: &str) -> Credentials {
        let token = self.token(now, order());
        let key = Arc::new(MemberKey::generate().unwrap());
        let reply = self.ask(now, &token, text, &key);
        accept_join(now, &token, MemberKind::Cell, &name(text), key, reply).unwrap()
    }
}
