//! Names for what nobody named.

use data_encoding::HEXLOWER;

use crate::error::Failure;

/// A name that nobody else has, with a word in front.
pub(crate) fn name(word: &str) -> Result<String, Failure> {
    let mut bytes = [0_u8; 5];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::failed(format!("no randomness for a name: {error}")))?;
    Ok(format!("{word}-{}", HEXLOWER.encode(&bytes)))
}
