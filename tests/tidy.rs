//! The rules of the house that a program can check. Each rule is a function from the files of the
//! tree to its findings, and a finding says where and what to do. `CONTRIBUTING.md` tells the rules
//! to people; clippy checks the fence itself, here we check that nobody stands outside of it.
//!
//! Not a linter for Rust: [`code_only`] blanks comments and literals, the rest is looking at text.
//! The samples at the end prove that each rule can fail, and that it lets good work pass. Crates and
//! folders that do not exist yet are no finding.

#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/names.rs"]
mod names;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use volvox_tests::rust_text::{code_only, is_test_file, is_word, without_tests, words};

/// The lints that make the fence; their lists stand in `clippy.toml`. A pure file has, below its
/// header: `#![deny(clippy::disallowed_methods, clippy::disallowed_types)]`.
const FENCE: [&str; 2] = ["clippy::disallowed_methods", "clippy::disallowed_types"];

/// Crates whose every file is under the fence.
const PURE_CRATES: [&str; 1] = ["protocol"];

/// Crates in which only the modules of [`IO`] may stand outside of the fence.
const MIXED_CRATES: [&str; 3] = ["mesh", "agent", "coordinator"];

/// All modules of `host`: what each program needs of its machine. A closed list, so that it does not
/// become the place for whatever has no other.
const HOST: [&str; 8] = ["lib", "clock", "durable", "http", "sync", "terminal", "thread", "trust"];

/// Modules (files or folders, with all below) that may do IO, and what for. A name that begins with `/`
/// is one directly below the crate.
const IO: [(&str, &str); 20] = [
    ("main", "flags, exit codes"),
    ("bin", "further binaries"),
    ("config", "reads the configuration file"),
    ("control", "a socket for people on the machine"),
    ("/run", "builds the drivers, owns shutdown"),
    ("offline", "subcommands on what is at rest: a database, a cell"),
    ("gossip", "speaks to the mesh"),
    ("driver", "performs what logic decided"),
    ("store", "SQLite"),
    ("hub", "hands events to subscribers"),
    ("streams", "logs and terminals over the mesh"),
    ("transport", "sockets"),
    ("tls", "keys and certificates on disk"),
    ("image", "fetches root file systems"),
    ("api", "HTTP"),
    ("kernel", "one subject of the kernel each"),
    ("http", "calls others by HTTP"),
    ("runtime", "the kernel"),
    ("shim", "the kernel"),
    ("cli", "a person's terminal"),
];

/// A file with none of these holds a module doc and re-exports.
const ITEMS: [&str; 7] = ["fn", "struct", "enum", "impl", "const", "static", "macro_rules"];

/// Which of our crates a crate may name in its `Cargo.toml`: the arrows, none of which points back.
const ARROWS: [(&str, &[&str]); 10] = [
    ("golden", &[]),
    ("protocol", &["golden"]),
    ("host", &["protocol"]),
    ("mesh", &["protocol", "host", "golden"]),
    ("agent", &["protocol", "host", "mesh", "golden"]),
    ("coordinator", &["protocol", "host", "mesh"]),
    ("cli", &["protocol", "host"]),
    ("bench", &["protocol", "host", "mesh", "agent", "coordinator", "tests"]),
    ("tests", &["protocol", "host", "mesh", "agent", "coordinator", "cli"]),
    ("fuzz", &["protocol", "mesh", "agent", "coordinator"]),
];

/// All that `protocol` may depend on: serde, three codecs, small texts, error types, and what tests need.
const PROTOCOL_DEPENDENCIES: [&str; 8] = [
    "postcard",
    "proptest",
    "prost",
    "serde",
    "serde_json",
    "serde_path_to_error",
    "smol_str",
    "thiserror",
];

/// Files of test code that may sleep, because they wait for something outside of our process.
const MAY_SLEEP: [(&str, &str); 5] = [
    ("agent/tests/stage/mod.rs", "polls containers until a deadline"),
    ("coordinator/tests/api/stage.rs", "polls a coordinator until a deadline"),
    ("coordinator/tests/process.rs", "polls another process until a deadline"),
    ("tests/src/wait.rs", "polls another process until a deadline"),
    ("mesh/tests/stage/mod.rs", "polls members until a deadline"),
];

const MAX_LINES: usize = 800;

/// Files that may be longer than [`MAX_LINES`], and why.
const MAY_BE_LONG: [(&str, &str); 0] = [];

/// Text that ties the tree to one machine or one mirror. In two pieces, so as not to find itself.
const MACHINE_BOUND: [&str; 8] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/usr/local/", "cargo"),
    concat!(".cargo/", "registry"),
    concat!("crates", ".io"),
    concat!("sparse", "+http"),
    concat!("registry", "+http"),
    concat!("rs", "proxy"),
];

/// The rules, each as an order: what to do about what the function finds.
const RULES: [(Rule, &str); 13] = [
    (fence, "fence pure files (see FENCE), or name the module in IO in tests/tidy.rs and say why"),
    (wildcards, "name the variants of a column, so that a new one must be decided about"),
    (
        unfinished,
        "finish it, or refuse with a value; a test that needs root skips itself and says so",
    ),
    (sleeps, "in tests, wait for the event itself, pass the time in, or use a file of MAY_SLEEP"),
    (table_documents, "add the test that reads the document (include_str!), or the document"),
    (
        machine_bound,
        "name no machine and no mirror: a relative path, a setting, cargo's own config",
    ),
    (arrows, "follow the arrows; what is new gets a place in tests/tidy.rs and docs/decisions.md"),
    (
        layers::layers,
        "put what both sides share into agent/src/container: LAYERS says who may name whom",
    ),
    (headers, "begin the file with `//!`: what it is, what it is not, who calls it"),
    (lengths, "split by what is decided, or keep MAY_BE_LONG true, with the reason"),
    (links, "mend the link, or the heading it names"),
    (names::names_that_say_nothing, "call the type by what it is and whose (see SAY_NOTHING)"),
    (names::names_of_many, "call each by whose it is, so that a reader knows one from the other"),
];

/// One file of the tree. What is not UTF-8 is here with no text: links may point at it.
struct File {
    path: String,
    text: String,
}

type Rule = fn(&[File]) -> Vec<String>;

#[test]
fn the_house_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace");
    let files = read_tree(root);
    assert!(
        files.iter().any(|file| file.path == "protocol/src/lib.rs"),
        "the walk from {} did not meet protocol/src/lib.rs: it checks nothing",
        root.display()
    );
    let mut report = String::new();
    for (rule, order) in RULES {
        let findings = rule(&files);
        if !findings.is_empty() {
            report += &format!("\n{order}:\n    {}\n", findings.join("\n    "));
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// All files that git would track, by path. A file that vanishes under our feet is left out.
fn read_tree(root: &Path) -> Vec<File> {
    let ignored = fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
    let ignored: Vec<_> = ignored.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut files = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(root.join(&folder)) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let Ok(kind) = entry.file_type() else { continue };
            if is_ignored(&ignored, &path, &name) {
                continue;
            } else if kind.is_dir() {
                folders.push(path);
            } else if let Ok(bytes) = fs::read(entry.path()) {
                files.push(File { path, text: String::from_utf8(bytes).unwrap_or_default() });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// Understands the two forms that our `.gitignore` uses: `/path` and `name`.
fn is_ignored(ignored: &[&str], path: &str, name: &str) -> bool {
    let always = [".git", "target", "Cargo.lock"];
    always.contains(&name)
        || ignored.iter().any(|line| match line.trim_end_matches('/').strip_prefix('/') {
            Some(rooted) => rooted == path,
            None => line.trim_end_matches('/') == name,
        })
}

fn rust(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.path.ends_with(".rs"))
}

fn fence(files: &[File]) -> Vec<String> {
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let codes: BTreeMap<&str, String> =
        rust(files).map(|file| (file.path.as_str(), code_only(&file.text))).collect();
    let rooms: BTreeSet<String> =
        codes.keys().filter(|path| does_io(path)).flat_map(|path| above(path, &paths)).collect();

    let mut findings = Vec::new();
    for (path, code) in &codes {
        let Some((krate, _)) = path.split_once("/src/") else { continue };
        let watched = PURE_CRATES.contains(&krate) || MIXED_CRATES.contains(&krate);
        let body = without_tests(code);
        let is_index = ITEMS.iter().all(|item| words(body, item).next().is_none());
        if !watched || does_io(path) || is_index {
            continue;
        }
        if rooms.contains(*path) {
            let function = words(body, "fn").next();
            let what = "has IO below it, so it holds the module doc and re-exports only";
            findings.extend(function.map(|at| place(path, code, at) + what));
            continue;
        }
        let mut lints = inner_lints(code, &["deny", "forbid"]);
        let roofs = above(path, &paths);
        lints.extend(roofs.iter().flat_map(|up| inner_lints(&codes[up.as_str()], &["deny"])));
        if !FENCE.iter().all(|lint| lints.contains(lint)) {
            findings.push(format!("{path}: wants `#![deny({})]`", FENCE.join(", ")));
        }
        if !is_test_file(path) && !inner_lints(code, &["allow", "expect", "warn"]).is_empty() {
            findings.push(format!("{path}: the whole file climbs over the fence"));
        }
    }
    findings
}

fn wildcards(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in rust(files).filter(|file| file.path.starts_with("protocol/src/tables/")) {
        let code = code_only(&file.text);
        let rows = without_tests(&code);
        let rests = rows.match_indices("..").map(|(at, _)| (at, ".."));
        for (at, pattern) in words(rows, "_").map(|at| (at, "_")).chain(rests) {
            let (before, after) = (&rows[..at], &rows[at + pattern.len()..]);
            if stands_alone(before, after) && leads_to_arrow(after) {
                findings.push(format!("{}`{pattern}`", place(&file.path, rows, at)));
            }
        }
    }
    findings
}

fn unfinished(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in rust(files) {
        let code = code_only(&file.text);
        for needle in ["#[ignore", "todo!", "unimplemented!"] {
            let found = code.match_indices(needle);
            findings.extend(found.map(|(at, _)| place(&file.path, &code, at) + needle));
        }
    }
    findings
}

fn sleeps(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in rust(files).filter(|file| MAY_SLEEP.iter().all(|(path, _)| *path != file.path)) {
        let code = code_only(&file.text);
        let tests = if is_test_file(&file.path) { 0 } else { without_tests(&code).len() };
        let found = words(&code, "sleep").filter(|at| *at >= tests);
        findings.extend(found.map(|at| place(&file.path, &code, at) + "sleep"));
    }
    findings
}

fn table_documents(files: &[File]) -> Vec<String> {
    let folder = "docs/tables/";
    let documents: BTreeSet<&str> = files
        .iter()
        .map(|file| file.path.as_str())
        .filter(|path| path.starts_with(folder) && !path.ends_with("/README.md"))
        .collect();
    let mut unread = documents.clone();
    let mut findings = Vec::new();
    for file in rust(files) {
        for (at, call) in file.text.match_indices("include_str!(") {
            let argument = file.text[at + call.len()..].split(';').next().unwrap_or_default();
            let Some(start) = argument.find(folder) else { continue };
            let name = argument[start..].split('"').next().unwrap_or_default();
            unread.remove(name);
            if !documents.contains(name) {
                findings.push(place(&file.path, &file.text, at) + name + " does not exist");
            }
        }
    }
    findings.extend(unread.iter().map(|path| format!("{path}: no test reads it")));
    findings
}

fn machine_bound(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files {
        for needle in MACHINE_BOUND {
            for (at, _) in file.text.match_indices(needle) {
                // `/x/` inside of a longer path is another folder of that name.
                if !needle.starts_with('/') || !file.text[..at].ends_with(is_word) {
                    findings.push(place(&file.path, &file.text, at) + needle);
                }
            }
        }
    }
    findings
}

fn arrows(files: &[File]) -> Vec<String> {
    let host = rust(files).filter(|file| file.path.starts_with("host/src/"));
    let host = host.filter(|file| modules(&file.path).any(|module| !HOST.contains(&module)));
    let mut findings: Vec<String> =
        host.map(|file| format!("{}: a module that HOST does not list", file.path)).collect();
    for file in files {
        let Some(krate) = file.path.strip_suffix("/Cargo.toml") else { continue };
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == krate) else {
            findings.push(format!("{}: an unknown crate", file.path));
            continue;
        };
        for dependency in dependencies(&file.text) {
            let may = match dependency.strip_prefix("volvox-") {
                Some(ours) => allowed.contains(&ours),
                None => krate != "protocol" || PROTOCOL_DEPENDENCIES.contains(&dependency.as_str()),
            };
            if !may {
                findings.push(format!("{}: depends on {dependency}", file.path));
            }
        }
    }
    findings
}

fn headers(files: &[File]) -> Vec<String> {
    let without = rust(files).filter(|file| !file.text.trim_start().starts_with("//!"));
    without.map(|file| file.path.clone()).collect()
}

fn lengths(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in rust(files) {
        let lines = file.text.lines().count();
        let excused = MAY_BE_LONG.iter().any(|(path, _)| *path == file.path);
        if (lines > MAX_LINES) != excused {
            findings.push(format!("{}: {lines} lines, the limit is {MAX_LINES}", file.path));
        }
    }
    findings
}

fn links(files: &[File]) -> Vec<String> {
    let documents = || files.iter().filter(|file| file.path.ends_with(".md"));
    let anchors: BTreeSet<String> =
        documents().flat_map(|file| anchors(&file.path, &file.text)).collect();
    let mut findings = Vec::new();
    for file in documents() {
        for (line, target) in link_targets(&prose_only(&file.text)) {
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let path = if path.is_empty() { file.path.clone() } else { resolve(folder, path) };
            let below = format!("{path}/");
            let exists = path.is_empty()
                || files.iter().any(|f| f.path == path || f.path.starts_with(&below));
            let known = !path.ends_with(".md") || anchors.contains(&format!("{path}#{anchor}"));
            if !exists || !(anchor.is_empty() || known) {
                findings.push(format!("{}:{line}: {target}", file.path));
            }
        }
    }
    findings
}

/// How a finding begins: the file and the line.
fn place(path: &str, text: &str, at: usize) -> String {
    format!("{path}:{}: ", text[..at].matches('\n').count() + 1)
}

/// Is the pattern between these a whole column (`(_,` and `, _)` and `| _`), a whole payload, or a
/// whole arm (`_ =>`)? A range (`0..9`) or a field (`x: _`) is none of these.
fn stands_alone(before: &str, after: &str) -> bool {
    let after = after.trim_start();
    (before.trim_end().ends_with(['(', ',', '|']) && after.starts_with([')', ',', '|']))
        || after.starts_with("=>")
        || after.starts_with("if ")
}

/// Does what follows a pattern end its arm? Anything that opens, closes or assigns comes first if
/// the pattern belongs to a closure, a `let` or a parameter.
fn leads_to_arrow(after: &str) -> bool {
    let end = after.find(['{', '}', ';', '=']).unwrap_or(after.len());
    after[end..].starts_with("=>")
}

/// `bbs`, `logic`, `desired` of `coordinator/src/bbs/logic/desired.rs`.
fn modules(path: &str) -> impl Iterator<Item = &str> {
    let inside = path.split_once("/src/").map_or(path, |(_, inside)| inside);
    inside.trim_end_matches(".rs").split('/')
}

fn does_io(path: &str) -> bool {
    let mixed = path.split_once("/src/").is_some_and(|(krate, _)| MIXED_CRATES.contains(&krate));
    let is_in = |name: &str| match name.strip_prefix('/') {
        Some(name) => modules(path).next() == Some(name),
        None => modules(path).any(|module| module == name),
    };
    mixed && IO.iter().any(|(name, _)| is_in(name))
}

/// The files of the modules above this one, from the crate's root on, that exist.
fn above(path: &str, paths: &BTreeSet<&str>) -> Vec<String> {
    let Some((krate, _)) = path.split_once("/src/") else { return Vec::new() };
    let mut found = Vec::new();
    let roots = [format!("{krate}/src/lib.rs"), format!("{krate}/src/main.rs")];
    found.extend(roots.into_iter().find(|root| paths.contains(root.as_str())));
    let mut module = format!("{krate}/src");
    for part in modules(path) {
        module = format!("{module}/{part}");
        found.extend([format!("{module}.rs"), format!("{module}/mod.rs")]);
    }
    found.retain(|file| file != path && paths.contains(file.as_str()));
    found
}

/// The lints of the fence that inner attributes (`#![deny(…)]`) of these levels name.
fn inner_lints(code: &str, levels: &[&str]) -> BTreeSet<&'static str> {
    let mut lints = BTreeSet::new();
    for level in levels {
        for (at, _) in code.match_indices(&format!("#![{level}(")) {
            let list = &code[at..];
            let list = &list[..list.find(")]").unwrap_or(list.len())];
            lints.extend(FENCE.into_iter().filter(|lint| list.contains(lint)));
        }
    }
    lints
}

/// The names of all dependencies in a `Cargo.toml`, of every kind, renamed ones by real name.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut listing = false;
    for line in manifest.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            listing = section.ends_with("dependencies");
            if let Some((kind, name)) = section.rsplit_once('.') {
                found.extend(kind.ends_with("dependencies").then(|| name.to_owned()));
            }
        } else if let Some((key, value)) = line.split_once('=') {
            let renamed =
                value.split_once("package = \"").and_then(|(_, name)| name.split_once('"'));
            let name = key.trim().split('.').next().unwrap_or_default().trim_matches('"');
            let name = renamed.map_or(name, |(name, _)| name);
            found.extend(listing.then(|| name.to_owned()));
        }
    }
    found
}

/// Markdown without its code, fenced or inline; every line keeps its number.
fn prose_only(text: &str) -> String {
    let mut fenced = false;
    let mut prose = String::new();
    for line in text.lines() {
        let mark = line.trim_start().starts_with("```");
        fenced ^= mark;
        if !fenced && !mark {
            prose.extend(line.split('`').step_by(2));
        }
        prose.push('\n');
    }
    prose
}

/// The targets of `[text](target)` and `[name]: target` that are not on the network.
fn link_targets(prose: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, text) in prose.lines().enumerate() {
        let inline = text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        let named = text.trim_start().starts_with('[').then(|| text.split_once("]: ")).flatten();
        let named = named.and_then(|(_, target)| target.split_whitespace().next());
        for target in
            inline.chain(named).filter(|t| !t.contains("://") && !t.starts_with("mailto:"))
        {
            found.push((line + 1, target.to_owned()));
        }
    }
    found
}

/// `path` as seen from `folder`, without `.` and `..`.
fn resolve(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// What a link to a heading of this document may say, by the slugs of the usual forges. Code in a
/// heading is blanked before, so headings with code cannot be linked to.
fn anchors(path: &str, text: &str) -> Vec<String> {
    let prose = prose_only(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let slug = |heading: &str| {
        let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        text.chars().filter(|c| is_word(*c) || *c == '-').collect::<String>()
    };
    headings.map(|heading| format!("{path}#{}", slug(heading))).collect()
}

/// Trees of (path, text): the rule finds nothing in the good ones, one thing in each bad one.
#[track_caller]
fn check(rule: Rule, good: &[&[(&str, &str)]], bad: &[&[(&str, &str)]]) {
    for (trees, expected) in [(good, 0), (bad, 1)] {
        for tree in trees {
            let own =
                |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
            let files: Vec<_> = tree.iter().map(own).collect();
            let findings = rule(&files);
            assert_eq!(findings.len(), expected, "in {tree:?}: {findings:?}");
        }
    }
}

#[test]
fn the_fence_is_seen_in_the_file_and_above_it() {
    let deny = "#![deny(clippy::disallowed_methods, clippy::disallowed_types)]\n fn f() {}";
    let long =
        "#![deny(\n    clippy::disallowed_methods,\n    clippy::disallowed_types\n)]\n fn f() {}";
    let climbing = format!("{deny}#![allow(clippy::disallowed_types, reason = \"x\")]");
    let f = "fn f() {}";
    let logic = "coordinator/src/bbs/logic.rs";
    let below = "coordinator/src/bbs/logic/desired.rs";
    let driver = ("coordinator/src/bbs/driver.rs", f);
    check(
        fence,
        &[
            &[(logic, deny)],
            &[(logic, long)],
            &[(logic, deny), (below, f)],
            &[("protocol/src/lib.rs", deny), ("protocol/src/id.rs", f)],
            &[("agent/src/run.rs", f), ("agent/src/run/parts.rs", f)],
            &[(logic, deny), ("coordinator/src/bbs/logic/tests.rs", &climbing)],
            &[
                driver,
                ("coordinator/src/bbs.rs", "pub mod driver;"),
                ("coordinator/src/lib.rs", ""),
            ],
            &[("coordinator/src/bbs/store/tests.rs", f), ("cli/src/client.rs", f)],
        ],
        &[
            &[(logic, f)],
            &[(logic, &format!("// {deny}fn f() {{}}"))],
            &[(logic, "#![deny(clippy::disallowed_methods)]\n fn f() {}")],
            &[(logic, &climbing)],
            &[("coordinator/src/auction.rs", deny), (below, f)],
            &[("agent/src/executor/steps/run.rs", f)],
            &[("protocol/src/store.rs", "struct S;")],
            &[driver, ("coordinator/src/bbs.rs", "pub mod driver;\nfn decide() {}")],
        ],
    );
}

#[test]
fn a_wildcard_column_is_seen() {
    let file = "protocol/src/tables/x.rs";
    let good = [
        "(C::A, L::B) => (Nothing, Expected), // (_, x) => y",
        "(C::A, L::B | L::C) => 1,\n(C::B, L::C) => 2,",
        "fn f(_: u8) -> u8 { let _ = (1, 2); match x { (A, B) => 1 } }",
        "(0..=3, Age::Young) => Now,",
        "(A, B) => 1 }\n#[cfg(test)]\nmod tests { match x { (_, b) => b } }",
        "let (_, b) = pair; match b { B => 1 }",
    ];
    let bad = [
        "(_, L::B) => 1,",
        "(C::A, _) => 1,",
        "(C::A, _)\n| (C::B, L::B) => 1,",
        "(C::A, L::Claimed(_)) => 1,",
        "(C::A, L::B | _) => 1,",
        "(C::A, _) if x => 1,",
        "(C::A, ..) => 1,",
        "_ => 1,",
    ];
    for text in good {
        check(wildcards, &[&[(file, text)]], &[]);
    }
    for text in bad {
        check(wildcards, &[&[("protocol/src/tables.rs", text)]], &[&[(file, text)]]);
    }
}

#[test]
fn unfinished_work_is_seen_in_code_only() {
    check(
        unfinished,
        &[&[("a.rs", "// todo! #[ignore]\nlet x = \"unimplemented!\"; r#\"todo!()\"#;")]],
        &[
            &[("a.rs", "fn f() { todo!() }")],
            &[("a.rs", "fn f() { unimplemented!(\"x\") }")],
            &[("a.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}")],
        ],
    );
}

#[test]
fn a_sleeping_test_is_seen() {
    let naps = "fn f() { std::thread::sleep(x) }";
    let both = format!("{naps}\n#[cfg(test)]\nmod tests {{ {naps} }}");
    check(
        sleeps,
        &[
            &[("agent/src/rep/driver.rs", naps), (MAY_SLEEP[0].0, naps)],
            &[("tests/kill.rs", "Command::new(\"sleep\"); fn sleepers() {}")],
        ],
        &[
            &[("tests/kill.rs", naps)],
            &[("tests/kill.rs", "use std::thread::{self, sleep};")],
            &[("agent/src/rep/driver.rs", &both)],
            &[("coordinator/src/bbs/driver/tests.rs", naps)],
        ],
    );
}

#[test]
fn tables_and_documents_must_meet() {
    let reads = concat!("const T: &str = include", "_str!(\"../../../docs/tables/a.md\");");
    let built = concat!(
        "include",
        "_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/../docs/tables/a.md\"))"
    );
    let document = ("docs/tables/a.md", "| a |");
    check(
        table_documents,
        &[
            &[document, ("protocol/src/tables/a.rs", reads)],
            &[document, ("protocol/src/tables/a.rs", built)],
            &[],
        ],
        &[&[document], &[("protocol/src/tables/a.rs", reads)]],
    );
}

#[test]
fn a_path_of_one_machine_is_seen() {
    let home = concat!("see /wo", "rk/main for more");
    let root = concat!("dir = \"/ro", "ot/x\"");
    let host = concat!("index = \"https://index.crates", ".io\"");
    let other = concat!("docs/wo", "rk/plan.md and /rootfs/x");
    check(
        machine_bound,
        &[&[("a.md", other)]],
        &[&[("a.md", home)], &[("a.toml", root)], &[(".ci/run", host)]],
    );
}

#[test]
fn an_arrow_backwards_is_seen() {
    let inherits = "[dependencies]\nvolvox-protocol.workspace = true\nanyhow = \"1\"\n";
    let tests = "[dev-dependencies]\nvolvox-agent = { path = \"../agent\" }\n";
    let renamed = "[dependencies]\nother = { package = \"volvox-agent\", path = \"../agent\" }\n";
    let section = "[target.x.dependencies.volvox-agent]\npath = \"../agent\"\n";
    check(
        arrows,
        &[
            &[("Cargo.toml", "[workspace.dependencies]\nvolvox-agent = { path = \"agent\" }")],
            &[("coordinator/Cargo.toml", inherits), ("tests/Cargo.toml", tests)],
            &[("protocol/Cargo.toml", "[package]\nname = \"volvox-protocol\"\n# tokio = \"1\"")],
        ],
        &[
            &[("coordinator/Cargo.toml", tests)],
            &[("coordinator/Cargo.toml", renamed)],
            &[("coordinator/Cargo.toml", section)],
            &[("agent/Cargo.toml", "[dependencies]\nvolvox-coordinator.workspace = true")],
            &[("protocol/Cargo.toml", "[dependencies]\nvolvox-mesh.workspace = true")],
            &[("protocol/Cargo.toml", "[dependencies]\nvolvox-host.workspace = true")],
            &[("host/Cargo.toml", "[dependencies]\nvolvox-mesh.workspace = true")],
            &[("protocol/Cargo.toml", "[dependencies]\ntokio.workspace = true")],
            &[("helpers/Cargo.toml", "[package]")],
            &[("host/src/clock.rs", ""), ("host/src/strings.rs", "")],
        ],
    );
}

#[test]
fn a_missing_header_and_a_long_file_are_seen() {
    let long = "x\n".repeat(MAX_LINES + 1);
    let fits = "x\n".repeat(MAX_LINES);
    check(headers, &[&[("a.rs", "//! A.\nfn f() {}")]], &[&[("a.rs", "// A.\nfn f() {}")]]);
    check(lengths, &[&[("a.rs", &fits), ("a.md", &long)]], &[&[("a.rs", &long)]]);
}

#[test]
fn a_dead_link_is_seen() {
    let there = ("docs/b.md", "# One: two-three\n[up](../a.md) and [self](#one-two-three)");
    check(
        links,
        &[
            &[there, ("a.md", "[b](docs/b.md#one-two-three), [c](https://x.org/y), [d](docs/)")],
            &[("a.md", "`[b](gone.md)`\n```\n[b](gone.md)\n```\n")],
        ],
        &[
            &[("a.md", "see [b](docs/gone.md)")],
            &[("a.md", "[b]: gone.md")],
            &[("docs/b.md", "[b](a.md)"), ("a.md", "")],
            &[("a.md", "[b](#nowhere)\n# Here")],
        ],
    );
}
