//! Each block of commands in our pages is run somewhere, and says where in the line of its fence:
//!
//! | fence | where |
//! |---|---|
//! | `sh` | in the cluster of `cluster.rs`, in the order of the page |
//! | `console ctrl-c=WORD` | there too: commands that go on, each until it has said WORD; then Ctrl-C |
//! | `console vm=NAME`, `sh vm=NAME` | in the machine of `make vmtest`: `packaging/vm/guest-install` calls it by its name |
//! | `console make` | targets of `make` that a test or CI runs, see [`MADE`] |
//! | `console by-hand` | nowhere, for a reason that stands in [`BY_HAND`] |

use std::collections::BTreeSet;

use crate::commands::{lines, ours};
use crate::markdown::{Block, Page, pages, root};

/// Targets of `make` that our pages show: a file that runs each, and what is to be found in it.
const MADE: [(&str, &str, &str); 4] = [
    // Without the building: the same script, with the programs of the tests.
    ("demo", "tests/release/cluster.rs", "packaging/demo"),
    ("test", ".ci/run", "step test make test"),
    ("package", "Makefile", "\nvmtest: package tar "),
    ("tar", "Makefile", "\nvmtest: package tar "),
];

/// Blocks that no test of ours runs: page, how the block begins, why not.
const BY_HAND: [(&str, &str, &str); 3] = [
    (
        "docs/diego-clients.md",
        "export BBS_URL=",
        "cfdot is Cloud Foundry's, in Go; its messages are replayed by coordinator/tests/diego.rs",
    ),
    (
        "docs/testing.md",
        "make sim",
        "up to an hour; the simulator itself is run by tests/sim.rs with other seeds",
    ),
    ("docs/tutorial.md", "git clone VOLVOX", "the reader knows where the repository is, we do not"),
];

/// What a block's fence says of where it is run.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Cluster,
    Machine(String),
    Make,
    ByHand,
}

fn place(block: &Block) -> Result<Place, String> {
    match (block.kind.as_str(), block.mark.as_str()) {
        ("sh", "") => Ok(Place::Cluster),
        ("console", "make") => Ok(Place::Make),
        ("console", "by-hand") => Ok(Place::ByHand),
        ("console", _) if block.marked("ctrl-c").is_some_and(|it| !it.is_empty()) => {
            Ok(Place::Cluster)
        }
        (_, _) => match block.marked("vm") {
            Some(name) if !name.is_empty() => Ok(Place::Machine(name.to_owned())),
            _ => Err(format!("```{} {}: where is it run?", block.kind, block.mark)),
        },
    }
}

/// What is wrong with where a page's blocks are said to be run.
fn faults(page: &Page) -> Vec<String> {
    let mut faults = Vec::new();
    for block in &page.blocks {
        let at = format!("{}:{}", page.path, block.line);
        if !block.is_shell() {
            let known = ["toml", "json", "yaml", "text", "rust"].contains(&block.kind.as_str());
            if !known || !block.mark.is_empty() {
                faults.push(format!("{at}: ```{} {}", block.kind, block.mark));
            }
            continue;
        }
        match place(block) {
            Err(fault) => faults.push(format!("{at}: {fault}")),
            Ok(Place::Make) => faults.extend(unmade(block).map(|it| format!("{at}: {it}"))),
            Ok(Place::ByHand) => {
                let is_known = |it: &&(&str, &str, &str)| {
                    page.path == it.0 && block.text.starts_with(it.1) && !it.2.is_empty()
                };
                if BY_HAND.iter().find(is_known).is_none() {
                    faults.push(format!("{at}: not run, and BY_HAND does not say why"));
                }
            }
            Ok(Place::Cluster | Place::Machine(_)) => {}
        }
    }
    faults
}

/// A line that is no target which something makes.
fn unmade(block: &Block) -> Option<String> {
    let lines = lines(&block.text);
    let mut bad = lines.iter().filter(|line| {
        let commands = ours(line);
        let made = |words: &Vec<String>| {
            words[0] == "make" && words.len() == 2 && MADE.iter().any(|it| it.0 == words[1])
        };
        commands.len() != 1 || !commands.iter().all(made)
    });
    bad.next().map(|line| format!("{line}: MADE does not say what runs it"))
}

#[test]
fn every_block_of_commands_is_run_somewhere() {
    let pages = pages();
    let found: Vec<String> = pages.iter().flat_map(faults).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    for (page, begin, _) in BY_HAND {
        let page = pages.iter().find(|it| it.path == page).unwrap();
        let is_it = |it: &Block| it.mark == "by-hand" && it.text.starts_with(begin);
        assert!(page.blocks.iter().any(is_it), "{}: {begin}: no such block any more", page.path);
    }
}

#[test]
fn what_pages_have_made_is_made_by_a_test() {
    for (target, file, words) in MADE {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        assert!(text.contains(words), "make {target}: {words:?} is not in {file}");
    }
}

/// Names and calls are the same set; a call that nobody reaches is for whoever reads that script.
#[test]
fn the_machine_runs_every_block_that_is_left_to_it_and_no_other() {
    let mut named = BTreeSet::new();
    for page in pages() {
        for name in page.blocks.iter().filter_map(|it| it.marked("vm")) {
            assert!(named.insert(name.to_owned()), "{}: vm={name} is there twice", page.path);
        }
    }
    let script = root().join("packaging/vm/guest-install");
    let script = std::fs::read_to_string(script).unwrap();
    let called: BTreeSet<String> = calls(&script).map(|it| it.1.to_owned()).collect();
    assert_eq!(called, named);
    assert!(named.len() > 15, "{named:?}");
    let blocks: Vec<(String, usize)> = pages()
        .iter()
        .flat_map(|page| &page.blocks)
        .filter_map(|it| Some((it.marked("vm")?.to_owned(), it.text.lines().count())))
        .collect();
    assert_eq!(left_out(&script, &blocks), [""; 0]);
}

/// The calls of a script: how, the block's name, and the word after it. A call begins its line.
fn calls(script: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    script.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let how = words.next().filter(|it| ["page", "page_line", "page_until"].contains(it))?;
        Some((how, words.next()?, words.next().unwrap_or_default()))
    })
}

/// Lines of blocks that are run line by line which no call names, and calls of lines that are not there.
/// Where the number is a variable, the loop before it has the numbers.
fn left_out(script: &str, blocks: &[(String, usize)]) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, count) in blocks {
        let is_whole = calls(script).any(|it| it.0 != "page_line" && it.1 == name);
        let mut run = BTreeSet::new();
        let mut numbers = BTreeSet::new();
        for line in script.lines() {
            if let Some((_, list)) = line.split_once("for nth in ") {
                let list = list.split([';', ' ']).map_while(|it| it.parse::<usize>().ok());
                numbers = list.collect();
            }
            for (how, called, number) in calls(line) {
                if how == "page_line" && called == name {
                    match number.parse() {
                        Ok(number) => _ = run.insert(number),
                        Err(_) => run.extend(&numbers),
                    }
                }
            }
        }
        let all: BTreeSet<usize> = (1..=*count).collect();
        if run.difference(&all).next().is_some() || !is_whole && run != all {
            faults.push(format!("vm={name}: {count} lines, and lines {run:?} are run"));
        }
    }
    faults
}

#[test]
fn a_line_that_nobody_runs_is_found() {
    let blocks = [("a".to_owned(), 2)];
    for (script, is_bad) in [
        ("page a", 0),
        ("page_until a word", 0),
        ("page_line a 1", 1),
        ("page_line a 1\n    page_line a 2 folder", 0),
        ("page_line a 1\npage_line a 2\npage_line a 3", 1),
        ("page a\npage_line a 3", 1),
        ("for nth in 1 2; do\n    page_line a $nth\ndone", 0),
        ("for nth in 1; do\n    page_line a $nth\ndone", 1),
        ("for nth in 1 2 3; do\n    page_line a $nth\ndone", 1),
        ("page_line a $nth", 1),
        ("page_line b 1", 1),
    ] {
        assert_eq!(left_out(script, &blocks).len(), is_bad, "{script}");
    }
}

#[test]
fn a_block_without_a_place_is_found() {
    let page = |fence: &str, text: &str| {
        let text = format!("```{fence}\n{text}\n```\n");
        faults(&Page::parse("docs/testing.md", &text)).len()
    };
    for (fence, text, is_bad) in [
        ("sh", "volvox ps", 0),
        ("sh ctrl-c=x", "volvox ps", 1),
        ("console", "volvox ps", 1),
        ("console vm=", "volvox ps", 1),
        ("console vm=a", "volvox ps", 0),
        ("console vm a", "volvox ps", 1),
        ("console ctrl-c=", "volvox ps --watch", 1),
        ("console ctrl-c=RUNNING", "volvox ps --watch", 0),
        ("console make", "make test   # all", 0),
        ("console make", "make bench", 1),
        ("console make", "make test\nrm -rf x", 1),
        ("console by-hand", "make bench", 1),
        ("console by-hand", "make sim", 0),
        ("bash", "volvox ps", 1),
        ("", "volvox ps", 1),
        ("text", "volvox ps", 0),
    ] {
        assert_eq!(page(fence, text), is_bad, "{fence}: {text}");
    }
}
