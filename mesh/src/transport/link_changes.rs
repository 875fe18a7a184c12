//! Link changes: states of links and failed dials that the owner has not received yet.
//!
//! Packets may be lost, link changes may not. They wait here, and the memory is bounded: per member
//! only the latest state counts. A link that came up and went down before it was reported is not
//! reported. There is at most one entry per link and per member that the owner counts as linked,
//! and one per dial. A dial counts as in progress until its failure is reported.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use tokio::sync::oneshot;

use super::{Peer, TransportEvent};
use crate::identity::MemberId;

/// The latest state of a member's link that is not reported yet.
enum LinkChange {
    Up { peer: Box<Peer>, address: SocketAddr, dialled: bool, told: oneshot::Sender<()> },
    Down { reason: String },
}

enum LinkChangeKey {
    Member(MemberId),
    Dial { member: Option<MemberId>, address: SocketAddr, reason: String },
}

/// Changes that are not reported yet, in the order of the first change per member.
#[derive(Default)]
pub(super) struct LinkChanges {
    order: VecDeque<LinkChangeKey>,
    ordered: BTreeSet<MemberId>,
    states: BTreeMap<MemberId, LinkChange>,
    /// Members that have a link according to the last reported event.
    believed: BTreeSet<MemberId>,
}

impl LinkChanges {
    /// Records that a link came up, or has a newer connection. The receiver resolves when the event
    /// is reported, or when a later change replaces it.
    pub(super) fn up(
        &mut self,
        peer: &Peer,
        address: SocketAddr,
        dialled: bool,
    ) -> oneshot::Receiver<()> {
        let (told, when_told) = oneshot::channel();
        let peer = Box::new(peer.clone());
        let member = peer.identity.member;
        self.put(member, LinkChange::Up { peer, address, dialled, told });
        when_told
    }

    /// Records that a link went down.
    pub(super) fn down(&mut self, member: MemberId, reason: String) {
        if self.believed.contains(&member) {
            self.put(member, LinkChange::Down { reason });
        } else {
            self.states.remove(&member);
        }
    }

    fn put(&mut self, member: MemberId, link_change: LinkChange) {
        self.states.insert(member, link_change);
        if self.ordered.insert(member) {
            self.order.push_back(LinkChangeKey::Member(member));
        }
    }

    /// Records that a dial failed.
    pub(super) fn dial_failed(
        &mut self,
        member: Option<MemberId>,
        address: SocketAddr,
        reason: String,
    ) {
        self.order.push_back(LinkChangeKey::Dial { member, address, reason });
    }

    /// Removes the next event, which counts as reported from now on. `None`: there is none.
    pub(super) fn next(&mut self) -> Option<TransportEvent> {
        loop {
            let member = match self.order.pop_front()? {
                LinkChangeKey::Dial { member, address, reason } => {
                    return Some(TransportEvent::DialFailed { member, address, reason });
                }
                LinkChangeKey::Member(member) => member,
            };
            self.ordered.remove(&member);
            match self.states.remove(&member) {
                None => {}
                Some(LinkChange::Down { reason }) => {
                    self.believed.remove(&member);
                    return Some(TransportEvent::LinkDown { member, reason });
                }
                Some(LinkChange::Up { peer, address, dialled, told }) => {
                    self.believed.insert(member);
                    // The task that reads packets may have ended already.
                    let _ = told.send(());
                    return Some(TransportEvent::LinkUp { peer: *peer, address, dialled });
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use volvox_protocol::id::CellId;
    use volvox_protocol::time::Timestamp;

    use super::*;
    use crate::identity::{MemberIdentity, MemberKind};

    fn peer(n: u8) -> Peer {
        let identity = MemberIdentity {
            member: MemberId([n; 16]),
            kind: MemberKind::Cell,
            name: CellId::new("x").unwrap(),
            public_key: [0; 32],
            not_before: Timestamp::from_secs(0),
            not_after: Timestamp::from_secs(0),
        };
        Peer { identity, certificate: Vec::new() }
    }

    fn address() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 1))
    }

    /// `steps`: `+n` the link of member n came up, `-n` it went down, `?` take one event.
    /// `expected`: the events, in the same notation; `0` for none.
    fn check(steps: &str, expected: &str) {
        let mut link_changes = LinkChanges::default();
        let mut told = Vec::new();
        for step in steps.split(' ') {
            let n = step[1..].parse().unwrap_or(0);
            match &step[..1] {
                "+" => drop(link_changes.up(&peer(n), address(), false)),
                "-" => link_changes.down(MemberId([n; 16]), "gone".into()),
                _ => told.push(match link_changes.next() {
                    None => "0".to_owned(),
                    Some(TransportEvent::LinkUp { peer, .. }) => {
                        format!("+{}", peer.identity.member.0[0])
                    }
                    Some(TransportEvent::LinkDown { member, .. }) => format!("-{}", member.0[0]),
                    Some(other) => panic!("{other:?}"),
                }),
            }
        }
        assert_eq!(told.join(" "), expected, "after {steps}");
        assert!(link_changes.order.len() <= 2, "{steps} left {} entries", link_changes.order.len());
    }

    #[test]
    fn only_the_latest_state_is_told_and_what_came_and_went_is_no_news() {
        check("+1 ? -1 ? ?", "+1 -1 0");
        check("+1 -1 ?", "0");
        check("+1 -1 +1 ? ?", "+1 0");
        check("+1 ? -1 +1 ? ?", "+1 +1 0");
        check("+1 ? +1 -1 ? ?", "+1 -1 0");
        check("+1 +2 -1 ? ?", "+2 0");
        check("-1 ?", "0");
        check("+1 -1 +1 -1 +1 -1 +2 +1 ? ? ?", "+1 +2 0");
    }

    #[test]
    fn a_reader_may_begin_when_its_link_was_told_or_superseded() {
        let mut link_changes = LinkChanges::default();
        let mut first = link_changes.up(&peer(1), address(), false);
        assert!(matches!(first.try_recv(), Err(oneshot::error::TryRecvError::Empty)));
        let mut second = link_changes.up(&peer(1), address(), true);
        assert!(matches!(first.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(matches!(link_changes.next(), Some(TransportEvent::LinkUp { dialled: true, .. })));
        second.try_recv().unwrap();
    }
}
