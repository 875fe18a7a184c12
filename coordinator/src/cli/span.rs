//! Spans of time as people write them: `90s`, `15m`, `12h`, `30d`.

use std::time::Duration;

/// Reads a span.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let form = || format!("{text:?}: a number with s, m, h or d is wanted, such as 30d");
    let unit = text.chars().last().ok_or_else(form)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(form()),
    };
    let number: u64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| form())?;
    let span = number.checked_mul(seconds).filter(|span| (1..=315_360_000).contains(span));
    span.map(Duration::from_secs)
        .ok_or_else(|| format!("{text:?}: a second to ten years is wanted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_bad_ones_refused() {
        assert_eq!(parse("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("30d"), Ok(Duration::from_secs(30 * 86_400)));
        for bad in ["", "d", "3", "3w", "-1d", "1.5h", "0s", "99999999999999999999d", "9999d", "3é"]
        {
            assert!(parse(bad).is_err(), "{bad:?} was let through");
        }
    }
}
