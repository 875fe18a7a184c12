//! Lists: filtered from a snapshot, told from the changed by a tag, written while they are sent.
//!
//! What is held while a long list is on its way are pointers to records, not their text: a slow reader
//! of 250,000 instances costs two megabytes and no lock.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use hyper::header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use hyper::{Response, StatusCode};
use volvox_protocol::diego::write::Writer;

use super::encoding::Encoding;
use super::reply::{ApiFailure, Body, full};

/// Bytes that are written in one go.
const CHUNK: usize = 64 << 10;

/// Writes one entry behind what is there.
pub(crate) type EntryWriter<T> = Box<dyn Fn(&T, &mut Vec<u8>) -> Result<(), ApiFailure> + Send>;

/// The number that every list of the BBS's messages has for its entries.
const ENTRIES: u32 = 2;

/// A list on its way out: `{"KEY":[…]}`, or messages one after the other.
struct List<T> {
    entries: std::vec::IntoIter<T>,
    write: EntryWriter<T>,
    state: ListCursor,
    key: &'static str,
    encoding: Encoding,
}

enum ListCursor {
    Begin,
    Middle,
    End,
}

impl<T> List<T> {
    /// The next piece of text; none: it is all said.
    fn piece(&mut self) -> Result<Option<Bytes>, ApiFailure> {
        let mut text = Vec::with_capacity(CHUNK + (4 << 10));
        if self.encoding == Encoding::Protobuf {
            return self.messages(text);
        }
        match self.state {
            ListCursor::Begin => {
                text.extend_from_slice(format!("{{\"{}\":[", self.key).as_bytes());
                if let Some(first) = self.entries.next() {
                    (self.write)(&first, &mut text)?;
                }
                self.state = ListCursor::Middle;
            }
            ListCursor::Middle => {}
            ListCursor::End => return Ok(None),
        }
        while text.len() < CHUNK {
            let Some(entry) = self.entries.next() else {
                text.extend_from_slice(b"]}");
                self.state = ListCursor::End;
                break;
            };
            text.push(b',');
            (self.write)(&entry, &mut text)?;
        }
        Ok(Some(text.into()))
    }

    /// The next piece of messages: each with its number and its length before it, and nothing else.
    fn messages(&mut self, mut text: Vec<u8>) -> Result<Option<Bytes>, ApiFailure> {
        if matches!(self.state, ListCursor::End) {
            return Ok(None);
        }
        while text.len() < CHUNK {
            let Some(entry) = self.entries.next() else {
                self.state = ListCursor::End;
                break;
            };
            let mut written = Ok(());
            let write = &self.write;
            Writer(&mut text).message(ENTRIES, |out| written = write(&entry, out.0));
            written?;
        }
        Ok(Some(text.into()))
    }
}

impl<T: Unpin> hyper::body::Body for List<T> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // A record that cannot be written was logged: the text ends short, which no reader takes
        // for whole.
        let piece = self.piece().unwrap_or(None);
        Poll::Ready(piece.map(|text| Ok(Frame::data(text))))
    }
}

/// What tells two lists apart: which entries, in which versions.
#[derive(Default)]
pub(crate) struct Tag(DefaultHasher);

impl Tag {
    /// Takes in one more thing that the list depends on.
    pub(crate) fn add(&mut self, part: impl Hash) {
        part.hash(&mut self.0);
    }

    fn text(&self, encoding: Encoding) -> HeaderValue {
        let kind = match encoding {
            Encoding::Json => "",
            Encoding::Protobuf => "p",
        };
        let text = format!("\"{kind}{:016x}\"", self.0.finish());
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
    }
}

/// Whether the reader has just this already.
fn is_known(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').map(|one| one.trim().trim_start_matches("W/")).any(|one| *tag == one)
    })
}

/// The answer with these entries, or that they are what the reader has.
pub(crate) fn respond<T: Unpin + Send + 'static>(
    headers: &HeaderMap,
    encoding: Encoding,
    key: &'static str,
    entries: Vec<T>,
    tag: &Tag,
    write: EntryWriter<T>,
) -> Result<Response<Body>, ApiFailure> {
    let tag = tag.text(encoding);
    let mut response = if is_known(headers, &tag) {
        let mut response = Response::new(full(Bytes::new()));
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        let entries = entries.into_iter();
        let mut list = List { entries, write, state: ListCursor::Begin, key, encoding };
        let first = list.piece()?.unwrap_or_default();
        // A short list has a length; a long one is sent as it is written.
        let mut response = if matches!(list.state, ListCursor::End) {
            Response::new(full(first))
        } else {
            let rest = list.boxed_unsync();
            Response::new(Prefixed { first: Some(first), rest }.boxed_unsync())
        };
        response.headers_mut().insert(CONTENT_TYPE, encoding.content_type());
        response
    };
    response.headers_mut().insert(ETAG, tag);
    Ok(response)
}

/// A body after a piece that is there already.
struct Prefixed {
    first: Option<Bytes>,
    rest: Body,
}

impl hyper::body::Body for Prefixed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }
}
