//! A few lines of HTTP/1.1 over a socket of the machine, and to a port of a cell.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};

const PATIENCE: Duration = Duration::from_secs(30);

/// What was answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body.
    pub text: String,
}

pub(super) fn get(socket: &Path, path: &str) -> anyhow::Result<Answer> {
    ask(connect(socket)?, &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))
}

pub(super) fn post(socket: &Path, path: &str, body: &str) -> anyhow::Result<Answer> {
    let length = body.len();
    let head = "content-type: application/json\r\nconnection: close";
    let text = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    ask(connect(socket)?, &text)
}

fn connect(socket: &Path) -> anyhow::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Asks, and reads until the other side closes.
pub(super) fn ask(mut stream: impl Read + Write, text: &str) -> anyhow::Result<Answer> {
    stream.write_all(text.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let end = bytes.windows(4).position(|it| it == b"\r\n\r\n").context("no head")?;
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    let body = &bytes[end + 4..];
    let body =
        if head.contains("transfer-encoding: chunked") { dechunk(body)? } else { body.to_vec() };
    Ok(Answer { status, text: String::from_utf8(body)? })
}

fn dechunk(mut rest: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|it| it == b"\r\n").context("a chunk without length")?;
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end])?.trim(), 16)?;
        rest = &rest[end + 2..];
        if length == 0 {
            return Ok(body);
        }
        ensure!(rest.len() >= length + 2, "a torn chunk");
        body.extend_from_slice(&rest[..length]);
        rest = &rest[length + 2..];
    }
}
