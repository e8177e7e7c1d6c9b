//! Mutations: consistency of mutants, and their selection as rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::OnceLock,
};

use npubench::{
    base::assets::AssetFiles,
    cases::grid::{
        CandidateSource, ExistingCases, SelectionRequest,
        definition::{GridFiles, GridModels, Mutation, MutationChange, MutationFile},
        mutate::{CaseMutator, Mutant},
        select_rows,
    },
    kernel::{
        Case, CaseAttributes, KernelName, SignatureCells, Slot, catalogue::Catalogue, device::DeviceProfile,
    },
    profile::{ProfileFile, RecordGroups, add_table},
};

use crate::oracle::{assert_consistent, dims};

/// Data that all tests share.
struct Fixture {
    catalogue: Catalogue,
    mutations: MutationFile,
    device: DeviceProfile,
    /// Cases of the decoder layer and of all grids, by kernel.
    cases: BTreeMap<KernelName, Vec<Case>>,
}

impl Fixture {
    fn get() -> &'static Self {
        static FIXTURE: OnceLock<Fixture> = OnceLock::new();
        FIXTURE.get_or_init(Self::read)
    }

    fn read() -> Self {
        let assets = AssetFiles::embedded();
        let catalogue = Catalogue::load(&assets).expect("the catalogue");
        let mut groups = RecordGroups::default();
        let layer = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/decoder-layer");
        let files = ProfileFile::find_all(&[layer]).expect("an example").files;
        for (file, number) in files.iter().zip(0..) {
            add_table(&mut groups, &file.0, number, true).expect("records");
        }
        let profiled = groups.into_kernels().into_iter();
        let mut cases: BTreeMap<KernelName, Vec<Case>> = profiled
            .map(|(kernel, groups)| (kernel, groups.into_iter().map(|one| one.case).collect()))
            .collect();
        for models in [&[][..], &["Qwen3-32B".to_owned(), "DeepSeek-V3".to_owned()]] {
            let models = GridModels::load(&assets, models).expect("models");
            let grids = GridFiles::load(&assets, &models).expect("grids");
            for kernel in grids.kernels() {
                let request = SelectionRequest {
                    entry: catalogue.entry(&kernel),
                    budget: 8 << 30,
                    rows: Some(4),
                    seed: 3,
                    filter: None,
                };
                let source = CandidateSource::Grid(grids.spaces_of_kernel(&kernel).collect());
                let selected = select_rows(&kernel, source, &request, &ExistingCases::default());
                let cases = cases.entry(kernel.clone()).or_default();
                selected.for_each(|row| cases.push(row.case.clone()));
            }
        }
        cases.retain(|_, cases| !cases.is_empty());
        Self {
            mutations: MutationFile::load(&assets).expect("mutations"),
            device: DeviceProfile::load(&assets, DeviceProfile::default_name()).expect("a device"),
            catalogue,
            cases,
        }
    }

    fn all(&self) -> Vec<&Mutation> {
        self.mutations.all().iter().collect()
    }

    fn mutants(&self, source: &Case, target: &KernelName, mutations: &[&Mutation]) -> Vec<Mutant> {
        let mutator = CaseMutator { mutations, catalogue: &self.catalogue, device: &self.device };
        let mut mutants = Vec::new();
        mutator
            .for_each(source, target, |mutant| mutants.push(mutant))
            .unwrap_or_else(|refusal| panic!("{} {}: {refusal}", source.kernel, source.shapes()));
        mutants
    }

    /// Returns the mutants of a mutation that the catalogue accepts.
    fn accepted(&self, source: &Case, target: &str, name: &str) -> Vec<Case> {
        let (target, mutation) = (kernel(target), self.mutations.named(name).expect("a mutation"));
        let cases = self.mutants(source, &target, &[mutation]).into_iter().filter_map(|one| one.case.ok());
        let entry = self.catalogue.entry(&target).expect("an entry");
        cases.filter(|case| entry.resolve_call(case).is_ok()).collect()
    }
}

fn kernel(name: &str) -> KernelName {
    KernelName::new(name).expect("a name")
}

fn case(name: &str, inputs: [&str; 3], outputs: [&str; 3], attributes: &[(&str, &str)]) -> Case {
    let slots = |[shapes, dtypes, formats]: [&str; 3]| -> Vec<Slot> {
        let count = shapes.matches(';').count() + 1;
        let each =
            |text: &str| if text.contains(';') { text.to_owned() } else { vec![text; count].join(";") };
        SignatureCells { shapes, dtypes: &each(dtypes), formats: &each(formats) }.parse().expect("cells")
    };
    let mut all = CaseAttributes::default();
    attributes.iter().for_each(|(column, text)| all.set(column, text));
    Case { kernel: kernel(name), inputs: slots(inputs), outputs: slots(outputs), attributes: all }
}

fn with_case(source: &Case, dimension: &str, value: u64) -> Case {
    changed(source, dimension, value).unwrap_or_else(|why| panic!("{why}"))
}

fn with(source: &Case, dimension: &str, value: u64) -> Result<String, String> {
    changed(source, dimension, value).map(|case| case.shapes())
}

fn changed(source: &Case, dimension: &str, value: u64) -> Result<Case, String> {
    let entry = Fixture::get().catalogue.entry(&source.kernel).expect("an entry");
    let anatomy = entry.edit_case(source).expect("it is read");
    let dimensions = anatomy.dimensions();
    let found = dimensions.iter().find(|one| one.to_string() == dimension);
    let known: Vec<String> = dimensions.iter().map(ToString::to_string).collect();
    let found = found.unwrap_or_else(|| panic!("{dimension} is none of {known:?}"));
    anatomy.build_case(&[(found.clone(), value)], None)
}

/// Every slot with the dimension and every number that a condition equates changes, and no other.
#[test]
fn dimension_change_updates_dependent_slots() {
    let bf16 = |name: &str, inputs: &str, outputs: &str| {
        case(name, [inputs, "DT_BF16", "ND"], [outputs, "DT_BF16", "ND"], &[])
    };
    let product = bf16("MatMulV2", "8,64;32,64", "8,32");
    assert_eq!(with(&product, "K", 128).unwrap(), "8,128;32,128 -> 8,32");
    assert_eq!(with(&product, "N", 48).unwrap(), "8,64;48,64 -> 8,48");
    assert_eq!(with(&product, "M", 1).unwrap(), "1,64;32,64 -> 1,32");
    assert!(with(&product, "M", 0).is_err() && with(&product, "M", u64::MAX).is_err());
    let blocked =
        case("MatMulV2", ["8,64;4,2,16,16", "DT_BF16", "ND;FRACTAL_NZ"], ["8,32", "DT_BF16", "ND"], &[]);
    assert_eq!(with(&blocked, "N", 160).unwrap(), "8,64;4,10,16,16 -> 8,160");
    assert_eq!(with(&blocked, "N", 33).unwrap(), "8,64;4,3,16,16 -> 8,33", "blocks are whole");
    let scaled = case(
        "QuantBatchMatmulV3",
        ["8,64;64,32;32;8", "INT8;INT8;FLOAT;FLOAT", "ND"],
        ["8,32", "DT_BF16", "ND"],
        &[],
    );
    assert_eq!(with(&scaled, "N", 64).unwrap(), "8,64;64,64;64;8 -> 8,64", "scales of columns");
    assert_eq!(with(&scaled, "M", 16).unwrap(), "16,64;64,32;32;16 -> 16,32", "scales of rows");
    let single =
        case("QuantBatchMatmulV3", ["8,64;64,32;1", "INT8;INT8;FLOAT", "ND"], ["8,32", "DT_BF16", "ND"], &[]);
    assert_eq!(with(&single, "N", 64).unwrap(), "8,64;64,64;1 -> 8,64", "one scale stays one");
    // Lists stand side by side from their ends, and a dimension of 1 is spread over the other.
    let sum = bf16("Add", "4,1,8;6,8", "4,6,8");
    assert_eq!(with(&sum, "X[2]", 16).unwrap(), "4,1,16;6,16 -> 4,6,16");
    assert_eq!(with(&sum, "Y[0]", 7).unwrap(), "4,1,8;7,8 -> 4,7,8");
    assert_eq!(with(&sum, "X[0]", 5).unwrap(), "5,1,8;6,8 -> 5,6,8");
    let spread = case("BroadcastTo", ["1,64;2", "DT_BF16;INT64", "ND"], ["32,64", "DT_BF16", "ND"], &[]);
    assert_eq!(with(&spread, "X[1]", 128).unwrap(), "1,128;2 -> 32,128");
    assert_eq!(with(&spread, "Y[0]", 64).unwrap(), "1,64;2 -> 64,64");
    let part = case("Slice", ["64,512;2;2", "DT_BF16;INT64;INT64", "ND"], ["64,128", "DT_BF16", "ND"], &[]);
    assert_eq!(with(&part, "X[0]", 8).unwrap(), "8,512;2;2 -> 8,128");
    assert_eq!(with(&part, "X[1]", 1024).unwrap(), "64,1024;2;2 -> 64,128", "what is cut off is free");
    let turned = case("Transpose", ["64,512,3;3", "DT_BF16;INT64", "ND"], ["3,64,512", "DT_BF16", "ND"], &[]);
    assert_eq!(with(&turned, "X[2]", 5).unwrap(), "64,512,5;3 -> 5,64,512");
    let joined = bf16("ConcatD", "4,8;4,2", "4,10");
    assert_eq!(with(&joined, "X_0[0]", 5).unwrap(), "5,8;5,2 -> 5,10");
    assert_eq!(with(&joined, "X_1[1]", 5).unwrap(), "4,8;4,5 -> 4,13");
    let halves = bf16("SwiGlu", "7,64", "7,32");
    assert_eq!(with(&halves, "D", 128).unwrap(), "7,128 -> 7,64");
    assert!(with(&halves, "D", 63).unwrap_err().contains("63 is not a multiple of 2"));
    let norm = case("RmsNorm", ["3,5,64;64", "DT_BF16", "ND"], ["3,5,64;3,5,1", "DT_BF16;FLOAT", "ND"], &[]);
    assert_eq!(with(&norm, "B[1]", 9).unwrap(), "3,9,64;64 -> 3,9,64;3,9,1");
    assert_eq!(with(&norm, "D", 65).unwrap(), "3,5,65;65 -> 3,5,65;3,5,1");
    let cache = case(
        "KvRmsNormRopeCache",
        [
            "4,1,1,576;512;4,1,1,64;4,1,1,64;4;32,128,1,64;32,128,1,512",
            "DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT64;DT_BF16;DT_BF16",
            "ND",
        ],
        ["32,128,1,64;32,128,1,512;4,1,1,64;4,1,1,512", "DT_BF16", "ND"],
        &[],
    );
    assert_eq!(
        with(&cache, "B", 6).unwrap(),
        "6,1,1,576;512;6,1,1,64;6,1,1,64;6;32,128,1,64;32,128,1,512 -> \
         32,128,1,64;32,128,1,512;6,1,1,64;6,1,1,512",
        "a place for each token"
    );
    assert_eq!(
        with(&cache, "R", 32).unwrap(),
        "4,1,1,544;512;4,1,1,32;4,1,1,32;4;32,128,1,32;32,128,1,512 -> \
         32,128,1,32;32,128,1,512;4,1,1,32;4,1,1,512",
        "a row has both parts"
    );
}

/// Every accepted mutant of every kind of case is consistent, fits its mutation, and keeps the numbers of heads.
#[test]
fn all_mutants_are_consistent() {
    let fixture = Fixture::get();
    let all = fixture.all();
    let (mut tried, mut taken) = (BTreeSet::new(), 0);
    for (kernel, cases) in &fixture.cases {
        let Some(entry) = fixture.catalogue.entry(kernel) else { continue };
        for source in cases.iter().filter(|case| entry.resolve_call(case).is_ok()) {
            assert_consistent(source);
            for mutant in fixture.mutants(source, kernel, &all) {
                let Ok(case) = mutant.case else { continue };
                assert!(!all[mutant.mutation].name.is_empty() && case.kernel == *kernel);
                if entry.resolve_call(&case).is_err() {
                    continue;
                }
                taken += 1;
                tried.insert(all[mutant.mutation].name.as_str());
                assert_consistent(&case);
                if kernel.as_str() == "FusedInferAttentionScore" {
                    let heads = |case: &Case| {
                        (dims(case.inputs.first())[1], dims(case.inputs.first()).last().copied())
                    };
                    assert_eq!(heads(&case), heads(source), "{}: heads are kept", case.shapes());
                }
                match &all[mutant.mutation].change {
                    MutationChange::Types(types) => {
                        assert_eq!(case.shapes(), source.shapes());
                        let slots = |case: &Case| {
                            case.inputs.iter().chain(&case.outputs).cloned().collect::<Vec<_>>()
                        };
                        for (before, after) in slots(source).into_iter().zip(slots(&case)) {
                            let (Some(before), Some(after)) = (before, after) else { continue };
                            assert_eq!(after.dtype, *types.get(&before.dtype).unwrap_or(&before.dtype));
                        }
                    }
                    MutationChange::Formats(_) => {
                        let changed =
                            case.inputs.iter().zip(&source.inputs).filter(|(after, before)| after != before);
                        let [(Some(after), Some(before))] = changed.collect::<Vec<_>>()[..] else {
                            panic!("{}: one tensor changes", case.shapes())
                        };
                        assert_ne!(after.format, before.format);
                        assert_eq!(
                            after.element_count(),
                            before.element_count(),
                            "the rule wants whole blocks"
                        );
                    }
                    _ => {}
                }
            }
        }
    }
    assert!(taken >= 15_000, "{taken} mutants were read");
    let named: BTreeSet<&str> = all.iter().map(|mutation| mutation.name.as_str()).collect();
    assert_eq!(tried, named, "each mutation has a case");
}

#[test]
fn int8_mutants_have_matching_scales() {
    let fixture = Fixture::get();
    let product = |weight: &str, format: &str| {
        let inputs = format!("16,512;{weight}");
        case("MatMulV3", [&inputs, "DT_BF16", format], ["16,256", "DT_BF16", "ND"], &[])
    };
    let shapes = |source: &Case, target: &str| -> Vec<String> {
        let taken = fixture.accepted(source, target, "int8");
        taken.iter().for_each(assert_consistent);
        taken.iter().map(Case::shapes).collect()
    };
    let plain = "16,512;512,256;256 -> 16,256".to_owned();
    let of_rows = "16,512;512,256;256;16 -> 16,256".to_owned();
    assert_eq!(shapes(&product("512,256", "ND;ND"), "QuantBatchMatmulV3"), [plain, of_rows.clone(), of_rows]);
    let transposed = shapes(&product("256,512", "ND;ND"), "QuantBatchMatmulV3");
    assert!(transposed.iter().all(|one| one.starts_with("16,512;256,512;256")), "{transposed:?}");
    // 16 rows by 32 columns are a block of INT8.
    let blocked = shapes(&product("16,32,16,16", "ND;FRACTAL_NZ"), "QuantBatchMatmulV3");
    assert!(
        !blocked.is_empty() && blocked.iter().all(|one| one.starts_with("16,512;8,32,16,32;256")),
        "{blocked:?}"
    );
    let experts = case(
        "GroupedMatmul",
        [
            "64,512;8,512,256;;;;;;8",
            "DT_BF16;DT_BF16;DT_UNDEFINED;DT_UNDEFINED;DT_UNDEFINED;DT_UNDEFINED;DT_UNDEFINED;INT64",
            "ND;ND;NULL;NULL;NULL;NULL;NULL;ND",
        ],
        ["64,256", "DT_BF16", "ND"],
        &[],
    );
    let quantised = shapes(&experts, "GroupedMatmul");
    assert!(quantised.contains(&"64,512;8,512,256;;8,256;;;;8;64 -> 64,256".to_owned()), "{quantised:?}");
    let kernels = BTreeSet::from([kernel("MatMulV3")]);
    let all = fixture.all();
    let mutator = CaseMutator { mutations: &all, catalogue: &fixture.catalogue, device: &fixture.device };
    let names: Vec<String> = mutator.target_kernels(&kernels).keys().map(ToString::to_string).collect();
    assert_eq!(names, ["MatMulV3", "QuantBatchMatmulV3"]);
}

const DECODE: [(&str, &str); 8] = [
    ("Runtime input_layout", "TND"),
    ("Runtime sparse_mode", "3"),
    ("Runtime num_heads", "8"),
    ("Runtime num_key_value_heads", "1"),
    ("Runtime block_size", "128"),
    ("Runtime actual_seq_lengths_values", "1,2,3"),
    ("Runtime actual_seq_lengths_kv_values", "1000,128,4"),
    ("Runtime block_table_valid_blocks", "8,1,1"),
];

fn decode() -> Case {
    let mut shapes = vec![""; 31];
    let (pool, types) = ("40,1,128,128", ["DT_BF16", "DT_BF16", "DT_BF16", "", "INT8", "INT64", "INT64"]);
    (shapes[0], shapes[1], shapes[2], shapes[4]) = ("3,8,128", pool, pool, "2048,2048");
    (shapes[5], shapes[6], shapes[14]) = ("3", "3", "3,8");
    let mut dtypes = types.to_vec();
    dtypes.resize(31, "DT_UNDEFINED");
    (dtypes[3], dtypes[14]) = ("DT_UNDEFINED", "INT32");
    let formats: Vec<&str> =
        shapes.iter().map(|shape| if shape.is_empty() { "NULL" } else { "ND" }).collect();
    case(
        "FusedInferAttentionScore",
        [&shapes.join(";"), &dtypes.join(";"), &formats.join(";")],
        ["3,8,128", "DT_BF16", "ND"],
        &DECODE,
    )
}

/// Tables, pools and attributes follow batches, lengths and blocks of attention.
#[test]
fn attention_sequences_change_with_tables_and_pools() {
    let fixture = Fixture::get();
    let name = "FusedInferAttentionScore";
    let attribute =
        |case: &Case, column: &str| case.attributes.get(&format!("Runtime {column}")).unwrap().to_owned();
    let lengths = |name_of: &str| -> Vec<String> {
        let taken = fixture.accepted(&decode(), name, name_of);
        taken.iter().for_each(assert_consistent);
        taken.iter().map(|case| attribute(case, "actual_seq_lengths_kv_values")).collect()
    };
    assert_eq!(lengths("last_block"), ["1023,127,127", "1024,128,128", "1025,129,129"]);
    let scaled = lengths("scale");
    assert!(
        scaled.contains(&"500,64,2".to_owned()) && scaled.contains(&"2000,256,8".to_owned()),
        "{scaled:?}"
    );
    let taken = fixture.accepted(&decode(), name, "batch");
    let five = taken.iter().find(|case| dims(case.inputs.first())[0] == 4).expect("a batch of 4");
    assert_eq!(attribute(five, "actual_seq_lengths_kv_values"), "1000,128,4,1000");
    assert_eq!(attribute(five, "actual_seq_lengths_values"), "1,2,3,4");
    assert_eq!(
        (dims(five.inputs.get(14)), dims(five.inputs.get(1))[0]),
        (vec![4, 8], 40),
        "the pool has room"
    );
    let most = taken.iter().max_by_key(|case| dims(case.inputs.first())[0]).expect("some");
    assert!(dims(most.inputs.get(1))[0] > 40, "it grows where it has none");
    let wide = with_case(&decode(), "N", 16);
    assert_consistent(&wide);
    assert_eq!(
        (dims(wide.inputs.first()), attribute(&wide, "num_heads")),
        (vec![3, 16, 128], "16".to_owned())
    );
    let small = fixture.accepted(&decode(), name, "block_size");
    let sixteen = small.iter().find(|case| attribute(case, "block_size") == "16").expect("blocks of 16");
    assert_eq!(dims(sixteen.inputs.get(1)), [320, 1, 16, 128], "the same room");
    assert_eq!(
        (dims(sixteen.inputs.get(14)), attribute(sixteen, "block_table_valid_blocks")),
        (vec![3, 64], "63,8,1".to_owned())
    );
    assert!(small.iter().all(|case| attribute(case, "block_size") != "128"), "that is the size it has");
}
