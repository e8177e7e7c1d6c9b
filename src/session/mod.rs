//! Preparation of a run: options, plan, environment; errors as they are printed.

mod error;
mod measure;

pub(crate) use error::CommandError;
pub(crate) use measure::*;
