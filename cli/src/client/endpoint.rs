//! Where the coordinator is and with what we come to it: flags, then the environment (clap reads
//! both), then the configuration file, then what a coordinator on this machine has by default, then
//! a `volvox dev` that runs on it.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::dev;
use crate::args::Endpoint;
use crate::error::Failure;
use crate::nearest::nearest;

/// The coordinator's data folder, by default. Its socket needs no token.
const DATA_DIR: &str = "/var/lib/volvox/coordinator";
/// Where the coordinator listens by default.
const LOOPBACK: &str = "http://127.0.0.1:8889";
/// Bytes of a file that is no configuration, token or certificate any more.
const MOST_BYTES: u64 = 1 << 20;

/// How the coordinator is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EndpointUrl {
    /// A socket on this machine.
    Unix(PathBuf),
    /// `http://host:port` or `https://host:port`, without a path.
    Url(String),
}

impl std::fmt::Display for EndpointUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EndpointUrl::Unix(path) => write!(f, "unix:{}", path.display()),
            EndpointUrl::Url(url) => f.write_str(url),
        }
    }
}

/// Everything that is needed to speak to the coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedEndpoint {
    pub(crate) way: EndpointUrl,
    pub(crate) token: Option<String>,
    /// PEM of the authorities that are trusted.
    pub(crate) ca: Option<PathBuf>,
    /// PEM of our certificate and of its key.
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
    /// Nobody said where: it was guessed.
    pub(crate) guessed: bool,
}

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CliConfig {
    api: Option<String>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

const KEYS: [&str; 6] = ["api", "token", "token_file", "ca", "cert", "key"];

/// Finds it.
pub(crate) fn find(place: &Endpoint) -> Result<ResolvedEndpoint, Failure> {
    let config = config(place)?;
    let said = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let token = said("VOLVOX_TOKEN").map(|token| token.to_string_lossy().into_owned());
    let shown = TokenSource { token, file: said("VOLVOX_TOKEN_FILE").map(PathBuf::from) };
    combine(place, shown, config, &LocalCoordinators::ours())
}

/// Where coordinators of this machine are.
struct LocalCoordinators {
    /// The data folder of the real one.
    data: PathBuf,
    /// The folder of those of `volvox dev`.
    devs: PathBuf,
}

impl LocalCoordinators {
    fn ours() -> LocalCoordinators {
        LocalCoordinators { data: DATA_DIR.into(), devs: dev::FOLDER.into() }
    }

    /// Whom to ask if nobody said whom, with which token.
    fn guess(&self) -> Result<(EndpointUrl, Option<String>), Failure> {
        let socket = self.data.join("api.sock");
        if may_open(&socket) {
            return Ok((EndpointUrl::Unix(socket), None));
        }
        let token = || std::fs::read_to_string(self.data.join("admin.token")).ok();
        // A real one, even one that does not answer now, is never mistaken for a trial.
        if socket.try_exists().unwrap_or(true) {
            return Ok((EndpointUrl::Url(LOOPBACK.to_owned()), token()));
        }
        let mut devs = dev::running(&self.devs);
        if devs.len() > 1 {
            let ways: Vec<String> = devs.iter().map(flags).collect();
            return Err(Failure::usage("several `volvox dev` run on this machine")
                .hint(format!("say which is meant: {}", ways.join(" or "))));
        }
        match devs.pop() {
            Some((way, file)) => Ok((way, file.and_then(|it| std::fs::read_to_string(it).ok()))),
            None => Ok((EndpointUrl::Url(LOOPBACK.to_owned()), token())),
        }
    }
}

/// What says which one is meant.
fn flags((way, token): &(EndpointUrl, Option<PathBuf>)) -> String {
    match token {
        Some(token) => format!("--api {way} --token-file {}", token.display()),
        None => format!("--api {way}"),
    }
}

/// A token as one of the places has it: itself, or a file with it.
#[derive(Debug, Default)]
struct TokenSource {
    token: Option<String>,
    file: Option<PathBuf>,
}

fn combine(
    place: &Endpoint,
    environment: TokenSource,
    config: CliConfig,
    machine: &LocalCoordinators,
) -> Result<ResolvedEndpoint, Failure> {
    let asked = place.api.clone().filter(|api| !api.is_empty()).or(config.api);
    let guessed = asked.is_none();
    let (way, guessed_token) = match &asked {
        Some(text) => (way(text)?, None),
        None => machine.guess()?,
    };
    // What is said nearer comes first, whichever of the two forms it has there.
    let flags = TokenSource { token: place.token.clone(), file: place.token_file.clone() };
    let file = TokenSource { token: config.token, file: config.token_file };
    let mut places = [flags, environment, file].into_iter();
    let shown = places.find(|it| it.token.is_some() || it.file.is_some()).unwrap_or_default();
    let (token, file) = (shown.token, shown.file);
    let token = match (token, file) {
        (Some(token), _) => Some(token),
        (None, Some(file)) => Some(read(&file, "the token")?),
        (None, None) => guessed_token,
    };
    let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
    if token.as_ref().is_some_and(|token| token.chars().any(|c| !c.is_ascii_graphic())) {
        return Err(Failure::usage("the token has spaces or strange letters in it")
            .hint("a token is one word that begins with vlx_"));
    }
    let certificate = match (place.cert.clone().or(config.cert), place.key.clone().or(config.key)) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => return Err(Failure::usage("--cert needs --key too: its private key")),
        (None, Some(_)) => return Err(Failure::usage("--key needs --cert too: its certificate")),
    };
    if let EndpointUrl::Url(url) = &way
        && url.starts_with("http://")
        && token.is_some()
        && !is_loopback(url)
    {
        return Err(Failure::usage(format!(
            "{url}: a token must not cross a network in the clear"
        ))
        .hint("use https://, which is what a coordinator speaks off its own machine"));
    }
    let ca = place.ca.clone().or(config.ca);
    Ok(ResolvedEndpoint { way, token, ca, certificate, guessed })
}

/// Whether this user could open the socket: one who cannot is better off with the token.
fn may_open(socket: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(socket).is_ok()
}

fn is_loopback(url: &str) -> bool {
    let host = url.trim_start_matches("http://");
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    host == "localhost"
        || host
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn way(text: &str) -> Result<EndpointUrl, Failure> {
    let form = || {
        Failure::usage(format!("{text:?} is no address of a coordinator"))
            .hint("http://127.0.0.1:8889, https://HOST:PORT or unix:/PATH is wanted")
    };
    if let Some(path) = text.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        return if path.starts_with('/') {
            Ok(EndpointUrl::Unix(path.into()))
        } else {
            Err(form())
        };
    }
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let rest = rest.map(|rest| rest.trim_end_matches('/')).ok_or_else(form)?;
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '?' | '#' | '@');
    if rest.is_empty() || rest.contains(odd) {
        return Err(form());
    }
    Ok(EndpointUrl::Url(text.trim_end_matches('/').to_owned()))
}

/// Reads a small file whose name somebody gave.
pub(crate) fn read(path: &Path, what: &str) -> Result<String, Failure> {
    let said =
        |error: String| Failure::usage(format!("{}: cannot read {what}: {error}", path.display()));
    let meta = std::fs::metadata(path).map_err(|error| said(error.to_string()))?;
    if meta.len() > MOST_BYTES {
        return Err(said(format!("it has {} bytes, the limit is {MOST_BYTES}", meta.len())));
    }
    std::fs::read_to_string(path).map_err(|error| said(error.to_string()))
}

/// The configuration; the usual file need not be there.
fn config(place: &Endpoint) -> Result<CliConfig, Failure> {
    let (path, must_be) = match &place.config {
        Some(path) => (path.clone(), true),
        None => match usual_config() {
            Some(path) => (path, false),
            None => return Ok(CliConfig::default()),
        },
    };
    if !must_be && !path.exists() {
        return Ok(CliConfig::default());
    }
    parse(&read(&path, "the configuration")?)
        .map_err(|failure| failure.about(&path.display().to_string()))
}

fn parse(text: &str) -> Result<CliConfig, Failure> {
    let table: toml::Table =
        text.parse().map_err(|error: toml::de::Error| Failure::usage(error.to_string()))?;
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let meant = nearest(key, KEYS).map(|known| format!(": did you mean `{known}`?"));
        return Err(Failure::usage(format!("unknown key `{key}`{}", meant.unwrap_or_default()))
            .hint(format!("the keys are {}", KEYS.join(", "))));
    }
    table.try_into().map_err(|error: toml::de::Error| Failure::usage(error.to_string()))
}

fn usual_config() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let folder = set("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".config")))?;
    Some(folder.join("volvox/config.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(api: Option<&str>) -> Endpoint {
        Endpoint { api: api.map(str::to_owned), ..Endpoint::default() }
    }

    fn nowhere() -> LocalCoordinators {
        machine(Path::new("/nonexistent"))
    }

    fn machine(folder: &Path) -> LocalCoordinators {
        LocalCoordinators { data: folder.to_owned(), devs: folder.join("devs") }
    }

    fn guess(folder: &Path) -> ResolvedEndpoint {
        combine(&place(None), TokenSource::default(), CliConfig::default(), &machine(folder))
            .unwrap()
    }

    #[test]
    fn addresses_are_understood_and_bad_ones_refused() {
        assert_eq!(way("unix:/run/a.sock").unwrap(), EndpointUrl::Unix("/run/a.sock".into()));
        assert_eq!(way("unix:///run/a.sock").unwrap(), EndpointUrl::Unix("/run/a.sock".into()));
        assert_eq!(way("https://c:8889/").unwrap(), EndpointUrl::Url("https://c:8889".into()));
        for bad in ["", "c:8889", "unix:a.sock", "ftp://c", "http://", "https://c/x", "http://a b"]
        {
            let failure = way(bad).unwrap_err();
            assert!(failure.message.contains(&format!("{bad:?}")), "{failure:?}");
        }
    }

    #[test]
    fn flags_come_before_the_file_and_the_file_before_the_machine() {
        let config = || parse("api = \"http://127.0.0.1:1\"\ntoken = \"of-file\"").unwrap();
        let found = combine(&place(None), TokenSource::default(), config(), &nowhere()).unwrap();
        assert_eq!(found.way, EndpointUrl::Url("http://127.0.0.1:1".into()));
        assert_eq!((found.token.as_deref(), found.guessed), (Some("of-file"), false));
        let mut given = place(Some("http://localhost:2"));
        given.token = Some("of-flag\n".to_owned());
        let found = combine(&given, TokenSource::default(), config(), &nowhere()).unwrap();
        assert_eq!(found.way, EndpointUrl::Url("http://localhost:2".into()));
        assert_eq!(found.token.as_deref(), Some("of-flag"));
        let environment = || TokenSource { token: Some("of-environment".to_owned()), file: None };
        let found = combine(&place(None), environment(), config(), &nowhere()).unwrap();
        assert_eq!(found.token.as_deref(), Some("of-environment"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "of-file-of-flag").unwrap();
        let given = Endpoint { token_file: Some(file), ..place(None) };
        let found = combine(&given, environment(), config(), &nowhere()).unwrap();
        assert_eq!(found.token.as_deref(), Some("of-file-of-flag"));
        let found = combine(&place(None), TokenSource::default(), CliConfig::default(), &nowhere())
            .unwrap();
        assert_eq!((found.way, found.guessed), (EndpointUrl::Url(LOOPBACK.into()), true));
    }

    #[test]
    fn the_machines_own_coordinator_is_found() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("admin.token"), "vlx_1_2\n").unwrap();
        let found = guess(folder.path());
        assert_eq!(found.token.as_deref(), Some("vlx_1_2"));
        let socket = folder.path().join("api.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let found = guess(folder.path());
        assert_eq!((found.way, found.token), (EndpointUrl::Unix(socket), None));
        // Somewhere else, the token of this machine is nobody's business.
        let other = place(Some("https://c:1"));
        assert_eq!(
            combine(&other, TokenSource::default(), CliConfig::default(), &machine(folder.path()))
                .unwrap()
                .token,
            None
        );
    }

    #[test]
    fn a_trial_is_found_unless_there_is_a_real_one_or_another_trial() {
        let folder = tempfile::tempdir().unwrap();
        let dev = |name: &str| {
            let path = folder.path().join("devs").join(name);
            std::fs::create_dir_all(&path).unwrap();
            let text = "pid = 1\nfolder = \"/x\"\ntemporary = true\ncells = 1\n\
                        base = [10, 254]\napi = \"127.0.0.1:1\"";
            std::fs::write(path.join(dev::ENTRY), text).unwrap();
            let socket = path.join(dev::SOCKET);
            (std::os::unix::net::UnixListener::bind(&socket).unwrap(), socket)
        };
        let (_first, socket) = dev("0");
        assert_eq!(guess(folder.path()).way, EndpointUrl::Unix(socket));
        let (second, _) = dev("1");
        let several = combine(
            &place(None),
            TokenSource::default(),
            CliConfig::default(),
            &machine(folder.path()),
        )
        .unwrap_err();
        assert!(several.hint.contains("devs/1/api.sock"), "{several:?}");
        let lent = (EndpointUrl::Url("http://127.77.1.1:8889".into()), Some("/x/token".into()));
        assert_eq!(flags(&lent), "--api http://127.77.1.1:8889 --token-file /x/token");
        drop(second);
        assert!(guess(folder.path()).guessed);
        // A real one that does not answer is still the one that is meant.
        std::fs::write(folder.path().join("api.sock"), "").unwrap();
        assert_eq!(guess(folder.path()).way, EndpointUrl::Url(LOOPBACK.into()));
    }

    /// As `volvox dev` prints it beside a real one, and as a person sets it for good.
    #[test]
    fn an_address_and_a_token_file_lead_past_the_machines_own() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("api.sock"), "").unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "vlx_lent\n").unwrap();
        let environment = TokenSource { token: None, file: Some(file.clone()) };
        let asked = place(Some("http://127.77.0.1:8889"));
        let machine = machine(folder.path());
        let found = combine(&asked, environment, CliConfig::default(), &machine).unwrap();
        assert_eq!(found.way, EndpointUrl::Url("http://127.77.0.1:8889".into()));
        assert_eq!(found.token.as_deref(), Some("vlx_lent"));
        let config = parse(&format!("token_file = {file:?}")).unwrap();
        let found = combine(&place(None), TokenSource::default(), config, &machine).unwrap();
        assert_eq!(
            (found.way, found.token.as_deref()),
            (EndpointUrl::Url(LOOPBACK.into()), Some("vlx_lent"))
        );
    }

    #[test]
    fn what_is_dangerous_or_half_is_refused() {
        let mut clear = place(Some("http://192.0.2.1:8889"));
        clear.token = Some("t".to_owned());
        let failure =
            combine(&clear, TokenSource::default(), CliConfig::default(), &nowhere()).unwrap_err();
        assert!(failure.message.contains("in the clear"), "{failure:?}");
        let mut half = place(None);
        half.cert = Some("c.pem".into());
        let failure =
            combine(&half, TokenSource::default(), CliConfig::default(), &nowhere()).unwrap_err();
        assert!(failure.message.contains("--key"), "{failure:?}");
        let mut odd = place(None);
        odd.token = Some("a b".to_owned());
        assert!(combine(&odd, TokenSource::default(), CliConfig::default(), &nowhere()).is_err());
        let mut missing = place(None);
        missing.token_file = Some("/nonexistent".into());
        let failure = combine(&missing, TokenSource::default(), CliConfig::default(), &nowhere())
            .unwrap_err();
        assert!(failure.message.contains("/nonexistent"), "{failure:?}");
    }

    #[test]
    fn a_misspelt_key_is_refused_with_the_right_one() {
        let failure = parse("tokenfile = \"x\"").unwrap_err();
        assert_eq!(failure.message, "unknown key `tokenfile`: did you mean `token_file`?");
        assert!(parse("api = ").is_err() && parse("api = 3").is_err());
    }
}
