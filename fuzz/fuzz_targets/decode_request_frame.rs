//! What stands before the body of a request and of a reply, and the frames of a stream.

#![no_main]

use libfuzzer_sys::fuzz_target;
use volvox_mesh::request::frame::{REFUSAL_TEXT, ReplyHead, RequestHead};
use volvox_protocol::stream::Frame;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Some((frame, used))) = Frame::take(rest) {
        let (again, _) = Frame::take(&frame.encode()).unwrap().unwrap();
        // An unknown frame's body is left; text that is not UTF-8 may grow, and is cut again.
        if !frame.is_last() {
            assert_eq!(again, frame);
        }
        rest = &rest[used..];
    }
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
