//! Chooses the cases of a run from the rows of a database.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    catalogue::{Catalogue, Fill, NotReplayable, ResolvedCall, group_size},
    config::DeviceProfile,
    database::{Database, DatabaseError, KernelCsv, row_cases},
    domain::{Case, CaseId, CaseOutcome, IdentifiedCase, KernelName, Nanos, Verdict, nearest_name},
    render::call_digest,
};

/// Why a kernel outside of the catalogue is not measured.
pub const NO_ENTRY: &str = "the catalogue has no entry for this kernel";

/// Which rows a run measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateMode {
    /// Those without an accepted result.
    Missing,
    /// All; new samples join those there are.
    All,
}

/// What to choose from a database.
#[derive(Debug)]
pub struct CaseSelection<'a> {
    /// Which rows.
    pub update: UpdateMode,
    /// Only these kernels; all where empty.
    pub kernels: &'a [KernelName],
    /// Cases that the ledger holds an accepted result of.
    pub measured: &'a BTreeSet<CaseId>,
    /// Calls that the vendor's code has rejected, which are not launched: by case, the call and what was said.
    /// `None` where nothing will be launched.
    pub rejected: Option<&'a BTreeMap<CaseId, (String, String)>>,
    /// The column that says what a row is worth; all are worth the same where `None`.
    pub weight_column: Option<&'a str>,
}

/// A case that will be measured.
#[derive(Clone, Debug)]
pub struct PlannedCase {
    /// The case.
    pub case: IdentifiedCase,
    /// How the catalogue reads it.
    pub reading: ResolvedCall,
    /// The shortest time that the device allows.
    pub fastest: Nanos,
    /// What its result is worth; the greatest are measured first.
    pub value: f64,
    /// Devices that it needs at once.
    pub devices: usize,
}

/// What a run will do with the rows of a database.
#[derive(Debug, Default)]
pub struct RunPlan {
    /// Cases to measure.
    pub cases: Vec<PlannedCase>,
    /// Cases that end without a launch, with their verdict.
    pub rejected: Vec<(IdentifiedCase, CaseOutcome)>,
    /// Rows that are no case: file, line, and why.
    pub unreadable_rows: Vec<String>,
    /// Cases that have an accepted result already.
    pub already_measured: usize,
    /// Cases whose result the ledger has and the row does not show, by kernel.
    pub missing_in_csv: BTreeMap<KernelName, Vec<CaseId>>,
}

impl RunPlan {
    /// Refuses cases that need more devices at once than there are.
    pub fn refuse_larger_gangs(&mut self, devices: usize) {
        let (fitting, larger) =
            std::mem::take(&mut self.cases).into_iter().partition(|planned| planned.devices <= devices);
        self.cases = fitting;
        let larger: Vec<PlannedCase> = larger;
        self.rejected.extend(larger.into_iter().map(|PlannedCase { case, devices: needed, .. }| {
            let reason = format!("it needs {needed} devices of one host at once, the run has {devices}");
            (case, CaseOutcome::new(Verdict::Unsupported, reason))
        }));
    }

    /// Lets rows say that their experts were named unevenly.
    pub fn note_skew(&mut self, skew: f64) {
        if skew == 0.0 {
            return;
        }
        for PlannedCase { reading, .. } in &mut self.cases {
            let mut tensors = reading.arguments.iter().flat_map(|argument| argument.value.tensors());
            let is_routed = tensors.any(|tensor| {
                matches!(tensor.fill, Fill::Experts { .. } | Fill::Counts { .. } | Fill::Cumulative { .. })
            });
            if is_routed {
                reading.notes.push(format!("experts are named with a skew of {skew}"));
            }
        }
    }
}

/// A selection that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The database cannot be read.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// A kernel was asked for that has no rows.
    #[error("the database has no rows of `{kernel}`")]
    NoSuchKernel {
        /// The kernel.
        kernel: KernelName,
        /// The most similar one.
        nearest: Option<String>,
    },
    /// No kernel has the column of weights.
    #[error("no kernel of the database has a column `{column}`")]
    NoSuchColumn {
        /// The column asked for.
        column: String,
    },
    /// There are no rows at all.
    #[error("the database has no kernels")]
    Empty,
}

impl PlanError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Database(error) => error.hint(),
            Self::NoSuchKernel { nearest: Some(nearest), .. } => format!("did you mean `{nearest}`?"),
            Self::NoSuchColumn { .. } => {
                "name the column as the CSVs' headers do; rows without a number in it are worth nothing"
                    .to_owned()
            }
            Self::NoSuchKernel { .. } | Self::Empty => {
                "fill the database with `npubench ingest PROFILE --db DIR`".to_owned()
            }
        }
    }
}

/// Chooses cases; a case that stands in several rows is chosen once.
///
/// # Errors
/// [`PlanError`].
pub fn select_cases(
    database: &Database,
    catalogue: &Catalogue,
    device: &DeviceProfile,
    selection: &CaseSelection<'_>,
) -> Result<RunPlan, PlanError> {
    let kernels = chosen_kernels(&database.kernels()?, selection.kernels)?;
    let mut plan = RunPlan::default();
    let mut seen = BTreeSet::new();
    let mut has_weights = false;
    for kernel in kernels {
        let table = database.kernel_csv(&kernel)?;
        let weights = selection.weight_column.and_then(|column| weights(&table, column));
        has_weights |= weights.is_some();
        for row in row_cases(&kernel, &table)? {
            let unsaid = if selection.weight_column.is_some() { 0.0 } else { 1.0 };
            let value = weights.as_ref().map_or(unsaid, |weights| weights[row.row]);
            let case = match row.case {
                Ok(case) => IdentifiedCase::new(case),
                Err(problem) => {
                    plan.unreadable_rows.push(format!("{}:{}: {problem}", table.path().display(), row.line));
                    continue;
                }
            };
            let in_ledger = selection.measured.contains(case.id());
            let is_accepted = row.shown == Some(Verdict::Ok);
            if in_ledger && !is_accepted {
                plan.missing_in_csv.entry(kernel.clone()).or_default().push(case.id().clone());
            }
            if !seen.insert(case.id().clone()) {
                continue;
            }
            if selection.update == UpdateMode::Missing && (is_accepted || in_ledger) {
                plan.already_measured += 1;
                continue;
            }
            match read(catalogue, device, &case) {
                Ok((reading, fastest)) => {
                    let devices = ranks(&reading);
                    let planned = PlannedCase { case, reading, fastest, value, devices };
                    match rejection(catalogue, &planned, selection) {
                        Some(finding) => plan.rejected.push((planned.case, finding)),
                        None => plan.cases.push(planned),
                    }
                }
                Err(finding) => plan.rejected.push((case, finding)),
            }
        }
    }
    match selection.weight_column {
        Some(column) if !has_weights => Err(PlanError::NoSuchColumn { column: column.to_owned() }),
        _ => Ok(plan),
    }
}

/// What each row is worth by one of its columns, `None` where the table has no such column; a cell without a number
/// is worth nothing.
fn weights(table: &KernelCsv, column: &str) -> Option<Vec<f64>> {
    let index = table.column_index(column)?;
    let mut weights = vec![0.0; table.len()];
    table.for_each_row(|row, cells| {
        let text = cells.get(index).and_then(|cell| std::str::from_utf8(cell).ok());
        let weight =
            text.and_then(|text| text.trim().parse::<f64>().ok()).filter(|weight| weight.is_finite());
        weights[row] = weight.unwrap_or(0.0);
    });
    Some(weights)
}

/// How many processes a call talks to, itself included; each has a device.
fn ranks(reading: &ResolvedCall) -> usize {
    let group = group_size(&reading.arguments).and_then(|ranks| usize::try_from(ranks).ok());
    group.unwrap_or(1).max(1)
}

/// Why a case that the catalogue covers is not launched: nobody knows on how many devices, or the vendor's code
/// rejected this very call.
fn rejection(
    catalogue: &Catalogue,
    planned: &PlannedCase,
    selection: &CaseSelection<'_>,
) -> Option<CaseOutcome> {
    let rejected = selection.rejected?;
    let entry = catalogue.entry(&planned.case.kernel);
    if entry.is_some_and(|entry| !entry.can_be_launched()) {
        let reason = "it talks to other devices, and no argument of its entry is a `process_group`";
        return Some(CaseOutcome::new(Verdict::Unsupported, reason));
    }
    let (digest, message) = rejected.get(planned.case.id())?;
    let call = call_digest(&planned.case, &planned.reading, entry);
    (*digest == call).then(|| CaseOutcome::new(Verdict::InvalidArgs, message.clone()))
}

fn chosen_kernels(known: &[KernelName], wanted: &[KernelName]) -> Result<Vec<KernelName>, PlanError> {
    if known.is_empty() {
        return Err(PlanError::Empty);
    }
    if let Some(missing) = wanted.iter().find(|kernel| !known.contains(kernel)) {
        let nearest = nearest_name(missing.as_str(), known.iter().map(KernelName::as_str));
        return Err(PlanError::NoSuchKernel { kernel: missing.clone(), nearest: nearest.map(str::to_owned) });
    }
    Ok(known.iter().filter(|kernel| wanted.is_empty() || wanted.contains(kernel)).cloned().collect())
}

/// How a case is replayed and how fast it can be, or why it is not.
fn read(
    catalogue: &Catalogue,
    device: &DeviceProfile,
    case: &Case,
) -> Result<(ResolvedCall, Nanos), CaseOutcome> {
    let Some(entry) = catalogue.entry(&case.kernel) else {
        return Err(CaseOutcome::new(Verdict::Unsupported, NO_ENTRY));
    };
    let reading = match entry.resolve_call(case) {
        Ok(reading) => reading,
        Err(NotReplayable::NotCovered(why)) => return Err(CaseOutcome::new(Verdict::Unsupported, why)),
        Err(NotReplayable::Contradiction(why)) => return Err(CaseOutcome::new(Verdict::InvalidArgs, why)),
    };
    if case.bytes() > device.hbm_bytes() {
        let gib = case.bytes().div_ceil(1 << 30);
        let reason = format!("needs {gib} GiB, {} has {}", device.device, device.hbm_gib);
        return Err(CaseOutcome::new(Verdict::Oom, reason));
    }
    let fastest = device.fastest(&reading.work);
    Ok((reading, fastest))
}
