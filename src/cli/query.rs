//! `npubench query`: looks one operator or kernel up in a database.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
};

use super::prelude::*;
use crate::{
    answer::{
        compat::SupersededTool,
        lookup::{
            AnswerSource, BatchPhase, ListField, LookupAnswer, LookupEngine, LookupError, OpQuery,
            QueryFields, ShapeField, parse_length, parse_phase, parse_shapes,
        },
    },
    base::json_error::json_message,
    show::lookup::{LookupRecord, lookup_text},
};

const NEAREST_ROWS: usize = 5;

/// Looks one operator or kernel up, as a performance model does
///
/// Prints the latency with its source, the rule that led to it, and the rows that it is from; for a miss the reason and
/// the nearest rows. The rules are in docs/lookup.md. Nothing is written.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench query --db a3 --op MatMulV2 --inputs \"136,5120;5120,768\" --dtypes bf16")]
pub(super) struct QueryOptions {
    #[command(flatten)]
    database: DatabaseFolder,
    /// Operator of the mapping, such as `aten.mm.default`, or kernel, such as `MatMulV2`
    #[arg(long, value_name = "NAME", required_unless_present = "queries", requires = "inputs")]
    op: Option<String>,
    /// Shapes of the inputs, such as `136,5120;5120,768`
    #[arg(long, value_name = "SHAPES", value_parser = parse_shape_list)]
    inputs: Option<ShapeList>,
    /// Answer each line of this file, a JSON object such as `{"op": "MatMulV2", "inputs": [[136, 5120], [5120, 768]],
    /// "dtypes": ["bf16"]}`, with a line of JSON as soon as it is read; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "op")]
    queries: Option<PathBuf>,
    /// Element types of the inputs, one for all or one for each: `bf16`, `INT8;INT8;FLOAT`. By default types are not
    /// compared, and rows of different types are a miss
    #[arg(long, value_name = "TYPES", default_value = "", hide_default_value = true)]
    dtypes: String,
    /// Formats of the inputs, one for all or one for each: `ND;FRACTAL_NZ`. By default formats are not compared, and
    /// row-major ones precede others
    #[arg(long, value_name = "FORMATS", default_value = "", hide_default_value = true)]
    formats: String,
    /// Shapes of the outputs, where they do not follow from the inputs
    #[arg(long, value_name = "SHAPES", value_parser = parse_shape_list)]
    outputs: Option<ShapeList>,
    /// Element types of the outputs, one for all or one for each
    #[arg(long, value_name = "TYPES", default_value = "", hide_default_value = true)]
    output_dtypes: String,
    /// Ranks that share the matrices of a layer
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65536))]
    tp: Option<u64>,
    /// Ranks that share the experts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65536))]
    ep: Option<u64>,
    /// Ranks of a collective, also of one that belongs to another operator
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    ranks: Option<u64>,
    /// Tier of the topology that the ranks span, as in the tables of collectives
    #[arg(long, value_name = "TIER")]
    tier: Option<u64>,
    /// Look operators up as they run under sequence parallelism
    #[arg(long)]
    sequence_parallel: bool,
    #[command(flatten)]
    attention: AttentionOptions,
    /// Operators with their kernels; by default `op_mapping.yaml` of the database, if it has one
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,
    /// Answer as the superseded tool does where this one differs on purpose; docs/lookup.md lists the differences
    #[arg(long)]
    compat: bool,
    #[command(flatten)]
    output: TableOptions,
}

#[derive(Debug, Args)]
struct AttentionOptions {
    /// Mean length of the keys of attention
    #[arg(long, value_name = "TOKENS", value_parser = parse_length)]
    kv_length: Option<f64>,
    /// Keys of each sequence, such as `4096,3000`
    #[arg(long, value_name = "LENGTHS", value_delimiter = ',', conflicts_with = "kv_length")]
    kv_lengths: Vec<u64>,
    /// Queries of each sequence. By default one each for as many tokens as sequences, or as many as keys
    #[arg(long, value_name = "LENGTHS", value_delimiter = ',', requires = "kv_lengths")]
    query_lengths: Vec<u64>,
    /// Number of sequences, where neither lengths nor shapes show it
    #[arg(long, value_name = "N")]
    batch: Option<u64>,
    /// Heads of the keys of attention; by default those of the second input, which operators have in front of the last dimension,
    /// and FusedInferAttentionScore in front of the tokens of a block
    #[arg(long, value_name = "N")]
    kv_heads: Option<u64>,
    /// Use of the mask of attention, by default 3 (causal from the lower right)
    #[arg(long, value_name = "MODE")]
    sparse_mode: Option<u8>,
    /// Order of dimensions of attention; by default TND for queries of three dimensions, for those of four BNSD_NBSD (B,N,1,D) or BSND (B,1,N,D)
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<String>,
    /// Keys that sparse attention selects at most for a query
    #[arg(long, value_name = "N")]
    topk: Option<u64>,
    /// Keys in a block of the cache
    #[arg(long, value_name = "TOKENS")]
    block_size: Option<u64>,
    /// Phase of the batch, where lengths do not show it
    #[arg(long, value_name = "PHASE", value_parser = parse_phase)]
    phase: Option<BatchPhase>,
}

#[derive(Clone, Debug)]
struct ShapeList(Vec<Vec<u64>>);

fn parse_shape_list(text: &str) -> Result<ShapeList, String> {
    parse_shapes(text).map(ShapeList)
}

fn query_of_options(options: &QueryOptions) -> Result<OpQuery, CommandError> {
    let attention = &options.attention;
    let shapes = |list: &Option<ShapeList>| {
        ShapeField::Lists(list.as_ref().map(|list| list.0.clone()).unwrap_or_default())
    };
    let numbers = |list: &[u64]| ListField(list.iter().map(ToString::to_string).collect());
    let fields = QueryFields {
        op: options.op.clone().unwrap_or_default(),
        inputs: shapes(&options.inputs),
        dtypes: ListField::from_text(&options.dtypes),
        formats: ListField::from_text(&options.formats),
        outputs: shapes(&options.outputs),
        output_dtypes: ListField::from_text(&options.output_dtypes),
        tp: options.tp,
        ep: options.ep,
        ranks: options.ranks,
        tier: options.tier,
        sequence_parallel: options.sequence_parallel,
        kv_length: attention.kv_length,
        kv_lengths: numbers(&attention.kv_lengths),
        query_lengths: numbers(&attention.query_lengths),
        batch: attention.batch,
        kv_heads: attention.kv_heads,
        sparse_mode: attention.sparse_mode,
        layout: attention.layout.clone(),
        topk: attention.topk,
        block_size: attention.block_size,
        phase: attention.phase.map(|phase| <&str>::from(phase).to_owned()),
        ..QueryFields::default()
    };
    fields.into_query()
}

/// Answers the lines of a file one by one, so that a process can wait for each answer. The exit status is that of the
/// worst answer.
fn answer_lines(file: &Path, database: &LookupDatabase, is_compat: bool) -> Result<ExitStatus, CommandError> {
    let failed = |error: io::Error| {
        let hint = "give a file with one JSON object per line, or `-` for standard input";
        CommandError::bad_input(format!("cannot read `{}`: {error}", file.display()), hint)
    };
    let lines: Box<dyn BufRead> = match file.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(BufReader::new(File::open(file).map_err(failed)?)),
    };
    let mut exit = ExitStatus::Done;
    for (number, line) in (1..).zip(lines.lines()) {
        let line = line.map_err(failed)?;
        if line.trim().is_empty() {
            continue;
        }
        let at_line = |problem: &str, hint: &str| {
            CommandError::bad_input(format!("{}:{number}: {problem}", file.display()), hint)
        };
        let parsed: QueryFields = serde_json::from_str(&line)
            .map_err(|error| at_line(&json_message(&error), "docs/lookup.md lists the keys of a query"))?;
        let query = parsed.into_query().map_err(|error| at_line(&error.message, &error.hint))?;
        let answer = look_up(&database.engine, &query, is_compat)?;
        if !is_complete(&answer) {
            exit = ExitStatus::SomeNotOk;
        }
        print_data(&json_lines([LookupRecord::new(&query, &answer, &[], database, is_compat)]));
    }
    Ok(exit)
}

fn look_up(engine: &LookupEngine, query: &OpQuery, is_compat: bool) -> Result<LookupAnswer, LookupError> {
    if is_compat { engine.lookup(&SupersededTool::query(query)) } else { engine.lookup(query) }
}

fn is_complete(answer: &LookupAnswer) -> bool {
    !matches!(answer.source, AnswerSource::Miss | AnswerSource::Partial)
}

pub(super) fn run(options: &QueryOptions) -> Result<ExitStatus, CommandError> {
    let engine = if options.compat { SupersededTool::engine } else { LookupEngine::new };
    let database = LookupDatabase::open_with(&options.database.db, options.mapping.as_deref(), engine)?;
    if let Some(file) = &options.queries {
        return answer_lines(file, &database, options.compat);
    }
    let LookupDatabase { engine, kind, .. } = &database;
    let query = query_of_options(options)?;
    let answer = look_up(engine, &query, options.compat)?;
    let is_miss = answer.source == AnswerSource::Miss;
    let nearest = if is_miss { engine.nearest_rows(&query, NEAREST_ROWS)? } else { Vec::new() };
    let record = LookupRecord::new(&query, &answer, &nearest, &database, options.compat);
    options.output.emit([record], |width| lookup_text(&answer, &nearest, &database.errors, width));
    note_simulated(*kind);
    if options.compat {
        print_note("this is the answer of the superseded tool (--compat)");
    }
    let collective = engine.kernels_of(&query.op, &query.inputs).into_iter().find(KernelName::is_collective);
    let command =
        collective.and_then(|kernel| engine.collective_command(&query, &kernel, answer.miss.as_ref()));
    if is_miss && let Some(command) = command {
        print_hint(&format!("`{command}` measures its rows"));
    } else if is_miss && !engine.knows(&query.op) {
        let hint = did_you_mean_or(
            &query.op,
            engine.known_names(),
            || "give an operator of the mapping, or a kernel of the database",
        );
        print_hint(&hint);
    }
    Ok(ExitStatus::done_if(is_complete(&answer)))
}
