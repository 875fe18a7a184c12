//! Deliberate bugs, for the test that the simulator finds bugs. None can be switched on in a release:
//! there, [`mutated`] is `false` before anything is compiled.
//!
//! A bug is on for a thread, for as long as the value that [`Bug::on`] gives lives.

#[cfg(debug_assertions)]
use std::cell::Cell;
#[cfg(debug_assertions)]
use std::marker::PhantomData;

/// One deliberate bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// Now and then a commit leaves out one change.
    LostChange,
    /// What could not be committed stays on the board.
    NotTakenBack,
    /// What could not be committed is acknowledged.
    AnswersRegardless,
    /// Subscribers are not told that an instance came to run.
    DroppedEvent,
    /// `rep_lrp`: a container that runs is not reported for a record that is claimed.
    NeverStarted,
    /// `rep_lrp`: a container is kept whose record runs on another cell.
    KeepsWhatIsTheirs,
    /// After a restart of the coordinator new records take the places of old ones on the disk.
    RowsAreReused,
    /// The board is not told that an instance has other tags now.
    TagsAreNotTold,
    /// A task whose cell is missing is started again on another.
    LostTaskStartsAgain,
    /// A task whose cell is missing runs for ever.
    LostTaskIsNotEnded,
    /// A claim is not checked: whoever comes last has the instance.
    UncheckedClaim,
    /// The suspect is not removed when its replacement runs.
    SuspectStays,
    /// Nobody asks again for a start that was lost.
    StartsAreNotRepeated,
    /// An instance that was only claimed is not replaced when its cell is missing.
    ClaimedIsNotReplaced,
    /// Domains count as fresh for ever.
    AlwaysFresh,
    /// Cell and board may differ for ever.
    NoSyncOnMismatch,
    /// A cell that is missing is not told to the board.
    MissingIsNotTold,
    /// An update that is done does not end.
    RollNeverEnds,
    /// `rep_lrp`: a container that crashed is left, and its record runs on.
    CrashIsIgnored,
    /// After a restart of the agent, what had ended meanwhile is not noticed.
    ForgetsExits,
    /// What was told to stop stays among the assignments of its cell.
    StaysAssigned,
    /// An update takes up one index more than it may.
    OneMoreInFlight,
    /// A task that has ended is forgotten before its consumer was told.
    ForgetsTasks,
    /// A consumer that cannot be called counts as told.
    UntoldIsForgotten,
    /// The end of a task is taken for the end of the one that has its name by now.
    NamesakeIsForgotten,
    /// The desk lets a later request of a report pass one that was put off.
    RequestsOvertake,
    /// A sync of several pages ends after the first.
    OnePageIsEnough,
    /// What is read from the coordinator's log need not be on the disk for good.
    LogIsNotSettled,
    /// A commit that failed at its end may be there again after the next start.
    LogIsNotEnded,
    /// A database that was opened again is written to though it could not be read back.
    UsableUnread,
    /// What is heard of the mesh while the database cannot be opened is forgotten.
    NewsIsRefused,
    /// A member that is not reached is accused by nobody.
    NeverSuspects,
    /// A member that is accused does not answer.
    NeverRefutes,
    /// foca's timers are never delivered: no probe, no timeout.
    TimersAreNotDelivered,
    /// An answer to a ping counts also if another member than the target sends it.
    SourceIsNotChecked,
    /// A suspicion counts without its author's signature.
    UnsignedSuspicions,
    /// A suspicion counts whichever alive record it names, also an old one.
    AnyAliveRecord,
    /// A suspicion that names a newer alive record than is known is believed.
    NewerIsBelieved,
    /// Every suspicion of a member is refuted at once, however often one cell repeats it.
    RefutesAtOnce,
    /// A suspicion that comes too soon after the last one is never refuted.
    DropsInsteadOfPostponing,
    /// A sender that is not a neighbour stays in foca's list.
    StrangersStay,
    /// A newer alive record does not reach foca.
    AliveIsNotApplied,
    /// What helpers say of a member that never answers counts without limit.
    HearsayCounts,
    /// What a power cut left torn at the end of a cell's assignments hides what is written behind it.
    TornIsKept,
}

impl Bug {
    /// Those that the fleet simulator finds.
    pub const FLEET: [Bug; 35] = [
        Bug::LostChange,
        Bug::NotTakenBack,
        Bug::AnswersRegardless,
        Bug::DroppedEvent,
        Bug::NeverStarted,
        Bug::KeepsWhatIsTheirs,
        Bug::RowsAreReused,
        Bug::TagsAreNotTold,
        Bug::LostTaskStartsAgain,
        Bug::LostTaskIsNotEnded,
        Bug::UncheckedClaim,
        Bug::SuspectStays,
        Bug::StartsAreNotRepeated,
        Bug::ClaimedIsNotReplaced,
        Bug::AlwaysFresh,
        Bug::NoSyncOnMismatch,
        Bug::MissingIsNotTold,
        Bug::RollNeverEnds,
        Bug::CrashIsIgnored,
        Bug::ForgetsExits,
        Bug::StaysAssigned,
        Bug::OneMoreInFlight,
        Bug::ForgetsTasks,
        Bug::UntoldIsForgotten,
        Bug::NamesakeIsForgotten,
        Bug::RequestsOvertake,
        Bug::OnePageIsEnough,
        Bug::LogIsNotSettled,
        Bug::LogIsNotEnded,
        Bug::UsableUnread,
        Bug::NewsIsRefused,
        Bug::NeverSuspects,
        Bug::NeverRefutes,
        Bug::TimersAreNotDelivered,
        Bug::TornIsKept,
    ];

    /// Those in what foca may hear: hostile members in the mesh's own simulation find them.
    pub const FILTER: [Bug; 9] = [
        Bug::SourceIsNotChecked,
        Bug::UnsignedSuspicions,
        Bug::AnyAliveRecord,
        Bug::NewerIsBelieved,
        Bug::RefutesAtOnce,
        Bug::DropsInsteadOfPostponing,
        Bug::StrangersStay,
        Bug::AliveIsNotApplied,
        Bug::HearsayCounts,
    ];

    /// Switches it on for this thread, until the value is dropped.
    #[cfg(debug_assertions)]
    #[must_use]
    pub fn on(self) -> Switched {
        BUG.set(Some(self));
        Switched(PhantomData)
    }
}

#[cfg(debug_assertions)]
thread_local! {
    static BUG: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// A bug that is on.
#[cfg(debug_assertions)]
#[derive(Debug)]
pub struct Switched(PhantomData<*const ()>);

#[cfg(debug_assertions)]
impl Drop for Switched {
    fn drop(&mut self) {
        BUG.set(None);
    }
}

/// Whether this bug is on.
#[cfg(debug_assertions)]
pub fn mutated(bug: Bug) -> bool {
    BUG.get() == Some(bug)
}

/// Whether this bug is on: never.
#[cfg(not(debug_assertions))]
pub const fn mutated(_: Bug) -> bool {
    false
}
