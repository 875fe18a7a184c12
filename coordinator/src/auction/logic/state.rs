//! How things stand while a round is decided: the room on each cell, the cheapest of them, and
//! where the instances of each process are.

use std::sync::Arc;

use volvox_protocol::cell::CellCapacity;
use volvox_protocol::id::ProcessGuid;
use volvox_protocol::request::Requirements;

use super::PlacedInstances;
use super::group::Group;
use super::process::{NOWHERE, ProcessSpread, ZoneCounts, is_among};
use crate::auction::filter::{Mismatch, PlacementError, Short, judge};
use crate::auction::fleet::{Eligibility, Fleet, number};
use crate::auction::score::{Headroom, NEVER, ResourceRequest, TIE_BITS};
use crate::auction::settings::{AuctionSettings, ZonePolicy, stable_hash};

/// The process of a task.
pub(super) const TASK: u32 = u32::MAX;
/// Needs that are remembered as hopeless, for each class of work.
const MOST_HOPELESS: usize = 16;
/// Indices that may leave their preferred zone.
const MAY_LEAVE: u32 = 2;

/// A piece of work, as much of it as the choice needs.
#[derive(Debug, Clone, Copy)]
pub(in crate::auction) struct WorkItem {
    /// What it wants of a cell beside room.
    pub(in crate::auction) class: u32,
    /// Its process, or [`TASK`].
    pub(in crate::auction) process: u32,
    /// The instance's index.
    pub(in crate::auction) index: u32,
    /// The room it takes.
    pub(in crate::auction) needs: ResourceRequest,
    /// The same, rounded: what it is weighed by.
    pub(in crate::auction) weighed: ResourceRequest,
}

/// What work wants of a cell beside room.
struct PlacementClass {
    /// What each kind lacks.
    kinds: Vec<Result<(), Mismatch>>,
    /// The groups that may take it, by zone.
    groups: Vec<u32>,
    /// The zones of those, with their part of `groups`.
    zones: Vec<(u32, std::ops::Range<usize>)>,
    /// For the text of the error.
    tags: Arc<[String]>,
    /// Needs for which no cell of all these had room. As a round goes on there is only less: who
    /// wants as much or more need not look.
    hopeless: Vec<ResourceRequest>,
}

/// The last answer to what is free: full fleets refuse much, one after the other.
#[derive(Clone, Copy)]
struct LastFree {
    question: (u32, Option<u32>, u64),
    most: CellCapacity,
}

/// How things stand.
pub(in crate::auction) struct RoundState<'a> {
    settings: &'a AuctionSettings,
    fleet: &'a Fleet,
    /// The cells that take part, group by group. A place in here is a seat.
    rooms: Vec<Headroom>,
    /// The cell of each seat.
    cells: Vec<u32>,
    /// The group of each seat.
    group_of: Vec<u32>,
    /// The seat of each cell.
    seats: Vec<u32>,
    groups: Vec<Group>,
    classes: Vec<PlacementClass>,
    processes: Vec<ProcessSpread>,
    /// The zones in which instances may be preferred, by number.
    preferred: Vec<Option<u32>>,
    /// Containers that are being started, everywhere.
    starting: u64,
    placed: u64,
    last_free: Option<LastFree>,
    /// Zone and kind of the cells that refused work a moment ago: they take no part, but are no
    /// strangers.
    refused: Vec<(u32, u32)>,
    /// Room for a list that every choice makes.
    scratch: Vec<u32>,
}

impl<'a> RoundState<'a> {
    /// How things stand at the beginning of a round.
    pub(in crate::auction) fn new(settings: &'a AuctionSettings, fleet: &'a Fleet) -> Self {
        let mut order: Vec<(u32, u32, u32)> = Vec::with_capacity(fleet.cells().len());
        let mut ranks = vec![0_u32; fleet.zones().len()];
        let mut rank_of = Vec::with_capacity(fleet.cells().len());
        let mut refused = Vec::new();
        for (place, cell) in fleet.cells().iter().enumerate() {
            let zone = fleet.zone_of(place);
            rank_of.push(ranks[zone as usize]);
            ranks[zone as usize] += 1;
            match cell.standing {
                Eligibility::Takes => order.push((zone, fleet.kind_of(place), number(place))),
                Eligibility::Refused => refused.push((zone, fleet.kind_of(place))),
                Eligibility::Unhealthy | Eligibility::Evacuating | Eligibility::Silent => {}
            }
        }
        order.sort_unstable();

        let mut stand = RoundState {
            settings,
            fleet,
            rooms: Vec::with_capacity(order.len()),
            cells: Vec::with_capacity(order.len()),
            group_of: Vec::with_capacity(order.len()),
            seats: vec![NOWHERE; fleet.cells().len()],
            groups: Vec::new(),
            classes: Vec::new(),
            processes: Vec::new(),
            preferred: preferred_zones(settings, fleet),
            starting: fleet.cells().iter().map(|cell| u64::from(cell.starting)).sum(),
            placed: 0,
            last_free: None,
            refused,
            scratch: Vec::new(),
        };
        for (zone, kind, place) in order {
            let cell = &fleet.cells()[place as usize];
            let rank = rank_of[place as usize];
            // Where cells are filled one after the other, that is their order also if the weight is
            // so large that costs saturate.
            let tie = if settings.bin_pack_weight > 0 {
                u64::from(rank) << (u64::BITS - TIE_BITS)
            } else {
                stable_hash(settings.seed, cell.info.cell_id.as_str())
            };
            let room = Headroom::new(cell.info.capacity, cell.free, cell.starting, rank, tie);
            let seat = stand.rooms.len();
            let same = |group: &&mut Group| (group.zone, group.kind) == (zone, kind);
            if let Some(group) = stand.groups.last_mut().filter(same) {
                group.len += 1;
            } else {
                stand.groups.push(Group::new(zone, kind, seat));
            }
            stand.seats[place as usize] = number(seat);
            stand.group_of.push(number(stand.groups.len() - 1));
            stand.rooms.push(room);
            stand.cells.push(place);
        }
        stand
    }

    /// The number of what this work wants of a cell.
    pub(super) fn class(&mut self, like: &Requirements) -> u32 {
        // By what the filter says, not by what was asked: every image is a root file system of its
        // own, and all of them are one to the cells.
        let kinds: Vec<_> = self.fleet.kinds().iter().map(|kind| judge(kind, like)).collect();
        let same = |it: &PlacementClass| it.kinds == kinds && *it.tags == *like.placement_tags;
        if let Some(known) = self.classes.iter().position(same) {
            return number(known);
        }
        let mut groups = Vec::new();
        let mut zones: Vec<(u32, std::ops::Range<usize>)> = Vec::new();
        for (place, group) in self.groups.iter().enumerate() {
            if kinds[group.kind as usize].is_err() {
                continue;
            }
            groups.push(number(place));
            match zones.last_mut().filter(|(zone, _)| *zone == group.zone) {
                Some((_, range)) => range.end += 1,
                None => zones.push((group.zone, groups.len() - 1..groups.len())),
            }
        }
        let tags = like.placement_tags.as_slice().into();
        self.classes.push(PlacementClass { kinds, groups, zones, tags, hopeless: Vec::new() });
        number(self.classes.len() - 1)
    }

    /// The number of a process, and where its instances are. On a cell that is being emptied an
    /// instance is as good as gone; on one that takes no work it serves its zone.
    pub(super) fn process(&mut self, guid: &ProcessGuid, residents: &impl PlacedInstances) -> u32 {
        let hash = stable_hash(0, guid.as_str());
        let mut process =
            ProcessSpread { hash, left: 0, seats: Vec::new(), zones: ZoneCounts::default() };
        residents.each(guid, &mut |cell| {
            let Some(place) = self.fleet.find(cell) else { return };
            if self.fleet.cells()[place].standing != Eligibility::Evacuating {
                process.add(self.seats[place], self.fleet.zone_of(place));
            }
        });
        self.processes.push(process);
        number(self.processes.len() - 1)
    }

    /// So many more pieces of work are of this process.
    pub(super) fn expect(&mut self, process: u32, pieces: usize) {
        self.processes[process as usize].left += pieces;
    }

    /// Finds the best cell and takes its room.
    pub(super) fn place(&mut self, claim: &WorkItem) -> Result<u32, PlacementError> {
        if self.limit_reached() {
            return Err(PlacementError::InFlight);
        }
        let zone = self.preferred_zone(claim);
        let found = if self.is_hopeless(claim) { None } else { self.choose(claim, zone) };
        match found {
            Some(seat) => {
                self.take(claim, seat);
                Ok(self.cells[seat as usize])
            }
            None => {
                if !matches!(zone, Preferred::Only(_)) {
                    self.give_up(claim);
                }
                Err(self.explain_none(claim, zone))
            }
        }
    }

    fn is_hopeless(&self, claim: &WorkItem) -> bool {
        self.classes[claim.class as usize].hopeless.iter().any(|it| it.within(claim.needs))
    }

    /// Remembers that no cell has room for this, and forgets what follows from it.
    fn give_up(&mut self, claim: &WorkItem) {
        let hopeless = &mut self.classes[claim.class as usize].hopeless;
        if hopeless.iter().any(|it| it.within(claim.needs)) {
            return;
        }
        hopeless.retain(|it| !claim.needs.within(*it));
        if hopeless.len() < MOST_HOPELESS {
            hopeless.push(claim.needs);
        }
    }

    /// Puts the work on this cell, as was decided once.
    pub(in crate::auction) fn replay(&mut self, claim: &WorkItem, cell: u32) {
        self.take(claim, self.seats[cell as usize]);
    }

    pub(in crate::auction) fn limit_reached(&self) -> bool {
        let limit = u64::from(self.settings.in_flight_starts);
        limit > 0 && self.starting >= limit
    }

    fn take(&mut self, claim: &WorkItem, seat: u32) {
        let place = seat as usize;
        self.rooms[place].take(claim.needs);
        self.starting += 1;
        self.placed += 1;
        let group = &mut self.groups[self.group_of[place] as usize];
        group.change(place);
        if let Some(process) = self.processes.get_mut(claim.process as usize) {
            process.left = process.left.saturating_sub(1);
            if process.left > 0 {
                process.add(seat, group.zone);
            }
        }
    }

    fn choose(&mut self, claim: &WorkItem, preferred: Preferred) -> Option<u32> {
        if claim.process == TASK {
            let mut best = (NEVER, NOWHERE);
            for place in 0..self.classes[claim.class as usize].groups.len() {
                let group = self.classes[claim.class as usize].groups[place];
                self.cheapest(group, claim, &mut best);
            }
            return (best.1 != NOWHERE).then_some(best.1);
        }
        match preferred {
            Preferred::Any => self.choose_evenly(claim),
            Preferred::Only(zone) => self.choose_in(claim, &[zone?]),
            Preferred::First(zone) => {
                let found = zone.and_then(|zone| self.choose_in(claim, &[zone]));
                found.or_else(|| self.choose_evenly(claim))
            }
        }
    }

    /// The zones with the fewest instances first; those with equally many together.
    fn choose_evenly(&mut self, claim: &WorkItem) -> Option<u32> {
        let mut above = None;
        let mut zones = std::mem::take(&mut self.scratch);
        let found = loop {
            let process = &self.processes[claim.process as usize];
            let mut lowest = u32::MAX;
            zones.clear();
            for (zone, _) in &self.classes[claim.class as usize].zones {
                let count = process.in_zone(*zone);
                if above.is_some_and(|above| count <= above) || count > lowest {
                    continue;
                }
                if count < lowest {
                    lowest = count;
                    zones.clear();
                }
                zones.push(*zone);
            }
            if zones.is_empty() {
                break None;
            }
            let found = self.choose_in(claim, &zones);
            if found.is_some() {
                break found;
            }
            above = Some(lowest);
        };
        self.scratch = zones;
        found
    }

    /// The best cell of these zones: the fewest instances of the process, then the lowest cost.
    fn choose_in(&mut self, claim: &WorkItem, zones: &[u32]) -> Option<u32> {
        let mut best = (NEVER, NOWHERE);
        for zone in zones {
            let class = &self.classes[claim.class as usize];
            let Ok(at) = class.zones.binary_search_by_key(zone, |(zone, _)| *zone) else {
                continue;
            };
            for place in class.zones[at].1.clone() {
                let group = self.classes[claim.class as usize].groups[place];
                self.cheapest(group, claim, &mut best);
            }
        }
        if best.1 != NOWHERE {
            return Some(best.1);
        }
        // Only cells that have one already are left, if any.
        let class = &self.classes[claim.class as usize];
        let seats = self.processes[claim.process as usize].seats.iter();
        let candidates = seats.filter(|(seat, _)| {
            let group = &self.groups[self.group_of[*seat as usize] as usize];
            zones.contains(&group.zone)
                && class.kinds[group.kind as usize].is_ok()
                && self.rooms[*seat as usize].fits(claim.needs)
        });
        let best = candidates.min_by_key(|(seat, count)| {
            (*count, self.rooms[*seat as usize].key(claim.weighed, self.settings), *seat)
        });
        best.map(|(seat, _)| *seat)
    }

    /// The cheapest cell of the group that has room and no instance of the process, if its key is
    /// below that of the best so far.
    fn cheapest(&mut self, group: u32, claim: &WorkItem, best: &mut (u64, u32)) {
        let group = &mut self.groups[group as usize];
        let first = group.first;
        let keys = group.keys(claim.weighed, &self.rooms, self.settings);
        let taken = self.processes.get(claim.process as usize).map_or(&[][..], |it| &it.seats);
        let accept = |leaf: usize| {
            let seat = first + leaf;
            self.rooms[seat].fits(claim.needs) && !is_among(taken, seat)
        };
        if let Some((key, leaf)) = keys.best(best.0, accept) {
            *best = (key, number(first + leaf));
        }
    }

    fn explain_none(&mut self, claim: &WorkItem, preferred: Preferred) -> PlacementError {
        let only = match preferred {
            Preferred::Only(zone) => Some(zone.unwrap_or(u32::MAX)),
            Preferred::Any | Preferred::First(_) => None,
        };
        let class = &self.classes[claim.class as usize];
        let groups = self.groups.iter().map(|group| (group.zone, group.kind));
        let tried = groups.chain(self.refused.iter().copied());
        let tried = tried.filter(|(zone, _)| only.is_none_or(|only| *zone == only));
        let judged = tried.map(|(_, kind)| class.kinds[kind as usize]);
        match judged.max_by_key(|verdict| reached(*verdict)) {
            None => PlacementError::NoCells,
            Some(Err(nearest)) => PlacementError::Incompatible(nearest, Arc::clone(&class.tags)),
            Some(Ok(())) => PlacementError::Insufficient(self.short(claim, only)),
        }
    }

    /// What is short on every cell that was tried: of what even the emptiest has too little.
    fn short(&mut self, claim: &WorkItem, only: Option<u32>) -> Short {
        let most = self.most_free(claim.class, only);
        Short {
            containers: most.containers < 1,
            disk: most.disk_mb < claim.needs.disk_mb,
            memory: most.memory_mb < claim.needs.memory_mb,
        }
    }

    /// The most of each resource that any one cell of the class has free.
    fn most_free(&mut self, class: u32, only: Option<u32>) -> CellCapacity {
        let question = (class, only, self.placed);
        if let Some(last) = self.last_free.filter(|last| last.question == question) {
            return last.most;
        }
        let mut most = CellCapacity::default();
        // A cell that refused work has less than it said, nobody knows of what.
        let kinds = &self.classes[class as usize].kinds;
        if self.refused.iter().any(|(zone, kind)| {
            only.is_none_or(|only| only == *zone) && kinds[*kind as usize].is_ok()
        }) {
            most = CellCapacity { memory_mb: u32::MAX, disk_mb: u32::MAX, containers: 1 };
        }
        for group in &self.classes[class as usize].groups {
            let group = &self.groups[*group as usize];
            if only.is_some_and(|zone| group.zone != zone) {
                continue;
            }
            for room in &self.rooms[group.first..group.first + group.len] {
                let free = room.free();
                most.containers = most.containers.max(free.containers);
                most.disk_mb = most.disk_mb.max(free.disk_mb);
                most.memory_mb = most.memory_mb.max(free.memory_mb);
            }
        }
        self.last_free = Some(LastFree { question, most });
        most
    }

    pub(in crate::auction) fn preferred_zone(&self, claim: &WorkItem) -> Preferred {
        if claim.process == TASK || self.preferred.is_empty() {
            return Preferred::Any;
        }
        let zones = self.preferred.len() as u64;
        let hash = self.processes[claim.process as usize].hash;
        let number = (hash % zones + u64::from(claim.index)) % zones;
        let zone = self.preferred[usize::try_from(number).expect("below the number of zones")];
        if claim.index < MAY_LEAVE { Preferred::First(zone) } else { Preferred::Only(zone) }
    }

    /// What a filter says of a cell.
    pub(in crate::auction) fn judged(&self, claim: &WorkItem, cell: usize) -> Result<(), Mismatch> {
        self.classes[claim.class as usize].kinds[self.fleet.kind_of(cell) as usize]
    }

    /// A cell's room, if it takes part.
    pub(in crate::auction) fn room(&self, cell: usize) -> Option<&Headroom> {
        self.rooms.get(self.seats[cell] as usize)
    }

    /// The same, with the seat: of equal cells the first seat is taken.
    pub(in crate::auction) fn seat(&self, cell: usize) -> Option<(u32, &Headroom)> {
        self.room(cell).map(|room| (self.seats[cell], room))
    }

    /// How many instances of the claim's process are in the cell's zone, and on the cell.
    pub(in crate::auction) fn company(&self, claim: &WorkItem, cell: usize) -> (u32, u32) {
        let Some(process) = self.processes.get(claim.process as usize) else { return (0, 0) };
        let seat = self.seats[cell];
        let on_cell = process.seats.binary_search_by_key(&seat, |(seat, _)| *seat);
        let on_cell = on_cell.map_or(0, |at| process.seats[at].1);
        (process.in_zone(self.fleet.zone_of(cell)), on_cell)
    }
}

/// The zone that an instance should be in; within it `None` if no cell of it is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::auction) enum Preferred {
    /// It makes no difference.
    Any,
    /// This one, or another if there is no room.
    First(Option<u32>),
    /// This one and no other.
    Only(Option<u32>),
}

/// How far a cell came through the filter.
fn reached(verdict: Result<(), Mismatch>) -> u8 {
    match verdict {
        Err(Mismatch::Rootfs) => 0,
        Err(Mismatch::VolumeDrivers) => 1,
        Err(Mismatch::PlacementTags) => 2,
        Ok(()) => 3,
    }
}

fn preferred_zones(settings: &AuctionSettings, fleet: &Fleet) -> Vec<Option<u32>> {
    match &settings.zone_policy {
        ZonePolicy::Even => Vec::new(),
        ZonePolicy::Preferred { zones } if zones.is_empty() => {
            (0..number(fleet.zones().len())).map(Some).collect()
        }
        ZonePolicy::Preferred { zones } => {
            zones.iter().map(|zone| fleet.zones().binary_search(zone).ok().map(number)).collect()
        }
    }
}
