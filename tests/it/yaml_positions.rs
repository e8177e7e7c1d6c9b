//! Positions of errors in YAML files: each error is reported at the line and column of the faulty value.

use std::{fs, path::Path};

use npubench::{
    base::{assets::AssetFiles, yaml::YamlError},
    cases::{
        grid::definition::{DensityFile, GridFiles, GridModels, MutationFile},
        llm::LlmModel,
    },
    database::database_file::DatabaseFile,
    kernel::catalogue::Catalogue,
    rehearsal::fault_plan::{FaultPlan, ValidNames},
};

/// Marks the position of the faulty value in a text.
const MARK: char = '@';

/// Replaces one part of a valid file after the other and compares the position of the error with that of the mark.
/// Comment lines in front of the file must move the error by their number.
fn assert_positions(
    good: &str,
    faults: &[(&str, &str)],
    parse: impl Fn(&Path, &str) -> Result<(), YamlError>,
) {
    let file = Path::new("test.yaml");
    parse(file, good).expect("the file without faults is valid");
    for (right, wrong) in faults {
        assert_eq!(good.matches(right).count(), 1, "`{right}` must occur once");
        let marked = good.replace(right, wrong);
        let before = marked.split_once(MARK).expect("a mark").0;
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().expect("a line").chars().count() + 1;
        let text = marked.replace(MARK, "");
        for comments in [0, 17] {
            let error = parse(file, &format!("{}{text}", "# a comment: M, kernel\n".repeat(comments)));
            let error = error.expect_err(wrong);
            assert_eq!((error.line, error.column), (Some(line + comments), Some(column)), "{wrong}: {error}");
            assert!(error.to_string().starts_with("test.yaml:"), "{error}");
            assert!(!error.problem.contains('\n') && !error.hint.is_empty(), "{error}");
        }
    }
}

const ENTRY: &str = "kernel: AMatMul
summary: matrix product of self and mat2
api: torch.mm
schema: \"aten::mm(Tensor self, Tensor mat2) -> Tensor\"
unit: cube
roles:
  M: tokens
needs:
  modules:
    - torch_npu
inputs:
  - argument: self
    values: activation
    dtypes:
      - FLOAT
      - DT_BF16
  - argument: mat2
    values: weight
    same_type_as: self
outputs:
  - self
forms:
  - name: A x B
    shapes: \"M,K; K,N -> M,N\"
  - name: A x B^T
    shapes: \"M,K; N,K -> M,N\"
    where:
      - K > 0
      - N >= K or N < K
    transposed: [mat2]
cost:
  flops: 2 * M * N * K
";

#[test]
fn errors_of_entries_have_the_position_of_the_faulty_value() {
    let folder = tempfile::tempdir().expect("a folder");
    // The first file in the order of names, so that the others are not parsed.
    let path = folder.path().join("op_replay/AMatMul.yaml");
    fs::create_dir_all(path.parent().expect("a folder")).expect("created");
    let faults = [
        ("kernel: AMatMul", "kernel: @AMatMulV7"),
        ("api: torch.mm", "api: @os.system"),
        ("schema: \"aten::mm(Tensor self, Tensor mat2) -> Tensor\"", "schema: @\"aten::mm(Tensor self\""),
        ("unit: cube", "unit: @cbue"),
        ("  M: tokens", "  M: @tokns"),
        ("    - torch_npu", "    - torch_npu\n    - @a-b"),
        ("values: weight", "values: @wieght"),
        ("values: weight", "values: weight\n    below: @M"),
        ("      - DT_BF16", "      - @DT_BF61"),
        ("  - argument: mat2", "  - argument: @mat3"),
        ("same_type_as: self", "same_type_as: @other"),
        ("outputs:\n  - self", "outputs:\n  - @slef"),
        ("\"M,K; K,N -> M,N\"", "@\"M,K; K,N\""),
        ("      - N >= K or N < K", "      - @N >="),
        ("transposed: [mat2]", "transposed: [self, @mat4]"),
        ("flops: 2 * M * N * K", "flops: @2 * M *"),
        ("cost:", "arguments:\n  @out:\n    constant: 1\ncost:"),
        ("cost:", "@csot:"),
        ("unit: cube", "unit: cube\n@unit: vector"),
    ];
    assert_positions(ENTRY, &faults, |_, text| {
        fs::write(&path, text).expect("written");
        let assets = AssetFiles::overlaid(folder.path()).expect("a folder");
        let parsed = Catalogue::load(&assets).map(drop);
        parsed.map_err(|error| YamlError { file: "test.yaml".into(), ..error })
    });
}

const GRID: &str = "summary: a grid
ladders:
  T:
    - 1..8 ratio 2
    - 16
constants: {block: 16}
patterns:
  first:
    kernels: [RmsNorm]
    axes: {t: T, d: [64, 128]}
    let: {w: d * block}
    where: [w % 32 == 0]
    inputs: {shapes: \"t,w; w\", dtypes: DT_BF16}
    outputs: {shapes: \"t,w; t,1\", dtypes: DT_BF16}
  norm:
    kernels:
      - RmsNorm
      - LayerNormV3
    axes:
      t: T
      \"d,e\":
        - [64, 1]
        - [128, 2]
    let:
      w: d * block
      v: w + e
    where:
      - w % 32 == 0
      - v > 0
    inputs:
      shapes: \"t,w; w; v\"
      dtypes: DT_BF16
    outputs:
      shapes: \"t,w; t,1\"
      dtypes: \"DT_BF16; FLOAT\"
    text:
      Runtime input_layout: TND
    attributes:
      EP Size: e
    with_models:
      where:
        - w < hidden_size
    overrides:
      LayerNormV3:
        let: {w: d * 2, v: e}
";

#[test]
fn errors_of_grids_have_the_position_of_the_faulty_value() {
    let faults = [
        ("    - 16\n", "    - @0\n"),
        ("    - 16\n", "    - 16\n    - @[1]\n"),
        ("  norm:\n", "  norm:\n    @summry: x\n"),
        ("      t: T\n", "      t: @S\n"),
        ("      t: T\n", "      t: {model: @prodcts}\n"),
        ("      t: T\n", "      @t.x: T\n"),
        ("      t: T\n", "      t:\n        - 1\n        - @x\n"),
        ("        - [128, 2]\n", "        - [128, @0]\n"),
        ("      v: w + e\n", "      v: @w + f\n"),
        ("      v: w + e\n", "      v: w\n      @t: 1\n"),
        ("      - v > 0\n", "      - @v + 0\n"),
        ("      dtypes: \"DT_BF16; FLOAT\"\n", "      dtypes: @\"DT_BF16; FLOTA\"\n"),
        ("      shapes: \"t,w; w; v\"\n", "      shapes: @\"t,w; w; u\"\n"),
        ("      shapes: \"t,w; w; v\"\n", "      shapes: \"t,w; w; v\"\n      formats: @NDD\n"),
        ("      Runtime input_layout: TND\n", "      @Runtime inputlayout: TND\n"),
        ("      EP Size: e\n", "      EP Size: @e *\n"),
        ("        - w < hidden_size\n", "        - w < hidden_size\n        - @w < hiden_size\n"),
        ("        let: {w: d * 2, v: e}\n", "        let: {w: d * 2, v: @u}\n"),
        ("      LayerNormV3:\n", "      @LayerNormV2:\n"),
        ("constants: {block: 16}\n", "constants: {block: 16, @block: 32}\n"),
    ];
    let ladders = (Path::new("ladders.yaml"), "summary: shared\nladders: {}\n");
    let models = GridModels::load(&AssetFiles::embedded(), &[]).expect("models");
    assert_positions(GRID, &faults, |file, text| GridFiles::parse(file, text, ladders, &models).map(drop));
}

const MUTATIONS: &str = "summary: changes
mutations:
  double:
    kernels:
      - MatMulV2
    roles:
      - tokens
    factors:
      - 2
      - 1/2
  align:
    bytes: [16, 32]
    steps:
      - 0
  types:
    types:
      FLOAT: FLOAT16
  layout:
    formats: {ND: FRACTAL_NZ}
  lengths:
    values:
      - 1..8
      - 16
  int8:
    quantised: true
";

#[test]
fn errors_of_mutations_have_the_position_of_the_faulty_value() {
    let faults = [
        ("      - 1/2\n", "      - @1/0\n"),
        ("      - tokens\n", "      - @tokns\n"),
        ("      - MatMulV2\n", "      - @\"\"\n"),
        ("    bytes: [16, 32]\n", "    bytes:\n      - 16\n      - @-1\n"),
        ("      FLOAT: FLOAT16\n", "      FLOAT: @FLOTA16\n"),
        ("    formats: {ND: FRACTAL_NZ}\n", "    formats: {ND: @FRACTAL}\n"),
        ("      - 16\n", "      - @x\n"),
        ("    quantised: true\n", "    quantised: @false\n"),
        ("  int8:\n", "  @int8:\n    cores: true\n"),
        ("  int8:\n", "  @align: {cores: true}\n  int8:\n"),
    ];
    assert_positions(MUTATIONS, &faults, |file, text| MutationFile::parse(file, text).map(drop));
    let steps = [
        ("    bytes: [16, 32]\n    steps:\n      - 0\n", "    last_block: [0]\n    steps:\n      @- 0\n"),
        ("    bytes: [16, 32]\n    steps:\n      - 0\n", "    last_block: [0]\n    roles: @[tokens]\n"),
    ];
    assert_positions(MUTATIONS, &steps, |file, text| MutationFile::parse(file, text).map(drop));
}

const DENSITY: &str = "summary: density
standards:
  rows:
    segments:
      - 1..8
      - 8..64 ratio 2
    required:
      - 48
  heads: {segments: [1..8], required: [3]}
kernels:
  products:
    kernels:
      - MatMulV2
      - MatMulV3
    axes:
      rows:
        standard: rows
        value: M
        in_form:
          A x B: M
        for_each:
          n: N
          k: K
";

#[test]
fn errors_of_density_standards_have_the_position_of_the_faulty_value() {
    let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the catalogue");
    let faults = [
        ("      - 8..64 ratio 2\n", "      - @8..64 raito 2\n"),
        ("      - 8..64 ratio 2\n", "      - @9..64 ratio 2\n"),
        ("      - 48\n", "      - @0\n"),
        ("  heads: {segments: [1..8], required: [3]}\n", "  @heads: {}\n"),
        ("      - MatMulV3\n", "      - @MatMulV8\n"),
        ("        standard: rows\n", "        standard: @row\n"),
        ("        value: M\n", "        value: @Q\n"),
        ("          A x B: M\n", "          A x B: @Q\n"),
        ("        value: M\n", "        @vlaue: M\n"),
    ];
    assert_positions(DENSITY, &faults, |file, text| DensityFile::parse(file, text, &catalogue).map(drop));
}

const MODEL: &str = "model: Company/Model
hidden_size: 4096
layers: 32
vocab_size: 32000
mla:
  heads: 64
  q_lora_rank: 1536
  kv_lora_rank: 512
  nope_head_dim: 128
  rope_head_dim: 64
  v_head_dim: 128
  indexer:
    heads: 32
    head_dim: 128
    top_k: 2048
intermediate_size: 12288
moe:
  experts: 64
  top_k: 8
  intermediate_size: 1536
  shared_experts: 1
  dense_layers: 1
layouts:
  tp: [1, 2]
  ep: [2]
  dp: [2]
quantisation: [bf16]
";

#[test]
fn errors_of_models_have_the_position_of_the_faulty_value() {
    let faults = [
        ("hidden_size: 4096", "hidden_size: @0"),
        ("  heads: 64\n", "  heads: @0\n"),
        ("  nope_head_dim: 128", "  nope_head_dim: @99999999"),
        ("  top_k: 8\n", "  top_k: @80\n"),
        ("  dense_layers: 1\n", "  dense_layers: @32\n"),
        ("  dense_layers: 1\n", "  @dense_layer: 1\n"),
        ("quantisation: [bf16]", "quantisation: [bf16, @fp8]"),
        ("mla:\n  heads: 64\n", "gqa: {heads: 1, kv_heads: 1, head_dim: 1}\nmla:\n  @heads: 64\n"),
    ];
    assert_positions(MODEL, &faults, |file, text| LlmModel::parse(file, text).map(drop));
    let kv_heads = [("kv_heads: 8", "kv_heads: @7")];
    let grouped = "model: A/B\nhidden_size: 64\nlayers: 2\nvocab_size: 100\ngqa:\n  heads: 16\n  kv_heads: 8\n  \
                   head_dim: 4\nintermediate_size: 128\nlayouts:\n  tp: [1, 2]\n";
    assert_positions(grouped, &kv_heads, |file, text| LlmModel::parse(file, text).map(drop));
}

const FAULTS: &str = "seed: 1
speed: 2
costs:
  start: 1
  export: 2
faults:
  - crash: {signal: SIGKILL}
    where: {devices: [0, 1], kernel: MatMulV2}
  - crash:
      exit: 3
      launch: 2
    where:
      kernel:
        - MatMulV2
        - RmsNorm
      devices:
        - 0
        - 1
      probability: 0.5
    times: 1
    when:
      from: 1
      until: 3
  - throttling:
      factor: 2
";

#[test]
fn errors_of_fault_plans_have_the_position_of_the_faulty_value() {
    let known = ValidNames { kernels: &["MatMulV2", "RmsNorm"], devices: 4 };
    let faults = [
        ("speed: 2", "speed: @0"),
        ("      exit: 3\n", "      exit: @300\n"),
        ("      exit: 3\n", "      exit: 3\n      signal: @SIGKILL\n"),
        ("        - RmsNorm\n", "        - @RmsNrom\n"),
        ("        - 1\n      probability", "        - @4\n      probability"),
        ("probability: 0.5", "probability: @1.5"),
        ("      until: 3\n", "      until: @1\n"),
        ("      factor: 2\n", "      factor: 2\n    times: @1\n"),
        ("      factor: 2\n", "      @fcator: 2\n"),
        ("  - throttling:\n      factor: 2\n", "  - @where: {devices: 1}\n"),
    ];
    assert_positions(FAULTS, &faults, |file, text| FaultPlan::parse(file, text, &known).map(drop));
}

#[test]
fn errors_of_database_files_have_the_position_of_the_faulty_value() {
    let good = "npubench_database: 1\nkind: npu\ndevice: x\n";
    let faults = [
        ("npubench_database: 1", "future: 3\nnpubench_database: @2"),
        ("kind: npu", "kind: @nup"),
        ("device: x", "@devcie: x"),
    ];
    assert_positions(good, &faults, |file, text| DatabaseFile::parse(file, text).map(drop));
}
