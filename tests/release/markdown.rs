//! Our pages as the tests see them: fenced blocks, and code in the text.

use std::path::{Path, PathBuf};

/// The tree.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A fenced block.
#[derive(Debug)]
pub(crate) struct Block {
    /// Its first line, counted from 1.
    pub(crate) line: usize,
    /// What stands behind the fence: `sh`, `console`, `toml`.
    pub(crate) kind: String,
    pub(crate) text: String,
}

/// One page.
#[derive(Debug)]
pub(crate) struct Page {
    /// From the root of the tree.
    pub(crate) path: String,
    pub(crate) blocks: Vec<Block>,
    /// Code in the text, with its line.
    pub(crate) code: Vec<(usize, String)>,
}

impl Page {
    fn read(root: &Path, path: &Path) -> Page {
        let text = std::fs::read_to_string(path).unwrap();
        let (mut blocks, mut code) = (Vec::<Block>::new(), Vec::new());
        let mut open: Option<Block> = None;
        for (line, content) in (1..).zip(text.lines()) {
            match (content.trim_start().strip_prefix("```"), open.as_mut()) {
                (Some(kind), None) => {
                    let kind = kind.trim().to_owned();
                    open = Some(Block { line: line + 1, kind, text: String::new() });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (None, Some(block)) => block.text += &format!("{content}\n"),
                (None, None) => {
                    let inside = content.split('`').skip(1).step_by(2);
                    code.extend(inside.map(|it| (line, it.to_owned())));
                }
            }
        }
        assert!(open.is_none(), "{}: a fence is not closed", path.display());
        let path = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        Page { path, blocks, code }
    }
}

/// Every page for users and operators: README and all below docs.
pub(crate) fn pages() -> Vec<Page> {
    let root = root();
    let mut folders = vec![root.join("docs")];
    let mut pages = vec![Page::read(&root, &root.join("README.md"))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                pages.push(Page::read(&root, &path));
            }
        }
    }
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    pages
}
