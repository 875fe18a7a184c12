//! Downloads, uploads and the cache against a real server, real files and real kills. Hostile
//! archives are in the unit tests of `unpack.rs` and `unzip.rs`, root file systems in `rootfs.rs`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use volvox_agent::image::cache::{Cache, CacheError, CacheRequest, CachedFile};
use volvox_agent::image::cancel::Cancel;
use volvox_agent::image::checksum::{Checksum, sha256_hex};
use volvox_agent::image::fetch::{
    DownloadRequest, FetchConfig, FetchError, Fetched, Fetcher, Validators,
};
use volvox_agent::image::http::HttpConfig;
use volvox_agent::image::retry::{IpNetwork, Retries};
use volvox_agent::image::upload::Verb;
use volvox_protocol::time::Backoff;

/// What the server says, and what it does then.
struct Reply {
    bytes: Vec<u8>,
    then: Then,
}

enum Then {
    Close,
    /// Says nothing more, until the client goes.
    Hang,
    /// Says the same byte until the client goes.
    Flood,
}

fn reply(head: &str, body: &[u8]) -> Reply {
    let head = format!("HTTP/1.1 {head}\r\nconnection: close\r\n");
    let length = if head.contains("-length:") {
        String::new()
    } else {
        format!("content-length: {}\r\n", body.len())
    };
    Reply { bytes: [head.as_bytes(), length.as_bytes(), b"\r\n", body].concat(), then: Then::Close }
}

/// Head and body of each.
type Requests = Vec<(String, Vec<u8>)>;

/// A server of one test: the n-th request is answered by the handler, and remembered.
struct Server {
    url: String,
    requests: Arc<Mutex<Requests>>,
}

impl Server {
    fn start(handler: impl Fn(usize, &str) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Requests>> = Arc::default();
        let (seen, handler) = (Arc::clone(&requests), Arc::new(handler));
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, handler) = (Arc::clone(&seen), Arc::clone(&handler));
                std::thread::spawn(move || answer(stream, &seen, &*handler));
            }
        });
        Server { url, requests }
    }

    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn answer(stream: TcpStream, seen: &Mutex<Requests>, handler: &dyn Fn(usize, &str) -> Reply) {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if input.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |it| it.trim().parse().unwrap())];
    input.read_exact(&mut body).unwrap();
    let number = {
        let mut seen = seen.lock().unwrap();
        seen.push((head.clone(), body));
        seen.len() - 1
    };
    let reply = handler(number, &head);
    let mut stream = stream;
    let _ = stream.write_all(&reply.bytes);
    match reply.then {
        Then::Close => {}
        Then::Hang => drop(input.read(&mut [0])),
        Then::Flood => while stream.write_all(&[b'x'; 4096]).is_ok() {},
    }
}

fn config() -> FetchConfig {
    let quick = Duration::from_millis(1);
    FetchConfig {
        http: HttpConfig {
            denied: Vec::new(),
            idle: Duration::from_secs(5),
            ..HttpConfig::default()
        },
        max_bytes: 1 << 20,
        retries: Retries {
            backoff: Backoff { first: quick, longest: quick },
            ..Retries::default()
        },
        file_folders: Vec::new(),
    }
}

fn fetch_with(
    config: FetchConfig,
    url: &str,
    checksum: Option<&Checksum>,
    cancel: &Cancel,
) -> Result<(Fetched, Vec<u8>), FetchError> {
    let mut sink = tempfile::tempfile().unwrap();
    let known = &Validators::default();
    let want = DownloadRequest { url, checksum, known, cancel };
    let fetched = Fetcher::new(config).unwrap().fetch(
        want,
        &mut sink,
        &mut || Duration::ZERO,
        &mut |_| {},
    )?;
    let mut bytes = Vec::new();
    sink.read_to_end(&mut bytes).unwrap();
    Ok((fetched, bytes))
}

fn fetch(url: &str) -> Result<Vec<u8>, FetchError> {
    fetch_with(config(), url, None, &Cancel::new()).map(|(_, bytes)| bytes)
}

#[test]
fn a_file_is_fetched_with_its_validators() {
    let server =
        Server::start(|_, _| reply("200 OK\r\netag: \"v1\"\r\nlast-modified: then", b"hi"));
    let sum = Checksum::parse("sha256", &sha256_hex(b"hi")).unwrap();
    let (fetched, bytes) = fetch_with(config(), &server.url, Some(&sum), &Cancel::new()).unwrap();
    assert_eq!(bytes, b"hi");
    let validators = Validators { etag: "\"v1\"".into(), last_modified: "then".into() };
    assert!(matches!(fetched, Fetched::Body { bytes: 2, validators: v, .. } if v == validators));
    assert!(server.requests.lock().unwrap()[0].0.contains("accept-encoding: identity"));
}

#[test]
fn passing_trouble_is_tried_four_times_and_no_more() {
    let server = Server::start(|n, _| match n {
        0 => reply("500 Oops", b""),
        1 => reply("200 OK\r\ncontent-length: 10", b"short"),
        2 => reply("429 Later", b""),
        _ => reply("200 OK", b"at last"),
    });
    assert_eq!(fetch(&server.url).unwrap(), b"at last");
    assert_eq!(server.count(), 4);
    let server = Server::start(|_, _| reply("503 No", b""));
    assert!(matches!(fetch(&server.url), Err(FetchError::Status { status: 503, .. })));
    assert_eq!(server.count(), 4);
    let server = Server::start(|_, _| reply("200 OK\r\ncontent-length: 10", b"short"));
    let error = fetch(&server.url).unwrap_err();
    assert!(matches!(error, FetchError::CutShort { .. } | FetchError::Transfer { .. }), "{error}");
    assert_eq!(server.count(), 4);
    for head in ["404 Gone", "304 Not Modified", "206 Partial", "403 No"] {
        let server = Server::start(move |_, _| reply(head, b""));
        let error = fetch(&server.url).unwrap_err();
        assert!(matches!(error, FetchError::Status { .. }), "{head}: {error:?}");
        assert_eq!(server.count(), 1, "{head}");
    }
}

#[test]
fn a_wrong_checksum_names_both_and_is_not_tried_again() {
    let server = Server::start(|_, _| reply("200 OK", b"evil"));
    let sum = Checksum::parse("md5", "900150983cd24fb0d6963f7d28e17f72").unwrap();
    let error = fetch_with(config(), &server.url, Some(&sum), &Cancel::new()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("expected 900150983cd24fb0d6963f7d28e17f72, got 4034a346"), "{text}");
    assert_eq!(server.count(), 1);
}

#[test]
fn redirects_are_followed_but_not_for_ever_and_not_into_files() {
    let server = Server::start(|_, head| {
        if head.starts_with("get /there") {
            reply("200 OK", b"found")
        } else {
            reply("302 Found\r\nlocation: /there", b"")
        }
    });
    assert_eq!(fetch(&format!("{}/here", server.url)).unwrap(), b"found");
    let server = Server::start(|n, _| reply(&format!("302 Found\r\nlocation: /{n}"), b""));
    assert!(matches!(fetch(&server.url), Err(FetchError::Redirects { .. })));
    assert_eq!(server.count(), 11);
    // The client takes the path for one of the same server; no file is read.
    let server = Server::start(|_, _| reply("302 Found\r\nlocation: file:///etc/passwd", b""));
    assert!(matches!(fetch(&server.url), Err(FetchError::Redirects { .. })));
    // The wall stands at every hop.
    let server = Server::start(|_, _| reply("302 Found\r\nlocation: http://127.0.0.2:1/", b""));
    let mut walled = config();
    walled.http.denied = vec![IpNetwork { address: "127.0.0.2".parse().unwrap(), prefix: 32 }];
    let error = fetch_with(walled, &server.url, None, &Cancel::new()).unwrap_err();
    assert!(matches!(error, FetchError::Denied(_)), "{error:?}");
    assert_eq!(server.count(), 1);
}

/// A server with a certificate of its own making; `None` without the `openssl` program.
fn secure_server(home: &Path, reply: Reply) -> Option<String> {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-subj", "/CN=test", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key", "-out", "cert"])
        .current_dir(home)
        .output();
    if !made.is_ok_and(|it| it.status.success()) {
        return None;
    }
    let cert = CertificateDer::from_pem_file(home.join("cert")).unwrap();
    let key = PrivateKeyDer::from_pem_file(home.join("key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let session = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(session, stream);
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                head.push(byte[0]);
            }
            let _ = stream.write_all(&reply.bytes);
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    Some(url)
}

#[test]
fn https_trusts_whom_it_is_told_to_and_never_steps_down() {
    let name = "https_trusts_whom_it_is_told_to_and_never_steps_down";
    let home = tempfile::tempdir().unwrap();
    let Some(url) = secure_server(home.path(), reply("200 OK", b"safe")) else {
        return skip(name, "no openssl program to make a certificate with");
    };
    let mut trusting = config();
    trusting.retries.tries = 1;
    trusting.http.trusted = home.path().join("cert");
    let get = |url: &str, config: &FetchConfig| {
        fetch_with(config.clone(), url, None, &Cancel::new()).map(|(_, bytes)| bytes)
    };
    assert_eq!(get(&url, &trusting).unwrap(), b"safe");
    // Another name, and a machine that does not know the certificate.
    let error = get(&url.replace("localhost", "127.0.0.1"), &trusting).unwrap_err();
    assert!(matches!(error, FetchError::Transfer { .. }), "{error:?}");
    let mut wary = config();
    wary.retries.tries = 1;
    let error = get(&url, &wary).unwrap_err();
    assert!(matches!(error, FetchError::Transfer { .. }), "{error:?}");
    let plain = Server::start(|_, _| reply("200 OK", b"unsafe"));
    let down = reply(&format!("302 Found\r\nlocation: {}/", plain.url), b"");
    let url = secure_server(home.path(), down).unwrap();
    let error = get(&url, &trusting).unwrap_err();
    assert!(matches!(error, FetchError::Redirects { .. }), "{error:?}");
    assert_eq!(plain.count(), 0);
}

/// Says that a test could not run here, and why, where `make test` collects it.
#[expect(clippy::print_stderr, reason = "a skipped test must be seen")]
fn skip(name: &str, why: &str) {
    let line = format!("SKIPPED {name}: {why}");
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("VOLVOX_SKIPPED") {
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        if let Err(error) = file.and_then(|mut file| writeln!(file, "{line}")) {
            eprintln!("cannot note the skipped test: {error}");
        }
    }
}

#[test]
fn a_server_that_stops_or_floods_is_left() {
    let mut quick = config();
    quick.http.idle = Duration::from_millis(100);
    quick.retries.tries = 1;
    let server = Server::start(|_, _| Reply {
        then: Then::Hang,
        ..reply("200 OK\r\ncontent-length: 10", b"abc")
    });
    let error = fetch_with(quick.clone(), &server.url, None, &Cancel::new()).unwrap_err();
    assert!(matches!(error, FetchError::Transfer { .. }), "{error:?}");
    let server =
        Server::start(|_, _| Reply { then: Then::Hang, bytes: b"HTTP/1.1 200 OK\r\nx: ".to_vec() });
    let error = fetch_with(quick, &server.url, None, &Cancel::new()).unwrap_err();
    assert!(matches!(error, FetchError::Transfer { .. }), "{error:?}");
    let server = Server::start(|_, _| reply("200 OK\r\ncontent-length: 1048577", b"abc"));
    let text = fetch(&server.url).unwrap_err().to_string();
    assert!(text.ends_with("limit max_bytes: at most 1048576, given 1048577"), "{text}");
    let server = Server::start(|_, _| Reply {
        then: Then::Flood,
        bytes: b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec(),
    });
    let text = fetch(&server.url).unwrap_err().to_string();
    assert!(text.contains("limit max_bytes: at most 1048576, given"), "{text}");
    assert_eq!(server.count(), 1);
}

#[test]
fn a_cancel_tears_a_hanging_download_away() {
    let (arrived, arrival) = mpsc::channel();
    let server = Server::start(move |_, _| {
        arrived.send(()).unwrap();
        Reply { then: Then::Hang, ..reply("200 OK\r\ncontent-length: 10", b"abc") }
    });
    let mut slow = config();
    slow.http.idle = Duration::from_secs(300);
    let cancel = Cancel::new();
    let started = Instant::now();
    std::thread::scope(|scope| {
        let fetched = scope.spawn(|| fetch_with(slow, &server.url, None, &cancel));
        arrival.recv().unwrap();
        cancel.cancel();
        assert!(matches!(fetched.join().unwrap(), Err(FetchError::Cancelled)));
    });
    assert!(started.elapsed() < Duration::from_secs(60));
    assert_eq!(server.count(), 1);
}

#[test]
fn downloads_do_not_reach_the_machine_itself_unless_allowed() {
    let server = Server::start(|_, _| reply("200 OK", b"secret"));
    let port = server.url.rsplit(':').next().unwrap().to_owned();
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "169.254.169.254"] {
        let walled = FetchConfig { http: HttpConfig::default(), ..config() };
        let url = format!("http://{host}:{port}/");
        let error = fetch_with(walled, &url, None, &Cancel::new()).unwrap_err();
        assert!(matches!(error, FetchError::Denied(_)), "{host}: {error:?}");
    }
    assert_eq!(server.count(), 0);
    for url in ["ftp://x/y", "nothing", "", "gopher:x", "data:,x"] {
        assert!(matches!(fetch(url), Err(FetchError::Scheme { .. })), "{url}");
    }
    let url = format!("https://u:secret@127.0.0.1:{port}/?sig=secret");
    let text = fetch(&url).unwrap_err().to_string();
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn file_urls_are_read_below_allowed_folders_only() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    fs::create_dir_all(at("open/d")).unwrap();
    fs::create_dir_all(at("open-too")).unwrap();
    fs::write(at("open/d/a b"), "mine").unwrap();
    fs::write(at("secret"), "theirs").unwrap();
    fs::write(at("open-too/x"), "theirs").unwrap();
    symlink("../secret", at("open/link")).unwrap();
    symlink("..", at("open/up")).unwrap();
    nix::unistd::mkfifo(&at("open/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let allowed = FetchConfig { file_folders: vec![at("open")], ..config() };
    let get = |path: &str| {
        let url = format!("file://{}/{path}", home.path().display());
        fetch_with(allowed.clone(), &url, None, &Cancel::new()).map(|(_, bytes)| bytes)
    };
    assert_eq!(get("open/d/a%20b").unwrap(), b"mine");
    for path in [
        "secret",
        "open/../secret",
        "open/%2e%2e/secret",
        "open/link",
        "open/up/secret",
        "open-too/x",
        "open/pipe",
        "open/d",
        "open",
        "open/d/a%00b",
        "open/%zz",
    ] {
        let error = get(path).unwrap_err();
        assert!(matches!(error, FetchError::FileNotAllowed { .. }), "{path}: {error:?}");
    }
    assert!(matches!(
        fetch(&format!("file://{}", at("open/d/a b").display())),
        Err(FetchError::FileNotAllowed { .. })
    ));
}

#[test]
fn an_upload_has_its_digests_and_three_attempts() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"abc").unwrap();
    let fetcher = Fetcher::new(config()).unwrap();
    let send = |url: &str, verb| fetcher.upload(verb, url, &file, 1000, &Cancel::new());
    let server = Server::start(|n, _| reply(if n < 2 { "502 Bad" } else { "201 Made" }, b""));
    send(&server.url, Verb::Post).unwrap();
    let seen = server.requests.lock().unwrap();
    assert_eq!(seen.len(), 3);
    for (head, body) in seen.iter() {
        assert!(head.starts_with("post / "), "{head}");
        assert!(head.contains("content-type: application/octet-stream\r\n"));
        assert!(head.contains("content-md5: kafqmdzst7dwlj99kof/cg==\r\n"), "{head}");
        assert!(
            head.contains("content-digest: sha-256=:ungwv48bz+pbqudexa4ii7adyaowf3qctbd/yfiafa0=:")
        );
        assert!(head.contains("content-length: 3\r\n") && !head.contains("chunked"), "{head}");
        assert_eq!(body, b"abc");
    }
    drop(seen);
    let server = Server::start(|_, _| reply("500 No", b""));
    assert!(matches!(send(&server.url, Verb::Put), Err(FetchError::Status { status: 500, .. })));
    assert_eq!(server.count(), 3);
    let server = Server::start(|_, _| reply("307 Elsewhere\r\nlocation: /x", b""));
    assert!(send(&server.url, Verb::Put).is_err());
    assert_eq!(server.count(), 1);
    let error = fetcher.upload(Verb::Put, &server.url, &file, 2, &Cancel::new()).unwrap_err();
    assert!(error.to_string().contains("limit max_bytes: at most 2"), "{error}");
}

/// Asks the cache with a download that says these bytes and this tag, and counts.
fn ask(
    cache: &Arc<Cache>,
    key: &str,
    url: &str,
    bytes: &[u8],
    etag: &str,
) -> (CachedFile, Validators) {
    let mut offered = Validators::default();
    let cancel = Cancel::new();
    let asked = CacheRequest { url, cache_key: key, checksum: None, cancel: &cancel };
    let held = cache.get(asked, &mut |known, file| {
        offered = known.clone();
        Ok(body(known, file, bytes, etag))
    });
    (held.unwrap(), offered)
}

fn body(known: &Validators, file: &mut File, bytes: &[u8], etag: &str) -> Fetched {
    if !etag.is_empty() && known.etag == etag {
        return Fetched::Unchanged;
    }
    file.write_all(bytes).unwrap();
    let mut sha256 = [0; 32];
    let hex = sha256_hex(bytes);
    for (at, byte) in sha256.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
    }
    let validators = Validators { etag: etag.into(), last_modified: String::new() };
    Fetched::Body { bytes: bytes.len() as u64, sha256, validators }
}

fn content(held: &mut CachedFile) -> String {
    let mut text = String::new();
    held.file.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn the_cache_asks_the_server_and_survives_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::open(home.path(), 1000).unwrap();
    let (mut held, offered) = ask(&cache, "k", "http://h/a?sig=1", b"one", "e1");
    assert!(offered.is_empty() && !held.was_cached && held.is_kept());
    assert_eq!(content(&mut held), "one");
    assert!(matches!(Cache::open(home.path(), 1000), Err(CacheError::Locked { .. })));
    drop((held, cache));
    let cache = Cache::open(home.path(), 1000).unwrap();
    assert_eq!(cache.used_bytes(), 3);
    let (mut held, offered) = ask(&cache, "k", "http://h/a?sig=2", b"unused", "e1");
    assert_eq!((offered.etag.as_str(), held.was_cached), ("e1", true));
    assert_eq!(content(&mut held), "one");
    // The same key from elsewhere: what one planted is not the other's.
    let (mut planted, offered) = ask(&cache, "k", "http://evil/a", b"evil", "e1");
    assert!(offered.is_empty() && !planted.was_cached);
    assert_eq!(content(&mut planted), "evil");
    let (mut held, offered) = ask(&cache, "k", "http://h/a", b"good", "e1");
    assert!(offered.is_empty());
    assert_eq!(content(&mut held), "good");
    // Nothing to ask by later: used, but not kept.
    let (held, _) = ask(&cache, "other", "http://h/b", b"once", "");
    assert!(!held.is_kept());
    let (held, _) = ask(&cache, "", "http://h/b", b"once", "e");
    assert!(!held.is_kept());
}

#[test]
fn the_cache_evicts_what_is_least_used_and_keeps_its_limit() {
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::open(home.path(), 10).unwrap();
    let (first, _) = ask(&cache, "a", "http://h/a", b"aaaa", "1");
    drop(ask(&cache, "b", "http://h/b", b"bbbb", "1"));
    drop(ask(&cache, "c", "http://h/c", b"cccc", "1"));
    assert_eq!(cache.used_bytes(), 8, "b went, a is in use");
    let (_, offered) = ask(&cache, "a", "http://h/a", b"", "1");
    assert_eq!(offered.etag, "1");
    let (held, _) = ask(&cache, "d", "http://h/d", b"too long for what is in use", "1");
    assert!(!held.is_kept());
    drop(first);
    drop(cache);
    let cache = Cache::open(home.path(), 4).unwrap();
    assert_eq!(cache.used_bytes(), 4, "the limit is lower now");
    drop(cache);
    let blobs = fs::read_dir(home.path()).unwrap().flatten();
    assert_eq!(blobs.filter(|it| it.path().extension().is_some_and(|e| e == "blob")).count(), 1);
}

#[test]
fn one_downloads_and_the_others_take_it() {
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::open(home.path(), 1000).unwrap();
    let (downloads, started) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (cache, downloads, started) = (&cache, &downloads, &started);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(move || {
                started.fetch_add(1, Ordering::SeqCst);
                let cancel = Cancel::new();
                let asked = CacheRequest {
                    url: "http://h/x",
                    cache_key: "k",
                    checksum: None,
                    cancel: &cancel,
                };
                let held = cache.get(asked, &mut |known, file| {
                    if known.is_empty() {
                        downloads.fetch_add(1, Ordering::SeqCst);
                        while started.load(Ordering::SeqCst) < 8 {
                            std::thread::yield_now();
                        }
                    }
                    Ok(body(known, file, b"shared", "e"))
                });
                assert_eq!(content(&mut held.unwrap()), "shared");
            });
        }
    });
    assert_eq!(downloads.load(Ordering::SeqCst), 1);
}

#[test]
fn a_cached_file_with_another_checksum_is_fetched_again() {
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::open(home.path(), 1000).unwrap();
    drop(ask(&cache, "k", "http://h/x", b"old", "e"));
    let sum = Checksum::parse("sha256", &sha256_hex(b"new")).unwrap();
    let cancel = Cancel::new();
    let asked =
        CacheRequest { url: "http://h/x", cache_key: "k", checksum: Some(&sum), cancel: &cancel };
    let mut held = cache.get(asked, &mut |known, file| Ok(body(known, file, b"new", "e"))).unwrap();
    assert_eq!(content(&mut held), "new");
}

#[test]
fn leftovers_and_damage_are_swept_at_the_start() {
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::open(home.path(), 1000).unwrap();
    for key in ["a", "b", "c"] {
        drop(ask(&cache, key, "http://h/x", key.as_bytes(), "e"));
    }
    drop(cache);
    let path = |key: &str, end: &str| home.path().join(sha256_hex(key.as_bytes()) + end);
    fs::write(path("a", ".1.blob"), "longer").unwrap();
    fs::write(path("b", ".json"), "{").unwrap();
    for name in ["7.partial", "x.json.partial", "dead.9.blob", "dead.json"] {
        fs::write(home.path().join(name), "x").unwrap();
    }
    let cache = Cache::open(home.path(), 1000).unwrap();
    assert_eq!(cache.used_bytes(), 1);
    let names = fs::read_dir(home.path()).unwrap().count();
    assert_eq!(names, 3, "one record, one blob, the lock");
    assert!(ask(&cache, "c", "http://h/x", b"", "e").0.was_cached);
}

/// Not a test by itself: the victim of [`a_killed_writer_leaves_a_usable_cache`].
#[test]
fn victim_writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os("VOLVOX_TEST_VICTIM") else { return };
    let cache = Cache::open(Path::new(&folder), 1 << 20).unwrap();
    let mut out = std::io::stdout();
    for number in 0.. {
        let text = number.to_string().repeat(1000);
        let cancel = Cancel::new();
        let asked = CacheRequest {
            url: "http://h/x",
            cache_key: &number.to_string(),
            checksum: None,
            cancel: &cancel,
        };
        let held = cache.get(asked, &mut |_, file| {
            file.write_all(&text.as_bytes()[..500]).unwrap();
            writeln!(std::io::stdout(), "\nhalf {number}").unwrap();
            file.set_len(0).unwrap();
            std::io::Seek::rewind(file).unwrap();
            Ok(body(&Validators::default(), file, text.as_bytes(), "e"))
        });
        drop(held.unwrap());
        writeln!(out, "\ndone {number}").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn a_killed_writer_leaves_a_usable_cache() {
    for stop in ["half 0", "done 0", "half 3", "half 7", "done 9", "half 20"] {
        let home = tempfile::tempdir().unwrap();
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim_writes_until_it_is_killed", "--nocapture"])
            .env("VOLVOX_TEST_VICTIM", home.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        let mut done: Vec<String> = Vec::new();
        for line in lines.map_while(Result::ok) {
            done.extend(line.strip_prefix("done ").map(str::to_owned));
            if line == stop {
                victim.kill().unwrap();
            }
        }
        victim.wait().unwrap();
        assert!(stop != "done 0" || !done.is_empty());
        let cache = Cache::open(home.path(), 1 << 20).unwrap();
        for number in done {
            let (mut held, _) = ask(&cache, &number, "http://h/x", b"", "e");
            assert!(held.was_cached, "{number} was acknowledged");
            assert_eq!(content(&mut held), number.repeat(1000));
            assert_eq!(held.sha256, sha256_hex(number.repeat(1000).as_bytes()));
        }
        assert!(!ask(&cache, "new", "http://h/x", b"new", "e").0.was_cached);
        let left = fs::read_dir(home.path()).unwrap().flatten();
        assert_eq!(
            left.filter(|it| it.path().extension().is_some_and(|e| e == "partial")).count(),
            0
        );
    }
}
