//! Logs and terminals of simulated containers. Every container has the same log, to which a test adds;
//! a terminal says what it hears in capitals.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, watch};
use volvox_host::sync::{lock, unpoisoned};
use volvox_mesh::identity::MemberKind;
use volvox_mesh::request::{Router, RpcRefusal, StreamHandler};
use volvox_mesh::transport::stream::{FrameReader, FrameWriter, StreamError};
use volvox_protocol::stream::{
    Frame, LogLine, LogStream, OpenTerminal, Opened, ReadLog, frames_of,
};
use volvox_protocol::time::Timestamp;

/// What a cell's containers have to say.
#[derive(Debug, Default)]
pub struct FakeStreams {
    lines: Mutex<Vec<String>>,
    said: watch::Sender<usize>,
    floods: AtomicBool,
    open: AtomicUsize,
    sent: AtomicUsize,
    asked: Mutex<Vec<OpenTerminal>>,
    let_go: Notify,
}

impl FakeStreams {
    /// Every container writes this line.
    pub fn say(&self, line: &str) {
        let mut lines = lock(&self.lines);
        lines.push(line.to_owned());
        self.said.send_replace(lines.len());
    }

    /// From now on a log that is followed has no end.
    pub fn flood(&self) {
        self.floods.store(true, Ordering::SeqCst);
    }

    /// Streams that are open.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Bytes of lines that were sent.
    pub fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }

    /// The terminals that were asked for.
    pub fn asked(&self) -> Vec<OpenTerminal> {
        lock(&self.asked).clone()
    }

    /// A program `/bin/deaf` ends.
    pub fn let_go(&self) {
        self.let_go.notify_one();
    }

    fn lines(&self, request: &ReadLog, from: usize) -> Vec<LogLine> {
        let lines = lock(&self.lines);
        let numbered = lines.iter().enumerate().skip(from);
        let told = numbered.map(|(number, text)| LogLine {
            at: Timestamp::from_secs(number as u64 + 1),
            stream: if text.starts_with("bad") { LogStream::Err } else { LogStream::Out },
            source: "APP".to_owned(),
            message: text.clone().into_bytes(),
        });
        let mut told: Vec<LogLine> = told.filter(|line| line.at >= request.since).collect();
        if let (0, Some(tail)) = (from, request.tail) {
            told.drain(..told.len().saturating_sub(usize::try_from(tail).unwrap_or(usize::MAX)));
        }
        told
    }
}

/// A stream that is open, until this is dropped.
struct Open(Arc<FakeStreams>);

impl Open {
    fn new(streams: &Arc<FakeStreams>) -> Open {
        streams.open.fetch_add(1, Ordering::SeqCst);
        Open(Arc::clone(streams))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Has a router answer for them, as the agent does.
pub(super) fn register(router: Router, streams: &Arc<FakeStreams>) -> Router {
    let (logs, terminals) = (Arc::clone(streams), Arc::clone(streams));
    router
        .on_stream(move |from, request: ReadLog| {
            let open = Open::new(&logs);
            async move {
                if from.kind != MemberKind::Coordinator {
                    return Err(RpcRefusal::NotAllowed("only a coordinator asks".to_owned()));
                }
                let talk: StreamHandler = Box::new(move |reader, writer| {
                    Box::pin(async move { drop(tell(open, request, reader, writer).await) })
                });
                Ok((Opened {}, talk))
            }
        })
        .on_stream(move |_, request: OpenTerminal| {
            let open = Open::new(&terminals);
            let asked = terminals.asked.lock();
            unpoisoned(asked).push(request.clone());
            async move {
                if request.path == "/bin/nothing" {
                    return Err(RpcRefusal::Failed("there is no /bin/nothing".to_owned()));
                }
                let talk: StreamHandler = Box::new(move |reader, writer| {
                    Box::pin(async move {
                        drop(match request.path.as_str() {
                            "/bin/deaf" => end_unheard(open, reader, writer).await,
                            _ => shout(open, reader, writer).await,
                        });
                    })
                });
                Ok((Opened {}, talk))
            }
        })
}

async fn tell(
    open: Open,
    request: ReadLog,
    _reader: FrameReader,
    mut writer: FrameWriter,
) -> Result<(), StreamError> {
    let streams = &open.0;
    let mut said = streams.said.subscribe();
    let mut at = 0;
    loop {
        let count = *said.borrow_and_update();
        for frame in frames_of(streams.lines(&request, at)) {
            writer.send(&frame).await?;
        }
        at = count;
        if !request.follow {
            break;
        }
        while streams.floods.load(Ordering::SeqCst) {
            let message = vec![b'f'; 8 << 10];
            let (stream, source) = (LogStream::Out, "FLOOD".to_owned());
            let line = LogLine { at: Timestamp::from_secs(9), stream, source, message };
            writer.send(&Frame::Lines(vec![line])).await?;
            streams.sent.fetch_add(8 << 10, Ordering::SeqCst);
        }
        if said.changed().await.is_err() {
            break;
        }
    }
    writer.send(&Frame::End("that is all".to_owned())).await?;
    writer.finish().await
}

/// Takes nothing, and says how it ended only when it is let go: what is typed meanwhile fails on its
/// way here.
async fn end_unheard(
    open: Open,
    reader: FrameReader,
    mut writer: FrameWriter,
) -> Result<(), StreamError> {
    drop(reader);
    open.0.let_go.notified().await;
    writer.send(&Frame::Exit(9)).await?;
    writer.finish().await
}

async fn shout(
    _open: Open,
    mut reader: FrameReader,
    mut writer: FrameWriter,
) -> Result<(), StreamError> {
    writer.send(&Frame::Output(b"> ".to_vec())).await?;
    let status = loop {
        let said = match reader.next().await? {
            Some(Frame::Input(bytes)) => bytes.to_ascii_uppercase(),
            Some(Frame::Resize(size)) => format!("{}x{}", size.rows, size.columns).into_bytes(),
            Some(Frame::Signal(signal)) => break 128 + i32::from(signal),
            Some(Frame::EndInput) | None => break 0,
            Some(_) => continue,
        };
        if let Some(number) = said.strip_prefix(b"EXIT ") {
            break String::from_utf8_lossy(number).trim().parse().unwrap_or(1);
        }
        writer.send(&Frame::Output(said)).await?;
    };
    writer.send(&Frame::Exit(status)).await?;
    writer.finish().await
}
