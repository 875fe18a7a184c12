//! The page about the mesh names the tests that show what it says. Here: every one of them exists.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeSet;
use std::path::Path;

const PAGE: &str = include_str!("../../docs/mesh.md");
/// Fewer names than this, and the page is not read as it is written.
const NAMES: usize = 80;

/// Every file below, as one text.
fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_test_that_the_page_names_exists() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    sources(&here.join("src"), &mut text);
    sources(&here.join("tests"), &mut text);
    sources(&here.join("../tests/e2e"), &mut text);
    let (_, shown) = PAGE.split_once("## What shows it").unwrap();
    let quoted = shown.split('`').skip(1).step_by(2);
    let names: BTreeSet<&str> = quoted.filter(|name| is_name(name)).collect();
    assert!(names.len() >= NAMES, "only {} names", names.len());
    let (targets, tests): (Vec<&str>, Vec<&str>) = names
        .into_iter()
        .partition(|name| name.starts_with("decode_") || *name == "parse_join_token");
    let is_missing = |name: &&str| !text.contains(&format!("fn {name}("));
    let missing: Vec<&str> = tests.into_iter().filter(is_missing).collect();
    assert_eq!(missing, [""; 0], "no such tests");
    for target in targets {
        let file = here.join("../fuzz/fuzz_targets").join(format!("{target}.rs"));
        assert!(file.exists(), "{} is not there", file.display());
    }
}

fn is_name(text: &str) -> bool {
    text.contains('_')
        && text.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit())
}
