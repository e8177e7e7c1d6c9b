//! Lookups per second in a database of 1,000,000 rows, on one core: exact ones, interpolated ones, and the load. Then
//! lookups of attention in a table of a tenth as many rows.
//!
//! `cargo bench --bench lookup [-- ROWS]`; 10,000 rows with `NPUBENCH_BENCH_SMALL=1`.

#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

mod size;

use std::{error::Error, fmt::Write as _, fs, path::Path, time::Instant};

use npubench::{
    answer::{
        lookup::{AnswerSource, AttentionParameters, LookupEngine, OpQuery, QueryTensor},
        op_mapping::OpMapping,
    },
    database::{COMPUTE_COLUMNS, Database, database_file::DatabaseFile},
    kernel::{DataKind, Tensor},
};

/// Seconds in which 1,000,000 rows must be loaded.
const LOAD_LIMIT: f64 = 3.0;
/// Lookups per second.
const EXACT_LIMIT: f64 = 500_000.0;
const INTERPOLATED_LIMIT: f64 = 100_000.0;
/// Lookups of attention per second.
const ATTENTION_LIMIT: f64 = 50_000.0;

const MAPPING: &str = "interpolation_policy: {kernel_overrides: {MatMulV2: {max_interpolation_dim: 1}}}\n\
    operator_mappings:\n  aten.mm.default: {kernel_type: MatMulV2}\n  \
    norm: {kernel_type: RmsNorm}\n";

/// Widths of a model's matrices.
const WIDTHS: [usize; 8] = [512, 1024, 2048, 4096, 5120, 6144, 8192, 12288];

fn main() {
    let rows = std::env::args().filter_map(|word| word.parse::<usize>().ok()).next();
    let rows = rows.unwrap_or_else(|| size::full_or_small(1_000_000, 10_000));
    let queries = size::full_or_small(2_000_000, 10_000);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("db");
    Database::create(&path, &DatabaseFile::new(DataKind::Npu), |draft| {
        fs::write(draft.join("MatMulV2.csv"), products(rows / 2)).expect("written");
        fs::write(draft.join("RmsNorm.csv"), norms(rows - rows / 2)).expect("written");
        Ok::<(), Box<dyn Error>>(())
    })
    .expect("made");
    let megabytes = ["MatMulV2.csv", "RmsNorm.csv"]
        .map(|file| fs::metadata(path.join(file)).expect("there").len() >> 20)
        .iter()
        .sum::<u64>();
    let mapping = OpMapping::parse(Path::new("op_mapping.yaml"), MAPPING).expect("a mapping");

    let begun = Instant::now();
    let engine = LookupEngine::new(Database::open(&path).expect("there"), Some(mapping)).expect("an engine");
    assert_eq!(engine.load_all().expect("readable"), rows);
    let loaded = begun.elapsed().as_secs_f64();
    // The first lookup of a kind builds its table.
    for exact in [true, false] {
        for (op, count) in [("aten.mm.default", rows / 2), ("norm", rows - rows / 2)] {
            let _ = engine.lookup(&query(op, 0, count, exact)).expect("readable");
        }
    }
    let ready = begun.elapsed().as_secs_f64();
    println!("{rows} rows, {megabytes} MB, loaded in {loaded:.2} s, first answers at {ready:.2} s");
    println!("limit {LOAD_LIMIT:.2} s with 1000000 rows: {}", size::judged(ready <= LOAD_LIMIT));

    for (exact, wanted, limit) in
        [(true, AnswerSource::Measured, EXACT_LIMIT), (false, AnswerSource::Interpolated, INTERPOLATED_LIMIT)]
    {
        for (op, count) in [("aten.mm.default", rows / 2), ("norm", rows - rows / 2)] {
            report(&engine, op, count, queries, exact, wanted, limit);
        }
    }
    attention(folder.path(), (rows / 10).max(2 * LENGTHS), queries / 10);
}

/// Rows of attention with one number of tokens.
const LENGTHS: usize = 500;

/// Looks attention up in a table of its own.
fn attention(folder: &Path, rows: usize, queries: usize) {
    let path = folder.join("attention");
    Database::create(&path, &DatabaseFile::new(DataKind::Npu), |draft| {
        let mut text = COMPUTE_COLUMNS.join(",");
        text.push_str(",Runtime avg_seq_len,Runtime sparse_mode,Runtime num_key_value_heads,Runtime input_layout\n");
        for row in 0..rows {
            let (tokens, length) = attention_shape(row);
            let _ = write!(
                text,
                "dynamic,MIX_AIC,\"{tokens},64,128;900,128,8,128\",DT_BF16;DT_BF16,ND;ND,\"{tokens},64,128\",DT_BF16,ND,{}.5,,,",
                10 + row % 1000
            );
            text.push_str(&",".repeat(COMPUTE_COLUMNS.len() - 12));
            let _ = writeln!(text, ",{length},3,8,TND");
        }
        fs::write(draft.join("FusedInferAttentionScore.csv"), text).expect("written");
        Ok::<(), Box<dyn Error>>(())
    })
    .expect("made");
    let engine = LookupEngine::new(Database::open(&path).expect("there"), None).expect("an engine");
    for (wanted, beside) in [(AnswerSource::Measured, 0), (AnswerSource::Interpolated, 500)] {
        let queries_of: Vec<OpQuery> = (0..queries)
            .map(|at| {
                // The last length of a number of tokens has no neighbour above.
                let row = at.wrapping_mul(7919) % rows / LENGTHS * LENGTHS + at % (LENGTHS - 1);
                let (tokens, length) = attention_shape(row.min(rows - 2));
                attention_query(tokens, length + beside)
            })
            .collect();
        let _ = engine.lookup(&queries_of[0]).expect("readable");
        let begun = Instant::now();
        let found = queries_of
            .iter()
            .filter(|query| engine.lookup(query).expect("readable").source == wanted)
            .count();
        #[expect(clippy::cast_precision_loss, reason = "a few millions")]
        let rate = queries as f64 / begun.elapsed().as_secs_f64();
        assert_eq!(found, queries, "attention: queries without a {wanted} answer");
        println!(
            "attention: {rate:.0} {wanted} lookups/s in {rows} rows, limit {ATTENTION_LIMIT:.0}: {}",
            size::judged(rate >= ATTENTION_LIMIT)
        );
    }
}

/// Returns tokens and length of keys of a row.
fn attention_shape(row: usize) -> (usize, usize) {
    (100 * (row / LENGTHS + 1), 1000 * (row % LENGTHS + 1))
}

fn attention_query(tokens: usize, length: usize) -> OpQuery {
    let tensor = |dims: &[usize]| {
        let Tensor { dims, dtype, .. } = tensor_of(dims);
        QueryTensor { dims, dtype: Some(dtype), format: None }
    };
    #[expect(clippy::cast_precision_loss, reason = "a length")]
    let kv_length = Some(length as f64);
    OpQuery {
        op: "FusedInferAttentionScore".to_owned(),
        inputs: vec![tensor(&[tokens, 64, 128]), tensor(&[900, 128, 8, 128])],
        attention: AttentionParameters {
            kv_length,
            layout: Some("TND".to_owned()),
            ..AttentionParameters::default()
        },
        ..OpQuery::default()
    }
}

fn report(
    engine: &LookupEngine,
    op: &str,
    rows: usize,
    queries: usize,
    exact: bool,
    wanted: AnswerSource,
    limit: f64,
) {
    // More different queries than caches hold, prepared before the clock starts.
    let different: Vec<OpQuery> =
        (0..queries.min(100_000)).map(|at| query(op, at.wrapping_mul(7919), rows, exact)).collect();
    let begun = Instant::now();
    let mut found = 0;
    for query in different.iter().cycle().take(queries) {
        found += usize::from(engine.lookup(query).expect("readable").source == wanted);
    }
    #[expect(clippy::cast_precision_loss, reason = "a few millions")]
    let rate = queries as f64 / begun.elapsed().as_secs_f64();
    assert_eq!(found, queries, "{op}: queries without a {wanted} answer");
    println!("{op}: {rate:.0} {wanted} lookups/s, limit {limit:.0}: {}", size::judged(rate >= limit));
}

/// Returns K and N of a block of rows. A block has the odd numbers of tokens of one matrix.
fn widths(block: usize) -> (usize, usize) {
    (WIDTHS[block % WIDTHS.len()], WIDTHS[block / WIDTHS.len() % WIDTHS.len()] + 16 * (block / 64))
}

/// Rows of each block.
const BLOCK: usize = 5_000;

/// Returns tokens, K and N of a row: odd multiples of 100 tokens, which no padding reaches from the even ones.
fn shape(row: usize) -> (usize, usize, usize) {
    let (k, n) = widths(row / BLOCK);
    (100 * (2 * (row % BLOCK) + 1), k, n)
}

fn query(op: &str, at: usize, rows: usize, exact: bool) -> OpQuery {
    let mut row = at % rows;
    // The last row of a block has no neighbour above.
    if !exact && (row + 1).is_multiple_of(BLOCK) || row + 1 == rows {
        row -= 1;
    }
    let (mut tokens, k, n) = shape(row);
    if !exact {
        tokens += 101;
    }
    let shapes =
        if op == "norm" { [vec![tokens, k + n], vec![k + n]] } else { [vec![tokens, k], vec![k, n]] };
    let tensor = |dims: &Vec<usize>| {
        let Tensor { dims, dtype, .. } = tensor_of(dims);
        QueryTensor { dims, dtype: Some(dtype), format: None }
    };
    OpQuery { op: op.to_owned(), inputs: shapes.iter().map(tensor).collect(), ..OpQuery::default() }
}

fn tensor_of(dims: &[usize]) -> Tensor {
    let dims = dims.iter().map(|dim| *dim as u64).collect();
    Tensor {
        dims,
        dtype: npubench::kernel::Dtype::Bf16,
        format: npubench::kernel::TensorFormat::Base("ND".to_owned()),
    }
}

fn table(rows: usize, line: impl Fn(usize) -> (String, String)) -> String {
    let mut text = COMPUTE_COLUMNS.join(",") + "\n";
    for row in 0..rows {
        let (inputs, output) = line(row);
        let _ = write!(
            text,
            "dynamic,AI_CORE,\"\"\"{inputs}\"\"\",DT_BF16;DT_BF16,ND;ND,\"\"\"{output}\"\"\",DT_BF16,ND,{}.345678,59.730000,\
             59.700000,1.059566",
            10 + row % 1000
        );
        text.push_str(&",1.234567,2.345678".repeat(25));
        text.push('\n');
    }
    text
}

fn products(rows: usize) -> String {
    table(rows, |row| {
        let (m, k, n) = shape(row);
        (format!("{m},{k};{n},{k}"), format!("{m},{n}"))
    })
}

fn norms(rows: usize) -> String {
    table(rows, |row| {
        let (tokens, k, n) = shape(row);
        (format!("{tokens},{width};{width}", width = k + n), format!("{tokens},{}", k + n))
    })
}
