//! Databases of plain CSVs, whose rows have attributes.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::prelude::*;

/// A row of a kernel without measurements.
#[derive(Clone)]
pub(crate) struct PlainRow {
    pub(crate) kernel: &'static str,
    /// Shape and type of each input slot; both empty for an omitted argument.
    inputs: Vec<(String, String)>,
    outputs: (String, String),
    /// Columns with their cells.
    attributes: Vec<(String, String)>,
}

impl PlainRow {
    pub(crate) fn new(kernel: &'static str, slots: usize) -> Self {
        let inputs = vec![(String::new(), String::new()); slots];
        Self { kernel, inputs, outputs: (String::new(), String::new()), attributes: Vec::new() }
    }

    pub(crate) fn set_input(&mut self, slot: usize, shape: &str, dtype: &str) {
        self.inputs[slot] = (shape.to_owned(), dtype.to_owned());
    }

    /// Sets the cell of a runtime column, named without its prefix.
    pub(crate) fn set_attribute(&mut self, column: &str, cell: &str) {
        self.set_column(&format!("Runtime {column}"), cell);
    }

    pub(crate) fn set_column(&mut self, column: &str, cell: &str) {
        self.attributes.retain(|(known, _)| known != column);
        self.attributes.push((column.to_owned(), cell.to_owned()));
    }

    pub(crate) fn outputs(self, shapes: &str, dtypes: &str) -> Self {
        let count = shapes.split(';').count();
        let dtypes = dtypes.split(';').take(count).collect::<Vec<_>>().join(";");
        Self { outputs: (shapes.to_owned(), dtypes), ..self }
    }

    /// Cells of the six columns of the signature.
    fn cells(&self) -> [String; 6] {
        let join =
            |cell: fn(&(String, String)) -> &str| self.inputs.iter().map(cell).collect::<Vec<_>>().join(";");
        let (shapes, dtypes) = self.outputs.clone();
        let formats = vec!["ND"; shapes.split(';').count()].join(";");
        [
            join(|(shape, _)| shape),
            join(|(_, dtype)| if dtype.is_empty() { "DT_UNDEFINED" } else { dtype }),
            join(|(_, dtype)| if dtype.is_empty() { "NULL" } else { "ND" }),
            shapes,
            dtypes,
            formats,
        ]
    }
}

const SIGNATURE: [&str; 6] = [
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
];

/// Writes the rows into the database `db` of kind `rehearsal`.
pub(crate) fn write_database(context: &Context, rows: &[PlainRow]) {
    let kernels: BTreeSet<&str> = rows.iter().map(|row| row.kernel).collect();
    for kernel in kernels {
        let rows: Vec<&PlainRow> = rows.iter().filter(|row| row.kernel == kernel).collect();
        let columns: BTreeSet<&str> =
            rows.iter().flat_map(|row| &row.attributes).map(|(column, _)| column.as_str()).collect();
        let path = context.write(&format!("plain/{kernel}.csv"), "");
        let mut writer = csv::Writer::from_path(path).expect("a file");
        writer.write_record(SIGNATURE.iter().chain(&columns)).expect("written");
        for row in rows {
            let cell = |column: &&str| {
                let cell = row.attributes.iter().find(|(known, _)| known == column);
                cell.map_or_else(String::new, |(_, cell)| cell.clone())
            };
            let attributes: Vec<String> = columns.iter().map(cell).collect();
            writer.write_record(row.cells().iter().chain(&attributes)).expect("written");
        }
        writer.flush().expect("written");
    }
    context.done("db copy plain db --kind rehearsal");
}

/// Returns kernel, verdict and reason of each case that a plan does not launch, and the number of launched cases.
pub(crate) fn planned(context: &Context) -> (Vec<[String; 3]>, usize) {
    let lines = context.run("plan --db db --devices 0 --format json").json();
    let refused = lines.iter().filter(|line| line.get("not_launched").is_some());
    let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    let refused: Vec<[String; 3]> =
        refused.map(|line| ["kernel", "verdict", "not_launched"].map(|key| text(line, key))).collect();
    let launched = lines.len() - refused.len();
    (refused, launched)
}

/// Asserts that a plan refuses each of these rows, which are in one database, with a reason that contains the text beside it.
#[track_caller]
pub(crate) fn assert_rows_refused(rows: &[(PlainRow, &str)]) {
    let context = Context::new();
    write_database(&context, &rows.iter().map(|(row, _)| row.clone()).collect::<Vec<_>>());
    let (refused, launched) = planned(&context);
    assert_eq!(launched, 0, "{refused:#?}");
    for (row, text) in rows {
        let is_it = |[kernel, _, reason]: &[String; 3]| kernel == row.kernel && reason.contains(text);
        assert!(refused.iter().any(is_it), "{} {text}: {refused:#?}", row.kernel);
    }
}
