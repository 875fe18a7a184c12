//! The state tables: what is decided, apart from who carries it out.
//!
//! One table, one file, one `match`; the rows stand in the order of `docs/tables/<name>.md`. The
//! tests read those pages and walk the full product of the views, so page and code cannot part.
//! A table judges a snapshot: whoever acts on the answer reads again before anything is destroyed.
//!
//! | table | what it decides | rows | caller |
//! |---|---|---|---|
//! | [`rep_lrp`] | container × LRP record → what the rep does | 37 | rep |
//! | [`rep_task`] | container × task record → what the rep does | 27 | rep |
//! | [`bbs_evacuate`] | ordinary × evacuating record → what a running container gets | 25 | board |
//! | [`bbs_transition`] | LRP record × request → allowed or not | 42 | board |
//! | [`bbs_task`] | task record × request → allowed or not | 48 | board |
//! | [`crash`] | crash count and age → restart now, later, never | 14 | board |
//!
//! What a container may turn into is a table as well; it stands with its states, in
//! [`container`](crate::container). α of the documents is [`Whose::Ours`], ω and β are
//! [`Whose::Theirs`].

pub mod bbs_evacuate;
pub mod bbs_task;
pub mod bbs_transition;
pub mod crash;
#[doc(hidden)]
pub mod doc;
pub mod rep_lrp;
pub mod rep_task;

/// How surprised a reader of the log should be to meet a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Likelihood {
    /// The everyday way.
    Expected,
    /// A lost message, a slow cell or an operator explains it.
    Conceivable,
    /// Nothing we know of leads here. The caller logs it at warn, counts it and goes on.
    Inconceivable,
}

/// To whom a record belongs, seen from the caller: the pair of instance guid and cell id is
/// compared, for tasks the cell id alone. Half a match is no match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Whose {
    /// The caller's own: α.
    Ours,
    /// Anybody else's, another instance on the caller's cell included: ω and β.
    Theirs,
}

/// Compares a table with its page and says how much was compared. Panics with every difference.
#[cfg(test)]
pub(crate) fn agree(page: &doc::Page<'_>, product: &[doc::Pair]) {
    match page.check(product) {
        Ok(summary) => println!("{summary}"),
        Err(differences) => panic!("{differences}"),
    }
}
