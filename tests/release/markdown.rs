//! Our pages as the tests see them: fenced blocks, and code in the text. A comment that begins with
//! `<!-- sh` is a block too: what a page needs before or after and a reader does not.

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
    /// The first word behind the fence: `sh`, `console`, `toml`.
    pub(crate) kind: String,
    /// The rest of that line: where a block of commands is run, if not in the cluster.
    pub(crate) mark: String,
    pub(crate) text: String,
}

impl Block {
    fn begun(line: usize, words: &str) -> Block {
        let (kind, mark) = words.trim().split_once(' ').unwrap_or((words.trim(), ""));
        let (kind, mark) = (kind.to_owned(), mark.trim().to_owned());
        Block { line, kind, mark, text: String::new() }
    }

    /// Whether there are commands in it.
    pub(crate) fn is_shell(&self) -> bool {
        self.kind == "sh" || self.kind == "console"
    }

    /// What is behind a word of the mark: `vm=NAME`.
    pub(crate) fn marked(&self, word: &str) -> Option<&str> {
        self.mark.strip_prefix(word)?.strip_prefix('=')
    }
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
        Page::parse(path.strip_prefix(root).unwrap().to_str().unwrap(), &text)
    }

    /// A page with this text.
    pub(crate) fn parse(path: &str, text: &str) -> Page {
        let (mut blocks, mut code) = (Vec::<Block>::new(), Vec::new());
        let mut open: Option<Block> = None;
        for (line, content) in (1..).zip(text.lines()) {
            let (fence, hidden) = ("```", "<!-- sh");
            let begins = content.trim_start().strip_prefix(fence);
            let begins = begins.or((content == hidden).then_some("sh"));
            let ends = content.trim_start().starts_with(fence) || content == "-->";
            match open.as_mut() {
                None => match begins {
                    Some(words) => open = Some(Block::begun(line + 1, words)),
                    None => {
                        let inside = content.split('`').skip(1).step_by(2);
                        code.extend(inside.map(|it| (line, it.to_owned())));
                    }
                },
                Some(_) if ends => blocks.extend(open.take()),
                Some(block) => block.text += &format!("{content}\n"),
            }
        }
        assert!(open.is_none(), "{path}: a fence is not closed");
        Page { path: path.to_owned(), blocks, code }
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
