//! Certificates, as far as they are read before their signature is checked. What is taken for one
//! stands for a time that does not end before it begins.

#![no_main]

use libfuzzer_sys::fuzz_target;
use volvox_mesh::tls::certificate::{CaCertificate, read_unsigned};

fuzz_target!(|bytes: &[u8]| {
    if let Ok((identity, _)) = read_unsigned(bytes) {
        assert!(identity.not_before <= identity.not_after);
    }
    let _ = CaCertificate::parse(bytes);
});
