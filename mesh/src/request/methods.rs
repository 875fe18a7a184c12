//! Method numbers of the requests between cells and coordinators. A number is never reused for
//! another request. A change other than a new field at the end needs a new number.

use serde::de::DeserializeOwned;
use volvox_protocol::cell_rpc::{
    Carried, CellOrders, CellOrdersReply, CellReport, CellReportReply, FetchDefinitions,
    FetchedDefinitions, SyncCell, SyncedCell,
};
use volvox_protocol::stream::{OpenTerminal, Opened, ReadLog};

use super::{Request, StreamingRequest};
use crate::codec::{self, CodecError};

impl Request for CellReport {
    const METHOD: u16 = 16;
    const NAME: &'static str = "cell-report";
    type Reply = CellReportReply;
}

impl Request for FetchDefinitions {
    const METHOD: u16 = 17;
    const NAME: &'static str = "fetch-definitions";
    type Reply = FetchedDefinitions;
}

impl Request for SyncCell {
    const METHOD: u16 = 18;
    const NAME: &'static str = "sync-cell";
    type Reply = SyncedCell;
}

impl Request for CellOrders {
    const METHOD: u16 = 32;
    const NAME: &'static str = "cell-orders";
    type Reply = CellOrdersReply;
}

impl Request for ReadLog {
    const METHOD: u16 = 48;
    const NAME: &'static str = "read-log";
    type Reply = Opened;
}

impl StreamingRequest for ReadLog {}

impl Request for OpenTerminal {
    const METHOD: u16 = 49;
    const NAME: &'static str = "open-terminal";
    type Reply = Opened;
}

impl StreamingRequest for OpenTerminal {}

/// Decodes a carried value, which another release may have written. The value is not validated.
pub fn open<T: DeserializeOwned>(carried: &Carried<T>) -> Result<T, CodecError> {
    codec::decode(carried.bytes(), volvox_protocol::limits::FRAME_BYTES)
}

#[cfg(test)]
mod tests {
    use volvox_protocol::definition::LrpDefinition;

    use super::*;

    #[test]
    fn a_carried_definition_of_an_older_release_is_read_with_what_it_lacks_empty() {
        let definition = LrpDefinition { memory_mb: 64, ..LrpDefinition::default() };
        let bytes = codec::encode(&definition);
        let older: Carried<LrpDefinition> =
            codec::decode(&codec::encode(&bytes[..bytes.len() - 1].to_vec()), 1 << 20).unwrap();
        assert_eq!(open(&older).unwrap(), definition);
        let mut newer = bytes.clone();
        newer.extend([1, 2, 3]);
        let newer: Carried<LrpDefinition> = codec::decode(&codec::encode(&newer), 1 << 20).unwrap();
        assert_eq!(open(&newer).unwrap(), definition);
    }
}
