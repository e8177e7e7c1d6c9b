//! Parser of the profilers' decimal numbers, as whole millionths.
//!
//! Sums of whole numbers do not depend on their order, so that parallel reading gives the same bytes.

/// Parses a decimal number in millionths; further digits are dropped. Returns `None` for other text and for negative
/// numbers, which no counter has.
pub(crate) fn parse_micro(cell: &[u8]) -> Option<i64> {
    const SCALE: [i64; 7] = [1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
    let cell = cell.trim_ascii();
    if matches!(cell, b"N/A" | b"") {
        return None;
    }
    let (negative, digits) = match cell {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    // Twelve digits cannot overflow, and nearly all cells have fewer.
    if digits.len() > 12 {
        return overflowing(digits).filter(|value| !negative || *value == 0);
    }
    let (mut value, mut decimals, mut point, mut seen) = (0_i64, 0_usize, 0_usize, false);
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            seen = true;
            if decimals < 6 {
                value = value * 10 + i64::from(digit);
                decimals += point;
            }
        } else if byte == b'.' && point == 0 {
            point = 1;
        } else {
            return None;
        }
    }
    let value = value * SCALE[decimals];
    (seen && (!negative || value == 0)).then_some(value)
}

/// Parses digits and a point with checks of overflow.
#[cold]
fn overflowing(digits: &[u8]) -> Option<i64> {
    let (whole, fraction) = match digits.iter().position(|byte| *byte == b'.') {
        Some(point) => (&digits[..point], &digits[point + 1..]),
        None => (digits, &[][..]),
    };
    let kept = &fraction[..fraction.len().min(6)];
    if !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return None;
    }
    let zeros = std::iter::repeat_n(&b'0', 6 - kept.len());
    whole
        .iter()
        .chain(kept)
        .chain(zeros)
        .try_fold(0_i64, |value, byte| value.checked_mul(10)?.checked_add(i64::from(byte - b'0')))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn counters_are_decimal_numbers() {
        let read = |text: &str| parse_micro(text.as_bytes());
        assert_eq!(read("124333600"), Some(124_333_600_000_000));
        assert_eq!(read(" 0.052"), Some(52_000));
        assert_eq!(read("1.5\t"), Some(1_500_000));
        assert_eq!((read("-0.0"), read("-0.00000000000000")), (Some(0), Some(0)));
        assert_eq!(read("1.23456789"), Some(1_234_567));
        assert_eq!((read(".5"), read("42.")), (Some(500_000), Some(42_000_000)));
        for absent in
            ["N/A", "", "-", "-1.5", "-10000000000000.5", ".", "1e3", "nan", "1.2.3", "99999999999999999999"]
        {
            assert_eq!(read(absent), None, "{absent}");
        }
    }

    proptest! {
        #[test]
        fn counters_agree_with_the_standard_parser(whole in 0_u32.., fraction in 0_u32..1_000_000) {
            let text = format!("{whole}.{fraction:06}");
            let value: f64 = text.parse().expect("a number");
            let read = parse_micro(text.as_bytes()).expect("a number") as f64 / 1e6;
            prop_assert!((read - value).abs() < 1e-6);
        }
    }
}
