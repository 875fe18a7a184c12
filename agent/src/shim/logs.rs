//! The container's log on disk: a line for each line of output, in files of bounded size.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use volvox_protocol::time::Timestamp;

use super::lines::{Rate, Verdict};
use crate::runtime::spec::LogLimits;

/// Which of a process's two streams a line is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// The files `0.log` (the newest), `1.log`, … of one container.
#[derive(Debug)]
pub(crate) struct Log {
    folder: PathBuf,
    limits: LogLimits,
    rate: Option<Rate>,
    file: File,
    written: u64,
}

impl Log {
    /// Opens the log in `folder` and goes on where it ended.
    pub(crate) fn open(folder: &Path, limits: LogLimits, now: Timestamp) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let file = OpenOptions::new().create(true).append(true).open(folder.join("0.log"))?;
        let written = file.metadata()?.len();
        let rate = limits.bytes_per_second.map(|limit| Rate::new(limit, now));
        Ok(Log { folder: folder.to_owned(), limits, rate, file, written })
    }

    /// Keeps one line: time, stream, source, text.
    pub(crate) fn line(&mut self, now: Timestamp, stream: Stream, source: &str, text: &[u8]) {
        match self.rate.as_mut().map_or(Verdict::Keep, |rate| rate.judge(now, text.len())) {
            Verdict::Keep => self.write(now, stream, source, text),
            Verdict::Drop => {}
            Verdict::DropAndTell => {
                let limit = self.limits.bytes_per_second.unwrap_or_default();
                let told = format!("app instance exceeded log rate limit ({limit} bytes/sec)");
                self.write(now, Stream::Err, "CELL", told.as_bytes());
            }
        }
    }

    fn write(&mut self, now: Timestamp, stream: Stream, source: &str, text: &[u8]) {
        let stream = match stream {
            Stream::Out => "out",
            Stream::Err => "err",
        };
        let mut line = format!("{} {stream} {source} ", now.as_nanos()).into_bytes();
        line.extend_from_slice(text);
        line.push(b'\n');
        if self.written > 0 && self.written + line.len() as u64 > self.limits.file_bytes {
            // A log that cannot be turned over grows on: better too long than lost.
            let _ = self.turn_over();
        }
        // A full disk must not stop the program whose output this is.
        if self.file.write_all(&line).is_ok() {
            self.written += line.len() as u64;
        }
    }

    fn turn_over(&mut self) -> io::Result<()> {
        let name = |nth: u32| self.folder.join(format!("{nth}.log"));
        for nth in (1..self.limits.files.max(1)).rev() {
            match std::fs::rename(name(nth - 1), name(nth)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        let open = OpenOptions::new().create(true).write(true).truncate(true).open(name(0));
        self.file = open?;
        self.written = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_bounded_and_keeps_the_newest_lines() {
        let folder = tempfile::tempdir().unwrap();
        let limits = LogLimits { file_bytes: 200, files: 3, bytes_per_second: None };
        let mut log = Log::open(folder.path(), limits, Timestamp::ZERO).unwrap();
        for nth in 0..100 {
            log.line(
                Timestamp::from_nanos(nth),
                Stream::Out,
                "APP",
                format!("line {nth}").as_bytes(),
            );
        }
        let mut kept = String::new();
        for nth in (0..3).rev() {
            let text = std::fs::read_to_string(folder.path().join(format!("{nth}.log"))).unwrap();
            assert!(text.len() <= 200, "file {nth} has {} bytes", text.len());
            kept += &text;
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
        let numbers: Vec<u64> =
            kept.lines().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        let expected: Vec<u64> = (100 - numbers.len() as u64..100).collect();
        assert_eq!(numbers, expected, "no gap, and the newest at the end");
        assert!(kept.ends_with("99 out APP line 99\n"), "{kept}");
    }
}
