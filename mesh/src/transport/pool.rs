//! Connection pool: which links exist, and which link is displaced when the pool is full. Pure.
//!
//! A member has at most [`CONNECTIONS`] connections. More than one is needed because two members
//! may dial each other at the same time. Also, a restarted member connects again before its old
//! connection has timed out. The latest connection is used for sending. Older ones are still read
//! until they are idle.
//!
//! When the pool is full:
//! - A link that this member dialled, or a link of a coordinator, displaces the link of a cell that
//!   was used least recently.
//! - A link that a cell dialled is refused.
//! - Links of coordinators are never displaced: a pool full of them refuses all new links.

use std::collections::BTreeMap;

use super::Peer;
use crate::identity::{MemberId, MemberKind};

/// Maximum number of connections of one member. A newer one displaces the oldest.
const CONNECTIONS: usize = 2;

/// What the pool needs from a connection.
pub(super) trait PooledConnection {
    /// Number of the connection, unique in this process.
    fn id(&self) -> u64;
    /// Last use, as the value of a counter that only grows.
    fn last_used(&self) -> u64;
    /// Whether this member dialled the connection.
    fn dialled(&self) -> bool;
    /// The member at the other end.
    fn peer(&self) -> &Peer;
}

/// The links, by member. Each has at least one connection; the latest is the last.
pub(super) struct LinkPool<C> {
    most: usize,
    links: BTreeMap<MemberId, Vec<C>>,
}

/// Connections that the caller must close because another one was admitted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Admitted<C> {
    /// The oldest connection of the same member, above [`CONNECTIONS`].
    pub(super) surplus: Option<C>,
    /// The link of another member, with all its connections.
    pub(super) displaced: Option<(MemberId, Vec<C>)>,
}

/// Result of [`LinkPool::remove`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Removed {
    /// The connection is not in the pool: it was displaced or closed before.
    Unknown,
    /// The member has another connection.
    OthersLeft,
    /// It was the last connection of the member.
    Last,
}

impl<C: PooledConnection> LinkPool<C> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, links: BTreeMap::new() }
    }

    /// Adds a connection, which becomes the one for sending. `None`: the pool is full.
    pub(super) fn admit(&mut self, connection: C) -> Option<Admitted<C>> {
        let member = connection.peer().identity.member;
        if let Some(link) = self.links.get_mut(&member) {
            link.push(connection);
            let surplus = (link.len() > CONNECTIONS).then(|| link.remove(0));
            return Some(Admitted { surplus, displaced: None });
        }
        let mut displaced = None;
        if self.links.len() >= self.most {
            let precious =
                connection.dialled() || connection.peer().identity.kind == MemberKind::Coordinator;
            let oldest = self.least_recent().filter(|_| precious)?;
            displaced = self.links.remove_entry(&oldest);
        }
        self.links.insert(member, vec![connection]);
        Some(Admitted { surplus: None, displaced })
    }

    /// The cell whose link was used least recently. `None`: all links are of coordinators.
    fn least_recent(&self) -> Option<MemberId> {
        let used = |link: &[C]| link.iter().map(PooledConnection::last_used).max();
        let cells = self.links.iter().filter(|(_, link)| {
            link.iter().all(|connection| connection.peer().identity.kind == MemberKind::Cell)
        });
        cells.min_by_key(|(_, link)| used(link)).map(|(member, _)| *member)
    }

    /// Removes a connection that has ended.
    pub(super) fn remove(&mut self, member: MemberId, id: u64) -> Removed {
        let Some(link) = self.links.get_mut(&member) else { return Removed::Unknown };
        let before = link.len();
        link.retain(|connection| connection.id() != id);
        if link.len() == before {
            Removed::Unknown
        } else if link.is_empty() {
            self.links.remove(&member);
            Removed::Last
        } else {
            Removed::OthersLeft
        }
    }

    /// Removes the link of a member and returns its connections. `None`: there is no link.
    pub(super) fn take(&mut self, member: MemberId) -> Option<Vec<C>> {
        self.links.remove(&member)
    }

    /// The connection for sending. `None`: there is no link.
    pub(super) fn latest(&self, member: MemberId) -> Option<&C> {
        self.links.get(&member)?.last()
    }

    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// The connections for sending, of all members, by member id.
    pub(super) fn all(&self) -> impl Iterator<Item = &C> {
        self.links.values().filter_map(|link| link.last())
    }
}

#[cfg(test)]
mod tests {
    use volvox_protocol::id::CellId;
    use volvox_protocol::time::Timestamp;

    use super::*;
    use crate::identity::MemberIdentity;

    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Fake {
        id: u64,
        used: u64,
        dialled: bool,
        peer: Peer,
    }

    impl PooledConnection for Fake {
        fn id(&self) -> u64 {
            self.id
        }
        fn last_used(&self) -> u64 {
            self.used
        }
        fn dialled(&self) -> bool {
            self.dialled
        }
        fn peer(&self) -> &Peer {
            &self.peer
        }
    }

    fn member(n: u8) -> MemberId {
        MemberId([n; 16])
    }

    fn fake(id: u64, n: u8, kind: MemberKind) -> Fake {
        let identity = MemberIdentity {
            member: member(n),
            kind,
            name: CellId::new("x").unwrap(),
            public_key: [0; 32],
            not_before: Timestamp::from_secs(0),
            not_after: Timestamp::from_secs(0),
        };
        let peer = Peer { identity, certificate: Vec::new() };
        Fake { id, used: id, dialled: false, peer }
    }

    #[test]
    fn the_latest_of_two_is_used_and_the_third_drives_out_the_first() {
        let mut pool = LinkPool::new(1);
        for id in 1..=2 {
            let admitted = pool.admit(fake(id, 1, MemberKind::Cell)).unwrap();
            assert_eq!(admitted, Admitted { surplus: None, displaced: None });
            assert_eq!(pool.latest(member(1)).unwrap().id, id);
        }
        assert_eq!(pool.admit(fake(3, 1, MemberKind::Cell)).unwrap().surplus.unwrap().id, 1);
        assert_eq!(pool.remove(member(1), 1), Removed::Unknown);
        assert_eq!(pool.remove(member(1), 3), Removed::OthersLeft);
        assert_eq!(pool.latest(member(1)).unwrap().id, 2);
        assert_eq!(pool.remove(member(1), 2), Removed::Last);
        assert_eq!(pool.remove(member(1), 2), Removed::Unknown);
        assert_eq!(pool.len(), 0);
    }

    #[test]
    fn a_full_pool_refuses_cells_and_makes_room_for_coordinators_and_for_dials() {
        let mut pool = LinkPool::new(3);
        for (id, n) in [(1, 1), (2, 2)] {
            pool.admit(fake(id, n, MemberKind::Cell)).unwrap();
        }
        pool.admit(fake(0, 3, MemberKind::Coordinator)).unwrap();
        assert!(pool.admit(fake(4, 4, MemberKind::Cell)).is_none());
        let admitted = pool.admit(fake(5, 5, MemberKind::Coordinator)).unwrap();
        // The link of the coordinator was used even earlier, and stays.
        assert_eq!(admitted.displaced.unwrap().0, member(1));
        let dialled = Fake { dialled: true, ..fake(6, 6, MemberKind::Cell) };
        assert_eq!(pool.admit(dialled).unwrap().displaced.unwrap().0, member(2));
        assert_eq!(pool.len(), 3);
    }

    #[test]
    fn a_pool_full_of_coordinators_refuses_everybody() {
        let mut pool = LinkPool::new(1);
        pool.admit(fake(1, 1, MemberKind::Coordinator)).unwrap();
        let dialled = Fake { dialled: true, ..fake(2, 2, MemberKind::Coordinator) };
        assert!(pool.admit(dialled).is_none());
        assert_eq!(pool.all().count(), 1);
        assert_eq!(pool.take(member(1)).unwrap().len(), 1);
        assert!(pool.take(member(1)).is_none());
    }
}
