//! Records written straight from the board: a list of them has fifty thousand, and making a message of each
//! would copy every text of it first. The bytes are those that prost writes of the same message, which
//! tests hold against each other.

mod action;
mod desired;
mod part;
mod task;

use std::fmt::Write as _;

use super::actual::{preferred, presence};
use super::{count, time};
use crate::actual_lrp::{ActualLrp, InternalRoute, NetInfo, PortMapping};
use crate::id::CellId;
use crate::modification_tag::{Epoch, ModificationTag};

/// Writes fields behind what is there.
pub struct Writer<'a>(pub &'a mut Vec<u8>);

impl Writer<'_> {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push((value & 0x7f) as u8);
    }

    /// A number; zero is not written.
    fn number(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(value);
        }
    }

    /// A number with a sign, as wide as it may be: one below zero takes ten bytes.
    fn signed(&mut self, field: u32, value: i64) {
        self.number(field, u64::from_ne_bytes(value.to_ne_bytes()));
    }

    /// A number that is written also when it is zero: one of several, or one that was said.
    fn said(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    /// Yes; no is not written.
    fn yes(&mut self, field: u32, value: bool) {
        self.number(field, value.into());
    }

    /// Texts, also empty ones.
    fn texts<'a>(&mut self, field: u32, values: impl IntoIterator<Item = &'a String>) {
        for value in values {
            self.bytes(field, value.as_bytes());
        }
    }

    /// A message for each.
    fn each<'a, T: 'a>(
        &mut self,
        field: u32,
        values: impl IntoIterator<Item = &'a T>,
        write: impl Fn(&mut Writer<'_>, &'a T),
    ) {
        for value in values {
            self.message(field, |out| write(out, value));
        }
    }

    /// A text; an empty one is not written.
    fn text(&mut self, field: u32, value: &str) {
        if !value.is_empty() {
            self.bytes(field, value.as_bytes());
        }
    }

    /// Bytes, as they are.
    pub fn bytes(&mut self, field: u32, value: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// A message, also when it is empty. Its length stands before it and is known only after: one byte is
    /// kept free for it, which suffices for most, and longer ones move a little.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Writer<'_>)) {
        self.varint(u64::from(field) << 3 | 2);
        self.0.push(0);
        let begin = self.0.len();
        write(&mut Writer(self.0));
        let length = self.0.len() - begin;
        match u8::try_from(length) {
            Ok(length @ 0..0x80) => self.0[begin - 1] = length,
            Ok(_) | Err(_) => {
                let mut bytes = Vec::with_capacity(10);
                Writer(&mut bytes).varint(length as u64);
                self.0.splice(begin - 1..begin, bytes);
            }
        }
    }

    /// An instance: the fields of `ActualLRP`.
    pub fn actual_lrp(&mut self, lrp: &ActualLrp) {
        let running = lrp.running();
        self.message(1, |out| {
            out.text(1, lrp.process_guid.as_str());
            out.number(2, whole(count(lrp.index)));
            out.text(3, lrp.domain.as_str());
        });
        self.message(2, |out| {
            if let Some(instance) = lrp.instance() {
                out.text(1, instance.instance_guid.as_str());
                out.text(2, lrp.cell_id().map_or("", CellId::as_str));
            }
        });
        self.message(3, |out| {
            if let Some(running) = running {
                out.net_info(&running.net_info);
            }
        });
        self.number(4, whole(count(lrp.crash_count)));
        self.text(5, &lrp.crash_reason);
        self.text(6, lrp.state.name());
        self.text(7, lrp.placement_error());
        self.number(8, time(lrp.since).unsigned_abs());
        self.message(9, |out| out.tag(lrp.modification_tag));
        self.number(10, whole(presence(lrp.presence).into()));
        let Some(running) = running else { return self.flag(13, false) };
        for InternalRoute { hostname } in &running.internal_routes {
            self.message(11, |out| out.text(1, hostname));
        }
        for (name, value) in running.metric_tags.iter() {
            self.message(12, |out| {
                out.text(1, name);
                out.text(2, value);
            });
        }
        self.flag(13, running.routable);
        self.text(14, &running.availability_zone);
    }

    /// A false that was said is written: readers tell it from nothing said.
    fn flag(&mut self, number: u64, value: bool) {
        self.varint(number << 3);
        self.0.push(u8::from(value));
    }

    fn net_info(&mut self, net: &NetInfo) {
        self.text(1, &net.address);
        for port in &net.ports {
            let PortMapping { container_port, host_port, .. } = *port;
            self.message(2, |out| {
                out.number(1, container_port.into());
                out.number(2, host_port.into());
                out.number(3, port.container_tls_proxy_port.into());
                out.number(4, port.host_tls_proxy_port.into());
            });
        }
        self.text(3, &net.instance_address);
        self.number(4, whole(preferred(net.preferred_address).into()));
        self.text(5, &net.instance_ipv6_address);
    }

    fn tag(&mut self, tag: ModificationTag) {
        if tag.epoch != Epoch::NONE {
            self.message(1, |out| {
                let mut text = Text(out.0);
                write!(text, "{}", tag.epoch).expect("memory takes every text");
            });
        }
        self.number(2, tag.index.into());
    }
}

/// A number that is not negative, as all of ours are.
fn whole(value: i32) -> u64 {
    u64::from(value.unsigned_abs())
}

/// Puts text behind what is there.
struct Text<'a>(&'a mut Vec<u8>);

impl std::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
