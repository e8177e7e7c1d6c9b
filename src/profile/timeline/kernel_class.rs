//! Classes of kernels as the vendor's comparison has them: by the operator that launched a kernel, then by its type.

use super::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
pub(crate) enum KernelClass {
    #[strum(to_string = "Flash Attention (Forward)")]
    AttentionForward,
    #[strum(to_string = "Flash Attention (Backward)")]
    AttentionBackward,
    #[strum(to_string = "Page Attention")]
    PageAttention,
    #[strum(to_string = "Conv (Forward)")]
    ConvolutionForward,
    #[strum(to_string = "Conv (Backward)")]
    ConvolutionBackward,
    #[strum(to_string = "Matmul")]
    Matmul,
    #[strum(to_string = "Fused Communication")]
    FusedCommunication,
    #[strum(to_string = "Cube")]
    Cube,
    #[strum(to_string = "Vector (Trans)")]
    Transposition,
    #[strum(to_string = "Vector (No Trans)")]
    Vector,
    #[strum(to_string = "SDMA (Tensor Move)")]
    TensorMove,
    #[strum(to_string = "Other")]
    Other,
}

type PassClasses = [KernelClass; 2];

const ATTENTION: PassClasses = [KernelClass::AttentionForward, KernelClass::AttentionBackward];
const CONVOLUTION: PassClasses = [KernelClass::ConvolutionForward, KernelClass::ConvolutionBackward];

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
    (&["aten::addmm", "aten::bmm", "aten::mm", "aten::matmul"], [KernelClass::Matmul; 2]),
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

    pub(crate) fn class_of(&self, task: &DeviceTask) -> KernelClass {
        let lower = |id: NameId| self.run.names.text(id).to_ascii_lowercase();
        let (kind, name) = (lower(task.kind), lower(task.name));
        if kind.contains("pagedattention") {
            return KernelClass::PageAttention;
        }
        if name.contains("aclnninplacecopy") && name.contains("tensormove") {
            return KernelClass::TensorMove;
        }
        if ["allgathermatmul", "matmulreducescatter", "matmulallreduce"]
            .iter()
            .any(|part| name.contains(part))
        {
            return KernelClass::FusedCommunication;
        }
        let mut is_backward = ["bwd", "back", "grad"].iter().any(|part| kind.contains(part));
        let by_operator = self.classes_by_operator(task, &mut is_backward);
        let is_attention = kind.contains("flashattention") || kind.contains("fusedinferattention");
        let by_type = || match () {
            () if is_attention => Some(ATTENTION),
            () if kind.starts_with("conv") => Some(CONVOLUTION),
            () => None,
        };
        if let Some(classes) = by_operator.or_else(by_type) {
            return classes[usize::from(is_backward)];
        }
        match () {
            () if kind.contains("matmul") => KernelClass::Matmul,
            () if task.uses_cube == Some(true) => KernelClass::Cube,
            () if !self.has_types && task.uses_cube.is_none() => KernelClass::Other,
            () if ["cast", "transdata", "transpose"].iter().any(|part| name.contains(part)) => {
                KernelClass::Transposition
            }
            () => KernelClass::Vector,
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
