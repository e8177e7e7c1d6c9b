//! The error of a case that cannot be replayed.

use std::fmt;

use super::ExprError;
use crate::kernel::ingest_option;

/// Reason why a case cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReplayable {
    /// No form of the entry covers such slots, types, numbers of dimensions or attributes; the case may be valid.
    #[error("{0}")]
    NotCovered(Refusal),
    /// A form covers such cases, and the dimensions of this one contradict each other or a condition of the kernel.
    #[error("{0}")]
    Contradiction(Refusal),
}

impl From<ExprError> for NotReplayable {
    fn from(error: ExprError) -> Self {
        contradiction(error.to_string())
    }
}

/// Problem of a case that fits no form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub(crate) problem: String,
    /// Nearest form if the problem is the difference from it, else empty.
    pub(crate) form: String,
}

impl From<String> for Refusal {
    fn from(problem: String) -> Self {
        Self { problem, form: String::new() }
    }
}

impl From<&str> for Refusal {
    fn from(problem: &str) -> Self {
        problem.to_owned().into()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

pub(super) fn contradiction(reason: impl Into<Refusal>) -> NotReplayable {
    NotReplayable::Contradiction(reason.into())
}

pub(super) fn not_covered(reason: impl Into<Refusal>) -> NotReplayable {
    NotReplayable::NotCovered(reason.into())
}

/// An attribute that the call needs and the case lacks, with its source.
pub(super) fn missing_attribute(column: &str) -> NotReplayable {
    let source = match ingest_option(column) {
        Some(option) => format!("`npubench ingest {option}` sets it"),
        None => "profiles do not contain it, see docs/attention.md".to_owned(),
    };
    not_covered(format!("`{column}` is not known; {source}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::assets::AssetFiles,
        kernel::{Case, CaseAttributes, KernelName, SignatureCells, catalogue::Catalogue},
    };

    /// A row of any number of tokens without a batch is a call of another kernel; one token does not make it a product
    /// with a contracted dimension of 1, which no call launches.
    #[test]
    fn product_without_a_batch_is_a_call_of_another_kernel_for_any_number_of_tokens() {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the catalogue");
        let kernel = KernelName::new("BatchMatMulV2").expect("a name");
        let entry = catalogue.entry(&kernel).expect("an entry");
        let resolve = |inputs: &str, output: &str| {
            let slots = |shapes, dtypes, formats| SignatureCells { shapes, dtypes, formats }.parse();
            let case = Case {
                kernel: kernel.clone(),
                inputs: slots(inputs, "DT_BF16;DT_BF16", "ND;ND").expect("inputs"),
                outputs: slots(output, "DT_BF16", "ND").expect("an output"),
                attributes: CaseAttributes::default(),
            };
            entry.resolve_call(&case)
        };
        for tokens in [1, 64] {
            let call =
                resolve(&format!("{tokens},4096;4096,512"), &format!("{tokens},512")).expect("a form fits");
            assert_eq!((call.form.as_str(), call.definition.as_str()), ("A x B, no batch", "MatMulV2"));
        }
        let call = resolve("4,64,512;4,512,128", "4,64,128").expect("a form fits");
        assert_eq!(call.definition, kernel);
        let refusal = |inputs: &str, output: &str| resolve(inputs, output).expect_err("no form fits");
        let batches = refusal("4,64,512;3,512,128", "4,64,128");
        assert!(matches!(batches, NotReplayable::Contradiction(_)), "{batches:?}");
        let contracted = refusal("4,64,1;4,1,128", "4,64,128");
        assert!(matches!(contracted, NotReplayable::NotCovered(_)), "{contracted:?}");
    }
}
