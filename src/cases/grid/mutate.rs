//! Mutations: cases that differ from an existing case in one respect. Each declared mutation is applied to everything that it
//! fits.

mod axes;
mod strata;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use axes::{CaseAxes, MutationAxis};
pub(crate) use strata::{MutantStrata, SizedMutant, sample_mutants};

use super::definition::{Mutation, MutationChange};
use crate::kernel::{
    Case, KernelName, Tensor,
    catalogue::{Catalogue, DimensionRole, FormMismatch, NotReplayable},
    device::{ComputeUnit, DeviceProfile},
};

#[derive(Clone, Debug)]
pub struct Mutant {
    pub mutation: usize,
    /// Changed object: a dimension, an argument, a form.
    pub(crate) what: String,
    /// Old and new value, if `what` alone does not identify the change.
    pub(crate) change: String,
    pub case: Result<Case, String>,
}

#[derive(Clone, Copy, Debug)]
pub struct CaseMutator<'a> {
    pub mutations: &'a [&'a Mutation],
    pub catalogue: &'a Catalogue,
    pub device: &'a DeviceProfile,
}

impl CaseMutator<'_> {
    /// Returns the kernels of the mutants of some kernels' cases, each with the kernels of its source cases: the kernels
    /// themselves, and those that do their work in INT8 if a mutation requests INT8.
    pub fn target_kernels(&self, kernels: &BTreeSet<KernelName>) -> BTreeMap<KernelName, Vec<KernelName>> {
        let mut targets: BTreeMap<KernelName, Vec<KernelName>> =
            kernels.iter().map(|kernel| (kernel.clone(), vec![kernel.clone()])).collect();
        if !self.mutations.iter().any(|mutation| mutation.change == MutationChange::Quantised) {
            return targets;
        }
        for entry in self.catalogue.entries_with_key("quantises") {
            for kernel in kernels {
                let Some(source) = self.catalogue.entry(kernel) else { continue };
                let quantises = entry.forms.iter().any(|form| form.quantises.contains(&source.kernel));
                if quantises && entry.kernel != source.kernel {
                    targets.entry(entry.kernel.clone()).or_default().push(kernel.clone());
                }
            }
        }
        targets
    }

    /// Visits the mutants of a case that are cases of `target`: its own kernel, or one that does its work in INT8. The
    /// same case has the same mutants in the same order. An error if the catalogue cannot read the case.
    pub fn for_each(
        &self,
        source: &Case,
        target: &KernelName,
        mut visit: impl FnMut(Mutant),
    ) -> Result<(), NotReplayable> {
        let no_entry = |kernel: &KernelName| {
            let why = format!("the catalogue has no entry for {kernel}");
            self.catalogue.entry(kernel).ok_or(FormMismatch::not_covered(why))
        };
        let (entry, other) = (no_entry(&source.kernel)?, no_entry(target)?);
        let axes = CaseAxes::new(entry.edit_case(source)?);
        let cores = match entry.unit {
            ComputeUnit::Cube => self.device.cube_cores.into(),
            ComputeUnit::Vector | ComputeUnit::Mte => self.device.vector_cores.into(),
        };
        let is_own = source.kernel == *target;
        // Boundaries of several kinds may be the same number, which the first mutation that yields it uses.
        let mut numbers = HashSet::new();
        for (index, mutation) in self.mutations.iter().enumerate() {
            let applies = mutation.kernels.is_empty() || mutation.kernels.contains(&source.kernel);
            if !applies || !(is_own || mutation.change == MutationChange::Quantised) {
                continue;
            }
            let mut add = |what: String, change: String, case: Result<Case, String>| {
                visit(Mutant { mutation: index, what, change, case });
            };
            match &mutation.change {
                MutationChange::Quantised => {
                    for (form, case) in axes.editor.int8_variants(other) {
                        add(format!("form `{form}`"), String::new(), case);
                    }
                }
                MutationChange::Transposed => {
                    for (argument, case) in axes.editor.transposed_variants() {
                        add(argument.to_owned(), String::new(), Ok(case));
                    }
                }
                MutationChange::Types(types) => {
                    if let Some(case) = axes.editor.with_dtypes(types) {
                        let change = first_change(source, &case, |tensor| tensor.dtype.as_str());
                        add("type".to_owned(), change, Ok(case));
                    }
                }
                MutationChange::Formats(formats) => {
                    for (argument, case) in axes.editor.with_formats(formats) {
                        let change = first_change(source, &case, |tensor| tensor.format.as_str());
                        add(argument.to_owned(), change, Ok(case));
                    }
                }
                MutationChange::BlockSizes(sizes) => {
                    for size in sizes {
                        let changed = axes.with_block_size(*size).filter(|(before, _)| before != size);
                        if let Some((before, case)) = changed {
                            add("block size".to_owned(), format!("{before} to {size}"), case);
                        }
                    }
                }
                MutationChange::LastBlock(steps) => add_last_blocks(&axes, steps, add),
                _ => {
                    for (place, axis) in axes.all().into_iter().enumerate() {
                        for value in mutated_values(mutation, &axis, cores) {
                            if numbers.insert((place, value)) {
                                let change = format!("{} to {value}", axis.value);
                                add(axis.name.clone(), change, axes.with(&axis, value));
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn mutated_values(mutation: &Mutation, axis: &MutationAxis, cores: u64) -> Vec<u64> {
    let applies = match axis.role {
        _ if mutation.roles.is_empty() => !axis.role.is_some_and(DimensionRole::is_kept),
        Some(role) => mutation.roles.contains(&role),
        None => false,
    };
    if !applies {
        return Vec::new();
    }
    let near = |boundaries: &mut dyn Iterator<Item = u64>| {
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
        MutationChange::Multiples(multiples) => near(&mut multiples.iter().copied()),
        MutationChange::Bytes(bytes) => match axis.element {
            Some(element) => near(&mut bytes.iter().map(|bytes| bytes / element.max(1))),
            None => Vec::new(),
        },
        MutationChange::Cores => near(&mut std::iter::once(cores)),
        MutationChange::Values(values) => values.clone(),
        _ => Vec::new(),
    };
    values.retain(|value| *value >= 1 && *value != axis.value);
    values
}

fn add_last_blocks(
    axes: &CaseAxes<'_>,
    steps: &[i64],
    mut add: impl FnMut(String, String, Result<Case, String>),
) {
    let Some(sequences) = &axes.sequences else { return };
    let Some(block) = sequences.block else { return };
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
            add("last block".to_owned(), change, axes.with_sequences(&changed));
        }
    }
}

/// Formats the first property of a tensor that differs between two cases: `OLD to NEW`.
fn first_change(before: &Case, after: &Case, property: impl Fn(&Tensor) -> &str) -> String {
    let mut both = before.tensors().map(&property).zip(after.tensors().map(&property));
    both.find(|(from, to)| from != to).map_or_else(String::new, |(from, to)| format!("{from} to {to}"))
}
