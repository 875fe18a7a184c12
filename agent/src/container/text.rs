//! Durations and sizes as Diego prints them. Consumers compare these texts.

use std::time::Duration;

const NANOS: u128 = 1_000_000_000;

/// A duration as Go prints it: `2s`, `1m0s`, `1.5s`, `500ms`, `1h0m0.25s`.
pub(crate) fn duration(span: Duration) -> String {
    let nanos = span.as_nanos();
    for (limit, unit, name) in
        [(1_000, 1, "ns"), (1_000_000, 1_000, "µs"), (NANOS, 1_000_000, "ms")]
    {
        if nanos == 0 {
            return "0s".to_owned();
        }
        if nanos < limit {
            return decimal(nanos, unit) + name;
        }
    }
    let (minutes, rest) = (nanos / (60 * NANOS), nanos % (60 * NANOS));
    let seconds = decimal(rest, NANOS) + "s";
    match (minutes / 60, minutes % 60) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

/// `amount / unit` with as many decimals as it needs; `unit` is a power of ten.
fn decimal(amount: u128, unit: u128) -> String {
    let (whole, rest) = (amount / unit, amount % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    format!("{whole}.{}", format!("{rest:0width$}").trim_end_matches('0'))
}

/// A duration, rounded to the millisecond, halves up.
pub(crate) fn rounded(span: Duration) -> String {
    let millis = (span.as_nanos() + 500_000) / 1_000_000;
    duration(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)))
}

/// A size as Diego's byte formatter prints it: one decimal at most, `1.5K`, `10M`, `17B`.
pub(crate) fn size(bytes: u64) -> String {
    for (power, name) in [(60, "E"), (50, "P"), (40, "T"), (30, "G"), (20, "M"), (10, "K")] {
        let unit = 1_u128 << power;
        if u128::from(bytes) >= unit {
            return format!("{}{name}", decimal(tenths(bytes.into(), unit), 10));
        }
    }
    format!("{bytes}B")
}

/// `10 · amount / unit`, rounded to the nearest, halves to the even one.
fn tenths(amount: u128, unit: u128) -> u128 {
    let (whole, rest) = (amount * 10 / unit, amount * 10 % unit);
    match (rest * 2).cmp(&unit) {
        std::cmp::Ordering::Less => whole,
        std::cmp::Ordering::Equal => whole + whole % 2,
        std::cmp::Ordering::Greater => whole + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_look_like_gos() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (500_000_000, "500ms"),
            (2_000_000_000, "2s"),
            (1_500_000_000, "1.5s"),
            (60_000_000_000, "1m0s"),
            (61_005_000_000, "1m1.005s"),
            (3_600_000_000_000, "1h0m0s"),
            (5_025_600_000_001, "1h23m45.600000001s"),
            (360_000_000_000_000, "100h0m0s"),
        ] {
            assert_eq!(duration(Duration::from_nanos(nanos)), text);
        }
        assert_eq!(rounded(Duration::from_nanos(60_000_499_999)), "1m0s");
        assert_eq!(rounded(Duration::from_nanos(60_000_500_000)), "1m0.001s");
        assert_eq!(rounded(Duration::ZERO), "0s");
    }

    #[test]
    fn sizes_have_one_decimal_at_most() {
        for (bytes, text) in [
            (0, "0B"),
            (1, "1B"),
            (1_023, "1023B"),
            (1_024, "1K"),
            (1_536, "1.5K"),
            (1_280, "1.2K"),
            (1_792, "1.8K"),
            (1_048_575, "1024K"),
            (10 << 20, "10M"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
