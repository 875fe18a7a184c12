//! A look at a body before it is read: whether it is whole, how deep it goes, how many messages are in it.
//!
//! A message of two bytes may become a struct of two hundred, and a list of such messages grows while it
//! is read; so what would take too much memory is refused before anything is made of it. The rules of
//! the records themselves ([`crate::validate`]) are stricter, and come later.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::message::{Declaration, MESSAGES, declaration};

/// Messages in one body, each counted as a quarter of a kilobyte: together 64 MiB.
pub const MOST_MESSAGES: usize = 262_144;
/// Messages inside of each other. Each action takes two of them.
pub const DEEPEST: usize = 64;

/// Why a body is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PrecheckError {
    /// It ends in the middle of something, or is no protobuf.
    #[error("the body is cut off or is no protobuf")]
    Broken,
    /// It goes deeper than anything that has a meaning.
    #[error("messages are nested deeper than {DEEPEST}")]
    Deep,
    /// There is too much in it.
    #[error("the body has more than {MOST_MESSAGES} messages")]
    Many,
}

/// What may stand in a field that is a message.
#[derive(Clone, Copy)]
enum MessageShape {
    Message(&'static str),
    /// An entry of a map; its value may be a message.
    Entry(Option<&'static str>),
}

type MessageShapes = BTreeMap<&'static str, BTreeMap<u32, MessageShape>>;

static INSIDES: LazyLock<MessageShapes> =
    LazyLock::new(|| MESSAGES.iter().copied().flatten().map(insides).collect());

fn insides(message: &'static Declaration) -> (&'static str, BTreeMap<u32, MessageShape>) {
    let fields = message.fields.iter().filter_map(|field| {
        let inside = match field.kind {
            kind if kind.starts_with("message") => MessageShape::Message(innermost(field.held_as)),
            kind if kind.starts_with("btree_map") => {
                MessageShape::Entry(kind.contains("message").then(|| innermost(field.held_as)))
            }
            _ => return None,
        };
        Some((field.number, inside))
    });
    (message.held_as, fields.collect())
}

/// `Action` of `Option<Box<Action>>`, and of `BTreeMap<String, Action>`.
pub(super) fn innermost(held_as: &'static str) -> &'static str {
    let inside = held_as.rsplit('<').next().unwrap_or(held_as);
    let inside = inside.split('>').next().unwrap_or(inside);
    inside.rsplit(',').next().unwrap_or(inside).trim()
}

/// Looks over a body that is to be read as the message held as `held_as`.
pub fn look_over(held_as: &str, body: &[u8]) -> Result<(), PrecheckError> {
    let mut count = 0;
    look_into(INSIDES.get(held_as), body, DEEPEST, &mut count)
}

fn look_into(
    fields: Option<&BTreeMap<u32, MessageShape>>,
    mut rest: &[u8],
    deeper: usize,
    count: &mut usize,
) -> Result<(), PrecheckError> {
    *count += 1;
    if *count > MOST_MESSAGES {
        return Err(PrecheckError::Many);
    }
    if deeper == 0 {
        return Err(PrecheckError::Deep);
    }
    let mut groups = 0_usize;
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let number = u32::try_from(key >> 3).map_err(|_| PrecheckError::Broken)?;
        match key & 7 {
            0 => drop(varint(&mut rest)?),
            1 => drop(take(&mut rest, 8)?),
            2 => {
                let length =
                    usize::try_from(varint(&mut rest)?).map_err(|_| PrecheckError::Broken)?;
                let content = take(&mut rest, length)?;
                match fields.and_then(|fields| fields.get(&number)).filter(|_| groups == 0) {
                    None => {}
                    Some(MessageShape::Message(name)) => {
                        look_into(INSIDES.get(name), content, deeper - 1, count)?;
                    }
                    Some(MessageShape::Entry(value)) => {
                        let value = value.map(|name| (2, MessageShape::Message(name)));
                        let entry: BTreeMap<u32, MessageShape> = value.into_iter().collect();
                        look_into(Some(&entry), content, deeper - 1, count)?;
                    }
                }
            }
            // Groups are of the time before the BBS; who has some is skipped over.
            3 if groups < DEEPEST => groups += 1,
            4 if groups > 0 => groups -= 1,
            5 => drop(take(&mut rest, 4)?),
            _ => return Err(PrecheckError::Broken),
        }
    }
    if groups == 0 { Ok(()) } else { Err(PrecheckError::Broken) }
}

/// Fields of requests in which cells pass on what programs said: a task's result, the words of a failure.
/// The BBS takes them as they are.
const PASSED_ON: [&str; 4] = ["result", "error_message", "failure_reason", "rejection_reason"];

/// The same body with text in the fields of [`PASSED_ON`], whatever was there. None: it has no such field,
/// or it is not whole.
pub(super) fn readable(held_as: &str, body: &[u8]) -> Option<Vec<u8>> {
    let fields = declaration(held_as)?.fields.iter();
    let passed_on: Vec<u32> = fields
        .filter(|field| field.kind == "string" && PASSED_ON.contains(&field.name))
        .map(|field| field.number)
        .collect();
    let mut made = Vec::with_capacity(body.len());
    let mut rest = body;
    while !passed_on.is_empty() && !rest.is_empty() {
        let before = rest;
        let key = varint(&mut rest).ok()?;
        let number = u32::try_from(key >> 3).ok()?;
        match key & 7 {
            0 => drop(varint(&mut rest).ok()?),
            1 => drop(take(&mut rest, 8).ok()?),
            2 => {
                let length = usize::try_from(varint(&mut rest).ok()?).ok()?;
                let content = take(&mut rest, length).ok()?;
                if passed_on.contains(&number) {
                    let text = String::from_utf8_lossy(content).into_owned();
                    prost::encoding::string::encode(number, &text, &mut made);
                    continue;
                }
            }
            5 => drop(take(&mut rest, 4).ok()?),
            _ => return None,
        }
        made.extend_from_slice(&before[..before.len() - rest.len()]);
    }
    (!passed_on.is_empty()).then_some(made)
}

fn varint(rest: &mut &[u8]) -> Result<u64, PrecheckError> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first().ok_or(PrecheckError::Broken)?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(PrecheckError::Broken)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], PrecheckError> {
    let (taken, after) = rest.split_at_checked(length).ok_or(PrecheckError::Broken)?;
    *rest = after;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::super::message as m;
    use super::*;

    #[test]
    fn what_stands_inside_is_known_by_the_type() {
        for (held_as, inside) in [
            ("Option<Box<TimeoutAction>>", "TimeoutAction"),
            ("Vec<Action>", "Action"),
            ("BTreeMap<String, MetricTagValue>", "MetricTagValue"),
        ] {
            assert_eq!(innermost(held_as), inside);
        }
    }

    #[test]
    fn many_small_messages_are_refused_before_they_are_read() {
        // An egress rule with nothing in it takes three bytes.
        let rule = [0xa2, 0x01, 0x00];
        let many = rule.repeat(MOST_MESSAGES);
        assert_eq!(look_over("DesiredLrp", &many), Err(PrecheckError::Many));
        assert_eq!(look_over("DesiredLrp", &rule.repeat(1_000)), Ok(()));
    }

    #[test]
    fn deep_actions_are_refused_and_ordinary_ones_are_not() {
        let nested = |depth: usize| {
            let mut action = m::Action { run_action: Some(Box::default()), ..Default::default() };
            for _ in 1..depth {
                let inner = m::TryAction { action: Some(action), ..Default::default() };
                action = m::Action { try_action: Some(Box::new(inner)), ..Default::default() };
            }
            action.encode_to_vec()
        };
        assert_eq!(look_over("Action", &nested(16)), Ok(()));
        assert_eq!(look_over("Action", &nested(40)), Err(PrecheckError::Deep));
    }

    #[test]
    fn unknown_fields_pass_and_broken_bytes_do_not() {
        // Numbers 1000 to 1003: a varint, eight bytes, a text and four bytes; then a group.
        let unknown = [
            &[0xc0, 0x3e, 0x07][..],
            &[0xc9, 0x3e, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0xd2, 0x3e, 0x02, b'h', b'i'],
            &[0xdd, 0x3e, 1, 2, 3, 4],
            &[0xe3, 0x3e, 0x08, 0x01, 0xe4, 0x3e],
        ]
        .concat();
        assert_eq!(look_over("Task", &unknown), Ok(()));
        assert!(m::Task::decode(&unknown[..]).is_ok());
        for broken in [&[0x0a][..], &[0x0a, 0x05, 0x01], &[0xff; 11], &[0x0f], &[0xe3, 0x3e]] {
            assert_eq!(look_over("Task", broken), Err(PrecheckError::Broken), "{broken:?}");
        }
    }
}
