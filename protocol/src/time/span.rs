//! Spans of time as people write them: `500ms`, `90s`, `15m`, `12h`, `30d`.

use std::time::Duration;

/// The longest: ten years.
const LONGEST_MS: u64 = 315_360_000_000;

/// Why a text is not a span.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// It is no number with a unit.
    #[error("{0:?}: a number with ms, s, m, h or d is wanted, such as 90s or 30d")]
    Form(String),
    /// It is longer than ten years.
    #[error("{0:?}: ten years are the most")]
    TooLong(String),
}

/// Reads a span. `0` needs no unit.
pub fn parse(text: &str) -> Result<Duration, SpanError> {
    let form = || SpanError::Form(text.to_owned());
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let scale: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(form()),
    };
    let number: u64 = number.parse().map_err(|_| form())?;
    let span = number.checked_mul(scale).filter(|span| *span <= LONGEST_MS);
    span.map(Duration::from_millis).ok_or_else(|| SpanError::TooLong(text.to_owned()))
}

/// A span in the two largest units that it has: `4s`, `3m20s`, `2h`, `5d3h`.
pub fn show(span: Duration) -> String {
    let seconds = span.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |large: u64, unit: char, small: u64, lesser: char| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{lesser}") }
    };
    if days > 0 {
        two(days, 'd', hours % 24, 'h')
    } else if hours > 0 {
        two(hours, 'h', minutes % 60, 'm')
    } else if minutes > 0 {
        two(minutes, 'm', seconds % 60, 's')
    } else {
        format!("{seconds}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_bad_ones_refused() {
        assert_eq!(parse("0"), Ok(Duration::ZERO));
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("30d"), Ok(Duration::from_secs(30 * 86_400)));
        for bad in ["", "d", "3", "3w", "-1d", "1.5h", "99999999999999999999d", "9999d", "3é", "s3"]
        {
            assert!(parse(bad).is_err(), "{bad:?} was let through");
        }
    }

    #[test]
    fn spans_are_shown_short() {
        for (seconds, expected) in
            [(0, "0s"), (59, "59s"), (60, "1m"), (200, "3m20s"), (7_200, "2h"), (442_800, "5d3h")]
        {
            assert_eq!(show(Duration::from_secs(seconds)), expected);
        }
    }
}
