//! Output, line by line: splitting, and how much is kept in a second.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::time::Duration;

use volvox_protocol::time::{Timestamp, TokenBucket};

use super::wire::CAPTURE_BYTES;

/// Bytes of one line; longer ones are cut into several.
pub(crate) const LINE_BYTES: usize = 61_440;

/// Cuts a stream of bytes into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Takes what was read and gives each line that is complete now. Empty lines are dropped; a
    /// line ends with a line feed or a carriage return, or where it gets too long.
    pub(crate) fn take(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8])) {
        for byte in bytes {
            if *byte == b'\n' || *byte == b'\r' {
                self.flush(&mut line);
                continue;
            }
            if self.rest.len() >= LINE_BYTES {
                let cut = whole_characters(&self.rest);
                let next = self.rest.split_off(cut);
                line(&self.rest);
                self.rest = next;
            }
            self.rest.push(*byte);
        }
    }

    /// Gives what is left without an end.
    pub(crate) fn flush(&mut self, mut line: impl FnMut(&[u8])) {
        if !self.rest.is_empty() {
            line(&self.rest);
            self.rest.clear();
        }
    }
}

/// The length up to which there are whole UTF-8 characters: at most three bytes less.
fn whole_characters(bytes: &[u8]) -> usize {
    let mut end = bytes.len();
    let mut back = 0;
    while back < 3 && end > 0 && bytes[end - 1] & 0b1100_0000 == 0b1000_0000 {
        end -= 1;
        back += 1;
    }
    let Some(first) = end.checked_sub(1).map(|at| bytes[at]) else { return bytes.len() };
    let length = match first {
        0xf0..=0xff => 4,
        0xe0..=0xef => 3,
        0xc0..=0xdf => 2,
        _ => 1,
    };
    if length > back + 1 { end - 1 } else { bytes.len() }
}

/// The end of a stream of bytes, as text.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Tail {
    /// Takes what was read, and lets go of what is too long ago.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let newest = &bytes[bytes.len().saturating_sub(CAPTURE_BYTES)..];
        let over = (self.bytes.len() + newest.len()).saturating_sub(CAPTURE_BYTES);
        self.is_cut |= over > 0 || newest.len() < bytes.len();
        self.bytes.drain(..over);
        self.bytes.extend_from_slice(newest);
    }

    /// What there is of it. The rest of a character that was cut is left out; other bytes that are
    /// no text are replaced, and count with what replaces them.
    pub(crate) fn text(&self) -> String {
        let is_rest = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
        let rest = self.bytes.iter().take(3).take_while(is_rest).count();
        let whole = &self.bytes[if self.is_cut { rest } else { 0 }..];
        let text = String::from_utf8_lossy(whole);
        let from = text.ceil_char_boundary(text.len().saturating_sub(CAPTURE_BYTES));
        text[from..].to_owned()
    }
}

/// A bucket of bytes that fills by the second: what finds no room is dropped.
#[derive(Debug)]
pub(crate) struct Rate {
    bytes_per_second: u64,
    bucket: TokenBucket,
    told_at: Option<Timestamp>,
}

/// What becomes of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineAction {
    /// It is kept.
    Keep,
    /// It is dropped, and that is to be told.
    DropAndTell,
    /// It is dropped.
    Drop,
}

impl Rate {
    pub(crate) fn new(bytes_per_second: u64, now: Timestamp) -> Self {
        let bucket = TokenBucket::full(now, bytes_per_second, bytes_per_second);
        Rate { bytes_per_second, bucket, told_at: None }
    }

    /// Judges a line. After one that found no room everything is dropped for a second.
    pub(crate) fn judge(&mut self, now: Timestamp, bytes: usize) -> LineAction {
        if self.told_at.is_some_and(|told_at| now.since(told_at) < Duration::from_secs(1)) {
            return LineAction::Drop;
        }
        if self.bucket.take(now, bytes as u64) {
            return LineAction::Keep;
        }
        // A limit of nothing is meant to be silent.
        if self.bytes_per_second == 0 {
            return LineAction::Drop;
        }
        self.told_at = Some(now);
        LineAction::DropAndTell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut lines, mut all) = (Lines::default(), Vec::new());
        for chunk in chunks {
            lines.take(chunk, |line| all.push(line.to_vec()));
        }
        lines.flush(|line| all.push(line.to_vec()));
        all
    }

    #[test]
    fn lines_end_where_they_end_however_they_arrive() {
        let expected: Vec<Vec<u8>> = [&b"one"[..], b"two", b"three"].map(<[u8]>::to_vec).into();
        assert_eq!(lines(&[b"one\ntwo\r\n\nthree"]), expected);
        assert_eq!(lines(&[b"o", b"ne\nt", b"wo\r", b"\nthree\n"]), expected);
        assert_eq!(lines(&[b"", b"\n\n"]), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn a_long_line_is_cut_between_characters_and_loses_none() {
        for character in ["a", "ä", "€", "😀"] {
            let text = character.repeat(LINE_BYTES / character.len() + 100);
            let cut = lines(&[text.as_bytes()]);
            assert!(cut.len() > 1 && cut.iter().all(|line| line.len() <= LINE_BYTES));
            assert!(cut.iter().all(|line| std::str::from_utf8(line).is_ok()), "{character}");
            assert_eq!(cut.concat(), text.as_bytes());
        }
        let garbage = vec![0x80; LINE_BYTES * 2 + 5];
        assert_eq!(lines(&[&garbage]).concat(), garbage, "bytes that are no text are kept too");
    }

    #[test]
    fn the_end_of_an_output_is_kept_however_it_arrives() {
        let tail = |chunks: &[&[u8]]| {
            let mut tail = Tail::default();
            for chunk in chunks {
                tail.take(chunk);
            }
            tail.text()
        };
        assert_eq!(tail(&[]), "");
        assert_eq!(tail(&[b"a\n", b"b"]), "a\nb");
        assert_eq!(tail(&[b"\x80x\xff"]), "\u{fffd}x\u{fffd}", "what is no text is replaced");
        let text: String = (0..3_000).map(|nth| format!("{nth} €\n")).collect();
        let end = &text[text.ceil_char_boundary(text.len() - CAPTURE_BYTES)..];
        assert!(end.len() > CAPTURE_BYTES - 4);
        assert_eq!(tail(&[text.as_bytes()]), end);
        assert_eq!(tail(&text.as_bytes().chunks(7).collect::<Vec<_>>()), end);
        let garbage = tail(&[&[0xff; 2 * CAPTURE_BYTES]]);
        assert!(garbage.len() <= CAPTURE_BYTES && garbage.len() > CAPTURE_BYTES - 4);
    }

    #[test]
    fn what_is_too_much_is_dropped_and_told_of_once_a_second() {
        let at = |ms: u64| Timestamp::from_secs(10) + Duration::from_millis(ms);
        let mut rate = Rate::new(100, at(0));
        let steps = [
            (0, 60, LineAction::Keep),
            (1, 40, LineAction::Keep),
            (2, 10, LineAction::DropAndTell),
            (500, 1, LineAction::Drop),
            (1_001, 1, LineAction::Drop),
            (1_002, 100, LineAction::Keep),
            (1_003, 1, LineAction::DropAndTell),
        ];
        for (ms, bytes, verdict) in steps {
            assert_eq!(rate.judge(at(ms), bytes), verdict, "at {ms} ms");
        }
        let mut silent = Rate::new(0, at(0));
        assert_eq!(silent.judge(at(5_000), 1), LineAction::Drop);
    }
}
