//! Mutations: cases that differ from an existing case in one respect.
//!
//! `mutator` builds the mutants that `grids/mutations.yaml` declares; `axes` changes numbers of a case;
//! [`CaseEditor`](crate::catalogue::CaseEditor) and [`SequenceLengths`](crate::domain::SequenceLengths) derive the
//! rest of the case. `strata` samples mutants. [`select_rows`](crate::grid::select_rows) decides which of them become
//! rows.

mod axes;
mod mutator;
mod strata;

pub use mutator::{CaseMutator, Mutant};
pub(crate) use strata::{MutantStrata, SizedMutant, sample_mutants};
