//! What stands before the body of a request and of a reply.

#![no_main]

use libfuzzer_sys::fuzz_target;
use volvox_mesh::request::frame::{REFUSAL_TEXT, ReplyHead, RequestHead};

fuzz_target!(|bytes: &[u8]| {
    if let Some((head, _)) = bytes.split_first_chunk()
        && let Some(read) = RequestHead::decode(head)
    {
        assert_eq!(read.encode(), *head);
    }
    if let Some((head, text)) = bytes.split_first_chunk()
        && let Some(read) = ReplyHead::decode(head)
    {
        let refusal = read.refusal(text).to_string();
        // What is not UTF-8 grows to three bytes, and some words stand before it.
        assert!(refusal.len() <= 3 * REFUSAL_TEXT + 100);
    }
});
