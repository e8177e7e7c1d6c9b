//! Products that communicate in the same kernel: their outputs by the number of ranks.

use super::{
    answer::MissReason,
    query::{OpQuery, QueryTensor},
};
use crate::kernel::KernelName;

/// Product whose output has the number of ranks: rows of several numbers of ranks have the same inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FusedProduct {
    /// The left operand is gathered from the ranks.
    AllGatherMatmul,
    /// The result is scattered to the ranks.
    MatmulReduceScatter,
}

impl FusedProduct {
    /// Returns the product of a kernel; `None` for other kernels.
    pub(crate) fn of_kernel(kernel: &KernelName) -> Option<Self> {
        match kernel.as_str() {
            "AllGatherMatmul" => Some(Self::AllGatherMatmul),
            "MatmulReduceScatter" => Some(Self::MatmulReduceScatter),
            _ => None,
        }
    }

    /// Returns the output for the ranks of a query. The error is the reason of a miss.
    pub(crate) fn output_of_query(self, query: &OpQuery) -> Result<QueryTensor, MissReason> {
        let ranks = query.ranks.filter(|ranks| *ranks > 0).ok_or(MissReason::RanksNotGiven)?;
        let [one, other, ..] = query.inputs.as_slice() else { return Err(MissReason::InputCountMismatch) };
        let (&[rows, inner], &[left, right]) = (one.dims.as_slice(), other.dims.as_slice()) else {
            return Err(MissReason::ShapeMismatch);
        };
        let columns = if left == inner { right } else { left };
        let rows = match self {
            Self::AllGatherMatmul => rows.checked_mul(ranks).ok_or(MissReason::ShapeMismatch)?,
            Self::MatmulReduceScatter if rows.is_multiple_of(ranks) => rows / ranks,
            Self::MatmulReduceScatter => return Err(MissReason::UndividedRows { rows, ranks }),
        };
        Ok(QueryTensor { dims: vec![rows, columns], dtype: None, format: None })
    }

    /// Returns the number of ranks of a row by the rows of its left operand and of its output; `None` if they have no whole ratio.
    pub(crate) fn ranks_of_rows(self, input: u64, output: u64) -> Option<u64> {
        let (larger, smaller) = match self {
            Self::AllGatherMatmul => (output, input),
            Self::MatmulReduceScatter => (input, output),
        };
        (larger > 0 && smaller > 0 && larger.is_multiple_of(smaller)).then(|| larger / smaller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_follow_from_the_ranks() {
        let output = |product: FusedProduct, ranks: Option<u64>, right: [u64; 2]| {
            let tensor = |dims: [u64; 2]| QueryTensor { dims: dims.to_vec(), dtype: None, format: None };
            let inputs = vec![tensor([64, 512]), tensor(right)];
            let output = product.output_of_query(&OpQuery { inputs, ranks, ..OpQuery::default() });
            output.map(|tensor| tensor.dims)
        };
        let (gather, scatter) = (FusedProduct::AllGatherMatmul, FusedProduct::MatmulReduceScatter);
        assert_eq!(output(gather, Some(4), [512, 128]), Ok(vec![256, 128]));
        assert_eq!(output(scatter, Some(4), [128, 512]), Ok(vec![16, 128]));
        let undivided = MissReason::UndividedRows { rows: 64, ranks: 5 };
        assert_eq!(undivided.to_string(), "shape_mismatch: 5 ranks cannot share 64 rows");
        assert_eq!(output(scatter, Some(5), [128, 512]), Err(undivided));
        assert_eq!(output(scatter, None, [128, 512]), Err(MissReason::RanksNotGiven));
        assert_eq!(output(gather, Some(u64::MAX), [512, 128]), Err(MissReason::ShapeMismatch));
        assert_eq!(gather.ranks_of_rows(64, 256), Some(4));
        assert_eq!(scatter.ranks_of_rows(64, 16), Some(4));
        assert_eq!([scatter.ranks_of_rows(64, 48), gather.ranks_of_rows(64, 16)], [None, None]);
    }
}
