//! Base64, as event streams carry messages: the standard letters, with padding.

const LETTERS: [u8; 64] = *b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes these bytes as letters behind what is there.
pub fn put(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let nth = |at: usize| u32::from(three.get(at).copied().unwrap_or_default());
        let bits = nth(0) << 16 | nth(1) << 8 | nth(2);
        for (letter, shift) in (0..).zip([18, 12, 6, 0]) {
            let is_said = letter <= three.len();
            out.push(if is_said { LETTERS[(bits >> shift & 63) as usize] } else { b'=' });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_those_of_the_standard() {
        for (bytes, letters) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (&[0xfb, 0xff, 0xbf], "+/+/"),
        ] {
            let mut out = Vec::new();
            put(bytes, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), letters);
        }
    }
}
