//! What there is before what changes.

use std::sync::Arc;

use bytes::BytesMut;
use serde_json::json;
use volvox_protocol::event::Event;
use volvox_protocol::id::ProcessGuid;
use volvox_protocol::resolve;

use super::legacy::Form;
use super::{PIECE, Stream, is_of_cell, own_frame};
use crate::bbs::hub;
use crate::bbs::state::Records;

/// Everything there is, as events that create it.
pub(super) struct Snapshot {
    records: Arc<Records>,
    stream: Stream,
    form: Form,
    cell: String,
    begun: bool,
    processes: std::vec::IntoIter<ProcessGuid>,
    tasks: std::vec::IntoIter<Arc<volvox_protocol::task::Task>>,
}

impl Snapshot {
    pub(super) fn of(records: Arc<Records>, (stream, form): (Stream, Form), cell: &str) -> Self {
        let (processes, tasks) = match stream {
            Stream::Tasks => (Vec::new(), records.tasks().cloned().collect()),
            Stream::Groups | Stream::Instances | Stream::Deployments => {
                (records.processes().map(|(guid, _)| guid.clone()).collect(), Vec::new())
            }
        };
        let (processes, tasks) = (processes.into_iter(), tasks.into_iter());
        let cell = cell.to_owned();
        Snapshot { records, stream, form, cell, begun: false, processes, tasks }
    }

    /// Writes a piece. False: that was the last one.
    pub(super) fn write(&mut self, text: &mut BytesMut) -> bool {
        if !std::mem::replace(&mut self.begun, true) {
            text.extend_from_slice(&hub::frame(None, "snapshot_begin", &json!({})));
        }
        while text.len() < PIECE {
            if let Some(task) = self.tasks.next() {
                self.put(text, &Event::TaskCreated(task));
            } else if let Some(guid) = self.processes.next() {
                for event in self.process(&guid) {
                    self.put(text, &event);
                }
            } else {
                return false;
            }
        }
        true
    }

    fn process(&self, guid: &ProcessGuid) -> Vec<Event> {
        let Some(process) = self.records.process(guid) else { return Vec::new() };
        let desired = process.deployment.as_ref();
        let desired = desired.map(|(_, it)| Event::DesiredLrpCreated(Arc::clone(it)));
        let lrps = process.instances().iter().map(|slot| &slot.lrp);
        let actual: Vec<Event> = match self.stream {
            Stream::Groups => resolve::groups(lrps)
                .into_iter()
                .map(|(_, group)| Event::GroupCreated(group))
                .collect(),
            Stream::Instances | Stream::Deployments => {
                lrps.cloned().map(Event::InstanceCreated).collect()
            }
            Stream::Tasks => Vec::new(),
        };
        desired.into_iter().chain(actual).collect()
    }

    fn put(&self, text: &mut BytesMut, event: &Event) {
        if self.cell.is_empty() || is_of_cell(event, &self.cell) {
            let own = own_frame(self.stream, self.form, None, event);
            text.extend_from_slice(&own.unwrap_or_else(|| hub::frame(None, event.name(), event)));
        }
    }
}
