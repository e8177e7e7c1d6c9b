//! Cases of collectives: a message size, a group of ranks and an environment as the tensors and attributes of a case.

use super::{
    Case, CaseAttributes, CollectiveKind, Dtype, KernelName, PartWeights, Slot, Tensor, TensorFormat,
};

/// Attributes of a collective's case, which are columns of no table.
pub(super) const RANKS: &str = "HCCL Ranks";
pub(super) const TIER: &str = "HCCL Topology Tier";
pub(super) const ENVIRONMENT: &str = "HCCL Environment";
pub(super) const PARTS: &str = "HCCL Part Weights";

/// One collective of one message size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CollectiveCase {
    /// The collective.
    pub kind: CollectiveKind,
    /// Message size in bytes, see [`CollectiveKind::size_semantics`].
    pub message: u64,
    /// Number of ranks.
    pub ranks: u64,
    /// Tier of the topology that the group spans, 0 for the outermost.
    pub tier: u64,
    /// Element type.
    pub dtype: Dtype,
    /// Variables of HCCL that are set, as `NAME=value` with `;` between them.
    pub environment: String,
    /// Sizes of the parts of an `all_to_all_v`; equal for all others.
    pub parts: PartWeights,
}

impl CollectiveCase {
    /// Returns the case. The error is the reason why there is no such call: a size that is no whole number of elements, or
    /// that cannot be divided among the ranks.
    pub fn case(&self) -> Result<Case, String> {
        let Self { kind, message, ranks, dtype, .. } = self;
        let size = dtype.bytes().ok_or_else(|| format!("the size of an element of {dtype} is not known"))?;
        if *message == 0 || *ranks < 2 {
            return Err(format!("a message of {message} bytes over {ranks} ranks is no transfer"));
        }
        if !message.is_multiple_of(size) {
            return Err(format!(
                "{message} bytes are not a whole number of elements of {dtype}, {size} bytes each"
            ));
        }
        let has_equal_parts = self.parts == PartWeights::Equal;
        let is_divided =
            matches!(kind, CollectiveKind::AllToAll | CollectiveKind::AllToAllV) && has_equal_parts;
        if is_divided && !(message / size).is_multiple_of(*ranks) {
            return Err(format!(
                "{message} bytes are {} elements of {dtype}, which {ranks} ranks cannot share equally",
                message / size
            ));
        }
        if !has_equal_parts && *kind != CollectiveKind::AllToAllV {
            return Err("only the parts of an all_to_all_v may differ".to_owned());
        }
        self.parts.check_ranks(*ranks)?;
        if *kind == CollectiveKind::SendReceive && *ranks != 2 {
            return Err(format!("a transfer has 2 ranks, not {ranks}"));
        }
        // Parts are whole elements.
        let received = kind.receive_bytes(message / size, *ranks, &self.parts);
        let received = received.and_then(|elements| elements.checked_mul(size));
        let flat = |bytes: Option<u64>| -> Result<Slot, String> {
            let bytes =
                bytes.ok_or_else(|| format!("{message} bytes for each of {ranks} ranks exceed 2^64"))?;
            Ok(Some(Tensor {
                dims: vec![bytes / size],
                dtype: dtype.clone(),
                format: TensorFormat::Base("ND".to_owned()),
            }))
        };
        let mut attributes = CaseAttributes::default();
        attributes.set(RANKS, &ranks.to_string());
        attributes.set(TIER, &self.tier.to_string());
        attributes.set(ENVIRONMENT, &self.environment);
        // Without the attribute for equal parts, whose cases have the ids of before.
        if !has_equal_parts {
            attributes.set(PARTS, &self.parts.to_string());
        }
        Ok(Case {
            kernel: KernelName::new(kind.kernel_name()).map_err(|error| error.to_string())?,
            inputs: vec![flat(kind.send_bytes(*message, *ranks))?],
            outputs: vec![flat(received)?],
            attributes,
        })
    }

    /// Returns the collective of a case; `None` for the case of a kernel.
    pub fn of_case(case: &Case) -> Option<Self> {
        let kind = CollectiveKind::of_kernel(&case.kernel)?;
        let number = |name: &str| case.attributes.get(name)?.parse::<u64>().ok();
        let (ranks, tier) = (number(RANKS)?, number(TIER)?);
        let send = case.inputs.first()?.as_ref()?;
        let message = match kind {
            CollectiveKind::ReduceScatter => send.bytes().checked_div(ranks)?,
            _ => send.bytes(),
        };
        let environment = case.attributes.get(ENVIRONMENT).unwrap_or_default().to_owned();
        let parts = case.attributes.get(PARTS).unwrap_or_default().parse().ok()?;
        Some(Self { kind, message, ranks, tier, dtype: send.dtype.clone(), environment, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collective(kind: CollectiveKind, message: u64, ranks: u64) -> CollectiveCase {
        let environment = "HCCL_ALGO=level0:ring;level1:H-D_R;HCCL_BUFFSIZE=400".to_owned();
        let parts = PartWeights::Equal;
        CollectiveCase { kind, message, ranks, tier: 1, dtype: Dtype::Bf16, environment, parts }
    }

    #[test]
    fn a_case_has_the_buffers_of_one_rank_and_the_group() {
        for &kind in CollectiveKind::ALL {
            let ranks = if kind == CollectiveKind::SendReceive { 2 } else { 16 };
            let wanted = collective(kind, 1024, ranks);
            let case = wanted.case().expect("a call");
            assert_eq!(CollectiveCase::of_case(&case), Some(wanted));
        }
        let bytes = |kind| {
            let case = collective(kind, 1024, 16).case().expect("a call");
            [&case.inputs, &case.outputs].map(|side| side[0].as_ref().map(Tensor::bytes))
        };
        assert_eq!(bytes(CollectiveKind::AllGather), [Some(1024), Some(16384)]);
        assert_eq!(bytes(CollectiveKind::ReduceScatter), [Some(16384), Some(1024)]);
        let parts = PartWeights::Hot(4);
        let hot = CollectiveCase { parts, ..collective(CollectiveKind::AllToAllV, 1024, 4) };
        let case = hot.case().expect("a call");
        assert_eq!(CollectiveCase::of_case(&case), Some(hot));
        // Of 512 elements, each rank sends 292 to rank 0.
        assert_eq!(case.outputs[0].as_ref().map(Tensor::bytes), Some(4 * 292 * 2));
    }

    #[test]
    fn sizes_without_a_call_are_errors() {
        let error = |kind, message, ranks| collective(kind, message, ranks).case().expect_err("no call");
        let odd = error(CollectiveKind::AllReduce, 1023, 4);
        assert_eq!(odd, "1023 bytes are not a whole number of elements of DT_BF16, 2 bytes each");
        let rest = error(CollectiveKind::AllToAll, 1028, 4);
        assert_eq!(rest, "1028 bytes are 514 elements of DT_BF16, which 4 ranks cannot share equally");
        assert!(error(CollectiveKind::AllGather, u64::MAX - 1, 4).contains("exceed 2^64"));
        assert!(error(CollectiveKind::SendReceive, 1024, 4).contains("2 ranks"));
        assert!(error(CollectiveKind::AllReduce, 1024, 1).contains("no transfer"));
    }

    #[test]
    fn ids_depend_on_group_tier_and_environment() {
        let base = collective(CollectiveKind::AllReduce, 1024, 16);
        let ids = [
            base.clone(),
            CollectiveCase { ranks: 8, ..base.clone() },
            CollectiveCase { tier: 2, ..base.clone() },
            CollectiveCase { environment: String::new(), ..base.clone() },
            CollectiveCase { kind: CollectiveKind::AllToAllV, ..base.clone() },
            CollectiveCase { kind: CollectiveKind::AllToAllV, parts: PartWeights::Hot(3), ..base.clone() },
            CollectiveCase { dtype: Dtype::Float16, ..base },
        ];
        let mut ids: Vec<_> = ids.map(|case| case.case().expect("a call").id()).to_vec();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 7);
    }
}
