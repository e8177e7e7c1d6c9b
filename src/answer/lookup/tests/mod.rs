//! Lookups in small databases.

mod attention;
mod collectives;
mod decomposed;
mod interpolation;
mod moe;
mod padding;
mod preparation;
mod properties;
mod rules;

use std::{fs, path::Path};

use tempfile::TempDir;

use super::*;
use crate::{
    answer::op_mapping::OpMapping,
    database::{Database, DatabaseError},
    kernel::Dtype,
};

pub(in crate::answer) const HEADER: &str = "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,\
                      Average Duration(us),Profiling Average Duration(us),MicroBench Verdict";

/// A database of tables, each with rows of `inputs | types | formats | outputs | output types | average | production |
/// verdict`; missing cells at the end are empty, formats are row-major by default.
pub(in crate::answer) struct TestDatabase {
    folder: TempDir,
}

impl TestDatabase {
    pub(in crate::answer) fn new(tables: &[(&str, &[&str])]) -> Self {
        let database = Self { folder: tempfile::tempdir().expect("a folder") };
        for (kernel, rows) in tables {
            let mut text = format!("{HEADER}\n");
            for row in *rows {
                let mut cells: Vec<&str> = row.split('|').map(str::trim).collect();
                cells.resize(8, "");
                let formats = |types: &str| types.split(';').map(|_| "ND").collect::<Vec<_>>().join(";");
                let input_formats = if cells[2].is_empty() { formats(cells[1]) } else { cells[2].to_owned() };
                text.push_str(&format!(
                    "\"\"\"{}\"\"\",{},{input_formats},\"\"\"{}\"\"\",{},{},{},{},{}\n",
                    cells[0],
                    cells[1],
                    cells[3],
                    cells[4],
                    formats(cells[4]),
                    cells[5],
                    cells[6],
                    cells[7]
                ));
            }
            fs::write(database.folder.path().join(format!("{kernel}.csv")), text).expect("written");
        }
        database
    }

    pub(in crate::answer) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(in crate::answer) fn engine(&self, mapping: &str) -> LookupEngine {
        self.engine_with(mapping, LookupEngine::new)
    }

    pub(in crate::answer) fn engine_with(
        &self,
        mapping: &str,
        engine: fn(Database, Option<OpMapping>) -> Result<LookupEngine, DatabaseError>,
    ) -> LookupEngine {
        let mapping = (!mapping.is_empty())
            .then(|| OpMapping::parse(&self.path().join("op_mapping.yaml"), mapping).expect(mapping));
        engine(Database::open(self.path()).expect("a database"), mapping).expect("tables")
    }
}

pub(in crate::answer) fn tensors(shapes: &str, dtype: &str) -> Vec<QueryTensor> {
    let shape = |shape: &str| -> Vec<u64> {
        shape.split(',').filter(|dim| !dim.is_empty()).map(|dim| dim.parse().expect("a number")).collect()
    };
    let shapes = shapes.split(';').filter(|shape| !shape.is_empty());
    let count = shapes.clone().count();
    let dtypes: Vec<&str> = if dtype.contains(';') { dtype.split(';').collect() } else { vec![dtype; count] };
    shapes
        .zip(dtypes)
        .map(|(dims, dtype)| QueryTensor { dims: shape(dims), dtype: Dtype::parse(dtype), format: None })
        .collect()
}

pub(in crate::answer) fn query(op: &str, shapes: &str, dtype: &str) -> OpQuery {
    OpQuery { op: op.to_owned(), inputs: tensors(shapes, dtype), ..OpQuery::default() }
}

/// Returns the answer as `latency rule kernel:line`, or the reason of a miss.
pub(in crate::answer) fn shown(answer: &LookupAnswer) -> String {
    let (Some(latency), Some(rule)) = (answer.latency, answer.rule) else {
        // The attributes are another test's.
        let reason = answer.miss.as_ref().expect("a reason").to_string();
        return match reason.find("attention_mismatch: ") {
            Some(at) => format!("{}attention_mismatch", &reason[..at]),
            None => reason,
        };
    };
    let rows: Vec<String> =
        answer.rows.iter().map(|row| format!(" {}:{}", row.kernel.as_str(), row.line)).collect();
    format!("{} {rule}{}", (latency.0 * 1e6).round() / 1e6, rows.concat())
}

fn check(engine: &LookupEngine, cases: &[(&str, &str, &str, &str)]) {
    for (op, shapes, dtype, expected) in cases {
        let answer = engine.lookup(&query(op, shapes, dtype)).expect("readable tables");
        assert_eq!(shown(&answer), *expected, "{op} {shapes} {dtype}");
    }
}
