//! One container's log, for one reader.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use volvox_mesh::request::{RpcRefusal, StreamHandler};
use volvox_mesh::transport::stream::{FrameReader, FrameWriter, StreamError};
use volvox_protocol::stream::{Frame, LogLine, LogStream, Opened, ReadLog, frames_of};
use volvox_protocol::time::Timestamp;

use super::{ContainerLocator, STILL_HERE, blocking};
use crate::container::guid::ContainerGuid;
use crate::container::spec;
use crate::runtime::log_reader::{self, LogReader, Position};
use crate::shim::wire::LOGS;

/// Between two looks at a log that is followed.
const LOOK: Duration = Duration::from_millis(200);
/// Lines, and bytes of them, that are kept to find the last ones.
const TAIL_LINES: usize = 100_000;
const TAIL_BYTES: usize = 4 << 20;

pub(super) async fn open(
    place: Arc<ContainerLocator>,
    guid: ContainerGuid,
    request: ReadLog,
) -> Result<(Opened, StreamHandler), RpcRefusal> {
    let folder = place.shims.folder(guid.as_str()).join(LOGS);
    let look = folder.clone();
    // A container that has said nothing yet may have no folder for it.
    let opened = blocking(move || LogReader::open(&look, Position::default())).await?;
    let reader = match opened {
        Ok(reader) => Some(reader),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(RpcRefusal::Failed(format!("open the log of {guid}: {error}"))),
    };
    let log = Log { place, guid, folder, reader, since: request.since };
    let talk: StreamHandler =
        Box::new(move |asker, writer| Box::pin(log.tell(request, asker, writer)));
    Ok((Opened {}, talk))
}

struct Log {
    place: Arc<ContainerLocator>,
    guid: ContainerGuid,
    folder: PathBuf,
    reader: Option<LogReader>,
    since: Timestamp,
}

impl Log {
    async fn tell(mut self, request: ReadLog, asker: FrameReader, mut writer: FrameWriter) {
        // The asker says nothing; that it is gone, the transport notices.
        let _asker = asker;
        let ended = match self.write(&request, &mut writer).await {
            Ok(why) => writer.send(&Frame::End(why)).await,
            Err(Ended::Stream(error)) => Err(error),
            Err(Ended::Failed(why)) => writer.send(&Frame::Failed(why)).await,
        };
        let guid = self.guid;
        match ended {
            Ok(()) => drop(writer.finish().await),
            Err(error) => tracing::debug!(container = %guid, %error, "a reader of a log went"),
        }
    }

    /// Writes until there is no more; why there is none.
    async fn write(
        &mut self,
        request: &ReadLog,
        writer: &mut FrameWriter,
    ) -> Result<String, Ended> {
        if let Some(tail) = request.tail {
            let lines = self.last(usize::try_from(tail).unwrap_or(usize::MAX)).await?;
            send(lines, writer).await?;
        }
        let mut said = Instant::now();
        loop {
            let lines = self.more().await?;
            if !lines.is_empty() {
                send(lines, writer).await?;
                said = Instant::now();
                continue;
            }
            if !request.follow {
                return Ok("that is all so far".to_owned());
            }
            if self.is_gone().await? {
                // What it said last may have come since we looked.
                send(self.more().await.unwrap_or_default(), writer).await?;
                return Ok("the container is gone".to_owned());
            }
            if said.elapsed() >= STILL_HERE {
                writer.send(&Frame::StillHere).await?;
                said = Instant::now();
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The last lines that there are; the reader is at the end then.
    async fn last(&mut self, count: usize) -> Result<Vec<LogLine>, Ended> {
        let (mut kept, mut bytes) = (VecDeque::new(), 0);
        loop {
            let lines = self.more().await?;
            if lines.is_empty() {
                return Ok(kept.into());
            }
            for line in lines {
                bytes += line.message.len();
                kept.push_back(line);
                while kept.len() > count.min(TAIL_LINES) || bytes > TAIL_BYTES {
                    bytes -= kept.pop_front().map_or(0, |line: LogLine| line.message.len());
                }
            }
        }
    }

    /// What has come since the last call. None: nothing that is wanted.
    async fn more(&mut self) -> Result<Vec<LogLine>, Ended> {
        loop {
            let (reader, folder) = (self.reader.take(), self.folder.clone());
            let read = blocking(move || {
                let reader =
                    reader.map_or_else(|| LogReader::open(&folder, Position::default()), Ok);
                reader.and_then(|mut reader| Ok((reader.read_more()?, reader)))
            });
            let (lines, reader) = match read.await? {
                Ok(read) => read,
                // No log yet, or none any more.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(Ended::Failed(format!("read the log: {error}"))),
            };
            self.reader = Some(reader);
            let is_end = lines.is_empty();
            let wanted = lines.into_iter().filter(|line| line.at >= self.since);
            let wanted: Vec<LogLine> = wanted.map(told).collect();
            if is_end || !wanted.is_empty() {
                return Ok(wanted);
            }
        }
    }

    async fn is_gone(&self) -> Result<bool, Ended> {
        let (place, guid) = (Arc::clone(&self.place), self.guid.clone());
        let found = blocking(move || place.executor.container(guid)).await?;
        match found {
            Ok(found) => Ok(found.is_none()),
            Err(error) => Err(Ended::Failed(error.to_string())),
        }
    }
}

async fn send(lines: Vec<LogLine>, writer: &mut FrameWriter) -> Result<(), StreamError> {
    for frame in frames_of(lines) {
        writer.send(&frame).await?;
    }
    Ok(())
}

fn told(line: log_reader::StoredLogLine) -> LogLine {
    let stream = match line.stream {
        spec::LogStream::Out => LogStream::Out,
        spec::LogStream::Err => LogStream::Err,
    };
    LogLine { at: line.at, stream, source: line.source, message: line.text }
}

/// Why nothing more is written.
enum Ended {
    /// The asker is gone.
    Stream(StreamError),
    /// We cannot go on, and say so.
    Failed(String),
}

impl From<StreamError> for Ended {
    fn from(error: StreamError) -> Self {
        Ended::Stream(error)
    }
}

impl From<RpcRefusal> for Ended {
    fn from(refusal: RpcRefusal) -> Self {
        Ended::Failed(refusal.to_string())
    }
}
