//! Use of the cores by recorded kernels, from which the numbers of cores and the clock are inferred.

use std::{collections::BTreeMap, path::Path};

use super::{
    ProfileError, RecordReader,
    columns::{CYCLE_COUNTERS, NeededColumns},
};
use crate::kernel::DeviceFacts;

/// Numbers of records from which cores and clock are inferred.
const SAMPLED_RECORDS: usize = 20_000;
/// Minimum number of records with the same number of blocks.
const MIN_RECORDS: u32 = 3;
/// Minimum time in microseconds from which a clock is computed; times have a step of 20 ns.
const MIN_TIME: f64 = 5.0;

/// Use of the cores by recorded kernels.
#[derive(Clone, Debug, Default)]
pub(super) struct CoreUsage {
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

    /// Reads the first records of a table, without rows of another length.
    pub(super) fn from_table(file: &Path) -> Self {
        let mut usage = Self::default();
        let Ok(mut reader) = RecordReader::open_with(file, NeededColumns::None) else { return usage };
        for _ in 0..SAMPLED_RECORDS {
            let record = match reader.read_record() {
                Ok(Some(record)) => record,
                Err(ProfileError::Ragged { .. }) => continue,
                _ => break,
            };
            let Some(blocks) = record.blocks() else { continue };
            let core = String::from_utf8_lossy(record.core());
            usage.count_blocks(&core, blocks, 1);
            let [cube, vector] = CYCLE_COUNTERS;
            let counters = match &*core {
                "AI_CORE" => cube,
                "AI_VECTOR_CORE" => vector,
                _ => continue,
            };
            let [time, cycles] = counters.map(|counter| record.counters().nth(counter).flatten());
            if let (Some(time), Some(cycles)) = (time, cycles) {
                usage.count_clock(time, cycles, blocks);
            }
        }
        usage
    }

    /// Counts the clock of a record: the cycles of all blocks divided by their time.
    fn count_clock(&mut self, time: f64, cycles: f64, blocks: u32) {
        let clock = (cycles / time / f64::from(blocks.max(1))).round();
        if time >= MIN_TIME && (100.0..10_000.0).contains(&clock) {
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
        let cube = self.cube.iter().rfind(|(_, records)| **records >= MIN_RECORDS).map(|(blocks, _)| *blocks);
        let cube = cube.filter(|cube| {
            let is_on_all = self.vector.get(&(2 * cube)).is_some_and(|count| *count >= MIN_RECORDS);
            self.cube.keys().all(|other| other <= cube)
                && usual(&self.vector).is_some_and(|usual| usual <= 2 * cube)
                && is_on_all
        });
        // A clock that falls in pauses makes single records slower, never faster.
        let clock =
            self.clocks.iter().rfind(|(_, records)| **records >= MIN_RECORDS).map(|(clock, _)| *clock);
        DeviceFacts { soc: None, cube_cores: cube, vector_cores: cube.map(|cube| 2 * cube), clock_mhz: clock }
    }
}
