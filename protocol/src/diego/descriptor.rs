//! The messages as protobuf describes them to other languages: a `FileDescriptorProto`, made from the
//! declarations that we read and write by ourselves. So a client of any language can be held against
//! them, without a compiler of `.proto` files.
//!
//! Enumerations stand beside the messages, not inside of them: on the wire there is no difference.

use prost::Message;

use super::message::{Declaration, ENUMERATIONS, Field, MESSAGES, declaration};
use super::precheck::innermost;

/// The package of all messages.
const PACKAGE: &str = "models";

/// Kinds of fields, by protobuf's numbers for them.
const MESSAGE: i32 = 11;
const ENUM: i32 = 14;
const OPTIONAL: i32 = 1;
const REPEATED: i32 = 3;

#[derive(Clone, PartialEq, Message)]
struct FileDescriptor {
    #[prost(string, tag = 1)]
    name: String,
    #[prost(string, tag = 2)]
    package: String,
    #[prost(message, repeated, tag = 4)]
    messages: Vec<MessageDescriptor>,
    #[prost(message, repeated, tag = 5)]
    enums: Vec<EnumDescriptor>,
    #[prost(string, tag = 12)]
    syntax: String,
}

#[derive(Clone, PartialEq, Message)]
struct MessageDescriptor {
    #[prost(string, tag = 1)]
    name: String,
    #[prost(message, repeated, tag = 2)]
    fields: Vec<FieldDescriptor>,
    #[prost(message, repeated, tag = 3)]
    nested: Vec<MessageDescriptor>,
    #[prost(message, optional, tag = 7)]
    options: Option<MessageOptions>,
    #[prost(message, repeated, tag = 8)]
    one_ofs: Vec<OneOf>,
}

#[derive(Clone, PartialEq, Message)]
struct MessageOptions {
    #[prost(bool, tag = 7)]
    map_entry: bool,
}

#[derive(Clone, PartialEq, Message)]
struct OneOf {
    #[prost(string, tag = 1)]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct FieldDescriptor {
    #[prost(string, tag = 1)]
    name: String,
    #[prost(int32, tag = 3)]
    number: i32,
    #[prost(int32, tag = 4)]
    label: i32,
    #[prost(int32, tag = 5)]
    kind: i32,
    #[prost(string, tag = 6)]
    type_name: String,
    #[prost(message, optional, tag = 8)]
    options: Option<FieldOptions>,
    #[prost(int32, optional, tag = 9)]
    one_of: Option<i32>,
    #[prost(bool, tag = 17)]
    is_optional: bool,
}

#[derive(Clone, PartialEq, Message)]
struct FieldOptions {
    #[prost(bool, optional, tag = 2)]
    packed: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
struct EnumDescriptor {
    #[prost(string, tag = 1)]
    name: String,
    #[prost(message, repeated, tag = 2)]
    values: Vec<EnumValue>,
}

#[derive(Clone, PartialEq, Message)]
struct EnumValue {
    #[prost(string, tag = 1)]
    name: String,
    #[prost(int32, tag = 2)]
    number: i32,
}

/// The bytes of a `google.protobuf.FileDescriptorProto` with all messages.
pub fn file() -> Vec<u8> {
    let file = FileDescriptor {
        name: "volvox-diego.proto".to_owned(),
        package: PACKAGE.to_owned(),
        messages: MESSAGES.iter().copied().flatten().map(message).collect(),
        enums: ENUMERATIONS.iter().map(|(_, name, values)| enumeration(name, values)).collect(),
        syntax: "proto3".to_owned(),
    };
    file.encode_to_vec()
}

fn enumeration(name: &str, values: &[(&str, i32)]) -> EnumDescriptor {
    let value = |(name, number): &(&str, i32)| EnumValue { name: (*name).into(), number: *number };
    EnumDescriptor { name: name.replace('.', "_"), values: values.iter().map(value).collect() }
}

fn message(known: &Declaration) -> MessageDescriptor {
    let mut described = MessageDescriptor { name: known.name.to_owned(), ..Default::default() };
    for given in known.fields {
        let mut field = scalar(given.name, given.number, given.kind);
        if given.kind.starts_with("btree_map") {
            let entry = entry(given);
            field.kind = MESSAGE;
            field.label = REPEATED;
            field.type_name = format!(".{PACKAGE}.{}.{}", known.name, entry.name);
            described.nested.push(entry);
        } else if given.kind.starts_with("message") {
            field.type_name = type_name(innermost(given.held_as));
        } else if given.kind.contains("optional") {
            field.is_optional = true;
            field.one_of = i32::try_from(described.one_ofs.len()).ok();
            described.one_ofs.push(OneOf { name: format!("_{}", given.name) });
        }
        described.fields.push(field);
    }
    described
}

/// The message that an entry of a map is on the wire.
fn entry(map: &Field) -> MessageDescriptor {
    let (_, value) = map.kind.trim_end_matches('"').rsplit_once(", ").unwrap_or(("", "string"));
    let mut value_field = scalar("value", 2, value);
    if value == "message" {
        value_field.type_name = type_name(innermost(map.held_as));
    }
    let words = map.name.split('_').map(|word| {
        let (first, rest) = word.split_at_checked(1).unwrap_or(("", word));
        first.to_ascii_uppercase() + rest
    });
    MessageDescriptor {
        name: words.collect::<String>() + "Entry",
        fields: vec![scalar("key", 1, "string"), value_field],
        options: Some(MessageOptions { map_entry: true }),
        ..Default::default()
    }
}

/// A field, but for the message that it may hold.
fn scalar(name: &str, number: u32, kind: &str) -> FieldDescriptor {
    let word = kind.split([',', '=']).next().unwrap_or_default().trim();
    let number_of_kind = match word {
        "int64" => 3,
        "uint64" => 4,
        "int32" => 5,
        "bool" => 8,
        "message" => MESSAGE,
        "bytes" => 12,
        "uint32" => 13,
        "enumeration" => ENUM,
        _ => 9,
    };
    let repeated = kind.contains("repeated");
    let named = kind.rsplit("::").next().unwrap_or_default().trim_end_matches('"');
    let known = ENUMERATIONS.iter().find(|(ours, ..)| word == "enumeration" && *ours == named);
    FieldDescriptor {
        name: name.to_owned(),
        number: i32::try_from(number).unwrap_or_default(),
        label: if repeated { REPEATED } else { OPTIONAL },
        kind: number_of_kind,
        type_name: known
            .map(|(_, bbs, _)| format!(".{PACKAGE}.{}", bbs.replace('.', "_")))
            .unwrap_or_default(),
        options: kind.contains("packed").then_some(FieldOptions { packed: Some(false) }),
        one_of: None,
        is_optional: false,
    }
}

fn type_name(held_as: &str) -> String {
    format!(".{PACKAGE}.{}", declaration(held_as).map_or(held_as, |known| known.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_says_what_it_holds() {
        let file = FileDescriptor::decode(&file()[..]).unwrap();
        assert_eq!(file.messages.len(), MESSAGES.iter().map(|some| some.len()).sum::<usize>());
        let names: Vec<String> =
            file.messages.iter().map(|it| format!(".{PACKAGE}.{}", it.name)).collect();
        let enums: Vec<String> =
            file.enums.iter().map(|it| format!(".{PACKAGE}.{}", it.name)).collect();
        for message in &file.messages {
            let own: Vec<String> = message
                .nested
                .iter()
                .map(|entry| format!(".{PACKAGE}.{}.{}", message.name, entry.name))
                .collect();
            let inside = message.nested.iter().flat_map(|entry| &entry.fields);
            for field in message.fields.iter().chain(inside) {
                let known = match field.kind {
                    MESSAGE => names.contains(&field.type_name) || own.contains(&field.type_name),
                    ENUM => enums.contains(&field.type_name),
                    _ => field.type_name.is_empty(),
                };
                assert!(known, "{}.{}: {:?}", message.name, field.name, field.type_name);
            }
        }
    }

    #[test]
    fn numbers_and_names_are_distinct() {
        for known in MESSAGES.iter().copied().flatten() {
            for (nth, field) in known.fields.iter().enumerate() {
                let same =
                    |other: &&Field| other.number == field.number || other.name == field.name;
                assert_eq!(known.fields[..nth].iter().find(same), None, "{}", known.name);
            }
        }
    }
}
