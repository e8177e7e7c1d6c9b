//! The table of `npu-smi info`: which chips a host has, how they are, and which processes hold them.
//!
//! Owns the layouts of that table, from the 310P to the Ascend 950. Reads text that somebody else
//! captured; never spawns a process.
//!
//! Every layout prints two lines for each chip under two lines of titles, then a table of processes.
//! Cells are told apart by `|`, the values inside a cell by the titles above them: the n-th value
//! belongs to the n-th title. Widths and offsets differ between drivers and are not looked at. A line
//! that does not fit its titles is an error and never a guess, because a shifted value would pass for
//! a measurement and a shifted index would measure on somebody else's device.

use std::{fmt, str::FromStr};

use serde::Serialize;

/// What `npu-smi info` says about a host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NpuSmiInfo {
    /// The version of `npu-smi`, such as `25.0.rc1`; empty where the text begins below that line.
    pub version: String,
    /// The chips, in the order of the table; never empty, and no two have the same `device`.
    pub chips: Vec<NpuChip>,
    /// The processes that hold chips, in the order of the table.
    pub processes: Vec<NpuProcess>,
}

/// One chip: a die of an A3 card, the whole card elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NpuChip {
    /// The card's id, which `npu-smi -i` takes. Ids need not be contiguous.
    pub npu: u32,
    /// The chip on its card, which `npu-smi -c` takes; 0 where the table has no such column.
    pub chip: u32,
    /// The index for `torch.npu.set_device`: `Phy-ID` or `Device` where the table has that column,
    /// else the card's id, else (several chips on one card) the place in the table.
    ///
    /// That is the host's count. In a container that sees a part of the devices the runtime may
    /// count from 0; the place in [`NpuSmiInfo::chips`] is that count.
    pub device: u32,
    /// The chip's name, such as `910B3`; A3 says `Ascend910` whatever the model.
    pub name: String,
    /// `OK`, or what is wrong (`Warning`, `Alarm`, `Critical`, `UNKNOWN`).
    pub health: String,
    /// Watts. On A3 the first die shows the whole card's power and the second none.
    pub power_w: Option<f64>,
    /// Degrees Celsius.
    pub temperature_c: Option<i64>,
    /// Use of the AI cores, or on the Ascend 950 of the NPU, in percent.
    pub aicore_percent: Option<u32>,
    /// Device memory in use: HBM, or the chip's own memory where the table has no HBM column. An
    /// idle chip holds about 3 GB, so idle is not 0.
    pub memory_used_mb: Option<u64>,
    /// Device memory in all, of the same kind as `memory_used_mb`.
    pub memory_total_mb: Option<u64>,
    /// The PCI address, such as `0000:C1:00.0`.
    pub bus_id: Option<String>,
}

/// One process on one chip; a process that holds several chips is listed for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NpuProcess {
    /// The card's id.
    pub npu: u32,
    /// The chip on its card, where the table says so.
    pub chip: Option<u32>,
    /// The process id on the host, also when asked inside a container.
    pub pid: u32,
    /// The first 15 bytes of the process's name; may be empty.
    pub name: String,
    /// Device memory that the process holds.
    pub memory_mb: Option<u64>,
}

/// Why a text is not the table of `npu-smi info`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NpuSmiError {
    /// No line has the titles that every layout begins with.
    #[error(
        "expected the table of `npu-smi info` with the titles `NPU`, `Name` and `Health`, found {found}; \
         run `npu-smi info` by hand to see what it says"
    )]
    NotTheTable {
        /// The text's first line that is not blank, in quotes, or `nothing`.
        found: String,
    },
    /// A line does not fit the titles above it.
    #[error("line {line}: expected {expected}, found {found}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What would have fitted.
        expected: String,
        /// What stands there, in quotes.
        found: String,
    },
    /// Titles without a chip below them.
    #[error("expected two lines for each chip below the titles of `npu-smi info`, found no chip")]
    NoChips,
    /// Two chips claim one device index, so that neither can be chosen safely.
    #[error("expected one chip for each device index, found index {device} at two chips")]
    SameDevice {
        /// The index.
        device: u32,
    },
}

impl NpuSmiInfo {
    /// The processes that hold a chip; where the table names only cards, those of its card.
    pub fn processes_on(&self, chip: &NpuChip) -> impl Iterator<Item = &NpuProcess> {
        let (npu, die) = (chip.npu, chip.chip);
        self.processes
            .iter()
            .filter(move |process| process.npu == npu && process.chip.is_none_or(|chip| chip == die))
    }
}

/// Reads what `npu-smi info` prints, in any of its layouts. Lines outside the frame (separators,
/// warnings of the driver) and remarks that span a whole line are passed over.
///
/// # Errors
/// [`NpuSmiError`] where the text is not that table, or a line does not fit its titles.
pub fn parse_info(text: &str) -> Result<NpuSmiInfo, NpuSmiError> {
    let mut lines = text.lines().enumerate().filter_map(|(index, line)| FrameLine::new(index + 1, line));
    let mut version = String::new();
    let upper = loop {
        let Some(line) = lines.next() else {
            let first = text.lines().map(str::trim).find(|line| !line.is_empty());
            return Err(NpuSmiError::NotTheTable { found: first.map_or("nothing".to_owned(), quoted) });
        };
        if let Some(("npu-smi", rest)) = line.cells.first().and_then(|cell| cell.split_once(' ')) {
            version = rest.split_whitespace().next().unwrap_or_default().to_owned();
        }
        let titles = TitleLine::new(&line);
        if [ColumnKind::Npu, ColumnKind::Name, ColumnKind::Health].iter().all(|&wanted| titles.has(wanted)) {
            break titles;
        }
    };
    let lower = match lines.next() {
        Some(line) if line.has(ColumnKind::BusId) => TitleLine::new(&line),
        other => return Err(not_followed(upper.line, "a second line of titles with `Bus-Id`", other)),
    };

    let mut rows = Vec::new();
    let mut processes = Vec::new();
    while let Some(line) = lines.next() {
        if line.has(ColumnKind::Pid) {
            processes = read_processes(&TitleLine::new(&line), lines)?;
            break;
        }
        if line.is_remark() {
            continue;
        }
        let first = upper.row(&line)?;
        // A lost second line must not make titles or the next chip's first line stand in for it.
        let second = match lines.next() {
            Some(line) if !line.has(ColumnKind::Pid) => lower.row(&line)?,
            other => return Err(not_followed(first.line, "the chip's second line", other)),
        };
        rows.push((first, second));
    }
    let mut chips =
        rows.iter().map(|(first, second)| read_chip(first, second)).collect::<Result<Vec<_>, _>>()?;
    number_devices(&mut chips, lower.has(ColumnKind::Device))?;
    Ok(NpuSmiInfo { version, chips, processes })
}

fn read_chip(first: &TitledValues, second: &TitledValues) -> Result<NpuChip, NpuSmiError> {
    let npu = first.npu()?;
    let memory = if second.get(ColumnKind::Hbm).is_some() { ColumnKind::Hbm } else { ColumnKind::Memory };
    let (memory_used_mb, memory_total_mb) = second.pair(memory)?;
    let bus_id = second.text(ColumnKind::BusId);
    Ok(NpuChip {
        npu,
        chip: second.id(ColumnKind::Chip)?.unwrap_or(0),
        device: second.id(ColumnKind::Device)?.unwrap_or(npu),
        name: first.text(ColumnKind::Name).to_owned(),
        health: first.text(ColumnKind::Health).to_owned(),
        power_w: first.number(ColumnKind::Power)?.filter(|watts: &f64| watts.is_finite()),
        temperature_c: first.number(ColumnKind::Temperature)?,
        aicore_percent: second.number(ColumnKind::Use)?,
        memory_used_mb,
        memory_total_mb,
        bus_id: (!is_absent(bus_id)).then(|| bus_id.to_owned()),
    })
}

/// Sees to it that every chip has an index of its own. `printed` says that the table gave them.
fn number_devices(chips: &mut [NpuChip], printed: bool) -> Result<(), NpuSmiError> {
    if chips.is_empty() {
        return Err(NpuSmiError::NoChips);
    }
    let mut devices: Vec<u32> = chips.iter().map(|chip| chip.device).collect();
    devices.sort_unstable();
    let Some(twice) = devices.windows(2).find(|pair| pair[0] == pair[1]) else { return Ok(()) };
    if printed {
        return Err(NpuSmiError::SameDevice { device: twice[0] });
    }
    for (device, chip) in (0..).zip(chips) {
        chip.device = device;
    }
    Ok(())
}

fn read_processes<'t>(
    titles: &TitleLine,
    lines: impl Iterator<Item = FrameLine<'t>>,
) -> Result<Vec<NpuProcess>, NpuSmiError> {
    let mut processes = Vec::new();
    // `No running processes found in NPU 3` is a remark, and so is whatever else spans the line.
    for line in lines.filter(|line| !line.is_remark()) {
        let row = titles.row(&line)?;
        // The Ascend 950 shows a free card as a row of NA.
        if let Some(pid) = row.number(ColumnKind::Pid)? {
            processes.push(NpuProcess {
                npu: row.npu()?,
                chip: row.number(ColumnKind::Chip)?,
                pid,
                name: row.text(ColumnKind::ProcessName).to_owned(),
                memory_mb: row.number(ColumnKind::ProcessMemory)?,
            });
        }
    }
    Ok(processes)
}

/// What a title says about the value below it.
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
    ProcessName,
    ProcessMemory,
    /// A column that npubench does not read; it still takes its value.
    Other,
}

/// Titles in lower case, word by word; one that begins like another stands before it. Units belong
/// to the title: a table in GB must not be read as one in MB.
const TITLES: [(&[&str], ColumnKind); 20] = [
    (&["process", "id", "in", "container"], ColumnKind::Other),
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

/// A line inside the frame, cut into its cells.
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

    fn has(&self, meaning: ColumnKind) -> bool {
        self.cells.iter().any(|cell| columns(cell).iter().any(|column| column.meaning == meaning))
    }

    /// Whether it is a sentence over the whole width.
    fn is_remark(&self) -> bool {
        self.cells.len() == 1
    }
}

/// One title of a cell.
struct TitleColumn {
    meaning: ColumnKind,
    title: String,
}

/// Cuts a cell of a line of titles into titles. An unknown title reaches to its unit, to the next
/// known one or to the end of the cell.
fn columns(cell: &str) -> Vec<TitleColumn> {
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
        Self { line: line.number, cells: line.cells.iter().map(|cell| columns(cell)).collect() }
    }

    fn has(&self, meaning: ColumnKind) -> bool {
        self.cells.iter().flatten().any(|column| column.meaning == meaning)
    }

    /// Puts a line's values under the titles.
    fn row<'a>(&'a self, line: &FrameLine<'_>) -> Result<TitledValues<'a>, NpuSmiError> {
        let misfit =
            |expected: String| NpuSmiError::Line { line: line.number, expected, found: quoted(line.text) };
        if line.cells.len() != self.cells.len() {
            return Err(misfit(format!("{} cells, as the titles have", self.cells.len())));
        }
        let mut values = Vec::new();
        for (columns, cell) in self.cells.iter().zip(&line.cells) {
            match values_of(columns, cell) {
                Some(found) => values.extend(columns.iter().zip(found)),
                None => {
                    let titles: Vec<String> =
                        columns.iter().map(|column| format!("`{}`", column.title)).collect();
                    return Err(misfit(format!("one value for each of {}", titles.join(", "))));
                }
            }
        }
        Ok(TitledValues { line: line.number, values })
    }
}

/// The values of a cell, one for each title. A text takes whatever the titles before it leave, so
/// that it may be empty or have blanks.
fn values_of(columns: &[TitleColumn], cell: &str) -> Option<Vec<String>> {
    if let [_] = columns {
        return Some(vec![cell.to_owned()]);
    }
    let mut tokens = tokens(cell);
    if let Some(TitleColumn { meaning: ColumnKind::Name, .. }) = columns.last()
        && tokens.len() + 1 >= columns.len()
    {
        let name = tokens.split_off(columns.len() - 1).join(" ");
        tokens.push(name);
    }
    (tokens.len() == columns.len()).then_some(tokens)
}

/// Words of a cell, with `59891/ 65536` and `3379 / 65536` as one word each.
fn tokens(cell: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    for word in cell.split_whitespace() {
        match tokens.last_mut() {
            Some(last) if last.ends_with('/') || word.starts_with('/') => last.push_str(word),
            _ => tokens.push(word.to_owned()),
        }
    }
    tokens
}

/// A line's values under their titles.
struct TitledValues<'a> {
    line: usize,
    values: Vec<(&'a TitleColumn, String)>,
}

impl TitledValues<'_> {
    /// The value and its title, where the table has such a column.
    fn get(&self, meaning: ColumnKind) -> Option<(&str, &str)> {
        let (column, value) = self.values.iter().find(|(column, _)| column.meaning == meaning)?;
        Some((value, &column.title))
    }

    fn text(&self, meaning: ColumnKind) -> &str {
        self.get(meaning).map_or("", |(value, _)| value)
    }

    /// `None` where the table has no such column or prints `NA` or `-` in it.
    fn number<T: FromStr>(&self, meaning: ColumnKind) -> Result<Option<T>, NpuSmiError> {
        let Some((value, title)) = self.get(meaning) else { return Ok(None) };
        if is_absent(value) {
            return Ok(None);
        }
        value.parse().map(Some).map_err(|_| self.misfit(format_args!("a number for `{title}`"), value))
    }

    /// Like [`TitledValues::number`], but a column that is there must have a number.
    fn id(&self, meaning: ColumnKind) -> Result<Option<u32>, NpuSmiError> {
        let Some((value, title)) = self.get(meaning) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| self.misfit(format_args!("a number for `{title}`"), value))
    }

    fn npu(&self) -> Result<u32, NpuSmiError> {
        self.id(ColumnKind::Npu)?.ok_or_else(|| self.misfit(format_args!("a column `NPU`"), "none"))
    }

    /// Two numbers around a slash: used and in all.
    fn pair(&self, meaning: ColumnKind) -> Result<(Option<u64>, Option<u64>), NpuSmiError> {
        let Some((value, title)) = self.get(meaning) else { return Ok((None, None)) };
        if is_absent(value) {
            return Ok((None, None));
        }
        let half = |text: &str| {
            let text = text.trim();
            if is_absent(text) { Some(None) } else { text.parse().ok().map(Some) }
        };
        value
            .split_once('/')
            .and_then(|(used, total)| Some((half(used)?, half(total)?)))
            .ok_or_else(|| self.misfit(format_args!("`used / total` for `{title}`"), value))
    }

    fn misfit(&self, expected: fmt::Arguments<'_>, found: &str) -> NpuSmiError {
        NpuSmiError::Line { line: self.line, expected: expected.to_string(), found: quoted(found) }
    }
}

fn is_absent(value: &str) -> bool {
    matches!(value, "" | "-" | "--" | "NA" | "N/A")
}

fn not_followed(line: usize, expected: &str, found: Option<FrameLine<'_>>) -> NpuSmiError {
    let (line, found) =
        found.map_or((line, "the end of the text".to_owned()), |found| (found.number, quoted(found.text)));
    NpuSmiError::Line { line, expected: expected.to_owned(), found }
}

/// A text for a message: in backquotes, blanks squeezed, and not longer than a screen's line.
fn quoted(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let squeezed = words.join(" ");
    let mut short: String = squeezed.chars().take(80).collect();
    if short.len() < squeezed.len() {
        short.push('…');
    }
    format!("`{short}`")
}

#[cfg(test)]
mod tests;
