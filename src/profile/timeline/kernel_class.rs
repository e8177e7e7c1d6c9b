//! Classes of kernels as the vendor's comparison has them: by the operator that launched a kernel, then by its type.

use super::prelude::*;

/// Classes of the forward and the backward pass.
type PassClasses = [&'static str; 2];

const ATTENTION: PassClasses = ["Flash Attention (Forward)", "Flash Attention (Backward)"];
const CONVOLUTION: PassClasses = ["Conv (Forward)", "Conv (Backward)"];
const MATMUL: &str = "Matmul";

const OPERATORS: [(&[&str], PassClasses); 3] = [
    (
        &[
            "flash_attention",
            "fusion_attention",
            "flashattn",
            "xformers_flash",
            "efficient_attention",
            "flash2attn",
        ],
        ATTENTION,
    ),
    (&["aten::conv"], CONVOLUTION),
    (&["aten::addmm", "aten::bmm", "aten::mm", "aten::matmul"], [MATMUL; 2]),
];

#[derive(Debug)]
pub(crate) struct KernelClassifier<'a> {
    run: &'a RunTimeline,
    nesting: &'a OperatorNesting<'a>,
    has_types: bool,
}

impl<'a> KernelClassifier<'a> {
    pub(crate) fn new(run: &'a RunTimeline, nesting: &'a OperatorNesting<'a>) -> Self {
        Self { run, nesting, has_types: run.kernels().any(|task| task.kind.is_recorded()) }
    }

    pub(crate) fn class_of(&self, task: &DeviceTask) -> &'static str {
        let lower = |id: NameId| self.run.names.text(id).to_ascii_lowercase();
        let (kind, name) = (lower(task.kind), lower(task.name));
        if kind.contains("pagedattention") {
            return "Page Attention";
        }
        if name.contains("aclnninplacecopy") && name.contains("tensormove") {
            return "SDMA (Tensor Move)";
        }
        if ["allgathermatmul", "matmulreducescatter", "matmulallreduce"]
            .iter()
            .any(|part| name.contains(part))
        {
            return "Fused Communication";
        }
        let mut is_backward = ["bwd", "back", "grad"].iter().any(|part| kind.contains(part));
        let by_operator = self.classes_by_operator(task, &mut is_backward);
        let is_attention = kind.contains("flashattention") || kind.contains("fusedinferattention");
        let by_type = is_attention.then_some(ATTENTION).or(kind.starts_with("conv").then_some(CONVOLUTION));
        if let Some(classes) = by_operator.or(by_type) {
            return classes[usize::from(is_backward)];
        }
        match () {
            () if kind.contains("matmul") => MATMUL,
            () if task.uses_cube == Some(true) => "Cube",
            () if !self.has_types && task.uses_cube.is_none() => "Other",
            () if ["cast", "transdata", "transpose"].iter().any(|part| name.contains(part)) => {
                "Vector (Trans)"
            }
            () => "Vector (No Trans)",
        }
    }

    fn classes_by_operator(&self, task: &DeviceTask, is_backward: &mut bool) -> Option<PassClasses> {
        let mut found = None;
        for id in self.nesting.chain(task.operator?) {
            let name = self.run.names.text(self.run.operator(id)?.name).to_ascii_lowercase();
            *is_backward |= ["bwd", "back", "grad"].iter().any(|part| name.contains(part));
            let known = OPERATORS.iter().find(|(parts, _)| parts.iter().any(|part| name.contains(part)));
            found = known.map(|(_, classes)| *classes).or(found);
        }
        found.filter(|_| self.has_types || task.uses_cube.is_some())
    }
}
