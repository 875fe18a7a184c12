//! Streams: both directions, back-pressure, ends on either side, limits.

use std::sync::atomic::AtomicUsize;

use serde::{Deserialize, Serialize};
use volvox_protocol::stream::{Frame, Opened};

use super::*;
use crate::request::{AskError, Request, RpcRefusal, StreamHandler, StreamingRequest};
use crate::transport::stream::{FrameReader, FrameWriter, StreamError};

/// Number of bytes in one frame of a flood.
const PIECE: usize = 16 << 10;

/// Opens a stream with this behaviour of the serving side.
#[derive(Debug, Serialize, Deserialize)]
enum Open {
    /// Sends back every frame until the stream ends.
    Echo,
    /// Sends this many numbered frames, as fast as the reader accepts them.
    Flood(u32),
    /// Sends no frame at all.
    Silence,
    /// Resets the stream when a frame comes: an earlier reset would overtake the reply.
    BreakOff,
    /// Panics when a frame comes.
    Panic,
    /// Refuses the request.
    Refused,
}

impl Request for Open {
    const METHOD: u16 = 48;
    const NAME: &'static str = "open";
    type Reply = Opened;
}

impl StreamingRequest for Open {}

/// An ordinary request, in parallel to the streams.
#[derive(Debug, Serialize, Deserialize)]
struct Large(u32);

impl Request for Large {
    const METHOD: u16 = 1;
    const NAME: &'static str = "large";
    type Reply = Vec<u8>;
}

/// State of the serving side, for the test.
#[derive(Default)]
struct Seen {
    inside: AtomicUsize,
    sent: AtomicUsize,
}

struct Inside(Arc<Seen>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

fn talk(open: Open, inside: Inside) -> StreamHandler {
    Box::new(move |reader, writer| {
        Box::pin(async move {
            let _ended = match open {
                Open::Echo => echo(reader, writer).await,
                Open::Flood(pieces) => flood(&inside.0, pieces, reader, writer).await,
                Open::Silence => std::future::pending().await,
                Open::BreakOff => hear(reader).await,
                Open::Panic => {
                    let _heard = hear(reader).await;
                    panic!("on purpose, for a test")
                }
                Open::Refused => Ok(()),
            };
            drop(inside);
        })
    })
}

async fn hear(mut reader: FrameReader) -> Result<(), StreamError> {
    reader.next().await.map(drop)
}

async fn echo(mut reader: FrameReader, mut writer: FrameWriter) -> Result<(), StreamError> {
    while let Some(frame) = reader.next().await? {
        writer.send(&frame).await?;
    }
    writer.finish().await
}

async fn flood(
    seen: &Seen,
    pieces: u32,
    _reader: FrameReader,
    mut writer: FrameWriter,
) -> Result<(), StreamError> {
    for number in 0..pieces {
        writer.send(&Frame::Output(piece(number))).await?;
        seen.sent.fetch_add(PIECE, Ordering::SeqCst);
    }
    writer.finish().await
}

fn piece(number: u32) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(PIECE, 7);
    bytes
}

fn service(seen: &Arc<Seen>) -> Router {
    let seen = seen.clone();
    Router::new().on(|_, large: Large, _| async move { Ok(vec![1; large.0 as usize]) }).on_stream(
        move |_, open: Open| {
            let inside = Inside(seen.clone());
            seen.inside.fetch_add(1, Ordering::SeqCst);
            async move {
                match open {
                    Open::Refused => Err(RpcRefusal::NotAllowed("not this".to_owned())),
                    open => Ok((Opened {}, talk(open, inside))),
                }
            }
        },
    )
}

struct Pair {
    a: Side,
    b: Side,
    seen: Arc<Seen>,
}

async fn pair(change: impl Fn(&mut TransportSettings)) -> Pair {
    let authority = Authority::new();
    let seen = Arc::new(Seen::default());
    let side = |n| Build::new(&authority, n).set(&change).serving(service(&seen)).open();
    let (mut a, mut b) = (side(1), side(2));
    a.link_to(&mut b).await;
    Pair { a, b, seen }
}

impl Side {
    async fn opens(
        &self,
        to: MemberId,
        open: &Open,
    ) -> Result<(FrameReader, FrameWriter), AskError> {
        let opening = self.transport.converse(to, open, PATIENCE);
        let (_, reader, writer) = patiently("a stream", opening).await?;
        Ok((reader, writer))
    }
}

async fn next(reader: &mut FrameReader) -> Result<Option<Frame>, StreamError> {
    patiently("a frame", reader.next()).await
}

impl Seen {
    async fn holds(&self, count: usize) {
        let holds = || self.inside.load(Ordering::SeqCst) == count;
        until(&format!("{count} streams"), holds).await;
    }
}

#[tokio::test]
async fn either_side_opens_streams_and_both_ends_speak() {
    let Pair { a, b, seen } = pair(|_| {}).await;
    for (from, to) in [(&a, b.id), (&b, a.id)] {
        let (mut reader, mut writer) = from.opens(to, &Open::Echo).await.unwrap();
        for n in 0..50_u8 {
            let frame = Frame::Input(vec![n; usize::from(n) * 100]);
            writer.send(&frame).await.unwrap();
            assert_eq!(next(&mut reader).await, Ok(Some(frame)));
        }
        writer.finish().await.unwrap();
        assert_eq!(next(&mut reader).await, Ok(None));
    }
    seen.holds(0).await;
}

#[tokio::test]
async fn a_stream_that_nobody_reads_stands_still_and_holds_up_nothing_else() {
    let Pair { a, b, seen } = pair(|_| {}).await;
    const STREAMS: usize = 8;
    const PIECES: u32 = 512;
    const WINDOW: usize = 1 << 20;
    let mut unread = Vec::new();
    for _ in 0..STREAMS {
        unread.push(a.opens(b.id, &Open::Flood(PIECES)).await.unwrap());
    }
    let sent = || seen.sent.load(Ordering::SeqCst);
    // More than the window of the connection: each stream fills its own window.
    until("full windows", || sent() >= STREAMS * (WINDOW - 2 * PIECE)).await;
    for _ in 0..20 {
        let reply = patiently("a reply", a.transport.ask(b.id, &Large(1 << 20), PATIENCE)).await;
        assert_eq!(reply.unwrap().len(), 1 << 20);
    }
    let stood = sent();
    assert!(stood <= STREAMS * WINDOW, "{stood} bytes were taken from a sender nobody reads");
    // A late reader still receives all frames in order; the other streams stay blocked.
    let (mut reader, _writer) = unread.pop().unwrap();
    for number in 0..PIECES {
        assert_eq!(next(&mut reader).await, Ok(Some(Frame::Output(piece(number)))));
    }
    assert_eq!(next(&mut reader).await, Ok(None));
    assert!(sent() <= (STREAMS - 1) * WINDOW + PIECES as usize * PIECE);
    drop(unread);
    seen.holds(0).await;
}

#[tokio::test]
async fn whoever_gives_up_ends_it_for_the_other() {
    let Pair { a, b, seen } = pair(|_| {}).await;
    for open in [Open::Echo, Open::Silence, Open::Flood(u32::MAX)] {
        let ends = a.opens(b.id, &open).await.unwrap();
        seen.holds(1).await;
        drop(ends);
        seen.holds(0).await;
    }
    let (mut reader, mut writer) = a.opens(b.id, &Open::BreakOff).await.unwrap();
    writer.send(&Frame::StillHere).await.unwrap();
    assert_eq!(next(&mut reader).await, Err(StreamError::BrokenOff));
    seen.holds(0).await;
    let refused = async {
        loop {
            if let Err(error) = writer.send(&Frame::Input(vec![0; PIECE])).await {
                return error;
            }
        }
    };
    assert_eq!(patiently("nobody to send to", refused).await, StreamError::BrokenOff);
}

#[tokio::test]
async fn a_link_that_ends_ends_its_streams() {
    let Pair { a, b, seen } = pair(|_| {}).await;
    let (mut reader, _writer) = a.opens(b.id, &Open::Silence).await.unwrap();
    let (mut served, _other) = b.opens(a.id, &Open::Silence).await.unwrap();
    seen.holds(2).await;
    b.transport.shutdown().await;
    assert!(matches!(next(&mut reader).await, Err(StreamError::Lost(_))));
    assert!(matches!(next(&mut served).await, Err(StreamError::Lost(_))));
    seen.holds(0).await;
}

#[tokio::test]
async fn a_silent_end_is_not_waited_for_for_ever() {
    let Pair { a, b, .. } = pair(|_| {}).await;
    let (reader, _writer) = a.opens(b.id, &Open::Silence).await.unwrap();
    let mut reader = reader.with_idle(Duration::from_millis(100));
    assert_eq!(next(&mut reader).await, Err(StreamError::Silent));
}

#[tokio::test]
async fn streams_are_bounded_and_their_places_come_back() {
    let Pair { a, b, seen } = pair(|settings| settings.streams_per_link = 2).await;
    let first = a.opens(b.id, &Open::Echo).await.unwrap();
    let second = b.opens(a.id, &Open::Echo).await.unwrap();
    for (from, to) in [(&a, b.id), (&b, a.id)] {
        let refused = from.opens(to, &Open::Echo).await.err();
        assert_eq!(refused, Some(AskError::Refused(RpcRefusal::Busy)));
    }
    // Requests have their own slots.
    assert_eq!(a.transport.ask(b.id, &Large(1), PATIENCE).await, Ok(vec![1]));
    drop((first, second));
    seen.holds(0).await;
    let opens = || async { a.opens(b.id, &Open::Echo).await.is_ok() };
    patiently("a place", async {
        while !opens().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_refused_and_what_breaks_leaves_the_link_as_it_was() {
    let Pair { a, mut b, seen } = pair(|_| {}).await;
    let refused = a.opens(b.id, &Open::Refused).await.err();
    assert_eq!(refused, Some(AskError::Refused(RpcRefusal::NotAllowed("not this".into()))));
    let (mut reader, mut writer) = a.opens(b.id, &Open::Panic).await.unwrap();
    writer.send(&Frame::StillHere).await.unwrap();
    assert_eq!(next(&mut reader).await, Err(StreamError::BrokenOff));
    seen.holds(0).await;
    // A member that does not support streams, like an older release.
    let authority = Authority::new();
    let (mut old, mut new) = (cell(&authority, 3), cell(&authority, 4));
    new.link_to(&mut old).await;
    let refused = new.opens(old.id, &Open::Echo).await.err();
    assert_eq!(refused, Some(AskError::Refused(RpcRefusal::Unsupported)));
    a.reaches(&mut b).await;
}

#[tokio::test]
async fn what_is_no_frame_ends_the_stream_and_not_the_link() {
    let authority = Authority::new();
    let seen = Arc::new(Seen::default());
    let mut side = Build::new(&authority, 1).serving(service(&seen)).open();
    let raw = raw(&authority, 2, &mut side).await;
    for garbage in [&b"\x01\x10\xff\xff\xff\xff"[..], b"\x09\x00\x00\x00\x00\x00", b"garbage!"] {
        let (mut send, mut receive) = raw.connection.open_bi().await.unwrap();
        let body = crate::codec::encode(&Open::Echo);
        let length = u32::try_from(body.len()).unwrap();
        let head = crate::request::frame::RequestHead { method: 48, deadline: PATIENCE, length };
        send.write_all(&head.encode()).await.unwrap();
        send.write_all(&body).await.unwrap();
        send.write_all(garbage).await.unwrap();
        let read = patiently("the end of the stream", receive.read_to_end(1 << 10)).await;
        assert!(read.is_err(), "it was answered {read:?}");
    }
    seen.holds(0).await;
    assert!(raw.connection.close_reason().is_none());
}
