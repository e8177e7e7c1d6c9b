//! Collection of profiles from servers of vLLM: the profiler is switched on and off, the folders of all ranks are awaited,
//! analysed and checked.

mod offline_analysis;
mod profile_folders;
mod profiled_servers;
mod vllm_collection;
mod vllm_server;

pub(crate) use offline_analysis::{AnalysedRank, AnalysisSettings, RankState, analyse_folders};
pub(crate) use profile_folders::profile_folders;
pub(crate) use profiled_servers::StopSignals;
pub(crate) use vllm_collection::{CollectedRanks, VllmCollection, VllmSettings, VllmWork};
