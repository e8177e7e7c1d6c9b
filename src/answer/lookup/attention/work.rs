//! The work of a call of attention, as rows and queries have it.

use crate::{
    answer::lookup::{
        AttentionDifference, AttentionParameters, BatchLengths, BatchPhase, CallShapes, KeyOrder, MissReason,
        OpQuery, OrderProblem, QueryOrder, QuerySizes, QueryTensor,
    },
    kernel::{
        AttentionCase, AttentionSlot, Case, CaseAttributes, Dtype, KernelName, Slot,
        attention_attribute as name, lengths_from_ends,
    },
};

/// Use of the mask in serving: causal from the lower right.
const CAUSAL: &str = "3";
/// Attributes of sparse attention in addition to [`AttentionRegime`], with their usual values.
const USUAL_VALUES: [(&str, &str); 3] = [
    ("Runtime sparse_block_size", "1"),
    ("Runtime sparse_indices_pattern", "uniform"),
    ("Runtime cache_layout", "PA_BSND"),
];
const TOPK: &str = "Runtime topk";
const SELECTED_KEYS: &str = "Runtime sparse_indices_valid_count";
const BATCH: &str = "Runtime batch_size";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttentionFamily {
    Fused,
    Sparse,
    Indexer,
}

impl AttentionFamily {
    pub(crate) fn of_kernel(kernel: &KernelName) -> Option<Self> {
        match kernel.as_str() {
            AttentionCase::KERNEL => Some(Self::Fused),
            "SparseFlashAttention" => Some(Self::Sparse),
            "LightningIndexer" | "LightningIndexerVllm" => Some(Self::Indexer),
            _ => None,
        }
    }
}

/// Returns the number of heads of keys that a framework passes, or that are recorded. A recorded cache in blocks may have
/// the view of the framework; a query has no fewer heads than its keys.
fn key_heads(key: &[u64], order: KeyOrder, [_, heads, head_dim]: [u64; 3]) -> Option<u64> {
    let of_framework = key.iter().rev().nth(1).copied();
    let is_possible = |key_heads: &u64| *key_heads > 0 && heads.is_multiple_of(*key_heads);
    let recorded = match (order, key) {
        (KeyOrder::Framework, _) => return of_framework,
        (KeyOrder::Recorded, &[_, heads, _, _]) => [Some(heads), of_framework],
        (KeyOrder::Recorded, &[_, heads, _]) => [Some(heads), heads_in_rows(key, head_dim)],
        (KeyOrder::Recorded, _) => [of_framework, None],
    };
    recorded.into_iter().flatten().find(is_possible).or(recorded[0])
}

/// Returns the number of heads of this dimension in keys beside rows of all heads: in rows of their own, or in front of the tokens of
/// a block.
fn heads_in_rows(key: &[u64], head_dim: u64) -> Option<u64> {
    if let [_, heads, _, _] = *key {
        return Some(heads);
    }
    let row = *key.last()?;
    (head_dim > 0 && row.is_multiple_of(head_dim)).then(|| row / head_dim)
}

fn shapes_of_query<'q>(
    query: &'q OpQuery,
    key_order: KeyOrder,
    dims: &'q [u64],
    key: &'q [u64],
) -> CallShapes<'q> {
    let parameters = &query.attention;
    let recorded = |slot: AttentionSlot| {
        let tensor = query.inputs.get(slot as usize).filter(|_| key_order == KeyOrder::Recorded)?;
        let &[count] = tensor.dims.as_slice() else { return None };
        Some(count)
    };
    let is_table = |input: &QueryTensor| input.dims.len() == 2 && input.is_index();
    let has_table = query.inputs.iter().skip(BARE_INPUTS).any(is_table);
    let longest = parameters.kv_lengths.iter().max().map(|length| *length as f64);
    let listed = Some(parameters.kv_lengths.len() as u64).filter(|count| *count > 0);
    CallShapes {
        query: dims,
        key,
        key_order,
        heads: None,
        kv_heads: parameters.kv_heads,
        kv_length: longest.or_else(|| parameters.mean_kv_length()),
        sequences: listed.or(parameters.batch).or_else(|| recorded(AttentionSlot::KvLengths)),
        is_paged: parameters.block_size.map(|size| size > 0).or(has_table.then_some(true)),
        has_query_lengths: recorded(AttentionSlot::QueryLengths).is_some(),
        lse: query.outputs.get(1).map(|output| output.dims.as_slice()).unwrap_or_default(),
    }
}

const LATENT: &str = "BNSD_NBSD";
/// Queries, keys and values.
const BARE_INPUTS: usize = 3;

/// Properties that must be equal, of rows and queries. Unknown values of one of them are not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct AttentionRegime {
    pub(crate) dtype: Option<Dtype>,
    pub(crate) kv_heads: Option<u64>,
    pub(crate) sparse_mode: Option<String>,
    pub(crate) layout: Option<String>,
    /// Keys that are selected at most for a query.
    pub(crate) topk: Option<u64>,
    /// Keys in a block of the cache; 0 if they are not in blocks.
    pub(crate) block_size: Option<u64>,
    pub(crate) selected: Option<u64>,
    /// Dimension of the rotary parts that are inputs of their own; 0 without them.
    pub(crate) rope_dim: Option<u64>,
    pub(crate) unusual: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
enum RegimeValue<'a> {
    #[strum(to_string = "{0}")]
    Number(u64),
    #[strum(to_string = "{0}")]
    Text(&'a str),
}

impl AttentionRegime {
    pub(crate) fn of_selection(dtype: &Dtype, topk: u64, block_size: Option<u64>) -> Self {
        Self {
            dtype: Some(dtype.clone()),
            kv_heads: Some(1),
            sparse_mode: Some(CAUSAL.to_owned()),
            layout: Some("TND".to_owned()),
            topk: Some(topk),
            block_size,
            ..Self::default()
        }
    }

    fn properties(&self) -> [(&'static str, Option<RegimeValue<'_>>); 9] {
        let number = |value: Option<u64>| value.map(RegimeValue::Number);
        let unusual = if self.unusual.is_empty() { "usual" } else { self.unusual.trim_end_matches(';') };
        [
            ("dtype", self.dtype.as_ref().map(|dtype| RegimeValue::Text(dtype.as_str()))),
            ("kv_heads", number(self.kv_heads)),
            ("sparse_mode", self.sparse_mode.as_deref().map(RegimeValue::Text)),
            ("layout", self.layout.as_deref().map(RegimeValue::Text)),
            ("topk", number(self.topk)),
            ("block_size", number(self.block_size)),
            ("selected keys", number(self.selected)),
            ("dimension of rotary parts", number(self.rope_dim)),
            ("further attributes", Some(RegimeValue::Text(unusual))),
        ]
    }

    /// Compares the regime of a row with the regime of a query. `Some(true)` if a value of the row is unknown, `None`
    /// if one differs.
    pub(crate) fn unknown_beside(&self, query: &Self) -> Option<bool> {
        let mut is_unknown = false;
        for ((_, row), (_, query)) in self.properties().into_iter().zip(query.properties()) {
            match (row, query) {
                (None, Some(_)) => is_unknown = true,
                (Some(row), Some(query)) if row != query => return None,
                _ => {}
            }
        }
        Some(is_unknown)
    }

    /// Returns the attributes of a row that are known and differ from the attributes of a query.
    pub(crate) fn differences(&self, query: &Self) -> Vec<AttentionDifference> {
        let pairs = self.properties().into_iter().zip(query.properties());
        let known = pairs.filter_map(|((name, row), (_, query))| Some((name, row?, query?)));
        let different = known.filter(|(_, row, query)| row != query);
        different.map(|(name, row, query)| AttentionDifference::new(name, &row, &query)).collect()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct AttentionWork {
    pub(crate) tokens: u64,
    pub(crate) heads: u64,
    pub(crate) head_dim: u64,
    pub(crate) kv_length: f64,
    pub(crate) batch: Option<u64>,
    pub(crate) lengths: Option<BatchLengths>,
    pub(crate) regime: AttentionRegime,
}

fn sizes_of_rows(dims: &[u64], key: &[u64], heads: Option<u64>) -> Option<QuerySizes> {
    let &[tokens, width] = dims else { return None };
    let heads = heads.or_else(|| Some(width / key.last().copied().filter(|dim| *dim > 0)?))?;
    (heads > 0 && width % heads == 0).then(|| QuerySizes {
        tokens,
        heads,
        head_dim: width / heads,
        batch: None,
    })
}

/// Returns the order of a query of three or four dimensions with a stated layout. One token for each sequence stands where the
/// layout has it; several tokens must fit the keys.
fn stated_order(shapes: &CallShapes<'_>, layout: &str) -> Result<QueryOrder, OrderProblem> {
    match (QueryOrder::of_layout(layout), shapes.query) {
        (Some(order @ (QueryOrder::Bsh | QueryOrder::Ntd)), [_, _, _]) => Ok(order),
        // The comparison of layouts refuses others.
        (_, [_, _, _]) => Ok(QueryOrder::Tnd),
        (Some(QueryOrder::Bsnd), [_, 1, _, _]) => Ok(QueryOrder::Bsnd),
        (order, [_, _, 1, _]) if order != Some(QueryOrder::Bsnd) => Ok(QueryOrder::Bnsd),
        (Some(order @ (QueryOrder::Bnsd | QueryOrder::Bsnd)), [_, _, _, _]) if shapes.fits(order) => {
            Ok(order)
        }
        _ => Err(OrderProblem::Contradictory),
    }
}

/// Returns the order of a query of three or four dimensions. Frameworks pass packed tokens, or one token for each sequence; that of
/// other calls is stated, or the only one that fits.
fn query_order(shapes: &CallShapes<'_>, layout: Option<&str>) -> Result<QueryOrder, OrderProblem> {
    // Keys with 1 in the same place can belong to a single head of several tokens.
    let is_single_head = matches!(shapes.key, [_, 1, _, _]) && shapes.key.first() == shapes.query.first();
    match (layout, shapes.key_order, shapes.query) {
        (Some(layout), ..) => stated_order(shapes, layout),
        (None, KeyOrder::Framework, [_, _, _]) => Ok(QueryOrder::Tnd),
        (None, KeyOrder::Framework, [_, 1, _, _]) if !is_single_head => Ok(QueryOrder::Bsnd),
        (None, KeyOrder::Framework, [_, _, 1, _]) => Ok(QueryOrder::Bnsd),
        (None, ..) => shapes.only_order(),
    }
}

fn shapes_of_case<'c>(case: &'c Case, kv_length: Option<f64>, sequences: Option<u64>) -> CallShapes<'c> {
    let view = AttentionCase::new(case);
    let number = |name: &str| case.attributes.get(name).and_then(|text| text.parse().ok());
    let dims = |slot: Option<&'c Slot>| {
        slot.and_then(Slot::as_ref).map(|tensor| tensor.dims.as_slice()).unwrap_or_default()
    };
    let has_all_slots = case.inputs.len() > AttentionSlot::BlockTable as usize;
    CallShapes {
        query: dims(case.inputs.first()),
        key: dims(case.inputs.get(AttentionSlot::Key as usize)),
        key_order: KeyOrder::Recorded,
        heads: number(name::HEADS),
        kv_heads: number(name::KV_HEADS),
        kv_length,
        sequences,
        is_paged: if has_all_slots { Some(view.is_paged()) } else { None },
        has_query_lengths: view.dims(AttentionSlot::QueryLengths).is_some(),
        lse: dims(case.outputs.get(1)),
    }
}

/// Returns the order of a recorded query of three or four dimensions, and its layout. A layout that is not recorded is implied by
/// the shapes as a replay reads them, unless they contradict it.
fn recorded_order(
    shapes: &CallShapes<'_>,
    layout: Option<&str>,
    implied: Option<&str>,
) -> Option<(QueryOrder, Option<String>)> {
    if let Some(layout) = layout {
        let order = QueryOrder::of_layout(layout).filter(|order| shapes.sizes(*order).is_some());
        let order = order.or_else(|| stated_order(shapes, layout).ok())?;
        return Some((order, Some(layout.to_owned())));
    }
    match (shapes.only_order(), shapes.query, implied) {
        (Ok(QueryOrder::Bsh), ..) => Some((QueryOrder::Bsh, Some(QueryOrder::Bsh.layout().to_owned()))),
        (_, [_, _, _], implied) => Some((QueryOrder::Tnd, implied.map(str::to_owned))),
        (_, _, Some(implied)) => Some((QueryOrder::Bnsd, Some(implied.to_owned()))),
        // The output of one token for each sequence may have another order.
        (Ok(QueryOrder::Bnsd), [_, _, 1, _], None) => Some((QueryOrder::Bnsd, None)),
        (order, _, None) => order.ok().map(|order| (order, Some(order.layout().to_owned()))),
    }
}

impl AttentionWork {
    /// Returns the work of a recorded case; `None` without a length of keys.
    pub(crate) fn of_case(case: &Case, family: AttentionFamily) -> Option<Self> {
        let view = AttentionCase::new(case);
        let implied = match family {
            AttentionFamily::Fused => view.implied_attributes(),
            AttentionFamily::Sparse | AttentionFamily::Indexer => CaseAttributes::default(),
        };
        let attribute = |name: &str| case.attributes.get(name).or_else(|| implied.get(name));
        let number = |name: &str| attribute(name).and_then(|text| text.parse::<u64>().ok());
        let input = |slot: usize| case.inputs.get(slot)?.as_ref().map(|tensor| tensor.dims.as_slice());
        let is_fused = family == AttentionFamily::Fused;
        let query = case.inputs.first()?.as_ref()?;
        let key = input(AttentionSlot::Key as usize);
        let recorded = case.attributes.get(name::AVG_SEQ_LEN).and_then(|text| text.parse::<f64>().ok());
        let (first_lengths, table) = match family {
            AttentionFamily::Fused => (AttentionSlot::KvLengths as usize, AttentionSlot::BlockTable as usize),
            AttentionFamily::Sparse => (6, 4),
            AttentionFamily::Indexer => (4, 5),
        };
        let row_count = |slot: usize| input(slot).and_then(|dims| dims.first().copied());
        let sequences = number(BATCH).or_else(|| row_count(first_lengths)).or_else(|| row_count(table));
        let shapes = shapes_of_case(case, recorded, sequences);
        let (order, layout) = match query.dims.len() {
            3 | 4 if is_fused => {
                let layout = case.attributes.get(name::LAYOUT);
                let (order, layout) = recorded_order(&shapes, layout, implied.get(name::LAYOUT))?;
                (Some(order), layout)
            }
            3 | 4 => {
                let layout = attribute(name::LAYOUT).unwrap_or("TND");
                (Some(stated_order(&shapes, layout).ok()?), Some(layout.to_owned()))
            }
            _ => (None, attribute(name::LAYOUT).or((!is_fused).then_some("TND")).map(str::to_owned)),
        };
        let is_packed =
            layout.as_deref().is_some_and(|layout| layout.starts_with('T') || layout.starts_with("NTD"));
        let listed = |name: &str, has_ends: bool| {
            let numbers = case.attributes.numbers(name).filter(|numbers| !numbers.is_empty())?;
            if has_ends { lengths_from_ends(&numbers) } else { Some(numbers) }
        };
        // Packed keys that are not in blocks are recorded by their ends.
        let keys = listed(name::KV_LENGTHS, is_fused && is_packed && !view.is_paged());
        let kv_length = keys.as_deref().map(mean).or(recorded).filter(|mean| mean.is_finite() && *mean > 0.0);
        let heads = number(name::HEADS);
        let sizes = match order {
            Some(order) => shapes.sizes(order),
            None => sizes_of_rows(&query.dims, key.unwrap_or_default(), heads),
        };
        let QuerySizes { tokens, heads, head_dim, batch: sequences_of_query } = sizes?;
        let lengths = listed(name::QUERY_LENGTHS, is_packed).zip(keys);
        let lengths = lengths.map(|(queries, keys)| BatchLengths { queries, keys });
        let lengths = lengths.filter(|lengths| lengths.queries.len() == lengths.keys.len());
        let batch =
            (lengths.as_ref().map(|lengths| lengths.keys.len() as u64)).or(sequences).or(sequences_of_query);
        let topk = number(TOPK).or_else(|| match family {
            AttentionFamily::Fused => None,
            AttentionFamily::Sparse => input(3)?.last().copied(),
            AttentionFamily::Indexer => case.outputs.first()?.as_ref()?.dims.last().copied(),
        });
        let block_size = number(name::BLOCK_SIZE).or_else(|| match *key? {
            [_, size, _, _] if !is_fused => Some(size),
            _ => None,
        });
        let unusual = |(name, usual): &(&str, &str)| {
            let value = case.attributes.get(name).filter(|value| value != usual)?;
            Some(format!("{name}={value};"))
        };
        let kv_heads = match order {
            // The shapes imply the heads of packed keys only.
            Some(QueryOrder::Bsh) => {
                shapes.kv_heads.or_else(|| key.and_then(|key| heads_in_rows(key, head_dim)))
            }
            _ => number(name::KV_HEADS).or((!is_fused).then_some(1)),
        };
        let recorded_selection = number(SELECTED_KEYS).filter(|_| family == AttentionFamily::Sparse);
        let rope = input(AttentionSlot::QueryRope as usize);
        let sparse_mode = attribute(name::SPARSE_MODE).or((!is_fused).then_some(CAUSAL));
        Some(Self {
            tokens,
            heads,
            head_dim,
            kv_length: kv_length?,
            batch,
            regime: AttentionRegime {
                dtype: Some(query.dtype.clone()),
                kv_heads,
                sparse_mode: sparse_mode.map(str::to_owned),
                layout,
                topk,
                block_size,
                selected: recorded_selection.or_else(|| selected_keys(family, topk, lengths.as_ref())),
                rope_dim: is_fused.then(|| rope.and_then(|dims| dims.last().copied()).unwrap_or(0)),
                unusual: match family {
                    AttentionFamily::Fused => String::new(),
                    _ => USUAL_VALUES.iter().filter_map(unusual).collect(),
                },
            },
            lengths,
        })
    }

    /// Returns the work of a query of a kernel; the error is the reason of a miss.
    pub(crate) fn of_query(
        query: &OpQuery,
        family: AttentionFamily,
        order: KeyOrder,
    ) -> Result<Self, MissReason> {
        let parameters = &query.attention;
        let input = query.inputs.first().ok_or(MissReason::ContextMissing("q_shape"))?;
        let dtype = input.dtype.clone().ok_or(MissReason::ContextMissing("dtype"))?;
        let key = query.inputs.get(1).map(|key| key.dims.as_slice()).unwrap_or_default();
        let is_fused = family == AttentionFamily::Fused;
        let is_recorded = order == KeyOrder::Recorded && query.inputs.len() > BARE_INPUTS;
        let slot = |slot: usize| query.inputs.get(slot).and_then(|input| input.dims.last().copied());
        let has_rope = is_recorded && slot(AttentionSlot::QueryRope as usize).is_some();
        let (query_order, sizes) = match input.dims.len() {
            3 | 4 => {
                let shapes = shapes_of_query(query, order, &input.dims, key);
                // Separate inputs for rotary parts belong to latent attention, as in rows.
                let is_latent = input.dims.len() == 4 && has_rope;
                let usual = if is_fused { is_latent.then_some(LATENT) } else { Some("TND") };
                let layout = parameters.layout.as_deref().or(usual);
                let found = query_order(&shapes, layout).map_err(|problem| match problem {
                    // The length of keys may decide.
                    OrderProblem::Ambiguous if shapes.kv_length.is_none() => {
                        MissReason::ContextMissing("avg_seq_len")
                    }
                    OrderProblem::Ambiguous => MissReason::ContextMissing("input_layout"),
                    OrderProblem::Contradictory => MissReason::ContextMissing("q_shape"),
                })?;
                let heads = MissReason::ContextMissing("kv_heads");
                (Some(found), shapes.sizes(found).ok_or(heads)?)
            }
            _ => {
                let sizes = sizes_of_rows(&input.dims, key, None);
                (None, sizes.ok_or(MissReason::ContextMissing("q_shape"))?)
            }
        };
        let dims = sizes.dims();
        let regime = AttentionRegime {
            dtype: Some(dtype),
            kv_heads: parameters.kv_heads.or_else(|| match query_order {
                _ if !is_fused => Some(1),
                // Keys that are not in blocks have the order of the query.
                Some(QueryOrder::Bsnd) if key.len() == 4 && key.first() == input.dims.first() => {
                    key_heads(key, KeyOrder::Framework, dims)
                }
                Some(QueryOrder::Bsh) => heads_in_rows(key, sizes.head_dim),
                _ => key_heads(key, order, dims),
            }),
            sparse_mode: Some(parameters.sparse_mode.clone().unwrap_or_else(|| CAUSAL.to_owned())),
            layout: parameters.layout.clone().or_else(|| match (query_order, input.dims.as_slice()) {
                _ if !is_fused => Some("TND".to_owned()),
                // Calls of latent attention have this form.
                (Some(QueryOrder::Bnsd), [_, _, 1, _]) => Some(LATENT.to_owned()),
                (Some(QueryOrder::Bnsd), _) if has_rope => Some(LATENT.to_owned()),
                (order, _) => order.map(|order| order.layout().to_owned()),
            }),
            topk: parameters.topk.or_else(|| match family {
                AttentionFamily::Fused => None,
                AttentionFamily::Sparse => slot(3),
                AttentionFamily::Indexer => query.outputs.first()?.dims.last().copied(),
            }),
            block_size: parameters.block_size.or(match *key {
                [_, size, _, _] if !is_fused => Some(size),
                _ => None,
            }),
            // A query by its first inputs only leaves the others open, and frameworks have them in another order.
            rope_dim: (is_fused && is_recorded).then(|| slot(AttentionSlot::QueryRope as usize).unwrap_or(0)),
            ..AttentionRegime::default()
        };
        for (name, value) in [("topk", regime.topk), ("block_size", regime.block_size)] {
            if !is_fused && value.is_none() {
                return Err(MissReason::ContextMissing(name));
            }
        }
        Self::of_parameters(dims, sizes.batch, regime, parameters, family)
    }

    pub(crate) fn of_parameters(
        [tokens, heads, head_dim]: [u64; 3],
        batch: Option<u64>,
        regime: AttentionRegime,
        parameters: &AttentionParameters,
        family: AttentionFamily,
    ) -> Result<Self, MissReason> {
        let kv_length = parameters.mean_kv_length().ok_or(MissReason::ContextMissing("avg_seq_len"))?;
        let lengths = parameters.batch_lengths(tokens);
        let listed = Some(parameters.kv_lengths.len() as u64).filter(|count| *count > 0);
        let batch = listed.or(parameters.batch).or(batch);
        let selected = selected_keys(family, regime.topk, lengths.as_ref());
        let regime = AttentionRegime { selected, ..regime };
        Ok(Self { tokens, heads, head_dim, kv_length, batch, lengths, regime })
    }

    pub(crate) fn is_decode(&self) -> bool {
        self.batch == Some(self.tokens)
    }

    /// Returns the number of keys per query, and the phase, if they are known. One query of each sequence needs no
    /// list.
    pub(crate) fn keys_per_query(&self) -> Option<(f64, BatchPhase)> {
        match &self.lengths {
            Some(lengths) => Some((lengths.keys_per_query(), lengths.phase())),
            None => self.is_decode().then_some((self.kv_length, BatchPhase::Decode)),
        }
    }
}

fn selected_keys(family: AttentionFamily, topk: Option<u64>, lengths: Option<&BatchLengths>) -> Option<u64> {
    let topk = topk.filter(|_| family == AttentionFamily::Sparse);
    Some(topk?.min(*lengths?.keys.iter().max()?))
}

/// Returns true for a recorded call of fused attention whose layout is neither recorded nor implied by what is known of it.
fn is_order_open(case: &Case, kv_length: f64, sequences: Option<u64>) -> bool {
    AttentionFamily::of_kernel(&case.kernel) == Some(AttentionFamily::Fused)
        && case.attributes.get(name::LAYOUT).is_none()
        && case.inputs.first().and_then(Slot::as_ref).is_some_and(|query| query.dims.len() == 3)
        && shapes_of_case(case, Some(kv_length), sequences).only_order() == Err(OrderProblem::Ambiguous)
}

pub(crate) fn parameters_of_case(case: &Case) -> AttentionParameters {
    let family = AttentionFamily::of_kernel(&case.kernel);
    let Some(work) = family.and_then(|family| AttentionWork::of_case(case, family)) else {
        return AttentionParameters::default();
    };
    let (query_lengths, kv_lengths) =
        work.lengths.map(|lengths| (lengths.queries, lengths.keys)).unwrap_or_default();
    AttentionParameters {
        kv_length: Some(work.kv_length),
        kv_lengths,
        query_lengths,
        batch: work.batch,
        kv_heads: work.regime.kv_heads,
        sparse_mode: work.regime.sparse_mode,
        layout: work.regime.layout.filter(|_| !is_order_open(case, work.kv_length, work.batch)),
        topk: work.regime.topk,
        block_size: work.regime.block_size,
        phase: None,
    }
}

pub(crate) fn mean(lengths: &[u64]) -> f64 {
    lengths.iter().map(|length| *length as f64).sum::<f64>() / lengths.len() as f64
}
