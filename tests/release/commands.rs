//! Every command that our pages show is one that the programs understand: those in blocks to the last
//! flag, those in the text as far as they go. A `make` target must be there too. Where each block is run
//! is the matter of `places.rs`.

use clap::error::ErrorKind;

use crate::markdown::{pages, root};

const PROGRAMS: [&str; 3] = ["volvox", "volvox-agent", "volvox-coordinator"];

/// A line of a shell as words, with what stands between commands as words of their own. Commands whose
/// output is put in (`$(…)`) are added to `inner`.
fn words(line: &str, inner: &mut Vec<String>) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut is_open = false;
    let mut quote = None;
    let mut letters = line.chars().peekable();
    while let Some(c) = letters.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some('\''), c) => word.push(c),
            (_, '$') if letters.peek() == Some(&'(') => {
                // What is inside is a command of its own; what is around it, a word.
                letters.next();
                let mut depth = 1;
                let mut inside = String::new();
                for c in letters.by_ref() {
                    depth += i32::from(c == '(') - i32::from(c == ')');
                    if depth == 0 {
                        break;
                    }
                    inside.push(c);
                }
                inner.push(inside);
                word.push('X');
                is_open = true;
            }
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                is_open = true;
            }
            (None, '#') if word.is_empty() && !is_open => break,
            (None, ' ' | '\t') | (None, '|' | ';' | '&' | '>' | '<' | '(' | ')') => {
                if !word.is_empty() || is_open {
                    words.push(std::mem::take(&mut word));
                }
                is_open = false;
                if !c.is_whitespace() {
                    words.push("\n".to_owned());
                }
            }
            (None, c) => word.push(c),
        }
    }
    if !word.is_empty() || is_open {
        words.push(word);
    }
    words
}

/// The commands of ours in a line.
pub(crate) fn ours(line: &str) -> Vec<Vec<String>> {
    let mut inner = Vec::new();
    let words = words(line.strip_prefix("$ ").unwrap_or(line), &mut inner);
    let mut found: Vec<Vec<String>> = inner.iter().flat_map(|it| ours(it)).collect();
    for command in words.split(|word| word == "\n") {
        let is_before =
            |it: &&String| it.contains('=') || ["sudo", "env", "nice"].contains(&it.as_str());
        let mut rest = &command[command.iter().take_while(is_before).count()..];
        if let [u, _, after @ ..] = rest
            && u == "-u"
        {
            rest = after;
        }
        if rest.first().is_some_and(|it| PROGRAMS.contains(&it.as_str()) || it == "make") {
            found.push(rest.to_vec());
        }
    }
    found
}

/// Lines of a script, with what was broken joined again and without the files written in it.
pub(crate) fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut until: Option<String> = None;
    let mut goes_on = false;
    for line in text.lines() {
        if let Some(end) = &until {
            if line == end {
                until = None;
            }
            continue;
        }
        let (part, continues) = line.strip_suffix('\\').map_or((line, false), |it| (it, true));
        match lines.last_mut() {
            Some(last) if goes_on => *last += part,
            _ => lines.push(part.to_owned()),
        }
        goes_on = continues;
        if let Some((_, end)) = line.split_once("<<'") {
            until = end.split('\'').next().map(str::to_owned);
        }
    }
    lines
}

/// Why the programs do not understand it. In the text (`is_loose`) an end may be missing, and a value may
/// be a name for one.
fn complaint(words: &[String], is_loose: bool) -> Option<String> {
    let program = words[0].as_str();
    if program == "make" {
        let target = words.get(1)?;
        let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
        let is_there = makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
        return (!is_there).then(|| format!("make has no target {target}"));
    }
    let (_, _, command) = volvox_tests::programs().into_iter().find(|it| it.0 == program)?;
    let error = command.try_get_matches_from(words).err()?;
    let passes = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::InvalidValue
        | ErrorKind::ValueValidation
        | ErrorKind::TooFewValues => is_loose,
        _ => false,
    };
    (!passes).then(|| error.to_string())
}

#[test]
fn every_command_in_a_block_is_understood() {
    let (mut faults, mut count) = (Vec::new(), 0);
    for page in pages() {
        for block in page.blocks.iter().filter(|it| it.is_shell()) {
            for command in lines(&block.text).iter().flat_map(|line| ours(line)) {
                count += 1;
                if let Some(why) = complaint(&command, false) {
                    faults.push(format!("{}:{}: {command:?}: {why}", page.path, block.line));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count > 100, "only {count} commands were found: the pages are not read rightly");
}

#[test]
fn every_command_in_the_text_is_understood_as_far_as_it_goes() {
    let (mut faults, mut count) = (Vec::new(), 0);
    // That page is written from the programs, with their own signs for what may be left out.
    for page in pages().iter().filter(|it| it.path != "docs/reference/commands.md") {
        for (line, code) in &page.code {
            let end = code.find(['…', '|']).unwrap_or(code.len());
            let words: Vec<String> =
                code[..end].replace(['[', ']'], "").split_whitespace().map(str::to_owned).collect();
            let is_ours = words.first().is_some_and(|it| PROGRAMS.contains(&it.as_str()));
            let is_make = words.len() == 2 && words[0] == "make";
            if (!is_ours || words.len() < 2) && !is_make {
                continue;
            }
            count += 1;
            if let Some(why) = complaint(&words, true) {
                faults.push(format!("{}:{line}: `{code}`: {why}", page.path));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count > 40, "only {count} commands were found: the pages are not read rightly");
}

#[test]
fn a_flag_that_does_not_exist_is_found() {
    for (line, is_bad) in [
        ("volvox ps --watch", false),
        ("sudo volvox ps --watsh", true),
        ("sudo env PATH=\"$PATH\" volvox dev --sells 2", true),
        ("A=$(volvox cells --jsn | head -1) curl x", true),
        ("volvox apply -f - <<'END'", false),
        ("echo volvox nothing", false),
        ("volvox-coordinator init --uses 3   # --many", false),
        ("volvox-agent join", true),
        ("make nothing-of-that-name", true),
        ("sudo -u volvox-coordinator volvox-coordinator check --data-dir /x", false),
    ] {
        let faults = ours(line).iter().filter(|it| complaint(it, false).is_some()).count();
        assert_eq!(faults > 0, is_bad, "{line}");
    }
    assert!(
        complaint(&["volvox".into(), "scale".into(), "APP".into(), "COUNT".into()], true).is_none()
    );
    assert!(complaint(&["volvox".into(), "ps".into(), "--nothing".into()], true).is_some());
}
