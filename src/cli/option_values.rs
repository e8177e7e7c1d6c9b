//! Values of options that several commands share: sizes, lists of devices, ids.

/// Parses a number of rows. Accepts a leading minus sign in order to refuse it with a clear message.
pub(super) fn parse_rows(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number from 0 on; 0 stands for all valid rows"))
}

/// Parses a time limit such as 10m.
pub(super) fn parse_limit(text: &str) -> Result<std::time::Duration, String> {
    let limit = text.parse::<jiff::SignedDuration>().ok().and_then(|limit| limit.try_into().ok());
    let limit = limit.filter(|limit: &std::time::Duration| !limit.is_zero());
    limit.ok_or_else(|| format!("`{text}` is not a length of time; write it as 30s, 10m or 1h30m"))
}

pub(super) fn parse_seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number from 0 to {}", u64::MAX))
}

/// Parses a size in GiB and returns bytes.
pub(super) fn parse_gib(text: &str) -> Result<u64, String> {
    let gib = text.parse::<f64>().ok().filter(|gib| *gib > 0.0 && *gib <= f64::from(MAX_GIB));
    let bytes = gib.map(|gib| gib * f64::from(1 << 30));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^50, and positive")]
    bytes
        .map(|bytes| bytes as u64)
        .ok_or_else(|| format!("`{text}` is not a number above 0, up to {MAX_GIB}"))
}

/// A list of devices such as `0-3,8`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeviceList(pub(super) Vec<u32>);

/// Upper limit of a memory size, above that of any device.
const MAX_GIB: u32 = 1 << 20;
/// Upper limit of device numbers, so that a mistyped range does not become a long list.
const MAX_DEVICES: u32 = 1024;

/// Parses a list of devices; the result is sorted and free of duplicates.
pub(super) fn parse_devices(text: &str) -> Result<DeviceList, String> {
    let expected = || format!("`{text}` is not a list of devices such as `0-3,8`");
    let number = |part: &str| part.trim().parse::<u32>().ok().filter(|&device| device < MAX_DEVICES);
    let mut devices = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first).ok_or_else(expected)?, number(last).ok_or_else(expected)?);
        if first > last {
            return Err(expected());
        }
        devices.extend(first..=last);
    }
    devices.sort_unstable();
    devices.dedup();
    Ok(DeviceList(devices))
}

/// Parses an expert skew. Above 4 the first expert has nearly all tokens.
pub(super) fn parse_skew(text: &str) -> Result<f64, String> {
    let skew = text.parse::<f64>().ok().filter(|skew| (0.0..=4.0).contains(skew));
    skew.ok_or_else(|| format!("`{text}` is not a number from 0 to 4"))
}

/// Parses the first digits of the id of a case.
pub(super) fn parse_case_prefix(text: &str) -> Result<String, String> {
    let is_id = (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let problem = || format!("`{text}` is not the id of a case, which has 16 hexadecimal digits");
    is_id.then(|| text.to_ascii_lowercase()).ok_or_else(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_in_gib_have_limits() {
        assert_eq!(parse_gib("0.5"), Ok(1 << 29));
        assert_eq!(parse_gib("1048576"), Ok(1 << 50));
        for wrong in ["0", "-1", "nan", "inf", "1e9", "64G", ""] {
            assert!(parse_gib(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn device_lists_are_sorted_and_limited() {
        assert_eq!(parse_devices("0-3,8,2"), Ok(DeviceList(vec![0, 1, 2, 3, 8])));
        for wrong in ["", "3-1", "a", "1-", "-1", "0-99999999", "1,,2"] {
            assert!(parse_devices(wrong).is_err(), "{wrong}");
        }
    }
}
