//! `interpolation_error.yaml`, the estimated errors of interpolations beside the tables.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Database, DatabaseError};
use crate::{
    base::{
        files::{MAX_DOCUMENT, read_regular_text, write_atomic},
        yaml,
        yaml::YamlError,
    },
    kernel::DataKind,
};

pub(crate) const INTERPOLATION_ERROR_FILE: &str = "interpolation_error.yaml";

const LAYOUT: u32 = 1;
const HINT: &str = "restore the file or delete it: `npubench adapt` writes it again";
const COMMENT: &str = "\
# Written by `npubench adapt`. Errors of answers for questions like the candidates, relative to the measurement: 0.05 is
# 5 % too much or too little, null is no answer, or too few hold-outs for an estimate. docs/grids.md explains it.
";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InterpolationErrors {
    npubench_interpolation_error: u32,
    kind: DataKind,
    pub(crate) kernels: BTreeMap<String, KernelInterpolationError>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KernelInterpolationError {
    pub(crate) p50: Option<f64>,
    pub(crate) p90: Option<f64>,
    pub(crate) max: Option<f64>,
    pub(crate) target: f64,
    /// Errors of the random candidates that the estimate is from, of the answers from before they were measured.
    pub(crate) hold_outs: Vec<Option<f64>>,
    pub(crate) rows: usize,
    pub(crate) candidates: usize,
    /// Models of the grids; empty for the ladders of the grids.
    pub(crate) models: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) date: String,
}

impl InterpolationErrors {
    pub(crate) fn load(database: &Database) -> Result<Self, DatabaseError> {
        let path = database.folder().join(INTERPOLATION_ERROR_FILE);
        let none =
            Self { npubench_interpolation_error: LAYOUT, kind: database.kind(), kernels: BTreeMap::new() };
        if DatabaseError::is_missing(&path)? {
            return Ok(none);
        }
        let text = read_regular_text(&path, MAX_DOCUMENT).map_err(DatabaseError::io("read", &path))?;
        let found: Self =
            yaml::parse(&path, &text).map_err(|error| YamlError { hint: HINT.to_owned(), ..error })?;
        let layout = found.npubench_interpolation_error;
        if layout > LAYOUT {
            let problem = format!("layout {layout}, this npubench reads layouts up to {LAYOUT}");
            let hint = "use the npubench that wrote it, or a newer one";
            return Err(YamlError::of_file(&path, problem, hint).into());
        }
        if found.kind != none.kind {
            let problem = format!("estimates of kind `{}` in a database of kind `{}`", found.kind, none.kind);
            return Err(YamlError::of_file(&path, problem, HINT).into());
        }
        Ok(found)
    }

    pub(crate) fn save(&self, database: &Database) -> Result<(), DatabaseError> {
        let text = format!("{COMMENT}{}", yaml::print(self));
        Ok(write_atomic(&database.folder().join(INTERPOLATION_ERROR_FILE), text.as_bytes())?)
    }
}
