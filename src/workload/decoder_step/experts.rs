//! Feed-forward: dense layers, and layers with experts.

use super::{INT8_BLOCK, KernelCall, StepBuilder};
use crate::{
    domain::{Dtype, EP_SIZE},
    llm::{ExpertSizes, WeightProduct, WeightProductRole as Role},
};

/// Limits of the kernel that exchanges tokens and computes their experts: elements of its send buffer, experts of a
/// rank.
const MOST_SENT: u64 = 60_817_408;
const MOST_EXPERTS: u64 = 17;

impl StepBuilder<'_> {
    pub(super) fn add_feed_forward(&mut self, products: &[WeightProduct]) {
        let (dense, tokens) = (self.dense_layers(), self.step.tokens());
        if let Some(width) = self.share.intermediate_size {
            self.add_role(products, Role::GateUpProj, dense, tokens);
            self.add_swiglu(dense, tokens, width);
            self.add_role(products, Role::DownProj, dense, tokens);
        }
        self.add_all_reduce(dense);
        if let Some(experts) = self.model.experts.clone() {
            self.add_experts(&experts, products);
        }
    }

    fn add_experts(&mut self, experts: &ExpertSizes, products: &[WeightProduct]) {
        let (layers, tokens) = (self.model.layers - experts.dense_layers, self.step.tokens());
        self.add_role(products, Role::Router, layers, tokens);
        let (all, chosen) = (experts.experts, experts.top_k);
        let gating = KernelCall::new("MoeGatingTopK")
            .input(&[tokens, all], Dtype::Float)
            .output(&[tokens, chosen], Dtype::Float)
            .output(&[tokens, chosen], Dtype::Int32)
            .output(&[tokens, all], Dtype::Float);
        self.add(layers, gating);
        let up = products.iter().find(|product| product.role == Role::ExpertGateUp);
        let down = products.iter().find(|product| product.role == Role::ExpertDown);
        if let (Some(up), Some(down)) = (up, down) {
            let is_fused = self.step.layout.ep > 1
                && up.count <= MOST_EXPERTS
                && tokens * self.model.hidden_size * chosen <= MOST_SENT;
            match is_fused {
                true => self.add_fused_experts(layers, chosen, up),
                false => self.add_grouped_experts(layers, experts, up, down),
            }
        }
        if let Some(width) = self.share.shared_intermediate_size {
            self.add_role(products, Role::SharedGateUp, layers, tokens);
            self.add_swiglu(layers, tokens, width);
            self.add_role(products, Role::SharedDown, layers, tokens);
        }
        // Tokens that were exchanged are whole again; those of experts that are cut, and of shared experts, are sums.
        if self.step.layout.ep == 1 || self.share.shared_intermediate_size.is_some() {
            self.add_all_reduce(layers);
        }
    }

    /// Adds the kernel that sends tokens to their experts, computes these, and brings the results back.
    fn add_fused_experts(&mut self, layers: u64, chosen: u64, up: &WeightProduct) {
        let (tokens, hidden) = (self.step.tokens(), self.model.hidden_size);
        let (experts, width) = (up.count, up.n);
        let (kernel, weights) = match self.is_quantised() {
            true => ("DispatchFFNCombine", Dtype::Int8),
            false => ("DispatchFFNCombineBF16", Dtype::Bf16),
        };
        let blocked = |call: KernelCall, dims: &[u64]| call.blocked_input(dims, weights.clone());
        let call = KernelCall::new(kernel).input(&[tokens, hidden], Dtype::Bf16);
        let call = blocked(blocked(call, &[experts, hidden, width]), &[experts, width / 2, hidden])
            .input(&[tokens, chosen], Dtype::Int32)
            .input(&[experts * width], Dtype::Int64)
            .input(&[experts * hidden], Dtype::Int64)
            .input(&[tokens, chosen], Dtype::Float)
            .output(&[tokens, hidden], Dtype::Bf16)
            .output(&[experts], Dtype::Int32)
            .attribute(EP_SIZE, &self.step.layout.ep.to_string());
        self.add(layers, call);
    }

    /// Adds a grouped product for each side of the experts, between a permutation of the tokens and its inverse. A
    /// device has an equal part of the tokens of all groups.
    fn add_grouped_experts(
        &mut self,
        layers: u64,
        experts: &ExpertSizes,
        up: &WeightProduct,
        down: &WeightProduct,
    ) {
        let (tokens, hidden, chosen) = (self.step.tokens(), self.model.hidden_size, experts.top_k);
        let layout = self.step.layout;
        let permute = KernelCall::new("MoeTokenPermute")
            .input(&[tokens, hidden], Dtype::Bf16)
            .input(&[tokens, chosen], Dtype::Int32)
            .output(&[tokens * chosen, hidden], Dtype::Bf16)
            .output(&[tokens * chosen], Dtype::Int32);
        self.add(layers, permute);
        let rows = (tokens * chosen * layout.dp).div_ceil(layout.ep).max(1);
        if layout.ep > 1 {
            let sent = KernelCall::new("hcom_alltoallv_").input(&[tokens * chosen, hidden], Dtype::Bf16);
            self.add(2 * layers, sent.among(layout.ep));
        }
        if self.is_quantised() {
            self.add_quantisation(layers, rows, hidden);
            let (height, width) = INT8_BLOCK;
            let (n, k) = (up.n, up.k);
            let fused = KernelCall::new("GroupedMatmulSwigluQuant")
                .input(&[rows, k], Dtype::Int8)
                .blocked_input(&[up.count, n / width, k / height, height, width], Dtype::Int8)
                .input(&[up.count, n], Dtype::Float)
                .input(&[rows], Dtype::Float)
                .input(&[up.count], Dtype::Int64)
                .output(&[rows, n / 2], Dtype::Int8)
                .output(&[rows], Dtype::Float);
            self.add(layers, fused);
            self.add(layers, grouped_product(rows, down));
        } else {
            self.add(layers, grouped_product(rows, up));
            self.add_swiglu(layers, rows, up.n / 2);
            self.add(layers, grouped_product(rows, down));
        }
        let unpermute = KernelCall::new("MoeTokenUnpermute")
            .input(&[tokens * chosen, hidden], Dtype::Bf16)
            .input(&[tokens * chosen], Dtype::Int32)
            .input(&[tokens, chosen], Dtype::Bf16)
            .output(&[tokens, hidden], Dtype::Bf16);
        self.add(layers, unpermute);
    }
}

fn grouped_product(rows: u64, product: &WeightProduct) -> KernelCall {
    let (experts, n, k) = (product.count, product.n, product.k);
    let call = KernelCall::new("GroupedMatmul");
    let call = match product.activations == Dtype::Int8 {
        true => call
            .input(&[rows, k], Dtype::Int8)
            .blocked_input(&[experts, k, n], Dtype::Int8)
            .omitted(1)
            .input(&[experts, n], Dtype::Float)
            .omitted(3)
            .input(&[experts], Dtype::Int64)
            .input(&[rows], Dtype::Float),
        false => call
            .input(&[rows, k], Dtype::Bf16)
            .input(&[experts, k, n], Dtype::Bf16)
            .omitted(5)
            .input(&[experts], Dtype::Int64),
    };
    call.output(&[rows, n], Dtype::Bf16)
}
