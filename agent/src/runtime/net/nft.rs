//! The messages of nftables: tables, chains, rules, sets and their elements, made and read. Pure;
//! `net.rs` sends them in batches, which the kernel does whole or not at all. What our tables hold
//! is in `ruleset.rs`.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use super::expr::{self, NftVerdict, Rule};
use super::wire::{self, Malformed, NetlinkMessage};
use super::wire::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};

const SUBSYSTEM: u16 = 10 << 8;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;

const NEWTABLE: u16 = SUBSYSTEM;
const GETTABLE: u16 = SUBSYSTEM | 1;
const DELTABLE: u16 = SUBSYSTEM | 2;
const NEWCHAIN: u16 = SUBSYSTEM | 3;
const DELCHAIN: u16 = SUBSYSTEM | 5;
const NEWRULE: u16 = SUBSYSTEM | 6;
const DELRULE: u16 = SUBSYSTEM | 8;
const NEWSET: u16 = SUBSYSTEM | 9;
const NEWSETELEM: u16 = SUBSYSTEM | 12;
const GETSETELEM: u16 = SUBSYSTEM | 13;
const DELSETELEM: u16 = SUBSYSTEM | 14;

/// `struct nfgenmsg`: family, version, a resource number.
const NFGEN: usize = 4;
const SET_IS_MAP: u32 = 8;
/// The type of a map's data when it holds verdicts.
const VERDICTS: u32 = 0xffff_ff00;
const ELEMENTS: u16 = 3;
const LIST_ELEM: u16 = 1;
const ELEM_KEY: u16 = 1;
const ELEM_DATA: u16 = 2;
const ELEM_USERDATA: u16 = 6;

/// Which packets a table sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// IPv4 and IPv6.
    Inet,
    /// Frames at a bridge, before IP.
    Bridge,
}

/// A table by its family and name.
#[derive(Debug, Clone, Copy)]
pub(super) struct NftTable<'a> {
    pub(super) family: Family,
    pub(super) name: &'a str,
}

/// Where a chain hangs in the kernel: hook, order there, and what it is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hook {
    pub(super) number: u32,
    pub(super) priority: i32,
    pub(super) kind: &'static str,
}

/// A kind of value: its number, which only the nft tool reads, and its length.
#[derive(Debug, Clone, Copy)]
pub(super) struct NftType {
    pub(super) number: u32,
    pub(super) bytes: u32,
}

/// What a set maps its keys to.
#[derive(Debug, Clone, Copy)]
pub(super) enum MapsTo {
    Nothing,
    Verdict,
    Value(NftType),
}

/// An element of a set or map: the key, what it stands for, and a note of ours.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Element {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) note: Vec<u8>,
}

impl NftTable<'_> {
    /// Makes the table, unless it is there.
    pub(super) fn add(&self) -> NetlinkMessage {
        self.message(NEWTABLE, NLM_F_CREATE).text(1, self.name)
    }

    /// Deletes the table with all that is in it.
    pub(super) fn delete(&self) -> NetlinkMessage {
        self.message(DELTABLE, 0).text(1, self.name)
    }

    /// Makes a chain that a hook calls, unless it is there. What no rule decides is accepted: other
    /// traffic of the machine passes here too.
    pub(super) fn add_base_chain(&self, chain: &str, hook: Hook) -> NetlinkMessage {
        const ACCEPT: u32 = 1;
        let priority = hook.priority.to_be_bytes();
        self.message(NEWCHAIN, NLM_F_CREATE)
            .text(1, self.name)
            .text(3, chain)
            .nest(4, |h| h.be32(1, hook.number).attr(2, &priority))
            .be32(5, ACCEPT)
            .text(7, hook.kind)
    }

    /// Makes a chain that rules call, unless it is there.
    pub(super) fn add_chain(&self, chain: &str) -> NetlinkMessage {
        self.message(NEWCHAIN, NLM_F_CREATE).text(1, self.name).text(3, chain)
    }

    /// Makes a chain that must not be there yet.
    pub(super) fn add_new_chain(&self, chain: &str) -> NetlinkMessage {
        self.message(NEWCHAIN, NLM_F_CREATE | NLM_F_EXCL).text(1, self.name).text(3, chain)
    }

    /// Deletes a chain; its rules first ([`NftTable::flush`]).
    pub(super) fn delete_chain(&self, chain: &str) -> NetlinkMessage {
        self.message(DELCHAIN, 0).text(1, self.name).text(3, chain)
    }

    /// Deletes the rules of a chain.
    pub(super) fn flush(&self, chain: &str) -> NetlinkMessage {
        self.message(DELRULE, 0).text(1, self.name).text(2, chain)
    }

    /// Appends a rule to a chain.
    pub(super) fn add_rule(&self, chain: &str, rule: &Rule) -> NetlinkMessage {
        self.message(NEWRULE, NLM_F_CREATE | NLM_F_APPEND)
            .text(1, self.name)
            .text(2, chain)
            .nest(4, |list| expr::write_all(list, rule))
    }

    /// Makes a set or map, unless it is there. The id is for the kernel, unique within the batch.
    pub(super) fn add_set(
        &self,
        id: u32,
        set: &str,
        key: NftType,
        maps_to: MapsTo,
    ) -> NetlinkMessage {
        let message = self.message(NEWSET, NLM_F_CREATE).text(1, self.name).text(2, set);
        let message = message.be32(4, key.number).be32(5, key.bytes).be32(10, id);
        match maps_to {
            MapsTo::Nothing => message.be32(3, 0),
            MapsTo::Verdict => message.be32(3, SET_IS_MAP).be32(6, VERDICTS).be32(7, 0),
            MapsTo::Value(kind) => {
                message.be32(3, SET_IS_MAP).be32(6, kind.number).be32(7, kind.bytes)
            }
        }
    }

    /// Adds a member to a set; it must not be there yet.
    pub(super) fn add_member(&self, set: &str, key: &[u8], note: &str) -> NetlinkMessage {
        self.element(NEWSETELEM, set, |e| key_of(e, key).attr(ELEM_USERDATA, note.as_bytes()))
    }

    /// Adds to a map; the key must not be there yet.
    pub(super) fn add_value(&self, set: &str, element: &Element) -> NetlinkMessage {
        self.element(NEWSETELEM, set, |e| {
            key_of(e, &element.key)
                .nest(ELEM_DATA, |data| data.attr(expr::DATA_VALUE, &element.value))
                .attr(ELEM_USERDATA, &element.note)
        })
    }

    /// Adds to a map of verdicts; the key must not be there yet.
    pub(super) fn add_verdict(
        &self,
        set: &str,
        key: &[u8],
        to: &NftVerdict,
        note: &str,
    ) -> NetlinkMessage {
        self.element(NEWSETELEM, set, |e| {
            key_of(e, key)
                .nest(ELEM_DATA, |data| expr::write_verdict(data, to))
                .attr(ELEM_USERDATA, note.as_bytes())
        })
    }

    /// Takes a key out of a set or map.
    pub(super) fn delete_element(&self, set: &str, key: &[u8]) -> NetlinkMessage {
        self.element(DELSETELEM, set, |e| key_of(e, key))
    }

    /// Asks for the elements of a set; [`read_elements`] reads what comes.
    pub(super) fn dump_elements(&self, set: &str) -> NetlinkMessage {
        self.message(GETSETELEM, NLM_F_DUMP).text(1, self.name).text(2, set)
    }

    fn element(
        &self,
        kind: u16,
        set: &str,
        fill: impl FnOnce(NetlinkMessage) -> NetlinkMessage,
    ) -> NetlinkMessage {
        let flags = if kind == NEWSETELEM { NLM_F_CREATE | NLM_F_EXCL } else { 0 };
        self.message(kind, flags)
            .text(1, self.name)
            .text(2, set)
            .nest(ELEMENTS, |list| list.nest(LIST_ELEM, fill))
    }

    fn message(&self, kind: u16, flags: u16) -> NetlinkMessage {
        let family = match self.family {
            Family::Inet => 1,
            Family::Bridge => 7,
        };
        NetlinkMessage::new(kind, flags, &[family, 0, 0, 0])
    }
}

/// Asks for the tables of all families; [`read_table_name`] reads each.
pub(super) fn dump_tables() -> NetlinkMessage {
    NetlinkMessage::new(GETTABLE, NLM_F_DUMP, &[0; NFGEN])
}

/// Puts the brackets of a batch around the messages.
pub(super) fn batch(messages: Vec<NetlinkMessage>) -> Vec<NetlinkMessage> {
    // The resource number, in network order, says for whom the batch is: nftables.
    let fixed = [0, 0, 0, 10];
    let mut framed = vec![NetlinkMessage::new(BATCH_BEGIN, 0, &fixed)];
    framed.extend(messages);
    framed.push(NetlinkMessage::new(BATCH_END, 0, &fixed));
    framed
}

fn key_of(element: NetlinkMessage, key: &[u8]) -> NetlinkMessage {
    element.nest(ELEM_KEY, |data| data.attr(expr::DATA_VALUE, key))
}

/// The name of a table, from one message of a dump.
pub(super) fn read_table_name(bytes: &[u8]) -> Result<String, Malformed> {
    wire::text_of(bytes.get(NFGEN..).ok_or(Malformed)?, 1)?.ok_or(Malformed)
}

/// The elements in one message of a dump. The value of a verdict is left empty.
pub(super) fn read_elements(bytes: &[u8]) -> Result<Vec<Element>, Malformed> {
    let attributes = bytes.get(NFGEN..).ok_or(Malformed)?;
    let Some(list) = wire::find(attributes, ELEMENTS)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for (_, element) in wire::attributes(list)? {
        let value_in = |kind| -> Result<Vec<u8>, Malformed> {
            let data = wire::find(element, kind)?.unwrap_or_default();
            Ok(wire::find(data, expr::DATA_VALUE)?.unwrap_or_default().to_vec())
        };
        found.push(Element {
            key: value_in(ELEM_KEY)?,
            value: value_in(ELEM_DATA)?,
            note: wire::find(element, ELEM_USERDATA)?.unwrap_or_default().to_vec(),
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TABLE: NftTable<'static> = NftTable { family: Family::Inet, name: "t" };

    #[test]
    fn a_table_is_asked_for_by_family_and_name() {
        let bytes = TABLE.add().finish(3).unwrap();
        assert_eq!(
            bytes,
            [
                28, 0, 0, 0, 0, 10, 1, 4, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 6, 0, 1, 0, b't', 0,
                0, 0
            ]
        );
        assert_eq!(read_table_name(&bytes[16..]), Ok("t".into()));
        assert_eq!(read_table_name(&bytes[16..20]), Err(Malformed));
    }

    #[test]
    fn elements_are_read_as_they_were_written() {
        let element = Element { key: vec![1, 2], value: vec![3; 8], note: b"who".to_vec() };
        let bytes = TABLE.add_value("s", &element).finish(1).unwrap();
        assert_eq!(read_elements(&bytes[16..]), Ok(vec![element]));
        let verdict = NftVerdict::Jump("c".into());
        let bytes = TABLE.add_verdict("s", &[9], &verdict, "me").finish(1).unwrap();
        let read = Element { key: vec![9], value: vec![], note: b"me".to_vec() };
        assert_eq!(read_elements(&bytes[16..]), Ok(vec![read]));
        assert_eq!(read_elements(&TABLE.add().finish(1).unwrap()[16..]), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read_elements(&bytes);
            let _ = read_table_name(&bytes);
        }
    }
}
