//! Parser of `npu-smi info -m`: the numbers of each chip. Layouts, from the public source of the driver's tool:
//!
//! | chip | columns |
//! |---|---|
//! | 310P, 910, A2 | `NPU ID`, `Chip ID`, `Chip Logic ID`, `Chip Name` |
//! | A3 | `NPU ID`, `Chip ID`, `Chip Logic ID`, `Chip Phy-ID`, `Chip Name` |
//! | Ascend 950 | `NPU ID`, `Slot ID`, `Chip ID`, `Chip Phy-ID`, `Chip Name`; the NPU id is the logic id |
//!
//! `Chip Logic ID` is the number of the driver, by which the runtime counts: from 0 in each container. Chips that do not
//! compute (`Mcu`) have `-` in its place.

use serde::Serialize;

use super::{NpuSmiError, NpuSmiInfo, is_absent, quote_line};
use crate::kernel::LogicalDeviceId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChipMapRow {
    pub(crate) npu: u32,
    pub(crate) chip: u32,
    pub(crate) logical_id: LogicalDeviceId,
    /// Number of the chip on the host, if the layout has it.
    pub(crate) phy_id: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogicalIdSource {
    ChipMap,
    /// The order of the table of `npu-smi info`.
    TablePosition,
}

/// Titles in lower case; the name is last and takes the rest of a line.
const COLUMNS: [&str; 6] = ["npu id", "slot id", "chip id", "chip logic id", "chip phy-id", "chip name"];

/// Columns of a line of titles, as indices into [`COLUMNS`]; `None` for another line.
fn columns_of_titles(line: &str) -> Option<Vec<usize>> {
    let words = line.split_whitespace().map(str::to_ascii_lowercase).collect::<Vec<_>>().join(" ");
    let mut rest = words.as_str();
    let mut columns = Vec::new();
    while !rest.is_empty() {
        let column = COLUMNS.iter().position(|title| {
            rest.strip_prefix(title).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        })?;
        rest = rest[COLUMNS[column].len()..].trim_start();
        columns.push(column);
    }
    let has = |title: &str| columns.iter().any(|&column| COLUMNS[column] == title);
    (has("npu id") && has("chip id")).then_some(columns)
}

/// Parses the output of `npu-smi info -m`. Lines that do not begin with a number are remarks of the driver.
pub(crate) fn parse_chip_map(text: &str) -> Result<Vec<ChipMapRow>, NpuSmiError> {
    let mut lines = text.lines().zip(1..);
    let columns = lines.find_map(|(line, _)| columns_of_titles(line));
    let columns = columns.ok_or_else(|| {
        let first = text.lines().map(str::trim).find(|line| !line.is_empty());
        NpuSmiError::NotTheChipMap(first.map_or("nothing".to_owned(), quote_line))
    })?;
    let mut rows: Vec<ChipMapRow> = Vec::new();
    for (line, number) in
        lines.filter(|(line, _)| line.trim_start().starts_with(|c: char| c.is_ascii_digit()))
    {
        let Some(row) = parse_row(line, number, &columns)? else { continue };
        if rows.iter().any(|other| other.logical_id == row.logical_id) {
            return Err(NpuSmiError::SameLogicId(row.logical_id));
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Parses a line of values; `None` for a chip that does not compute.
fn parse_row(line: &str, number: usize, columns: &[usize]) -> Result<Option<ChipMapRow>, NpuSmiError> {
    let misfit = |expected: String| NpuSmiError::Line { line: number, expected, found: quote_line(line) };
    let values: Vec<&str> = line.split_whitespace().collect();
    if values.len() < columns.len() {
        return Err(misfit(format!("a value for each of the {} titles", columns.len())));
    }
    let value = |title: &str| {
        let place = columns.iter().position(|&column| COLUMNS[column] == title)?;
        values.get(place).copied()
    };
    let parse_number = |title: &str| match value(title) {
        None => Ok(None),
        Some(text) if is_absent(text) => Ok(None),
        Some(text) => text.parse::<u32>().map(Some).map_err(|_| misfit(format!("a number for `{title}`"))),
    };
    let [npu, chip, phy_id] =
        [parse_number("npu id")?, parse_number("chip id")?, parse_number("chip phy-id")?];
    let logical_id = match value("chip logic id") {
        Some(_) => parse_number("chip logic id")?,
        None => npu,
    };
    let numbers = npu.zip(chip).zip(logical_id);
    Ok(numbers.map(|((npu, chip), logical_id)| ChipMapRow {
        npu,
        chip,
        logical_id: LogicalDeviceId(logical_id),
        phy_id,
    }))
}

impl NpuSmiInfo {
    /// Replaces the logical numbers of the chips by the numbers that `npu-smi info -m` shows for the same card and
    /// chip.
    pub(crate) fn apply_chip_map(&mut self, map: &[ChipMapRow]) -> Result<(), NpuSmiError> {
        let find = |npu: u32, chip: u32| map.iter().find(|row| (row.npu, row.chip) == (npu, chip));
        if let Some(chip) = self.chips.iter().find(|chip| find(chip.npu, chip.chip).is_none()) {
            return Err(NpuSmiError::NoLogicId { npu: chip.npu, chip: chip.chip });
        }
        for chip in &mut self.chips {
            if let Some(row) = find(chip.npu, chip.chip) {
                chip.logical_id = row.logical_id;
                chip.host_id = row.phy_id;
            }
        }
        self.logical_ids = LogicalIdSource::ChipMap;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
