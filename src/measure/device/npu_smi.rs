//! Parser of the table of `npu-smi info`, in its layouts from the 310P to the Ascend 950: chips of a host, their state,
//! and the processes that use them. Its submodule [`chip_map`] parses `npu-smi info -m`, the numbers of the chips.
//!
//! Every layout prints two lines for each chip under two lines of titles, then a table of processes. Cells are
//! separated by `|`, the values inside a cell by the titles above them: the n-th value belongs to the n-th title.
//! Widths and offsets differ between drivers and are ignored. A line that does not match its titles is an error and
//! never a guess, because a shifted value would pass for a measurement and a shifted index would measure on another
//! user's device.

mod chip_map;

use std::{fmt, str::FromStr};

pub use chip_map::LogicalIdSource;
pub(crate) use chip_map::parse_chip_map;
use serde::Serialize;

use crate::kernel::LogicalDeviceId;

/// Content of `npu-smi info`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NpuSmiInfo {
    /// Version of `npu-smi`, such as `25.0.rc1`; empty if the text starts below that line.
    pub version: String,
    /// The chips, in the order of the table; empty only in [`Self::without_chips`], and no two have the same `physical_id`.
    pub chips: Vec<NpuChip>,
    /// Source of the logical numbers of the chips.
    pub logical_ids: LogicalIdSource,
    /// The processes that use chips, in the order of the table.
    pub processes: Vec<NpuProcess>,
}

/// One chip: a die of an A3 card, the whole card elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NpuChip {
    /// Id of the card, the argument of `npu-smi -i`. Ids need not be contiguous.
    pub npu: u32,
    /// Chip on its card, the argument of `npu-smi -c`; 0 if the table has no such column.
    pub chip: u32,
    /// Number of the device for people, `--devices`, leases, health and the ledger: `Phy-ID` or `Device` if the table
    /// has that column, else the card's id, else (several chips on one card) the position in the table. Inside a
    /// container, the 910 has the numbers of the host; the 310P and the 950 show logical numbers only.
    pub physical_id: u32,
    /// Number of the device for torch and profiles: the position in the table until
    /// [`NpuSmiInfo::apply_chip_map`] replaces it.
    pub logical_id: LogicalDeviceId,
    /// Name of the chip, such as `910B3`; `Ascend910` for every model of A3.
    pub name: String,
    /// `OK`, or the problem (`Warning`, `Alarm`, `Critical`, `UNKNOWN`).
    pub health: String,
    /// Watts. On A3 the first die shows the whole card's power and the second none.
    pub power_w: Option<f64>,
    /// Degrees Celsius.
    pub temperature_c: Option<i64>,
    /// Use of the AI cores, or on the Ascend 950 of the NPU, in percent.
    pub aicore_percent: Option<u32>,
    /// Device memory in use: HBM, or the chip's own memory if the table has no HBM column.
    pub memory_used_mb: Option<u64>,
    /// Total device memory, of the same kind as `memory_used_mb`.
    pub memory_total_mb: Option<u64>,
    /// The PCI address, such as `0000:C1:00.0`.
    pub bus_id: Option<String>,
    /// `Chip Phy-ID` of `npu-smi info -m`, the number on the host also inside a container; `None` in layouts without
    /// it and until [`NpuSmiInfo::apply_chip_map`].
    pub host_id: Option<u32>,
}

/// One process on one chip; a process that holds several chips is listed for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NpuProcess {
    /// The card's id.
    pub npu: u32,
    /// Chip on its card, if the table has it.
    pub chip: Option<u32>,
    /// Process id on the host, also inside a container.
    pub pid: u32,
    /// Process id inside the container, in tables of newer drivers; `None` for a process outside of it.
    pub container_pid: Option<u32>,
    /// The first 15 bytes of the process's name; may be empty.
    pub name: String,
    /// Device memory of the process.
    pub memory_mb: Option<u64>,
}

/// Text that is not the table of `npu-smi info`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NpuSmiError {
    /// Text without the titles of every layout.
    #[error(
        "expected the table of `npu-smi info` with the titles `NPU`, `Name` and `Health`, found {0}; \
         run `npu-smi info` by hand to see its output"
    )]
    NotTheTable(String),
    /// Text without the titles of `npu-smi info -m`.
    #[error("expected the titles `NPU ID` and `Chip ID` of `npu-smi info -m`, found {0}")]
    NotTheChipMap(String),
    /// Line that does not match the titles above it.
    #[error("line {line}: expected {expected}, found {found}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// Expected content.
        expected: String,
        /// Found content, in quotes.
        found: String,
    },
    /// Titles without a chip below them.
    #[error("expected two lines for each chip below the titles of `npu-smi info`, found no chip")]
    NoChips,
    /// Two chips with one device index, so that neither can be selected safely.
    #[error("expected one chip for each device index, found index {0} at two chips")]
    SameDevice(u32),
    /// Chip of the table without a number in `npu-smi info -m`.
    #[error("expected a logic id for each chip, found none for NPU {npu}, chip {chip}")]
    NoLogicId {
        /// The card.
        npu: u32,
        /// Chip on its card.
        chip: u32,
    },
    /// Two chips with one logic id.
    #[error("expected one chip for each logic id, found id {0} at two chips")]
    SameLogicId(LogicalDeviceId),
}

impl NpuSmiInfo {
    /// Content for a host all of whose chips are lost.
    pub(crate) const fn without_chips() -> Self {
        Self {
            version: String::new(),
            chips: Vec::new(),
            logical_ids: LogicalIdSource::TablePosition,
            processes: Vec::new(),
        }
    }

    /// Returns the processes of a chip; if the table names only cards, those of its card.
    pub fn processes_on(&self, chip: &NpuChip) -> impl Iterator<Item = &NpuProcess> {
        let (npu, die) = (chip.npu, chip.chip);
        self.processes
            .iter()
            .filter(move |process| process.npu == npu && process.chip.is_none_or(|chip| chip == die))
    }
}

/// Parses the output of `npu-smi info`. Lines outside the frame (separators, warnings of the driver) and remarks that
/// span a whole line are ignored.
pub fn parse_info(text: &str) -> Result<NpuSmiInfo, NpuSmiError> {
    let mut lines = text.lines().enumerate().filter_map(|(index, line)| FrameLine::new(index + 1, line));
    let mut version = String::new();
    let upper = loop {
        let Some(line) = lines.next() else {
            let first = text.lines().map(str::trim).find(|line| !line.is_empty());
            return Err(NpuSmiError::NotTheTable(first.map_or("nothing".to_owned(), quote_line)));
        };
        if let Some(("npu-smi", rest)) = line.cells.first().and_then(|cell| cell.split_once(' ')) {
            version = rest.split_whitespace().next().unwrap_or_default().to_owned();
        }
        let titles = TitleLine::new(&line);
        let required = [ColumnKind::Npu, ColumnKind::Name, ColumnKind::Health];
        if required.iter().all(|&wanted| titles.has_column(wanted)) {
            break titles;
        }
    };
    let lower = match lines.next() {
        Some(line) if line.has_column(ColumnKind::BusId) => TitleLine::new(&line),
        other => return Err(missing_line_error(upper.line, "a second line of titles with `Bus-Id`", other)),
    };

    let mut rows = Vec::new();
    let mut processes = Vec::new();
    while let Some(line) = lines.next() {
        if line.has_column(ColumnKind::Pid) {
            processes = read_processes(&TitleLine::new(&line), lines)?;
            break;
        }
        if line.is_remark() {
            continue;
        }
        let first = upper.row_values(&line)?;
        // After a lost second line, titles or the next chip's first line must not be taken for it.
        let second = match lines.next() {
            Some(line) if !line.has_column(ColumnKind::Pid) => lower.row_values(&line)?,
            other => return Err(missing_line_error(first.line, "the chip's second line", other)),
        };
        rows.push((first, second));
    }
    let mut chips =
        rows.iter().map(|(first, second)| read_chip(first, second)).collect::<Result<Vec<_>, _>>()?;
    number_devices(&mut chips, lower.has_column(ColumnKind::Device))?;
    Ok(NpuSmiInfo { version, chips, logical_ids: LogicalIdSource::TablePosition, processes })
}

fn read_chip(first: &TitledValues, second: &TitledValues) -> Result<NpuChip, NpuSmiError> {
    let npu = first.npu_id()?;
    let memory =
        if second.value_and_title(ColumnKind::Hbm).is_some() { ColumnKind::Hbm } else { ColumnKind::Memory };
    let (memory_used_mb, memory_total_mb) = second.used_and_total(memory)?;
    let bus_id = second.text_value(ColumnKind::BusId);
    Ok(NpuChip {
        npu,
        chip: second.required_number(ColumnKind::Chip)?.unwrap_or(0),
        physical_id: second.required_number(ColumnKind::Device)?.unwrap_or(npu),
        logical_id: LogicalDeviceId::default(),
        name: first.text_value(ColumnKind::Name).to_owned(),
        health: first.text_value(ColumnKind::Health).to_owned(),
        power_w: first.optional_number(ColumnKind::Power)?.filter(|watts: &f64| watts.is_finite()),
        temperature_c: first.optional_number(ColumnKind::Temperature)?,
        aicore_percent: second.optional_number(ColumnKind::Use)?,
        memory_used_mb,
        memory_total_mb,
        bus_id: (!is_absent(bus_id)).then(|| bus_id.to_owned()),
        host_id: None,
    })
}

/// Numbers the chips by position as torch does; checks that their physical numbers are unique, or numbers them, too,
/// if the table has no column with such numbers (`printed` is false).
fn number_devices(chips: &mut [NpuChip], printed: bool) -> Result<(), NpuSmiError> {
    if chips.is_empty() {
        return Err(NpuSmiError::NoChips);
    }
    for (position, chip) in (0..).zip(chips.iter_mut()) {
        chip.logical_id = LogicalDeviceId(position);
    }
    let mut devices: Vec<u32> = chips.iter().map(|chip| chip.physical_id).collect();
    devices.sort_unstable();
    let Some(twice) = devices.windows(2).find(|pair| pair[0] == pair[1]) else { return Ok(()) };
    if printed {
        return Err(NpuSmiError::SameDevice(twice[0]));
    }
    for chip in chips {
        chip.physical_id = chip.logical_id.0;
    }
    Ok(())
}

fn read_processes<'t>(
    titles: &TitleLine,
    lines: impl Iterator<Item = FrameLine<'t>>,
) -> Result<Vec<NpuProcess>, NpuSmiError> {
    let mut processes = Vec::new();
    // `No running processes found in NPU 3` is a remark, as is any other text that spans the line.
    for line in lines.filter(|line| !line.is_remark()) {
        let row = titles.row_values(&line)?;
        // The Ascend 950 shows a free card as a row of NA.
        if let Some(pid) = row.optional_number(ColumnKind::Pid)? {
            processes.push(NpuProcess {
                npu: row.npu_id()?,
                chip: row.optional_number(ColumnKind::Chip)?,
                pid,
                container_pid: row.optional_number(ColumnKind::ContainerPid)?,
                name: row.text_value(ColumnKind::ProcessName).to_owned(),
                memory_mb: row.optional_number(ColumnKind::ProcessMemory)?,
            });
        }
    }
    Ok(processes)
}

/// Meaning of a title.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnKind {
    Npu,
    Name,
    Health,
    Power,
    Temperature,
    Chip,
    Device,
    BusId,
    Use,
    Memory,
    Hbm,
    Pid,
    ContainerPid,
    ProcessName,
    ProcessMemory,
    /// Column that npubench does not read; it still has a value.
    Other,
}

/// Titles in lower case, word by word; a longer title precedes its prefix. Units belong to the title: a table in GB
/// must not be read as one in MB.
const TITLES: [(&[&str], ColumnKind); 20] = [
    (&["process", "id", "in", "container"], ColumnKind::ContainerPid),
    (&["process", "id"], ColumnKind::Pid),
    (&["process", "name"], ColumnKind::ProcessName),
    (&["process", "memory(mb)"], ColumnKind::ProcessMemory),
    (&["npu", "util(%)"], ColumnKind::Use),
    (&["npu", "id"], ColumnKind::Npu),
    (&["npu"], ColumnKind::Npu),
    (&["chip", "id"], ColumnKind::Chip),
    (&["chip"], ColumnKind::Chip),
    (&["phy-id"], ColumnKind::Device),
    (&["device"], ColumnKind::Device),
    (&["name"], ColumnKind::Name),
    (&["health"], ColumnKind::Health),
    (&["power(w)"], ColumnKind::Power),
    (&["temp(c)"], ColumnKind::Temperature),
    (&["hugepages-usage(page)"], ColumnKind::Other),
    (&["bus-id"], ColumnKind::BusId),
    (&["aicore(%)"], ColumnKind::Use),
    (&["memory-usage(mb)"], ColumnKind::Memory),
    (&["hbm-usage(mb)"], ColumnKind::Hbm),
];

/// Line inside the frame, split into cells.
struct FrameLine<'t> {
    number: usize,
    text: &'t str,
    cells: Vec<&'t str>,
}

impl<'t> FrameLine<'t> {
    fn new(number: usize, line: &'t str) -> Option<Self> {
        let text = line.trim();
        let inner = text.strip_prefix('|')?;
        let inner = inner.strip_suffix('|').unwrap_or(inner);
        Some(Self { number, text, cells: inner.split('|').map(str::trim).collect() })
    }

    fn has_column(&self, meaning: ColumnKind) -> bool {
        TitleLine::new(self).has_column(meaning)
    }

    /// Returns true for a remark over the whole width.
    fn is_remark(&self) -> bool {
        self.cells.len() == 1
    }
}

/// One title of a cell.
struct TitleColumn {
    meaning: ColumnKind,
    title: String,
}

/// Splits a cell of a line of titles. An unknown title ends with its unit, at the next known one or at the end of the
/// cell.
fn title_columns(cell: &str) -> Vec<TitleColumn> {
    let lower = cell.to_ascii_lowercase();
    let folded: Vec<&str> = lower.split_whitespace().collect();
    let words: Vec<&str> = cell.split_whitespace().collect();
    let mut columns: Vec<TitleColumn> = Vec::new();
    let mut at = 0;
    let mut unknown_is_open = false;
    while at < folded.len() {
        let known = TITLES.iter().find(|(title, _)| folded[at..].starts_with(title));
        let (length, meaning) =
            known.map_or((1, ColumnKind::Other), |(title, meaning)| (title.len(), *meaning));
        let title = words[at..at + length].join(" ");
        match columns.last_mut() {
            Some(open) if known.is_none() && unknown_is_open => {
                open.title.push(' ');
                open.title.push_str(&title);
            }
            _ => columns.push(TitleColumn { meaning, title }),
        }
        at += length;
        unknown_is_open = known.is_none() && !folded[at - 1].ends_with(')');
    }
    columns
}

/// A line of titles.
struct TitleLine {
    line: usize,
    cells: Vec<Vec<TitleColumn>>,
}

impl TitleLine {
    fn new(line: &FrameLine<'_>) -> Self {
        Self { line: line.number, cells: line.cells.iter().map(|cell| title_columns(cell)).collect() }
    }

    fn has_column(&self, meaning: ColumnKind) -> bool {
        self.cells.iter().flatten().any(|column| column.meaning == meaning)
    }

    /// Assigns a line's values to the titles.
    fn row_values<'a>(&'a self, line: &FrameLine<'_>) -> Result<TitledValues<'a>, NpuSmiError> {
        let misfit =
            |expected| NpuSmiError::Line { line: line.number, expected, found: quote_line(line.text) };
        if line.cells.len() != self.cells.len() {
            return Err(misfit(format!("{} cells, as the titles have", self.cells.len())));
        }
        let mut values = Vec::new();
        for (columns, cell) in self.cells.iter().zip(&line.cells) {
            let found = values_of(columns, cell).ok_or_else(|| {
                let titles = columns.iter().map(|column| format!("`{}`", column.title));
                misfit(format!("one value for each of {}", titles.collect::<Vec<_>>().join(", ")))
            })?;
            values.extend(columns.iter().zip(found));
        }
        Ok(TitledValues { line: line.number, values })
    }
}

/// Returns the values of a cell, one for each title. A name gets all words that the titles before it leave, so that
/// it may be empty or have blanks.
fn values_of(columns: &[TitleColumn], cell: &str) -> Option<Vec<String>> {
    if let [_] = columns {
        return Some(vec![cell.to_owned()]);
    }
    let mut tokens = cell_tokens(cell);
    let is_named = columns.last().is_some_and(|column| column.meaning == ColumnKind::Name);
    if is_named && tokens.len() + 1 >= columns.len() {
        let name = tokens.split_off(columns.len() - 1).join(" ");
        tokens.push(name);
    }
    (tokens.len() == columns.len()).then_some(tokens)
}

/// Splits a cell into words, with `59891/ 65536` and `3379 / 65536` as one word each.
fn cell_tokens(cell: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    for word in cell.split_whitespace() {
        match tokens.last_mut() {
            Some(last) if last.ends_with('/') || word.starts_with('/') => last.push_str(word),
            _ => tokens.push(word.to_owned()),
        }
    }
    tokens
}

/// Values of a line with their titles.
struct TitledValues<'a> {
    line: usize,
    values: Vec<(&'a TitleColumn, String)>,
}

impl TitledValues<'_> {
    /// Returns a value and its title, if the table has such a column.
    fn value_and_title(&self, meaning: ColumnKind) -> Option<(&str, &str)> {
        let (column, value) = self.values.iter().find(|(column, _)| column.meaning == meaning)?;
        Some((value, &column.title))
    }

    fn text_value(&self, meaning: ColumnKind) -> &str {
        self.value_and_title(meaning).map_or("", |(value, _)| value)
    }

    /// Parses a number; `None` without such a column or for `NA` or `-`.
    fn optional_number<T: FromStr>(&self, meaning: ColumnKind) -> Result<Option<T>, NpuSmiError> {
        if is_absent(self.text_value(meaning)) { Ok(None) } else { self.required_number(meaning) }
    }

    /// Parses a number; an existing column must have one.
    fn required_number<T: FromStr>(&self, meaning: ColumnKind) -> Result<Option<T>, NpuSmiError> {
        let Some((value, title)) = self.value_and_title(meaning) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| self.line_error(format_args!("a number for `{title}`"), value))
    }

    fn npu_id(&self) -> Result<u32, NpuSmiError> {
        self.required_number(ColumnKind::Npu)?
            .ok_or_else(|| self.line_error(format_args!("a column `NPU`"), "none"))
    }

    /// Parses two numbers around a slash: used and total.
    fn used_and_total(&self, meaning: ColumnKind) -> Result<(Option<u64>, Option<u64>), NpuSmiError> {
        let Some((value, title)) = self.value_and_title(meaning) else { return Ok((None, None)) };
        if is_absent(value) {
            return Ok((None, None));
        }
        let half = |text: &str| {
            let text = text.trim();
            if is_absent(text) { Some(None) } else { text.parse().ok().map(Some) }
        };
        let halves = value.split_once('/').and_then(|(used, total)| Some((half(used)?, half(total)?)));
        halves.ok_or_else(|| self.line_error(format_args!("`used / total` for `{title}`"), value))
    }

    fn line_error(&self, expected: fmt::Arguments<'_>, found: &str) -> NpuSmiError {
        NpuSmiError::Line { line: self.line, expected: expected.to_string(), found: quote_line(found) }
    }
}

fn is_absent(value: &str) -> bool {
    matches!(value, "" | "-" | "--" | "NA" | "N/A")
}

fn missing_line_error(line: usize, expected: &str, found: Option<FrameLine<'_>>) -> NpuSmiError {
    let end = || (line, "the end of the text".to_owned());
    let (line, found) = found.map_or_else(end, |found| (found.number, quote_line(found.text)));
    NpuSmiError::Line { line, expected: expected.to_owned(), found }
}

/// Formats a text for a message: in backquotes, blanks squeezed, and truncated to a line of the screen.
fn quote_line(text: &str) -> String {
    let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut short: String = squeezed.chars().take(80).collect();
    if short.len() < squeezed.len() {
        short.push('…');
    }
    format!("`{short}`")
}

#[cfg(test)]
mod tests;
