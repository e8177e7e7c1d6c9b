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

use super::{FrameLine, NPU, NpuSmiError, NpuSmiInfo, TitleLine, Titles, quote_first_line};
use crate::kernel::LogicalDeviceId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChipMapRow {
    pub(crate) npu: u32,
    pub(crate) chip: u32,
    pub(crate) logical_id: LogicalDeviceId,
    pub(crate) phy_id: Option<u32>,
}

/// Source of the logical numbers of chips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogicalIdSource {
    /// `npu-smi info -m`.
    ChipMap,
    /// The order of the table of `npu-smi info`.
    #[default]
    TablePosition,
}

const TITLES: [&str; 5] = ["npu id", "chip id", "chip logic id", "chip phy-id", "chip name"];
const CHIP_ID: Titles = &["chip id"];
const LOGIC_ID: Titles = &["chip logic id"];

/// Parses the output of `npu-smi info -m`. Lines that do not begin with a number are remarks of the driver.
pub(crate) fn parse_chip_map(text: &str) -> Result<Vec<ChipMapRow>, NpuSmiError> {
    let lines = text.lines().zip(1..);
    let mut lines = lines.map(|(text, number)| FrameLine { number, text, cells: vec![text.trim()] });
    let mut titles = lines.by_ref().map(|line| TitleLine::new(&line, &TITLES));
    let titles = titles.find(|titles| titles.has_title(NPU) && titles.has_title(CHIP_ID));
    let titles = titles.ok_or_else(|| NpuSmiError::NotTheChipMap(quote_first_line(text)))?;
    let mut rows: Vec<ChipMapRow> = Vec::new();
    for line in lines.filter(|line| line.cells[0].starts_with(|first: char| first.is_ascii_digit())) {
        let row = titles.row_values(&line)?;
        let npu: Option<u32> = row.optional_number(NPU)?;
        let logical_id = if titles.has_title(LOGIC_ID) { row.optional_number(LOGIC_ID)? } else { npu };
        let phy_id = row.optional_number(&["chip phy-id"])?;
        // Chips that do not compute have no logic id.
        let numbers = npu.zip(row.optional_number(CHIP_ID)?).zip(logical_id);
        let Some(((npu, chip), logical_id)) = numbers else { continue };
        let logical_id = LogicalDeviceId(logical_id);
        if rows.iter().any(|other| other.logical_id == logical_id) {
            return Err(NpuSmiError::SameLogicId(logical_id));
        }
        rows.push(ChipMapRow { npu, chip, logical_id, phy_id });
    }
    Ok(rows)
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
