//! Who changed what: one line of JSON for each call that changes something, written before the caller
//! has its answer. The file is turned over at a size, and the last few are kept.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use volvox_protocol::time::Timestamp;

/// The file, in the data folder.
pub const AUDIT: &str = "audit.log";
/// Lines that may wait for the disk.
const QUEUE: usize = 4_096;
/// Lines in one write.
const BATCH: usize = 512;

/// One line.
#[derive(Debug, Clone, Serialize)]
pub struct AuditRecord {
    /// When.
    pub time: Timestamp,
    /// Who.
    pub caller: String,
    /// With which role.
    pub role: &'static str,
    /// From where.
    pub peer: String,
    /// Which call.
    pub route: &'static str,
    /// About what.
    pub subject: String,
    /// The status of the answer.
    pub status: u16,
    /// The caller's own number for the call, if it gave one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
}

/// Writes lines. Clones write to the same file.
#[derive(Debug, Clone)]
pub struct Audit(mpsc::Sender<(AuditRecord, oneshot::Sender<()>)>);

impl Audit {
    /// Opens the file in a data folder. At `file_bytes` it is turned over; `files` old ones are kept.
    pub fn open(data_dir: &Path, file_bytes: u64, files: u32) -> io::Result<Self> {
        let path = data_dir.join(AUDIT);
        let mut book =
            AuditFile { file: append_to(&path)?, path, file_bytes, files, failing: false };
        let (lines, mut queue) = mpsc::channel::<(AuditRecord, oneshot::Sender<()>)>(QUEUE);
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || {
            let mut batch = Vec::new();
            while let Some(first) = queue.blocking_recv() {
                batch.push(first);
                while batch.len() < BATCH
                    && let Ok(next) = queue.try_recv()
                {
                    batch.push(next);
                }
                book.write(batch.iter().map(|(line, _)| line));
                for (_, written) in batch.drain(..) {
                    // The caller may have gone meanwhile.
                    let _ = written.send(());
                }
            }
        })?;
        Ok(Audit(lines))
    }

    /// Writes a line, and comes back when the file has it.
    pub async fn write(&self, line: AuditRecord) {
        let (written, done) = oneshot::channel();
        if self.0.send((line, written)).await.is_ok() {
            let _ = done.await;
        }
    }
}

struct AuditFile {
    file: File,
    path: PathBuf,
    file_bytes: u64,
    files: u32,
    failing: bool,
}

impl AuditFile {
    /// A disk that takes no line must not stop the fleet: the line goes to the log instead.
    fn write<'a>(&mut self, lines: impl Iterator<Item = &'a AuditRecord>) {
        let mut text = Vec::new();
        for line in lines {
            if serde_json::to_writer(&mut text, line).is_ok() {
                text.push(b'\n');
            }
        }
        let written = self.turn_over().and_then(|()| self.file.write_all(&text));
        match written {
            Ok(()) => self.failing = false,
            Err(error) => {
                let lines = String::from_utf8_lossy(&text);
                if !self.failing {
                    tracing::error!(%error, path = %self.path.display(), "audit lines go here");
                }
                self.failing = true;
                for line in lines.lines() {
                    tracing::warn!(line, "audit");
                }
            }
        }
    }

    fn turn_over(&mut self) -> io::Result<()> {
        // Somebody moved it away, or the last time ended half-way: what is old has its name already.
        if !self.path.exists() {
            self.file = append_to(&self.path)?;
        }
        if self.file.metadata()?.len() < self.file_bytes {
            return Ok(());
        }
        let numbered = |nth: u32| self.path.with_extension(format!("log.{nth}"));
        for nth in (1..self.files).rev() {
            match std::fs::rename(numbered(nth), numbered(nth + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        std::fs::rename(&self.path, numbered(1))?;
        self.file = append_to(&self.path)?;
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(subject: &str) -> AuditRecord {
        AuditRecord {
            time: Timestamp::from_nanos(7),
            caller: "token:1 (ci)".to_owned(),
            role: "write",
            peer: "127.0.0.1:1".to_owned(),
            route: "DesireTask",
            subject: subject.to_owned(),
            status: 200,
            request_id: String::new(),
            error: String::new(),
        }
    }

    #[tokio::test]
    async fn a_line_is_in_the_file_when_writing_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(folder.path(), 1 << 20, 2).unwrap();
        audit.write(line("a\nb")).await;
        let text = std::fs::read_to_string(folder.path().join(AUDIT)).unwrap();
        let expected = r#"{"time":7,"caller":"token:1 (ci)","role":"write","peer":"127.0.0.1:1","route":"DesireTask","subject":"a\nb","status":200}"#;
        assert_eq!(text, format!("{expected}\n"));
    }

    #[tokio::test]
    async fn old_files_are_kept_up_to_a_number() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(folder.path(), 10, 2).unwrap();
        for nth in 0..5 {
            audit.write(line(&nth.to_string())).await;
        }
        let mut names: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["audit.log", "audit.log.1", "audit.log.2"]);
        let newest = std::fs::read_to_string(folder.path().join("audit.log")).unwrap();
        assert!(newest.contains(r#""subject":"4""#));
        // An operator's own tools may turn it over too.
        std::fs::remove_file(folder.path().join("audit.log")).unwrap();
        audit.write(line("5")).await;
        let newest = std::fs::read_to_string(folder.path().join("audit.log")).unwrap();
        assert!(newest.contains(r#""subject":"5""#));
    }
}
