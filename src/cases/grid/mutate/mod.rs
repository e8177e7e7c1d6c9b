//! Mutations: cases that differ from an existing case in one respect. `mutator` builds the mutants that `grids/mutations.yaml`
//! declares; `axes` changes numbers of a case; `strata` samples mutants.

mod axes;
mod mutator;
mod strata;

pub use mutator::{CaseMutator, Mutant};
pub(crate) use strata::{MutantStrata, SizedMutant, sample_mutants};
