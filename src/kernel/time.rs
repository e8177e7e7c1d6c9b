//! Times in nanoseconds, and compact lists of durations.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Nanoseconds: a duration, or an instant since the epoch. Text is parsed digit by digit: `f64` loses a quarter of a
/// microsecond of the 16 digits and three decimals that the profiler prints.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub i64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NanosError {
    #[error("is empty or N/A")]
    Absent,
    #[error("is not a number of microseconds such as `48.680`")]
    NotANumber,
    #[error("is out of range")]
    OutOfRange,
}

impl Nanos {
    /// Greatest duration of a kernel, one hour: far above the time after which the runtime ends it.
    pub(crate) const MAX_KERNEL: Self = Self(3_600_000_000_000);

    /// The one rule of what the duration of a kernel or a collective is, in profiles, traces, tables, ledgers and questions.
    pub(crate) fn is_kernel_duration(self) -> bool {
        (1..=Self::MAX_KERNEL.0).contains(&self.0)
    }

    /// Parses microseconds as the profiler writes them: blanks and one trailing tab are allowed, digits beyond the
    /// nanosecond are rounded half up. An error if the cell is absent, no number, or too large.
    pub(crate) fn parse_micros(cell: &[u8]) -> Result<Self, NanosError> {
        let text = cell.trim_ascii();
        if matches!(text, b"" | b"N/A" | b"NA" | b"-") {
            return Err(NanosError::Absent);
        }
        let (negative, digits) = match text {
            [b'-', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let (mut whole, mut decimals, mut seen_point) = (0_i64, 0_u32, false);
        for &byte in digits {
            match byte {
                b'0'..=b'9' => {
                    let digit = i64::from(byte - b'0');
                    let next = match (seen_point, decimals) {
                        (true, 3) => whole.checked_add(i64::from(digit >= 5)),
                        (true, 4) => Some(whole),
                        _ => whole.checked_mul(10).and_then(|value| value.checked_add(digit)),
                    };
                    whole = next.ok_or(NanosError::OutOfRange)?;
                    decimals = (decimals + u32::from(seen_point)).min(4);
                }
                b'.' if !seen_point => seen_point = true,
                _ => return Err(NanosError::NotANumber),
            }
        }
        if !digits.iter().any(u8::is_ascii_digit) {
            return Err(NanosError::NotANumber);
        }
        let scale = 10_i64.pow(3 - decimals.min(3));
        let value = whole.checked_mul(scale).ok_or(NanosError::OutOfRange)?;
        Ok(Self(if negative { -value } else { value }))
    }

    pub(crate) fn from_seconds(seconds: f64) -> Self {
        Self((seconds * 1e9).round() as i64)
    }

    pub(crate) fn micros(self) -> f64 {
        self.0 as f64 / 1e3
    }

    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

/// Returns true for microseconds that are the [duration](Nanos::is_kernel_duration) of a kernel. Means have fractions of nanoseconds.
pub(crate) fn is_kernel_micros(micros: f64) -> bool {
    (1e-3..=Nanos::MAX_KERNEL.micros()).contains(&micros)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is no duration of a kernel, expected 0.001 to 3600000000 us (an hour)")]
pub(crate) struct NoKernelDuration;

/// Parses the duration of a kernel in microseconds from the cell of a table; `None` without a measurement.
pub(crate) fn parse_kernel_micros(cell: &[u8]) -> Result<Option<f64>, NoKernelDuration> {
    match cell.trim_ascii() {
        b"" | b"N/A" | b"NA" | b"-" => Ok(None),
        cell => {
            let micros = std::str::from_utf8(cell).ok().and_then(|text| text.parse().ok());
            micros.filter(|micros| is_kernel_micros(*micros)).map(Some).ok_or(NoKernelDuration)
        }
    }
}

impl std::ops::AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl std::iter::Sum for Nanos {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        Self(times.fold(0, |sum, time| time.0.saturating_add(sum)))
    }
}

impl FromStr for Nanos {
    type Err = NanosError;

    fn from_str(text: &str) -> Result<Self, NanosError> {
        Self::parse_micros(text.as_bytes())
    }
}

/// Microseconds with three decimals, as the profiler prints them.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let magnitude = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:03}", magnitude / 1000, magnitude % 1000)
    }
}

/// Durations in nanoseconds, in launch order, as offsets from the shortest. A ledger of 100,000 cases has 5,700,000 durations,
/// which commands keep in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurationList {
    shortest: i64,
    offsets: DurationOffsets,
}

/// Offsets from the shortest duration. Equal lists have the same variant, so that derived equality holds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DurationOffsets {
    TwoBytes(Box<[u16]>),
    EightBytes(Box<[u64]>),
}

impl Default for DurationOffsets {
    fn default() -> Self {
        Self::TwoBytes(Box::default())
    }
}

impl DurationList {
    pub(crate) const fn len(&self) -> usize {
        match &self.offsets {
            DurationOffsets::TwoBytes(offsets) => offsets.len(),
            DurationOffsets::EightBytes(offsets) => offsets.len(),
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn to_vec(&self) -> Vec<i64> {
        match &self.offsets {
            DurationOffsets::TwoBytes(offsets) => {
                offsets.iter().map(|offset| self.shortest.wrapping_add(i64::from(*offset))).collect()
            }
            DurationOffsets::EightBytes(offsets) => {
                offsets.iter().map(|offset| self.shortest.wrapping_add_unsigned(*offset)).collect()
            }
        }
    }
}

impl From<&[i64]> for DurationList {
    fn from(durations: &[i64]) -> Self {
        let shortest = durations.iter().copied().min().unwrap_or_default();
        let offset = |duration: &i64| duration.abs_diff(shortest);
        let two_bytes: Option<Box<[u16]>> =
            durations.iter().map(|duration| u16::try_from(offset(duration)).ok()).collect();
        let offsets = match two_bytes {
            Some(offsets) => DurationOffsets::TwoBytes(offsets),
            None => DurationOffsets::EightBytes(durations.iter().map(offset).collect()),
        };
        Self { shortest, offsets }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sixteen_digit_timestamps_keep_their_nanoseconds() {
        let parsed = Nanos::parse_micros(b"1764246877073569.640\t").expect("a real start time");
        assert_eq!(parsed, Nanos(1_764_246_877_073_569_640));
    }

    #[test]
    fn invalid_times_are_classified() {
        for absent in ["", " ", "N/A", "NA", "-", "\t"] {
            assert_eq!(absent.parse::<Nanos>(), Err(NanosError::Absent), "{absent:?}");
        }
        for wrong in ["1e3", "1.2.3", ".", "0x10", "12 34", "inf", "NaN", "--1"] {
            assert_eq!(wrong.parse::<Nanos>(), Err(NanosError::NotANumber), "{wrong:?}");
        }
        assert_eq!("99999999999999999999".parse::<Nanos>(), Err(NanosError::OutOfRange));
    }

    #[test]
    fn decimals_beyond_the_nanosecond_are_rounded() {
        assert_eq!("0.0004".parse(), Ok(Nanos(0)));
        assert_eq!("0.0005999".parse(), Ok(Nanos(1)));
        assert_eq!("7".parse(), Ok(Nanos(7000)));
        assert_eq!("7.5".parse(), Ok(Nanos(7500)));
    }

    #[test]
    fn durations_of_kernels_have_limits() {
        let read = |cell: &str| parse_kernel_micros(cell.as_bytes());
        assert_eq!(
            [read("N/A"), read(" "), read("0.001"), read(" 2.5e3 ")],
            [Ok(None), Ok(None), Ok(Some(0.001)), Ok(Some(2500.0))]
        );
        assert_eq!(read("3600000000"), Ok(Some(3.6e9)));
        for wrong in ["1e308", "3600000000.1", "inf", "NaN", "-1", "0.0009", "5us", "1e-300", "\u{663}"] {
            assert_eq!(read(wrong), Err(NoKernelDuration), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_parsing_are_inverse(value in -(1_i64 << 61)..(1_i64 << 61)) {
            prop_assert_eq!(Nanos(value).to_string().parse(), Ok(Nanos(value)));
        }

        #[test]
        fn any_bytes_are_handled(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = Nanos::parse_micros(&bytes);
        }
    }

    proptest! {
        #[test]
        fn any_durations_are_kept(durations in prop::collection::vec(any::<i64>(), 0..20), far in any::<i64>()) {
            let list = DurationList::from(durations.as_slice());
            prop_assert_eq!(list.to_vec(), durations.clone());
            prop_assert_eq!(list.len(), durations.len());
            let near: Vec<i64> = durations.iter().map(|duration| (far / 2) + duration % 30_000).collect();
            let list = DurationList::from(near.as_slice());
            prop_assert!(matches!(list.offsets, DurationOffsets::TwoBytes(_)));
            prop_assert_eq!(list.to_vec(), near);
        }
    }
}
