//! Sequence lengths of a call of fused attention, which are changed together.

use crate::kernel::{AttentionCase, AttentionSlot, CaseAttributes, Dims, attention_attribute as name};

/// Lengths of the sequences of a batch, in queries and in keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SequenceLengths {
    pub(crate) queries: Vec<u64>,
    pub(crate) keys: Vec<u64>,
    /// Tokens in a block of the paged keys and values; `None` if they are not paged.
    pub(crate) block: Option<u64>,
    /// True if the layout packs the queries, so that their lengths are cumulative.
    pub(crate) packed: bool,
}

impl AttentionCase<'_> {
    /// Returns the sequence lengths; `None` if they are unknown or invalid.
    pub(crate) fn sequences(&self) -> Option<SequenceLengths> {
        let attributes = &self.case.attributes;
        let packed = attributes.get(name::LAYOUT)?.starts_with('T');
        let lengths = |column: &str, cumulative: bool| {
            let numbers = attributes.numbers(column).filter(|numbers| !numbers.is_empty())?;
            if cumulative { lengths_from_ends(&numbers) } else { Some(numbers) }
        };
        let queries = lengths(name::QUERY_LENGTHS, packed)?;
        let keys = lengths(name::KV_LENGTHS, packed && !self.is_paged())?;
        let block = match self.dims(AttentionSlot::Key) {
            _ if !self.is_paged() => None,
            Some(&[_, size, _] | &[_, _, size, _]) => Some(size),
            _ => return None,
        };
        (queries.len() == keys.len()).then_some(SequenceLengths { queries, keys, block, packed })
    }
}

impl SequenceLengths {
    /// Returns equal sequences with packed queries.
    pub(crate) fn equal(batch: u64, [queries, keys]: [u64; 2], block: Option<u64>) -> Self {
        let repeated = |length: u64| (0..batch).map(|_| length).collect();
        Self { queries: repeated(queries), keys: repeated(keys), block, packed: true }
    }

    pub(crate) fn of_batch(&self, batch: usize) -> Self {
        let repeated = |lengths: &[u64]| lengths.iter().copied().cycle().take(batch).collect();
        Self { queries: repeated(&self.queries), keys: repeated(&self.keys), ..self.clone() }
    }

    pub(crate) fn in_blocks(&self, size: u64) -> Self {
        Self { block: Some(size), ..self.clone() }
    }

    /// Returns sequences with other numbers of keys. A sequence with as many queries as keys keeps one query for each
    /// key; others keep their queries, at most as many as keys.
    pub(crate) fn with_keys(&self, length: impl Fn(u64) -> u64) -> Self {
        let mut changed = self.clone();
        for (query, key) in changed.queries.iter_mut().zip(&mut changed.keys) {
            let other = length(*key).max(1);
            *query = if query == key { other } else { (*query).min(other) };
            *key = other;
        }
        changed
    }

    pub(crate) fn block_counts(&self) -> Vec<u64> {
        let block = self.block.unwrap_or(1).max(1);
        self.keys.iter().map(|keys| keys.div_ceil(block)).collect()
    }

    pub(crate) fn block_table_size(&self) -> (u64, u64) {
        let blocks = self.block_counts();
        (saturating_sum(&blocks), blocks.into_iter().max().unwrap_or(1))
    }

    /// Returns attributes with these sequences; means and counts are updated if they were set.
    pub(crate) fn to_attributes(&self, attributes: &CaseAttributes) -> CaseAttributes {
        let mut updated = attributes.clone();
        let mut set = |name: &str, lengths: &[u64]| {
            updated.set(name, &Dims(lengths).to_string());
        };
        let as_written = |lengths: &[u64], cumulative: bool| {
            if cumulative { cumulative_ends(lengths) } else { lengths.to_vec() }
        };
        set(name::QUERY_LENGTHS, &as_written(&self.queries, self.packed));
        set(name::KV_LENGTHS, &as_written(&self.keys, self.packed && self.block.is_none()));
        if attributes.get(name::VALID_BLOCKS).is_some() {
            set(name::VALID_BLOCKS, &self.block_counts());
        }
        if attributes.get(name::AVG_SEQ_LEN).is_some() {
            #[expect(clippy::cast_precision_loss, reason = "lengths are far below 2^53")]
            let mean = saturating_sum(&self.keys) as f64 / self.keys.len().max(1) as f64;
            updated.set(name::AVG_SEQ_LEN, &format!("{mean:.6}"));
        }
        updated
    }
}

/// Returns the lengths of sequences from their ends; `None` for ends that decrease.
pub(crate) fn lengths_from_ends(ends: &[u64]) -> Option<Vec<u64>> {
    let starts = std::iter::once(&0).chain(ends);
    starts.zip(ends).map(|(start, end)| end.checked_sub(*start)).collect()
}

fn saturating_sum(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |total, number| total.saturating_add(*number))
}

fn cumulative_ends(lengths: &[u64]) -> Vec<u64> {
    let mut end = 0_u64;
    let ends = lengths.iter().map(|length| {
        end = end.saturating_add(*length);
        end
    });
    ends.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Case, KernelName, SignatureCells};

    fn case(key: &str, table: &str, updated: &[(&str, &str)]) -> Case {
        let mut shapes = vec![""; 31];
        (shapes[0], shapes[1], shapes[2], shapes[14]) = ("7,4,128", key, key, table);
        let dtypes = vec!["DT_BF16"; 31].join(";");
        let cells = SignatureCells { shapes: &shapes.join(";"), dtypes: &dtypes, formats: "" };
        let mut attributes = CaseAttributes::default();
        updated.iter().for_each(|(column, cell)| attributes.set(column, cell));
        Case {
            kernel: KernelName::new(AttentionCase::KERNEL).expect("a name"),
            inputs: cells.parse().expect("cells"),
            outputs: Vec::new(),
            attributes,
        }
    }

    #[test]
    fn packed_lengths_are_cumulative_and_paged_keys_are_not() {
        let updated = [
            (name::LAYOUT, "TND"),
            (name::QUERY_LENGTHS, "2,7"),
            (name::KV_LENGTHS, "2,300"),
            (name::AVG_SEQ_LEN, "151"),
            (name::VALID_BLOCKS, "1,3"),
        ];
        let paged = case("9,128,128", "2,3", &updated);
        let sequences = AttentionCase::new(&paged).sequences().expect("lengths");
        assert_eq!((&sequences.queries[..], &sequences.keys[..]), (&[2, 5][..], &[2, 300][..]));
        assert_eq!(sequences.to_attributes(&paged.attributes), paged.attributes);
        let longer = sequences.with_keys(|keys| keys * 2).of_batch(3);
        assert_eq!((&longer.queries[..], &longer.keys[..]), (&[4, 5, 4][..], &[4, 600, 4][..]));
        let updated = longer.to_attributes(&paged.attributes);
        assert_eq!(updated.get(name::QUERY_LENGTHS), Some("4,9,13"));
        assert_eq!(updated.get(name::KV_LENGTHS), Some("4,600,4"));
        assert_eq!(updated.get(name::VALID_BLOCKS), Some("1,5,1"));
        assert_eq!(updated.get(name::AVG_SEQ_LEN), Some("202.666667"));
        let whole = case(
            "302,4,128",
            "",
            &[(name::LAYOUT, "TND"), (name::QUERY_LENGTHS, "2,7"), (name::KV_LENGTHS, "2,302")],
        );
        let sequences = AttentionCase::new(&whole).sequences().expect("lengths");
        assert_eq!((&sequences.keys[..], sequences.block), (&[2, 300][..], None));
        assert_eq!(sequences.to_attributes(&whole.attributes).get(name::KV_LENGTHS), Some("2,302"));
    }

    #[test]
    fn invalid_sequence_lengths_are_none() {
        let sequences = |queries: &str, keys: &str| {
            let updated = [(name::LAYOUT, "TND"), (name::QUERY_LENGTHS, queries), (name::KV_LENGTHS, keys)];
            AttentionCase::new(&case("9,128,128", "2,3", &updated)).sequences()
        };
        assert_eq!(sequences("7,2", "1,1"), None, "they go down");
        assert_eq!(sequences("2,7", "1"), None, "of another number");
        assert_eq!(sequences("", "1"), None);
    }
}
