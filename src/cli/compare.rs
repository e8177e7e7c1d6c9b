//! `npubench compare`: two recorded runs against each other.

use super::prelude::*;
use crate::{
    answer::{coverage::join_kernels, recorded_runs::ComparedRun},
    profile::timeline::{MODULE_DOMAIN, RunSums, compare_calls, compare_runs},
    show::compare::{
        ComparisonReport, JoinedDatabase, comparison_csv, comparison_page, comparison_records,
        comparison_text,
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ComparisonFormat {
    /// The difference of the step by cause, and tables of the largest differences
    Plain,
    /// All rows
    Csv,
    /// JSON Lines: one object per line
    Json,
}

/// Compares two recorded runs of a model and divides the difference of their steps among kernels, collectives and free time
///
/// Runs are those of NPUs in any form, or traces of torch on GPUs. Times are per step. Every difference is part of a row;
/// what remains is shown. docs/timeline.md has the rules.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench compare monday/worker0_ascend_pt tuesday/worker0_ascend_pt
  npubench compare base/ other/ --rank 3 --html difference.html
  npubench compare a100.pt.trace.json worker0_ascend_pt
  npubench compare base/ other/ --step 12 --calls=aten::to
  npubench compare base/ other/ --db a3")]
pub(super) struct CompareOptions {
    /// Profile that is compared with
    #[arg(value_name = "BASE")]
    base: PathBuf,
    /// Profile whose differences are shown
    #[arg(value_name = "OTHER")]
    other: PathBuf,
    /// Rank of profiles of several ranks; by default the lowest that both have
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// Only this step of both; several are separated by commas
    #[arg(long = "step", value_name = "N", value_delimiter = ',')]
    steps: Vec<u64>,
    /// Domain of mstx with the ranges of modules
    #[arg(long, value_name = "NAME", default_value = MODULE_DOMAIN)]
    domain: String,
    /// Database with durations of the kernels alone
    #[arg(long, value_name = "DIR", env = DATABASE_VARIABLE)]
    db: Option<PathBuf>,
    /// Lists single calls of outermost operators and of modules, matched by their order; `--calls=NAME` only those with NAME,
    /// in any case, in their name or in that of an operator or kernel in them
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "", require_equals = true)]
    calls: Option<String>,
    /// Number of rows of a table
    #[arg(long, value_name = "N", default_value_t = 15)]
    rows: usize,
    /// Output format
    #[arg(long, value_enum, default_value = "plain")]
    format: ComparisonFormat,
    #[command(flatten)]
    wide: WideOption,
    /// Writes all rows as a page, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    assets: AssetOptions,
}

pub(super) fn run(options: &CompareOptions) -> Result<ExitStatus, CommandError> {
    let page =
        options.html.as_ref().map(|path| ResultFile::new(path, options.db.as_deref(), "html")).transpose()?;
    let assets = options.assets.load()?;
    let ([base, other], notes) = ComparedRun::read_pair(&options.base, &options.other, options.rank)?;
    notes.iter().for_each(|note| print_note(note));
    let [base_sums, other_sums] =
        [base.sum_up(&options.steps, &options.domain)?, other.sum_up(&options.steps, &options.domain)?];
    let comparison = compare_runs(&base_sums, &other_sums);
    let calls_of_runs = options.calls.as_ref().map(|wanted| {
        [(&base_sums, &base), (&other_sums, &other)]
            .map(|(sums, own)| sums.calls(&own.run, &options.domain, wanted))
    });
    let calls = calls_of_runs.as_ref().map(|[base, other]| {
        let mut calls = compare_calls(base, other);
        calls.retain(|call| call.base.into_iter().chain(call.other).any(|own| own.is_wanted));
        calls
    });
    if let (Some(wanted), Some([])) = (&options.calls, calls.as_deref()) {
        print_note(&match wanted.as_str() {
            "" => "no call of an operator or a module is recorded in both profiles".to_owned(),
            wanted => format!(
                "no call of both profiles contains `{wanted}` in the name of an operator, a kernel or a module"
            ),
        });
    }
    let in_model = match &options.db {
        Some(folder) => {
            let (database, catalogue) = (LookupDatabase::open(folder, None)?, Catalogue::load(&assets)?);
            let kind = database.kind;
            note_simulated(kind);
            let join = |own: &ComparedRun, sums: &RunSums| {
                let runs = std::slice::from_ref(&own.run);
                join_kernels(runs, &|task| sums.includes_task(task), &database, &catalogue)
            };
            let (base, other) = (join(&base, &base_sums)?, join(&other, &other_sums)?);
            Some(JoinedDatabase { folder, kind, base, other })
        }
        None => None,
    };
    let report = ComparisonReport {
        base: &base.run,
        other: &other.run,
        base_sums: &base_sums,
        other_sums: &other_sums,
        comparison: &comparison,
        in_model: in_model.as_ref(),
        calls: calls.as_deref(),
        rows: options.rows,
    };
    if let Some(page) = page {
        page.write(&comparison_page(&assets, &report)?)?;
        print_note(&format!("wrote `{}`", page.path.display()));
    }
    print_data(&match options.format {
        ComparisonFormat::Plain => comparison_text(&report, options.wide.width()),
        ComparisonFormat::Csv => comparison_csv(&report),
        ComparisonFormat::Json => json_lines(comparison_records(&report)),
    });
    Ok(ExitStatus::Done)
}
