//! Mutations: cases that differ from an existing case in one respect.
//!
//! `mutator` builds the mutants that `grids/mutations.yaml` declares; `axes` changes numbers of a case;
//! [`CaseEditor`](crate::kernel::catalogue::CaseEditor) and [`SequenceLengths`](crate::kernel::SequenceLengths) derive the
//! rest of the case. `strata` samples mutants. [`select_rows`](crate::cases::grid::select_rows) decides which of them become
//! rows.

mod axes;
mod mutator;
mod strata;

pub use mutator::{CaseMutator, Mutant};
pub(crate) use strata::{MutantStrata, SizedMutant, sample_mutants};
