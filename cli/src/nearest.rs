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
    strsim::levenshtein(&plain, name) + usize::from(plain != given)
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
