//! Rust source as text, for the rules of the house (`tests/tidy.rs`) and their figures
//! ([`crate::house`]). Comments and literals are told from code, and no more: this is no parser.

use std::ops::Range;

/// The text with comments and literals blanked; every line keeps its number.
pub fn code_only(text: &str) -> String {
    blanked(text, &[Span::Comment, Span::Literal])
}

/// The text with comments blanked; every line keeps its number.
pub fn without_comments(text: &str) -> String {
    blanked(text, &[Span::Comment])
}

/// The code above the test module that stands in the file itself; it comes last.
pub fn without_tests(code: &str) -> &str {
    const MARK: &str = "#[cfg(test)]";
    let inline = |at: &usize| {
        let rest = code[at + MARK.len()..].trim_start();
        rest.starts_with("mod ")
            && rest.find(['{', ';']).is_some_and(|end| rest[end..].starts_with('{'))
    };
    &code[..code.match_indices(MARK).map(|(at, _)| at).find(inline).unwrap_or(code.len())]
}

/// A test file is test code from its first line: in `tests/`, or `tests.rs`, or below one.
pub fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "tests.rs")
}

/// Whether a character may be in the middle of a name.
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where `word` stands as a word of its own.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        !code[..*at].ends_with(is_word) && !code[at + word.len()..].starts_with(is_word)
    })
}

/// The types that code declares: structs, enums, traits and aliases, with where each name stands.
/// `code` is from [`code_only`]. Types of traits and their implementations are none.
pub fn types(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for keyword in ["struct", "enum", "trait", "type"] {
        for at in words(code, keyword) {
            let line = &code[code[..at].rfind('\n').map_or(0, |end| end + 1)..];
            if keyword == "type" && line.starts_with(' ') {
                continue;
            }
            found.extend(name_after(code, at + keyword.len()));
        }
    }
    found.sort_unstable();
    found
}

/// The functions that code has a body for: the name, and the range from `fn` to the last brace.
/// `code` is from [`code_only`].
pub fn functions(code: &str) -> Vec<(&str, Range<usize>)> {
    let mut found = Vec::new();
    for at in words(code, "fn") {
        let Some((start, name)) = name_after(code, at + "fn".len()) else { continue };
        let (mut depth, mut nested) = (0_usize, 0_usize);
        for (offset, c) in code[start..].char_indices() {
            match c {
                '(' | '[' => nested += 1,
                ')' | ']' => nested = nested.saturating_sub(1),
                ';' if depth == 0 && nested == 0 => break,
                '{' => depth += 1,
                '}' if depth <= 1 => {
                    found.push((name, at..start + offset + 1));
                    break;
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    found
}

/// The name that follows a keyword, if one does.
fn name_after(code: &str, at: usize) -> Option<(usize, &str)> {
    let rest = code[at..].trim_start();
    let start = code.len() - rest.len();
    let name = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
    let is_name = name.starts_with(|c: char| c.is_alphabetic() || c == '_') && start > at;
    is_name.then_some((start, name))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Span {
    Comment,
    Literal,
}

fn blanked(text: &str, what: &[Span]) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let comment = comment_len(rest).map(|len| (Span::Comment, len));
        let in_word = text[..text.len() - rest.len()].ends_with(is_word);
        let span = comment.or_else(|| Some((Span::Literal, literal_len(rest, in_word)?)));
        let (span, len) = span.map_or((None, next.len_utf8()), |(span, len)| (Some(span), len));
        if span.is_some_and(|span| what.contains(&span)) {
            code.extend(rest[..len].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        } else {
            code.push_str(&rest[..len]);
        }
        rest = &rest[len..];
    }
    code
}

/// Block comments inside of block comments are not understood: nobody here writes them.
fn comment_len(rest: &str) -> Option<usize> {
    let end = if rest.starts_with("//") {
        rest.find('\n')
    } else if rest.starts_with("/*") {
        rest.find("*/").map(|at| at + 2)
    } else {
        return None;
    };
    Some(end.unwrap_or(rest.len()))
}

/// How long the string or character is that begins here. `in_word`: what precedes is part of a name.
fn literal_len(rest: &str, in_word: bool) -> Option<usize> {
    let quoted = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r')).unwrap_or("");
    let hashes = quoted.len() - quoted.trim_start_matches('#').len();
    if !in_word && quoted[hashes..].starts_with('"') {
        let begin = rest.len() - quoted.len() + hashes + 1;
        let close = format!("\"{}", "#".repeat(hashes));
        return Some(rest[begin..].find(&close).map_or(rest.len(), |at| begin + at + close.len()));
    }
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(at + 1),
            // A lifetime: one character, and no closing quote behind it.
            _ if quote == '\'' && !rest[1..].starts_with('\\') => {
                let after = at + c.len_utf8();
                return rest[after..].starts_with('\'').then_some(after + 1);
            }
            _ => {}
        }
    }
    Some(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_the_rest_is_kept() {
        for (text, code) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b\n c */ d", "a     \n      d"),
            ("f(\"a\\\"b\", c)", "f(      , c)"),
            ("f(r#\"a\"b\"#, c)", "f(        , c)"),
            ("'a' 'b: for", "    'b: for"),
            ("&'static str '\\'' '\"' x", "&'static str          x"),
            ("for x in \"// no\".y", "for x in        .y"),
        ] {
            assert_eq!(code_only(text), code, "of {text:?}");
        }
        assert_eq!(without_comments("a(\"// b\") // c"), "a(\"// b\")     ");
    }

    #[test]
    fn only_a_test_module_with_a_body_is_cut_off() {
        let module = "#[cfg(test)]\nmod tests {\n}";
        for code in
            ["fn f() {}\n", "#[cfg(test)]\nmod tests;\nfn f() {}\n", "#[cfg(test)]\nfn f() {}\n"]
        {
            assert_eq!(without_tests(&format!("{code}{module}")), code);
            assert_eq!(without_tests(code), code);
        }
    }

    #[test]
    fn types_are_found_but_not_those_of_traits() {
        let code = "pub struct A(B);\nimpl T for A {\n    type Error = E;\n}\nrecord! {\n    enum C {}\n}\n\
                    pub(crate) type D<'a> = &'a A;\ntrait T {\n    type Error;\n}\nstruct $name;";
        let names: Vec<&str> = types(code).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["A", "C", "D", "T"]);
    }

    #[test]
    fn a_function_ends_with_its_last_brace() {
        let code = "trait T { fn none(&self, of: [u8; 2]); }\nfn one() -> fn(u8) { if a { b } }\nfn two() {}";
        let found: Vec<(&str, &str)> =
            functions(code).into_iter().map(|(name, range)| (name, &code[range])).collect();
        let two = ("two", "fn two() {}");
        assert_eq!(found, [("one", "fn one() -> fn(u8) { if a { b } }"), two]);
    }
}
