//! Where connections wait that have not shown who they are: room for a number of them, and when it is
//! full the oldest of the address that has the most goes. So a flood of half-open connections from one
//! place costs that place, and others come through.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;
use volvox_host::sync::lock;

/// The room.
#[derive(Debug, Clone)]
pub(crate) struct PreauthLimiter(Arc<PreauthInner>);

#[derive(Debug)]
struct PreauthInner {
    most: usize,
    guests: Mutex<PreauthConnections>,
}

#[derive(Debug, Default)]
struct PreauthConnections {
    next: u64,
    all: BTreeMap<u64, (IpAddr, oneshot::Sender<()>)>,
    by_address: BTreeMap<IpAddr, BTreeSet<u64>>,
    /// The same addresses by how many each has, and of those with as many by whose guest is oldest: the
    /// last one has to give.
    by_count: BTreeSet<(usize, Reverse<u64>, IpAddr)>,
    turned_out: u64,
}

/// A place in the lobby. Given up when it is dropped.
#[derive(Debug)]
pub(crate) struct PreauthPermit {
    lobby: PreauthLimiter,
    number: u64,
}

impl PreauthLimiter {
    pub(crate) fn new(most: usize) -> Self {
        PreauthLimiter(Arc::new(PreauthInner { most: most.max(1), guests: Mutex::default() }))
    }

    /// Lets a connection wait. It has to go when the receiver hears something.
    pub(crate) fn enter(&self, address: IpAddr) -> (PreauthPermit, oneshot::Receiver<()>) {
        let (go, told) = oneshot::channel();
        let address = place(address);
        let mut guests = self.guests();
        let number = guests.next;
        guests.next += 1;
        guests.add(number, address, go);
        while guests.all.len() > self.0.most {
            let Some(oldest) = guests.least_welcome() else { break };
            if let Some(go) = guests.remove(oldest) {
                guests.turned_out += 1;
                // It may have left by itself.
                let _ = go.send(());
            }
        }
        (PreauthPermit { lobby: self.clone(), number }, told)
    }

    /// How many wait, and how many were turned out so far.
    pub(crate) fn count(&self) -> (usize, u64) {
        let guests = self.guests();
        (guests.all.len(), guests.turned_out)
    }

    fn guests(&self) -> MutexGuard<'_, PreauthConnections> {
        lock(&self.0.guests)
    }
}

impl PreauthConnections {
    fn add(&mut self, number: u64, address: IpAddr, go: oneshot::Sender<()>) {
        self.all.insert(number, (address, go));
        let of_address = self.by_address.entry(address).or_default();
        self.by_count.remove(&rank(address, of_address));
        of_address.insert(number);
        self.by_count.insert(rank(address, of_address));
    }

    fn remove(&mut self, number: u64) -> Option<oneshot::Sender<()>> {
        let (address, go) = self.all.remove(&number)?;
        if let Some(of_address) = self.by_address.get_mut(&address) {
            self.by_count.remove(&rank(address, of_address));
            of_address.remove(&number);
            if of_address.is_empty() {
                self.by_address.remove(&address);
            } else {
                self.by_count.insert(rank(address, of_address));
            }
        }
        Some(go)
    }

    fn least_welcome(&self) -> Option<u64> {
        self.by_count.last().map(|(_, Reverse(oldest), _)| *oldest)
    }
}

/// Where an address counts: one machine may have all addresses of its IPv6 network.
fn place(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

fn rank(address: IpAddr, guests: &BTreeSet<u64>) -> (usize, Reverse<u64>, IpAddr) {
    (guests.len(), Reverse(guests.first().copied().unwrap_or(0)), address)
}

impl Drop for PreauthPermit {
    fn drop(&mut self) {
        self.lobby.guests().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn a_flood_costs_only_the_place_it_comes_from() {
        let lobby = PreauthLimiter::new(10);
        let mut quiet: Vec<_> = (1..=3).map(|last| lobby.enter(address(last))).collect();
        let mut flood: Vec<_> = (0..1_000).map(|_| lobby.enter(address(9))).collect();
        assert_eq!(lobby.count(), (10, 993));
        assert!(quiet.iter_mut().all(|(_, told)| told.try_recv().is_err()), "the quiet stay");
        let stay = flood.iter_mut().filter_map(|(_, told)| told.try_recv().err()).count();
        assert_eq!(stay, 7, "the newest of the flood");
        drop(flood);
        assert_eq!(lobby.count().0, 3);
        drop(quiet);
        let guests = lobby.guests();
        assert!(
            guests.all.is_empty() && guests.by_address.is_empty() && guests.by_count.is_empty()
        );
    }

    #[test]
    fn a_full_lobby_still_lets_a_newcomer_in() {
        let lobby = PreauthLimiter::new(2);
        let (_a, mut first) = lobby.enter(address(1));
        let (_b, mut second) = lobby.enter(address(2));
        let (_c, mut third) = lobby.enter(address(3));
        let told = [first.try_recv(), second.try_recv(), third.try_recv()];
        assert_eq!(told.map(|told| told.is_ok()), [true, false, false], "the oldest had to go");
        assert_eq!(lobby.count(), (2, 1));
    }

    #[test]
    fn a_network_of_addresses_is_one_place() {
        let lobby = PreauthLimiter::new(10);
        let far: IpAddr = "fd00::1".parse().unwrap();
        let (_quiet, mut told) = lobby.enter(far);
        let flood: Vec<_> = (0..100_u16)
            .map(|nth| lobby.enter(format!("2001:db8::{nth:x}").parse().unwrap()))
            .collect();
        assert!(told.try_recv().is_err(), "the quiet one stays, whatever its address");
        drop(flood);
    }
}
