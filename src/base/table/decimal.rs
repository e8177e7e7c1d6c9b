//! Parser of the profilers' decimal numbers, as whole millionths.
//!
//! Sums of whole numbers do not depend on their order, so that parallel reading gives the same bytes.

/// Parses a decimal number in millionths; further digits are dropped. Returns `None` for other text, for more than twelve
/// digits before the point, and for negative numbers, which no counter has.
pub(crate) fn parse_micro(cell: &[u8]) -> Option<i64> {
    const SCALE: [i64; 7] = [1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
    let cell = cell.trim_ascii();
    let digits = cell.strip_prefix(b"-").unwrap_or(cell);
    let point = digits.iter().position(|byte| *byte == b'.').unwrap_or(digits.len());
    let (whole, fraction) = (&digits[..point], digits.get(point + 1..).unwrap_or_default());
    if whole.len() > 12 || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let (kept, dropped) = fraction.split_at(fraction.len().min(6));
    let value = parse_digits(whole)? * SCALE[0] + parse_digits(kept)? * SCALE[kept.len()];
    let is_number = dropped.iter().all(u8::is_ascii_digit) && (value == 0 || digits.len() == cell.len());
    is_number.then_some(value)
}

fn parse_digits(digits: &[u8]) -> Option<i64> {
    digits
        .iter()
        .try_fold(0, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))
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
