//! Health checks, made by the agent from the machine to the container's own address.
//!
//! No program runs in the container for it: there is nothing to swap, and no process per check. The
//! service must listen on the container's address, as in Diego; 127.0.0.1 is not enough. What comes
//! back is the container's word, so all of it is bounded: by its bytes, and by one deadline over the
//! whole exchange, however slowly it drips. A redirect is followed on the same address and port
//! only: the agent reaches what the container may not.
//!
//! Each call blocks, on a thread of the executor's; the cancel ends it at once.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, connect, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};
use volvox_protocol::definition::{Check, HttpCheck};

use crate::container::check_text::CheckFault;
use crate::container::step::CheckOutcome;
use crate::image::cancel::Cancel;

/// Bytes of an answer's status line and headers, of all answers before the last too.
const HEAD_BYTES: usize = 64 << 10;
/// What an answer begins with.
const VERSION: &[u8] = b"HTTP/1.";
/// How many redirects are followed, as Diego's client does.
const REDIRECTS: usize = 10;
/// How often somebody who waits for a connection looks whether he is to stop.
const LOOK_AROUND: Duration = Duration::from_millis(50);

/// Makes one check.
pub fn check(check: &Check, address: Ipv4Addr, timeout: Duration, cancel: &Cancel) -> CheckOutcome {
    let started = Instant::now();
    let port = match check {
        Check::Tcp(it) => it.port,
        Check::Http(it) => it.port,
    };
    let Ok(number) = u16::try_from(port) else {
        return CheckOutcome::CouldNotRun(format!("there is no port {port}"));
    };
    let to = SocketAddrV4::new(address, number);
    let call = CheckCall { to, deadline: started.checked_add(timeout), cancel };
    let result = match check {
        Check::Tcp(_) => call.connect().map(drop).map_err(|broken| match broken {
            Broken::NotMade(error) => Err(error),
            Broken::TimedOut => {
                Ok(CheckFault::TcpTimedOut { address: address.into(), port, timeout })
            }
            Broken::Refused(error) => {
                let error = error.desc().to_lowercase();
                Ok(CheckFault::Tcp { address: address.into(), port, error })
            }
        }),
        Check::Http(HttpCheck { path, .. }) => match (call.request(path), path.clone()) {
            (Ok(200), _) => Ok(()),
            (Ok(status), path) => {
                let elapsed = started.elapsed();
                Err(Ok(CheckFault::HttpStatus { path, port, status, elapsed }))
            }
            (Err(Broken::NotMade(error)), _) => Err(Err(error)),
            (Err(Broken::TimedOut), path) => {
                Err(Ok(CheckFault::HttpTimedOut { path, port, timeout }))
            }
            (Err(Broken::Refused(_)), path) => Err(Ok(CheckFault::HttpRefused { path, port })),
        },
    };
    // The connection would stay open for as long as somebody could cancel it.
    cancel.on_cancel(|| {});
    match result {
        Ok(()) => CheckOutcome::Passed,
        Err(_) if cancel.is_cancelled() => CheckOutcome::CouldNotRun("cancelled".into()),
        Err(Ok(fault)) => CheckOutcome::Failed(fault.to_string()),
        Err(Err(error)) => CheckOutcome::CouldNotRun(error.desc().to_lowercase()),
    }
}

/// Why there is no connection, or no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    /// It is our own machine's fault.
    NotMade(Errno),
    /// The deadline has passed.
    TimedOut,
    /// The other side did not want to, or went, or does not speak HTTP.
    Refused(Errno),
}

/// The answer is none of HTTP's, or has no end.
const NO_ANSWER: Broken = Broken::Refused(Errno::EPROTO);

/// One check under way.
struct CheckCall<'a> {
    to: SocketAddrV4,
    /// `None`: later than can be reckoned.
    deadline: Option<Instant>,
    cancel: &'a Cancel,
}

impl CheckCall<'_> {
    /// The time that is left, never nothing.
    fn left(&self) -> Result<Duration, Broken> {
        let Some(deadline) = self.deadline else { return Ok(Duration::from_secs(3600)) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left < Duration::from_millis(1) { Err(Broken::TimedOut) } else { Ok(left) }
    }

    /// Connects within the time that is left. Linux ends a blocking connect after the socket's send
    /// time-out, and a second one goes on with the first.
    fn connect(&self) -> Result<TcpStream, Broken> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let made = socket(AddressFamily::Inet, SockType::Stream, flags, None);
        let stream = TcpStream::from(made.map_err(Broken::NotMade)?);
        let own = stream.try_clone().map_err(|error| Broken::NotMade(errno(&error)))?;
        // This tears away what is connected. What is not, or not yet, has to look around.
        self.cancel.on_cancel(move || drop(own.shutdown(Shutdown::Both)));
        loop {
            let left = self.left()?.min(LOOK_AROUND).as_millis();
            let timeout = TimeVal::milliseconds(i64::try_from(left).unwrap_or(1));
            setsockopt(&stream, sockopt::SendTimeout, &timeout).map_err(Broken::NotMade)?;
            let connected = connect(stream.as_raw_fd(), &SockaddrIn::from(self.to));
            if self.cancel.is_cancelled() {
                return Err(Broken::Refused(Errno::ECANCELED));
            }
            match connected {
                Ok(()) | Err(Errno::EISCONN) => return Ok(stream),
                // A signal, or the time is up, which the next round finds.
                Err(Errno::EINTR | Errno::EINPROGRESS | Errno::EALREADY) => {}
                Err(error @ Errno::EADDRNOTAVAIL) => return Err(Broken::NotMade(error)),
                Err(Errno::ETIMEDOUT) => return Err(Broken::TimedOut),
                Err(error) => return Err(Broken::Refused(error)),
            }
        }
    }

    /// The status of the last answer.
    fn request(&self, path: &str) -> Result<u16, Broken> {
        let mut target = request_target(path);
        for _ in 0..=REDIRECTS {
            let head = self.exchange(&target)?;
            let next = match head.status {
                301 | 302 | 303 | 307 | 308 => head.location.as_deref(),
                _ => None,
            };
            match next.and_then(|location| redirected(&target, location, self.to)) {
                Some(next) => target = next,
                None => return Ok(head.status),
            }
        }
        Err(NO_ANSWER)
    }

    fn exchange(&self, target: &str) -> Result<ResponseHead, Broken> {
        let mut stream = self.connect()?;
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {}\r\nUser-Agent: diego-healthcheck\r\n\
             X-Forwarded-Proto: https\r\nAccept: */*\r\nConnection: close\r\n\r\n",
            self.to
        );
        let mut rest = request.as_bytes();
        while !rest.is_empty() {
            let left = self.left()?;
            match stream.set_write_timeout(Some(left)).and_then(|()| stream.write(rest)) {
                Ok(written) => rest = &rest[written..],
                Err(error) => go_on(&error)?,
            }
        }
        let mut answer = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let left = self.left()?;
            let before = answer.len();
            match stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut buffer)) {
                Ok(0) => return Err(NO_ANSWER),
                Ok(read) => answer.extend_from_slice(&buffer[..read]),
                Err(error) => go_on(&error)?,
            }
            // Only where something is to be seen: an answer that drips must not have us read it
            // from the start for each byte.
            let is_new = before < VERSION.len() || ends_head(&answer[before.saturating_sub(2)..]);
            if is_new && let Some(head) = ResponseHead::parse(&answer)? {
                return Ok(head);
            }
            if answer.len() > HEAD_BYTES {
                return Err(NO_ANSWER);
            }
        }
    }
}

/// What is passing is tried again; whether there is time is asked there.
fn go_on(error: &io::Error) -> Result<(), Broken> {
    match error.kind() {
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ok(()),
        _ => Err(Broken::Refused(errno(error))),
    }
}

/// Whether an empty line is in there, after the end of another.
fn ends_head(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|it| it == b"\n\n") || bytes.windows(3).any(|it| it == b"\n\r\n")
}

/// What of an answer counts.
#[derive(Debug, PartialEq, Eq)]
struct ResponseHead {
    status: u16,
    location: Option<String>,
}

impl ResponseHead {
    /// Reads the last head of what has come. `None`: it is not all there yet.
    fn parse(mut bytes: &[u8]) -> Result<Option<ResponseHead>, Broken> {
        loop {
            // What cannot become HTTP need not be waited for.
            if VERSION.iter().zip(bytes).any(|(wanted, given)| wanted != given) {
                return Err(NO_ANSWER);
            }
            let Some((head, after)) = split_head(bytes) else { return Ok(None) };
            let mut lines = head.split(|byte| *byte == b'\n').map(|it| it.trim_ascii_end());
            let status = lines.next().and_then(status).ok_or(NO_ANSWER)?;
            if (100..200).contains(&status) && status != 101 {
                bytes = after;
                continue;
            }
            let location = lines.find_map(|line| {
                let colon = line.iter().position(|byte| *byte == b':')?;
                let is_ours = line[..colon].eq_ignore_ascii_case(b"location");
                let value = std::str::from_utf8(line[colon + 1..].trim_ascii()).ok()?;
                is_ours.then(|| value.to_owned())
            });
            return Ok(Some(ResponseHead { status, location }));
        }
    }
}

/// A head and what follows its empty line.
fn split_head(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut from = 0;
    loop {
        let end = from + bytes[from..].iter().position(|byte| *byte == b'\n')?;
        match &bytes[end + 1..] {
            [b'\n', after @ ..] | [b'\r', b'\n', after @ ..] => {
                return Some((&bytes[..end], after));
            }
            _ => from = end + 1,
        }
    }
}

/// The number in `HTTP/1.1 200 OK`.
fn status(line: &[u8]) -> Option<u16> {
    let mut words = line.split(|byte| *byte == b' ').filter(|it| !it.is_empty());
    let version = words.next()?;
    let is_version = version.len() == 8 && version[7].is_ascii_digit();
    let number = words.next().filter(|it| is_version && it.len() == 3)?;
    let is_number = number.iter().all(u8::is_ascii_digit) && number[0] != b'0';
    std::str::from_utf8(number).ok().filter(|_| is_number)?.parse().ok()
}

/// A path as it may stand in a request: it begins with `/`, ends before a fragment, and what could
/// end the line is escaped.
fn request_target(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let mut target = String::from(if path.starts_with('/') { "" } else { "/" });
    for byte in path.bytes() {
        if byte.is_ascii_graphic() {
            target.push(byte.into());
        } else {
            target += &format!("%{byte:02X}");
        }
    }
    target
}

/// Where a redirect leads to, if that is the same address and port.
fn redirected(from: &str, location: &str, to: SocketAddrV4) -> Option<String> {
    let rest = match (scheme(location), location.strip_prefix("//")) {
        (Some((scheme, rest)), _) if scheme.eq_ignore_ascii_case("http") => {
            rest.strip_prefix("//")?
        }
        (Some(_), _) => return None,
        (None, Some(rest)) => rest,
        (None, None) => return Some(request_target(&beside(from, location)?)),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let is_same = host == to.to_string() || (to.port() == 80 && host == to.ip().to_string());
    is_same.then(|| request_target(path))
}

fn scheme(location: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = location.split_once(':')?;
    let is_scheme = scheme.bytes().all(|it| it.is_ascii_alphanumeric() || b"+-.".contains(&it));
    is_scheme.then_some((scheme, rest))
}

/// A location without a host, seen from a path. `None`: it says nothing.
fn beside(from: &str, location: &str) -> Option<String> {
    let path = from.split('?').next().unwrap_or_default();
    let folder = path.rfind('/').map_or("/", |at| &path[..=at]);
    Some(match location.chars().next()? {
        '/' => location.to_owned(),
        '?' | '#' => format!("{path}{location}"),
        _ => format!("{folder}{location}"),
    })
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(Errno::EIO as i32))
}

#[cfg(test)]
mod tests;
