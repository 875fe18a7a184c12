//! Bodies of requests between cells and coordinator, as the mesh's codec reads them: cut short they
//! are read as if zeros followed. What decodes must encode to bytes that decode to the same.

#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;
use volvox_mesh::codec::{decode, encode};
use volvox_mesh::request::methods::open;
use volvox_protocol::cell_rpc::{
    CellOrders, CellOrdersReply, CellReport, CellReportReply, FetchDefinitions, FetchedDefinitions,
    SyncCell, SyncedCell,
};
use volvox_protocol::limits::{FETCH_ITEMS, REPORT_ITEMS, SYNC_ITEMS};
use volvox_protocol::validate::Valid;

const LIMIT: usize = 4 << 20;

fn again<T: DeserializeOwned + Serialize + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let value: T = decode(bytes, LIMIT).ok()?;
    assert_eq!(decode::<T>(&encode(&value), usize::MAX).expect("our own bytes decode"), value);
    Some(value)
}

fn opened(fetched: &FetchedDefinitions) {
    for lrp in &fetched.lrps {
        let _ = (open(&lrp.definition), open(&lrp.metric_tags), open(&lrp.routes));
    }
    for task in &fetched.tasks {
        let _ = open(&task.definition);
    }
}

// The first byte says which body it is to be.
fuzz_target!(|bytes: &[u8]| {
    let Some((kind, body)) = bytes.split_first() else { return };
    match kind % 8 {
        0 => {
            let Some(report) = again::<CellReport>(body) else { return };
            assert!(report.requests.len() <= REPORT_ITEMS);
            report.requests.into_iter().for_each(|request| drop(Valid::new(request)));
        }
        1 => {
            let Some(asked) = again::<FetchDefinitions>(body) else { return };
            assert!(asked.lrps.len() <= FETCH_ITEMS && asked.tasks.len() <= FETCH_ITEMS);
        }
        2 => {
            let Some(asked) = again::<SyncCell>(body) else { return };
            assert!(asked.lrps.len() <= SYNC_ITEMS && asked.tasks.len() <= SYNC_ITEMS);
        }
        3 => drop(again::<CellOrders>(body)),
        4 => drop(again::<CellOrdersReply>(body)),
        5 => drop(again::<CellReportReply>(body).map(|reply| opened(&reply.fetched))),
        6 => drop(again::<FetchedDefinitions>(body).map(|fetched| opened(&fetched))),
        _ => drop(again::<SyncedCell>(body)),
    }
});
