//! Counters of the cores, which are consistent with each other as real ones are, and contain no information.

use crate::{
    base::stats::{hash_numbers, hash_text, normal_deviate, pick_number, signed_unit_deviate},
    kernel::{AicMetrics, device::DeviceProfile},
    profile::COUNTERS,
    rehearsal::npu::{LoggedLaunch, TaskEngine},
};

/// Shares of a core's time that its pipes are busy, in thousandths: mac, scalar, mte1, mte2, fixpipe on
/// matrix cores; vec, scalar, mte2, mte3 on vector cores.
const CUBE_SHARES: [u64; 5] = [640, 90, 410, 720, 120];
const VECTOR_SHARES: [u64; 4] = [260, 80, 680, 350];

/// Number of the random sequence of cycles.
const CYCLES: u64 = u64::MAX - 1;

/// Cores that a launch occupies.
pub(super) fn blocks(profile: &DeviceProfile, launch: &LoggedLaunch) -> u64 {
    let all = launch.operation.blocks(profile);
    if launch.is_on_one_core { all.min(1) } else { all }
}

/// Columns of a group of counters, in the order of the real tables on A2 and A3.
fn columns(metrics: AicMetrics) -> Vec<&'static str> {
    let text = match metrics {
        AicMetrics::PipeUtilization => return COUNTERS.to_vec(),
        AicMetrics::Disabled => return Vec::new(),
        AicMetrics::ArithmeticUtilization => {
            "aicore_time(us),aic_total_cycles,aic_mac_fp16_ratio,aic_mac_int8_ratio,aic_cube_fops,\
             aiv_time(us),aiv_total_cycles,aiv_vec_fp32_ratio,aiv_vec_fp16_ratio,aiv_vec_int32_ratio,aiv_vec_misc_ratio,\
             aiv_vector_fops"
        }
        AicMetrics::Memory => {
            "aicore_time(us),aic_total_cycles,aic_l1_read_bw(GB/s),aic_l1_write_bw(GB/s),\
             aic_main_mem_read_bw(GB/s),aic_main_mem_write_bw(GB/s),aic_l2_read_bw(GB/s),aic_l2_write_bw(GB/s),\
             aiv_time(us),aiv_total_cycles,aiv_ub_read_bw(GB/s),aiv_ub_write_bw(GB/s),aiv_main_mem_read_bw(GB/s),\
             aiv_main_mem_write_bw(GB/s),aiv_l2_read_bw(GB/s),aiv_l2_write_bw(GB/s)"
        }
        AicMetrics::MemoryL0 => {
            "aicore_time(us),aic_total_cycles,aic_l0a_read_bw(GB/s),aic_l0a_write_bw(GB/s),aic_l0b_read_bw(GB/s),\
             aic_l0b_write_bw(GB/s),aic_l0c_read_bw_cube(GB/s),aic_l0c_write_bw_cube(GB/s),aiv_time(us),aiv_total_cycles,\
             aiv_l0c_read_bw(GB/s),aiv_l0c_write_bw(GB/s)"
        }
        AicMetrics::MemoryUb => {
            "aicore_time(us),aic_total_cycles,aic_ub_read_bw_scalar(GB/s),aic_ub_write_bw_scalar(GB/s),\
             aiv_time(us),aiv_total_cycles,aiv_ub_read_bw_vector(GB/s),aiv_ub_write_bw_vector(GB/s),\
             aiv_ub_read_bw_scalar(GB/s),aiv_ub_write_bw_scalar(GB/s)"
        }
        AicMetrics::L2Cache => {
            "aicore_time(us),aic_total_cycles,aic_write_cache_hit,aic_write_cache_miss_allocate,aic_r0_read_cache_hit,\
             aic_r0_read_cache_miss_allocate,aic_r1_read_cache_hit,aic_r1_read_cache_miss_allocate,aiv_time(us),\
             aiv_total_cycles,aiv_write_cache_hit,aiv_write_cache_miss_allocate,aiv_r0_read_cache_hit,\
             aiv_r0_read_cache_miss_allocate,aiv_r1_read_cache_hit,aiv_r1_read_cache_miss_allocate"
        }
        AicMetrics::ResourceConflictRatio => {
            "aicore_time(us),aic_total_cycles,aiv_time(us),aiv_total_cycles,aiv_vec_bankgroup_cflt_ratio,\
             aiv_vec_bank_cflt_ratio,aiv_vec_resc_cflt_ratio"
        }
        AicMetrics::MemoryAccess => {
            "aicore_time(us),aic_total_cycles,aic_read_main_memory_datas(KB),aic_write_main_memory_datas(KB),\
             aiv_time(us),aiv_total_cycles,aiv_read_main_memory_datas(KB),aiv_write_main_memory_datas(KB)"
        }
    };
    text.split(',').collect()
}

/// Names of the columns, each preceded by a comma.
pub(super) fn header(metrics: AicMetrics) -> String {
    columns(metrics).iter().map(|name| format!(",{name}")).collect()
}

/// Cells of the columns, each preceded by a comma; zero for counters without a model.
pub(super) fn cells(profile: &DeviceProfile, launch: &LoggedLaunch, metrics: AicMetrics) -> String {
    let all = pipe_cells(profile, launch);
    let known: Vec<(&str, &str)> = COUNTERS.into_iter().zip(all.split(',')).collect();
    let has_counters = matches!(launch.operation.task, TaskEngine::Cube | TaskEngine::Vector);
    let absent = if has_counters { "0.000" } else { "N/A" };
    let cell = |name: &str| known.iter().find(|(known, _)| *known == name).map_or(absent, |(_, cell)| *cell);
    columns(metrics).into_iter().map(|name| format!(",{}", cell(name))).collect()
}

/// The 25 cells of PipeUtilization, joined by commas. All N/A where the task has no counters.
fn pipe_cells(profile: &DeviceProfile, launch: &LoggedLaunch) -> String {
    let idle_cube = "0.0,0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0";
    let idle_vector = "0.0,0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0";
    // A throttled clock does the same cycles in more time, but the profiler computes the time of the cores from their cycles at
    // the rated clock: in recorded profiles, cycles divided by time and blocks is that clock in every row. A lower one appears
    // only as fewer cycles per duration, a higher one as more.
    let duration = launch.duration.micros() / launch.slowdown;
    let busy = duration * working_share(launch, duration);
    let cycles = busy * f64::from(profile.clock_mhz) * blocks(profile, launch) as f64;
    match launch.operation.task {
        TaskEngine::Random | TaskEngine::AiCpu | TaskEngine::Communication => ["N/A"; 25].join(","),
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

/// Returns the share of a duration in us, at the rated clock, in which the cores work. They start and stop in 1 to 3.5 us, of
/// short kernels in a third of the duration, and wait for each other in up to 2 % of it, in matrix products in up to 15 %. In
/// recorded profiles the share is 0.59 at 1.3 us, 0.7 to 0.9 at 10 us, 0.83 to 0.98 at 100 us, and 0.989 to 0.999 above 300 us, except
/// in matrix products. It varies by 0.4 %, and by 100 ns, so that cycles per time of short kernels vary as much as there.
fn working_share(launch: &LoggedLaunch, duration: f64) -> f64 {
    let kernel = hash_text(&launch.operation.kernel);
    let drawn =
        |number: u64| f64::midpoint(signed_unit_deviate(hash_numbers(&[kernel, CYCLES, number])), 1.0);
    let most_waiting = if launch.operation.task == TaskEngine::Cube { 0.15 } else { 0.02 };
    let start_and_stop = ((1.0 + 2.5 * drawn(0)) / duration.max(f64::MIN_POSITIVE)).min(0.35);
    let sd = 0.004 + 0.1 / duration.max(1.0);
    let deviate = normal_deviate(hash_numbers(&[launch.variation, CYCLES])).clamp(-3.0, 3.0);
    let share = (1.0 - start_and_stop - most_waiting * drawn(1)) * (1.0 + sd * deviate);
    share.clamp(0.5, 0.999)
}

/// Time, cycles, time and ratio of each pipe, misses of the instruction cache.
fn core(busy: f64, cycles: f64, shares: &[u64], launch: &LoggedLaunch) -> String {
    let mut cells = format!("{busy:.3},{cycles:.0}");
    for (pipe, share) in (0_u64..).zip(shares) {
        let ratio = (share + pick_number(&[launch.variation, pipe], 40)) as f64 / 1e3;
        cells.push_str(&format!(",{:.3},{ratio:.3}", busy * ratio));
    }
    let misses = pick_number(&[launch.variation, u64::MAX], 120) as f64 / 1e3;
    cells.push_str(&format!(",{misses:.3}"));
    cells
}
