//! What a stranger sends to become a member, and what it is answered.

#![no_main]

use libfuzzer_sys::fuzz_target;
use volvox_mesh::tls::enrol::{EnrolReply, EnrolRequest};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = EnrolRequest::decode(bytes) {
        let again = request.encode();
        let read = EnrolRequest::decode(&again).expect("our own request decodes");
        assert_eq!(read.encode(), again);
    }
    if let Ok(reply) = EnrolReply::decode(bytes) {
        let read = EnrolReply::decode(&reply.encode()).expect("our own reply decodes");
        assert_eq!(read, reply);
    }
});
