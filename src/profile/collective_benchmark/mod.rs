//! Output of the collective benchmarks hccl_test and nccl-tests.
//!
//! hccl_test prints `data_size(Bytes): | aveg_time(us): | alg_bandwidth(GB/s): | check_result:` (its manual has `avg_time`). Of
//! gathers and scatters newer versions print the size of all ranks together, older ones that of one rank, and older ones count
//! 2^30 bytes as a GB: the bandwidth shows which one it is. nccl-tests prints the size of all ranks together.

mod durations;
mod output;
mod parser;
#[cfg(test)]
mod tests;

pub(crate) use durations::BenchmarkDurations;
pub(crate) use output::CollectiveBenchmark;
pub(crate) use parser::parse_element_type;
