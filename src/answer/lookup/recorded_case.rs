//! Rows that do not exist yet: the forms in which a kernel may record a query, and the check that a row answers it.

use std::{path::Path, sync::Arc};

use super::{
    answer::{AnswerSource, LatencyColumn, MissReason},
    compute::{ordered_kernels, prepared_slots},
    engine::LookupEngine,
    index::LookupError,
    query::{InputSlot, OpQuery, QueryTensor, input_variants, recorded_inputs},
    rules::KernelTraits,
};
use crate::{
    database::{KernelCsv, TableCases, columns, row_cases::signature_cells},
    kernel::{Case, KernelName},
};

/// Latency of the row by which [`LookupEngine::unanswered_reason`] looks a query up.
const PROBE_LATENCY: &str = "1";

impl LookupEngine {
    /// Returns the kernels of a query, in the order of preference for its inputs.
    pub(crate) fn kernels_of_query(&self, query: &OpQuery) -> Vec<KernelName> {
        match self.mapping.operator(&query.op) {
            Some(operator) => {
                ordered_kernels(operator, &query.inputs).into_iter().map(|kernel| kernel.name).collect()
            }
            // Operators of a framework have a dot in their names, kernels have none.
            None if query.op.contains('.') => Vec::new(),
            None => KernelName::new(&query.op).into_iter().collect(),
        }
    }

    /// Returns the inputs of a query in the forms in which a kernel may record them, the nearest one first; the error
    /// is the reason why the operator's inputs are not those of a kernel.
    pub(crate) fn recorded_forms(
        &self,
        query: &OpQuery,
        kernel: &KernelName,
    ) -> Result<Vec<Vec<QueryTensor>>, MissReason> {
        let operator = self.mapping.operator(&query.op);
        let mut slots = prepared_slots(operator, query)?;
        let traits = KernelTraits::of_kernel(kernel);
        if operator.is_some()
            && let Some(recorded) = recorded_inputs(traits, &slots)
        {
            slots = recorded;
        }
        let mut stripped = slots.clone();
        for slot in &mut stripped {
            let rank = slot.dims.as_slice().len();
            slot.dims = slot.dims.without_leading_ones(rank.saturating_sub(1).max(1));
        }
        let variants = input_variants(traits, slots);
        let forms = variants.into_iter().map(|variant| variant.slots).chain([stripped]);
        let mut found: Vec<Vec<QueryTensor>> = Vec::new();
        for form in forms {
            let tensors: Vec<QueryTensor> = form.iter().map(InputSlot::to_tensor).collect();
            if !found.contains(&tensors) {
                found.push(tensors);
            }
        }
        Ok(found)
    }

    pub(crate) fn knows_table(&self, kernel: &KernelName) -> bool {
        self.index.kernels().any(|known| known == kernel)
    }

    pub(crate) fn table_cases(&self, kernel: &KernelName) -> Result<Arc<TableCases>, LookupError> {
        self.index.table_cases(kernel)
    }

    /// Returns the reason why a measured row of a case would not answer a query by an exact rule, of a composite its
    /// first kernel; `None` if it would.
    pub(crate) fn unanswered_reason(&self, query: &OpQuery, case: &Case) -> Option<String> {
        let index = probe_table(case)
            .and_then(|table| self.index.with_table(&case.kernel, &table, &self.mapping).ok());
        let Some(index) = index else { return Some("the row cannot be read".to_owned()) };
        let engine = Self { mapping: self.mapping.clone(), index, rules: Arc::clone(&self.rules) };
        let answer = match self.mapping.operator(&query.op) {
            Some(operator) if !operator.parts().is_empty() => {
                engine.lookup_first_kernel(operator, &case.kernel, query)
            }
            _ => engine.lookup(query),
        };
        match answer {
            Ok(answer) if answer.source == AnswerSource::Measured && !answer.rows.is_empty() => None,
            Ok(answer) => {
                Some(answer.miss.map_or_else(|| answer.source.to_string(), |miss| miss.to_string()))
            }
            Err(error) => Some(error.to_string()),
        }
    }
}

fn probe_table(case: &Case) -> Option<KernelCsv> {
    let cells = columns::SIGNATURE.into_iter().zip(signature_cells(case, 0));
    let attributes = case.attributes.iter().map(|(column, cell)| (column, cell.to_owned()));
    let latency = [(LatencyColumn::Replay.names()[0], PROBE_LATENCY.to_owned())];
    let (header, row): (Vec<&str>, Vec<String>) = cells.chain(attributes).chain(latency).unzip();
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&header).ok()?;
    writer.write_record(&row).ok()?;
    KernelCsv::from_bytes(Path::new("probe.csv"), writer.into_inner().ok()?).ok()
}
