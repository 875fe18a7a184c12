//! What types may not be called: names that say nothing, and names that many types have.

use std::collections::BTreeMap;

use volvox_tests::house::{TWICE, is_product};
use volvox_tests::rust_text::types;

use super::{File, check, code_only, place, without_tests};

/// Names that say neither whose a type is nor what it holds.
const SAY_NOTHING: [&str; 16] = [
    "State", "Verdict", "Outcome", "Effect", "Input", "Settings", "Config", "Kind", "Known",
    "Held", "Heard", "Told", "Shown", "Place", "Entry", "Line",
];

/// Types with a name of [`SAY_NOTHING`] that are to vanish, where they stand.
const VANISHING: [(&str, &str); 3] = [
    ("coordinator/src/bbs/command.rs", "Verdict"),
    ("coordinator/src/cells/logic.rs", "Told"),
    ("coordinator/src/cells/loss.rs", "Told"),
];

/// The types of the product, with their files and where their names stand.
fn product_types(files: &[File]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| is_product(&file.path)) {
        let code = code_only(&file.text);
        let own = types(without_tests(&code));
        found.extend(
            own.into_iter().map(|(at, name)| (name.to_owned(), place(&file.path, &code, at))),
        );
    }
    found
}

pub(super) fn names_that_say_nothing(files: &[File]) -> Vec<String> {
    let vanishes = |name: &str, place: &str| {
        VANISHING.iter().any(|(path, known)| *known == name && place.starts_with(path))
    };
    product_types(files)
        .into_iter()
        .filter(|(name, place)| SAY_NOTHING.contains(&name.as_str()) && !vanishes(name, place))
        .map(|(name, place)| place + &name)
        .collect()
}

pub(super) fn names_of_many(files: &[File]) -> Vec<String> {
    let mut by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, place) in product_types(files) {
        by_name.entry(name).or_default().push(place);
    }
    by_name.retain(|_, places| places.len() > TWICE);
    by_name.into_iter().map(|(name, places)| format!("{name}: {}", places.concat())).collect()
}

#[test]
fn a_type_that_says_nothing_is_seen() {
    let state = "pub(crate) struct State;";
    let tests = format!("#[cfg(test)]\nmod tests {{ {state} }}");
    check(
        names_that_say_nothing,
        &[
            &[(
                "agent/src/a.rs",
                "struct PoolState; // struct State\nimpl T {\n    type Input = u8;\n}",
            )],
            &[
                ("agent/src/a.rs", &tests),
                ("agent/src/a/tests.rs", state),
                ("bench/src/a.rs", state),
            ],
            &[(VANISHING[0].0, &format!("enum {} {{}}", VANISHING[0].1))],
        ],
        &[
            &[("agent/src/a.rs", state)],
            &[("cli/src/a.rs", "type Input<'a> = &'a str;")],
            &[("protocol/src/a.rs", "record! {\n    pub struct Entry {}\n}")],
        ],
    );
}

#[test]
fn a_name_of_many_types_is_seen() {
    let (a, b) = (("agent/src/a.rs", "struct Link;"), ("mesh/src/a.rs", "trait Link {}"));
    check(
        names_of_many,
        &[&[a, b], &[a, b, ("tests/src/a.rs", "struct Link;")]],
        &[&[a, b, ("cli/src/a.rs", "enum Link {}")], &[a, b, ("mesh/src/b.rs", "type Link = u8;")]],
    );
}
