//! Kernel records, one at a time, from `kernel_details.csv` or `op_summary_*.csv`.
//!
//! Both tables hold the same columns under slightly different names; one reader serves both. A row is
//! borrowed from the reader's buffer, so that a file of any size passes through little memory.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};

use super::{COUNTERS, ProfileError, RecordPosition, columns::RecordColumns, groups::has_shapes};
use crate::{
    domain::{Nanos, NanosError, SignatureCells},
    table::{decimal, simd_index},
};

const _: () = assert!(COUNTERS.len() == 25, "the database has 25 pairs of counter columns");

/// In front of every `Op Name` that the rehearsal host writes, so that simulated records are known as
/// such even where their table was copied out of its folder.
pub const REHEARSAL_PREFIX: &str = "rehearsal_";

pub(super) const BUFFER: usize = 1 << 18;

/// What is known of a table before its first record.
#[derive(Debug)]
pub(super) struct RecordTable {
    file: PathBuf,
    header: ByteRecord,
    columns: RecordColumns,
    /// Bytes and lines of the header.
    pub(super) header_bytes: u64,
    pub(super) header_lines: u64,
    /// The csv crate ends a row at its carriage return and counts the line when it goes on.
    is_crlf: bool,
}

impl RecordTable {
    /// Checks the beginning of a file and its header.
    pub(super) fn open(file: &Path) -> Result<Self, ProfileError> {
        let io = |source| ProfileError::Io { file: file.to_owned(), source };
        let mut input = BufReader::with_capacity(BUFFER, File::open(file).map_err(io)?);
        let start = input.fill_buf().map_err(io)?;
        if start.starts_with(b"version https://git-lfs") {
            return Err(ProfileError::LfsPointer { file: file.to_owned() });
        }
        match start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start().first() {
            None => return Err(ProfileError::Empty { file: file.to_owned() }),
            Some(b'{' | b'[') => return Err(ProfileError::Json { file: file.to_owned() }),
            Some(_) => {}
        }
        let mut csv = RecordRows::new(input.take(LONGEST_HEADER), 0).csv;
        let mut header = ByteRecord::new();
        csv.read_byte_record(&mut header).map_err(|error| csv_error(error, file))?;
        let (header_bytes, header_lines) = (csv.position().byte(), csv.position().line() - 1);
        let columns = RecordColumns::resolve(&header, file, || {
            let mut row = ByteRecord::new();
            csv.read_byte_record(&mut row).is_ok_and(|more| more).then_some(row)
        })?;
        let mut last = [0];
        let read = File::open(file).and_then(|file| file.read_at(&mut last, header_bytes.saturating_sub(1)));
        let is_crlf = read.map_err(io)? == 1 && last == *b"\r";
        Ok(Self { file: file.to_owned(), header, columns, header_bytes, header_lines, is_crlf })
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Cells of every record.
    pub(super) fn width(&self) -> usize {
        self.header.len()
    }
}

/// Longer headers than any profiler writes; keeps a file that is no table from being read as one line.
const LONGEST_HEADER: u64 = 1 << 20;

/// Longer rows than any profiler writes; keeps the file behind a quote that is not closed out of memory.
pub(super) const LONGEST_ROW: usize = 16 << 20;

/// Passes on so many bytes before it is topped up, and fails beyond.
#[derive(Debug)]
pub(super) struct RowLimitReader<R> {
    input: R,
    left: usize,
}

impl<R> RowLimitReader<R> {
    pub(super) const fn new(input: R) -> Self {
        Self { input, left: LONGEST_ROW }
    }

    /// Allows another row.
    pub(super) const fn refill(&mut self) {
        self.left = LONGEST_ROW;
    }

    /// Whether a row took all that it was allowed.
    pub(super) const fn is_spent(&self) -> bool {
        self.left == 0
    }
}

impl<R: Read> Read for RowLimitReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !buffer.is_empty() {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        let length = buffer.len().min(self.left);
        let read = self.input.read(&mut buffer[..length])?;
        self.left -= read;
        Ok(read)
    }
}

/// Goes through the records of a table, or of a part of it that begins with a record.
#[derive(Debug)]
pub(super) struct RecordRows<R> {
    csv: Reader<RowLimitReader<R>>,
    row: ByteRecord,
    lines_before: u64,
}

impl<R: Read> RecordRows<R> {
    /// Rows of an input that begins behind `lines_before` lines of the file.
    pub(super) fn new(input: R, lines_before: u64) -> Self {
        let csv = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(BUFFER)
            .from_reader(RowLimitReader::new(input));
        Self { csv, row: ByteRecord::new(), lines_before }
    }

    pub(super) fn next<'a>(
        &'a mut self,
        table: &'a RecordTable,
    ) -> Result<Option<KernelRow<'a>>, ProfileError> {
        self.csv.get_mut().refill();
        let begin = self.csv.position().line();
        match self.csv.read_byte_record(&mut self.row) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(_) if self.csv.get_ref().is_spent() => {
                let line = self.lines_before + begin + u64::from(table.is_crlf);
                let file = table.file.clone();
                return Err(ProfileError::Endless { file, line, mebibytes: (LONGEST_ROW >> 20) as u64 });
            }
            Err(error) => return Err(csv_error(error, &table.file)),
        }
        let line =
            self.lines_before + self.row.position().map_or(0, csv::Position::line) + u64::from(table.is_crlf);
        let record = KernelRow { table, row: RowCells::Csv(&self.row), line };
        if self.row.len() == table.header.len() { Ok(Some(record)) } else { Err(record.ragged()) }
    }
}

/// Reads the records of one table.
#[derive(Debug)]
pub struct RecordReader {
    table: RecordTable,
    rows: RecordRows<File>,
}

/// One kernel record.
#[derive(Clone, Copy, Debug)]
pub struct KernelRow<'a> {
    table: &'a RecordTable,
    row: RowCells<'a>,
    line: u64,
}

/// Where the cells of a record are.
#[derive(Clone, Copy, Debug)]
enum RowCells<'a> {
    /// As the csv crate split them.
    Csv(&'a ByteRecord),
    /// As [`crate::table::simd_index`] did.
    Block(simd_index::RowCellIndex<'a>),
}

impl RecordReader {
    /// Opens a table and checks its header.
    ///
    /// # Errors
    /// [`ProfileError`] where the file is missing, empty, a Git LFS pointer, or lacks columns.
    pub fn open(file: &Path) -> Result<Self, ProfileError> {
        let table = RecordTable::open(file)?;
        let input = File::open(file).map_err(|source| ProfileError::Io { file: file.to_owned(), source })?;
        let mut rows = RecordRows::new(input, 0);
        // The header.
        rows.csv.read_byte_record(&mut rows.row).map_err(|error| csv_error(error, file))?;
        Ok(Self { table, rows })
    }

    /// The next record, or `None` at the end.
    ///
    /// # Errors
    /// [`ProfileError::Ragged`] with line and column, or [`ProfileError::Io`].
    pub fn read(&mut self) -> Result<Option<KernelRow<'_>>, ProfileError> {
        self.rows.next(&self.table)
    }
}

pub(super) fn csv_error(error: csv::Error, file: &Path) -> ProfileError {
    let file = file.to_owned();
    match error.into_kind() {
        ErrorKind::Io(source) => ProfileError::Io { file, source },
        other => ProfileError::Io { file, source: io::Error::other(format!("{other:?}")) },
    }
}

impl<'a> KernelRow<'a> {
    /// A record whose cells lie in a block of the file. It does not know its line: whoever needs one
    /// reads the table through [`RecordRows`].
    pub(super) const fn in_block(table: &'a RecordTable, cells: simd_index::RowCellIndex<'a>) -> Self {
        Self { table, row: RowCells::Block(cells), line: 0 }
    }

    /// The signature's cells as they stand in the file, where they stand there side by side.
    pub(super) fn raw_signature(&self) -> Option<&'a [u8]> {
        let RowCells::Block(cells) = self.row else { return None };
        let columns = &self.table.columns.cells;
        let are_neighbours = columns.is_sorted_by(|left, right| left + 1 == *right);
        are_neighbours.then(|| cells.raw(columns[0], columns[5]))
    }

    #[inline]
    fn cell(&self, column: usize) -> &'a [u8] {
        match self.row {
            RowCells::Csv(row) => row.get(column).unwrap_or_default(),
            RowCells::Block(cells) => cells.get(column),
        }
    }

    fn len(&self) -> usize {
        match self.row {
            RowCells::Csv(row) => row.len(),
            RowCells::Block(cells) => cells.len(),
        }
    }

    /// The error for a row that has too few or too many fields.
    fn ragged(&self) -> ProfileError {
        let (fields, columns) = (self.len(), self.table.header.len());
        let place = match self.table.header.get(fields) {
            Some(name) => {
                format!(
                    "`{}` (column {}) is the first that is missing",
                    String::from_utf8_lossy(name),
                    fields + 1
                )
            }
            None => format!("field {} has no column", columns + 1),
        };
        ProfileError::Ragged { file: self.table.file.clone(), line: self.line(), fields, columns, place }
    }

    fn optional(&self, column: Option<usize>) -> &'a [u8] {
        column.map_or(&[], |index| self.cell(index))
    }

    /// Line of the record's start, from 1.
    #[must_use]
    pub const fn line(&self) -> u64 {
        self.line
    }

    /// The kernel's type.
    #[must_use]
    pub fn kernel(&self) -> &'a [u8] {
        self.cell(self.table.columns.kernel).trim_ascii()
    }

    /// The operator's name, empty where there is no such column.
    #[must_use]
    pub fn name(&self) -> &'a [u8] {
        self.optional(self.table.columns.name)
    }

    /// `dynamic` or `static`, empty where there is no such column.
    #[must_use]
    pub fn state(&self) -> &'a [u8] {
        self.optional(self.table.columns.state)
    }

    /// `AI_CORE`, `AI_VECTOR_CORE`, `MIX_AIC` …
    #[must_use]
    pub fn core(&self) -> &'a [u8] {
        self.optional(self.table.columns.core)
    }

    /// The six cells of the signature: shapes, types, formats of inputs, then of outputs.
    #[must_use]
    pub fn signature_cells(&self) -> [&'a [u8]; 6] {
        self.table.columns.cells.map(|column| self.cell(column))
    }

    pub(super) fn input_shapes(&self) -> &'a [u8] {
        self.cell(self.table.columns.cells[0])
    }

    /// Whether the profiler recorded input shapes.
    #[must_use]
    pub fn has_shapes(&self) -> bool {
        has_shapes(self.input_shapes())
    }

    /// Cells of the inputs, as text.
    ///
    /// # Errors
    /// Where a cell is not UTF-8.
    pub fn inputs(&self) -> Result<SignatureCells<'a>, ProfileError> {
        let [shapes, dtypes, formats, ..] = self.signature_cells();
        Ok(SignatureCells {
            shapes: self.text(shapes, "Input Shapes")?,
            dtypes: self.text(dtypes, "Input Data Types")?,
            formats: self.text(formats, "Input Formats")?,
        })
    }

    /// Cells of the outputs, as text.
    ///
    /// # Errors
    /// Where a cell is not UTF-8.
    pub fn outputs(&self) -> Result<SignatureCells<'a>, ProfileError> {
        let [.., shapes, dtypes, formats] = self.signature_cells();
        Ok(SignatureCells {
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
        ProfileError::cell(&self.table.file, RecordPosition::Line(self.line()), column, cell, problem.into())
    }

    /// The duration; `None` where the profiler wrote `N/A`.
    ///
    /// # Errors
    /// Where the cell is neither a time nor absent.
    pub fn duration(&self) -> Result<Option<Nanos>, ProfileError> {
        self.time(self.cell(self.table.columns.duration), "Duration(us)")
    }

    /// When the kernel started, since the epoch; `None` where it is not recorded.
    ///
    /// # Errors
    /// Where the cell is neither a time nor absent.
    pub fn start(&self) -> Result<Option<Nanos>, ProfileError> {
        self.time(self.optional(self.table.columns.start), "Start Time(us)")
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
        std::str::from_utf8(self.optional(self.table.columns.device)).ok()?.trim().parse().ok()
    }

    /// The counters in the order of [`COUNTERS`], in millionths; `None` where absent or `N/A`.
    pub(super) fn counter_millionths(&self) -> impl Iterator<Item = Option<i64>> + 'a {
        let record = *self;
        self.table.columns.counters.iter().map(move |column| record.millionths((*column)?))
    }

    #[inline]
    fn millionths(&self, column: usize) -> Option<i64> {
        if let RowCells::Block(cells) = self.row
            && let Some((word, length)) = cells.last_eight_bytes(column)
            && let Some(value) = decimal::parse_micro_fast(word, length)
        {
            return Some(value);
        }
        decimal::parse_micro(self.cell(column))
    }

    /// The counters in the order of [`COUNTERS`]; `None` where absent or `N/A`.
    pub fn counters(&self) -> impl Iterator<Item = Option<f64>> + 'a {
        #[expect(clippy::cast_precision_loss, reason = "counters have far fewer than 53 bits")]
        self.counter_millionths().map(|value| Some(value? as f64 / 1e6))
    }

    /// Whether the rehearsal host wrote it.
    #[must_use]
    pub fn is_rehearsed(&self) -> bool {
        self.name().starts_with(REHEARSAL_PREFIX.as_bytes())
    }
}
