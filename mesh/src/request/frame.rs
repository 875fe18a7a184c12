//! Heads of requests and replies: the bytes before a body.
//!
//! A stream carries one request and its reply. Numbers are big-endian.
//! - Request: `V`, method (2 bytes), time in milliseconds that the caller still waits (4), length
//!   of the body (4), body.
//! - Reply: `v`, status (1), length (4), body or text of the refusal.
//!
//! Bytes after the body are not read: a later release may use them. The version of the link, agreed
//! on when the link came up, selects this layout.

use std::time::Duration;

use super::RpcRefusal;

/// Length of the head of a request, in bytes.
pub const REQUEST_HEAD: usize = 11;
/// Length of the head of a reply, in bytes.
pub const REPLY_HEAD: usize = 6;
/// Maximum length of the text of a refusal, in bytes. A longer text is truncated.
pub const REFUSAL_TEXT: usize = 1024;

const REQUEST_MARK: u8 = b'V';
const REPLY_MARK: u8 = b'v';

const OK: u8 = 0;
const UNSUPPORTED: u8 = 1;
const BUSY: u8 = 2;
const TOO_LARGE: u8 = 3;
const MALFORMED: u8 = 4;
const DEADLINE_EXCEEDED: u8 = 5;
const FAILED: u8 = 6;
const NOT_ALLOWED: u8 = 7;

/// Head of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHead {
    /// Number of the request's method.
    pub method: u16,
    /// How long the caller waits for the reply. Milliseconds on the wire.
    pub deadline: Duration,
    /// Length of the body in bytes, as the peer claims it. Do not allocate memory by it.
    pub length: u32,
}

/// Head of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHead {
    /// 0: a body follows. Otherwise the code of the refusal.
    pub status: u8,
    /// Length of the body in bytes, as the peer claims it. Do not allocate memory by it.
    pub length: u32,
}

impl RequestHead {
    /// Encodes the head.
    pub fn encode(&self) -> [u8; REQUEST_HEAD] {
        let mut bytes = [REQUEST_MARK; REQUEST_HEAD];
        let millis = u32::try_from(self.deadline.as_millis()).unwrap_or(u32::MAX);
        bytes[1..3].copy_from_slice(&self.method.to_be_bytes());
        bytes[3..7].copy_from_slice(&millis.to_be_bytes());
        bytes[7..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Decodes the head. `None`: these bytes are not the head of a request.
    pub fn decode(bytes: &[u8; REQUEST_HEAD]) -> Option<Self> {
        let [REQUEST_MARK, m0, m1, d0, d1, d2, d3, l0, l1, l2, l3] = *bytes else { return None };
        Some(Self {
            method: u16::from_be_bytes([m0, m1]),
            deadline: Duration::from_millis(u32::from_be_bytes([d0, d1, d2, d3]).into()),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
        })
    }
}

impl ReplyHead {
    /// Whether a body follows, and not the text of a refusal.
    pub fn is_ok(&self) -> bool {
        self.status == OK
    }

    /// Decodes the head. `None`: these bytes are not the head of a reply.
    pub fn decode(bytes: &[u8; REPLY_HEAD]) -> Option<Self> {
        let [REPLY_MARK, status, l0, l1, l2, l3] = *bytes else { return None };
        Some(Self { status, length: u32::from_be_bytes([l0, l1, l2, l3]) })
    }

    /// The refusal of this status and `text`. An unknown code, from a later release, becomes
    /// `Failed`.
    pub fn refusal(&self, text: &[u8]) -> RpcRefusal {
        let text = String::from_utf8_lossy(&text[..text.len().min(REFUSAL_TEXT)]).into_owned();
        match self.status {
            UNSUPPORTED => RpcRefusal::Unsupported,
            BUSY => RpcRefusal::Busy,
            TOO_LARGE => RpcRefusal::TooLarge,
            MALFORMED => RpcRefusal::Malformed(text),
            DEADLINE_EXCEEDED => RpcRefusal::DeadlineExceeded,
            FAILED => RpcRefusal::Failed(text),
            NOT_ALLOWED => RpcRefusal::NotAllowed(text),
            code => RpcRefusal::Failed(format!("refused with the unknown code {code}: {text}")),
        }
    }
}

/// Encodes a whole reply: head and body.
pub fn reply(answer: Result<Vec<u8>, RpcRefusal>) -> Vec<u8> {
    let (status, mut body) = match answer {
        Ok(body) => (OK, body),
        Err(RpcRefusal::Unsupported) => (UNSUPPORTED, Vec::new()),
        Err(RpcRefusal::Busy) => (BUSY, Vec::new()),
        Err(RpcRefusal::TooLarge) => (TOO_LARGE, Vec::new()),
        Err(RpcRefusal::Malformed(text)) => (MALFORMED, text.into_bytes()),
        Err(RpcRefusal::DeadlineExceeded) => (DEADLINE_EXCEEDED, Vec::new()),
        Err(RpcRefusal::Failed(text)) => (FAILED, text.into_bytes()),
        Err(RpcRefusal::NotAllowed(text)) => (NOT_ALLOWED, text.into_bytes()),
    };
    if status != OK {
        body.truncate(REFUSAL_TEXT);
    }
    let length = u32::try_from(body.len()).expect("the caller measured the body against a limit");
    let mut bytes = Vec::with_capacity(REPLY_HEAD + body.len());
    bytes.extend([REPLY_MARK, status]);
    bytes.extend(length.to_be_bytes());
    bytes.append(&mut body);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use volvox_golden::{Golden, variants};
    use volvox_protocol::cell_rpc::{CellOrders, CellReport, FetchDefinitions, SyncCell};
    use volvox_protocol::stream::{OpenTerminal, ReadLog};

    use super::*;
    use crate::request::Request as _;

    fn read(bytes: &[u8]) -> Option<(ReplyHead, &[u8])> {
        let (head, body) = bytes.split_first_chunk()?;
        Some((ReplyHead::decode(head)?, body))
    }

    #[test]
    fn every_refusal_arrives_as_it_was_sent() {
        for refusal in [
            RpcRefusal::Unsupported,
            RpcRefusal::Busy,
            RpcRefusal::TooLarge,
            RpcRefusal::Malformed("m".into()),
            RpcRefusal::DeadlineExceeded,
            RpcRefusal::Failed("f".into()),
            RpcRefusal::NotAllowed("n".into()),
        ] {
            let bytes = reply(Err(refusal.clone()));
            let (head, text) = read(&bytes).unwrap();
            assert!(!head.is_ok());
            assert_eq!(head.length as usize, text.len());
            assert_eq!(head.refusal(text), refusal);
        }
    }

    #[test]
    fn a_refusal_of_a_later_release_is_a_failure_with_its_code() {
        let head = ReplyHead { status: 200, length: 3 };
        let RpcRefusal::Failed(text) = head.refusal(b"why") else { panic!("not a failure") };
        assert!(text.contains("200") && text.contains("why"), "{text}");
    }

    #[test]
    fn a_long_text_is_cut_and_a_good_body_is_not() {
        let bytes = reply(Err(RpcRefusal::Failed("x".repeat(5000))));
        assert_eq!(bytes.len(), REPLY_HEAD + REFUSAL_TEXT);
        assert_eq!(reply(Ok(vec![7; 5000])).len(), REPLY_HEAD + 5000);
    }

    #[test]
    fn heads_have_their_golden_bytes() {
        let mut golden = Golden::open(env!("CARGO_MANIFEST_DIR"), "requests");
        let head = RequestHead { method: 300, deadline: Duration::from_secs(1), length: 2 };
        golden.bytes("RequestHead", &head.encode());
        golden.bytes("reply", &reply(Ok(vec![7, 8])));
        for (name, refusal) in variants!(RpcRefusal {
            Unsupported,
            Busy,
            TooLarge,
            Malformed("m".into()),
            DeadlineExceeded,
            Failed("f".into()),
            NotAllowed("n".into()),
        }) {
            golden.bytes(name, &reply(Err(refusal)));
        }
        for (name, method) in [
            ("CellReport", CellReport::METHOD),
            ("FetchDefinitions", FetchDefinitions::METHOD),
            ("SyncCell", SyncCell::METHOD),
            ("CellOrders", CellOrders::METHOD),
            ("ReadLog", ReadLog::METHOD),
            ("OpenTerminal", OpenTerminal::METHOD),
        ] {
            golden.text(&format!("method.{name}"), &method.to_string());
        }
        golden.close();
    }

    #[test]
    fn heads_with_another_mark_are_none() {
        let head = RequestHead { method: 1, deadline: Duration::from_secs(1), length: 2 };
        let mut bytes = head.encode();
        assert_eq!(RequestHead::decode(&bytes), Some(head));
        bytes[0] = b'v';
        assert_eq!(RequestHead::decode(&bytes), None);
        assert_eq!(ReplyHead::decode(b"V\0\0\0\0\0"), None);
    }

    proptest! {
        #[test]
        fn request_heads_survive_the_wire(method: u16, millis: u32, length: u32) {
            let deadline = Duration::from_millis(millis.into());
            let head = RequestHead { method, deadline, length };
            prop_assert_eq!(RequestHead::decode(&head.encode()), Some(head));
        }

        #[test]
        fn no_bytes_make_a_head_panic(request: [u8; REQUEST_HEAD], reply: [u8; REPLY_HEAD]) {
            RequestHead::decode(&request);
            if let Some(head) = ReplyHead::decode(&reply) {
                head.refusal(&request);
            }
        }
    }
}
