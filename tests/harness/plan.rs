//! What a run is made of. Everything follows from the seed, and parts may be left out.

use std::collections::BTreeSet;
use std::time::Duration;

use volvox_coordinator::cells::sync::PageSize;
use volvox_protocol::random::SplitMix;

/// How a run without any trouble is asked for.
pub const NO_TROUBLE: &str = "none";

/// A kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Packets are lost.
    Loss,
    /// Packets take long, each another time: they overtake each other.
    Delay,
    /// Packets come twice.
    Duplication,
    /// Some cells and the rest do not hear each other.
    Partition,
    /// Some do not hear others who hear them.
    OneWay,
    /// Some pairs do not hear each other.
    PartialCut,
    /// What comes to a member waits.
    SlowMember,
    /// A member stands still for a while.
    Pause,
    /// An agent dies at some write, or at some effect.
    AgentCrash,
    /// A machine loses its power, perhaps in the middle of a write.
    MachineCrash,
    /// A machine is lost for good.
    MachineLost,
    /// What holds a container dies, and the container with it.
    ShimCrash,
    /// A process in a container ends by itself.
    ProcessCrash,
    /// Containers cannot be made on a cell.
    NotMade,
    /// Making them takes long.
    SlowMaking,
    /// They cannot be taken away.
    NotDestroyed,
    /// What runs hangs: checks find nobody.
    Hang,
    /// The coordinator dies between two events, before a commit or right after it.
    CenterCrash,
    /// A commit fails, or nobody knows whether it did.
    CommitFailure,
    /// The coordinator's disk is full for a while.
    CenterDiskFull,
    /// The coordinator's disk is slow.
    SlowDisk,
    /// A cell's disk is full for a while, or some of its writes fail.
    CellDisk,
    /// Clocks of machines are wrong, and the coordinator's jumps.
    Clock,
    /// A cell is evacuated.
    Evacuation,
    /// A cell's self-test fails for a while.
    SelfTest,
    /// Agents and the coordinator are of an older release, do not know some of what they are told, and
    /// have written older records.
    Skew,
    /// The coordinator's database is lost.
    EmptyBoard,
    /// The consumer is silent for so long that its domains go stale.
    Silence,
    /// Callbacks fail.
    Callback,
    /// The board has no time for some of what cells ask, and there is little room at the desk.
    Crowd,
    /// What holds a container hangs, for a while or for ever.
    ShimHangs,
    /// A commit takes ten seconds, or so long that nobody waits for it.
    StuckCommit,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 32] = [
        Kind::Loss,
        Kind::Delay,
        Kind::Duplication,
        Kind::Partition,
        Kind::OneWay,
        Kind::PartialCut,
        Kind::SlowMember,
        Kind::Pause,
        Kind::AgentCrash,
        Kind::MachineCrash,
        Kind::MachineLost,
        Kind::ShimCrash,
        Kind::ProcessCrash,
        Kind::NotMade,
        Kind::SlowMaking,
        Kind::NotDestroyed,
        Kind::Hang,
        Kind::CenterCrash,
        Kind::CommitFailure,
        Kind::CenterDiskFull,
        Kind::SlowDisk,
        Kind::CellDisk,
        Kind::Clock,
        Kind::Evacuation,
        Kind::SelfTest,
        Kind::Skew,
        Kind::EmptyBoard,
        Kind::Silence,
        Kind::Callback,
        Kind::Crowd,
        Kind::ShimHangs,
        Kind::StuckCommit,
    ];
}

/// What a run is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// All randomness of the run.
    pub seed: u64,
    /// How many cells.
    pub cells: usize,
    /// How long things go wrong, and the consumer asks for things.
    pub troubled: Duration,
    /// Within this time after that the fleet must be as it is wanted: longer than the longest wait after
    /// a crash, which is sixteen minutes.
    pub settles_within: Duration,
    /// How long it must stay so. Longer than any regular pass for some seeds; most of the rest of a run
    /// is spent on that.
    pub stays_for: Duration,
    /// Which kinds of trouble there are.
    pub kinds: BTreeSet<Kind>,
    /// The time between two of them, on average.
    pub trouble_every: Duration,
    /// The time between two wishes of the consumer, on average.
    pub wish_every: Duration,
    /// The most processes that it has at once.
    pub processes: usize,
    /// The most instances of one.
    pub instances: usize,
    /// How much fits on a page of a sync.
    pub page: PageSize,
    /// Whether what must always hold is looked at all the time.
    pub checks: bool,
    /// Whether the story is kept: what happened, line by line.
    pub tells: bool,
}

impl Plan {
    /// The run of a seed: some kinds of trouble, at some pace.
    pub fn new(seed: u64, cells: usize) -> Plan {
        let mut random = SplitMix(seed ^ 0x706c_616e);
        let share = 1 + random.below(4);
        let rare = |kind: Kind| matches!(kind, Kind::EmptyBoard | Kind::Skew);
        // What was added later has a randomness of its own: the rest of a seed stays what it was.
        let mut later = SplitMix(seed ^ 0x6c61_7465);
        let chosen = Kind::ALL.into_iter().filter(|kind| {
            let all = if rare(*kind) { 8 } else { 4 };
            let random = if *kind >= Kind::Crowd { &mut later } else { &mut random };
            random.below(all) < share.min(3)
        });
        let kinds = chosen.collect();
        let seconds = |random: &mut SplitMix, least: usize, most: usize| {
            Duration::from_secs(u64::try_from(least + random.below(most - least)).unwrap_or(1))
        };
        Plan {
            seed,
            cells,
            troubled: seconds(&mut random, 10, 40),
            settles_within: Duration::from_secs(1_200),
            stays_for: Duration::from_secs(if seed.is_multiple_of(4) { 35 } else { 3 }),
            kinds,
            trouble_every: Duration::from_millis(40 + 150 * random.below(10) as u64),
            wish_every: Duration::from_millis(200 + 200 * random.below(10) as u64),
            processes: 2 + random.below(8),
            instances: 1 + random.below(2 + cells.min(100) / 2),
            page: match later.once_in(3) {
                true => PageSize { items: 2, bytes: 400 },
                false => PageSize::FULL,
            },
            checks: true,
            tells: false,
        }
    }

    /// The command that shows this very run.
    pub fn again(&self) -> String {
        let kinds: Vec<&str> = self.kinds.iter().map(|kind| kind.name()).collect();
        let kinds = if kinds.is_empty() { NO_TROUBLE.to_owned() } else { kinds.join(",") };
        let Plan { seed, cells, processes, instances, .. } = self;
        let troubled = self.troubled.as_millis();
        format!(
            "make sim SEED={seed} CELLS={cells} ARGS=\"--troubled-ms {troubled} \
             --processes {processes} --instances {instances} --only {kinds}\""
        )
    }

    /// The same run, told.
    #[must_use]
    pub fn told(&self) -> Plan {
        Plan { tells: true, ..self.clone() }
    }
}
