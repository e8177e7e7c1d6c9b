//! Records of a collection with the texts of the profiler: name, core, and the cells of the signature.

use std::path::Path;

use super::experiment::EvidenceError;
use crate::{
    kernel::{Dtype, Nanos, SignatureCells, Slot, Tensor},
    profile::{REHEARSAL_PREFIX, RecordReader, collection_summaries},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordedRow {
    pub(super) start: Nanos,
    /// Operator's name, such as `aclnnMm_MatMulCommon_MatMulV2`, without the mark of a rehearsal.
    pub(super) name: String,
    pub(super) kernel: String,
    pub(super) core: String,
    /// Shapes, types and formats of the inputs, then those of the outputs.
    pub(super) cells: [String; 6],
}

impl RecordedRow {
    /// Returns the length of a vector of int32, if it is the only input, as of a sentinel.
    pub(super) fn sentinel_length(&self) -> Option<u64> {
        let [shapes, dtypes, formats, ..] = &self.cells;
        let slots: Vec<Slot> = SignatureCells { shapes, dtypes, formats }.parse().ok()?;
        match slots.as_slice() {
            [Some(Tensor { dims, dtype: Dtype::Int32, .. })]
                if self.kernel.starts_with("Neg") && dims.len() == 1 =>
            {
                Some(dims[0])
            }
            _ => None,
        }
    }

    /// Returns the name of the library function below the aclnn interface: the part of the operator's name between the
    /// interface and the type of the kernel; empty for names of another form.
    pub(super) fn library_function(&self) -> &str {
        let Some((_, rest)) = self.name.strip_prefix("aclnn").and_then(|rest| rest.split_once('_')) else {
            return "";
        };
        rest.strip_suffix(self.kernel.as_str()).map_or(rest, |rest| rest.trim_end_matches('_'))
    }
}

/// Reads the records below a profile folder, sorted by start time. Records without a start are left out.
pub(super) fn read_rows(profile: &Path) -> Result<Vec<RecordedRow>, EvidenceError> {
    let mut rows = Vec::new();
    for table in collection_summaries(profile)? {
        let mut reader = RecordReader::open(&table.0)?;
        while let Some(record) = reader.read_record()? {
            let Some(start) = record.start()? else { continue };
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes.trim_ascii()).into_owned();
            let name = text(record.name());
            rows.push(RecordedRow {
                start,
                name: name.strip_prefix(REHEARSAL_PREFIX).unwrap_or(&name).to_owned(),
                kernel: text(record.kernel()),
                core: text(record.core()),
                cells: record.signature_cells().map(|cell| text(cell).trim_matches('"').to_owned()),
            });
        }
    }
    rows.sort_by_key(|row| row.start);
    Ok(rows)
}

/// Returns the records between two sentinels, given by their lengths; empty if one of them is missing.
pub(super) fn rows_between(rows: &[RecordedRow], opening: u64, closing: u64) -> &[RecordedRow] {
    let position = |length: u64| rows.iter().position(|row| row.sentinel_length() == Some(length));
    match (position(opening), position(closing)) {
        (Some(from), Some(to)) if from < to => &rows[from + 1..to],
        _ => &[],
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A record whose input is also its output.
    pub(in crate::measure::selftest) fn row(
        start: i64,
        kernel: &str,
        shape: &str,
        dtype: &str,
    ) -> RecordedRow {
        let cells = [shape, dtype, "ND", shape, dtype, "ND"].map(str::to_owned);
        let (name, core) = (format!("aclnn{kernel}_{kernel}AiCore_{kernel}"), "AI_VECTOR_CORE".to_owned());
        RecordedRow { start: Nanos(start), name, kernel: kernel.to_owned(), core, cells }
    }

    #[test]
    fn records_between_sentinels_are_found_by_their_lengths() {
        let rows = [
            row(1, "Neg", "1", "INT32"),
            row(2, "Neg", "2", "INT32"),
            row(3, "Neg", "2", "DT_BF16"),
            row(4, "Add", "4,4", "FLOAT"),
            row(5, "Neg", "3", "INT32"),
            row(6, "Add", "4,4", "FLOAT"),
        ];
        assert_eq!(rows_between(&rows, 2, 3), &rows[2..4]);
        assert!(rows_between(&rows, 4, 5).is_empty());
        assert_eq!(rows[3].library_function(), "AddAiCore");
        let other = RecordedRow { name: "split_qkv_0".to_owned(), ..rows[3].clone() };
        assert_eq!(other.library_function(), "");
    }
}
