//! `npubench fia-backfill`: writes runtime values of fused attention into its rows.

use super::prelude::*;
use crate::{
    database::{BackfillReport, FilledRow, backfill_database},
    profile::read_attention_dumps,
};

/// Fills in the runtime values of FusedInferAttentionScore from a dump of a serving process
///
/// Sequence lengths, block table, heads, layout and mask mode determine the kernel's time and are not part of its
/// shapes. A row gets the values that are the same in all calls with its shapes; cells with a value are kept. Ends with
/// 1 if a row is still incomplete. docs/attention.md explains how to make a dump.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench fia-backfill --db a3 --dump calls.jsonl")]
pub(super) struct BackfillOptions {
    #[command(flatten)]
    database: DatabaseFolder,
    /// Dump with one JSON object per line and call; may be given several times, for several processes
    #[arg(long, value_name = "FILE.jsonl", required = true, num_args = 1..)]
    dump: Vec<PathBuf>,
    /// Add a row without measurements for each call whose values no row has
    #[arg(long)]
    add_variants: bool,
    #[command(flatten)]
    output: OutputOptions,
}

pub(super) fn run(options: &BackfillOptions) -> Result<ExitStatus, CommandError> {
    let database = Database::open(&options.database.db)?;
    let dump = read_attention_dumps(&options.dump)?;
    let done = backfill_database(&database, &dump, options.add_variants)?;
    let calls = dump.call_count();
    emit(options.output.format, [BackfillRecord::new(&done, calls)], || plain(&done, calls));
    Ok(ExitStatus::done_if(done.complete_rows() == done.rows.len()))
}

record! {
    BackfillRecord<'a>(done: &'a BackfillReport, calls: usize) {
        calls: usize = calls,
        unused_calls: usize = done.unused,
        rows: &'a [FilledRow] = &done.rows,
        complete: usize = done.complete_rows(),
        added: usize = done.added,
    }
}

fn plain(done: &BackfillReport, calls: usize) -> String {
    let mut text = String::new();
    for row in done.rows.iter().filter(|row| !row.is_untouched()) {
        let remark = or_empty(row.remark.as_ref().map(|remark| format!(" ({remark})")));
        let calls = format_count(row.calls, "call");
        text.push_str(&format!(
            "FusedInferAttentionScore.csv:{}: {} filled in from {calls}: {}{remark}\n",
            row.line,
            format_count(row.filled, "value"),
            row.completeness
        ));
    }
    let untouched = done.rows.iter().filter(|row| row.is_untouched()).count();
    if untouched > 0 {
        text.push_str(&format!("{} complete before, without a call\n", format_count(untouched, "row")));
    }
    text.push_str(&format!(
        "{} of {} complete, {} added; {} of {} without a row\n",
        done.complete_rows(),
        format_count(done.rows.len(), "row"),
        done.added,
        done.unused,
        format_count(calls, "call")
    ));
    text
}
