//! What of a case can be changed by a number: dimensions of its form, and of attention the batch and the lengths,
//! which are values of inputs that several shapes follow from.

use crate::{
    catalogue::{CaseEditor, DimensionRole, FormDimension},
    domain::{AttentionCase, AttentionSlot, Case, SequenceLengths},
};

/// Something with a number.
#[derive(Clone, Debug)]
pub(crate) struct MutationAxis {
    pub(crate) name: String,
    pub(crate) value: u64,
    pub(crate) role: Option<DimensionRole>,
    /// Bytes of an element, where rows are along it.
    pub(crate) element: Option<u64>,
    kind: AxisKind,
}

#[derive(Clone, Debug)]
enum AxisKind {
    Dimension(FormDimension),
    /// Sequences of a call of attention.
    Batch,
    /// Keys of the longest of them.
    Keys,
}

/// A case with its axes.
#[derive(Debug)]
pub(crate) struct CaseAxes<'a> {
    pub(crate) anatomy: CaseEditor<'a>,
    pub(crate) sequences: Option<SequenceLengths>,
}

impl<'a> CaseAxes<'a> {
    pub(crate) fn new(anatomy: CaseEditor<'a>) -> Self {
        let is_attention = anatomy.entry().kernel.as_str() == AttentionCase::KERNEL;
        let sequences = is_attention.then(|| AttentionCase::new(anatomy.case()).sequences()).flatten();
        Self { anatomy, sequences }
    }

    pub(crate) fn all(&self) -> Vec<MutationAxis> {
        let dimensions = self.anatomy.dimensions().into_iter().filter_map(|dimension| {
            Some(MutationAxis {
                name: dimension.to_string(),
                value: self.anatomy.dimension_value(&dimension)?,
                role: self.anatomy.dimension_role(&dimension),
                element: self.anatomy.row_element_bytes(&dimension),
                kind: AxisKind::Dimension(dimension),
            })
        });
        let mut axes: Vec<MutationAxis> = dimensions.collect();
        if let Some(sequences) = &self.sequences {
            let batch = sequences.keys.len() as u64;
            for (name, value, role, kind) in [
                ("batch", batch, DimensionRole::Batch, AxisKind::Batch),
                ("longest sequence", sequences.longest_keys(), DimensionRole::Sequence, AxisKind::Keys),
            ] {
                axes.push(MutationAxis {
                    name: name.to_owned(),
                    value,
                    role: Some(role),
                    element: None,
                    kind,
                });
            }
        }
        axes
    }

    /// The case with another number on an axis.
    pub(crate) fn with(&self, axis: &MutationAxis, value: u64) -> Result<Case, String> {
        match (&axis.kind, &self.sequences) {
            (AxisKind::Dimension(dimension), _) => {
                self.anatomy.build_case(&[(dimension.clone(), value)], None)
            }
            (AxisKind::Batch, Some(sequences)) => {
                let batch = usize::try_from(value).ok().filter(|batch| *batch <= MOST_SEQUENCES);
                self.with_sequences(&sequences.of_batch(batch.ok_or("more sequences than any batch has")?))
            }
            (AxisKind::Keys, Some(sequences)) => {
                let longest = u128::from(axis.value.max(1));
                let scaled = |keys: u64| {
                    let product = u128::from(keys) * u128::from(value);
                    u64::try_from(product.div_ceil(longest)).unwrap_or(u64::MAX)
                };
                self.with_sequences(&sequences.with_keys(scaled))
            }
            (_, None) => Err("no sequences".to_owned()),
        }
    }

    /// The case with other sequences. Pool and block table stay as they are where they hold them, as those of a
    /// server do, and grow where they do not.
    pub(crate) fn with_sequences(&self, sequences: &SequenceLengths) -> Result<Case, String> {
        let at = |slot: AttentionSlot, place| self.anatomy.dimension_at(slot as usize, place);
        let mut changes: Vec<(FormDimension, u64)> = Vec::new();
        if let Some(batch) = at(AttentionSlot::QueryLengths, 0) {
            changes.push((batch, sequences.keys.len() as u64));
        }
        let case = self.anatomy.case();
        let query = AttentionCase::new(case).dims(AttentionSlot::Query);
        // Where queries are not packed, every sequence has room for those of the longest.
        if query.is_some_and(|dims| dims.len() == 4)
            && let Some(room) = at(AttentionSlot::Query, 2)
        {
            changes.push((room, sequences.queries.iter().copied().max().unwrap_or(1)));
        }
        if sequences.block.is_some() {
            let (sum, most) = sequences.block_table_size();
            for (dimension, least) in
                [(at(AttentionSlot::Key, 0), sum), (at(AttentionSlot::BlockTable, 1), most)]
            {
                let Some(dimension) = dimension else { continue };
                let there = self.anatomy.dimension_value(&dimension).unwrap_or_default();
                changes.push((dimension, there.max(least)));
            }
        }
        self.anatomy.build_case(&changes, Some(&sequences.to_attributes(&case.attributes)))
    }

    /// The case with a cache in blocks of another size, of which there are as many as the same room needs.
    pub(crate) fn with_block_size(&self, size: u64) -> Option<(u64, Result<Case, String>)> {
        let dimensions = self.anatomy.dimensions();
        let of = |role: DimensionRole| {
            dimensions.iter().filter(move |one| self.anatomy.dimension_role(one) == Some(role))
        };
        let sizes: Vec<&FormDimension> = of(DimensionRole::BlockSize).collect();
        let [block] = sizes[..] else { return None };
        let before = self.anatomy.dimension_value(block)?;
        let mut changes = vec![(block.clone(), size)];
        for blocks in of(DimensionRole::Blocks) {
            let room = self.anatomy.dimension_value(blocks)?.checked_mul(before)?;
            changes.push((blocks.clone(), room.div_ceil(size)));
        }
        let attributes = &self.anatomy.case().attributes;
        let said =
            self.sequences.as_ref().map(|sequences| sequences.in_blocks(size).to_attributes(attributes));
        Some((before, self.anatomy.build_case(&changes, said.as_ref())))
    }
}

/// More than any batch has.
const MOST_SEQUENCES: usize = 1 << 16;
