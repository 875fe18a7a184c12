//! Server-sent events, read line by line. Comments and fields that nobody here needs are left out.

use std::io::{self, BufRead};

/// Bytes of one event, at most: a definition with all that may be in it, twice.
const MOST_BYTES: usize = 16 << 20;

/// One thing that the stream said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// Its place in the stream; empty: it has none.
    pub(crate) id: String,
    /// What kind; empty: only the place is told.
    pub(crate) name: String,
    /// JSON.
    pub(crate) data: String,
}

/// Reads one event; none: the stream has ended.
pub(crate) fn next(from: &mut impl BufRead) -> io::Result<Option<SseEvent>> {
    let mut event = SseEvent::default();
    let mut some = false;
    let mut line = Vec::new();
    let mut read = 0;
    loop {
        line.clear();
        let length = io::Read::take(&mut *from, MOST_BYTES as u64).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(None);
        }
        read += length;
        if read > MOST_BYTES {
            return Err(io::Error::other(format!("an event of more than {MOST_BYTES} bytes")));
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        if text.is_empty() {
            if some {
                return Ok(Some(event));
            }
            continue;
        }
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => value.clone_into(&mut event.id),
            "event" => value.clone_into(&mut event.name),
            "data" => {
                if !event.data.is_empty() {
                    event.data.push('\n');
                }
                event.data.push_str(value);
            }
            _ => continue,
        }
        some = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<(String, String, String)> {
        let mut from = text.as_bytes();
        let mut found = Vec::new();
        while let Some(event) = next(&mut from).unwrap() {
            found.push((event.id, event.name, event.data));
        }
        found
    }

    #[test]
    fn events_are_read_with_their_places() {
        let text = ": hello\nretry: 1000\n\nid: 7.1\n\nid: 7.2\nevent: x\ndata: {\"a\":1}\n\n\
                    : heartbeat\nid: 7.2\r\n\r\nevent: closing\ndata: a\ndata:b\n\nevent: cut";
        let own = |id: &str, name: &str, data: &str| (id.into(), name.into(), data.into());
        let expected = vec![
            own("7.1", "", ""),
            own("7.2", "x", "{\"a\":1}"),
            own("7.2", "", ""),
            own("", "closing", "a\nb"),
        ];
        assert_eq!(all(text), expected);
    }

    #[test]
    fn an_endless_event_is_given_up() {
        let long = format!("data: {}\n", "x".repeat(1 << 20)).repeat(20);
        assert!(next(&mut long.as_bytes()).is_err());
    }
}
