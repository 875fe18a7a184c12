//! Golden bytes: the encoded form of every message and stored record, in text files beside the
//! tests. Postcard has no field names, so a field that moves, or an enum variant that changes its
//! place, is read as something else by another release, and no compiler says so. These files do.
//!
//! A file has one line for each case: a name, a space, and the value. Binary values are hexadecimal
//! digits, JSON stands as it is. `make golden` writes the files again from what the code encodes
//! now. That is right for a new case. A line that changes is right only if the releases before can
//! read the new form, or never get to see it.
//!
//! For tests only: no product code depends on this crate.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// One golden file, and the cases of one test.
#[derive(Debug)]
pub struct Golden {
    path: PathBuf,
    lines: Vec<String>,
    names: BTreeSet<String>,
}

impl Golden {
    /// The file `golden/NAME.txt` of the crate in `manifest_dir`: `env!("CARGO_MANIFEST_DIR")`.
    pub fn open(manifest_dir: &str, name: &str) -> Self {
        let path = [manifest_dir, "golden", &format!("{name}.txt")].iter().collect();
        Golden { path, lines: Vec::new(), names: BTreeSet::new() }
    }

    /// A case in postcard. It must also be read back as `value`, with no byte left over.
    #[track_caller]
    pub fn postcard<T>(&mut self, name: &str, value: &T)
    where
        T: Serialize + DeserializeOwned + PartialEq + Debug,
    {
        let bytes = postcard::to_stdvec(value).expect("the value has a binary form");
        let (read, rest) = postcard::take_from_bytes::<T>(&bytes).expect("it can be read back");
        assert_eq!((&read, rest.len()), (value, 0), "{name}: what is written is read otherwise");
        self.bytes(name, &bytes);
    }

    /// Several cases in postcard, of [`variants!`].
    #[track_caller]
    pub fn postcards<T, const N: usize>(&mut self, cases: [(&str, T); N])
    where
        T: Serialize + DeserializeOwned + PartialEq + Debug,
    {
        cases.iter().for_each(|(name, value)| self.postcard(name, value));
    }

    /// A case in JSON. It must also be read back as `value`.
    #[track_caller]
    pub fn json<T>(&mut self, name: &str, value: &T)
    where
        T: Serialize + DeserializeOwned + PartialEq + Debug,
    {
        let text = serde_json::to_string(value).expect("the value has a JSON form");
        let read: T = serde_json::from_str(&text).expect("it can be read back");
        assert_eq!(&read, value, "{name}: what is written is read otherwise");
        self.text(name, &text);
    }

    /// A case of bytes that the test has made, and read back, by itself.
    #[track_caller]
    pub fn bytes(&mut self, name: &str, bytes: &[u8]) {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.text(name, &digits);
    }

    /// A case of one line of text that the test has made, and read back, by itself.
    #[track_caller]
    pub fn text(&mut self, name: &str, text: &str) {
        assert!(!name.contains(char::is_whitespace), "{name:?}: a name is one word");
        assert!(!text.contains('\n'), "{name}: a value is one line");
        assert!(self.names.insert(name.to_owned()), "{name}: there are two cases of this name");
        self.lines.push(format!("{name} {text}").trim_end().to_owned());
    }

    /// Compares all cases with the file. With `VOLVOX_WRITE` set, writes the file.
    #[track_caller]
    pub fn close(self) {
        if std::env::var_os("VOLVOX_WRITE").is_some() {
            let folder = self.path.parent();
            std::fs::create_dir_all(folder.expect("a file in a folder"))
                .and_then(|()| std::fs::write(&self.path, self.lines.join("\n") + "\n"))
                .unwrap_or_else(|error| panic!("write {}: {error}", self.path.display()));
            return;
        }
        let found = std::fs::read_to_string(&self.path).unwrap_or_default();
        if let Err(difference) = self.compare(&found) {
            panic!(
                "{}: other releases read this otherwise, see golden/src/lib.rs\n{difference}",
                self.path.display()
            );
        }
    }

    /// Lines that are only in `found` (`-`), and those that are not in it (`+`).
    fn compare(&self, found: &str) -> Result<(), String> {
        let found: BTreeSet<&str> = found.lines().collect();
        let lines: BTreeSet<&str> = self.lines.iter().map(String::as_str).collect();
        let gone = found.difference(&lines).map(|line| format!("- {line}\n"));
        let new = lines.difference(&found).map(|line| format!("+ {line}\n"));
        let difference: String = gone.chain(new).collect();
        if difference.is_empty() { Ok(()) } else { Err(difference) }
    }
}

/// One case for each variant of an enum, as an array of names and values. A variant that is not in
/// the list does not compile.
///
/// ```
/// use volvox_golden::variants;
///
/// enum Shape {
///     Point,
///     Line(u8, u8),
///     Square { edge: u8 },
/// }
///
/// let shapes = variants!(Shape { Point, Line(1, 2), Square { edge: 3 } });
/// assert_eq!(shapes.map(|(name, _)| name), ["Shape.Point", "Shape.Line", "Shape.Square"]);
/// ```
#[macro_export]
macro_rules! variants {
    ($enum:ident {
        $($variant:ident $(($($tuple:tt)*))? $({$($fields:tt)*})?),+ $(,)?
    }) => {{
        // No arm for the rest: a new variant is an error here until it has a case.
        let _ = |value: &$enum| match value {
            $($enum::$variant { .. } => (),)+
        };
        [$((
            concat!(stringify!($enum), ".", stringify!($variant)),
            $enum::$variant $(($($tuple)*))? $({$($fields)*})?,
        )),+]
    }};
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Shape {
        Point,
        Line(u8, u8),
        Square { edge: u8 },
    }

    const SHAPES: &str =
        "Shape.Point 00\nShape.Line 010102\nShape.Square {\"Square\":{\"edge\":3}}\n";

    fn golden() -> Golden {
        Golden::open("", "")
    }

    fn shapes(line: &Shape) -> Golden {
        let mut golden = golden();
        golden.postcard("Shape.Point", &Shape::Point);
        golden.postcard("Shape.Line", line);
        golden.json("Shape.Square", &Shape::Square { edge: 3 });
        golden
    }

    #[test]
    fn only_what_changed_is_told() {
        assert_eq!(shapes(&Shape::Line(1, 2)).compare(SHAPES), Ok(()));
        let moved = "- Shape.Line 010102\n+ Shape.Line 010201\n";
        assert_eq!(shapes(&Shape::Line(2, 1)).compare(SHAPES), Err(moved.to_owned()));
    }

    #[test]
    fn a_case_that_is_gone_and_a_new_one_are_told() {
        let mut golden = shapes(&Shape::Line(1, 2));
        golden.lines.remove(0);
        assert_eq!(golden.compare(SHAPES), Err("- Shape.Point 00\n".to_owned()));
        golden.postcard("Shape.Dot", &Shape::Point);
        let both = "- Shape.Point 00\n+ Shape.Dot 00\n";
        assert_eq!(golden.compare(SHAPES), Err(both.to_owned()));
    }

    #[test]
    #[should_panic(expected = "two cases of this name")]
    fn a_name_stands_for_one_case() {
        shapes(&Shape::Point).text("Shape.Line", "");
    }
}
