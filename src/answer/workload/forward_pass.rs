//! Forward passes of a recorded run, cut out of its kernel records by a kernel that ends each of them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
};

use crate::{
    answer::lookup::parse_dims,
    base::{command_error::CommandError, suggest::nearest_name},
    kernel::{KernelName, Nanos},
    profile::timeline::{NameId, TimeSpan, read_runs},
};

/// Kernel that ends a forward pass: the choice of the next tokens.
pub const FORWARD_ANCHOR: &str = "ArgMaxV2";

const HINT: &str =
    "give kernel_details.csv, op_summary_*.csv or a database of a run, with types, starts and durations";

#[derive(Clone, Debug)]
struct PassRecord {
    kernel: String,
    is_collective: bool,
    start: Nanos,
    duration: Nanos,
    tokens: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardPass {
    pub device: String,
    pub start: Nanos,
    /// Number of records; communication that is recorded twice counts once.
    pub kernels: u64,
    pub compute: Nanos,
    pub communication: Nanos,
    /// Time of the kernels on AI CPUs that start collectives, which is in neither of them.
    pub aicpu: Nanos,
    /// First dimension of the first matrix product; `None` without shapes.
    pub tokens: Option<u64>,
    /// False for the records before the first anchor, which may begin within a pass.
    pub is_complete: bool,
}

impl ForwardPass {
    pub const fn total(&self) -> Nanos {
        Nanos(self.compute.0.saturating_add(self.communication.0))
    }

    /// Sums the records of some kernels of a pass, of all if none is given; start and tokens concern the whole pass. A
    /// collective is recorded on a stream of its own and on the stream of its task, with equal starts: the longest of
    /// those that start in the same microsecond counts.
    fn of_records(device: &str, records: &[PassRecord], kernels: &[KernelName]) -> Self {
        let mut pass = Self {
            device: device.to_owned(),
            start: records.first().map_or(Nanos(0), |record| record.start),
            tokens: records.iter().find_map(|record| record.tokens),
            is_complete: true,
            ..Self::default()
        };
        let mut collectives: HashMap<(i64, &str), i64> = HashMap::new();
        let is_wanted = |record: &&PassRecord| {
            kernels.is_empty() || kernels.iter().any(|kernel| kernel.as_str() == record.kernel)
        };
        for record in records.iter().filter(is_wanted) {
            let time = record.duration;
            let is_aicpu = record.kernel.ends_with("AicpuKernel");
            if record.is_collective && !is_aicpu {
                let key = (record.start.0.div_euclid(1000), record.kernel.as_str());
                let longest = collectives.entry(key).or_insert(-1);
                pass.kernels += u64::from(*longest < 0);
                pass.communication += Nanos((time.0 - (*longest).max(0)).max(0));
                *longest = time.0.max(*longest).max(0);
                continue;
            }
            pass.kernels += 1;
            *(if is_aicpu { &mut pass.aicpu } else { &mut pass.compute }) += time;
        }
        pass
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardPasses {
    /// In the order of devices and time.
    pub passes: Vec<ForwardPass>,
    /// Records behind the last anchor of each device, which belong to no complete pass.
    pub left_out: u64,
    /// Records without a duration or a start.
    pub untimed: u64,
}

/// Reads the forward passes of a kernel table with the times of some kernels, of all if none is given. A pass ends with its anchor;
/// anchors without another kernel between them end one pass. Without an anchor the whole table is one pass. Passes are cut and
/// compared by all records.
pub fn read_passes_of_kernels(
    path: &Path,
    anchor: Option<&str>,
    kernels: &[KernelName],
) -> Result<ForwardPasses, CommandError> {
    let mut found = ForwardPasses::default();
    let devices = read_records(path, &mut found.untimed)?;
    let mut recorded: BTreeSet<String> = BTreeSet::new();
    for (device, mut records) in devices {
        records.sort_by_key(|record| record.start);
        recorded.extend(records.iter().map(|record| record.kernel.clone()));
        match anchor {
            None => found.passes.push(ForwardPass::of_records(&device, &records, kernels)),
            Some(anchor) => cut_passes(&device, &records, anchor, kernels, &mut found),
        }
    }
    match (anchor, found.passes.is_empty()) {
        (_, false) => Ok(found),
        (Some(anchor), true) if !recorded.is_empty() => {
            let near = nearest_name(anchor, recorded.iter().map(String::as_str));
            let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let hint = format!(
                "give a kernel that ends each pass with `--anchor`, or `--whole` for a table of one pass{near}"
            );
            Err(CommandError::in_file(
                path,
                None,
                format!("has no `{anchor}`, which ends a forward pass"),
                hint,
            ))
        }
        _ => Err(CommandError::in_file(path, None, "has no kernel with a start and a duration", HINT)),
    }
}

fn cut_passes(
    device: &str,
    records: &[PassRecord],
    anchor: &str,
    kernels: &[KernelName],
    found: &mut ForwardPasses,
) {
    let is_anchor = |record: &PassRecord| record.kernel == anchor;
    let mut ends: Vec<usize> = Vec::new();
    for at in (0..records.len()).filter(|at| is_anchor(&records[*at])) {
        match ends.last_mut() {
            // Nothing but anchors since the last end.
            Some(end) if records[*end..at].iter().all(is_anchor) => *end = at + 1,
            _ => ends.push(at + 1),
        }
    }
    let mut start = 0;
    let parts = ends.into_iter().map(|end| &records[std::mem::replace(&mut start, end)..end]);
    let parts: Vec<&[PassRecord]> = parts.collect();
    found.left_out += (records.len() - start) as u64;
    let key = |part: &&[PassRecord]| {
        let all = ForwardPass::of_records(device, part, &[]);
        (all.kernels, all.tokens)
    };
    let keys: Vec<_> = parts.iter().map(key).collect();
    // The first one is whole if another pass has as many kernels and tokens.
    let is_complete = |at: usize| at > 0 || keys[1..].contains(&keys[0]);
    found.passes.extend(parts.iter().enumerate().map(|(at, part)| ForwardPass {
        is_complete: is_complete(at),
        ..ForwardPass::of_records(device, part, kernels)
    }));
}

pub(super) type CollectiveSums = BTreeMap<String, (u64, Nanos)>;

pub(super) fn add_collective_sums(path: &Path, sums: &mut CollectiveSums) -> Result<(), CommandError> {
    for records in read_records(path, &mut 0)?.into_values() {
        let mut by_kernel: BTreeMap<String, Vec<PassRecord>> = BTreeMap::new();
        for record in records.into_iter().filter(|record| record.is_collective) {
            by_kernel.entry(record.kernel.clone()).or_default().push(record);
        }
        for (kernel, records) in by_kernel {
            let pass = ForwardPass::of_records("", &records, &[]);
            let (count, time) = sums.entry(kernel).or_default();
            *count += pass.kernels;
            *time += pass.communication;
        }
    }
    Ok(())
}

fn tokens_of_product(kernel: &str, shapes: &str) -> Option<u64> {
    let is_product = kernel.contains("MatMul") || kernel.contains("Matmul");
    let first = shapes.trim().trim_matches('"').split(';').next().filter(|_| is_product)?;
    parse_dims(first)?.first().copied()
}

fn read_records(path: &Path, untimed: &mut u64) -> Result<BTreeMap<String, Vec<PassRecord>>, CommandError> {
    let mut devices: BTreeMap<String, Vec<PassRecord>> = BTreeMap::new();
    for run in read_runs(path)? {
        *untimed += run.untimed;
        let mut add =
            |device: Option<u32>, kind: NameId, span: TimeSpan, is_collective: bool, shapes: &str| {
                let kernel = run.names.text(kind).to_owned();
                let record = PassRecord {
                    is_collective: is_collective || KernelName::is_collective_name(&kernel),
                    start: Nanos(span.start),
                    duration: Nanos(span.length()),
                    tokens: tokens_of_product(&kernel, shapes),
                    kernel,
                };
                let device = device.map_or_else(String::new, |device| device.to_string());
                devices.entry(device).or_default().push(record);
            };
        for task in run.tasks.iter().filter(|task| task.role.is_kernel()) {
            let shapes = task.signature.map_or("", |signature| run.signature_cells(signature)[0]);
            add(task.device, task.kind, task.span, false, shapes);
        }
        for collective in &run.collectives {
            add(collective.device, collective.kind, collective.span, true, "");
        }
    }
    Ok(devices)
}
