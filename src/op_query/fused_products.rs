//! Products that communicate in the same kernel: their outputs by the number of ranks.

use super::query::{OpQuery, QueryTensor};
use crate::domain::KernelName;

impl OpQuery {
    /// Returns the output of a product whose operand is gathered, or whose result is scattered, over the ranks of the query: rows of
    /// several numbers of ranks have the same inputs. `None` for other kernels, `Some(None)` if the ranks are unknown or do not
    /// divide the rows.
    pub(crate) fn fused_product_output(&self, kernel: &KernelName) -> Option<Option<QueryTensor>> {
        let rows_of = |rows: u64, ranks: u64| match kernel.as_str() {
            "AllGatherMatmul" => rows.checked_mul(ranks),
            _ => rows.is_multiple_of(ranks).then(|| rows / ranks),
        };
        if !matches!(kernel.as_str(), "AllGatherMatmul" | "MatmulReduceScatter") {
            return None;
        }
        let output = || {
            let [one, other] = self.inputs.get(..2)? else { return None };
            let (&[rows, inner], &[left, right]) = (one.dims.as_slice(), other.dims.as_slice()) else {
                return None;
            };
            let columns = if left == inner { right } else { left };
            let rows = rows_of(rows, self.ranks.filter(|ranks| *ranks > 0)?)?;
            Some(QueryTensor { dims: vec![rows, columns], dtype: None, format: None })
        };
        Some(output())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_follow_from_the_ranks() {
        let output = |kernel: &str, ranks: Option<u64>, right: [u64; 2]| {
            let tensor = |dims: [u64; 2]| QueryTensor { dims: dims.to_vec(), dtype: None, format: None };
            let inputs = vec![tensor([64, 512]), tensor(right)];
            let query = OpQuery { inputs, ranks, ..OpQuery::default() };
            let output = query.fused_product_output(&KernelName::new(kernel).expect("a name"));
            output.map(|output| output.map(|tensor| tensor.dims))
        };
        assert_eq!(output("AllGatherMatmul", Some(4), [512, 128]), Some(Some(vec![256, 128])));
        assert_eq!(output("MatmulReduceScatter", Some(4), [128, 512]), Some(Some(vec![16, 128])));
        assert_eq!(
            output("MatmulReduceScatter", Some(5), [128, 512]),
            Some(None),
            "64 rows are not shared by 5"
        );
        assert_eq!(output("MatmulReduceScatter", None, [128, 512]), Some(None));
        assert_eq!(output("MatMulV2", Some(4), [512, 128]), None);
    }
}
