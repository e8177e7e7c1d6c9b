//! Parser of the profilers' decimal numbers, as whole millionths.
//!
//! Sums of whole numbers do not depend on their order, so that parallel reading gives the same bytes.

/// Returns a word with the byte in each place.
const fn each(byte: u8) -> u64 {
    u64::MAX / 0xff * byte as u64
}

/// Parses cells of up to eight digits and a point, the most frequent ones, in parallel arithmetic: the last bytes of
/// `word` are the cell. Returns `None` for any other cell, which [`parse_micro`] must parse.
#[inline]
pub(crate) fn parse_micro_fast(word: u64, length: usize) -> Option<i64> {
    /// Scale by the index of the point. A point before all digits is followed by seven, one too many.
    const SCALE: [i64; 8] = [0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];
    if !(1..=8).contains(&length) {
        return None;
    }
    // Digits become their values, bytes before the cell become zeros.
    let digits = (word ^ each(b'0')) & (u64::MAX << (64 - 8 * length));
    let others = (((digits & each(0x7f)) + each(0x7f - 9)) | digits) & each(0x80);
    if others == 0 {
        return Some(eight_digits(digits) * 1_000_000);
    }
    // The lowest byte that is not a digit; there must be no other one, and at least one digit.
    let at = others.trailing_zeros() & !7;
    if others & (others - 1) != 0 || (digits >> at) & 0xff != u64::from(b'.' ^ b'0') || at == 0 || length == 1
    {
        return None;
    }
    // The digits before the point are shifted next to those after it.
    let in_front = (1 << at) - 1;
    let closed = ((digits & in_front) << 8) | (digits & !in_front & !(0xff << at));
    Some(eight_digits(closed) * SCALE[at as usize / 8])
}

/// Combines eight digit values, the lowest byte first: pairs, groups of four, and one number.
#[inline]
const fn eight_digits(digits: u64) -> i64 {
    let pairs = (digits.wrapping_mul((10 << 8) + 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul((100 << 16) + 1) >> 16) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul((10_000 << 32) + 1) >> 32).cast_signed()
}

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

    fn millionths(cell: &[u8]) -> Option<i64> {
        let mut word = [0; 8];
        if cell.len() <= word.len() {
            word[8 - cell.len()..].copy_from_slice(cell);
        }
        parse_micro_fast(u64::from_le_bytes(word), cell.len()).or_else(|| parse_micro(cell))
    }

    #[test]
    fn counters_are_decimal_numbers() {
        let read = |text: &str| millionths(text.as_bytes());
        assert_eq!(read("124333600"), Some(124_333_600_000_000));
        assert_eq!(read(" 0.052"), Some(52_000));
        assert_eq!(read("1.5\t"), Some(1_500_000));
        assert_eq!((read("-0.0"), read("-0.00000000000000")), (Some(0), Some(0)));
        assert_eq!(read("1.23456789"), Some(1_234_567));
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
            let read = millionths(text.as_bytes()).expect("a number") as f64 / 1e6;
            prop_assert!((read - value).abs() < 1e-6);
        }

        #[test]
        fn fast_decimal_parser_agrees_with_slow_one(cell in "[0-9]{0,8}[.]?[0-9]{0,8}") {
            prop_assert_eq!(millionths(cell.as_bytes()), parse_micro(cell.as_bytes()));
        }

        #[test]
        fn fast_decimal_parser_agrees_on_any_text(cell in "[0-9./:\\-N\"\\x00-\\x7f]{0,9}") {
            prop_assert_eq!(millionths(cell.as_bytes()), parse_micro(cell.as_bytes()));
        }
    }

    #[test]
    fn every_short_number_is_read_exactly() {
        for digits in ["7", "42", "905", "0052", "99999", "123456", "7654321", "98765432"] {
            for point in 0..=digits.len() {
                let (whole, fraction) = digits.split_at(point);
                let text = format!("{whole}.{fraction}");
                let expected = format!("{whole}{fraction:0<6.6}").parse().ok();
                assert_eq!(millionths(text.as_bytes()), expected, "{text}");
                assert_eq!(parse_micro(text.as_bytes()), expected, "{text}");
            }
        }
    }
}
