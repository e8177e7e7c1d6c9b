//! Merge of ledgers: the union of their objects by identity, written in a canonical form.
//!
//! Two states of one object are ordered by a total order of their columns, and the greater one is taken; the file depends on the
//! union alone. So a merge does not depend on the order of the ledgers, and merging again gives the same bytes:
//! docs/design/fleet.md.

use std::{collections::BTreeMap, path::Path};

use rusqlite::types::Value;

use super::{
    Ledger, LedgerCopy, LedgerError, WITH_SAMPLES,
    values::{Json, fields},
};
use crate::kernel::{DataKind, Nanos, SoftwareFingerprint};

#[cfg(test)]
mod tests;

const UNITE: &str = include_str!("merge/unite.sql");
const CANONICAL: &str = include_str!("merge/canonical.sql");

const FIXED_OF_RUN: [&str; 5] = ["kind", "seed", "started_ns", "host", "options"];
const FIXED_OF_COLLECTION: [&str; 5] = ["started_ns", "device", "gang", "purpose", "cache"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub(crate) struct LedgerSize {
    pub(crate) runs: u64,
    pub(crate) collections: u64,
    pub(crate) attempts: u64,
    pub(crate) samples: u64,
}

/// Writes the union of ledgers into the new file `target`; `union` is the path of a temporary file. Fails with
/// [`LedgerError::Contradiction`] if an object has columns in two of them that cannot differ.
pub(crate) fn merge_ledgers(
    sources: &[&LedgerCopy],
    union: &Path,
    target: &Path,
) -> Result<LedgerSize, LedgerError> {
    let mut united = Ledger::open(union)?;
    united
        .connection
        .execute_batch(
            "PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY; PRAGMA foreign_keys = OFF;
             CREATE TEMP TABLE origins (run TEXT PRIMARY KEY, ledger INTEGER NOT NULL);",
        )
        .map_err(united.sqlite_error())?;
    for (number, source) in (0_i64..).zip(sources) {
        attach(&united, &source.copy, "source")?;
        if let Some((other, difference)) = find_contradiction(&united)? {
            let other = usize::try_from(other).ok().and_then(|other| sources.get(other)).unwrap_or(source);
            let (path, other) = (source.original.clone(), other.original.clone());
            return Err(LedgerError::Contradiction { path, other, difference });
        }
        united
            .in_transaction(|tx| {
                tx.execute("INSERT OR IGNORE INTO temp.origins SELECT run, ?1 FROM source.runs", [number])?;
                tx.execute_batch(UNITE)
            })
            .map_err(|error| error.with_path(&source.original))?;
        united.connection.execute_batch("DETACH source").map_err(united.sqlite_error())?;
    }
    drop(united);
    let mut merged = Ledger::open(target)?;
    merged.connection.execute_batch("PRAGMA foreign_keys = OFF").map_err(merged.sqlite_error())?;
    attach(&merged, union, "united")?;
    merged.in_transaction(|tx| tx.execute_batch(CANONICAL))?;
    merged.size()
}

fn attach(ledger: &Ledger, path: &Path, name: &str) -> Result<(), LedgerError> {
    ledger.limit.add_file(path);
    let attached = ledger.connection.execute(&format!("ATTACH ?1 AS {name}"), [path.to_string_lossy()]);
    attached.map(|_| ()).map_err(ledger.sqlite_error())
}

/// Returns the first run or collection of `source` that contradicts the union, with the number of the ledger that has added it.
fn find_contradiction(united: &Ledger) -> Result<Option<(i64, String)>, LedgerError> {
    let collection = "'collection ' || s.number || ' of run ' || s.run";
    for (object, table, key, fixed) in [
        ("'run ' || s.run", "runs", "run", FIXED_OF_RUN),
        (collection, "collections", "run, number", FIXED_OF_COLLECTION),
    ] {
        let [of_source, of_union] =
            ["s", "m"].map(|side| fixed.map(|column| format!("{side}.{column}")).join(", "));
        let sql = format!(
            "SELECT o.ledger, {object}, {of_source}, {of_union} FROM source.{table} s JOIN main.{table} m USING ({key})
             JOIN temp.origins o ON o.run = s.run WHERE ({of_source}) IS NOT ({of_union}) ORDER BY s.run LIMIT 1"
        );
        let found: Vec<(i64, String)> = united.read_rows(&sql, [], |row| {
            let name: String = row.get(1)?;
            for (index, column) in fixed.iter().enumerate() {
                let (one, other): (Value, Value) = (row.get(2 + index)?, row.get(2 + fixed.len() + index)?);
                if one != other {
                    let values = format!("{}, not {}", value_text(&one), value_text(&other));
                    return Ok((row.get(0)?, format!("{name} has {column} {values}")));
                }
            }
            Ok((row.get(0)?, format!("{name} differs")))
        })?;
        if let Some(found) = found.into_iter().next() {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Text(text) => format!("`{}`", text.chars().take(200).collect::<String>()),
        Value::Blob(bytes) => format!("{} bytes", bytes.len()),
    }
}

impl Ledger {
    pub(crate) fn size(&self) -> Result<LedgerSize, LedgerError> {
        let count = |sql: &str| -> Result<u64, LedgerError> {
            Ok(self.read_first(sql, [])?.map_or(0, i64::cast_unsigned))
        };
        Ok(LedgerSize {
            runs: count("SELECT count(*) FROM runs")?,
            collections: count("SELECT count(*) FROM collections")?,
            attempts: count("SELECT count(*) FROM attempts")?,
            samples: count("SELECT ifnull(sum(length(replace(states, 'w', ''))), 0) FROM launch_lists")?,
        })
    }

    /// Returns the digest of the evidence of each collection, by run and number; `None` for those without compressed evidence.
    pub(crate) fn collection_archives(&self) -> Result<BTreeMap<(String, u32), Option<String>>, LedgerError> {
        self.read_rows("SELECT run, number, archive FROM collections", [], |row| {
            let (run, number, archive) = fields(row)?;
            Ok(((run, number), archive))
        })
    }

    pub(crate) fn run_kinds(&self) -> Result<Vec<DataKind>, LedgerError> {
        self.read_column("SELECT DISTINCT kind FROM runs", [])
    }

    /// Returns the start and the software of the newest collection with a measurement; `None` without one. Its software may be unknown.
    pub(crate) fn newest_software(&self) -> Result<Option<(Nanos, SoftwareFingerprint)>, LedgerError> {
        let sql = format!(
            "SELECT c.started_ns, s.fingerprint FROM collections c LEFT JOIN software s ON s.digest = c.software
             WHERE EXISTS (SELECT 1 FROM attempts a WHERE a.collection = c.collection AND a.verdict IN ({WITH_SAMPLES}))
             ORDER BY c.started_ns DESC, c.run DESC, c.number DESC LIMIT 1"
        );
        let newest: Vec<(Nanos, Option<Json<SoftwareFingerprint>>)> = self.read_rows(&sql, [], fields)?;
        let with_software = |(start, software): (_, Option<Json<_>>)| {
            (start, software.map(|Json(software)| software).unwrap_or_default())
        };
        Ok(newest.into_iter().next().map(with_software))
    }
}
