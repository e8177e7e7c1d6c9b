//! The vendor's own table of steps beside a profile, `step_trace_time.csv` or `StepTraceTime` of `analysis.db`, compared
//! with ours.

use super::prelude::*;

type OwnValue = fn(&StepTimes) -> Option<i64>;

/// Columns of the vendor's table, each with the time of ours that it is compared with.
const COLUMNS: [(&str, OwnValue); 9] = [
    ("Computing", |own| Some(own.computing)),
    ("Communication(Not Overlapped)", |own| Some(own.not_overlapped)),
    ("Overlapped", |own| Some(own.overlapped)),
    ("Communication", |own| Some(own.communication)),
    ("Free", |own| Some(own.free)),
    ("Stage", |own| Some(own.stage())),
    ("Bubble", |own| Some(own.bubble)),
    ("Communication(Not Overlapped and Exclude Receive)", |own| Some(own.not_overlapped_excluding_receive())),
    ("Preparing", |own| own.preparing),
];
/// Columns of differences of times since the epoch, which the CSV holds as floating point numbers: multiples of 0.25 us.
const COARSE: [&str; 2] = ["Stage", "Preparing"];
/// Grid of these in nanoseconds, and the distance of two values on it.
const COARSE_GRID: i64 = 500;
/// Error of a sum of the recorded, rounded durations in nanoseconds.
const ROUNDING: i64 = 30;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepDifference {
    pub(crate) step: Option<u64>,
    pub(crate) column: &'static str,
    /// Nanoseconds.
    pub(crate) theirs: i64,
    pub(crate) ours: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct VendorSteps {
    pub(crate) file: PathBuf,
    pub(crate) steps: usize,
    pub(crate) differences: Vec<StepDifference>,
}

struct VendorRow {
    device: Option<u32>,
    step: Option<u64>,
    values: [Option<i64>; COLUMNS.len()],
}

impl VendorSteps {
    pub(crate) fn beside(file: &Path, times: &[&StepTimes]) -> Result<Option<Self>, ProfileError> {
        let folder = file.parent().unwrap_or(Path::new(""));
        let database = folder.join("analysis.db");
        let table = folder.join("step_trace_time.csv");
        let (file, rows, grid) = match (read_database(&database)?, table.is_file()) {
            // The times of a database are exact.
            (Some(rows), _) => (database, rows, ROUNDING),
            (None, true) => (table.clone(), read_table(&table)?, COARSE_GRID),
            (None, false) => return Ok(None),
        };
        let mut compared = Self { file, steps: 0, differences: Vec::new() };
        for row in &rows {
            let of_row = |own: &&StepTimes| {
                own.step == row.step
                    && (row.device.is_none() || own.device.is_none() || own.device == row.device)
            };
            let Some(own) = times.iter().copied().find(of_row) else { continue };
            compared.steps += 1;
            for ((column, value), theirs) in COLUMNS.into_iter().zip(row.values) {
                let (Some(theirs), Some(ours)) = (theirs, value(own)) else { continue };
                let tolerance = if COARSE.contains(&column) { grid } else { ROUNDING };
                if theirs.abs_diff(ours) > tolerance.unsigned_abs() {
                    compared.differences.push(StepDifference { step: row.step, column, theirs, ours });
                }
            }
        }
        Ok(Some(compared))
    }
}

fn micros(text: &str) -> Option<i64> {
    Nanos::parse_micros(text.as_bytes()).ok().map(|time| time.0)
}

fn read_table(file: &Path) -> Result<Vec<VendorRow>, ProfileError> {
    let io = ProfileError::csv(file);
    let mut csv = csv::Reader::from_path(file).map_err(&io)?;
    let header = csv.headers().map_err(&io)?.clone();
    let find = |name: &str| header.iter().position(|cell| cell.trim() == name);
    let (device, step, columns) = (find("Device_id"), find("Step"), COLUMNS.map(|(column, _)| find(column)));
    let mut rows = Vec::new();
    for row in csv.records() {
        let row = row.map_err(&io)?;
        let cell =
            |column: Option<usize>| column.and_then(|column| row.get(column)).unwrap_or_default().trim();
        rows.push(VendorRow {
            device: cell(device).parse().ok(),
            step: cell(step).parse().ok(),
            values: columns.map(|column| micros(cell(column))),
        });
    }
    Ok(rows)
}

fn read_database(file: &Path) -> Result<Option<Vec<VendorRow>>, ProfileError> {
    if !file.is_file() {
        return Ok(None);
    }
    // Their names in the database differ by case and underscores, which are ignored.
    let columns = COLUMNS.map(|(column, _)| column.replace(|c: char| !c.is_ascii_alphanumeric(), ""));
    let columns: Vec<&str> =
        ["deviceId", "step"].into_iter().chain(columns.iter().map(String::as_str)).collect();
    let mut found = Vec::new();
    let has_table = ProfileDatabase::open(file)?.for_each_row_of("StepTraceTime", &columns, &mut |row| {
        let values = std::array::from_fn(|column| micros(&row.text(column + 2)));
        found.push(VendorRow { device: row.text(0).parse().ok(), step: row.text(1).parse().ok(), values });
        Ok(())
    })?;
    Ok(has_table.then_some(found))
}
