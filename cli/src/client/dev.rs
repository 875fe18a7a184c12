//! What a `volvox dev` says of itself, so that other commands on this machine find it: a file in a
//! folder that only root can write to. `commands/dev` writes it, `place` reads it.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::endpoint::EndpointUrl;

/// One folder for each `volvox dev` of this machine. What is in it does not survive a reboot, as its
/// containers do not.
pub(crate) const FOLDER: &str = "/run/volvox-dev";
/// The file in it that tells of it.
pub(crate) const ENTRY: &str = "dev.toml";
/// The coordinator's socket in it.
pub(crate) const SOCKET: &str = "api.sock";
/// A token in it, for whoever called `sudo`.
pub(crate) const TOKEN: &str = "token";
/// How long something on this machine may take to take a call.
const CONNECT: Duration = Duration::from_millis(500);

/// What it says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DevInstance {
    /// Its process.
    pub(crate) pid: u32,
    /// Where it keeps everything.
    pub(crate) folder: PathBuf,
    /// Whether that goes when it ends.
    pub(crate) temporary: bool,
    /// How many cells it has.
    pub(crate) cells: u8,
    /// Of its containers' addresses, the first two numbers.
    pub(crate) base: [u8; 2],
    /// Where its API listens.
    pub(crate) api: SocketAddr,
}

impl DevInstance {
    /// The entry in the folder of one of them; none: there is none, or none that can be read.
    pub(crate) fn read(folder: &Path) -> Option<DevInstance> {
        toml::from_str(&std::fs::read_to_string(folder.join(ENTRY)).ok()?).ok()
    }
}

/// The ways to those that run and that this user may use, each with the file of the token it wants.
pub(super) fn running(all: &Path) -> Vec<(EndpointUrl, Option<PathBuf>)> {
    let entries = std::fs::read_dir(all).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    folders.sort();
    folders.iter().filter_map(|folder| way(folder)).collect()
}

fn way(folder: &Path) -> Option<(EndpointUrl, Option<PathBuf>)> {
    let entry = DevInstance::read(folder)?;
    let socket = folder.join(SOCKET);
    if UnixStream::connect(&socket).is_ok() {
        return Some((EndpointUrl::Unix(socket), None));
    }
    let token = folder.join(TOKEN);
    std::fs::File::open(&token).ok()?;
    TcpStream::connect_timeout(&entry.api, CONNECT).ok()?;
    Some((EndpointUrl::Url(format!("http://{}", entry.api)), Some(token)))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn entry(all: &Path, name: &str, api: SocketAddr) -> PathBuf {
        let folder = all.join(name);
        std::fs::create_dir(&folder).unwrap();
        let entry = DevInstance {
            pid: 1,
            folder: "/tmp/x".into(),
            temporary: true,
            cells: 1,
            base: [10, 254],
            api,
        };
        std::fs::write(folder.join(ENTRY), toml::to_string(&entry).unwrap()).unwrap();
        assert_eq!(DevInstance::read(&folder), Some(entry));
        folder
    }

    #[test]
    fn only_what_runs_and_may_be_used_is_found() {
        let all = tempfile::tempdir().unwrap();
        assert_eq!(running(&all.path().join("none")), Vec::new());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let api = listener.local_addr().unwrap();
        // Somebody else's: it answers, and we have neither its socket nor its token.
        let folder = entry(all.path(), "0", api);
        assert_eq!(running(all.path()), Vec::new());
        let token = folder.join(TOKEN);
        std::fs::write(&token, "vlx_1").unwrap();
        let by_token = (EndpointUrl::Url(format!("http://{api}")), Some(token));
        assert_eq!(running(all.path()), vec![by_token.clone()]);
        let other = entry(all.path(), "1", "127.0.0.1:1".parse().unwrap());
        assert_eq!(running(all.path()), vec![by_token.clone()]);
        let socket = other.join(SOCKET);
        let _listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(running(all.path()), vec![by_token, (EndpointUrl::Unix(socket), None)]);
    }
}
