//! Reader of the records of `kernel_details.csv` and `op_summary_*.csv`, one at a time.
//!
//! Both tables have the same columns under slightly different names; one reader supports both. A row is borrowed from
//! the reader's buffer, so that a file of any size needs little memory.

use std::{
    fs::File,
    io::{self, Read, Seek as _, SeekFrom},
};

use csv::{ByteRecord, Reader, ReaderBuilder};

use super::{
    columns::{CELLS, Column, MAC_TIME, TableColumns, is_recorded},
    kernel_record::RecordNames,
    prelude::*,
};
use crate::{
    base::table::{
        decimal::parse_micro,
        format::{encoding_problem, separator_problem},
        raw_records::missing_field_text,
    },
    kernel::{NanosError, RecordedTask, SignatureCells},
};

const _: () = assert!(COUNTERS.len() == 25, "the database has 25 pairs of counter columns");

/// Prefix of every `Op Name` of the rehearsal host; it marks simulated records even in a copied table.
pub const REHEARSAL_PREFIX: &str = "rehearsal_";

pub(super) const BUFFER: usize = 1 << 18;
/// Maximum length of a header; keeps a file that is not a table from being read as one line.
const MAX_HEADER: u64 = 1 << 20;
/// Maximum length of a row; limits the memory after a quote that is not closed.
pub(super) const MAX_ROW: usize = 16 << 20;

const COMPRESSED: [&[u8]; 5] = [b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"];

const CORES: [&[u8]; 5] = [b"AI_CORE", b"AI_VECTOR_CORE", b"AI_CPU", b"MIX_AIC", b"MIX_AIV"];

#[derive(Debug)]
pub(super) struct RecordTable {
    pub(super) file: PathBuf,
    pub(super) header: ByteRecord,
    columns: TableColumns,
    header_bytes: u64,
    header_lines: u64,
    /// True if lines end in `\r\n`: the csv crate ends a row at its carriage return and counts the line at the next
    /// row.
    is_crlf: bool,
}

fn csv_reader<R: Read>(input: R) -> Reader<R> {
    ReaderBuilder::new().has_headers(false).flexible(true).buffer_capacity(BUFFER).from_reader(input)
}

fn check_start(start: &[u8], file: &Path) -> Result<(), ProfileError> {
    let file = || file.to_owned();
    if start.starts_with(b"version https://git-lfs") {
        return Err(ProfileError::LfsPointer(file()));
    }
    if COMPRESSED.iter().any(|magic| start.starts_with(magic)) {
        return Err(ProfileError::Compressed(file()));
    }
    if let Some(problem) = encoding_problem(start) {
        return Err(ProfileError::NotCsv { file: file(), problem: problem.to_owned() });
    }
    match start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start().first() {
        None => Err(ProfileError::Empty(file())),
        Some(b'{' | b'[') => Err(ProfileError::Json(file())),
        Some(_) => Ok(()),
    }
}

impl RecordTable {
    pub(super) fn open(file: &Path, needed: NeededColumns) -> Result<Self, ProfileError> {
        let mut start = Vec::new();
        open_regular(file)
            .and_then(|input| input.take(MAX_HEADER).read_to_end(&mut start))
            .map_err(ProfileError::io(file))?;
        check_start(&start, file)?;
        let mut csv = csv_reader(&*start);
        let mut header = ByteRecord::new();
        csv.read_byte_record(&mut header).map_err(ProfileError::csv(file))?;
        if let Some(problem) = separator_problem(&header) {
            return Err(ProfileError::NotCsv { file: file.to_owned(), problem });
        }
        let (header_bytes, header_lines) = (csv.position().byte(), csv.position().line() - 1);
        let rows = csv.byte_records().map_while(Result::ok);
        let columns = TableColumns::resolve_header(&header, file, needed, rows)?;
        let last = usize::try_from(header_bytes).ok().and_then(|length| start.get(length.checked_sub(1)?));
        let is_crlf = last == Some(&b'\r');
        Ok(Self { file: file.to_owned(), header, columns, header_bytes, header_lines, is_crlf })
    }

    /// Returns true for a row of kernels with more cells than the header because of commas in its name or type: Ascend/msprof
    /// 9ba1ac7 quotes neither (csrc/infrastructure/dump_tools/csv_tool/csv_writer.cpp).
    fn is_record_from_its_end(&self, row: &ByteRecord, shift: usize) -> bool {
        let name = self.columns.place(Column::Name);
        let core = self.columns.place(Column::Core).filter(|core| name.is_some_and(|name| name < *core));
        let is_core = |cell: &[u8]| CORES.contains(&cell.trim_ascii());
        // Two rows without a line break between them are none.
        core.is_some_and(|core| {
            row.get(core + shift).is_some_and(is_core) && !row.iter().take(core + shift).any(is_core)
        })
    }

    /// Returns true if only the name of a row has commas: the cell behind it is a type that the name contains, as names of
    /// operators do.
    fn has_type_behind_commas(&self, row: &ByteRecord, shift: usize) -> bool {
        let Some(name) = self.columns.place(Column::Name) else { return false };
        let is_next = self.columns.place(Column::Kernel) == Some(name + 1);
        let kernel = row.get(name + 1 + shift).unwrap_or_default().trim_ascii();
        let in_name = |cell: &[u8]| cell.windows(kernel.len().max(1)).any(|part| part == kernel);
        let is_named = row.iter().skip(name).take(shift + 1).any(in_name);
        is_next && is_named && self.is_record_from_its_end(row, shift)
    }

    pub(super) fn open_rows(&self) -> Result<File, ProfileError> {
        let mut input = open_regular(&self.file).map_err(ProfileError::io(&self.file))?;
        input.seek(SeekFrom::Start(self.header_bytes)).map_err(ProfileError::io(&self.file))?;
        Ok(input)
    }
}

#[derive(Debug)]
pub(super) struct RowLimitReader {
    pub(super) input: File,
    pub(super) left: usize,
}

impl Read for RowLimitReader {
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

/// Reader of the rows of a table of any columns, or of a part of it that starts with a row.
#[derive(Debug)]
pub(super) struct TableRows {
    csv: Reader<RowLimitReader>,
    row: ByteRecord,
    lines_before: u64,
}

impl TableRows {
    pub(super) fn new(input: File, lines_before: u64) -> Self {
        let csv = csv_reader(RowLimitReader { input, left: MAX_ROW });
        Self { csv, row: ByteRecord::new(), lines_before }
    }

    pub(super) fn next_row(&mut self, file: &Path) -> Result<Option<(&ByteRecord, u64)>, ProfileError> {
        self.csv.get_mut().left = MAX_ROW;
        let begin = self.lines_before + self.csv.position().line();
        match self.csv.read_byte_record(&mut self.row) {
            Ok(true) => {
                let line = self.row.position().map_or(0, csv::Position::line);
                Ok(Some((&self.row, self.lines_before + line)))
            }
            Ok(false) => Ok(None),
            Err(_) if self.csv.get_ref().left == 0 => {
                let mebibytes = (MAX_ROW >> 20) as u64;
                Err(ProfileError::Endless { file: file.to_owned(), line: begin, mebibytes })
            }
            Err(error) => Err(ProfileError::csv(file)(error)),
        }
    }
}

#[derive(Debug)]
pub struct RecordReader {
    table: RecordTable,
    rows: TableRows,
}

impl RecordReader {
    pub fn open(file: &Path) -> Result<Self, ProfileError> {
        Self::open_with(file, NeededColumns::Signatures)
    }

    pub(crate) fn open_with(file: &Path, needed: NeededColumns) -> Result<Self, ProfileError> {
        Self::of_table(RecordTable::open(file, needed)?)
    }

    pub(super) fn of_table(table: RecordTable) -> Result<Self, ProfileError> {
        let rows = TableRows::new(table.open_rows()?, table.header_lines + u64::from(table.is_crlf));
        Ok(Self { table, rows })
    }

    /// Reads the next record; `None` at the end. A row with too few or too many fields is an error.
    pub fn read_record(&mut self) -> Result<Option<KernelRow<'_>>, ProfileError> {
        let Self { table, rows } = self;
        let Some((row, line)) = rows.next_row(&table.file)? else { return Ok(None) };
        let (fields, columns) = (row.len(), table.header.len());
        let shift = fields.saturating_sub(columns);
        if fields == columns || (shift > 0 && table.has_type_behind_commas(row, shift)) {
            return Ok(Some(KernelRow { table, cells: RecordCells::Csv(row), line, shift }));
        }
        if shift > 0 && table.is_record_from_its_end(row, shift) {
            return Err(ProfileError::CommaInName { file: table.file.clone(), line, fields, columns });
        }
        let column = table.header.get(fields).map(String::from_utf8_lossy);
        let place = missing_field_text(fields, columns, column);
        Err(ProfileError::Ragged { file: table.file.clone(), line, fields, columns, place })
    }
}

#[derive(Clone, Copy, Debug)]
pub struct KernelRow<'a> {
    table: &'a RecordTable,
    cells: RecordCells<'a>,
    line: u64,
    /// Number of commas in the name, which the exporter does not quote: cells behind the name are counted from the row's end.
    shift: usize,
}

#[derive(Clone, Copy, Debug)]
enum RecordCells<'a> {
    Csv(&'a ByteRecord),
    Fast(&'a simd_csv::ByteRecord),
}

impl<'a> KernelRow<'a> {
    /// Creates a record whose line is unknown; [`RecordReader`] counts lines.
    pub(super) const fn unplaced(table: &'a RecordTable, cells: &'a simd_csv::ByteRecord) -> Self {
        Self { table, cells: RecordCells::Fast(cells), line: 0, shift: 0 }
    }

    fn cell(&self, column: Column) -> &'a [u8] {
        self.cell_at(self.table.columns.place(column))
    }

    #[inline]
    fn cell_at(&self, column: Option<usize>) -> &'a [u8] {
        let Some(column) = column else { return b"" };
        match self.cells {
            RecordCells::Csv(row) if self.shift > 0 => {
                let is_behind = self.table.columns.place(Column::Name).is_some_and(|name| column > name);
                row.get(if is_behind { column + self.shift } else { column }).unwrap_or_default()
            }
            RecordCells::Csv(row) => row.get(column).unwrap_or_default(),
            RecordCells::Fast(row) => row.get(column).unwrap_or_default(),
        }
    }

    pub const fn line(&self) -> u64 {
        self.line
    }

    pub fn kernel(&self) -> &'a [u8] {
        self.cell(Column::Kernel).trim_ascii()
    }

    pub fn name(&self) -> &'a [u8] {
        self.cell(Column::Name)
    }

    pub(crate) fn core(&self) -> &'a [u8] {
        self.cell(Column::Core).trim_ascii()
    }

    pub(crate) fn task(&self) -> RecordedTask {
        let text = |cell: &[u8]| match cell.trim_ascii() {
            b"N/A" => String::new(),
            cell => String::from_utf8_lossy(cell).replace(char::is_control, "\u{fffd}"),
        };
        let state = text(self.cell(Column::State));
        let operator = RecordedTask::unnumbered_operator(&text(self.name()), &text(self.kernel()));
        RecordedTask { state, core: text(self.core()), operator }
    }

    /// Returns the six cells of the signature: shapes, types, formats of inputs, then of outputs.
    pub fn signature_cells(&self) -> [&'a [u8]; 6] {
        self.table.columns.cells.map(|column| self.cell_at(column))
    }

    pub fn input_cells(&self) -> Result<SignatureCells<'a>, ProfileError> {
        self.cells_from(0)
    }

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

    pub fn duration(&self) -> Result<Option<Nanos>, ProfileError> {
        self.parse_time(Column::Duration, "Duration(us)")
    }

    pub fn start(&self) -> Result<Option<Nanos>, ProfileError> {
        self.parse_time(Column::Start, "Start Time(us)")
    }

    /// Parses start and duration, which is between 0 and an hour; `None` if one of both is not recorded.
    pub(crate) fn start_and_duration(&self) -> Result<Option<(Nanos, Nanos)>, ProfileError> {
        let times = self.start()?.zip(self.duration()?);
        if times.is_some_and(|(_, duration)| duration.0 != 0 && !duration.is_kernel_duration()) {
            let (cell, problem) = (self.cell(Column::Duration), "is not between 0 and an hour".to_owned());
            return Err(self.bad_cell("Duration(us)", cell, problem));
        }
        Ok(times)
    }

    fn parse_time(&self, column: Column, name: &'static str) -> Result<Option<Nanos>, ProfileError> {
        let cell = self.cell(column);
        match Nanos::parse_micros(cell) {
            Ok(time) => Ok(Some(time)),
            Err(NanosError::Absent) => Ok(None),
            Err(error) => Err(self.bad_cell(name, cell, error.to_string())),
        }
    }

    fn bad_cell(&self, column: &'static str, cell: &[u8], problem: String) -> ProfileError {
        ProfileError::bad_cell(&self.table.file, RecordPosition::Line(self.line), column, cell, problem)
    }

    pub fn has_device_column(&self) -> bool {
        self.table.columns.place(Column::Device).is_some()
    }

    pub fn device(&self) -> Option<u32> {
        self.number(Column::Device)
    }

    /// Returns the number in a column; `None` if the table has no such column or the record no number in it.
    pub(crate) fn number<T: std::str::FromStr>(&self, column: Column) -> Option<T> {
        std::str::from_utf8(self.cell(column)).ok()?.trim().parse().ok()
    }

    /// Returns true for a product of FLOAT in HF32; `None` if the mode is not recorded.
    pub(crate) fn is_hf32(&self) -> Option<bool> {
        is_recorded(self.cell(Column::Hf32)).then(|| self.as_record().is_hf32_product())
    }

    /// Returns true if the matrix units were busy; `None` if it is not recorded.
    pub(crate) fn uses_cube(&self) -> Option<bool> {
        self.counter(MAC_TIME).map(|millionths| millionths > 0)
    }

    /// Returns a counter in millionths; `None` if it is absent or `N/A`.
    #[inline]
    pub(super) fn counter(&self, counter: usize) -> Option<i64> {
        parse_micro(self.cell_at(self.table.columns.counters[counter]))
    }

    /// Returns true for the cell of a counter that is neither a number nor `N/A`.
    #[inline]
    pub(super) fn has_damaged_counter(&self, counter: usize) -> bool {
        let cell = self.cell_at(self.table.columns.counters[counter]).trim_ascii();
        !matches!(cell, b"" | b"N/A" | b"NA" | b"-") && parse_micro(cell).is_none()
    }

    /// Returns the counters in the order of [`COUNTERS`]; `None` if absent or `N/A`.
    pub fn counters(&self) -> impl Iterator<Item = Option<f64>> + 'a {
        let record = *self;
        (0..COUNTERS.len()).map(move |counter| Some(record.counter(counter)? as f64 / 1e6))
    }

    pub(super) fn as_record(&self) -> KernelRecord<'a> {
        const NAMES: RecordNames =
            ["Type", CELLS[0], CELLS[1], CELLS[2], CELLS[3], CELLS[4], CELLS[5], "Duration(us)"];
        KernelRecord {
            file: &self.table.file,
            place: RecordPosition::Line(self.line),
            names: &NAMES,
            name: self.name(),
            kernel: self.kernel(),
            cells: self.signature_cells(),
            state: self.cell(Column::State),
            core: self.cell(Column::Core),
            hf32: self.cell(Column::Hf32),
        }
    }
}
