//! Feed-forward: dense layers, and layers with experts.

use super::{INT8_BLOCK, KernelCall, StepBuilder, dynamic_quantisation, wrong_number};
use crate::{
    answer::workload::DecoderStep,
    base::command_error::CommandError,
    cases::llm::{ExpertSizes, ParallelLayout, WeightProduct, WeightProductRole as Role},
    kernel::{CaseAttributes, Dtype, EP_SIZE},
};

/// Limits of the kernel that exchanges tokens and computes their experts: elements of its send buffer, experts of a
/// rank, ranks.
const MAX_SENT: u64 = 60_817_408;
const MAX_EXPERTS: u64 = 17;
const MAX_RANKS: u64 = 32;
/// Maximum number of rows of experts on one device: further sizes of a case do not overflow.
const MAX_ROWS: u64 = 1 << 36;

/// Tokens of one device in a layer with experts.
///
/// With as many groups of experts as groups of tokens, or more, each device of a group of tokens has a part of them,
/// and gets the rows of its experts from all groups; with fewer, groups of tokens are joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpertTokens {
    /// Different parts of the tokens of a group.
    parts: u64,
    /// Groups of tokens that are joined.
    joined: u64,
    /// Devices of a group of tokens with other slices of the same experts, and the same tokens.
    slices: u64,
    /// Tokens of the device; the last part is padded to the size of the others.
    tokens: u64,
    /// Rows that it sends, and, with an even choice of experts, receives: a row for each token and chosen expert.
    rows: u64,
}

impl ExpertTokens {
    /// Divides the tokens of a step. Fails if groups of tokens and of experts do not divide each other, and for more
    /// rows than any device holds.
    pub(super) fn of_step(step: &DecoderStep, experts: &ExpertSizes) -> Result<Self, CommandError> {
        let ParallelLayout { tp, ep, dp } = step.layout;
        let (parts, joined) = match (ep % dp, dp % ep) {
            (0, _) => (ep / dp, 1),
            (_, 0) => (1, dp / ep),
            _ => {
                return Err(CommandError::bad_input(
                    format!(
                        "the tokens of dp {dp} groups cannot be dealt out evenly to ep {ep} groups of experts"
                    ),
                    "give degrees of which one divides the other",
                ));
            }
        };
        let tokens = step.tokens().checked_mul(joined).map(|tokens| tokens.div_ceil(parts));
        let rows = tokens.and_then(|tokens| tokens.checked_mul(experts.top_k));
        match (tokens, rows.filter(|rows| *rows <= MAX_ROWS)) {
            (Some(tokens), Some(rows)) => Ok(Self { parts, joined, slices: tp / parts, tokens, rows }),
            _ => Err(wrong_number(format!(
                "{} tokens of each group with {} experts each are more than {MAX_ROWS} rows on a device",
                step.tokens(),
                experts.top_k
            ))),
        }
    }
}

impl StepBuilder<'_> {
    pub(super) fn add_feed_forward(
        &mut self,
        products: &[WeightProduct],
        experts: Option<&(ExpertSizes, ExpertTokens)>,
    ) {
        self.count = self.model.experts.as_ref().map_or(self.model.layers, |experts| experts.dense_layers);
        let tokens = self.step.tokens();
        if let Some(width) = self.share.intermediate_size {
            self.add_role(products, Role::GateUpProj, tokens);
            self.add_swiglu(tokens, width);
            self.add_role(products, Role::DownProj, tokens);
        }
        self.add_all_reduce();
        if let Some((experts, share)) = experts {
            self.add_experts(experts, *share, products);
        }
    }

    fn add_experts(&mut self, experts: &ExpertSizes, share: ExpertTokens, products: &[WeightProduct]) {
        self.count = self.model.layers - experts.dense_layers;
        let tokens = self.step.tokens();
        self.add_role(products, Role::Router, tokens);
        let (all, chosen, t) = (experts.experts, experts.top_k, share.tokens);
        self.add_collective("hcom_allGather_", [tokens, self.model.hidden_size], share.joined);
        self.add_message(format!("hcom_allGather_: FLOAT[{tokens},{all}]"), share.joined);
        self.add(format!(
            "MoeGatingTopK: FLOAT[{t},{all}] -> FLOAT[{t},{chosen}] INT32[{t},{chosen}] FLOAT[{t},{all}]"
        ));
        let up = products.iter().find(|product| product.role == Role::ExpertGateUp);
        let down = products.iter().find(|product| product.role == Role::ExpertDown);
        if let (Some(up), Some(down)) = (up, down) {
            let ep = self.step.layout.ep;
            let sent = share.rows.checked_mul(self.model.hidden_size);
            let is_fused = (2..=MAX_RANKS).contains(&ep)
                && (share.slices, share.joined) == (1, 1)
                && up.count <= MAX_EXPERTS
                && sent.is_some_and(|sent| sent <= MAX_SENT);
            match is_fused {
                true => self.add_fused_experts(chosen, share, up),
                false => self.add_grouped_experts(chosen, share, [up, down]),
            }
        }
        if let Some(width) = self.share.shared_intermediate_size {
            self.add_role(products, Role::SharedGateUp, tokens);
            self.add_swiglu(tokens, width);
            self.add_role(products, Role::SharedDown, tokens);
        }
        self.add_expert_sums(share);
    }

    /// Adds what makes the hidden states of all tokens whole again on every device.
    fn add_expert_sums(&mut self, share: ExpertTokens) {
        let hidden = self.model.hidden_size;
        self.add_collective("hcom_reduceScatter_", [share.tokens, hidden], share.joined);
        if share.parts == 1 {
            // Experts are cut as finely as everything else: one sum of their slices and of shared experts.
            self.add_all_reduce();
            return;
        }
        self.add_collective("hcom_allReduce_", [share.tokens, hidden], share.slices);
        self.add_collective("hcom_allGather_", [share.tokens, hidden], share.parts);
        if self.share.shared_intermediate_size.is_some() {
            self.add_all_reduce();
        }
    }

    /// Adds the kernel that sends tokens to their experts, computes these, and brings the results back.
    fn add_fused_experts(&mut self, chosen: u64, share: ExpertTokens, up: &WeightProduct) {
        let (t, hidden, experts, width) = (share.tokens, self.model.hidden_size, up.count, up.n);
        let (kernel, weights) = match self.is_quantised() {
            true => ("DispatchFFNCombine", Dtype::Int8),
            false => ("DispatchFFNCombineBF16", Dtype::Bf16),
        };
        let call = KernelCall::from(format!(
            "{kernel}: BF16[{t},{hidden}] NZ:{weights}[{experts},{hidden},{width}] NZ:{weights}[{experts},{},{hidden}] \
             INT32[{t},{chosen}] INT64[{}] INT64[{}] FLOAT[{t},{chosen}] -> BF16[{t},{hidden}] INT32[{experts}]",
            width / 2,
            experts * width,
            experts * hidden
        ));
        let mut attributes = CaseAttributes::default();
        attributes.set(EP_SIZE, &self.step.layout.ep.to_string());
        self.add(call.with_attributes(attributes));
    }

    /// Adds a grouped product for each side of the experts, between a permutation of the tokens and its inverse, and,
    /// with expert parallelism, between two exchanges of rows.
    fn add_grouped_experts(&mut self, chosen: u64, share: ExpertTokens, [up, down]: [&WeightProduct; 2]) {
        let (t, rows, hidden) = (share.tokens, share.rows, self.model.hidden_size);
        let ep = self.step.layout.ep;
        self.add(format!(
            "MoeTokenPermute: BF16[{t},{hidden}] INT32[{t},{chosen}] -> BF16[{rows},{hidden}] INT32[{rows}]"
        ));
        if self.is_quantised() {
            self.add(dynamic_quantisation(rows, hidden));
        }
        if ep > 1 {
            self.add_dispatch(rows, up.count);
        }
        if self.is_quantised() {
            self.add_quantised_experts(rows, up, down);
        } else {
            self.add(grouped_product(rows, up));
            self.add_swiglu(rows, up.n / 2);
            self.add(grouped_product(rows, down));
        }
        let unpermuted = format!("MoeTokenUnpermute: BF16[{rows},{hidden}] INT32[{rows}]");
        if ep > 1 && up.count > 1 {
            self.add(format!("{unpermuted} - -> BF16[{rows},{hidden}]"));
        }
        self.add_collective("hcom_alltoallv_", [rows, hidden], ep);
        self.add(format!("{unpermuted} BF16[{t},{chosen}] -> BF16[{t},{hidden}]"));
    }

    /// Adds the exchange of rows, and of their scales, and their order by the experts of the device if it has several.
    fn add_dispatch(&mut self, rows: u64, experts: u64) {
        let hidden = self.model.hidden_size;
        // The scales of quantised rows are a vector when they are sent, and a column when they are ordered.
        let parts = match self.is_quantised() {
            true => vec![
                [format!("FLOAT[{rows}]"), format!("FLOAT[{rows},1]")],
                [(); 2].map(|()| format!("INT8[{rows},{hidden}]")),
            ],
            false => vec![[(); 2].map(|()| format!("BF16[{rows},{hidden}]"))],
        };
        for [sent, _] in &parts {
            self.add_message(format!("hcom_alltoallv_: {sent}"), self.step.layout.ep);
        }
        for [_, ordered] in parts.iter().filter(|_| experts > 1) {
            self.add(format!("MoeTokenPermute: {ordered} INT32[{rows}] -> {ordered} INT32[{rows}]"));
        }
    }

    /// Adds the products of experts in INT8 with SwiGLU between them: in one kernel with the first where its weight has
    /// whole blocks.
    fn add_quantised_experts(&mut self, rows: u64, up: &WeightProduct, down: &WeightProduct) {
        let (height, width) = INT8_BLOCK;
        let (count, n, k) = (up.count, up.n, up.k);
        if n.is_multiple_of(width) && k.is_multiple_of(height) {
            let weight = format!("NZ:INT8[{count},{},{},{height},{width}]", n / width, k / height);
            self.add(format!(
                    "GroupedMatmulSwigluQuant: INT8[{rows},{k}] {weight} FLOAT[{count},{n}] FLOAT[{rows}] INT64[{count}] \
                     -> INT8[{rows},{}] FLOAT[{rows}]",
                    n / 2
                ),
            );
        } else {
            self.add(grouped_product(rows, up));
            self.add_swiglu(rows, n / 2);
            self.add(dynamic_quantisation(rows, n / 2));
        }
        self.add(grouped_product(rows, down));
    }
}

fn grouped_product(rows: u64, &WeightProduct { count, n, k, ref activations, .. }: &WeightProduct) -> String {
    let inputs = match *activations == Dtype::Int8 {
        true => format!(
            "INT8[{rows},{k}] NZ:INT8[{count},{k},{n}] - FLOAT[{count},{n}] -*3 INT64[{count}] FLOAT[{rows}]"
        ),
        false => format!("BF16[{rows},{k}] BF16[{count},{k},{n}] -*5 INT64[{count}]"),
    };
    format!("GroupedMatmul: {inputs} -> BF16[{rows},{n}]")
}
