//! `npubench check`: checks every case by the vendor's own code, without a device.

use std::{collections::BTreeMap, thread};

use super::prelude::*;
use crate::{
    kernel::{Case, CheckOutcome, CheckVerdict, IdentifiedCase, RUNTIME},
    measure::{database_check::DatabaseCheck, vendor_check::slot_texts},
    show::progress::CheckProgress,
};

/// Checks every case by the vendor's own torch_npu, without a device
///
/// The calls of a run are made on meta tensors, in a few Python processes, so that names, types and shapes are checked
/// by the code that will run. Cases that the catalogue cannot call are listed too, with the verdict that `run` would give
/// them. Operators without an implementation for meta tensors are `no_meta`: names and types of their arguments are
/// checked, and `run` launches them. Outcomes are stored in the ledger as they arrive: the same command continues a check
/// that was stopped, and `run` leaves out rejected cases.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench check --db a3 --python /opt/venv/bin/python
  npubench check --db a3 --kernels MatMulV2,SwiGlu")]
pub(super) struct CheckOptions {
    #[command(flatten)]
    database: DatabaseFolder,
    #[command(flatten)]
    kernels: KernelFilter,
    #[command(flatten)]
    filter: FilterOption,
    #[command(flatten)]
    python: PythonOption,
    /// Python processes at a time; by default a quarter of the cores, at most 8
    #[arg(long, value_name = "N")]
    processes: Option<usize>,
    /// Check again what was checked before
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    fail_on: FailOnOption,
    #[command(flatten)]
    common: CommonOptions<OutputOptions>,
}

pub(super) fn run(options: &CheckOptions) -> Result<ExitStatus, CommandError> {
    let default = thread::available_parallelism().map_or(1, usize::from).div_ceil(4);
    let mut check = DatabaseCheck::prepare(
        &options.database.db,
        options.common.assets.load()?,
        &options.kernels.names()?,
        options.filter.filter.as_deref(),
        options.python.program()?,
        options.processes.unwrap_or_else(|| default.clamp(1, 8)).max(1),
        options.again,
    )?;
    let mut reporter = CheckReporter {
        format: options.common.output.format,
        bar: Some(CheckProgress::on_stderr(check.total())),
        ..CheckReporter::default()
    };
    let is_stopped = check.run(&mut |case, outcome| reporter.report_case(case, outcome))?;
    reporter.bar = None;
    for problem in &check.plan.unreadable_rows {
        print_note(&format!("{problem}: not checked"));
    }
    if options.common.output.format == OutputFormat::Plain {
        print_data(&reporter.text(check.total(), &check.versions));
    }
    let failing = options.fail_on.verdicts();
    let is_failure =
        |verdict: CheckVerdict| verdict.run_verdict().is_some_and(|found| failing.contains(found));
    let has_failed = reporter.counts.keys().any(|verdict| is_failure(*verdict));
    Ok(match is_stopped {
        true => ExitStatus::Interrupted,
        false => ExitStatus::done_if(!has_failed && check.plan.unreadable_rows.is_empty()),
    })
}

record! {
    CheckedCaseRecord<'a>(case: &'a IdentifiedCase, outcome: &'a CheckOutcome) {
        by: &'static str = outcome.by.into(),
        case: &'a str = case.id().as_str(),
        inputs: Vec<String> = slot_texts(&case.inputs),
        kernel: &'a str = case.kernel.as_str(),
        message: &'a str = &outcome.message,
        outputs: Vec<String> = slot_texts(&case.outputs),
        verdict: &'static str = outcome.verdict.into(),
    }
}

#[derive(Default)]
struct CheckReporter {
    format: OutputFormat,
    bar: Option<CheckProgress>,
    counts: BTreeMap<CheckVerdict, usize>,
    /// Number of cases of a kernel that are not accepted for one reason, and the first of them.
    not_accepted: BTreeMap<(String, String), (usize, Case)>,
    without_entry: BTreeMap<String, BTreeMap<String, usize>>,
}

impl CheckReporter {
    fn report_case(&mut self, case: &IdentifiedCase, outcome: &CheckOutcome) {
        let kernel = case.kernel.as_str().to_owned();
        *self.counts.entry(outcome.verdict).or_default() += 1;
        if let Some(bar) = &self.bar {
            bar.add_case();
        }
        if self.format == OutputFormat::Json {
            print_data(&json_lines(&[CheckedCaseRecord::new(case, outcome)]));
        } else if outcome.verdict == CheckVerdict::NoEntry {
            let kernels = self.without_entry.entry(outcome.message.clone()).or_default();
            *kernels.entry(kernel).or_default() += 1;
        } else if outcome.verdict != CheckVerdict::Accepted {
            let why = format!("{} by {}: {}", outcome.verdict, outcome.by, outcome.message);
            self.not_accepted.entry((kernel, why)).or_insert_with(|| (0, Case::clone(case))).0 += 1;
        }
    }

    /// Returns the attributes of a case that distinguish it from other listed cases with equal shapes.
    fn distinguishing_values(&self, kernel: &str, case: &Case) -> String {
        let others =
            self.not_accepted.iter().filter(|((other, _), _)| other == kernel).map(|(_, (_, other))| other);
        let others: Vec<&Case> = others.filter(|other| other.shapes() == case.shapes()).collect();
        let differs =
            |name: &str, value: &str| others.iter().any(|other| other.attributes.get(name) != Some(value));
        let values = case.attributes.iter().filter(|(name, value)| differs(name, value));
        joined(
            values.map(|(name, value)| format!(", {} {value}", name.strip_prefix(RUNTIME).unwrap_or(name))),
            "",
        )
    }

    fn text(&self, total: usize, versions: &str) -> String {
        let mut text = String::new();
        for ((kernel, why), (count, first)) in &self.not_accepted {
            let more = or_empty((*count > 1).then(|| format!(" and {} more", count - 1)));
            let values = self.distinguishing_values(kernel, first);
            text += &format!("{kernel} {}{values}{more}: {why}\n", first.shapes());
        }
        for (reason, kernels) in &self.without_entry {
            text += &format!("{}: {reason}: {}\n", CheckVerdict::NoEntry, with_counts(kernels));
        }
        text + &format!("{}: {}; by {versions}\n", format_count(total, "case"), counted(&self.counts))
    }
}
