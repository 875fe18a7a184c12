//! Signatures that cost nothing: a test that has the CA can check them, and forge them too.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::id::CellId;
use volvox_protocol::random::SplitMix;
use volvox_protocol::time::Timestamp;

use crate::identity::{
    Authenticator, CertificateError, MemberId, MemberIdentity, MemberKind, Signature,
};

/// Bytes of a certificate, about as long as real ones.
const CERTIFICATE: usize = 380;

/// All who were ever issued a certificate.
#[derive(Debug)]
pub struct SimulatedCa {
    identities: Vec<Arc<MemberIdentity>>,
    places: BTreeMap<MemberId, usize>,
}

impl SimulatedCa {
    pub(super) fn new(random: &mut SplitMix, kinds: &[MemberKind]) -> SimulatedCa {
        let mut ca = SimulatedCa { identities: Vec::new(), places: BTreeMap::new() };
        for (place, kind) in kinds.iter().enumerate() {
            let id = u128::from(random.next()) << 64 | u128::from(random.next());
            let member = MemberId(id.to_le_bytes());
            let name = CellId::new(&format!("cell-{place}")).expect("a name of plain letters");
            let (not_before, life) = (Timestamp::from_secs(1), Duration::from_secs(1 << 33));
            let public_key = [0; 32];
            let not_after = not_before + life;
            let kind = *kind;
            ca.places.insert(member, place);
            let identity = MemberIdentity { member, kind, name, public_key, not_before, not_after };
            ca.identities.push(Arc::new(identity));
        }
        ca
    }

    /// Who stands at a place.
    pub fn identity(&self, place: usize) -> &Arc<MemberIdentity> {
        &self.identities[place]
    }

    /// Its certificate: the id, and padding.
    pub fn certificate(&self, place: usize) -> Vec<u8> {
        let mut bytes = self.identities[place].member.0.to_vec();
        bytes.resize(CERTIFICATE, 0);
        bytes
    }
}

/// One member's stamp.
#[derive(Debug, Clone)]
pub struct SimulatedAuthenticator {
    ca: Arc<SimulatedCa>,
    me: MemberId,
}

impl SimulatedAuthenticator {
    /// The stamp of `me`.
    pub fn new(ca: Arc<SimulatedCa>, me: MemberId) -> SimulatedAuthenticator {
        SimulatedAuthenticator { ca, me }
    }
}

impl Authenticator for SimulatedAuthenticator {
    fn sign(&self, statement: &[u8]) -> Signature {
        seal(self.me, statement)
    }

    fn identity(
        &self,
        _now: Timestamp,
        certificate: &[u8],
    ) -> Result<Arc<MemberIdentity>, CertificateError> {
        let id = certificate.first_chunk::<16>().filter(|_| certificate.len() == CERTIFICATE);
        let place = id.and_then(|id| self.ca.places.get(&MemberId(*id)));
        let identity = place.map(|place| self.ca.identities[*place].clone());
        identity.ok_or(CertificateError::Foreign)
    }

    fn verify(&self, identity: &MemberIdentity, statement: &[u8], signature: &Signature) -> bool {
        seal(identity.member, statement) == *signature
    }
}

fn seal(member: MemberId, statement: &[u8]) -> Signature {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for chunk in member.0.chunks(8).chain(statement.chunks(8)) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    }
    let mut signature = Signature::NONE;
    signature.0[..8].copy_from_slice(&hash.to_le_bytes());
    signature.0[63] = 1;
    signature
}
