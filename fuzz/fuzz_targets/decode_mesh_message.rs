//! Packets of the mesh. What decodes has the size that it says, and its bytes decode to the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use volvox_mesh::message::Message;

fuzz_target!(|bytes: &[u8]| {
    let Ok(message) = Message::decode(bytes) else { return };
    let packet = message.encode();
    assert_eq!(packet.len(), message.size());
    assert_eq!(Message::decode(&packet).expect("our own packet decodes"), message);
});
