//! Tables for people: columns as wide as what is in them, the last one as long as it wants.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use super::clean;

/// How a cell looks on a terminal that knows colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Style {
    #[default]
    Plain,
    Good,
    Waiting,
    Bad,
    Dim,
    Head,
}

impl Style {
    /// The text in its colour.
    pub(crate) fn paint(self, text: &str, color: bool) -> String {
        let code = match self {
            Style::Plain => return text.to_owned(),
            Style::Good => "32",
            Style::Waiting => "33",
            Style::Bad => "31",
            Style::Dim => "2",
            Style::Head => "1",
        };
        if color && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// The colour of a state.
    pub(crate) fn of_state(state: &str) -> Self {
        match state {
            "RUNNING" | "Running" | "ready" => Style::Good,
            "UNCLAIMED" | "CLAIMED" | "Pending" | "Resolving" | "evacuating" => Style::Waiting,
            "CRASHED" | "unhealthy" | "failed" => Style::Bad,
            _ => Style::Plain,
        }
    }
}

/// One cell of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn new(style: Style, text: impl Into<String>) -> Self {
        Cell { text: text.into(), style }
    }

    /// A state in its colour.
    pub(crate) fn state(state: &str) -> Self {
        Cell::new(Style::of_state(state), state)
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell::new(Style::Plain, text)
    }
}

/// Rows under names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table {
    names: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(names: &[&'static str]) -> Self {
        Table { names: names.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Leaves out a column in which no row has anything.
    pub(crate) fn without_empty(mut self, name: &str) -> Self {
        let Some(at) = self.names.iter().position(|it| *it == name) else { return self };
        if self.rows.iter().all(|row| row.get(at).is_none_or(|cell| cell.text.is_empty())) {
            self.names.remove(at);
            for row in self.rows.iter_mut().filter(|row| row.len() > at) {
                row.remove(at);
            }
        }
        self
    }

    /// The text; no line has more than `width` letters.
    pub(crate) fn render(&self, color: bool, width: usize) -> String {
        let head: Vec<Cell> = self.names.iter().map(|name| Cell::new(Style::Head, *name)).collect();
        let mut widths = vec![0; self.names.len()];
        let rows = || std::iter::once(&head).chain(&self.rows);
        for row in rows() {
            for (most, cell) in widths.iter_mut().zip(row) {
                *most = (*most).max(cell.text.chars().count());
            }
        }
        let mut text = String::new();
        for row in rows() {
            let mut left = width;
            for (nth, (cell, most)) in row.iter().zip(&widths).enumerate() {
                let is_last = nth + 1 == row.len();
                let shown: String = clean(&cell.text).chars().take(left).collect();
                let letters = shown.chars().count();
                left -= letters;
                text += &cell.style.paint(&shown, color);
                if !is_last {
                    let gap = (most - letters.min(*most) + 2).min(left);
                    text.extend(std::iter::repeat_n(' ', gap));
                    left -= gap;
                }
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["APP", "STATE", "NOTE"]);
        table.row(["web".into(), Cell::state("RUNNING"), "".into()]);
        table.row(["a-longer-name".into(), Cell::state("CRASHED"), "exit\x1b[2J 1".into()]);
        table
    }

    #[test]
    fn columns_stand_below_each_other_and_nothing_trails() {
        let expected = "APP            STATE    NOTE\n\
                        web            RUNNING\n\
                        a-longer-name  CRASHED  exit [2J 1\n";
        assert_eq!(table().render(false, usize::MAX), expected);
    }

    #[test]
    fn colours_do_not_move_columns() {
        let text = table().render(true, usize::MAX);
        assert!(text.contains("web            \x1b[32mRUNNING\x1b[0m\n"), "{text:?}");
        assert!(text.contains("\x1b[31mCRASHED\x1b[0m  exit [2J 1\n"), "{text:?}");
    }

    #[test]
    fn a_narrow_screen_cuts_lines() {
        let text = table().render(false, 17);
        assert_eq!(text, "APP            ST\nweb            RU\na-longer-name  CR\n");
        assert_eq!(table().render(false, 0), "\n\n\n");
    }

    #[test]
    fn an_empty_column_may_be_left_out() {
        let mut table = Table::new(&["A", "NOTE", "B"]);
        table.row(["1".into(), "".into(), "2".into()]);
        assert_eq!(table.clone().without_empty("NOTE").render(false, 99), "A  B\n1  2\n");
        table.row(["1".into(), "x".into(), "2".into()]);
        assert_eq!(
            table.without_empty("NOTE").render(false, 99),
            "A  NOTE  B\n1        2\n1  x     2\n"
        );
    }
}
