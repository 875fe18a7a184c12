//! Figures of the source: how much product code there is, and how simple it is to read. `make house`
//! prints them. What must hold is a rule of `tests/tidy.rs`; these are to be compared over time.

use std::collections::BTreeMap;

use crate::rust_text::{
    code_only, functions, is_test_file, types, without_comments, without_tests,
};

/// The crates whose code is installed nowhere. All others are the product.
const NOT_PRODUCT: [&str; 4] = ["bench", "fuzz", "golden", "tests"];

/// How many types may have one name: two that are never seen together confuse nobody.
pub const TWICE: usize = 2;

/// What a file of pure code does not name. `clippy.toml` has the fence; this also sees what has no
/// function of its own there.
const EFFECTS: [&str; 10] = [
    "Instant::now",
    "SystemTime::now",
    "thread::spawn",
    "thread::sleep",
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "env::var",
    "process::Command",
    "tokio::",
];

/// One figure: what it is of, how much, and where.
pub type Figure = (&'static str, usize, String);

/// All figures of a tree, given as its files' paths and texts.
pub fn figures(files: &[(String, String)]) -> Vec<Figure> {
    let product: Vec<Source> = files.iter().filter_map(|(path, text)| source(path, text)).collect();
    let largest = product.iter().max_by_key(|file| file.lines);
    let (longest, length) = longest_function(&product).unwrap_or_default();
    let doubled = doubled_names(&product);
    let effects = effects_in_pure_code(&product, files);
    vec![
        ("lines of product code", product.iter().map(|file| file.lines).sum(), per_crate(&product)),
        ("names that more than two types have", doubled.len(), doubled.join(", ")),
        ("lines of the longest function", length, longest),
        (
            "lines of the largest file",
            largest.map_or(0, |file| file.lines),
            largest.map_or_else(String::new, |file| file.path.to_owned()),
        ),
        ("effects in pure code", effects.len(), effects.join(", ")),
    ]
}

/// A file of the product. `code` has neither comments nor literals nor tests.
struct Source<'a> {
    path: &'a str,
    code: String,
    /// Lines with code in them: no comments, no blank lines, no tests.
    lines: usize,
}

/// Whether a file has code of the product.
pub fn is_product(path: &str) -> bool {
    let krate = path.split_once("/src/").map(|(krate, _)| krate);
    krate.is_some_and(|krate| !NOT_PRODUCT.contains(&krate))
        && path.ends_with(".rs")
        && !is_test_file(path)
}

fn source<'a>(path: &'a str, text: &str) -> Option<Source<'a>> {
    if !is_product(path) {
        return None;
    }
    let all = code_only(text);
    let code = without_tests(&all);
    let lines = text_lines(without_tests(&without_comments(text)));
    Some(Source { path, code: code.to_owned(), lines })
}

fn text_lines(text: &str) -> usize {
    text.lines().filter(|line| !line.trim().is_empty()).count()
}

fn per_crate(product: &[Source]) -> String {
    let mut sums: BTreeMap<&str, usize> = BTreeMap::new();
    for file in product {
        *sums.entry(file.path.split('/').next().unwrap_or_default()).or_default() += file.lines;
    }
    let sums: Vec<_> = sums.into_iter().map(|(krate, lines)| format!("{krate} {lines}")).collect();
    sums.join(", ")
}

fn longest_function(product: &[Source]) -> Option<(String, usize)> {
    let all = product.iter().flat_map(|file| {
        functions(&file.code).into_iter().map(|(name, range)| {
            (format!("{name} in {}", file.path), text_lines(&file.code[range]))
        })
    });
    all.max_by_key(|(_, lines)| *lines)
}

/// Each name with how many types have it, the most frequent first.
fn doubled_names(product: &[Source]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, name) in product.iter().flat_map(|file| types(&file.code)) {
        *counts.entry(name).or_default() += 1;
    }
    let mut many: Vec<_> = counts.into_iter().filter(|(_, count)| *count > TWICE).collect();
    many.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    many.into_iter().map(|(name, count)| format!("{name} ({count})")).collect()
}

/// Where pure code names an effect. Pure is what has the fence itself or in a module above.
fn effects_in_pure_code(product: &[Source], files: &[(String, String)]) -> Vec<String> {
    let fenced: Vec<&str> = files
        .iter()
        .filter(|(_, text)| text.lines().any(|line| line.starts_with("#![deny(clippy::disallowed")))
        .map(|(path, _)| path.trim_end_matches(".rs").trim_end_matches("/lib"))
        .collect();
    let is_pure = |path: &str| {
        let module = path.trim_end_matches(".rs");
        fenced.iter().any(|above| {
            module.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    let mut found = Vec::new();
    for file in product.iter().filter(|file| is_pure(file.path)) {
        let named = EFFECTS.iter().filter(|effect| file.code.contains(**effect));
        found.extend(named.map(|effect| format!("{effect} in {}", file.path)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Vec<(usize, String)> {
        let files: Vec<_> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        figures(&files).into_iter().map(|(_, figure, place)| (figure, place)).collect()
    }

    #[test]
    fn only_lines_with_product_code_count() {
        let code = "//! A.\nfn f() {\n    g(\"// text\")\n}\n\n#[cfg(test)]\nmod tests {\n    use super::*;\n}\n";
        let found = of(&[
            ("agent/src/a.rs", code),
            ("agent/src/a/tests.rs", code),
            ("agent/tests/a.rs", code),
            ("bench/src/a.rs", code),
            ("agent/src/a.md", code),
        ]);
        assert_eq!(found[0], (3, "agent 3".to_owned()));
        assert_eq!(found[2], (3, "f in agent/src/a.rs".to_owned()));
        assert_eq!(found[3], (3, "agent/src/a.rs".to_owned()));
    }

    #[test]
    fn a_name_of_three_types_is_counted_once() {
        let (a, b) = ("struct State;\nenum Two {}", "enum State {}\nstruct Two;");
        let found =
            of(&[("agent/src/a.rs", a), ("mesh/src/a.rs", b), ("cli/src/a.rs", "trait State {}")]);
        assert_eq!(found[1], (1, "State (3)".to_owned()));
    }

    #[test]
    fn an_effect_is_seen_below_the_fence_only() {
        let fence = "#![deny(clippy::disallowed_methods, clippy::disallowed_types)]\n";
        let effect = "fn f() { std::fs::read(\"a\") }";
        let found = of(&[
            ("agent/src/rep/logic.rs", fence),
            ("agent/src/rep/logic/a.rs", effect),
            ("agent/src/rep/driver.rs", effect),
            ("agent/src/rep/logics.rs", effect),
        ]);
        assert_eq!(found[4], (1, "std::fs in agent/src/rep/logic/a.rs".to_owned()));
    }
}
