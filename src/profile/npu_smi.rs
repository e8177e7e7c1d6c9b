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
    pub chips: Vec<Chip>,
    /// The processes that hold chips, in the order of the table.
    pub processes: Vec<NpuProcess>,
}

/// One chip: a die of an A3 card, the whole card elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chip {
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
    pub fn processes_on(&self, chip: &Chip) -> impl Iterator<Item = &NpuProcess> {
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
    let mut lines = text.lines().enumerate().filter_map(|(index, line)| Line::new(index + 1, line));
    let mut version = String::new();
    let upper = loop {
        let Some(line) = lines.next() else {
            let first = text.lines().map(str::trim).find(|line| !line.is_empty());
            return Err(NpuSmiError::NotTheTable { found: first.map_or("nothing".to_owned(), quoted) });
        };
        if let Some(("npu-smi", rest)) = line.cells.first().and_then(|cell| cell.split_once(' ')) {
            version = rest.split_whitespace().next().unwrap_or_default().to_owned();
        }
        let titles = Titles::new(&line);
        if [Meaning::Npu, Meaning::Name, Meaning::Health].iter().all(|&wanted| titles.has(wanted)) {
            break titles;
        }
    };
    let lower = match lines.next() {
        Some(line) if line.has(Meaning::BusId) => Titles::new(&line),
        other => return Err(not_followed(upper.line, "a second line of titles with `Bus-Id`", other)),
    };

    let mut rows = Vec::new();
    let mut processes = Vec::new();
    while let Some(line) = lines.next() {
        if line.has(Meaning::Pid) {
            processes = read_processes(&Titles::new(&line), lines)?;
            break;
        }
        if line.is_remark() {
            continue;
        }
        let first = upper.row(&line)?;
        // A lost second line must not make titles or the next chip's first line stand in for it.
        let second = match lines.next() {
            Some(line) if !line.has(Meaning::Pid) => lower.row(&line)?,
            other => return Err(not_followed(first.line, "the chip's second line", other)),
        };
        rows.push((first, second));
    }
    let mut chips =
        rows.iter().map(|(first, second)| read_chip(first, second)).collect::<Result<Vec<_>, _>>()?;
    number_devices(&mut chips, lower.has(Meaning::Device))?;
    Ok(NpuSmiInfo { version, chips, processes })
}

fn read_chip(first: &Row, second: &Row) -> Result<Chip, NpuSmiError> {
    let npu = first.npu()?;
    let memory = if second.get(Meaning::Hbm).is_some() { Meaning::Hbm } else { Meaning::Memory };
    let (memory_used_mb, memory_total_mb) = second.pair(memory)?;
    let bus_id = second.text(Meaning::BusId);
    Ok(Chip {
        npu,
        chip: second.id(Meaning::Chip)?.unwrap_or(0),
        device: second.id(Meaning::Device)?.unwrap_or(npu),
        name: first.text(Meaning::Name).to_owned(),
        health: first.text(Meaning::Health).to_owned(),
        power_w: first.number(Meaning::Power)?.filter(|watts: &f64| watts.is_finite()),
        temperature_c: first.number(Meaning::Temperature)?,
        aicore_percent: second.number(Meaning::Use)?,
        memory_used_mb,
        memory_total_mb,
        bus_id: (!is_absent(bus_id)).then(|| bus_id.to_owned()),
    })
}

/// Sees to it that every chip has an index of its own. `printed` says that the table gave them.
fn number_devices(chips: &mut [Chip], printed: bool) -> Result<(), NpuSmiError> {
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
    titles: &Titles,
    lines: impl Iterator<Item = Line<'t>>,
) -> Result<Vec<NpuProcess>, NpuSmiError> {
    let mut processes = Vec::new();
    // `No running processes found in NPU 3` is a remark, and so is whatever else spans the line.
    for line in lines.filter(|line| !line.is_remark()) {
        let row = titles.row(&line)?;
        // The Ascend 950 shows a free card as a row of NA.
        if let Some(pid) = row.number(Meaning::Pid)? {
            processes.push(NpuProcess {
                npu: row.npu()?,
                chip: row.number(Meaning::Chip)?,
                pid,
                name: row.text(Meaning::ProcessName).to_owned(),
                memory_mb: row.number(Meaning::ProcessMemory)?,
            });
        }
    }
    Ok(processes)
}

/// What a title says about the value below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
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
const TITLES: [(&[&str], Meaning); 20] = [
    (&["process", "id", "in", "container"], Meaning::Other),
    (&["process", "id"], Meaning::Pid),
    (&["process", "name"], Meaning::ProcessName),
    (&["process", "memory(mb)"], Meaning::ProcessMemory),
    (&["npu", "util(%)"], Meaning::Use),
    (&["npu", "id"], Meaning::Npu),
    (&["npu"], Meaning::Npu),
    (&["chip", "id"], Meaning::Chip),
    (&["chip"], Meaning::Chip),
    (&["phy-id"], Meaning::Device),
    (&["device"], Meaning::Device),
    (&["name"], Meaning::Name),
    (&["health"], Meaning::Health),
    (&["power(w)"], Meaning::Power),
    (&["temp(c)"], Meaning::Temperature),
    (&["hugepages-usage(page)"], Meaning::Other),
    (&["bus-id"], Meaning::BusId),
    (&["aicore(%)"], Meaning::Use),
    (&["memory-usage(mb)"], Meaning::Memory),
    (&["hbm-usage(mb)"], Meaning::Hbm),
];

/// A line inside the frame, cut into its cells.
struct Line<'t> {
    number: usize,
    text: &'t str,
    cells: Vec<&'t str>,
}

impl<'t> Line<'t> {
    fn new(number: usize, line: &'t str) -> Option<Self> {
        let text = line.trim();
        let inner = text.strip_prefix('|')?;
        let inner = inner.strip_suffix('|').unwrap_or(inner);
        Some(Self { number, text, cells: inner.split('|').map(str::trim).collect() })
    }

    fn has(&self, meaning: Meaning) -> bool {
        self.cells.iter().any(|cell| columns(cell).iter().any(|column| column.meaning == meaning))
    }

    /// Whether it is a sentence over the whole width.
    fn is_remark(&self) -> bool {
        self.cells.len() == 1
    }
}

/// One title of a cell.
struct Column {
    meaning: Meaning,
    title: String,
}

/// Cuts a cell of a line of titles into titles. An unknown title reaches to its unit, to the next
/// known one or to the end of the cell.
fn columns(cell: &str) -> Vec<Column> {
    let lower = cell.to_ascii_lowercase();
    let folded: Vec<&str> = lower.split_whitespace().collect();
    let words: Vec<&str> = cell.split_whitespace().collect();
    let mut columns: Vec<Column> = Vec::new();
    let mut at = 0;
    let mut unknown_is_open = false;
    while at < folded.len() {
        let known = TITLES.iter().find(|(title, _)| folded[at..].starts_with(title));
        let (length, meaning) = known.map_or((1, Meaning::Other), |(title, meaning)| (title.len(), *meaning));
        let title = words[at..at + length].join(" ");
        match columns.last_mut() {
            Some(open) if known.is_none() && unknown_is_open => {
                open.title.push(' ');
                open.title.push_str(&title);
            }
            _ => columns.push(Column { meaning, title }),
        }
        at += length;
        unknown_is_open = known.is_none() && !folded[at - 1].ends_with(')');
    }
    columns
}

/// A line of titles.
struct Titles {
    line: usize,
    cells: Vec<Vec<Column>>,
}

impl Titles {
    fn new(line: &Line<'_>) -> Self {
        Self { line: line.number, cells: line.cells.iter().map(|cell| columns(cell)).collect() }
    }

    fn has(&self, meaning: Meaning) -> bool {
        self.cells.iter().flatten().any(|column| column.meaning == meaning)
    }

    /// Puts a line's values under the titles.
    fn row<'a>(&'a self, line: &Line<'_>) -> Result<Row<'a>, NpuSmiError> {
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
        Ok(Row { line: line.number, values })
    }
}

/// The values of a cell, one for each title. A text takes whatever the titles before it leave, so
/// that it may be empty or have blanks.
fn values_of(columns: &[Column], cell: &str) -> Option<Vec<String>> {
    if let [_] = columns {
        return Some(vec![cell.to_owned()]);
    }
    let mut tokens = tokens(cell);
    if let Some(Column { meaning: Meaning::Name, .. }) = columns.last()
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
struct Row<'a> {
    line: usize,
    values: Vec<(&'a Column, String)>,
}

impl Row<'_> {
    /// The value and its title, where the table has such a column.
    fn get(&self, meaning: Meaning) -> Option<(&str, &str)> {
        let (column, value) = self.values.iter().find(|(column, _)| column.meaning == meaning)?;
        Some((value, &column.title))
    }

    fn text(&self, meaning: Meaning) -> &str {
        self.get(meaning).map_or("", |(value, _)| value)
    }

    /// `None` where the table has no such column or prints `NA` or `-` in it.
    fn number<T: FromStr>(&self, meaning: Meaning) -> Result<Option<T>, NpuSmiError> {
        let Some((value, title)) = self.get(meaning) else { return Ok(None) };
        if is_absent(value) {
            return Ok(None);
        }
        value.parse().map(Some).map_err(|_| self.misfit(format_args!("a number for `{title}`"), value))
    }

    /// Like [`Row::number`], but a column that is there must have a number.
    fn id(&self, meaning: Meaning) -> Result<Option<u32>, NpuSmiError> {
        let Some((value, title)) = self.get(meaning) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| self.misfit(format_args!("a number for `{title}`"), value))
    }

    fn npu(&self) -> Result<u32, NpuSmiError> {
        self.id(Meaning::Npu)?.ok_or_else(|| self.misfit(format_args!("a column `NPU`"), "none"))
    }

    /// Two numbers around a slash: used and in all.
    fn pair(&self, meaning: Meaning) -> Result<(Option<u64>, Option<u64>), NpuSmiError> {
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

fn not_followed(line: usize, expected: &str, found: Option<Line<'_>>) -> NpuSmiError {
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
mod tests {
    use std::{fs, path::Path};

    use proptest::prelude::*;

    use super::*;

    const A2: &str = "\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.0                   Version: 24.1.0                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 1     910B3               | OK            | 97.5        41                0    / 0             |
| 0                         | 0000:C1:00.0  | 12          0    / 0          3379 / 65536         |
+===========================+===============+====================================================+
| 2     910B3               | Warning       | 93.0        -                 0    / 0             |
| 0                         | 0000:C2:00.0  | 0           0    / 0          59891/ 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| No running processes found in NPU 1                                                            |
+===========================+===============+====================================================+
| 2       0                 | 166929        |                          | 56087                   |
| 2       0                 | 166930        | /usr/local/pyth          | 117                     |
+===========================+===============+====================================================+
";

    const A3: &str = "\
+------------------------------------------------------------------------------------------------+
| npu-smi 25.3.rc1                 Version: 25.3.rc1                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 5     Ascend910           | OK            | 163.6       30                0    / 0             |
| 0     10                  | 0000:89:00.0  | 0           0    / 0          3180 / 65536         |
+------------------------------------------------------------------------------------------------+
| 5     Ascend910           | OK            | -           31                0    / 0             |
| 1     11                  | 0000:8B:00.0  | 0           0    / 0          2896 / 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 5       0                 | 3325989       | python                   | 50128                   |
| 5       1                 | 3328327       | python                   | 132                     |
+===========================+===============+====================================================+
";

    const WIDE: &str = "\
+------------------------------------------------------------------------------------------------------------------+
| npu-smi 26.0.rc2                            Version: 26.0.rc2                                                    |
+---------------------------+---------------+----------------------------------------------------------------------+
| NPU   Name                | Health        | Power(W)             Temp(C)                 Hugepages-Usage(page)   |
| Chip                      | Bus-Id        | AICore(%)            Memory-Usage(MB)        HBM-Usage(MB)           |
+===========================+===============+======================================================================+
| 0     910B4               | OK            | 82.6                 32                      0    / 0                |
| 0                         | 0000:C1:00.0  | 0                    0    / 0                2871 / 32768            |
+===========================+===============+======================================================================+
+---------------------------+---------------+----------------------------------------------------------------------+
| NPU     Chip              | Process id    | Process name       | Process memory(MB)    | Process id in container |
+===========================+===============+======================================================================+
| 0       0                 | 485946        | pytest             | 5175                  | 17                      |
+===========================+===============+======================================================================+
";

    const ASCEND_950: &str = "\
+-------------------------------------------------------------------------------------------------+
| npu-smi 25.7.rc1                                 Version: 25.7.rc1                              |
+--------+------------------+---------------+-----------------------------------------------------+
| NPU ID | Name             | Health        | Power(W)    Temp(C)           Hugepages-Usage(page) |
|        |                  | Bus-Id        | NPU Util(%) Memory-Usage(MB)  HBM-Usage(MB)         |
+========+==================+===============+=====================================================+
| 0      | Ascend950PR      | OK            | 187.1       46                0     / 0             |
|        |                  | NA            | 7           0    / 0          6620  / 131072        |
+========+==================+===============+=====================================================+
| 3      | Ascend950PR      | Alarm         | 197.9       48                0     / 0             |
|        |                  | 0000:11:00.0  | 0           0    / 0          6056  / 131072        |
+========+==================+===============+=====================================================+
+----------------+---------------+--------------------------+-------------------------------------+
| NPU ID         | Process id    | Process name             | Process memory(MB)                  |
+================+===============+==========================+=====================================+
| 0              | 2066378       | pytest                   | 360                                 |
| 3              | NA            | NA                       | NA                                  |
+================+===============+==========================+=====================================+
";

    const C310P: &str = "\
+--------------------------------------------------------------------------------------------------------+
| npu-smi 25.2.1                                   Version: 25.2.1                                       |
+-------------------------------+-----------------+------------------------------------------------------+
| NPU     Name                  | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |
+===============================+=================+======================================================+
| 0       310P3                 | OK              | NA           49                8728  / 8728          |
| 0       0                     | 0000:01:00.0    | 0            19435/ 21527                            |
+-------------------------------+-----------------+------------------------------------------------------+
| 32      310P3                 | OK              | NA           49                0     / 0             |
| 0       1                     | 0000:02:00.0    | 0            1910 / 21527                            |
+===============================+=================+======================================================+
";

    fn parsed(text: &str) -> NpuSmiInfo {
        parse_info(text).expect("a layout of the vendor")
    }

    fn refusal(text: &str) -> String {
        parse_info(text).expect_err("not the table").to_string()
    }

    #[test]
    fn a2_counts_devices_by_card() {
        let info = parsed(A2);
        assert_eq!(info.version, "24.1.0");
        let first = Chip {
            npu: 1,
            chip: 0,
            device: 1,
            name: "910B3".to_owned(),
            health: "OK".to_owned(),
            power_w: Some(97.5),
            temperature_c: Some(41),
            aicore_percent: Some(12),
            memory_used_mb: Some(3379),
            memory_total_mb: Some(65536),
            bus_id: Some("0000:C1:00.0".to_owned()),
        };
        let second = Chip {
            npu: 2,
            device: 2,
            health: "Warning".to_owned(),
            power_w: Some(93.0),
            temperature_c: None,
            aicore_percent: Some(0),
            memory_used_mb: Some(59891),
            bus_id: Some("0000:C2:00.0".to_owned()),
            ..first.clone()
        };
        assert_eq!(info.chips, [first, second]);
        let process = |pid, name: &str, mb| NpuProcess {
            npu: 2,
            chip: Some(0),
            pid,
            name: name.to_owned(),
            memory_mb: Some(mb),
        };
        assert_eq!(info.processes, [process(166_929, "", 56087), process(166_930, "/usr/local/pyth", 117)]);
        assert_eq!(info.processes_on(&info.chips[0]).count(), 0);
        assert_eq!(info.processes_on(&info.chips[1]).count(), 2);
    }

    #[test]
    fn a3_counts_devices_by_phy_id_and_its_second_die_has_no_power() {
        let info = parsed(A3);
        let ids: Vec<_> =
            info.chips.iter().map(|chip| (chip.npu, chip.chip, chip.device, chip.power_w)).collect();
        assert_eq!(ids, [(5, 0, 10, Some(163.6)), (5, 1, 11, None)]);
        let held: Vec<_> = info.processes_on(&info.chips[1]).map(|process| process.pid).collect();
        assert_eq!(held, [3_328_327]);
    }

    #[test]
    fn wide_columns_and_the_pid_in_a_container_change_nothing() {
        let info = parsed(WIDE);
        assert_eq!(info.version, "26.0.rc2");
        assert_eq!((info.chips[0].memory_used_mb, info.chips[0].memory_total_mb), (Some(2871), Some(32768)));
        assert_eq!((info.processes[0].pid, info.processes[0].memory_mb), (485_946, Some(5175)));
    }

    #[test]
    fn the_950_has_one_id_and_a_blank_before_its_second_line() {
        let info = parsed(ASCEND_950);
        let ids: Vec<_> = info.chips.iter().map(|chip| (chip.npu, chip.chip, chip.device)).collect();
        assert_eq!(ids, [(0, 0, 0), (3, 0, 3)]);
        assert_eq!((info.chips[0].aicore_percent, info.chips[0].bus_id.as_deref()), (Some(7), None));
        assert_eq!((info.chips[1].health.as_str(), info.chips[1].memory_total_mb), ("Alarm", Some(131_072)));
        assert_eq!(info.processes.len(), 1, "a row of NA is a free card");
        assert_eq!((info.processes[0].npu, info.processes[0].chip), (0, None));
    }

    #[test]
    fn the_310p_has_its_memory_under_memory_usage() {
        let info = parsed(C310P);
        let ids: Vec<_> = info.chips.iter().map(|chip| (chip.npu, chip.device, chip.power_w)).collect();
        assert_eq!(ids, [(0, 0, None), (32, 1, None)]);
        assert_eq!((info.chips[0].memory_used_mb, info.chips[0].memory_total_mb), (Some(19435), Some(21527)));
        assert!(info.processes.is_empty());
    }

    #[test]
    fn the_910a_has_both_memories_and_hbm_counts() {
        let info = parsed(&A2.replace("0    / 0          3379 / 65536", "1197 / 13553      4    / 32768"));
        assert_eq!((info.chips[0].memory_used_mb, info.chips[0].memory_total_mb), (Some(4), Some(32768)));
    }

    #[test]
    fn chips_that_share_a_card_without_an_index_are_counted_by_place() {
        let info = parsed(&A2.replace("| 2     910B3", "| 1     910B3"));
        assert_eq!(info.chips.iter().map(|chip| chip.device).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(
            refusal(&A3.replace("| 1     11", "| 1     10")),
            "expected one chip for each device index, found index 10 at two chips"
        );
    }

    #[test]
    fn offsets_do_not_matter() {
        for table in [A2, A3, WIDE, ASCEND_950, C310P] {
            let squeezed: Vec<String> =
                table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
            assert_eq!(parse_info(&squeezed.join("\r\n")), parse_info(table));
        }
    }

    #[test]
    fn refusals_say_what_was_expected() {
        for empty in ["", " \n\n"] {
            assert!(refusal(empty).contains("found nothing"), "{}", refusal(empty));
        }
        let other = refusal("dcmi module initialize failed. ret is -8005\n");
        assert!(other.contains("found `dcmi module initialize failed. ret is -8005`"), "{other}");
        let titles: Vec<&str> = A2.lines().take(6).collect();
        assert_eq!(parse_info(&titles.join("\n")), Err(NpuSmiError::NoChips));
        let cut: Vec<&str> = A2.lines().take(7).collect();
        assert_eq!(
            refusal(&cut.join("\n")),
            "line 7: expected the chip's second line, found the end of the text"
        );
        assert_eq!(
            refusal(&A2.replace("97.5 ", "much ")),
            "line 7: expected a number for `Power(W)`, found `much`"
        );
        let short = refusal(&A2.replace("97.5 ", "     "));
        assert!(
            short.contains("one value for each of `Power(W)`, `Temp(C)`, `Hugepages-Usage(page)`"),
            "{short}"
        );
    }

    #[test]
    fn a_lost_line_never_shifts_values() {
        for table in [A2, A3, WIDE, ASCEND_950, C310P] {
            let whole = parsed(table);
            let lines: Vec<&str> = table.lines().collect();
            for lost in 0..lines.len() {
                let text: Vec<&str> = lines
                    .iter()
                    .enumerate()
                    .filter(|(index, _)| *index != lost)
                    .map(|(_, line)| *line)
                    .collect();
                if let Ok(info) = parse_info(&text.join("\n")) {
                    assert_eq!(info.chips, whole.chips, "without `{}`", lines[lost]);
                }
            }
        }
    }

    #[test]
    fn the_real_capture_of_a_host_with_sixteen_dies() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../shared/real/text/npu-smi_info_A3_16die_25.0.rc1.txt");
        let Ok(text) = fs::read_to_string(&path) else {
            eprintln!("skipped: {} is not here", path.display());
            return;
        };
        let info = parsed(&text);
        assert_eq!(info.version, "25.0.rc1");
        assert!(info.chips.iter().map(|chip| chip.device).eq(0..16));
        assert!(info.chips.iter().all(|chip| chip.name == "Ascend910" && chip.health == "OK"));
        assert!(info.chips.iter().all(|chip| chip.power_w.is_some() == (chip.chip == 0)));
        assert_eq!(
            (info.chips[15].memory_used_mb, info.chips[15].memory_total_mb),
            (Some(2883), Some(65536))
        );
        assert_eq!(info.chips[15].bus_id.as_deref(), Some("0000:83:00.0"));
        assert!(info.processes.is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_handled(text in any::<String>(), cells in "(\\|[ a-z0-9/|()-]{0,40}\\|?\n){0,12}") {
            let _ = parse_info(&text);
            let _ = parse_info(&cells);
            let _ = parse_info(&format!("{A3}{cells}"));
        }

        #[test]
        fn any_damage_is_handled(
            table in prop::sample::select(vec![A2, A3, WIDE, ASCEND_950, C310P]),
            lost in any::<prop::sample::Index>(),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        ) {
            let mut lines: Vec<&str> = table.lines().collect();
            lines.remove(lost.index(lines.len()));
            let mut bytes = lines.join("\n").into_bytes();
            for (at, byte) in flips {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let _ = parse_info(&String::from_utf8_lossy(&bytes));
        }
    }
}
