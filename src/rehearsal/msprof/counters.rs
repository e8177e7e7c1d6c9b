//! Counters of the cores: 25 columns that hang together as real ones do, and mean nothing.

use crate::{
    config::DeviceProfile,
    rehearsal::{
        npu::{LoggedLaunch, TaskEngine},
        timing,
    },
};

/// Shares of a core's time that its pipes are busy, in thousandths: mac, scalar, mte1, mte2, fixpipe on
/// matrix cores; vec, scalar, mte2, mte3 on vector cores.
const CUBE_SHARES: [u64; 5] = [640, 90, 410, 720, 120];
const VECTOR_SHARES: [u64; 4] = [260, 80, 680, 350];

/// Cores that a launch occupies: one for every 16 KiB that it writes, as far as there are cores.
pub(super) fn blocks(profile: &DeviceProfile, launch: &LoggedLaunch) -> u64 {
    let written =
        launch.operation.outputs.iter().fold(0_u64, |sum, tensor| sum.saturating_add(tensor.bytes()));
    let cores = match launch.operation.task {
        TaskEngine::Cube => profile.cube_cores,
        TaskEngine::Vector => profile.vector_cores,
        TaskEngine::Random => return 0,
    };
    written.div_ceil(16 << 10).clamp(1, u64::from(cores.max(1)))
}

/// The 25 cells, joined by commas. All N/A where the task has no counters.
pub(super) fn cells(profile: &DeviceProfile, launch: &LoggedLaunch) -> String {
    let idle_cube = "0.0,0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0";
    let idle_vector = "0.0,0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0";
    // Start and stop of the cores take what is left of the duration.
    let busy = launch.duration.micros() * 0.9;
    // A throttled clock does the same cycles in more time.
    let clock = f64::from(profile.clock_mhz) / launch.slowdown;
    let cycles = busy * clock * blocks(profile, launch) as f64;
    match launch.operation.task {
        TaskEngine::Random => ["N/A"; 25].join(","),
        TaskEngine::Vector => format!("{idle_cube},{},0.000", core(busy, cycles, &VECTOR_SHARES, launch)),
        TaskEngine::Cube => {
            let whole = f64::from(profile.clock_mhz)
                * f64::from(profile.cube_cores.max(1))
                * launch.duration.micros();
            let utilization = if whole > 0.0 { 100.0 * cycles / whole } else { 0.0 };
            format!("{},{idle_vector},{utilization:.3}", core(busy, cycles, &CUBE_SHARES, launch))
        }
    }
}

/// Time, cycles, time and ratio of each pipe, misses of the instruction cache.
fn core(busy: f64, cycles: f64, shares: &[u64], launch: &LoggedLaunch) -> String {
    let mut cells = format!("{busy:.3},{cycles:.0}");
    for (pipe, share) in (0_u64..).zip(shares) {
        let ratio = (share + timing::pick(&[launch.variation, pipe], 40)) as f64 / 1e3;
        cells.push_str(&format!(",{:.3},{ratio:.3}", busy * ratio));
    }
    let misses = timing::pick(&[launch.variation, u64::MAX], 120) as f64 / 1e3;
    cells.push_str(&format!(",{misses:.3}"));
    cells
}
