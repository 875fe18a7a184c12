//! A netlink socket: requests with their answers, dumps, and netfilter's batches. Synchronous; the
//! kernel answers at once. What the messages say is their writers' (`link.rs`, `nft.rs`).
//!
//! A socket belongs to the network namespace of the thread that opened it, for ever, whoever uses it
//! later.
#![expect(unsafe_code, reason = "two socket options that nix does not know")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

use super::wire::{self, Malformed, NetlinkMessage};

/// Datagrams of a dump are at most 32 KiB; answers are small.
const RECEIVE_BYTES: usize = 64 * 1024;
/// Room for the largest batch of one container's rules, and for as many complaints about it.
const BUFFER_BYTES: usize = 32 * 1024 * 1024;
/// The kernel answers within the call; to wait longer than this would be to wait for ever.
const PATIENCE_SECONDS: i64 = 10;
/// How often a dump is begun again because something changed meanwhile.
const DUMP_ATTEMPTS: usize = 32;

/// Netlink failed. Nothing has changed, except where [`NetlinkError::Io`] comes after the request
/// went out: then the caller looks at what is there.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The kernel refused; `words` is what it said beyond the number, often nothing.
    #[error("the kernel refused: {errno}{}{words}", if words.is_empty() { "" } else { ": " })]
    Refused {
        /// The kernel's error number.
        errno: Errno,
        /// The kernel's words (extack).
        words: String,
    },
    /// The socket failed.
    #[error("netlink socket")]
    Io(#[source] io::Error),
    /// The kernel's answer could not be read: it, or we, speak another dialect.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A message outgrew what netlink can say; nothing was sent.
    #[error("a netlink message is too long")]
    TooLong,
    /// The state changed during each of many dumps.
    #[error("the kernel's state would not hold still to be read")]
    Restless,
}

impl NetlinkError {
    /// Is it this refusal?
    pub fn is(&self, wanted: Errno) -> bool {
        matches!(self, NetlinkError::Refused { errno, .. } if *errno == wanted)
    }
}

impl From<Errno> for NetlinkError {
    fn from(errno: Errno) -> NetlinkError {
        NetlinkError::Io(errno.into())
    }
}

/// A message of a dump, without its header.
pub(super) type Dumped = Vec<u8>;

/// One socket of one netlink family.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// For links, addresses, routes.
    pub fn route() -> Result<Socket, NetlinkError> {
        Socket::open(SockProtocol::NetlinkRoute)
    }

    /// For nftables and connection tracking.
    pub fn netfilter() -> Result<Socket, NetlinkError> {
        Socket::open(SockProtocol::NetlinkNetFilter)
    }

    fn open(protocol: SockProtocol) -> Result<Socket, NetlinkError> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(PATIENCE_SECONDS, 0))?;
        // Needs CAP_NET_ADMIN, as all that follows does.
        setsockopt(&fd, sockopt::SndBufForce, &BUFFER_BYTES)?;
        setsockopt(&fd, sockopt::RcvBufForce, &BUFFER_BYTES)?;
        // Both only make answers better: an old kernel that knows neither still answers.
        let _ = switch_on(&fd, libc::NETLINK_EXT_ACK);
        let _ = switch_on(&fd, libc::NETLINK_CAP_ACK);
        Ok(Socket { fd, sequence: 0 })
    }

    /// Sends one request and waits until it is done.
    pub(super) fn request(&mut self, mut message: NetlinkMessage) -> Result<(), NetlinkError> {
        message.wants_ack();
        self.rewind();
        let sequence = self.next();
        self.send(&message.finish(sequence).ok_or(NetlinkError::TooLong)?)?;
        self.await_answers(sequence, sequence)
    }

    /// Sends messages that take effect together or not at all. The caller frames them as netfilter
    /// wants a batch framed (`nft::batch`): first and last are the brackets, which are not answered
    /// if all is well.
    pub(super) fn batch(&mut self, mut messages: Vec<NetlinkMessage>) -> Result<(), NetlinkError> {
        let Some(last) = messages.len().checked_sub(2) else { return Ok(()) };
        messages[last].wants_ack();
        self.rewind();
        let first = self.sequence + 1;
        let mut answered = first;
        let mut bytes = Vec::new();
        for (at, message) in messages.into_iter().enumerate() {
            let sequence = self.next();
            if at == last {
                answered = sequence;
            }
            bytes.extend(message.finish(sequence).ok_or(NetlinkError::TooLong)?);
        }
        self.send(&bytes)?;
        self.await_answers(first, answered)
    }

    /// All that a dump request brings.
    pub(super) fn dump(&mut self, message: &NetlinkMessage) -> Result<Vec<Dumped>, NetlinkError> {
        for _ in 0..DUMP_ATTEMPTS {
            self.rewind();
            let sequence = self.next();
            self.send(&message.clone().finish(sequence).ok_or(NetlinkError::TooLong)?)?;
            if let Some(found) = self.collect(sequence)? {
                return Ok(found);
            }
        }
        Err(NetlinkError::Restless)
    }

    /// What a request for one thing brings.
    pub(super) fn ask(&mut self, mut message: NetlinkMessage) -> Result<Vec<Dumped>, NetlinkError> {
        message.wants_ack();
        self.dump(&message)
    }

    /// `None`: the dump was disturbed and has to begin again.
    fn collect(&mut self, sequence: u32) -> Result<Option<Vec<Dumped>>, NetlinkError> {
        let mut buffer = vec![0; RECEIVE_BYTES];
        let mut found = Vec::new();
        let mut disturbed = false;
        loop {
            let count = self.receive(&mut buffer)?;
            for reply in wire::replies(&buffer[..count])? {
                if reply.sequence != sequence {
                    continue;
                }
                disturbed |= reply.flags & wire::NLM_F_DUMP_INTR != 0;
                match reply.kind {
                    // The end brings an error number too, that of the dump, and quotes nothing.
                    wire::NLMSG_DONE => {
                        let errno = i32::from_ne_bytes(wire::array_at(reply.payload, 0)?);
                        refused(errno.saturating_neg(), String::new())?;
                        return Ok((!disturbed).then_some(found));
                    }
                    wire::NLMSG_ERROR => {
                        let (errno, words) = wire::outcome(&reply)?;
                        refused(errno, words)?;
                        return Ok((!disturbed).then_some(found));
                    }
                    _ => found.push(reply.payload.to_vec()),
                }
            }
        }
    }

    /// Reads answers until `last` is answered. The first refusal counts: those after it follow from
    /// it. A refusal of `first` itself is of the whole, and nothing comes after it.
    fn await_answers(&mut self, first: u32, last: u32) -> Result<(), NetlinkError> {
        let mut buffer = vec![0; RECEIVE_BYTES];
        let mut refusal = Ok(());
        loop {
            let count = match self.receive(&mut buffer) {
                Err(_) if refusal.is_err() => return refusal,
                count => count?,
            };
            for reply in wire::replies(&buffer[..count])? {
                let ours = (first..=last).contains(&reply.sequence);
                if reply.kind != wire::NLMSG_ERROR || !ours {
                    continue;
                }
                let (errno, words) = wire::outcome(&reply)?;
                refusal = refusal.and(refused(errno, words));
                if reply.sequence == last || (reply.sequence == first && errno != 0) {
                    return refusal;
                }
            }
        }
    }

    /// Starts numbering again long before it would wrap within a batch.
    fn rewind(&mut self) {
        if self.sequence > u32::MAX / 2 {
            self.sequence = 0;
        }
    }

    fn next(&mut self) -> u32 {
        self.sequence += 1;
        self.sequence
    }

    fn send(&self, bytes: &[u8]) -> Result<(), NetlinkError> {
        // Answers to an earlier request that nobody read would only be in the way.
        let mut stale = [0; 64];
        while recvfrom_quietly(&self.fd, &mut stale) {}
        let kernel = NetlinkAddr::new(0, 0);
        loop {
            match sendto(self.fd.as_raw_fd(), bytes, &kernel, MsgFlags::empty()) {
                Err(Errno::EINTR) => {}
                sent => return Ok(sent.map(|_| ())?),
            }
        }
    }

    fn receive(&self, buffer: &mut [u8]) -> Result<usize, NetlinkError> {
        loop {
            match recvfrom::<NetlinkAddr>(self.fd.as_raw_fd(), buffer) {
                Err(Errno::EINTR) => {}
                // Other processes can send to us too: only the kernel has port 0.
                Ok((_, Some(sender))) if sender.pid() != 0 => {}
                received => return Ok(received?.0),
            }
        }
    }
}

fn recvfrom_quietly(fd: &OwnedFd, buffer: &mut [u8]) -> bool {
    nix::sys::socket::recv(fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT).is_ok()
}

fn refused(errno: i32, words: String) -> Result<(), NetlinkError> {
    match errno {
        0 => Ok(()),
        _ => Err(NetlinkError::Refused { errno: Errno::from_raw(errno), words }),
    }
}

fn switch_on(fd: &OwnedFd, option: libc::c_int) -> Result<(), Errno> {
    let on: libc::c_int = 1;
    let size = libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the descriptor is open, and the pointer and size describe `on`, which outlives the
    // call; the kernel only reads it.
    let result = unsafe {
        let value = std::ptr::from_ref(&on).cast();
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_NETLINK, option, value, size)
    };
    Errno::result(result).map(|_| ())
}
