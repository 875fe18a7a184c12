//! Reads the tables out of a markdown page and holds them against a `match`. For tests only, here
//! and in other crates; it is compiled always because a crate cannot lend its test code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Write as _};

/// The heading under which a page lists the pairs that the document leaves out.
pub const SILENT: &str = "Silent in the document";

/// One table of a page. Cells are trimmed, and `\|` has become `|`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The nearest heading above, without its `#`; empty when there is none.
    pub heading: String,
    /// The cells of the first line.
    pub header: Vec<String>,
    /// The cells of each line below the dashes. A row may be narrower or wider than the header.
    pub rows: Vec<Vec<String>>,
}

/// All tables of a page, in order. Lines inside a code fence are no tables.
pub fn tables(markdown: &str) -> Vec<Table> {
    let mut found: Vec<Table> = Vec::new();
    let mut heading = String::new();
    let mut fenced = false;
    let mut open = false;
    let mut lines = markdown.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            fenced = !fenced;
        }
        if fenced || !line.starts_with('|') {
            open = false;
            if !fenced && line.starts_with('#') {
                heading = line.trim_start_matches('#').trim().to_owned();
            }
        } else if open {
            if let Some(table) = found.last_mut() {
                table.rows.push(cells(line));
            }
        } else if lines.next_if(|next| is_rule(next)).is_some() {
            found.push(Table { heading: heading.clone(), header: cells(line), rows: Vec::new() });
            open = true;
        }
    }
    found
}

/// The first table under a heading, which is given without its `#`.
pub fn table_under(markdown: &str, heading: &str) -> Option<Table> {
    tables(markdown).into_iter().find(|table| table.heading == heading)
}

/// The table with this number, counted from 0.
pub fn nth_table(markdown: &str, number: usize) -> Option<Table> {
    tables(markdown).into_iter().nth(number)
}

/// Whether a line is the row of dashes between header and rows.
fn is_rule(line: &str) -> bool {
    line.starts_with('|')
        && cells(line).iter().all(|cell| {
            let dashes = cell.strip_prefix(':').unwrap_or(cell);
            let dashes = dashes.strip_suffix(':').unwrap_or(dashes);
            !dashes.is_empty() && dashes.bytes().all(|byte| byte == b'-')
        })
}

/// The cells of one line that starts with a pipe.
fn cells(line: &str) -> Vec<String> {
    let mut done = Vec::new();
    let mut cell = String::new();
    let mut letters = line.strip_prefix('|').unwrap_or(line).chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.next_if_eq(&'|').is_some() => cell.push('|'),
            '|' => done.push(std::mem::take(&mut cell).trim().to_owned()),
            other => cell.push(other),
        }
    }
    // What follows the last pipe is a cell only when the line does not end with a pipe.
    if !cell.trim().is_empty() {
        done.push(cell.trim().to_owned());
    }
    done
}

/// What the code says of one combination of views, as `{:?}` text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    of: Vec<String>,
    outcome: Vec<String>,
}

impl Pair {
    /// The views that were asked about, and what came back.
    pub fn new(of: &[&dyn Debug], outcome: &[&dyn Debug]) -> Self {
        let text =
            |values: &[&dyn Debug]| values.iter().map(|value| format!("{value:?}")).collect();
        Pair { of: text(of), outcome: text(outcome) }
    }
}

/// The page of one table.
#[derive(Debug, Clone)]
pub struct Page<'a> {
    /// The table's name, as its file is called.
    pub name: &'a str,
    /// The text of the page.
    pub markdown: &'a str,
    /// The headings whose tables hold the rows of the document. The pairs that it omits are looked
    /// for under [`SILENT`].
    pub headings: &'a [&'a str],
    /// How many rows the document has under those headings together.
    pub rows: usize,
}

impl Page<'_> {
    /// Holds the page against the full product. The first columns are the views, the next the
    /// outcome, the rest (the reason) is for people. Returns a summary, or every difference found:
    /// a pair that disagrees or has no row, a row left over, a row that occurs twice, a row of
    /// another width than its header, a number of rows that is not the stated one.
    ///
    /// # Errors
    /// The differences, one per line.
    pub fn check(&self, product: &[Pair]) -> Result<String, String> {
        let mut wrong = String::new();
        let mut complain = |what: String| {
            let _ = writeln!(wrong, "table {}: {what}", self.name);
        };
        let mut rows: Vec<Vec<String>> = Vec::new();
        for heading in self.headings {
            match table_under(self.markdown, heading) {
                Some(table) => rows.extend(even_rows(table, &mut complain)),
                None => complain(format!("no table under the heading {heading:?}")),
            }
        }
        let stated = rows.len();
        if stated != self.rows {
            complain(format!("{stated} rows of the document, stated are {}", self.rows));
        }
        if let Some(table) = table_under(self.markdown, SILENT) {
            rows.extend(even_rows(table, &mut complain));
        }

        let mut pairs: BTreeMap<&[String], &[String]> = BTreeMap::new();
        for pair in product {
            if pairs.insert(&pair.of, &pair.outcome).is_some() {
                complain(format!("the product holds {:?} twice", pair.of));
            }
        }
        let mut seen: BTreeSet<&[String]> = BTreeSet::new();
        for row in &rows {
            let found = product.first().and_then(|pair| row.split_at_checked(pair.of.len()));
            let Some((of, rest)) = found else {
                complain(format!("the row {row:?} is too short"));
                continue;
            };
            let Some(outcome) = pairs.get(of) else {
                complain(format!("the row {of:?} is left over"));
                continue;
            };
            if !rest.starts_with(outcome) {
                complain(format!("{of:?}: the code says {outcome:?}, the page {rest:?}"));
            }
            if !seen.insert(of) {
                complain(format!("the row {of:?} occurs twice"));
            }
        }
        for of in pairs.keys().filter(|of| !seen.contains(*of)) {
            complain(format!("the pair {of:?} has no row"));
        }
        if wrong.is_empty() {
            let pairs = product.len();
            Ok(format!("table {}: {stated} rows of the document, {pairs} pairs checked", self.name))
        } else {
            Err(wrong)
        }
    }
}

/// The rows of a table, after a complaint about each that is not as wide as its header.
fn even_rows(table: Table, complain: &mut impl FnMut(String)) -> Vec<Vec<String>> {
    for row in table.rows.iter().filter(|row| row.len() != table.header.len()) {
        complain(format!("the row {row:?} is not as wide as its header"));
    }
    table.rows
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# Title

| a | b | why |
|---|:-:|--:|
| 1 | 2 | one \\| two |
| 3 | 4 | |

```
| no | table |
|---|---|
| x | y |
```

Some words. | Not a table |

## Silent in the document

| a | b | why |
|---|---|---|
| 5 | 6 | left out |
";

    /// The outcome of checking `markdown` against the pairs 1→2, 3→4, 5→6.
    fn check(markdown: &str, rows: usize) -> Result<String, String> {
        let page = Page { name: "sample", markdown, headings: &["Title"], rows };
        page.check(&[Pair::new(&[&1], &[&2]), Pair::new(&[&3], &[&4]), Pair::new(&[&5], &[&6])])
    }

    #[test]
    fn tables_are_found_under_their_headings_and_not_in_fences() {
        let all = tables(PAGE);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].heading, "Title");
        assert_eq!(all[0].header, ["a", "b", "why"]);
        assert_eq!(all[0].rows, [["1", "2", "one | two"], ["3", "4", ""]]);
        assert_eq!(table_under(PAGE, SILENT), nth_table(PAGE, 1));
        assert_eq!(nth_table(PAGE, 2), None);
        assert_eq!(table_under(PAGE, "Elsewhere"), None);
    }

    #[test]
    fn a_line_of_pipes_without_a_rule_below_is_no_table() {
        assert_eq!(tables("| a | b |\n| 1 | 2 |\n"), []);
        assert_eq!(tables("| a |\n|---|\n")[0].rows, Vec::<Vec<String>>::new());
    }

    #[test]
    fn a_page_that_agrees_is_summed_up() {
        let summary = check(PAGE, 2).unwrap();
        assert_eq!(summary, "table sample: 2 rows of the document, 3 pairs checked");
    }

    #[test]
    fn every_kind_of_difference_is_found() {
        let found = |markdown: &str, rows: usize, what: &str| {
            let differences = check(markdown, rows).unwrap_err();
            assert!(differences.contains(what), "{what:?} is not in {differences:?}");
        };
        found(PAGE, 3, "2 rows of the document, stated are 3");
        found(&PAGE.replace("| 3 | 4 | |", "| 3 | 5 | |"), 2, "the code says [\"4\"]");
        found(&PAGE.replace("| 3 | 4 | |\n", ""), 1, "the pair [\"3\"] has no row");
        found(&PAGE.replace("| 3 | 4 | |", "| 7 | 4 | |"), 2, "the row [\"7\"] is left over");
        found(&PAGE.replace("| 3 | 4 | |", "| 1 | 2 | |"), 2, "the row [\"1\"] occurs twice");
        found(&PAGE.replace("| 5 | 6 |", "| 3 | 4 |"), 2, "the row [\"3\"] occurs twice");
        found(&PAGE.replace("| 3 | 4 | |", "| 3 | 4 |"), 2, "not as wide as its header");
        found(&PAGE.replace("# Title", "# Other"), 2, "no table under the heading \"Title\"");
    }
}
