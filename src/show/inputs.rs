//! Inputs of cases, with the attributes that distinguish cases of equal shapes.

use std::collections::BTreeMap;

use crate::kernel::RUNTIME;

/// Kernel, inputs, outputs and attributes of a case, as in its signature.
pub(crate) type SignatureParts<'a> = [&'a str; 4];

/// Returns for each case the inputs, followed by the attributes that other cases of the kernel with the same inputs and outputs
/// do not have, without the prefix of runtime columns.
pub(crate) fn distinguishable_inputs(cases: &[SignatureParts<'_>]) -> Vec<String> {
    let attributes = |case: usize| cases[case][3].split(';').filter(|attribute| !attribute.is_empty());
    let mut alike: BTreeMap<&[&str], Vec<usize>> = BTreeMap::new();
    for (index, case) in cases.iter().enumerate() {
        alike.entry(&case[..3]).or_default().push(index);
    }
    let mut texts: Vec<String> = cases.iter().map(|case| case[1].to_owned()).collect();
    for group in alike.into_values().filter(|group| group.len() > 1) {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let all = group.iter().copied().flat_map(attributes);
        all.for_each(|attribute| *counts.entry(attribute).or_default() += 1);
        for &case in &group {
            for attribute in attributes(case).filter(|attribute| counts[attribute] < group.len()) {
                texts[case] += " ";
                texts[case] += attribute.strip_prefix(RUNTIME).unwrap_or(attribute);
            }
        }
    }
    texts
}
