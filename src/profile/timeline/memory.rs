//! Memory of a run: the peaks of the allocator, and what operators allocated.
//!
//! Sources: `OP_MEMORY` and `MEMORY_RECORD` of a database (bytes, ns); `operator_memory.csv` and `memory_record.csv`
//! beside a trace (KB or MB by the header, us); the events `[memory]` of a trace of a GPU, which its reader collects.

use super::{prelude::*, run::RunMemory};

impl RunMemory {
    pub(crate) fn read(run: &RunTimeline) -> Result<Option<Self>, ProfileError> {
        let Some(file) = run.files.first() else { return Ok(None) };
        if run.form == Some(ProfileForm::GpuTrace) {
            return Ok(run.memory.clone());
        }
        let is_database = file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("db"));
        Ok(if is_database {
            read_database(file)?
        } else {
            read_tables(file.parent().unwrap_or(Path::new("")))?
        })
    }

    /// Returns the allocated bytes and the number of allocations by the outermost operator at their time; those outside
    /// of operators have an empty name.
    pub(crate) fn by_operator(&self, run: &RunTimeline) -> BTreeMap<String, (u64, u64)> {
        let nesting = run.nesting();
        let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (time, size) in &self.allocations {
            let operator = nesting.outermost_at(*time).and_then(|id| run.operator(id));
            let name = operator.map_or("", |operator| run.names.text(operator.name));
            let sum = sums.entry(name.to_owned()).or_default();
            *sum = (sum.0.saturating_add(*size), sum.1 + 1);
        }
        sums
    }
}

fn read_database(file: &Path) -> Result<Option<RunMemory>, ProfileError> {
    let database = ProfileDatabase::open(file)?;
    let mut memory = RunMemory::default();
    let columns = ["totalReserved", "totalAllocated"];
    let has_peaks = database.for_each_row_of("MEMORY_RECORD", &columns, &mut |row| {
        memory.peak_reserved = memory.peak_reserved.max(row.unsigned(0));
        memory.peak_allocated = memory.peak_allocated.max(row.unsigned(1));
        Ok(())
    })?;
    let columns = ["allocationTime", "size"];
    let has_allocations = database.for_each_row_of("OP_MEMORY", &columns, &mut |row| {
        memory.allocations.extend(row.integer(0).zip(row.unsigned(1)));
        Ok(())
    })?;
    Ok((has_peaks || has_allocations).then_some(memory))
}

fn read_tables(folder: &Path) -> Result<Option<RunMemory>, ProfileError> {
    let mut memory = RunMemory::default();
    let (record, columns) = (folder.join("memory_record.csv"), ["Total Reserved", "Total Allocated"]);
    let has_peaks = for_each_row(&record, &columns, &mut |cells, units| {
        memory.peak_reserved = memory.peak_reserved.max(bytes(cells[0], &units[0]));
        memory.peak_allocated = memory.peak_allocated.max(bytes(cells[1], &units[1]));
    })?;
    let (operators, columns) = (folder.join("operator_memory.csv"), ["Allocation Time", "Size"]);
    let has_allocations = for_each_row(&operators, &columns, &mut |cells, units| {
        let time = Nanos::parse_micros(cells[0].as_bytes()).ok().map(|time| time.0);
        memory.allocations.extend(time.zip(bytes(cells[1], &units[1])));
    })?;
    Ok((has_peaks || has_allocations).then_some(memory))
}

fn bytes(cell: &str, unit: &str) -> Option<u64> {
    let value: f64 = cell.trim().parse().ok()?;
    let factor = match unit {
        "KB" => 1024.0,
        "MB" => 1_048_576.0,
        _ => 1.0,
    };
    let value = value * factor;
    (0.0..9e15).contains(&value).then(|| value.round() as u64)
}

/// Visits columns of a CSV, whose names are followed by a unit, as in `Size(KB)`; false without the file.
fn for_each_row(
    file: &Path,
    columns: &[&str],
    visit: &mut dyn FnMut(&[&str], &[String]),
) -> Result<bool, ProfileError> {
    if !file.is_file() {
        return Ok(false);
    }
    let io = ProfileError::csv(file);
    let mut csv = csv::ReaderBuilder::new().flexible(true).from_path(file).map_err(&io)?;
    let header = csv.headers().map_err(&io)?.clone();
    let mut places = Vec::new();
    let mut units = Vec::new();
    for column in columns {
        let found = header.iter().enumerate().find_map(|(at, name)| {
            let unit = name.trim().strip_prefix(column)?.trim().strip_prefix('(')?.strip_suffix(')')?;
            Some((at, unit.to_owned()))
        });
        let Some((at, unit)) = found else { return Ok(true) };
        places.push(at);
        units.push(unit);
    }
    for row in csv.records() {
        let row = row.map_err(&io)?;
        let cells: Vec<&str> = places.iter().map(|at| row.get(*at).unwrap_or_default().trim()).collect();
        visit(&cells, &units);
    }
    Ok(true)
}
