//! Frames over a unix socket that never make the reader wait: what the shim, and whoever talks to
//! it, reads and writes with.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::wire::FRAME_BYTES;

/// Bytes that may wait to be written. A reader that lets more pile up is cut off.
const BACKLOG: usize = 4 * FRAME_BYTES;

/// One end of a conversation.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    closed: bool,
}

impl Connection {
    /// Talks over this stream from now on.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Connection { stream, incoming: Vec::new(), outgoing: Vec::new(), closed: false })
    }

    /// Whether the other end has gone, or has said something that cannot be understood.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether something waits to be written.
    pub fn has_output(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Bytes that wait to be written.
    pub fn backlog(&self) -> usize {
        self.outgoing.len()
    }

    /// Says something: at once as far as the other end listens, the rest when it does.
    pub fn send<T: Serialize>(&mut self, message: &T) {
        match postcard::to_stdvec(message) {
            Ok(bytes) if bytes.len() <= FRAME_BYTES => {
                let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                self.outgoing.extend_from_slice(&length.to_le_bytes());
                self.outgoing.extend_from_slice(&bytes);
            }
            Ok(_) | Err(_) => self.closed = true,
        }
        self.flush();
        if self.outgoing.len() > BACKLOG {
            self.closed = true;
        }
        if self.closed {
            // So that whoever waits for this conversation hears of its end.
            let _ = self.stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Writes what waits, as far as the other end listens.
    pub fn flush(&mut self) {
        while !self.outgoing.is_empty() && !self.closed {
            match self.stream.write(&self.outgoing) {
                Ok(0) => self.closed = true,
                Ok(written) => drop(self.outgoing.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.closed = true,
            }
        }
        give_back(&mut self.outgoing);
    }

    /// Hears what has come, whole messages only.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Vec<T> {
        let mut buffer = [0; 16_384];
        while !self.closed && self.incoming.len() <= FRAME_BYTES + 4 {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.closed = true,
                Ok(read) => self.incoming.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.closed = true,
            }
        }
        let mut messages = Vec::new();
        while let Some((length, rest)) = self.incoming.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            if length > FRAME_BYTES {
                self.closed = true;
                break;
            }
            let Some(frame) = rest.get(..length) else { break };
            match postcard::from_bytes(frame) {
                Ok(message) => messages.push(message),
                Err(_) => {
                    self.closed = true;
                    break;
                }
            }
            self.incoming.drain(..4 + length);
        }
        give_back(&mut self.incoming);
        messages
    }
}

/// A large message must not cost its memory for ever: there may be hundreds of shims.
fn give_back(buffer: &mut Vec<u8>) {
    const KEPT: usize = 16 << 10;
    if buffer.is_empty() && buffer.capacity() > KEPT {
        *buffer = Vec::new();
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_and_in_order_and_nonsense_ends_it() {
        let (left, right) = UnixStream::pair().unwrap();
        let mut left = Connection::new(left).unwrap();
        let mut right = Connection::new(right).unwrap();
        let long = "x".repeat(700_000);
        left.send(&"one".to_owned());
        left.send(&long);
        let mut heard: Vec<String> = Vec::new();
        while heard.len() < 2 {
            heard.extend(right.receive::<String>());
            left.flush();
        }
        assert_eq!(heard, ["one", long.as_str()]);
        left.outgoing.extend_from_slice(&u32::MAX.to_le_bytes());
        left.flush();
        assert!(right.receive::<String>().is_empty());
        assert!(right.is_closed());
    }
}
