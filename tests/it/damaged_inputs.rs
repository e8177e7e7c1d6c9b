//! Damage of the inputs of all readers: a command that reads one ends with 0, 1, 2 or 3, within 10 seconds of a processor and 500 MB.
//!
//! `NPUBENCH_DAMAGED_INPUTS` is the number of inputs, `NPUBENCH_DAMAGE_SEED` another start of their sequence, and
//! `NPUBENCH_DAMAGED_FILE` a part of the only files that are damaged.

use std::{
    env, fs,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use npubench::{measure::device::npu_smi::parse_info, profile::read_attention_dumps};
use proptest::{
    strategy::{Strategy as _, ValueTree as _},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use sha2::{Digest as _, Sha256};

use crate::{
    fuzz::{damage, damaged, profiler_database},
    prelude::*,
};

/// What reads a damaged file.
#[derive(Clone, Copy, Debug)]
enum Reader {
    Command(&'static str),
    Function(fn(&Path)),
}

const QUERY: &str = "query --db db --op SwiGlu --inputs 8,8 --dtypes bf16";

/// Files and the commands that read them. `{RUN}` stands for the run of the database, and `{CASE}` for one of its cases.
const READERS: [(&str, Reader); 58] = {
    use Reader::{Command, Function};
    [
        // Profiles.
        ("kernel_details.csv", Command("ingest kernel_details.csv --db new --kind rehearsal")),
        ("kernel_details.csv", Command("kernels --missing kernel_details.csv")),
        (
            "msprof/PROF_000001_20260101000000000_ABCDEFGH/mindstudio_profiler_output/op_summary_20260101000000.csv",
            Command("ingest msprof --db new --kind rehearsal"),
        ),
        (
            "msprof/PROF_000001_20260101000000000_ABCDEFGH/mindstudio_profiler_output/api_statistic_20260101000000.csv",
            Command("ingest msprof --db new --kind rehearsal"),
        ),
        (
            "msprof/PROF_000001_20260101000000000_ABCDEFGH/mindstudio_profiler_output/task_time_20260101000000.csv",
            Command("ingest msprof --db new --kind rehearsal"),
        ),
        (
            "msprof/PROF_000001_20260101000000000_ABCDEFGH/mindstudio_profiler_output/msprof_20260101000000.json",
            Command("timeline msprof"),
        ),
        (
            "msprof/PROF_000001_20260101000000000_ABCDEFGH/mindstudio_profiler_log/collection_host.log",
            Command("ingest msprof --db new --kind rehearsal"),
        ),
        (
            "msprof/PROF_000001_20260101000000000_ABCDEFGH/device_0/info.json.0",
            Command("ingest msprof --db new --kind rehearsal"),
        ),
        ("msprof_1.db", Command("ingest msprof_1.db --db new --kind rehearsal")),
        ("msprof_1.db", Command("modules msprof_1.db")),
        ("torch.db", Command("timeline torch.db")),
        ("torch.db", Command("ingest torch.db --db new --kind rehearsal")),
        ("rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv", Command("modules rank0_ascend_pt")),
        ("rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json", Command("timeline rank0_ascend_pt")),
        (
            "rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json",
            Command("compare rank0_ascend_pt rank1_ascend_pt"),
        ),
        (
            "rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/operator_details.csv",
            Command("ingest rank0_ascend_pt --db new --kind rehearsal"),
        ),
        ("rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv", Command("timeline rank0_ascend_pt")),
        ("rank0_ascend_pt/profiler_info_0.json", Command("ingest rank0_ascend_pt --db new --kind rehearsal")),
        (
            "rank0_ascend_pt/profiler_metadata.json",
            Command("ingest rank0_ascend_pt --db new --kind rehearsal"),
        ),
        // Databases.
        ("db/database.yaml", Command("plan --db db")),
        ("db/MatMulV2.csv", Command("plan --db db")),
        ("db/MatMulV2.csv", Command("db check db")),
        ("db/SwiGlu.csv", Command(QUERY)),
        ("db/SwiGlu.csv", Command("diff db db")),
        ("db/op_mapping.yaml", Command(QUERY)),
        ("db/interpolation_error.yaml", Command(QUERY)),
        ("db/collective_overheads.yaml", Command("query --db db --op all_reduce --inputs 8,8 --dtypes bf16")),
        // Ledgers and what runs have written.
        ("db/.npubench/ledger.db", Command("show --db db")),
        ("db/.npubench/ledger.db", Command("report --db db --output new.html")),
        ("db/.npubench/ledger.db", Command("why {CASE} --db db")),
        ("db/.npubench/ledger.db", Command("plan --db db --update all")),
        ("db/.npubench/ledger.db", Command("db check db")),
        ("db/.npubench/ledger.db", Command("reparse --db db")),
        ("db/.npubench/ledger.db", Command("db merge new db")),
        ("db/.npubench/ledger.copy.db", Command("db check db")),
        ("db/.npubench/runs/{RUN}/collections/00001/evidence.tar.gz", Command("db check db --evidence")),
        ("db/.npubench/runs/{RUN}/collections/00001/manifest.json", Command("why {CASE} --db db")),
        ("db/.npubench/runs/{RUN}/collections/00001/launched.jsonl", Command("why {CASE} --db db")),
        ("db/.npubench/runs/{RUN}/status.json", Command("show --db db")),
        ("db/.npubench/runs/{RUN}/events.jsonl", Command("db rebuild db --dry-run")),
        ("db/.npubench/selftest/host/selftest.json", Command("selftest --report --db db")),
        ("db/.npubench/selftest/host/results.jsonl", Command("selftest --report --db db")),
        ("db/.npubench/shards/plan.json", Command("db merge db --shards")),
        // What people write.
        ("npubench.toml", Command("rules")),
        ("questions.jsonl", Command("query --db db --queries questions.jsonl")),
        (
            "op_mapping.yaml",
            Command("query --db db --op SwiGlu --inputs 8,8 --dtypes bf16 --mapping op_mapping.yaml"),
        ),
        ("list.yaml", Command("coverage --db db --workload list.yaml")),
        ("list.csv", Command("coverage --db db --workload list.csv")),
        ("ops.json", Command("coverage --db db --workload ops.json")),
        ("grid.yaml", Command("grid --db db --grids grid.yaml --dry-run")),
        ("assets/op_replay/SwiGlu.yaml", Command("plan --db db --update all --assets assets")),
        ("assets/templates/replay.py", Command("render SwiGlu --db db --assets assets")),
        (
            "assets/grids/devices/ATLAS_800_A3_752T_128G_DIE.yaml",
            Command("plan --db db --update all --assets assets"),
        ),
        ("assets/grids/models/Qwen3-8B.yaml", Command("models Qwen3-8B --assets assets")),
        ("model/config.json", Command("models model")),
        (
            "faults.yaml",
            Command(
                "run --db db --host rehearsal --devices 0-1 --rehearsal-model steady --rehearsal-faults faults.yaml",
            ),
        ),
        // Output of other programs.
        (
            "hccl_test.txt",
            Command(
                "comm import --db new --collective all_reduce --devices 0-7 --device ATLAS_800_A3_752T_128G_DIE --dtype FLOAT hccl_test.txt",
            ),
        ),
        (
            "npu-smi.txt",
            Function(|file| drop(parse_info(&String::from_utf8_lossy(&fs::read(file).expect("there"))))),
        ),
    ]
};

const FUNCTIONS: [(&str, Reader); 1] =
    [("dump.jsonl", Reader::Function(|file| drop(read_attention_dumps(&[file.to_owned()]))))];

/// A folder with all files, and the words that stand for parts of their names.
struct Inputs {
    context: Context,
    names: [(&'static str, String); 2],
}

impl Inputs {
    #[expect(clippy::too_many_lines, reason = "a list of inputs")]
    fn new() -> Self {
        let context = Context::of_measured_layer();
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let copy = |from: &str, to: &str| {
            let text = fs::read(own.join(from)).unwrap_or_else(|error| panic!("{from}: {error}"));
            fs::create_dir_all(context.path(to).parent().expect("below")).expect("created");
            fs::write(context.path(to), text).expect("written");
        };
        copy("examples/decoder-layer/kernel_details.csv", "kernel_details.csv");
        for rank in ["rank0_ascend_pt", "rank1_ascend_pt"] {
            for file in ["kernel_details.csv", "trace_view.json"] {
                let path = format!("{rank}/ASCEND_PROFILER_OUTPUT/{file}");
                copy(&format!("examples/decoder_profile/{path}"), &path);
            }
        }
        for asset in [
            "op_replay/SwiGlu.yaml",
            "grids/devices/ATLAS_800_A3_752T_128G_DIE.yaml",
            "grids/models/Qwen3-8B.yaml",
        ] {
            copy(asset, &format!("assets/{asset}"));
        }
        copy("grids/elementwise.yaml", "grid.yaml");
        copy(
            "tests/it/fixtures/timeline/step_trace_time.csv",
            "rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv",
        );
        fs::write(context.path("msprof_1.db"), profiler_database()).expect("written");
        let sql = context.path("torch.db");
        let torch = rusqlite::Connection::open(&sql).expect("created");
        torch.execute_batch(include_str!("fixtures/timeline/run.sql")).expect("valid");
        drop(torch);
        for (name, text) in [
            (
                "rank0_ascend_pt/profiler_info_0.json",
                r#"{"rank_id": 0, "cann_version": "8.3.RC1", "torch_npu_version": "2.7.1"}"#,
            ),
            (
                "msprof/PROF_000001_20260101000000000_ABCDEFGH/mindstudio_profiler_output/op_summary_20260101000000.csv",
                "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),Task Duration(us),Task Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Context ID\n0,4294967295,1,2,aclnnAdd,Add,dynamic,AI_VECTOR_CORE,1764246877073.64,2.06,0,8,0,NO,\"8,8;8,8\",FLOAT;FLOAT,ND;ND,\"8,8\",FLOAT,ND,N/A\n",
            ),
            (
                "msprof/PROF_000001_20260101000000000_ABCDEFGH/mindstudio_profiler_output/api_statistic_20260101000000.csv",
                "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance\nhost,node,launch,5.0,1,5.0,5.0,5.0,0\n",
            ),
            (
                "msprof/PROF_000001_20260101000000000_ABCDEFGH/mindstudio_profiler_output/task_time_20260101000000.csv",
                "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)\n0,aclnnAdd,KERNEL_AIVEC,2,1,2.06,1764246877073.64,1764246877075.70\n",
            ),
            (
                "msprof/PROF_000001_20260101000000000_ABCDEFGH/mindstudio_profiler_output/msprof_20260101000000.json",
                r#"[{"name": "process_name", "pid": 1, "tid": 0, "ph": "M", "args": {"name": "Ascend Hardware"}},
                    {"name": "process_labels", "pid": 1, "tid": 0, "ph": "M", "args": {"labels": "NPU 0"}},
                    {"name": "Add", "pid": 1, "tid": 2, "ts": "1764246877073.640", "dur": 2.06, "ph": "X",
                     "args": {"Task Type": "AI_VECTOR_CORE", "Stream Id": 2, "Task Id": 1}}]"#,
            ),
            (
                "msprof/PROF_000001_20260101000000000_ABCDEFGH/mindstudio_profiler_log/collection_host.log",
                "2026-01-01 00:00:00 [ERROR] [msprof] Some data may be lost\n",
            ),
            (
                "msprof/PROF_000001_20260101000000000_ABCDEFGH/device_0/info.json.0",
                r#"{"platform_version": "5", "DeviceInfo": [{"ai_core_num": 24, "aiv_num": 48, "aic_frequency": "1850"}]}"#,
            ),
            (
                "rank0_ascend_pt/profiler_metadata.json",
                r#"{"ENV_VARIABLES": {"HCCL_ALGO": "level0:ring"}, "parallel_group_info": {"group_name_0":
                   {"group_name": "default_group", "group_rank": 0, "global_ranks": [0, 1, 2, 3]}}}"#,
            ),
            (
                "rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/operator_details.csv",
                "Name,Input Shapes,Call Stack,Host Self Duration(us)\nnpu::npu_fused_infer_attention_score,\"4,8;\n8,2;\n\",\"a.py(1): f\",1.5\n",
            ),
            (
                "db/op_mapping.yaml",
                "operator_mappings:\n  swiglu: {kernel_type: SwiGlu}\n  all_reduce: {kernel_type: hcom_allReduce_, category: communication}\n",
            ),
            (
                "op_mapping.yaml",
                "operator_mappings:\n  swiglu: {kernel_type: SwiGlu}\n  all_reduce: {kernel_type: hcom_allReduce_, category: communication}\n",
            ),
            (
                "db/interpolation_error.yaml",
                "npubench_interpolation_error: 1\nkind: rehearsal\nkernels: {SwiGlu: {p50: 0.01, p90: 0.05, max: 0.1, target: 0.05, hold_outs: [0.01], rows: 9, candidates: 20, models: [Qwen3-8B], seed: 1, date: 2026-01-01}}\n",
            ),
            (
                "db/collective_overheads.yaml",
                "npubench_collective_overheads: 1\noverheads:\n- {kernel: hcom_allReduce_, ranks: 16, overhead_us: 7.7, source: \"A3\"}\n",
            ),
            ("npubench.toml", "db = \"db\"\n[run]\ndevices = \"0-3\"\nlaunches = 20\n"),
            (
                "questions.jsonl",
                "{\"op\": \"MatMulV2\", \"inputs\": [[136, 5120], [5120, 768]], \"dtypes\": [\"bf16\"]}\n{\"op\": \"SwiGlu\", \"inputs\": [[8, 8]]}\n",
            ),
            (
                "list.yaml",
                "questions:\n- {op: MatMulV2, inputs: \"2048,4096;4096,4096\", dtypes: bf16, count: 64, duration_us: 31.5}\n",
            ),
            (
                "list.csv",
                "op,inputs,dtypes,count,duration_us\nMatMulV2,\"2048,4096;4096,4096\",bf16,64,31.5\n",
            ),
            (
                "ops.json",
                r#"{"ops": [{"op_name": "aten.mm.default", "count": 3, "total_duration_us": 7.5,
                   "shape_variants": [{"input_shapes": ["(8, 4)", "(4, 8)"], "count": 3}]}]}"#,
            ),
            (
                "model/config.json",
                r#"{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288,
                   "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936}"#,
            ),
            (
                "faults.yaml",
                "faults:\n  - crash: {signal: SIGSEGV, at: launch, launch: 3, records: idle_driver}\n    where: {kernel: MatMulV3, shapes: \"2048,4096;4096,4096\"}\n  - clock_jump: {seconds: -3600}\n    where: {ordinal: 4, collections: [2]}\n",
            ),
            (
                "hccl_test.txt",
                "the minbytes is 8192, maxbytes is 67108864, iters is 20, warmup_iters is 5\ndata_size(Bytes): | aveg_time(us): | alg_bandwidth(GB/s): | check_result:\n1048576 | 100.00 | 10.48576 | success\n",
            ),
            (
                "dump.jsonl",
                "{\"query\":[2,4,128],\"key\":[64,128,128],\"value\":[64,128,128],\"block_table\":[2,8],\"actual_seq_lengths\":[1,2],\"actual_seq_lengths_kv\":[1000,129],\"num_heads\":4,\"num_key_value_heads\":1,\"input_layout\":\"TND\",\"sparse_mode\":3,\"block_size\":128}\n",
            ),
            (
                "npu-smi.txt",
                "+----+\n| npu-smi 25.0.rc1   Version: 25.0.rc1 |\n+----+\n| NPU Name | Health | Power(W) Temp(C) Hugepages-Usage(page)|\n| Chip Phy-ID | Bus-Id | AICore(%) Memory-Usage(MB) HBM-Usage(MB) |\n+====+\n| 0 Ascend910 | OK | 160.2 35 0 / 0 |\n| 0 0 | 0000:9D:00.0 | 0 0 / 0 2880 / 65536 |\n+====+\n",
            ),
            (
                "db/.npubench/selftest/host/selftest.json",
                r#"{"host": "h", "kind": "rehearsal", "started": "20260101T000000Z", "fingerprint": "x", "devices": [0], "npubench": "0.1.0"}"#,
            ),
            (
                "db/.npubench/selftest/host/results.jsonl",
                "{\"number\": 1, \"name\": \"device numbers\", \"status\": \"pass\", \"summary\": \"text\", \"devices\": [0]}\n",
            ),
        ] {
            context.write(name, text);
        }
        fs::create_dir_all(context.path("assets/templates")).expect("created");
        let template =
            fs::read_dir(own.join("templates")).expect("listed").next().expect("one").expect("read");
        fs::copy(template.path(), context.path("assets/templates/replay.py")).expect("copied");
        let run = context.done("runs --db db --format json").json()[0]["run"].text().to_owned();
        let case = context.run("show --db db --format json").json()[0]["case"].text().to_owned();
        context.run("shard --db db --shards 2 --update all");
        Self { context, names: [("{RUN}", run), ("{CASE}", case)] }
    }

    fn named(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (word, name)| text.replace(word, name))
    }

    fn path(&self, file: &str) -> PathBuf {
        self.context.path(&self.named(file))
    }

    fn remove_output(&self) {
        let _ = fs::remove_dir_all(self.context.path("new"));
        let _ = fs::remove_file(self.context.path("new.html"));
    }

    /// Reads an input that may be damaged, and returns the exit code; the error describes what must not be.
    fn read_damaged(&self, reader: Reader, path: &Path) -> Result<i32, String> {
        let command = match reader {
            Reader::Function(read) => {
                read(path);
                return Ok(0);
            }
            Reader::Command(command) => self.named(command),
        };
        let program = assert_cmd::cargo::cargo_bin!("npubench");
        let mut limited = self.context.command(&[""; 0]);
        let inner = format!(
            "ulimit -d 500000; ulimit -t 10; exec timeout -s KILL 60 {} {command}",
            program.display()
        );
        let environment: Vec<_> =
            limited.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
        limited = std::process::Command::new("sh");
        limited.args(["-c", &inner]).current_dir(self.context.path(""));
        for (name, value) in environment {
            match value {
                Some(value) => limited.env(name, value),
                None => limited.env_remove(name),
            };
        }
        let ran = self.context.ran(&limited.output().expect("npubench runs"));
        let is_stated = ran.code != 3 || ran.stderr.contains("\nhint: ");
        let is_short = ran.stderr.len() < 100_000;
        match (0..=3).contains(&ran.code) && !ran.stderr.contains("panicked") && is_stated && is_short {
            true => Ok(ran.code),
            false => {
                let start: String = ran.stderr.chars().take(1_000).collect();
                Err(format!("`{command}` ended with {}: {start}", ran.code))
            }
        }
    }
}

/// Compresses the damaged content of an archive, and puts its digest into the ledger: a changed archive is not unpacked.
fn write_archive(inputs: &Inputs, path: &Path, tar: &[u8]) {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(tar).expect("compressed");
    let bytes = encoder.finish().expect("compressed");
    fs::write(path, &bytes).expect("written");
    let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let ledger = rusqlite::Connection::open(inputs.context.path("db/.npubench/ledger.db")).expect("a ledger");
    ledger.execute("UPDATE collections SET archive = ?1 WHERE number = 1", [digest]).expect("updated");
}

#[test]
fn damaged_inputs_of_all_readers_end_in_time() {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    let only = env::var("NPUBENCH_DAMAGED_FILE").unwrap_or_default();
    let readers: Vec<(&str, Reader)> =
        READERS.into_iter().chain(FUNCTIONS).filter(|(file, _)| file.contains(&only)).collect();
    let count = number("NPUBENCH_DAMAGED_INPUTS").unwrap_or(readers.len());
    let seed = number("NPUBENCH_DAMAGE_SEED").unwrap_or_default();
    let next = AtomicUsize::new(0);
    let work = || {
        let inputs = Inputs::new();
        let mut problems = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return problems;
            }
            let (file, reader) = readers[index % readers.len()];
            let path = inputs.path(file);
            let Ok(whole) = fs::read(&path) else {
                problems.push(format!("there is no `{file}`"));
                continue;
            };
            let mut start = [0; 32];
            start[..8].copy_from_slice(&(seed as u64).to_le_bytes());
            start[8..16].copy_from_slice(&(index as u64).to_le_bytes());
            let random = TestRng::from_seed(RngAlgorithm::ChaCha, &start);
            let mut runner = TestRunner::new_with_rng(Config::default(), random);
            let damages = damage().new_tree(&mut runner).expect("a damage").current();
            let ledger = inputs.context.path("db/.npubench/ledger.db");
            let before = fs::read(&ledger).expect("a ledger");
            if file.ends_with(".tar.gz") && !index.is_multiple_of(4) {
                let mut tar = Vec::new();
                GzDecoder::new(&*whole).read_to_end(&mut tar).expect("whole");
                write_archive(&inputs, &path, &damaged(&tar, &damages));
            } else {
                fs::write(&path, damaged(&whole, &damages)).expect("written");
            }
            if let Err(problem) = inputs.read_damaged(reader, &path) {
                problems.push(format!("input {index} of seed {seed}, `{file}`, {damages:?}: {problem}"));
            }
            fs::write(&ledger, before).expect("restored");
            fs::write(&path, whole).expect("restored");
            inputs.remove_output();
        }
    };
    let problems: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("no reader in this process panics"))
            .collect()
    });
    assert!(problems.is_empty(), "{} of {count}:\n{}", problems.len(), problems.join("\n"));
}

/// Without damage the commands read the files: the campaign would not notice a name that nothing reads.
#[test]
fn inputs_without_damage_are_read() {
    let inputs = Inputs::new();
    for (file, reader) in READERS.into_iter().chain(FUNCTIONS) {
        let path = inputs.path(file);
        assert!(path.exists(), "{file}");
        let code = inputs.read_damaged(reader, &path).unwrap_or_else(|problem| panic!("{file}: {problem}"));
        assert!(code <= 1, "{file}: {reader:?} ended with {code}");
        inputs.remove_output();
    }
}
