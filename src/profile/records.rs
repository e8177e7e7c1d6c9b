//! Kernel records, one at a time, from `kernel_details.csv` or `op_summary_*.csv`.
//!
//! Both tables hold the same columns under slightly different names; one reader serves both. A row is
//! borrowed from the reader's buffer, so that a file of any size passes through little memory.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
};

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};

use super::{COUNTERS, ProfileError, columns::Columns};
use crate::model::{Cells, Nanos, NanosError};

/// In front of every `Op Name` that the rehearsal host writes, so that simulated records are known as
/// such even where their table was copied out of its folder.
pub const REHEARSAL_PREFIX: &str = "rehearsal_";

const BUFFER: usize = 1 << 18;

/// Reads the records of one table.
#[derive(Debug)]
pub struct RecordReader {
    file: PathBuf,
    csv: Reader<BufReader<File>>,
    header: ByteRecord,
    columns: Columns,
    row: ByteRecord,
}

/// One kernel record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    reader: &'a RecordReader,
}

impl RecordReader {
    /// Opens a table and checks its header.
    ///
    /// # Errors
    /// [`ProfileError`] where the file is missing, empty, a Git LFS pointer, or lacks columns.
    pub fn open(file: &Path) -> Result<Self, ProfileError> {
        let io = |source| ProfileError::Io { file: file.to_owned(), source };
        let mut input = BufReader::with_capacity(BUFFER, File::open(file).map_err(io)?);
        let start = input.fill_buf().map_err(io)?;
        if start.starts_with(b"version https://git-lfs") {
            return Err(ProfileError::LfsPointer { file: file.to_owned() });
        }
        if start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii().is_empty() {
            return Err(ProfileError::Empty { file: file.to_owned() });
        }
        let mut csv = ReaderBuilder::new()
            .has_headers(false)
            .flexible(false)
            .buffer_capacity(BUFFER)
            .from_reader(input);
        let mut header = ByteRecord::new();
        csv.read_byte_record(&mut header).map_err(|error| csv_error(error, file, None))?;
        let columns = Columns::resolve(&header, file)?;
        Ok(Self { file: file.to_owned(), csv, header, columns, row: ByteRecord::new() })
    }

    /// The next record, or `None` at the end.
    ///
    /// # Errors
    /// [`ProfileError::Ragged`] with line and column, or [`ProfileError::Io`].
    pub fn read(&mut self) -> Result<Option<Record<'_>>, ProfileError> {
        let more = self.csv.read_byte_record(&mut self.row);
        let more = more.map_err(|error| csv_error(error, &self.file, Some(&self.header)))?;
        Ok(more.then_some(Record { reader: self }))
    }

    /// The file that is read.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }
}

fn csv_error(error: csv::Error, file: &Path, header: Option<&ByteRecord>) -> ProfileError {
    let file = file.to_owned();
    match error.into_kind() {
        ErrorKind::UnequalLengths { pos, expected_len, len } => {
            let short = usize::try_from(len).ok().and_then(|index| header?.get(index));
            let place = match short {
                Some(column) if len < expected_len => {
                    format!(
                        "`{}` (column {}) is the first that is missing",
                        String::from_utf8_lossy(column),
                        len + 1
                    )
                }
                _ => format!("field {} has no column", expected_len + 1),
            };
            let line = pos.map_or(0, |position| position.line());
            ProfileError::Ragged { file, line, fields: len, columns: expected_len, place }
        }
        ErrorKind::Io(source) => ProfileError::Io { file, source },
        other => ProfileError::Io { file, source: std::io::Error::other(format!("{other:?}")) },
    }
}

impl<'a> Record<'a> {
    fn cell(&self, column: usize) -> &'a [u8] {
        self.reader.row.get(column).unwrap_or_default()
    }

    fn optional(&self, column: Option<usize>) -> &'a [u8] {
        column.map_or(&[], |index| self.cell(index))
    }

    /// Line of the record's start, from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.reader.row.position().map_or(0, csv::Position::line)
    }

    /// The kernel's type.
    #[must_use]
    pub fn kernel(&self) -> &'a [u8] {
        self.cell(self.reader.columns.kernel).trim_ascii()
    }

    /// The operator's name, empty where there is no such column.
    #[must_use]
    pub fn name(&self) -> &'a [u8] {
        self.optional(self.reader.columns.name)
    }

    /// `dynamic` or `static`, empty where there is no such column.
    #[must_use]
    pub fn state(&self) -> &'a [u8] {
        self.optional(self.reader.columns.state)
    }

    /// `AI_CORE`, `AI_VECTOR_CORE`, `MIX_AIC` …
    #[must_use]
    pub fn core(&self) -> &'a [u8] {
        self.optional(self.reader.columns.core)
    }

    /// The six cells of the signature: shapes, types, formats of inputs, then of outputs.
    #[must_use]
    pub fn signature_cells(&self) -> [&'a [u8]; 6] {
        self.reader.columns.cells.map(|column| self.cell(column))
    }

    /// Whether the profiler recorded input shapes.
    #[must_use]
    pub fn has_shapes(&self) -> bool {
        !matches!(self.cell(self.reader.columns.cells[0]).trim_ascii(), b"" | b"N/A" | b"NA")
    }

    /// Cells of the inputs, as text.
    ///
    /// # Errors
    /// Where a cell is not UTF-8.
    pub fn inputs(&self) -> Result<Cells<'a>, ProfileError> {
        let [shapes, dtypes, formats, ..] = self.signature_cells();
        Ok(Cells {
            shapes: self.text(shapes, "Input Shapes")?,
            dtypes: self.text(dtypes, "Input Data Types")?,
            formats: self.text(formats, "Input Formats")?,
        })
    }

    /// Cells of the outputs, as text.
    ///
    /// # Errors
    /// Where a cell is not UTF-8.
    pub fn outputs(&self) -> Result<Cells<'a>, ProfileError> {
        let [.., shapes, dtypes, formats] = self.signature_cells();
        Ok(Cells {
            shapes: self.text(shapes, "Output Shapes")?,
            dtypes: self.text(dtypes, "Output Data Types")?,
            formats: self.text(formats, "Output Formats")?,
        })
    }

    fn text(&self, cell: &'a [u8], column: &'static str) -> Result<&'a str, ProfileError> {
        std::str::from_utf8(cell).map_err(|_| self.bad_cell(column, cell, "is not UTF-8"))
    }

    /// An error that points at a cell of this record.
    pub(crate) fn bad_cell(
        &self,
        column: &'static str,
        cell: &[u8],
        problem: impl Into<String>,
    ) -> ProfileError {
        let mut cell = String::from_utf8_lossy(cell).into_owned();
        if cell.chars().count() > 60 {
            cell = cell.chars().take(57).chain("...".chars()).collect();
        }
        let file = self.reader.file.clone();
        ProfileError::Cell { file, line: self.line(), column, cell, problem: problem.into() }
    }

    /// The duration; `None` where the profiler wrote `N/A`.
    ///
    /// # Errors
    /// Where the cell is neither a time nor absent.
    pub fn duration(&self) -> Result<Option<Nanos>, ProfileError> {
        self.time(self.cell(self.reader.columns.duration), "Duration(us)")
    }

    /// When the kernel started, since the epoch; `None` where it is not recorded.
    ///
    /// # Errors
    /// Where the cell is neither a time nor absent.
    pub fn start(&self) -> Result<Option<Nanos>, ProfileError> {
        self.time(self.optional(self.reader.columns.start), "Start Time(us)")
    }

    fn time(&self, cell: &[u8], column: &'static str) -> Result<Option<Nanos>, ProfileError> {
        match Nanos::parse_micros(cell) {
            Ok(time) => Ok(Some(time)),
            Err(NanosError::Absent) => Ok(None),
            Err(error) => Err(self.bad_cell(column, cell, error.to_string())),
        }
    }

    /// The device, `None` where the table does not say.
    #[must_use]
    pub fn device(&self) -> Option<u32> {
        std::str::from_utf8(self.optional(self.reader.columns.device)).ok()?.trim().parse().ok()
    }

    /// The counters in the order of [`COUNTERS`]; `None` where absent or `N/A`.
    pub fn counters(&self) -> impl Iterator<Item = Option<f64>> + 'a {
        let record = *self;
        self.reader.columns.counters.iter().map(move |column| {
            let text = std::str::from_utf8(record.cell((*column)?)).ok()?;
            text.trim().parse().ok().filter(|value: &f64| value.is_finite())
        })
    }

    /// Whether the rehearsal host wrote it.
    #[must_use]
    pub fn is_rehearsed(&self) -> bool {
        self.name().starts_with(REHEARSAL_PREFIX.as_bytes())
    }
}

const _: () = assert!(COUNTERS.len() == 25, "the database has 25 pairs of counter columns");
