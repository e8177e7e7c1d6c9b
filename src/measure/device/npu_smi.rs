//! Parser of the table of `npu-smi info`, in its layouts from the 310P to the Ascend 950: chips of a host, their state,
//! and the processes that use them. Its submodule [`chip_map`] parses `npu-smi info -m`, the numbers of the chips.
//!
//! Every layout prints two lines for each chip under two lines of titles, then a table of processes. Cells are
//! separated by `|`, the values inside a cell by the titles above them: the n-th value belongs to the n-th title.
//! Widths and offsets differ between drivers and are ignored. A line that does not match its titles is an error and
//! never a guess, because a shifted value would pass for a measurement and a shifted index would measure on another
//! user's device.

mod chip_map;

use std::str::FromStr;

pub use chip_map::LogicalIdSource;
pub(crate) use chip_map::parse_chip_map;
use serde::Serialize;

use crate::kernel::LogicalDeviceId;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NpuSmiInfo {
    /// Version of `npu-smi`, such as `25.0.rc1`; empty if the text starts below that line.
    pub version: String,
    /// The chips, in the order of the table; empty only by default, and no two have the same `physical_id`.
    pub chips: Vec<NpuChip>,
    pub logical_ids: LogicalIdSource,
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
    pub npu: u32,
    pub chip: Option<u32>,
    /// Process id on the host, also inside a container.
    pub pid: u32,
    /// Process id inside the container, in tables of newer drivers; `None` for a process outside of it.
    pub container_pid: Option<u32>,
    /// The first 15 bytes of the process's name; may be empty.
    pub name: String,
    pub memory_mb: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NpuSmiError {
    #[error(
        "expected the table of `npu-smi info` with the titles `NPU`, `Name` and `Health`, found {0}; \
         run `npu-smi info` by hand to see its output"
    )]
    NotTheTable(String),
    #[error("expected the titles `NPU ID` and `Chip ID` of `npu-smi info -m`, found {0}")]
    NotTheChipMap(String),
    #[error("line {line}: expected {expected}, found {found}")]
    Line {
        /// Counted from 1.
        line: usize,
        expected: String,
        found: String,
    },
    #[error("expected two lines for each chip below the titles of `npu-smi info`, found no chip")]
    NoChips,
    /// Two chips with one device index, so that neither can be selected safely.
    #[error("expected one chip for each device index, found index {0} at two chips")]
    SameDevice(u32),
    #[error("expected a logic id for each chip, found none for NPU {npu}, chip {chip}")]
    NoLogicId { npu: u32, chip: u32 },
    #[error("expected one chip for each logic id, found id {0} at two chips")]
    SameLogicId(LogicalDeviceId),
}

impl NpuSmiInfo {
    /// Returns the processes of a chip; if the table names only cards, the processes of its card.
    pub fn processes_on(&self, chip: &NpuChip) -> impl Iterator<Item = &NpuProcess> {
        let (npu, die) = (chip.npu, chip.chip);
        self.processes
            .iter()
            .filter(move |process| process.npu == npu && process.chip.is_none_or(|chip| chip == die))
    }
}

impl NpuSmiInfo {
    /// Returns the chips with processes, and those of which more memory is in use than a driver takes: processes of other
    /// containers are not listed. Idle devices have up to 9 % in use in published tables. That none has 1/4 is unproven; `doctor` on
    /// an idle host of each chip decides it.
    pub(crate) fn occupied_chips(&self) -> impl Iterator<Item = &NpuChip> {
        self.chips.iter().filter(|chip| {
            let memory = chip.memory_used_mb.zip(chip.memory_total_mb);
            self.processes_on(chip).next().is_some()
                || memory.is_some_and(|(used, total)| used.saturating_mul(4) > total)
        })
    }
}

/// Parses the output of `npu-smi info`. Lines outside the frame (separators, warnings of the driver) and remarks that
/// span a whole line are ignored.
pub fn parse_info(text: &str) -> Result<NpuSmiInfo, NpuSmiError> {
    let mut lines = text.lines().zip(1..).filter_map(|(line, number)| FrameLine::new(number, line));
    let mut version = String::new();
    let upper = loop {
        let Some(line) = lines.next() else {
            return Err(NpuSmiError::NotTheTable(quote_first_line(text)));
        };
        if let Some(("npu-smi", rest)) = line.cells[0].split_once(' ') {
            version = rest.split_whitespace().next().unwrap_or_default().to_owned();
        }
        if [NPU, &["name"], &["health"]].iter().all(|titles| line.has_title(titles)) {
            break TitleLine::new(&line, &KNOWN_TITLES);
        }
    };
    let lower = match lines.next() {
        Some(line) if line.has_title(BUS_ID) => TitleLine::new(&line, &KNOWN_TITLES),
        other => return Err(missing_line_error(upper.line, "a second line of titles with `Bus-Id`", other)),
    };
    let (mut chips, mut processes) = (Vec::new(), Vec::new());
    while let Some(line) = lines.next() {
        if line.has_title(PID) {
            processes = read_processes(&TitleLine::new(&line, &KNOWN_TITLES), lines)?;
            break;
        }
        if line.cells.len() == 1 {
            continue;
        }
        let first = upper.row_values(&line)?;
        // After a lost second line, titles or the next chip's first line must not be taken for it.
        let second = match lines.next() {
            Some(line) if !line.has_title(PID) => lower.row_values(&line)?,
            other => return Err(missing_line_error(first.line, "the chip's second line", other)),
        };
        chips.push(read_chip(&first, &second)?);
    }
    number_devices(&mut chips, lower.has_title(DEVICE))?;
    Ok(NpuSmiInfo { version, chips, logical_ids: LogicalIdSource::TablePosition, processes })
}

fn read_chip(first: &TitledValues<'_>, second: &TitledValues<'_>) -> Result<NpuChip, NpuSmiError> {
    let npu = first.npu_id()?;
    let hbm: Titles = &["hbm-usage(mb)"];
    let memory = if second.value(hbm).is_some() { hbm } else { &["memory-usage(mb)"] };
    let (memory_used_mb, memory_total_mb) = second.used_and_total(memory)?;
    let bus_id = second.text(BUS_ID);
    Ok(NpuChip {
        npu,
        chip: second.required_number(CHIP)?.unwrap_or(0),
        physical_id: second.required_number(DEVICE)?.unwrap_or(npu),
        logical_id: LogicalDeviceId::default(),
        name: first.text(&["name"]).to_owned(),
        health: first.text(&["health"]).to_owned(),
        power_w: first.optional_number(&["power(w)"])?.filter(|watts: &f64| watts.is_finite()),
        temperature_c: first.optional_number(&["temp(c)"])?,
        aicore_percent: second.optional_number(&["aicore(%)", "npu util(%)"])?,
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
    chips.iter_mut().for_each(|chip| chip.physical_id = chip.logical_id.0);
    Ok(())
}

fn read_processes<'t>(
    titles: &TitleLine,
    lines: impl Iterator<Item = FrameLine<'t>>,
) -> Result<Vec<NpuProcess>, NpuSmiError> {
    let mut processes = Vec::new();
    // `No running processes found in NPU 3` is a remark, as is any other text that spans the line.
    for line in lines.filter(|line| line.cells.len() > 1) {
        let row = titles.row_values(&line)?;
        // The Ascend 950 shows a free card as a row of NA.
        if let Some(pid) = row.optional_number(PID)? {
            processes.push(NpuProcess {
                npu: row.npu_id()?,
                chip: row.optional_number(CHIP)?,
                pid,
                container_pid: row.optional_number(&["process id in container"])?,
                name: row.text(&["process name"]).to_owned(),
                memory_mb: row.optional_number(&["process memory(mb)"])?,
            });
        }
    }
    Ok(processes)
}

type Titles = &'static [&'static str];

const NPU: Titles = &["npu", "npu id"];
const CHIP: Titles = &["chip", "chip id"];
const DEVICE: Titles = &["phy-id", "device"];
const BUS_ID: Titles = &["bus-id"];
const PID: Titles = &["process id"];

/// All known titles in lower case; a longer title precedes its prefix. Units belong to the title: a table in GB must not be
/// read as one in MB.
const KNOWN_TITLES: [&str; 20] = [
    "process id in container",
    "process id",
    "process name",
    "process memory(mb)",
    "npu util(%)",
    "npu id",
    "npu",
    "chip id",
    "chip",
    "phy-id",
    "device",
    "name",
    "health",
    "power(w)",
    "temp(c)",
    "hugepages-usage(page)",
    "bus-id",
    "aicore(%)",
    "memory-usage(mb)",
    "hbm-usage(mb)",
];

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

    fn has_title(&self, titles: &[&str]) -> bool {
        TitleLine::new(self, &KNOWN_TITLES).has_title(titles)
    }
}

/// Splits a cell of a line of titles. An unknown title ends with its unit, at the next known one or at the end of the
/// cell.
fn split_titles(cell: &str, known: &[&str]) -> Vec<String> {
    let words: Vec<&str> = cell.split_whitespace().collect();
    let mut titles: Vec<String> = Vec::new();
    let (mut at, mut is_open) = (0, false);
    while at < words.len() {
        let begins_with = |title: &&&str| {
            let mut own = title.split(' ').zip(&words[at..]);
            at + title.split(' ').count() <= words.len()
                && own.all(|(one, two)| one.eq_ignore_ascii_case(two))
        };
        let known = known.iter().find(begins_with);
        let end = at + known.map_or(1, |title| title.split(' ').count());
        let title = words[at..end].join(" ");
        let was_open = std::mem::replace(&mut is_open, known.is_none() && !title.ends_with(')'));
        match titles.last_mut() {
            Some(open) if known.is_none() && was_open => *open += &format!(" {title}"),
            _ => titles.push(title),
        }
        at = end;
    }
    titles
}

struct TitleLine {
    line: usize,
    cells: Vec<Vec<String>>,
}

impl TitleLine {
    fn new(line: &FrameLine<'_>, known: &[&str]) -> Self {
        Self { line: line.number, cells: line.cells.iter().map(|cell| split_titles(cell, known)).collect() }
    }

    fn has_title(&self, titles: &[&str]) -> bool {
        self.cells.iter().flatten().any(|title| is_one_of(title, titles))
    }

    fn row_values<'a>(&'a self, line: &FrameLine<'_>) -> Result<TitledValues<'a>, NpuSmiError> {
        let misfit =
            |expected| NpuSmiError::Line { line: line.number, expected, found: quote_line(line.text) };
        if line.cells.len() != self.cells.len() {
            return Err(misfit(format!("{} cells, as the titles have", self.cells.len())));
        }
        let mut values = Vec::new();
        for (titles, cell) in self.cells.iter().zip(&line.cells) {
            let found = values_of(titles, cell).ok_or_else(|| {
                let titles = titles.iter().map(|title| format!("`{title}`"));
                misfit(format!("one value for each of {}", titles.collect::<Vec<_>>().join(", ")))
            })?;
            values.extend(titles.iter().map(String::as_str).zip(found));
        }
        Ok(TitledValues { line: line.number, values })
    }
}

fn is_one_of(title: &str, titles: &[&str]) -> bool {
    titles.iter().any(|known| known.eq_ignore_ascii_case(title))
}

/// Returns the values of a cell, one for each title. A name gets all words that the titles before it leave, so that
/// it may be empty or have blanks.
fn values_of(titles: &[String], cell: &str) -> Option<Vec<String>> {
    if let [_] = titles {
        return Some(vec![cell.to_owned()]);
    }
    // `59891/ 65536` and `3379 / 65536` are one value each.
    let mut values: Vec<String> = Vec::new();
    for word in cell.split_whitespace() {
        match values.last_mut() {
            Some(last) if last.ends_with('/') || word.starts_with('/') => last.push_str(word),
            _ => values.push(word.to_owned()),
        }
    }
    let is_named = titles.last().is_some_and(|title| is_one_of(title, &["name", "chip name"]));
    if is_named && values.len() + 1 >= titles.len() {
        let name = values.split_off(titles.len() - 1).join(" ");
        values.push(name);
    }
    (values.len() == titles.len()).then_some(values)
}

struct TitledValues<'a> {
    line: usize,
    values: Vec<(&'a str, String)>,
}

impl TitledValues<'_> {
    fn value(&self, titles: Titles) -> Option<(&str, &str)> {
        let (title, value) = self.values.iter().find(|(title, _)| is_one_of(title, titles))?;
        Some((title, value))
    }

    fn text(&self, titles: Titles) -> &str {
        self.value(titles).map_or("", |(_, value)| value)
    }

    /// Parses a number; `None` without such a column or for `NA` or `-`.
    fn optional_number<T: FromStr>(&self, titles: Titles) -> Result<Option<T>, NpuSmiError> {
        if is_absent(self.text(titles)) { Ok(None) } else { self.required_number(titles) }
    }

    /// Parses a number; an existing column must have one.
    fn required_number<T: FromStr>(&self, titles: Titles) -> Result<Option<T>, NpuSmiError> {
        let Some((title, value)) = self.value(titles) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| self.misfit(format!("a number for `{title}`"), value))
    }

    fn npu_id(&self) -> Result<u32, NpuSmiError> {
        self.required_number(NPU)?.ok_or_else(|| self.misfit("a column `NPU`".to_owned(), "none"))
    }

    fn used_and_total(&self, titles: Titles) -> Result<(Option<u64>, Option<u64>), NpuSmiError> {
        let Some((title, value)) = self.value(titles).filter(|(_, value)| !is_absent(value)) else {
            return Ok((None, None));
        };
        let half = |text: &str| match text.trim() {
            text if is_absent(text) => Some(None),
            text => text.parse().ok().map(Some),
        };
        let halves = value.split_once('/').and_then(|(used, total)| Some((half(used)?, half(total)?)));
        halves.ok_or_else(|| self.misfit(format!("`used / total` for `{title}`"), value))
    }

    fn misfit(&self, expected: String, found: &str) -> NpuSmiError {
        NpuSmiError::Line { line: self.line, expected, found: quote_line(found) }
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

fn quote_first_line(text: &str) -> String {
    text.lines().find(|line| !line.trim().is_empty()).map_or("nothing".to_owned(), quote_line)
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
