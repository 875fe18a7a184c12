//! The line that an operator pastes. What is taken for a token writes a line that is taken for the
//! same one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use volvox_mesh::tls::token::JoinToken;

fuzz_target!(|line: &str| {
    let Ok(token) = JoinToken::parse(line) else { return };
    let again = JoinToken::parse(&token.line()).expect("our own line is a token");
    assert_eq!(again.addresses(), token.addresses());
    assert_eq!((again.ca(), again.id()), (token.ca(), token.id()));
});
