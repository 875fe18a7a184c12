//! Signatures that cost nothing: whoever has the ledger can check them, and forge them too.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::id::CellId;
use volvox_protocol::random::SplitMix;
use volvox_protocol::time::Timestamp;

use crate::identity::{CertificateError, Holder, Kind, MemberId, Notary, Signature};

/// Bytes of a certificate, about as long as real ones.
const CERTIFICATE: usize = 380;

/// All who were ever issued a certificate.
#[derive(Debug)]
pub struct Ledger {
    holders: Vec<Arc<Holder>>,
    places: BTreeMap<MemberId, usize>,
}

impl Ledger {
    pub(super) fn new(random: &mut SplitMix, kinds: &[Kind]) -> Ledger {
        let mut ledger = Ledger { holders: Vec::new(), places: BTreeMap::new() };
        for (place, kind) in kinds.iter().enumerate() {
            let id = u128::from(random.next()) << 64 | u128::from(random.next());
            let member = MemberId(id.to_le_bytes());
            let name = CellId::new(&format!("cell-{place}")).expect("a name of plain letters");
            let (not_before, life) = (Timestamp::from_secs(1), Duration::from_secs(1 << 33));
            let public_key = [0; 32];
            let not_after = not_before + life;
            let kind = *kind;
            ledger.places.insert(member, place);
            let holder = Holder { member, kind, name, public_key, not_before, not_after };
            ledger.holders.push(Arc::new(holder));
        }
        ledger
    }

    /// Who stands at a place.
    pub fn holder(&self, place: usize) -> &Arc<Holder> {
        &self.holders[place]
    }

    /// Its certificate: the id, and padding.
    pub fn certificate(&self, place: usize) -> Vec<u8> {
        let mut bytes = self.holders[place].member.0.to_vec();
        bytes.resize(CERTIFICATE, 0);
        bytes
    }
}

/// One member's stamp.
#[derive(Debug, Clone)]
pub struct Stamp {
    ledger: Arc<Ledger>,
    me: MemberId,
}

impl Stamp {
    /// The stamp of `me`.
    pub fn new(ledger: Arc<Ledger>, me: MemberId) -> Stamp {
        Stamp { ledger, me }
    }
}

impl Notary for Stamp {
    fn sign(&self, statement: &[u8]) -> Signature {
        seal(self.me, statement)
    }

    fn holder(&self, _now: Timestamp, certificate: &[u8]) -> Result<Arc<Holder>, CertificateError> {
        let id = certificate.first_chunk::<16>().filter(|_| certificate.len() == CERTIFICATE);
        let place = id.and_then(|id| self.ledger.places.get(&MemberId(*id)));
        let holder = place.map(|place| self.ledger.holders[*place].clone());
        holder.ok_or(CertificateError::Foreign)
    }

    fn verify(&self, holder: &Holder, statement: &[u8], signature: &Signature) -> bool {
        seal(holder.member, statement) == *signature
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
