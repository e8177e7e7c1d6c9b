//! Numbers of a case that mutations change: dimensions of its form and, for attention, batch and lengths.

use crate::kernel::{
    AttentionCase, AttentionSlot, Case, SequenceLengths,
    catalogue::{CaseEditor, DimensionRole, FormDimension},
};

#[derive(Clone, Debug)]
pub(crate) struct MutationAxis {
    pub(crate) name: String,
    pub(crate) value: u64,
    pub(crate) role: Option<DimensionRole>,
    /// Bytes of an element if rows of a tensor extend along the axis.
    pub(crate) element: Option<u64>,
    kind: AxisKind,
}

#[derive(Clone, Debug)]
enum AxisKind {
    Dimension(FormDimension),
    Batch,
    Keys,
}

#[derive(Debug)]
pub(crate) struct CaseAxes<'a> {
    pub(crate) editor: CaseEditor<'a>,
    pub(crate) sequences: Option<SequenceLengths>,
}

impl<'a> CaseAxes<'a> {
    pub(crate) fn new(editor: CaseEditor<'a>) -> Self {
        let is_attention = editor.entry.kernel.as_str() == AttentionCase::KERNEL;
        let sequences = is_attention.then(|| AttentionCase::new(editor.case).sequences()).flatten();
        Self { editor, sequences }
    }

    pub(crate) fn all(&self) -> Vec<MutationAxis> {
        let dimensions = self.editor.dimensions().into_iter().filter_map(|dimension| {
            Some(MutationAxis {
                name: dimension.to_string(),
                value: self.editor.dimension_value(&dimension)?,
                role: self.editor.dimension_role(&dimension),
                element: self.editor.row_element_bytes(&dimension),
                kind: AxisKind::Dimension(dimension),
            })
        });
        let mut axes: Vec<MutationAxis> = dimensions.collect();
        if let Some(sequences) = &self.sequences {
            let batch = sequences.keys.len() as u64;
            let longest = sequences.keys.iter().copied().max().unwrap_or_default();
            let axis = |name: &str, value, role, kind| MutationAxis {
                name: name.to_owned(),
                value,
                role: Some(role),
                element: None,
                kind,
            };
            axes.push(axis("batch", batch, DimensionRole::Batch, AxisKind::Batch));
            axes.push(axis("longest sequence", longest, DimensionRole::Sequence, AxisKind::Keys));
        }
        axes
    }

    pub(crate) fn with(&self, axis: &MutationAxis, value: u64) -> Result<Case, String> {
        match (&axis.kind, &self.sequences) {
            (AxisKind::Dimension(dimension), _) => {
                self.editor.build_case(&[(dimension.clone(), value)], None)
            }
            (AxisKind::Batch, Some(sequences)) => {
                let batch = usize::try_from(value).ok().filter(|batch| *batch <= MAX_SEQUENCES);
                self.with_sequences(&sequences.of_batch(batch.ok_or("more than 65,536 sequences")?))
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

    /// Builds the case with other sequences; block pool and table are enlarged only if they do not suffice.
    pub(crate) fn with_sequences(&self, sequences: &SequenceLengths) -> Result<Case, String> {
        let at = |slot: AttentionSlot, place| self.editor.dimension_at(slot as usize, place);
        let mut changes: Vec<(FormDimension, u64)> = Vec::new();
        if let Some(batch) = at(AttentionSlot::QueryLengths, 0) {
            changes.push((batch, sequences.keys.len() as u64));
        }
        let case = self.editor.case;
        let query = AttentionCase::new(case).dims(AttentionSlot::Query);
        // If queries are not packed, every sequence has space for the queries of the longest.
        if query.is_some_and(|dims| dims.len() == 4)
            && let Some(space) = at(AttentionSlot::Query, 2)
        {
            changes.push((space, sequences.queries.iter().copied().max().unwrap_or(1)));
        }
        if sequences.block.is_some() {
            let (sum, most) = sequences.block_table_size();
            for (dimension, least) in
                [(at(AttentionSlot::Key, 0), sum), (at(AttentionSlot::BlockTable, 1), most)]
            {
                let Some(dimension) = dimension else { continue };
                let present = self.editor.dimension_value(&dimension).unwrap_or_default();
                changes.push((dimension, present.max(least)));
            }
        }
        self.editor.build_case(&changes, Some(&sequences.to_attributes(&case.attributes)))
    }

    /// Returns the present block size, and the case with blocks of another size for the same number of tokens.
    pub(crate) fn with_block_size(&self, size: u64) -> Option<(u64, Result<Case, String>)> {
        let dimensions = self.editor.dimensions();
        let of = |role: DimensionRole| {
            dimensions.iter().filter(move |one| self.editor.dimension_role(one) == Some(role))
        };
        let sizes: Vec<&FormDimension> = of(DimensionRole::BlockSize).collect();
        let [block] = sizes[..] else { return None };
        let before = self.editor.dimension_value(block)?;
        let mut changes = vec![(block.clone(), size)];
        for blocks in of(DimensionRole::Blocks) {
            let tokens = self.editor.dimension_value(blocks)?.checked_mul(before)?;
            changes.push((blocks.clone(), tokens.div_ceil(size)));
        }
        let attributes = &self.editor.case.attributes;
        let in_blocks = self.sequences.clone().map(|old| SequenceLengths { block: Some(size), ..old });
        let attributes = in_blocks.map(|sequences| sequences.to_attributes(attributes));
        Some((before, self.editor.build_case(&changes, attributes.as_ref())))
    }
}

const MAX_SEQUENCES: usize = 1 << 16;
