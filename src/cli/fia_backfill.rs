//! `npubench fia-backfill`: runtime values of fused attention into its rows.

use std::path::PathBuf;

use clap::Args;

use super::options::OutputFormat;
use crate::{
    database::{BackfillReport, Database, backfill_database},
    exit::ExitStatus,
    profile::read_attention_dumps,
    report::print_data,
    session::CommandError,
};

/// Fills in what no profile shows of FusedInferAttentionScore, from a dump of a serving process
///
/// Lengths of sequences, block table, heads, layout and mask mode decide the kernel's time, and are not in
/// its shapes. A row gets the values that all calls of its shapes agree on; cells that say something stay as
/// they are. Ends with 1 where a row is not complete afterwards. docs/attention.md says how to get a dump.
#[derive(Debug, Args)]
pub(super) struct BackfillOptions {
    /// Database folder
    #[arg(long, value_name = "DIR")]
    db: PathBuf,
    /// The dump: a JSON object per call and line; can be given several times, for several processes
    #[arg(long, value_name = "FILE.jsonl", required = true)]
    dump: Vec<PathBuf>,
    /// Adds a row without measurements for each call whose values no row has
    #[arg(long)]
    add_variants: bool,
    /// How the outcome is printed
    #[arg(long, value_enum, default_value = "plain")]
    format: OutputFormat,
}

pub(super) fn run(options: &BackfillOptions) -> Result<ExitStatus, CommandError> {
    let dump = read_attention_dumps(&options.dump)?;
    let database = Database::open(&options.db)?;
    let done = backfill_database(&database, &dump, options.add_variants)?;
    match options.format {
        OutputFormat::Json => print_data(&format!("{}\n", json(&done, dump.len()))),
        OutputFormat::Plain => print_data(&plain(&done, dump.len())),
    }
    Ok(if done.complete_rows() == done.rows.len() { ExitStatus::Done } else { ExitStatus::SomeNotOk })
}

fn json(done: &BackfillReport, calls: usize) -> serde_json::Value {
    let rows: Vec<serde_json::Value> = done
        .rows
        .iter()
        .map(|row| {
            serde_json::json!({
                "line": row.line, "filled": row.filled, "calls": row.calls, "completeness": row.completeness,
                "remark": row.remark,
            })
        })
        .collect();
    serde_json::json!({
        "calls": calls, "unused_calls": done.unused, "rows": rows, "complete": done.complete_rows(), "added": done.added,
    })
}

fn plain(done: &BackfillReport, calls: usize) -> String {
    let mut text = String::new();
    for row in &done.rows {
        let remark = row.remark.as_ref().map_or_else(String::new, |remark| format!(" ({remark})"));
        let calls = if row.calls == 1 { "call" } else { "calls" };
        text.push_str(&format!(
            "FusedInferAttentionScore.csv:{}: {} values filled in from {} {calls}: {}{remark}\n",
            row.line, row.filled, row.calls, row.completeness
        ));
    }
    text.push_str(&format!(
        "{} of {} rows complete, {} added; {} of {calls} calls fit no row\n",
        done.complete_rows(),
        done.rows.len(),
        done.added,
        done.unused
    ));
    text
}
