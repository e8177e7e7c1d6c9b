//! Comparison of two recorded runs: tables, JSON lines, CSV and a page.

mod call_tables;
mod cells;
mod compared_kernels;
mod csv;
mod json;
mod page;
mod text;

use std::path::Path;

pub(crate) use self::csv::comparison_csv;
pub(crate) use json::comparison_json;
pub(crate) use page::comparison_page;
pub(crate) use text::comparison_text;

use crate::{
    answer::coverage::InModelKernels,
    base::shell_argument::{host_option, quoted_path},
    kernel::DataKind,
    profile::timeline::{ComparedCall, ComparedPart, ComparedRow, RunComparison, RunSums, RunTimeline},
};

/// Two runs, compared.
#[derive(Debug)]
pub(crate) struct ComparisonReport<'a> {
    pub(crate) base: &'a RunTimeline,
    pub(crate) other: &'a RunTimeline,
    pub(crate) base_sums: &'a RunSums,
    pub(crate) other_sums: &'a RunSums,
    pub(crate) comparison: &'a RunComparison,
    /// Kernels of base and other with their durations alone; `None` without a database.
    pub(crate) in_model: Option<JoinedDatabase<'a>>,
    /// Single calls of operators and modules; `None` if they are not listed.
    pub(crate) calls: Option<&'a [ComparedCall<'a>]>,
    /// Number of rows of a table.
    pub(crate) rows: usize,
}

/// A database with the kernels of both runs that were looked up in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JoinedDatabase<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) kind: DataKind,
    pub(crate) base: &'a InModelKernels,
    pub(crate) other: &'a InModelKernels,
}

impl ComparisonReport<'_> {
    /// Returns the command that lists the kernels of the other run by this database.
    fn modules_command(&self, database: &JoinedDatabase<'_>) -> String {
        let profile = match self.other.files.as_slice() {
            [file] => Some(file.as_path()),
            files => files.first().and_then(|file| file.parent()).filter(|path| *path != Path::new("")),
        };
        let profile = profile.unwrap_or(Path::new("."));
        format!("npubench modules {} --db {}", quoted_path(profile), quoted_path(database.folder))
    }

    /// Returns the note in place of the kernels with their durations alone.
    fn no_measured_row(&self, database: &JoinedDatabase<'_>) -> String {
        format!(
            "no kernel of base or other has a measured row in the database: `npubench run --db {}{}` measures its rows, `{} --missing \
             missing.csv` lists kernels without one",
            quoted_path(database.folder),
            host_option(database.kind),
            self.modules_command(database)
        )
    }
}

/// Returns the heading of a part and the columns of its numbers.
const fn heading(part: ComparedPart) -> &'static str {
    match part {
        ComparedPart::Overall => "overall, ms per step",
        ComparedPart::KernelClass => "kernels by class, ms per step",
        ComparedPart::KernelType => "kernels by type, ms per step",
        ComparedPart::Kernel => "kernels, ms per step",
        ComparedPart::Operator => "operators with the time of their kernels, ms per step",
        ComparedPart::HostCall => "calls of the host, ms per step",
        ComparedPart::Collective => "collectives, ms per step",
        ComparedPart::CollectiveTask => "tasks of collectives on all planes, ms per step",
        ComparedPart::Module => "modules, ms per step",
        ComparedPart::Memory => "memory, MiB",
    }
}

/// Returns the heading of the second column of a part.
const fn detail_heading(part: ComparedPart) -> &'static str {
    match part {
        ComparedPart::KernelClass => "unit",
        ComparedPart::KernelType => "core",
        ComparedPart::CollectiveTask => "task",
        _ => "shapes",
    }
}

const PARTS: [ComparedPart; 10] = [
    ComparedPart::Overall,
    ComparedPart::KernelClass,
    ComparedPart::KernelType,
    ComparedPart::Kernel,
    ComparedPart::Operator,
    ComparedPart::HostCall,
    ComparedPart::Collective,
    ComparedPart::CollectiveTask,
    ComparedPart::Module,
    ComparedPart::Memory,
];

fn run_text(name: &str, run: &RunTimeline, sums: &RunSums) -> String {
    let files: Vec<String> = run.files.iter().map(|file| format!("`{}`", file.display())).collect();
    let form = run.form.map_or_else(String::new, |form| form.to_string());
    let steps = sums.steps;
    format!("{name}: {} ({form}, {steps} {})\n", files.join(", "), if steps == 1 { "step" } else { "steps" })
}

impl ComparisonReport<'_> {
    fn part_rows(&self, part: ComparedPart) -> Vec<&ComparedRow> {
        self.comparison.rows.iter().filter(|row| row.part == part).collect()
    }
}
