//! The sweeps of a database that a command reads.

use std::collections::BTreeMap;

use crate::base::command_error::CommandError;
use crate::{
    base::{shell_argument::quoted_path, suggest::nearest_name},
    database::Database,
    kernel::{CollectiveKind, KernelName},
    measure::collective::{Sweep, SweepTable},
};

/// Measured sweeps of a database.
#[derive(Debug)]
pub(crate) struct DatabaseSweeps {
    pub(crate) sweeps: Vec<Sweep>,
    /// Notes on rows that are not among them.
    pub(crate) notes: Vec<String>,
}

impl DatabaseSweeps {
    /// Reads the tables of collectives by their names or those of their tables; of all without a name. Fails if no row is
    /// measured.
    pub(crate) fn read(database: &Database, names: &[String]) -> Result<Self, CommandError> {
        let wanted = names.iter().map(|name| parse_collective(name)).collect::<Result<Vec<_>, _>>()?;
        let (mut sweeps, mut notes) = (Vec::new(), Vec::new());
        for kernel in database.collectives()? {
            let Some(kind) = CollectiveKind::of_kernel(&kernel) else { continue };
            if !wanted.is_empty() && !wanted.contains(&kind) {
                continue;
            }
            let table = SweepTable::from_table(kind, &database.kernel_csv(&kernel)?);
            notes.extend(notes_on_rows(&kernel, &table));
            sweeps.extend(table.sweeps);
        }
        if sweeps.is_empty() {
            let of = if names.is_empty() { "collective".to_owned() } else { names.join(", ") };
            let folder = database.folder().display();
            return Err(CommandError::bad_input(
                format!("`{folder}` has no measured row of {of}"),
                format!(
                    "measure with `npubench comm run`, or import results with `npubench comm import FILE --db {}`",
                    quoted_path(database.folder())
                ),
            ));
        }
        Ok(Self { sweeps, notes })
    }
}

fn notes_on_rows(kernel: &KernelName, table: &SweepTable) -> Vec<String> {
    let mut notes = Vec::new();
    let mut add = |rows: usize, what: &str| {
        if rows > 0 {
            let noun = if rows == 1 { "row" } else { "rows" };
            notes.push(format!("{kernel}: {rows} {noun} {what}"));
        }
    };
    add(table.unmeasured, "without a valid measurement left out");
    for (reason, rows) in &table.unusable {
        add(*rows, &format!("left out: {reason}"));
    }
    let points = || table.sweeps.iter().flat_map(|sweep| &sweep.points);
    add(
        points().filter(|point| point.rows > 1).map(|point| point.rows).sum(),
        "of other tools share their keys, and stand for their medians",
    );
    add(
        points().filter(|point| point.is_foreign).count(),
        "without a verdict: other tools wrote them, whose durations may contain the dispatch or the time between launches",
    );
    add(table.foreign, "of other tools left out beside measured ones of the same sweep");
    notes
}

/// Parses the name of a collective or of its table.
pub(crate) fn parse_collective(name: &str) -> Result<CollectiveKind, CommandError> {
    let found = CollectiveKind::ALL
        .iter()
        .copied()
        .find(|kind| kind.to_string() == name || kind.kernel_name() == name);
    found.ok_or_else(|| {
        let names: BTreeMap<String, CollectiveKind> =
            CollectiveKind::ALL.iter().map(|kind| (kind.to_string(), *kind)).collect();
        let listed: Vec<&str> = names.keys().map(String::as_str).collect();
        let hint = nearest_name(name, listed.iter().copied()).map_or_else(
            || format!("collectives: {}", listed.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        CommandError::bad_input(format!("`{name}` is no collective"), hint)
    })
}
