//! `npubench query`: looks one operator or kernel up in a database.

use std::io::{self, BufRead, BufReader};

use super::prelude::*;
use crate::{
    answer::{
        compat::SupersededTool,
        lookup::{AnswerSource, LookupAnswer, LookupEngine, OpQuery, QueryFields},
    },
    base::{
        files::{MAX_SETTINGS, open_regular, read_line},
        json_error::json_message,
    },
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
    #[command(flatten)]
    fields: QueryFields,
    /// Answer each line of this file, a JSON object such as `{"op": "MatMulV2", "inputs": [[136, 5120], [5120, 768]],
    /// "dtypes": ["bf16"]}`, with a line of JSON as soon as it is read; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "op")]
    queries: Option<PathBuf>,
    /// Operators with their kernels; by default `op_mapping.yaml` of the database, if it has one
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,
    /// Answer as the superseded tool does where this one differs on purpose; docs/lookup.md lists the differences
    #[arg(long)]
    compat: bool,
    #[command(flatten)]
    output: TableOptions,
}

/// Answers the lines of a file one by one, so that a process can wait for each answer. The exit status is that of the
/// worst answer.
fn answer_lines(file: &Path, database: &LookupDatabase, is_compat: bool) -> Result<ExitStatus, CommandError> {
    let failed = |error: io::Error| {
        let hint = "give a file with a JSON object of at most 1 MiB per line, or `-` for standard input";
        CommandError::bad_input(format!("cannot read `{}`: {error}", file.display()), hint)
    };
    let mut lines: Box<dyn BufRead> = match file.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(BufReader::new(open_regular(file).map_err(failed)?)),
    };
    let mut exit = ExitStatus::Done;
    for number in 1.. {
        let Some(line) = read_line(&mut lines, number, MAX_SETTINGS).map_err(failed)? else { break };
        let not_text = |_| failed(io::Error::other(format!("line {number} is not UTF-8")));
        let line = String::from_utf8(line).map_err(not_text)?;
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

fn look_up(engine: &LookupEngine, query: &OpQuery, is_compat: bool) -> Result<LookupAnswer, CommandError> {
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
    let query = options.fields.clone().into_query()?;
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
