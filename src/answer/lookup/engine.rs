//! A database with a mapping, ready for lookups: the order in which an operator is looked up, the rows nearest to a query that
//! has no answer, and rows that do not exist yet: the forms in which a kernel may record a query, and the check that a row answers it.

use std::{
    collections::BTreeMap,
    fmt,
    path::Path,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use super::{
    AnswerSource, AttentionFamily, AttentionParameters, AttentionTable, AttentionWork, CollectiveMessage,
    CollectiveTable, InputSlot, KernelIndex, KernelRows, KernelTraits, KernelsQuery, KeyOrder, LatencyColumn,
    Listed, LookupAnswer, Micros, MissReason, MissingTable, NearestRow, OpQuery, QueryTensor, RuleKind,
    SlotDims, UsedRow, VariantsOfKernels, input_slots, input_variants, ordered_kernels, parameters_of_case,
    prepared_slots, recorded_slots,
};
use crate::{
    answer::op_mapping::{MappedKernel, OpMapping, OperatorRoute},
    base::command_error::CommandError,
    database::{Database, DatabaseError, KernelCsv, TableCases, columns, row_cases::signature_cells},
    kernel::{AttentionCase, Case, EP_SIZE, KernelName, Nanos, Slot, WORLD_SIZE},
};

#[derive(Debug)]
pub struct LookupEngine {
    pub(in crate::answer) mapping: Arc<OpMapping>,
    pub(in crate::answer) index: DatabaseIndex,
    pub(super) rules: Arc<dyn LookupRules>,
}

impl LookupEngine {
    /// Creates an engine. Tables are read when a lookup first needs them.
    pub fn new(database: Database, mapping: Option<OpMapping>) -> Result<Self, DatabaseError> {
        Self::with_rules(database, mapping, Arc::new(UsualRules))
    }

    pub(crate) fn with_rules(
        database: Database,
        mapping: Option<OpMapping>,
        rules: Arc<dyn LookupRules>,
    ) -> Result<Self, DatabaseError> {
        let index = DatabaseIndex::new(database, !rules.is_superseded())?;
        Ok(Self { mapping: Arc::new(mapping.unwrap_or_default()), index, rules })
    }

    /// Reads all tables; returns the number of rows.
    pub fn load_all(&self) -> Result<usize, CommandError> {
        let mut rows = 0;
        for kernel in self.index.kernels() {
            rows += self.index.kernel(kernel, &self.mapping)?.map_or(0, |index| index.rows.rows.len());
        }
        Ok(rows)
    }

    /// Returns true if the mapping has the operator, or the database a table of the name.
    pub fn knows(&self, op: &str) -> bool {
        self.mapping.operator(op).is_some() || self.index.kernels().any(|kernel| kernel.as_str() == op)
    }

    pub fn query_of_case(case: &Case) -> OpQuery {
        let tensors = |slots: &[Slot]| slots.iter().flatten().map(QueryTensor::from_tensor).collect();
        let inputs = match case.kernel.as_str() {
            // Block tables, lengths and rotary parts are known by their slots.
            AttentionCase::KERNEL => {
                let count = case.inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
                let slots = case.inputs.iter().take(count);
                slots
                    .map(|slot| slot.as_ref().map_or_else(QueryTensor::default, QueryTensor::from_tensor))
                    .collect()
            }
            _ => tensors(&case.inputs),
        };
        OpQuery {
            op: case.kernel.as_str().to_owned(),
            inputs,
            outputs: tensors(&case.outputs),
            ep_size: case.attributes.get(EP_SIZE).and_then(|text| text.parse().ok()),
            ranks: case.attributes.get(WORLD_SIZE).and_then(|text| text.parse().ok()),
            is_hf32: case.attributes.allows_hf32(),
            attention: parameters_of_case(case),
            ..OpQuery::default()
        }
    }

    pub fn known_names(&self) -> impl Iterator<Item = &str> {
        self.mapping.names().chain(self.index.kernels().map(KernelName::as_str))
    }

    pub(super) fn candidates(&self, kernels: &[MappedKernel]) -> Result<CandidateKernels<'_>, CommandError> {
        let mut found = CandidateKernels { indices: Vec::new(), missing: Vec::new() };
        for kernel in kernels {
            match self.index.kernel(&kernel.name, &self.mapping)? {
                Some(index) => found.indices.push(index),
                None => found.missing.push(self.missing_table(kernel)),
            }
        }
        Ok(found)
    }

    pub(super) fn missing_table(&self, kernel: &MappedKernel) -> MissingTable {
        let place = format!("{}:{}", self.mapping.file.display(), kernel.line);
        MissingTable { kernel: kernel.name.to_string(), place: (kernel.line > 0).then_some(place) }
    }

    pub fn lookup(&self, query: &OpQuery) -> LookupResult {
        let answer = self.find_answer(query)?;
        match answer.latency {
            Some(Micros(latency)) if !(0.0..=Nanos::MAX_KERNEL.micros()).contains(&latency) => {
                Ok(LookupAnswer::missed(MissReason::LatencyOutOfRange))
            }
            _ => Ok(answer),
        }
    }

    fn find_answer(&self, query: &OpQuery) -> LookupResult {
        let Some(operator) = self.mapping.operator(&query.op) else {
            return match KernelName::new(&query.op) {
                Ok(kernel) if AttentionFamily::of_kernel(&kernel).is_some() => {
                    self.lookup_attention(&[MappedKernel::unmapped(kernel)], query, KeyOrder::Recorded)
                }
                Ok(kernel) if kernel.is_collective() => {
                    self.lookup_collective(&[MappedKernel::unmapped(kernel)], query, false)
                }
                Ok(kernel) => self.lookup_kernel(&kernel, query),
                Err(_) => Ok(LookupAnswer::missed(MissReason::Unmapped)),
            };
        };
        match &operator.route {
            OperatorRoute::ZeroCost => Ok(LookupAnswer::zero(RuleKind::ZeroCost)),
            OperatorRoute::AcceptedMiss => Ok(LookupAnswer::zero(RuleKind::AcceptedMiss)),
            OperatorRoute::Compute => self.lookup_compute(operator, query),
            OperatorRoute::Elementwise => self.lookup_elementwise(operator, query),
            OperatorRoute::MtpProjection => self.lookup_mtp_projection(operator, query),
            OperatorRoute::Attention | OperatorRoute::KeyScores => {
                self.lookup_attention(&operator.kernels, query, KeyOrder::Framework)
            }
            OperatorRoute::CacheUpdate => self.lookup_cache_update(&operator.kernels, query),
            OperatorRoute::Decomposed(expansion) => self.lookup_decomposed(operator, *expansion, query),
            OperatorRoute::MoeFused => self.lookup_moe(operator, query),
            OperatorRoute::Communication => self.lookup_collective(&operator.kernels, query, true),
            OperatorRoute::StaticComposite(_) => self.lookup_composite(operator, query),
        }
    }

    /// Looks an operator up as if these rows were not measured, which shows how well the others answer for them.
    pub fn lookup_without_rows(&mut self, query: &OpQuery, rows: &[UsedRow]) -> LookupResult {
        self.index.set_hidden(rows, true);
        let answer = self.lookup(query);
        self.index.set_hidden(rows, false);
        answer
    }

    /// Returns the rows that are nearest to a query, for a miss.
    pub fn nearest_rows(&self, query: &OpQuery, limit: usize) -> Result<Vec<NearestRow>, CommandError> {
        let (kernels, is_operator) = match self.mapping.operator(&query.op) {
            Some(operator) => (ordered_kernels(operator, &query.inputs), true),
            None => (KernelName::new(&query.op).into_iter().map(MappedKernel::unmapped).collect(), false),
        };
        let mut rows = Vec::new();
        for index in self.candidates(&kernels)?.indices {
            let slots = recorded_slots(index.traits, input_slots(&query.inputs), is_operator);
            rows.extend(nearest_rows(index, &slots, limit));
        }
        rows.sort_by(|one, other| one.distance.total_cmp(&other.distance));
        rows.truncate(limit);
        Ok(rows)
    }

    /// Returns the kernels of an operator in the order of preference for these inputs, else the kernel of this name.
    pub(crate) fn kernels_of(&self, op: &str, inputs: &[QueryTensor]) -> Vec<KernelName> {
        match self.mapping.operator(op) {
            Some(operator) => {
                ordered_kernels(operator, inputs).into_iter().map(|kernel| kernel.name).collect()
            }
            // Operators of a framework have a dot in their names, kernels have none.
            None if op.contains('.') => Vec::new(),
            None => KernelName::new(op).into_iter().collect(),
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
        slots = recorded_slots(traits, slots, operator.is_some());
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

    /// Returns the reason why a measured row of a case would not answer a query by an exact rule, of a composite its
    /// first kernel; `None` if it would.
    pub(crate) fn unanswered_reason(&self, query: &OpQuery, case: &Case) -> Option<String> {
        let index = probe_table(case)
            .and_then(|table| self.index.with_table(&case.kernel, &table, &self.mapping).ok());
        let Some(index) = index else { return Some("the row cannot be read".to_owned()) };
        let engine = Self { mapping: Arc::clone(&self.mapping), index, rules: Arc::clone(&self.rules) };
        let answer = match self.mapping.operator(&query.op) {
            Some(operator) if !operator.parts().is_empty() => {
                engine.lookup_kernels(operator, &[MappedKernel::unmapped(case.kernel.clone())], query, true)
            }
            _ => engine.lookup(query),
        };
        match answer {
            Ok(answer) if answer.source == AnswerSource::Measured && !answer.rows.is_empty() => None,
            Ok(answer) => {
                Some(answer.miss.map_or_else(|| answer.source.to_string(), |miss| miss.to_string()))
            }
            Err(error) => Some(error.message),
        }
    }
}

pub type LookupResult = Result<LookupAnswer, CommandError>;

/// Returns the best of several answers, the first one of equal ones; of misses the first.
pub(super) fn best_of(
    answers: impl Iterator<Item = LookupResult>,
    rules: &dyn LookupRules,
) -> Result<Option<LookupAnswer>, CommandError> {
    let mut best: Option<LookupAnswer> = None;
    for answer in answers {
        let answer = answer?;
        let is_final = rules.is_final(&answer);
        if best.as_ref().is_none_or(|best| answer.source < best.source) {
            best = Some(answer);
        }
        if is_final {
            break;
        }
    }
    Ok(best)
}

/// Decisions of lookups that another engine over the same tables may take in another way.
pub(crate) trait LookupRules: fmt::Debug + Send + Sync {
    /// Returns true for the tool that npubench supersedes: it takes refuted replays and durations of collectives in a model for
    /// latencies, does not compare outputs, and does not interpolate composites.
    fn is_superseded(&self) -> bool {
        false
    }

    fn is_final(&self, answer: &LookupAnswer) -> bool {
        answer.source == AnswerSource::Measured || self.is_superseded() && answer.source != AnswerSource::Miss
    }

    /// Returns true if a kernel of a composite is an alternative to other kernels of the same kind in the composite.
    fn is_alternative(&self, kernel: &KernelName) -> bool {
        self.is_superseded() || KernelTraits::of_kernel(kernel).is_product
    }

    fn match_kernels(
        &self,
        engine: &LookupEngine,
        kernels: &VariantsOfKernels<'_>,
        query: &KernelsQuery<'_>,
    ) -> LookupAnswer {
        engine.find_kernels(kernels, query)
    }

    fn lookup_elementwise(
        &self,
        engine: &LookupEngine,
        kernels: &CandidateKernels<'_>,
        query: &OpQuery,
    ) -> LookupAnswer {
        engine.find_elementwise(kernels, query)
    }

    fn find_work(&self, table: &AttentionTable, rows: &KernelRows, work: &AttentionWork) -> LookupAnswer {
        table.lookup(rows, work)
    }

    fn find_message(&self, table: &CollectiveTable, message: &CollectiveMessage) -> LookupAnswer {
        table.lookup(message)
    }

    /// Returns the lengths of the queries of a batch with these tokens; none if they are unknown.
    fn query_lengths(&self, attention: &AttentionParameters, _tokens: u64) -> Vec<u64> {
        attention.query_lengths.clone()
    }

    /// Returns the tokens of a call of latent attention in decode; `None` if they are unknown. The shapes of a call with several
    /// queries of a sequence are not known.
    fn latent_tokens(&self, tokens: u64, batch: Option<u64>) -> Option<u64> {
        batch.is_none_or(|batch| batch == tokens).then_some(tokens)
    }
}

#[derive(Debug)]
pub(crate) struct UsualRules;

impl LookupRules for UsualRules {}

pub(crate) struct CandidateKernels<'e> {
    pub(crate) indices: Vec<&'e KernelIndex>,
    missing: Vec<MissingTable>,
}

impl CandidateKernels<'_> {
    pub(super) fn missed(&self) -> LookupAnswer {
        LookupAnswer::missed(MissReason::CsvNotFound(Listed(self.missing.clone())))
    }
}

/// Distance of another element type, as much as a factor of about 20 of one dimension.
const DTYPE_DISTANCE: f64 = 3.0;
const RANK_DISTANCE: f64 = 20.0;

/// Returns the nearest rows of a kernel, by the logarithms of the ratios of dimensions.
pub(crate) fn nearest_rows(index: &KernelIndex, slots: &[InputSlot<'_>], limit: usize) -> Vec<NearestRow> {
    let rows = &index.rows;
    let mut found: Vec<(f64, usize)> = rows
        .rows
        .iter()
        .enumerate()
        .map(|(number, row)| {
            let form = rows.form(row);
            let missing = slots.len().saturating_sub(form.inputs.len());
            let mut distance = missing as f64 * RANK_DISTANCE;
            for (input, (slot, tensor)) in slots.iter().zip(&form.inputs).enumerate() {
                let recorded = rows.logical_input(row, input);
                distance += dims_distance(index, input, &slot.dims, &recorded);
                if slot.dtype.is_some_and(|dtype| !index.traits.match_dtype(dtype, &tensor.dtype).0) {
                    distance += DTYPE_DISTANCE;
                }
            }
            (distance, number)
        })
        .collect();
    found.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    found.truncate(limit);
    let row = |(distance, number): (f64, usize)| {
        let row = &rows.rows[number];
        NearestRow {
            kernel: rows.kernel.clone(),
            line: row.line,
            inputs: rows.input_tensors(row),
            latency: row.latency().map(|(_, latency)| Micros(latency)),
            distance,
        }
    };
    found.into_iter().map(row).collect()
}

fn dims_distance(index: &KernelIndex, input: usize, query: &SlotDims, row: &SlotDims) -> f64 {
    let [query, row] = [query, row].map(|dims| index.traits.canonical_slot(input, dims));
    if query.as_slice().len() != row.as_slice().len() {
        return RANK_DISTANCE;
    }
    let pairs = query.as_slice().iter().zip(row.as_slice());
    pairs.map(|(one, other)| (((*one).max(1) as f64) / ((*other).max(1) as f64)).ln().abs()).sum()
}

/// Latency of the row by which [`LookupEngine::unanswered_reason`] looks a query up.
const PROBE_LATENCY: &str = "1";

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

/// Tables by kernel, each of which is read when it is first needed.
type LoadedTables<T> = RwLock<BTreeMap<KernelName, Result<T, CommandError>>>;

fn get_or_load<T: Clone>(
    tables: &LoadedTables<T>,
    kernel: &KernelName,
    load: impl FnOnce() -> Result<T, DatabaseError>,
) -> Result<T, CommandError> {
    if let Some(loaded) = tables.read().unwrap_or_else(PoisonError::into_inner).get(kernel) {
        return loaded.clone();
    }
    let loaded = load().map_err(CommandError::from);
    tables.write().unwrap_or_else(PoisonError::into_inner).insert(kernel.clone(), loaded.clone());
    loaded
}

#[derive(Debug)]
pub(crate) struct DatabaseIndex {
    pub(super) database: Database,
    reads_verdicts: bool,
    kernels: BTreeMap<KernelName, OnceLock<Result<KernelIndex, CommandError>>>,
    collectives: LoadedTables<Option<Arc<CollectiveTable>>>,
    cases: LoadedTables<Arc<TableCases>>,
}

impl DatabaseIndex {
    pub(crate) fn new(database: Database, reads_verdicts: bool) -> Result<Self, DatabaseError> {
        let kernels = database.kernels()?.into_iter().map(|kernel| (kernel, OnceLock::new())).collect();
        Ok(Self::with_kernels(database, reads_verdicts, kernels))
    }

    fn with_kernels(
        database: Database,
        reads_verdicts: bool,
        kernels: BTreeMap<KernelName, OnceLock<Result<KernelIndex, CommandError>>>,
    ) -> Self {
        let (collectives, cases) = Default::default();
        Self { database, reads_verdicts, kernels, collectives, cases }
    }

    /// Returns an index of the same database that has one table only.
    pub(crate) fn with_table(
        &self,
        kernel: &KernelName,
        table: &KernelCsv,
        mapping: &OpMapping,
    ) -> Result<Self, DatabaseError> {
        let rows = KernelRows::load(kernel, table, mapping.policy(kernel.as_str()), self.reads_verdicts)?;
        let index = KernelIndex::new(rows);
        if let Some(family) = AttentionFamily::of_kernel(kernel) {
            let loaded = AttentionTable::load(family, &index.rows, table)?;
            index.attention.get_or_init(|| Ok(loaded));
        }
        let kernels = BTreeMap::from([(kernel.clone(), OnceLock::from(Ok(index)))]);
        Ok(Self::with_kernels(self.database.clone(), self.reads_verdicts, kernels))
    }

    pub(crate) fn table_cases(&self, kernel: &KernelName) -> Result<Arc<TableCases>, CommandError> {
        let load = || Ok(Arc::new(TableCases::read(kernel, &self.database.kernel_csv(kernel)?)?));
        get_or_load(&self.cases, kernel, load)
    }

    pub(crate) fn kernels(&self) -> impl Iterator<Item = &KernelName> {
        self.kernels.keys()
    }

    /// Returns the rows of a kernel; `None` without a table.
    pub(crate) fn kernel(
        &self,
        kernel: &KernelName,
        mapping: &OpMapping,
    ) -> Result<Option<&KernelIndex>, CommandError> {
        let Some((kernel, loaded)) = self.kernels.get_key_value(kernel) else { return Ok(None) };
        let loaded = loaded.get_or_init(|| {
            let policy = mapping.policy(kernel.as_str());
            let rows = self
                .database
                .kernel_csv(kernel)
                .and_then(|table| KernelRows::load(kernel, &table, policy, self.reads_verdicts));
            rows.map(KernelIndex::new).map_err(CommandError::from)
        });
        loaded.as_ref().map(Some).map_err(Clone::clone)
    }

    pub(crate) fn set_hidden(&mut self, rows: &[UsedRow], is_hidden: bool) {
        for row in rows {
            let loaded = self.kernels.get_mut(&row.kernel).and_then(OnceLock::get_mut);
            if let Some(Ok(index)) = loaded {
                index.rows.set_hidden(row.line, is_hidden);
            }
        }
    }

    pub(crate) fn attention<'i>(&self, index: &'i KernelIndex) -> Result<&'i AttentionTable, CommandError> {
        let kernel = &index.rows.kernel;
        // A mapping may name another kernel for the selection of keys.
        let family = AttentionFamily::of_kernel(kernel).unwrap_or(AttentionFamily::Indexer);
        let load = || AttentionTable::load(family, &index.rows, &self.database.kernel_csv(kernel)?);
        let loaded = index.attention.get_or_init(|| load().map_err(CommandError::from));
        loaded.as_ref().map_err(Clone::clone)
    }

    /// Returns the table of a collective: from the folder that the mapping names, else from the database; `None`
    /// without one.
    pub(crate) fn collective(
        &self,
        kernel: &KernelName,
        mapping: &OpMapping,
    ) -> Result<Option<Arc<CollectiveTable>>, CommandError> {
        get_or_load(&self.collectives, kernel, || {
            let own = self.database.folder().to_owned();
            for folder in mapping.communication_folder().into_iter().chain([own]) {
                if let Some(table) = CollectiveTable::load(kernel, &folder, self.reads_verdicts)? {
                    return Ok(Some(Arc::new(table)));
                }
            }
            Ok(None)
        })
    }
}
