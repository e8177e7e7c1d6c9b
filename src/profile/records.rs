//! Reader of kernel records, one at a time, from `kernel_details.csv` or `op_summary_*.csv`.
//!
//! Both tables have the same columns under slightly different names; one reader supports both. A row is borrowed from
//! the reader's buffer, so that a file of any size needs little memory.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};

use super::{
    COUNTERS, ProfileError, RecordPosition,
    columns::{CELLS, RecordColumns},
    kernel_record::{CounterSums, KernelRecord},
};
use crate::{
    base::{
        files::open_regular,
        table::{decimal, raw_records::missing_field_text, simd_index},
    },
    kernel::{Nanos, NanosError, RecordedTask, SignatureCells},
};

const _: () = assert!(COUNTERS.len() == 25, "the database has 25 pairs of counter columns");

/// Prefix of every `Op Name` of the rehearsal host; it marks simulated records even in a copied table.
pub const REHEARSAL_PREFIX: &str = "rehearsal_";

const BUFFER: usize = 1 << 18;

/// Header of a table.
#[derive(Debug)]
pub(super) struct RecordTable {
    pub(super) file: PathBuf,
    pub(super) header: ByteRecord,
    columns: RecordColumns,
    /// Bytes and lines of the header.
    pub(super) header_bytes: u64,
    pub(super) header_lines: u64,
    /// True if lines end in `\r\n`: the csv crate ends a row at its carriage return and counts the line at the next
    /// row.
    is_crlf: bool,
}

/// First bytes of compressed files and archives.
const COMPRESSED: [&[u8]; 5] = [b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"];

/// Refuses a file that is no table by its first bytes.
fn check_start(start: &[u8], file: &Path) -> Result<(), ProfileError> {
    let file = || file.to_owned();
    if start.starts_with(b"version https://git-lfs") {
        return Err(ProfileError::LfsPointer(file()));
    }
    if COMPRESSED.iter().any(|magic| start.starts_with(magic)) {
        return Err(ProfileError::Compressed(file()));
    }
    match start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start().first() {
        None => Err(ProfileError::Empty(file())),
        Some(b'{' | b'[') => Err(ProfileError::Json(file())),
        Some(_) => Ok(()),
    }
}

impl RecordTable {
    /// Checks the start of a file and its header.
    pub(super) fn open(file: &Path) -> Result<Self, ProfileError> {
        let mut rows = RecordRows::new(open_table(file)?.take(MAX_HEADER), 0);
        let header = rows.read_header(file)?;
        let mut csv = rows.csv;
        let (header_bytes, header_lines) = (csv.position().byte(), csv.position().line() - 1);
        let columns = RecordColumns::resolve_header(&header, file, || {
            let mut row = ByteRecord::new();
            csv.read_byte_record(&mut row).is_ok_and(|more| more).then_some(row)
        })?;
        let is_crlf = ends_in_carriage_return(file, header_bytes)?;
        Ok(Self { file: file.to_owned(), header, columns, header_bytes, header_lines, is_crlf })
    }
}

/// Opens a table whose first bytes are those of a text.
pub(super) fn open_table(file: &Path) -> Result<BufReader<File>, ProfileError> {
    let io = |source| ProfileError::Io { file: file.to_owned(), source };
    let mut input = BufReader::with_capacity(BUFFER, open_regular(file).map_err(io)?);
    check_start(input.fill_buf().map_err(io)?, file)?;
    Ok(input)
}

/// Returns true if the header of a table ends in a carriage return, at which the csv crate ends it: then it counts the
/// line at the next row.
fn ends_in_carriage_return(file: &Path, header_bytes: u64) -> Result<bool, ProfileError> {
    let io = |source| ProfileError::Io { file: file.to_owned(), source };
    let mut last = [0];
    let input = open_regular(file).map_err(io)?;
    let read = input.read_at(&mut last, header_bytes.saturating_sub(1)).map_err(io)?;
    Ok(read == 1 && last == *b"\r")
}

/// Maximum length of a header; keeps a file that is not a table from being read as one line.
const MAX_HEADER: u64 = 1 << 20;

/// Maximum length of a row; limits the memory after a quote that is not closed.
const MAX_ROW: usize = 16 << 20;

/// Reader that fails after `left` bytes.
#[derive(Debug)]
struct RowLimitReader<R> {
    input: R,
    /// Remaining bytes of the row.
    left: usize,
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

/// Reader of the records of a table, or of a part of it that starts with a record.
#[derive(Debug)]
pub(super) struct RecordRows<R> {
    csv: Reader<RowLimitReader<R>>,
    row: ByteRecord,
    lines_before: u64,
}

impl<R: Read> RecordRows<R> {
    /// Creates a reader of an input that starts after `lines_before` lines of the file.
    pub(super) fn new(input: R, lines_before: u64) -> Self {
        let csv = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(BUFFER)
            .from_reader(RowLimitReader { input, left: MAX_ROW });
        Self { csv, row: ByteRecord::new(), lines_before }
    }

    pub(super) fn read_header(&mut self, file: &Path) -> Result<ByteRecord, ProfileError> {
        let mut header = ByteRecord::new();
        self.csv.read_byte_record(&mut header).map_err(|error| csv_error(error, file))?;
        Ok(header)
    }

    /// Returns true if the header that was read ends in a carriage return.
    pub(super) fn is_crlf(&self, file: &Path) -> Result<bool, ProfileError> {
        ends_in_carriage_return(file, self.csv.position().byte())
    }

    pub(super) fn next_row<'a>(
        &'a mut self,
        table: &'a RecordTable,
    ) -> Result<Option<KernelRow<'a>>, ProfileError> {
        let row = self.next_cells(&table.file, &table.header, table.is_crlf)?;
        Ok(row.map(|(row, line)| KernelRow { table, row: RowCells::Csv(row), line }))
    }

    /// Reads the next row with its line. A row with too few or too many fields is an error.
    pub(super) fn next_cells(
        &mut self,
        file: &Path,
        header: &ByteRecord,
        is_crlf: bool,
    ) -> Result<Option<(&ByteRecord, u64)>, ProfileError> {
        let Some((row, line)) = self.next_of_any_width(file, is_crlf)? else { return Ok(None) };
        let (fields, columns) = (row.len(), header.len());
        if fields == columns {
            return Ok(Some((row, line)));
        }
        let place = missing_field_text(fields, columns, header.get(fields).map(String::from_utf8_lossy));
        Err(ProfileError::Ragged { file: file.to_owned(), line, fields, columns, place })
    }

    /// Reads the next row with its line.
    pub(super) fn next_of_any_width(
        &mut self,
        file: &Path,
        is_crlf: bool,
    ) -> Result<Option<(&ByteRecord, u64)>, ProfileError> {
        self.csv.get_mut().left = MAX_ROW;
        let before = self.lines_before + u64::from(is_crlf);
        let line = |line: u64| before + line;
        let begin = line(self.csv.position().line());
        match self.csv.read_byte_record(&mut self.row) {
            Ok(true) => Ok(Some((&self.row, line(self.row.position().map_or(0, csv::Position::line))))),
            Ok(false) => Ok(None),
            Err(_) if self.csv.get_ref().left == 0 => {
                let mebibytes = (MAX_ROW >> 20) as u64;
                Err(ProfileError::Endless { file: file.to_owned(), line: begin, mebibytes })
            }
            Err(error) => Err(csv_error(error, file)),
        }
    }
}

/// Reader of the records of one table.
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

/// Cells of a record.
#[derive(Clone, Copy, Debug)]
enum RowCells<'a> {
    /// Split by the csv crate.
    Csv(&'a ByteRecord),
    /// Split by [`crate::base::table::simd_index`].
    Block(simd_index::RowCellIndex<'a>),
}

impl RecordReader {
    /// Opens a table and checks its header.
    pub fn open(file: &Path) -> Result<Self, ProfileError> {
        let table = RecordTable::open(file)?;
        let input =
            open_regular(file).map_err(|source| ProfileError::Io { file: file.to_owned(), source })?;
        let mut rows = RecordRows::new(input, 0);
        rows.read_header(file)?;
        Ok(Self { table, rows })
    }

    /// Reads the next record; `None` at the end. A row with too few or too many fields is an error.
    pub fn read_record(&mut self) -> Result<Option<KernelRow<'_>>, ProfileError> {
        self.rows.next_row(&self.table)
    }
}

fn csv_error(error: csv::Error, file: &Path) -> ProfileError {
    let source = match error.into_kind() {
        ErrorKind::Io(source) => source,
        other => io::Error::other(format!("{other:?}")),
    };
    ProfileError::Io { file: file.to_owned(), source }
}

impl<'a> KernelRow<'a> {
    /// Creates a record of a block of the file. Its line is unknown; [`RecordRows`] counts lines.
    pub(super) const fn in_block(table: &'a RecordTable, cells: simd_index::RowCellIndex<'a>) -> Self {
        Self { table, row: RowCells::Block(cells), line: 0 }
    }

    #[inline]
    fn cell_bytes(&self, column: usize) -> &'a [u8] {
        match self.row {
            RowCells::Csv(row) => row.get(column).unwrap_or_default(),
            RowCells::Block(cells) => cells.get(column),
        }
    }

    fn optional_cell(&self, column: Option<usize>) -> &'a [u8] {
        column.map_or(&[], |index| self.cell_bytes(index))
    }

    /// Returns the line of the record's start, from 1.
    pub const fn line(&self) -> u64 {
        self.line
    }

    /// Returns the kernel's type.
    pub fn kernel(&self) -> &'a [u8] {
        self.cell_bytes(self.table.columns.kernel).trim_ascii()
    }

    /// Returns the operator's name, empty without such a column.
    pub fn name(&self) -> &'a [u8] {
        self.optional_cell(self.table.columns.name)
    }

    /// Returns the type of the core that ran the kernel, empty without such a column.
    pub(crate) fn core(&self) -> &'a [u8] {
        self.optional_cell(self.table.columns.core).trim_ascii()
    }

    /// Returns the operator, the state and the unit of the kernel's task.
    pub(crate) fn task(&self) -> RecordedTask {
        let text = |cell: &[u8]| match cell.trim_ascii() {
            b"N/A" => String::new(),
            cell => String::from_utf8_lossy(cell).replace(char::is_control, "\u{fffd}"),
        };
        let state = text(self.optional_cell(self.table.columns.state));
        let operator = RecordedTask::unnumbered_operator(&text(self.name()), &text(self.kernel()));
        RecordedTask { state, core: text(self.core()), operator }
    }

    /// Returns the six cells of the signature: shapes, types, formats of inputs, then of outputs.
    pub fn signature_cells(&self) -> [&'a [u8]; 6] {
        self.table.columns.cells.map(|column| self.cell_bytes(column))
    }

    /// Returns the cells of the inputs, as text.
    pub fn input_cells(&self) -> Result<SignatureCells<'a>, ProfileError> {
        self.cells_from(0)
    }

    /// Returns the cells of the outputs, as text.
    pub fn output_cells(&self) -> Result<SignatureCells<'a>, ProfileError> {
        self.cells_from(3)
    }

    fn cells_from(&self, first: usize) -> Result<SignatureCells<'a>, ProfileError> {
        let text = |index: usize| {
            let cell = self.signature_cells()[index];
            std::str::from_utf8(cell)
                .map_err(|_| self.bad_cell(CELLS[index], cell, "is not UTF-8".to_owned()))
        };
        Ok(SignatureCells { shapes: text(first)?, dtypes: text(first + 1)?, formats: text(first + 2)? })
    }

    /// Parses the duration; `None` for `N/A`.
    pub fn duration(&self) -> Result<Option<Nanos>, ProfileError> {
        self.parse_time(self.cell_bytes(self.table.columns.duration), "Duration(us)")
    }

    /// Parses the start of the kernel since the epoch; `None` if not recorded.
    pub fn start(&self) -> Result<Option<Nanos>, ProfileError> {
        self.parse_time(self.optional_cell(self.table.columns.start), "Start Time(us)")
    }

    fn parse_time(&self, cell: &[u8], column: &'static str) -> Result<Option<Nanos>, ProfileError> {
        match Nanos::parse_micros(cell) {
            Ok(time) => Ok(Some(time)),
            Err(NanosError::Absent) => Ok(None),
            Err(error) => Err(self.bad_cell(column, cell, error.to_string())),
        }
    }

    /// Returns true if the table has a column for the device.
    pub fn has_device_column(&self) -> bool {
        self.table.columns.device.is_some()
    }

    /// Returns the device; `None` if the table has no such column or the record no number in it.
    pub fn device(&self) -> Option<u32> {
        std::str::from_utf8(self.optional_cell(self.table.columns.device)).ok()?.trim().parse().ok()
    }

    /// Returns the number of blocks; `None` if the table has no such column or the record no number in it.
    pub(crate) fn blocks(&self) -> Option<u32> {
        std::str::from_utf8(self.optional_cell(self.table.columns.blocks)).ok()?.trim().parse().ok()
    }

    /// Returns the stream; `None` if the table has no such column or the record no number in it.
    pub(crate) fn stream(&self) -> Option<u32> {
        std::str::from_utf8(self.optional_cell(self.table.columns.stream)).ok()?.trim().parse().ok()
    }

    fn counter_millionths(&self) -> impl Iterator<Item = Option<i64>> + 'a {
        let record = *self;
        self.table.columns.counters.iter().map(move |column| record.counter_value((*column)?))
    }

    #[inline]
    fn counter_value(&self, column: usize) -> Option<i64> {
        if let RowCells::Block(cells) = self.row
            && let Some((word, length)) = cells.last_eight_bytes(column)
            && let Some(value) = decimal::parse_micro_fast(word, length)
        {
            return Some(value);
        }
        decimal::parse_micro(self.cell_bytes(column))
    }

    /// Returns the counters in the order of [`COUNTERS`]; `None` if absent or `N/A`.
    pub fn counters(&self) -> impl Iterator<Item = Option<f64>> + 'a {
        #[expect(clippy::cast_precision_loss, reason = "counters have far fewer than 53 bits")]
        self.counter_millionths().map(|value| Some(value? as f64 / 1e6))
    }

    /// Returns true for a record of the rehearsal host.
    pub fn is_rehearsed(&self) -> bool {
        self.name().starts_with(REHEARSAL_PREFIX.as_bytes())
    }
}

impl KernelRecord for KernelRow<'_> {
    fn kernel(&self) -> &[u8] {
        self.kernel()
    }

    fn name(&self) -> &[u8] {
        self.name()
    }

    fn cells(&self) -> [&[u8]; 6] {
        self.signature_cells()
    }

    fn input_shapes(&self) -> &[u8] {
        self.cell_bytes(self.table.columns.cells[0])
    }

    fn raw_cells(&self) -> Option<&[u8]> {
        let RowCells::Block(cells) = self.row else { return None };
        let columns = &self.table.columns.cells;
        let are_adjacent = columns.is_sorted_by(|left, right| left + 1 == *right);
        are_adjacent.then(|| cells.cell_range(columns[0], columns[5]))
    }

    fn state(&self) -> &[u8] {
        self.optional_cell(self.table.columns.state)
    }

    fn core(&self) -> &[u8] {
        self.optional_cell(self.table.columns.core)
    }

    fn duration(&self) -> Result<Option<Nanos>, ProfileError> {
        self.duration()
    }

    fn add_counters(&self, sums: &mut CounterSums) {
        sums.add_values(self.counter_millionths());
    }

    fn bad_cell(&self, column: &'static str, cell: &[u8], problem: String) -> ProfileError {
        ProfileError::bad_cell(&self.table.file, RecordPosition::Line(self.line), column, cell, problem)
    }
}
