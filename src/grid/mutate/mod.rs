//! Mutations: cases that differ in one thing from one that is there.
//!
//! What changes is declared in `grids/mutations.yaml`; how the rest of a case follows is the business of
//! [`CaseEditor`](crate::catalogue::CaseEditor) and of [`SequenceLengths`](crate::domain::SequenceLengths). Whether a mutant becomes a row
//! is decided in [`mutate`], by the filters of grids.

mod axes;
mod sample;
mod select;
mod summary;

use std::collections::HashSet;

use axes::{CaseAxes, MutationAxis};
pub use select::{MutationCount, MutationOrder, SelectedMutants, select_mutants, targets};
pub use summary::MutationSummary;

use super::definition::{Mutation, MutationChange};
use crate::{
    catalogue::{Catalogue, DimensionRole, NotReplayable},
    config::{ComputeUnit, DeviceProfile},
    domain::{Case, KernelName, Tensor},
};

/// A case with one thing changed.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// Which of the mutations.
    pub mutation: usize,
    /// What was changed: a dimension, an argument, a form.
    pub what: String,
    /// From what to what, where that is more than `what` says.
    pub change: String,
    /// The case, or why none can be built.
    pub case: Result<Case, String>,
}

/// What is done to cases.
#[derive(Clone, Copy, Debug)]
pub struct CaseMutator<'a> {
    /// The mutations, of which each is tried.
    pub mutations: &'a [&'a Mutation],
    /// How kernels are called.
    pub catalogue: &'a Catalogue,
    /// Whose cores count.
    pub device: &'a DeviceProfile,
}

impl CaseMutator<'_> {
    /// Goes through the mutants of a case that are cases of a kernel: its own, or one that does its work in INT8.
    /// The same case makes the same mutants in the same order.
    ///
    /// # Errors
    /// [`NotReplayable`] where the case cannot be read.
    pub fn for_each(
        &self,
        source: &Case,
        target: &KernelName,
        mut visit: impl FnMut(Mutant),
    ) -> Result<(), NotReplayable> {
        let no_entry = |kernel: &KernelName| {
            let why = format!("the catalogue has no entry for {kernel}");
            self.catalogue.entry(kernel).ok_or(NotReplayable::NotCovered(why))
        };
        let (entry, other) = (no_entry(&source.kernel)?, no_entry(target)?);
        let axes = CaseAxes::new(entry.edit_case(source)?);
        let cores = self.cores(entry.unit);
        let is_own = source.kernel == *target;
        // Boundaries of several kinds fall together; the first mutation that asks for a number has it.
        let mut numbers = HashSet::new();
        for (index, mutation) in self.mutations.iter().enumerate() {
            let is_meant = mutation.kernels.is_empty() || mutation.kernels.contains(&source.kernel);
            if !is_meant || !(is_own || mutation.change == MutationChange::Quantised) {
                continue;
            }
            let mut made = |what: String, change: String, case: Result<Case, String>| {
                visit(Mutant { mutation: index, what, change, case });
            };
            match &mutation.change {
                MutationChange::Quantised => {
                    for (form, case) in axes.anatomy.int8_variants(other) {
                        made(format!("form `{form}`"), String::new(), case);
                    }
                }
                MutationChange::Transposed => {
                    for (argument, case) in axes.anatomy.transposed_variants() {
                        made(argument.to_owned(), String::new(), Ok(case));
                    }
                }
                MutationChange::Types(types) => {
                    if let Some(case) = axes.anatomy.with_dtypes(types) {
                        let said = first_change(source, &case, |tensor| tensor.dtype.as_str());
                        made("type".to_owned(), said, Ok(case));
                    }
                }
                MutationChange::Formats(formats) => {
                    for (argument, case) in axes.anatomy.with_formats(formats) {
                        let said = first_change(source, &case, |tensor| tensor.format.as_str());
                        made(argument.to_owned(), said, Ok(case));
                    }
                }
                MutationChange::BlockSizes(sizes) => block_sizes(&axes, sizes, made),
                MutationChange::LastBlock(steps) => last_blocks(&axes, steps, made),
                _ => {
                    for (place, axis) in axes.all().into_iter().enumerate() {
                        for value in values(mutation, &axis, cores) {
                            if numbers.insert((place, value)) {
                                let change = format!("{} to {value}", axis.value);
                                made(axis.name.clone(), change, axes.with(&axis, value));
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn cores(&self, unit: ComputeUnit) -> u64 {
        match unit {
            ComputeUnit::Cube => self.device.cube_cores.into(),
            ComputeUnit::Vector | ComputeUnit::Mte => self.device.vector_cores.into(),
        }
    }
}

/// The numbers that a mutation asks for on an axis, other than the one that is there.
fn values(mutation: &Mutation, axis: &MutationAxis, cores: u64) -> Vec<u64> {
    let is_meant = match axis.role {
        _ if mutation.roles.is_empty() => !axis.role.is_some_and(DimensionRole::is_kept),
        Some(role) => mutation.roles.contains(&role),
        None => false,
    };
    if !is_meant {
        return Vec::new();
    }
    let beside = |boundaries: &mut dyn Iterator<Item = u64>| {
        let nearby = boundaries.filter(|boundary| *boundary > 1).flat_map(|boundary| {
            let rounded = axis.value.saturating_add(boundary / 2) / boundary;
            let whole = rounded.max(1).saturating_mul(boundary);
            mutation.steps.iter().filter_map(move |step| whole.checked_add_signed(*step))
        });
        nearby.collect::<Vec<u64>>()
    };
    let mut values = match &mutation.change {
        MutationChange::Factors(factors) => {
            let scaled = factors.iter().filter_map(|(times, over)| {
                let product = axis.value.checked_mul(*times)?;
                product.is_multiple_of(*over).then_some(product / over)
            });
            scaled.collect()
        }
        MutationChange::Multiples(multiples) => beside(&mut multiples.iter().copied()),
        MutationChange::Bytes(bytes) => match axis.element {
            Some(element) => beside(&mut bytes.iter().map(|bytes| bytes / element.max(1))),
            None => Vec::new(),
        },
        MutationChange::Cores => beside(&mut std::iter::once(cores)),
        MutationChange::Values(values) => values.clone(),
        _ => Vec::new(),
    };
    values.retain(|value| *value >= 1 && *value != axis.value);
    values
}

/// Sequences that end beside the end of their last block.
fn last_blocks(
    axes: &CaseAxes<'_>,
    steps: &[i64],
    mut made: impl FnMut(String, String, Result<Case, String>),
) {
    let Some((sequences, block)) =
        axes.sequences.as_ref().and_then(|sequences| Some((sequences, sequences.block?)))
    else {
        return;
    };
    for step in steps {
        let ending = |keys: u64| {
            let whole = keys.div_ceil(block.max(1)).saturating_mul(block);
            whole.saturating_add_signed(*step)
        };
        let changed = sequences.with_keys(ending);
        if changed != *sequences {
            let change = match step {
                0 => "full".to_owned(),
                1.. => format!("full and {step} more"),
                _ => format!("{} short of full", step.unsigned_abs()),
            };
            made("last block".to_owned(), change, axes.with_sequences(&changed));
        }
    }
}

/// Caches in blocks of other sizes.
fn block_sizes(
    axes: &CaseAxes<'_>,
    sizes: &[u64],
    mut made: impl FnMut(String, String, Result<Case, String>),
) {
    for size in sizes {
        if let Some((before, case)) = axes.with_block_size(*size).filter(|(before, _)| before != size) {
            made("block size".to_owned(), format!("{before} to {size}"), case);
        }
    }
}

/// What the first tensor that is another one was and is.
fn first_change(before: &Case, after: &Case, word: impl Fn(&Tensor) -> &str) -> String {
    let tensors = |case: &Case| -> Vec<String> {
        let slots = case.inputs.iter().chain(&case.outputs).flatten();
        slots.map(|tensor| word(tensor).to_owned()).collect()
    };
    let mut both = tensors(before).into_iter().zip(tensors(after));
    both.find(|(from, to)| from != to).map_or_else(String::new, |(from, to)| format!("{from} to {to}"))
}
