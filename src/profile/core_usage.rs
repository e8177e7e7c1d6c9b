//! Use of the cores by recorded kernels, from which the numbers of cores and the clock are inferred.

use std::{collections::BTreeMap, io::Read as _, path::Path};

use crate::{base::files::open_regular, kernel::DeviceFacts};

/// Numbers of records from which cores and clock are inferred.
const SAMPLED_RECORDS: usize = 20_000;
/// Bytes from which they are read; limits the memory for a file without line ends.
const MOST_BYTES: u64 = 64 << 20;
/// Least number of records with the same number of blocks.
const LEAST_RECORDS: u32 = 3;
/// Shortest time in microseconds from which a clock is computed; times have a step of 20 ns.
const LEAST_TIME: f64 = 5.0;

/// Use of the cores by recorded kernels.
#[derive(Clone, Debug, Default)]
pub(super) struct CoreUsage {
    /// Records by number of blocks, of kernels on matrix cores.
    pub(super) cube: BTreeMap<u32, u32>,
    /// Records by number of blocks, of kernels on vector cores.
    pub(super) vector: BTreeMap<u32, u32>,
    /// Records by clock in MHz.
    pub(super) clocks: BTreeMap<u32, u32>,
}

impl CoreUsage {
    /// Counts a record by its task type.
    pub(super) fn count_blocks(&mut self, core: &str, blocks: u32, records: u32) {
        let counts = match core {
            "AI_CORE" | "MIX_AIC" => &mut self.cube,
            "AI_VECTOR_CORE" | "MIX_AIV" => &mut self.vector,
            _ => return,
        };
        if blocks > 0 {
            *counts.entry(blocks).or_default() += records;
        }
    }

    /// Reads the first records of a table.
    pub(super) fn from_table(file: &Path) -> Self {
        Self::read_table(file).unwrap_or_default()
    }

    fn read_table(file: &Path) -> Option<Self> {
        let input = open_regular(file).ok()?.take(MOST_BYTES);
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(input);
        let header = reader.byte_headers().ok()?.clone();
        let column = |names: &[&str]| {
            header.iter().position(|cell| {
                let cell = cell.strip_prefix(b"\xef\xbb\xbf").unwrap_or(cell).trim_ascii();
                names.iter().any(|name| name.as_bytes() == cell)
            })
        };
        let core = column(&["Accelerator Core", "Task Type"])?;
        let blocks = column(&["Block Dim", "Block Num"])?;
        let times = [["aicore_time(us)", "aic_total_cycles"], ["aiv_time(us)", "aiv_total_cycles"]];
        let times = times.map(|[time, cycles]| Some((column(&[time])?, column(&[cycles])?)));
        let mut usage = Self::default();
        for row in reader.byte_records().take(SAMPLED_RECORDS) {
            let Ok(row) = row else { break };
            let text =
                |index: usize| std::str::from_utf8(row.get(index).unwrap_or_default()).unwrap_or("").trim();
            let Ok(count) = text(blocks).parse::<u32>() else { continue };
            usage.count_blocks(text(core), count, 1);
            let [cube, vector] = times;
            let counters = match text(core) {
                "AI_CORE" => cube,
                "AI_VECTOR_CORE" => vector,
                _ => None,
            };
            if let Some((time, cycles)) = counters
                && let (Ok(time), Ok(cycles)) = (text(time).parse::<f64>(), text(cycles).parse::<f64>())
            {
                usage.count_clock(time, cycles, count);
            }
        }
        Some(usage)
    }

    /// Counts the clock of a record: the cycles of all blocks divided by their time.
    fn count_clock(&mut self, time: f64, cycles: f64, blocks: u32) {
        let clock = (cycles / time / f64::from(blocks.max(1))).round();
        if time >= LEAST_TIME && (100.0..10_000.0).contains(&clock) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in 100..10000")]
            let clock = clock as u32;
            *self.clocks.entry(clock).or_default() += 1;
        }
    }

    /// Infers the numbers of cores and the clock. Cores are known only if the most blocks of kernels on matrix cores are
    /// half of the usual number of blocks on vector cores, as on every A2 and A3; a few kernels use more blocks than
    /// there are cores.
    pub(super) fn inferred_facts(&self) -> DeviceFacts {
        let usual = |counts: &BTreeMap<u32, u32>| {
            counts.iter().max_by_key(|(blocks, records)| (**records, **blocks)).map(|(blocks, _)| *blocks)
        };
        let most = self.cube.iter().rfind(|(_, records)| **records >= LEAST_RECORDS);
        let cube =
            most.map(|(blocks, _)| *blocks).filter(|blocks| self.cube.keys().all(|other| other <= blocks));
        let is_all = |blocks: u32| {
            self.vector.iter().any(|(other, count)| *other == blocks && *count >= LEAST_RECORDS)
        };
        let cube = cube
            .filter(|cube| usual(&self.vector).is_some_and(|usual| usual <= 2 * cube) && is_all(2 * cube));
        // A clock that falls in pauses makes single records slower, never faster.
        let clock =
            self.clocks.iter().rfind(|(_, records)| **records >= LEAST_RECORDS).map(|(clock, _)| *clock);
        DeviceFacts { soc: None, cube_cores: cube, vector_cores: cube.map(|cube| 2 * cube), clock_mhz: clock }
    }
}
