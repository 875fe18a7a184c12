//! What a misspelt word was probably meant to be.

/// The known word that is nearest, if one is near enough.
pub(crate) fn nearest<'a>(
    given: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let ranked = known.into_iter().map(|name| (steps(given, name), name)).min();
    ranked.filter(|(steps, _)| *steps <= given.chars().count().div_ceil(2)).map(|(_, name)| name)
}

/// How many letters must be changed, added or removed to make one of the other. Case and the
/// difference between `-` and `_` are one step together at most.
fn steps(given: &str, name: &str) -> usize {
    let plain = given.to_lowercase().replace('-', "_");
    let ours: Vec<char> = plain.chars().collect();
    let mut row: Vec<usize> = (0..=ours.len()).collect();
    for (above, letter) in name.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (at, own) in ours.iter().enumerate() {
            let changed = diagonal + usize::from(*own != letter);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[ours.len()] + usize::from(plain != given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_and_far_ones_are_not() {
        let known = ["instances", "rootfs", "memory", "memory_mb"];
        for (given, expected) in [
            ("instance", Some("instances")),
            ("root_fs", Some("rootfs")),
            ("Memory-MB", Some("memory_mb")),
            ("memroy", Some("memory")),
            ("zzz", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, known), expected, "{given}");
        }
    }
}
