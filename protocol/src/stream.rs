//! What flows between a person and a container for as long as it takes: a log, and a terminal.
//!
//! A stream is frames, each a version (1 byte), a kind (1), the length of its body (4, big-endian) and
//! the body. Frames are the same on the mesh, between coordinator and cell, and on an HTTP connection
//! that was upgraded, between person and coordinator. A kind that is not known is passed over, so that
//! a later release may have more of them; a body may grow at its end.
//!
//! Nothing here reads or writes. Nothing is allocated for a length that is merely claimed.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The version of the frames.
pub const VERSION: u8 = 1;
/// Bytes before a frame's body.
pub const HEAD_BYTES: usize = 6;
/// Bytes of a frame's body. The longest line of a log fits twice.
pub const BODY_BYTES: usize = 128 << 10;
/// Bytes of input or output that a frame has at most when we make it: small enough that nothing else
/// waits for long.
pub const PIECE_BYTES: usize = 16 << 10;
/// Bytes of the text of a failure or an end. What is longer is cut.
pub const TEXT_BYTES: usize = 1_024;
/// How the HTTP connection is called that carries these frames: the value of `Upgrade`.
pub const UPGRADE: &str = "volvox-stream/1";

const STILL_HERE: u8 = 0;
const INPUT: u8 = 1;
const END_INPUT: u8 = 2;
const RESIZE: u8 = 3;
const SIGNAL: u8 = 4;
const OUTPUT: u8 = 16;
const ERROR_OUTPUT: u8 = 17;
const LINES: u8 = 18;
const EXIT: u8 = 32;
const FAILED: u8 = 33;
const END: u8 = 34;

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub columns: u16,
}

/// On which of its two outputs a program wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogStream {
    /// Its standard output.
    Out,
    /// Its standard error.
    Err,
}

/// One line of a container's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When it was written.
    pub at: Timestamp,
    /// On which stream.
    pub stream: LogStream,
    /// Whose it is: the log source of the definition, or the cell's.
    pub source: String,
    /// What it says, without its end. Not always UTF-8.
    pub message: Vec<u8>,
}

/// Asks a cell for the log of one of its containers. Answered by frames with lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadLog {
    /// The container: the guid of an instance or a task.
    pub container: String,
    /// Whether to go on with what comes.
    pub follow: bool,
    /// Of what there is, the last so many lines; none: all.
    pub tail: Option<u32>,
    /// Only lines that were written then or later.
    pub since: Timestamp,
}

/// Asks a cell to run a program with a terminal in one of its containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTerminal {
    /// The container: the guid of an instance or a task.
    pub container: String,
    /// The program, absolute or to be found in PATH.
    pub path: String,
    /// Its arguments, its name not counted.
    pub args: Vec<String>,
    /// Its environment, `NAME=value`.
    pub env: Vec<String>,
    /// Where it starts; empty for the user's home.
    pub dir: String,
    /// Who it runs as, by the container's own names.
    pub user: String,
    /// The terminal.
    pub size: TerminalSize,
}

/// The stream is open: frames follow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {}

/// One thing that is said on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Nothing, but somebody is there.
    StillHere,
    /// Bytes that were typed.
    Input(Vec<u8>),
    /// No more will be typed.
    EndInput,
    /// The person's terminal has this size now.
    Resize(TerminalSize),
    /// Send this signal to the program.
    Signal(u8),
    /// Bytes for the person's terminal, or the program's standard output.
    Output(Vec<u8>),
    /// What the program wrote on its standard error, where it has no terminal.
    ErrorOutput(Vec<u8>),
    /// Lines of a log, in order.
    Lines(Vec<LogLine>),
    /// The program ended with this status; 128 and more: by the signal that is 128 less. The last frame.
    Exit(i32),
    /// It could not go on, for this reason. The last frame.
    Failed(String),
    /// There is no more, for this reason. The last frame.
    End(String),
    /// Something that a later release says.
    Unknown(u8),
}

/// Why bytes are no frame. The stream cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Of another version.
    #[error("a frame of version {0}, not {VERSION}")]
    Version(u8),
    /// Longer than a frame may be.
    #[error("a frame of {0} bytes, the limit is {BODY_BYTES}")]
    TooLong(u32),
    /// Its body is not what its kind has.
    #[error("a frame of kind {0} with another body")]
    Malformed(u8),
}

/// What is known of a frame before its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// What it is.
    pub kind: u8,
    /// Bytes of the body.
    pub length: usize,
}

impl FrameHead {
    /// Reads what stands before a body.
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<FrameHead, FrameError> {
        let [version, kind, a, b, c, d] = *bytes;
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        let length = u32::from_be_bytes([a, b, c, d]);
        match usize::try_from(length) {
            Ok(short) if short <= BODY_BYTES => Ok(FrameHead { kind, length: short }),
            Ok(_) | Err(_) => Err(FrameError::TooLong(length)),
        }
    }
}

impl Frame {
    /// The first frame of these bytes and how many it has; none: it is not whole yet.
    pub fn take(bytes: &[u8]) -> Result<Option<(Frame, usize)>, FrameError> {
        let Some((head, rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let head = FrameHead::decode(head)?;
        let Some(body) = rest.get(..head.length) else { return Ok(None) };
        Ok(Some((Frame::decode(head.kind, body)?, HEAD_BYTES + head.length)))
    }

    /// Reads a body.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Frame, FrameError> {
        let malformed = || FrameError::Malformed(kind);
        let text = || {
            let cut = &body[..body.len().min(TEXT_BYTES)];
            String::from_utf8_lossy(cut).into_owned()
        };
        Ok(match kind {
            STILL_HERE => Frame::StillHere,
            INPUT => Frame::Input(body.to_vec()),
            END_INPUT => Frame::EndInput,
            RESIZE => {
                let (head, _) = body.split_first_chunk().ok_or_else(malformed)?;
                let [a, b, c, d] = *head;
                let (rows, columns) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
                Frame::Resize(TerminalSize { rows, columns })
            }
            SIGNAL => Frame::Signal(*body.first().ok_or_else(malformed)?),
            OUTPUT => Frame::Output(body.to_vec()),
            ERROR_OUTPUT => Frame::ErrorOutput(body.to_vec()),
            LINES => {
                let (lines, _) = postcard::take_from_bytes(body).map_err(|_| malformed())?;
                Frame::Lines(lines)
            }
            EXIT => {
                let (status, _) = body.split_first_chunk().ok_or_else(malformed)?;
                Frame::Exit(i32::from_be_bytes(*status))
            }
            FAILED => Frame::Failed(text()),
            END => Frame::End(text()),
            other => Frame::Unknown(other),
        })
    }

    /// The frame's bytes. What a body may not have is cut: the caller makes none that long.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.kind(), 0, 0, 0, 0];
        match self {
            Frame::StillHere | Frame::EndInput | Frame::Unknown(_) => {}
            Frame::Input(body) | Frame::Output(body) | Frame::ErrorOutput(body) => {
                bytes.extend_from_slice(body);
            }
            Frame::Resize(size) => {
                bytes.extend(size.rows.to_be_bytes());
                bytes.extend(size.columns.to_be_bytes());
            }
            Frame::Signal(signal) => bytes.push(*signal),
            // Fails only for types that have no binary form.
            Frame::Lines(lines) => bytes.extend(postcard::to_stdvec(lines).unwrap_or_default()),
            Frame::Exit(status) => bytes.extend(status.to_be_bytes()),
            Frame::Failed(text) | Frame::End(text) => {
                bytes.extend_from_slice(&text.as_bytes()[..text.len().min(TEXT_BYTES)]);
            }
        }
        debug_assert!(bytes.len() <= HEAD_BYTES + BODY_BYTES, "too long for a frame");
        bytes.truncate(HEAD_BYTES + BODY_BYTES);
        let length = u32::try_from(bytes.len() - HEAD_BYTES).unwrap_or(u32::MAX);
        bytes[2..HEAD_BYTES].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    /// Whether nothing may follow it.
    pub fn is_last(&self) -> bool {
        matches!(self, Frame::Exit(_) | Frame::Failed(_) | Frame::End(_))
    }

    fn kind(&self) -> u8 {
        match self {
            Frame::StillHere => STILL_HERE,
            Frame::Input(_) => INPUT,
            Frame::EndInput => END_INPUT,
            Frame::Resize(_) => RESIZE,
            Frame::Signal(_) => SIGNAL,
            Frame::Output(_) => OUTPUT,
            Frame::ErrorOutput(_) => ERROR_OUTPUT,
            Frame::Lines(_) => LINES,
            Frame::Exit(_) => EXIT,
            Frame::Failed(_) => FAILED,
            Frame::End(_) => END,
            Frame::Unknown(kind) => *kind,
        }
    }
}

/// Lines as frames, none of them too long.
pub fn frames_of(lines: Vec<LogLine>) -> Vec<Frame> {
    // A line is its text, its source and some numbers.
    let size = |line: &LogLine| line.message.len() + line.source.len() + 24;
    let (mut frames, mut some, mut bytes) = (Vec::new(), Vec::new(), 0);
    for mut line in lines {
        line.message.truncate(BODY_BYTES / 2);
        if bytes + size(&line) > BODY_BYTES - 16 && !some.is_empty() {
            frames.push(Frame::Lines(std::mem::take(&mut some)));
            bytes = 0;
        }
        bytes += size(&line);
        some.push(line);
    }
    if !some.is_empty() {
        frames.push(Frame::Lines(some));
    }
    frames
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(message: &[u8]) -> LogLine {
        let (at, source) = (Timestamp::from_nanos(7), "APP".to_owned());
        LogLine { at, stream: LogStream::Err, source, message: message.to_vec() }
    }

    fn samples() -> Vec<Frame> {
        vec![
            Frame::StillHere,
            Frame::Input(b"ls\n".to_vec()),
            Frame::EndInput,
            Frame::Resize(TerminalSize { rows: 300, columns: 80 }),
            Frame::Signal(15),
            Frame::Output(vec![0; PIECE_BYTES]),
            Frame::ErrorOutput(Vec::new()),
            Frame::Lines(vec![line(b"one"), line(b"\xff")]),
            Frame::Exit(-1),
            Frame::Failed("why".to_owned()),
            Frame::End("gone".to_owned()),
            Frame::Unknown(200),
        ]
    }

    #[test]
    fn every_frame_is_read_as_it_was_written_also_in_pieces() {
        let bytes: Vec<u8> = samples().iter().flat_map(Frame::encode).collect();
        for step in [1, 7, 4_096, bytes.len()] {
            let (mut heard, mut waiting) = (Vec::new(), Vec::new());
            for piece in bytes.chunks(step) {
                waiting.extend_from_slice(piece);
                while let Some((frame, used)) = Frame::take(&waiting).unwrap() {
                    heard.push(frame);
                    waiting.drain(..used);
                }
            }
            assert_eq!(heard, samples(), "in steps of {step}");
            assert_eq!(waiting, [0; 0]);
        }
    }

    #[test]
    fn another_version_a_claimed_length_and_short_bodies_are_refused() {
        assert_eq!(Frame::take(&[2, 0, 0, 0, 0, 0]), Err(FrameError::Version(2)));
        let long = [VERSION, OUTPUT, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(Frame::take(&long), Err(FrameError::TooLong(u32::MAX)));
        for kind in [RESIZE, SIGNAL, LINES, EXIT] {
            let short = [VERSION, kind, 0, 0, 0, 0];
            assert_eq!(Frame::take(&short), Err(FrameError::Malformed(kind)));
        }
    }

    #[test]
    fn a_body_may_grow_at_its_end() {
        let size = TerminalSize { rows: 1, columns: 2 };
        assert_eq!(Frame::decode(RESIZE, &[0, 1, 0, 2, 9, 9]), Ok(Frame::Resize(size)));
        assert_eq!(Frame::decode(EXIT, &[0, 0, 0, 3, 9]), Ok(Frame::Exit(3)));
    }

    #[test]
    fn lines_fill_frames_and_none_is_too_long() {
        let lines: Vec<LogLine> = (0..400).map(|n| line(&vec![b'x'; n * 150])).collect();
        let frames = frames_of(lines.clone());
        assert!(frames.len() > 50);
        let mut back = Vec::new();
        for frame in &frames {
            assert!(frame.encode().len() <= HEAD_BYTES + BODY_BYTES);
            let read = Frame::take(&frame.encode()).unwrap().unwrap().0;
            let Frame::Lines(some) = read else { panic!("{read:?}") };
            back.extend(some);
        }
        assert_eq!(back, lines);
        let huge = frames_of(vec![line(&vec![b'y'; 10 * BODY_BYTES])]);
        assert!(huge[0].encode().len() <= HEAD_BYTES + BODY_BYTES);
        assert_eq!(frames_of(Vec::new()), []);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>, kind: u8) {
            let _ = Frame::take(&bytes);
            let _ = Frame::decode(kind, &bytes);
        }
    }
}
