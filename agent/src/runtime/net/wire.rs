//! The bytes of netlink: messages and attributes, written and read. No socket and no meaning here;
//! `netlink.rs` sends them, `link.rs`, `nft.rs` and `conntrack.rs` know what they say. Reading never
//! panics: what does not fit its own lengths is [`Malformed`].
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

/// Length of the header that every message begins with.
pub(super) const HEADER: usize = 16;

/// The kernel's answer to a request: an error number, 0 for done.
pub(super) const NLMSG_ERROR: u16 = 2;
/// The end of a dump.
pub(super) const NLMSG_DONE: u16 = 3;

pub(super) const NLM_F_REQUEST: u16 = 0x1;
pub(super) const NLM_F_ACK: u16 = 0x4;
/// The dump met a change under way and may be inconsistent.
pub(super) const NLM_F_DUMP_INTR: u16 = 0x10;
pub(super) const NLM_F_DUMP: u16 = 0x300;
pub(super) const NLM_F_EXCL: u16 = 0x200;
pub(super) const NLM_F_CREATE: u16 = 0x400;
pub(super) const NLM_F_APPEND: u16 = 0x800;

/// In an answer: the request is quoted by its header only.
const NLM_F_CAPPED: u16 = 0x100;
/// In an answer: attributes follow, the kernel's words among them.
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// Marks an attribute that holds attributes; newer parts of the kernel insist on it.
const NESTED: u16 = 0x8000;
/// The bits of an attribute's kind that name it.
const KIND: u16 = 0x3fff;

/// Bytes that contradict their own lengths, or a value of the wrong size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("netlink bytes that do not fit together")]
pub struct Malformed;

/// A message being written.
#[derive(Debug, Clone)]
pub(super) struct NetlinkMessage {
    bytes: Vec<u8>,
    /// An attribute outgrew the 16 bits of its length: the message must not be sent.
    overflown: bool,
}

impl NetlinkMessage {
    /// `fixed` is the header of the family, which stands between ours and the attributes.
    pub(super) fn new(kind: u16, flags: u16, fixed: &[u8]) -> NetlinkMessage {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        let mut message = NetlinkMessage { bytes, overflown: false };
        message.raw(fixed);
        message
    }

    /// Asks for an answer even when all goes well.
    pub(super) fn wants_ack(&mut self) {
        let flags = u16::from_ne_bytes([self.bytes[6], self.bytes[7]]) | NLM_F_ACK;
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    }

    /// Bytes as they are, padded to four.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    pub(super) fn attr(mut self, kind: u16, payload: &[u8]) -> NetlinkMessage {
        let start = self.open(kind);
        self.bytes.extend_from_slice(payload);
        self.close(start);
        self
    }

    pub(super) fn u8(self, kind: u16, value: u8) -> NetlinkMessage {
        self.attr(kind, &[value])
    }

    pub(super) fn u32(self, kind: u16, value: u32) -> NetlinkMessage {
        self.attr(kind, &value.to_ne_bytes())
    }

    /// In network order, as all numbers of netfilter are.
    pub(super) fn be32(self, kind: u16, value: u32) -> NetlinkMessage {
        self.attr(kind, &value.to_be_bytes())
    }

    /// In network order.
    pub(super) fn be64(self, kind: u16, value: u64) -> NetlinkMessage {
        self.attr(kind, &value.to_be_bytes())
    }

    /// A text with its closing zero.
    pub(super) fn text(mut self, kind: u16, text: &str) -> NetlinkMessage {
        let start = self.open(kind);
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        self.close(start);
        self
    }

    /// An attribute of attributes, which `fill` writes.
    pub(super) fn nest(
        mut self,
        kind: u16,
        fill: impl FnOnce(NetlinkMessage) -> NetlinkMessage,
    ) -> NetlinkMessage {
        let start = self.open(kind | NESTED);
        let mut filled = fill(self);
        filled.close(start);
        filled
    }

    /// The finished bytes, or nothing if an attribute is longer than netlink can say.
    pub(super) fn finish(mut self, sequence: u32) -> Option<Vec<u8>> {
        let length = u32::try_from(self.bytes.len()).ok().filter(|_| !self.overflown)?;
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        Some(self.bytes)
    }

    fn open(&mut self, kind: u16) -> usize {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        start
    }

    fn close(&mut self, start: usize) {
        match u16::try_from(self.bytes.len() - start) {
            Ok(length) => self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes()),
            Err(_) => self.overflown = true,
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// A message as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NetlinkReply<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(super) payload: &'a [u8],
}

/// The messages of one datagram, in order.
pub(super) fn replies(mut bytes: &[u8]) -> Result<Vec<NetlinkReply<'_>>, Malformed> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let length = usize::try_from(u32_at(bytes, 0)?).map_err(|_| Malformed)?;
        let payload = bytes.get(HEADER..length).ok_or(Malformed)?;
        found.push(NetlinkReply {
            kind: u16_at(bytes, 4)?,
            flags: u16_at(bytes, 6)?,
            sequence: u32_at(bytes, 8)?,
            payload,
        });
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(found)
}

/// What an answer says: the error number (0: done) and the kernel's words, if it gave some.
pub(super) fn outcome(reply: &NetlinkReply<'_>) -> Result<(i32, String), Malformed> {
    let errno = i32::from_ne_bytes(array_at(reply.payload, 0)?);
    let mut words = String::new();
    if reply.flags & NLM_F_ACK_TLVS != 0 {
        let quoted = match reply.flags & NLM_F_CAPPED {
            0 => usize::try_from(u32_at(reply.payload, 4)?).map_err(|_| Malformed)?,
            _ => HEADER,
        };
        let start = quoted.checked_next_multiple_of(4).and_then(|at| at.checked_add(4));
        let rest = start.and_then(|at| reply.payload.get(at..)).ok_or(Malformed)?;
        words = text_of(rest, NLMSGERR_ATTR_MSG)?.unwrap_or_default();
    }
    Ok((errno.checked_neg().ok_or(Malformed)?, words))
}

/// The attributes that stand one after the other in these bytes.
pub(super) fn attributes(mut bytes: &[u8]) -> Result<Vec<(u16, &[u8])>, Malformed> {
    let mut found = Vec::new();
    // Fewer than four bytes at the end are padding.
    while bytes.len() >= 4 {
        let length = usize::from(u16_at(bytes, 0)?);
        found.push((u16_at(bytes, 2)? & KIND, bytes.get(4..length).ok_or(Malformed)?));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(found)
}

/// The first attribute of this kind.
pub(super) fn find(bytes: &[u8], kind: u16) -> Result<Option<&[u8]>, Malformed> {
    let all = attributes(bytes)?;
    Ok(all.into_iter().find(|(given, _)| *given == kind).map(|(_, payload)| payload))
}

/// The text of the first attribute of this kind, up to its zero.
pub(super) fn text_of(bytes: &[u8], kind: u16) -> Result<Option<String>, Malformed> {
    Ok(find(bytes, kind)?.map(|payload| {
        let text = payload.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }))
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Malformed> {
    Ok(u16::from_ne_bytes(array_at(bytes, at)?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Malformed> {
    Ok(u32::from_ne_bytes(array_at(bytes, at)?))
}

pub(super) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Malformed> {
    let end = at.checked_add(N).ok_or(Malformed)?;
    bytes.get(at..end).and_then(|part| part.try_into().ok()).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // The literals below are of a little-endian machine, as all that we build for are.

    #[test]
    fn a_message_is_padded_and_counts_its_bytes() {
        let message = NetlinkMessage::new(0x10, NLM_F_ACK, &[1, 2]).text(3, "br").u32(4, 1500);
        let expected = [
            36, 0, 0, 0, 0x10, 0, 5, 0, 7, 0, 0, 0, 0, 0, 0, 0, // header, request and ack
            1, 2, 0, 0, // the family's, padded
            7, 0, 3, 0, b'b', b'r', 0, 0, // 7 bytes, the eighth is padding
            8, 0, 4, 0, 0xdc, 5, 0, 0,
        ];
        assert_eq!(message.clone().finish(7).unwrap(), expected);
        let nested = message.nest(1, |inner| inner.u8(2, 9)).finish(7).unwrap();
        assert_eq!(nested[36..], [12, 0, 1, 0x80, 5, 0, 2, 0, 9, 0, 0, 0]);
    }

    #[test]
    fn an_attribute_beyond_its_length_is_not_sent() {
        let long = vec![0; usize::from(u16::MAX)];
        assert_eq!(NetlinkMessage::new(1, 0, &[]).attr(1, &long).finish(1), None);
        assert_eq!(NetlinkMessage::new(1, 0, &[]).nest(1, |m| m.attr(1, &long)).finish(1), None);
    }

    #[test]
    fn two_messages_of_a_datagram_are_told_apart() {
        let mut bytes = NetlinkMessage::new(20, 0, &[1, 2, 3, 4]).finish(1).unwrap();
        bytes.extend(NetlinkMessage::new(NLMSG_DONE, 0, &[]).finish(2).unwrap());
        let found = replies(&bytes).unwrap();
        assert_eq!(
            (found[0].kind, found[0].sequence, found[0].payload),
            (20, 1, &[1, 2, 3, 4][..])
        );
        assert_eq!((found[1].kind, found[1].sequence, found[1].payload), (NLMSG_DONE, 2, &[][..]));
        assert_eq!(replies(&bytes[..bytes.len() - 1]), Err(Malformed));
        assert_eq!(replies(&[15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Err(Malformed));
    }

    #[test]
    fn an_error_brings_its_number_and_words() {
        let mut payload = (-17_i32).to_ne_bytes().to_vec();
        payload.extend([0; HEADER]);
        payload.extend([9, 0, 1, 0, b't', b'a', b'k', b'e', 0, 0, 0, 0]);
        let flags = NLM_F_CAPPED | NLM_F_ACK_TLVS;
        let reply = NetlinkReply { kind: NLMSG_ERROR, flags, sequence: 0, payload: &payload };
        assert_eq!(outcome(&reply), Ok((17, "take".into())));
        // Not capped: the request is quoted whole, and its length says how far.
        payload[4] = 20;
        payload.splice(20..20, [1, 2, 3, 4]);
        let whole = NetlinkReply {
            kind: NLMSG_ERROR,
            flags: NLM_F_ACK_TLVS,
            sequence: 0,
            payload: &payload,
        };
        assert_eq!(outcome(&whole), Ok((17, "take".into())));
        let silent = NetlinkReply { flags: 0, payload: &payload[..4], ..whole };
        assert_eq!(outcome(&silent), Ok((17, String::new())));
        assert_eq!(outcome(&NetlinkReply { payload: &payload[..3], ..silent }), Err(Malformed));
    }

    #[test]
    fn attributes_that_lie_about_their_length_are_refused() {
        let good = [6, 0, 1, 0x80, 7, 8, 0, 0, 5, 0, 2, 0, 9];
        assert_eq!(attributes(&good), Ok(vec![(1, &[7, 8][..]), (2, &[9][..])]));
        for bad in [&[3, 0, 1, 0][..], &[9, 0, 1, 0, 1, 2, 3, 4], &[0, 0, 0, 0]] {
            assert_eq!(attributes(bad), Err(Malformed), "of {bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for reply in replies(&bytes).unwrap_or_default() {
                let _ = outcome(&reply);
                let _ = attributes(reply.payload);
            }
            let flags = NLM_F_ACK_TLVS;
            let _ = outcome(&NetlinkReply { kind: 2, flags, sequence: 0, payload: &bytes });
            let _ = text_of(&bytes, 1);
        }
    }
}
