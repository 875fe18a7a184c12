//! Suspects: what happens when a cell goes missing, comes back, or speaks while it is missing.
//! `docs/tables/bbs_suspect.md` is the law; a test plays each of its rows on a board.

use std::sync::Arc;

use volvox_protocol::actual_lrp::{ActualLrp, LrpState, Presence, Running};
use volvox_protocol::cell::CellPresence;
use volvox_protocol::event::Event;
use volvox_protocol::id::CellId;
use volvox_protocol::request::Rejection;

use super::actual::standing;
use super::txn::{IndexRecords, Txn, group_of, subject_of};
use crate::bbs::command::{CellCoverage, Change, Reply};
use crate::bbs::state::InstanceRow;

impl Txn<'_> {
    pub(super) fn cell_presence(
        &mut self,
        cell: CellId,
        presence: CellPresence,
    ) -> Result<Reply, Rejection> {
        let before = self.board.presence.get(&cell).copied();
        if before != Some(presence) {
            self.put(Change::Presence(cell, before, Some(presence)));
        }
        self.converge_due()
    }

    pub(super) fn cells_settled(&mut self) -> Result<Reply, Rejection> {
        if self.board.heard != CellCoverage::All {
            self.put(Change::Settled(self.board.heard, CellCoverage::All));
        }
        self.converge_due()
    }

    /// The cell of an ordinary record is missing. The first time, the record becomes suspect and
    /// gets a replacement. When it is itself the replacement, the suspect is kept instead: it may
    /// still run, which is better than nothing; the next replacement waits for a while.
    pub(super) fn cell_lost(&mut self, at: &IndexRecords, slot: &InstanceRow) {
        if at.suspect.is_some() {
            self.remove(slot);
            self.set_asked(subject_of(&slot.lrp), Some(self.now));
            return;
        }
        self.change(slot, ActualLrp { presence: Presence::Suspect, ..(*slot.lrp).clone() });
        // While an update rolls the replacement may have to be of another definition: convergence
        // knows which.
        if self.wants(&slot.lrp)
            && let Some(deployment) = self.deployment(&slot.lrp.process_guid)
        {
            self.create_unclaimed(&deployment, &slot.lrp.definition_id, slot.lrp.index);
        }
    }

    /// The cell of a suspect is back. If the replacement does not run yet it goes, and the
    /// suspect is ordinary again; else the suspect goes.
    pub(super) fn cell_found(&mut self, at: &IndexRecords, suspect: &InstanceRow) {
        match &at.ordinary {
            Some(ordinary) if ordinary.lrp.state.is_running() => self.remove_suspect(suspect),
            ordinary => {
                if let Some(ordinary) = ordinary {
                    self.remove(ordinary);
                }
                let lrp = (*suspect.lrp).clone();
                self.change(suspect, ActualLrp { presence: Presence::Ordinary, ..lrp });
            }
        }
    }

    /// A suspect goes.
    pub(super) fn remove_suspect(&mut self, suspect: &InstanceRow) {
        self.emit(Event::GroupRemoved(group_of(&suspect.lrp)));
        self.remove(suspect);
    }

    /// The missing cell says that the suspect runs. That does not make the cell present: the
    /// replacement goes on, and once it runs there is no way back. Where and under which names it is
    /// reached is taken from it: the cell says so once, and the suspect may become ordinary again.
    pub(super) fn start_by_suspect(
        &mut self,
        at: &IndexRecords,
        suspect: &InstanceRow,
        running: Arc<Running>,
    ) -> Result<Reply, Rejection> {
        if let Some(ordinary) = at.ordinary.as_ref().filter(|it| it.lrp.state.is_running()) {
            return Err(Rejection::CannotStart(standing(Some(ordinary))));
        }
        if let LrpState::Running(instance, known) = &suspect.lrp.state
            && *known != running
        {
            let state = LrpState::Running(instance.clone(), running);
            let lrp = self.change(suspect, self.next_version(&suspect.lrp, state));
            self.emit(Event::GroupChanged(group_of(&suspect.lrp), group_of(&lrp)));
        }
        Ok(Reply::Done)
    }

    /// The missing cell says that the suspect crashed: the replacement stands for the index now.
    pub(super) fn suspect_crashed(&mut self, at: &IndexRecords, suspect: &InstanceRow) {
        self.remove_suspect(suspect);
        if let Some(ordinary) = &at.ordinary {
            self.emit(Event::GroupCreated(group_of(&ordinary.lrp)));
        }
    }

    /// The missing cell evacuates the suspect: it serves on as an evacuating record.
    pub(super) fn suspect_evacuates(
        &mut self,
        at: &IndexRecords,
        suspect: &InstanceRow,
        lrp: ActualLrp,
    ) {
        if let Some(other) = &at.evacuating {
            self.remove(other);
            self.emit(Event::GroupRemoved(group_of(&other.lrp)));
        }
        let lrp = self.replace(suspect, lrp);
        self.emit(Event::GroupCreated(group_of(&lrp)));
        self.emit(Event::GroupRemoved(group_of(&suspect.lrp)));
        self.emit(Event::InstanceChanged(Arc::clone(&suspect.lrp), lrp));
        if let Some(ordinary) = &at.ordinary {
            self.emit(Event::GroupCreated(group_of(&ordinary.lrp)));
        }
    }
}
