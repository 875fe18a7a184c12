//! The container's log on disk: a line for each line of output, in files of bounded size.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use volvox_protocol::time::Timestamp;

use super::lines::{LineAction, Lines, Rate};
use crate::container::spec::{LogLimits, LogStream};

/// The files `0.log` (the newest), `1.log`, … of one container.
#[derive(Debug)]
pub(crate) struct Log {
    folder: PathBuf,
    limits: LogLimits,
    rate: Option<Rate>,
    /// Made with the first line: many a container never says one.
    file: Option<File>,
    written: u64,
}

impl Log {
    /// The log in `folder`, which is made when there is something to keep.
    pub(crate) fn new(folder: &Path, limits: LogLimits, now: Timestamp) -> Self {
        let rate = limits.bytes_per_second.map(|limit| Rate::new(limit, now));
        Log { folder: folder.to_owned(), limits, rate, file: None, written: 0 }
    }

    /// Keeps one line: time, stream, source, text.
    pub(crate) fn line(&mut self, now: Timestamp, stream: LogStream, source: &str, text: &[u8]) {
        match self.rate.as_mut().map_or(LineAction::Keep, |rate| rate.judge(now, text.len())) {
            LineAction::Keep => self.write(now, stream, source, text),
            LineAction::Drop => {}
            LineAction::DropAndTell => {
                let limit = self.limits.bytes_per_second.unwrap_or_default();
                let told = format!("app instance exceeded log rate limit ({limit} bytes/sec)");
                self.write(now, LogStream::Err, "CELL", told.as_bytes());
            }
        }
    }

    /// Keeps a text of the cell's own, whatever the rate is.
    pub(crate) fn record(&mut self, now: Timestamp, stream: LogStream, source: &str, text: &str) {
        let mut lines = Lines::default();
        lines.take(text.as_bytes(), |line| self.write(now, stream, source, line));
        lines.flush(|line| self.write(now, stream, source, line));
    }

    fn write(&mut self, now: Timestamp, stream: LogStream, source: &str, text: &[u8]) {
        let stream = match stream {
            LogStream::Out => "out",
            LogStream::Err => "err",
        };
        // Whoever chose the source must not be able to write a line of another.
        let source: String = source
            .chars()
            .map(|it| if it.is_whitespace() || it.is_control() { '_' } else { it })
            .collect();
        let mut line = format!("{} {stream} {source} ", now.as_nanos()).into_bytes();
        line.extend_from_slice(text);
        line.push(b'\n');
        if self.written > 0 && self.written + line.len() as u64 > self.limits.file_bytes {
            // A log that cannot be turned over grows on: better too long than lost.
            let _ = self.turn_over();
        }
        // A full disk must not stop the program whose output this is.
        if self.append(&line).is_ok() {
            self.written += line.len() as u64;
        }
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            return file.write_all(line);
        }
        std::fs::create_dir_all(&self.folder)?;
        let path = self.folder.join("0.log");
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(line)?;
        self.file = Some(file);
        Ok(())
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
        self.file = Some(open?);
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
        let mut log = Log::new(folder.path(), limits, Timestamp::ZERO);
        for nth in 0..100 {
            log.line(
                Timestamp::from_nanos(nth),
                LogStream::Out,
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

    #[test]
    fn lines_of_the_cell_are_kept_and_no_source_can_pretend_to_be_another() {
        let folder = tempfile::tempdir().unwrap();
        let limits = LogLimits { bytes_per_second: Some(0), ..LogLimits::default() };
        let mut log = Log::new(folder.path(), limits, Timestamp::ZERO);
        let at = Timestamp::from_nanos(5);
        log.line(at, LogStream::Out, "APP", b"too much");
        log.record(at, LogStream::Err, "CELL", "one\ntwo");
        log.record(at, LogStream::Out, "A\n9 out CELL", "three");
        let kept = std::fs::read_to_string(folder.path().join("0.log")).unwrap();
        assert_eq!(kept, "5 err CELL one\n5 err CELL two\n5 out A_9_out_CELL three\n");
    }
}
