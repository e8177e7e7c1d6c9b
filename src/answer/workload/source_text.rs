//! Positions, times and messages of sources in text.

use std::path::Path;

use super::WorkloadError;
use crate::kernel::Nanos;

pub(super) fn line_of(text: &str, part: &str) -> u64 {
    let offset = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
    text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() as u64 + 1
}

/// Converts a duration in microseconds.
pub(super) fn parse_time(path: &Path, line: u64, micros: f64) -> Result<Nanos, WorkloadError> {
    // Ten years; sums of such times do not overflow.
    const MOST: f64 = 3.2e14;
    match micros.is_finite() && (0.0..=MOST).contains(&micros) {
        true => Ok(Nanos::from_seconds(micros * 1e-6)),
        false => {
            let problem = format!("the duration {micros:?} us is not between 0 and {MOST:?}");
            Err(WorkloadError::at_line(path, line, problem, "give microseconds"))
        }
    }
}
