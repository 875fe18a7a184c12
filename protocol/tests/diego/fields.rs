//! Every message and every number, held against a list that was made from the BBS's own declarations and
//! not from ours (`messages.txt`). Clients in the other tests are built from our declarations, so they
//! would not notice a wrong number.

use std::collections::BTreeMap;

use volvox_protocol::diego::message::{ENUMERATIONS, Field, MESSAGES, declaration};

const LIST: &str = include_str!("messages.txt");

/// The fields of each message in the list, and the values of each enumeration.
fn listed() -> (BTreeMap<&'static str, Vec<String>>, BTreeMap<&'static str, String>) {
    let (mut messages, mut enums) = (BTreeMap::<_, Vec<String>>::new(), BTreeMap::new());
    let mut message = "";
    for line in LIST.lines() {
        if let Some((name, values)) = line.strip_prefix("enum ").and_then(|it| it.split_once(": "))
        {
            enums.insert(name, values.to_owned());
        } else if let Some(field) = line.strip_prefix("  ") {
            messages.get_mut(message).unwrap().push(field.to_owned());
        } else {
            message = line;
            assert!(messages.insert(message, Vec::new()).is_none(), "{message} is there twice");
        }
    }
    (messages, enums)
}

/// A field as the list has it.
fn told(field: &Field) -> String {
    let kind = field.kind;
    // `Option<Box<Action>>` is about the last word in it.
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let held = field.held_as.split(|c| !is_word(c)).rfind(|it| !it.is_empty()).unwrap_or_default();
    let message = || declaration(held).unwrap_or_else(|| panic!("{field:?}")).name;
    let holds = if let Some((_, pair)) = kind.split_once("btree_map") {
        let value = pair.trim_matches(|c: char| !is_word(c)).rsplit(", ").next().unwrap();
        let value = if value == "message" { message() } else { value };
        format!("map<string, {value}>")
    } else if kind.starts_with("message") {
        message().to_owned()
    } else if kind.starts_with("enumeration") {
        let named = kind.trim_end_matches('"').rsplit("::").next().unwrap();
        let known = ENUMERATIONS.iter().find(|(ours, ..)| *ours == named);
        known.unwrap_or_else(|| panic!("{field:?}")).1.to_owned()
    } else {
        kind.split(',').next().unwrap().trim().to_owned()
    };
    let is_scalar = !kind.starts_with("message");
    let before = match (kind.contains("repeated"), kind.contains("optional") && is_scalar) {
        (true, _) => "repeated ",
        (false, true) => "optional ",
        (false, false) => "",
    };
    let after = if kind.contains("packed") { " unpacked" } else { "" };
    format!("{} {}: {before}{holds}{after}", field.number, field.name)
}

#[test]
fn every_message_has_the_numbers_and_types_of_the_bbs() {
    let (messages, enums) = listed();
    let mut ours = BTreeMap::new();
    for known in MESSAGES.iter().copied().flatten() {
        let mut fields: Vec<&Field> = known.fields.iter().collect();
        fields.sort_by_key(|field| field.number);
        ours.insert(known.name, fields.into_iter().map(told).collect::<Vec<_>>());
    }
    for (name, fields) in &messages {
        let mut wanted = fields.clone();
        wanted.sort_by_key(|it| it.split(' ').next().unwrap().parse::<u32>().unwrap());
        assert_eq!(ours.get(name), Some(&wanted), "{name}");
    }
    let more: Vec<_> = ours.keys().filter(|name| !messages.contains_key(*name)).collect();
    assert!(more.is_empty(), "the BBS has no {more:?}");
    assert!(messages.len() > 100, "{} messages", messages.len());

    let values = |values: &[(&str, i32)]| {
        let each = values.iter().map(|(name, number)| format!("{name} {number}"));
        each.collect::<Vec<_>>().join(", ")
    };
    let ours: BTreeMap<_, _> =
        ENUMERATIONS.iter().map(|(_, name, all)| (*name, values(all))).collect();
    assert_eq!(ours, enums);
}
