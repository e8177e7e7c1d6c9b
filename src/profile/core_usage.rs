//! Use of the cores by recorded kernels, from which the numbers of cores and the clock are inferred.

use super::{
    RecordReader,
    columns::{CYCLE_COUNTERS, Column},
    prelude::*,
};
use crate::kernel::DeviceFacts;

const SAMPLED_RECORDS: usize = 20_000;
const MIN_RECORDS: u32 = 3;
/// Minimum time in microseconds from which a clock is computed; times have a step of 20 ns.
const MIN_TIME: f64 = 5.0;

#[derive(Clone, Debug, Default)]
pub(super) struct CoreUsage {
    pub(super) cube: BTreeMap<u32, u32>,
    /// Records by number of blocks, of kernels on vector cores.
    pub(super) vector: BTreeMap<u32, u32>,
    pub(super) clocks: BTreeMap<u32, u32>,
}

impl CoreUsage {
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

    pub(super) fn from_table(file: &Path) -> Self {
        let mut usage = Self::default();
        let Ok(mut reader) = RecordReader::open_with(file, NeededColumns::None) else { return usage };
        for _ in 0..SAMPLED_RECORDS {
            let record = match reader.read_record() {
                Ok(Some(record)) => record,
                Err(ProfileError::Ragged { .. } | ProfileError::CommaInName { .. }) => continue,
                _ => break,
            };
            let Some(blocks) = record.number(Column::Blocks) else { continue };
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
                // Cycles of all blocks divided by their time.
                let clock = (cycles / time / f64::from(blocks.max(1))).round();
                if time >= MIN_TIME && (100.0..10_000.0).contains(&clock) {
                    *usage.clocks.entry(clock as u32).or_default() += 1;
                }
            }
        }
        usage
    }

    /// Infers the numbers of cores, and the highest clock that ran. Cores are known only if the most blocks of kernels on matrix cores are
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
        // The exporter computes the time by the clock at the end of the task, and as many times longer as a kernel has waves of
        // blocks: a record shows the clock that ran or less, never more (Ascend/msprof 9ba1ac7,
        // csrc/domain/services/association/calculator/metric/metric_calculator.cpp).
        let clock =
            self.clocks.iter().rfind(|(_, records)| **records >= MIN_RECORDS).map(|(clock, _)| *clock);
        DeviceFacts { soc: None, cube_cores: cube, vector_cores: cube.map(|cube| 2 * cube), clock_mhz: clock }
    }
}
