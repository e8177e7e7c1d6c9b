//! The questions of a workload.

use clap::{Args, value_parser};

use crate::{
    answer::lookup::{OpQuery, QueryTensor, parse_known_dtype, parse_length},
    kernel::{Case, Dtype, Nanos},
};

#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    pub name: String,
    /// Factor of its counts and times beside other workloads.
    pub weight: f64,
    pub durations: DurationKind,
    pub questions: Vec<WorkloadQuestion>,
    /// Notes for the user on parts of the source that are left out or assumed.
    pub notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum DurationKind {
    Measured,
    Predicted,
    Stated,
    /// Computed from sizes and a device profile.
    Estimated,
    Unknown,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadQuestion {
    pub query: OpQuery,
    /// Queries of other kernels that may run for the same call, in the order of preference.
    pub alternates: Vec<OpQuery>,
    pub count: u64,
    /// Duration of all invocations together; `None` if unknown.
    pub time: Option<Nanos>,
    pub line: Option<u64>,
    /// The case of a row that would answer it exactly, if it is known.
    pub case: Option<Case>,
    /// Ranks of a collective by their numbers in the run; empty if they are unknown.
    pub members: Vec<u64>,
    pub unreadable: Option<UnreadableReason>,
}

#[derive(Clone, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum UnreadableReason {
    /// The source has no shapes of these invocations.
    NoShapes,
    /// The profile has neither duration nor signature of these invocations.
    NoDuration,
    #[strum(to_string = "unreadable_shape: `{0}`")]
    Shape(String),
    #[strum(to_string = "unreadable_shape: {0}")]
    Tensor(String),
}

/// Returns the bytes of a tensor, of two for each element if its type is unknown.
pub(crate) fn tensor_bytes(tensor: &QueryTensor) -> f64 {
    let elements = tensor.dims.iter().map(|dim| *dim as f64).product::<f64>();
    elements * tensor.dtype.as_ref().and_then(Dtype::bytes).unwrap_or(2) as f64
}

impl WorkloadQuestion {
    /// Creates a question without time and source. A query beyond the limits of tensors cannot be looked up.
    pub(crate) fn new(query: OpQuery, count: u64) -> Self {
        let unreadable = query.check().err().map(UnreadableReason::Tensor);
        Self { query, count, unreadable, ..Self::default() }
    }

    pub(crate) fn unreadable(op: &str, count: u64, reason: UnreadableReason) -> Self {
        let query = OpQuery { op: op.to_owned(), ..OpQuery::default() };
        Self { unreadable: Some(reason), ..Self::new(query, count) }
    }

    /// Returns all queries of the call, the preferred one first.
    pub fn queries(&self) -> impl Iterator<Item = &OpQuery> {
        std::iter::once(&self.query).chain(&self.alternates)
    }
}

impl Workload {
    /// Creates a workload of weight 1 whose durations are unknown if no question has one.
    pub(crate) fn new(name: String, durations: DurationKind, questions: Vec<WorkloadQuestion>) -> Self {
        let is_timed = questions.iter().any(|question| question.time.is_some());
        let durations = if is_timed { durations } else { DurationKind::Unknown };
        Self { name, weight: 1.0, durations, questions, notes: Vec::new() }
    }

    pub fn invocations(&self) -> u64 {
        self.questions.iter().fold(0, |sum, question| sum.saturating_add(question.count))
    }

    /// Sets parameters where a question has none, and replaces element types.
    pub fn set_defaults(&mut self, defaults: &QuestionDefaults) {
        let questions = self.questions.iter_mut();
        for query in questions.flat_map(|own| std::iter::once(&mut own.query).chain(&mut own.alternates)) {
            query.tp_size = query.tp_size.or(defaults.tp);
            query.ep_size = query.ep_size.or(defaults.ep);
            query.ranks = query.ranks.or(defaults.ranks);
            query.tier = query.tier.or(defaults.tier);
            query.attention.kv_length = query.attention.kv_length.or(defaults.kv_length);
            defaults.dtypes.iter().for_each(|(from, to)| query.replace_dtype(from, to));
        }
    }
}

/// Parameters of questions that do not state them, and types to look up as others.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct QuestionDefaults {
    /// Ranks that share the matrices of a layer, for questions that do not state them
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=65536))]
    pub tp: Option<u64>,
    /// Ranks that share the experts, likewise
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=65536))]
    pub ep: Option<u64>,
    /// Ranks of collectives, likewise
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=1_000_000))]
    pub ranks: Option<u64>,
    /// Tier of the topology that collectives span, likewise
    #[arg(long, value_name = "TIER")]
    pub tier: Option<u64>,
    /// Mean length of the keys of attention, likewise
    #[arg(long, value_name = "TOKENS", value_parser = parse_length)]
    pub kv_length: Option<f64>,
    /// Look tensors of one type up as those of another, such as `float16=bf16` for a simulator that has no BF16
    #[arg(id = "treat_dtype", long = "treat-dtype", value_name = "TYPE=TYPE", value_parser = parse_dtype_pair)]
    pub dtypes: Vec<(Dtype, Dtype)>,
}

fn parse_dtype_pair(text: &str) -> Result<(Dtype, Dtype), String> {
    let wrong = || format!("`{text}` is not of the form `float16=bf16`");
    let known = |name: &str| {
        let dtype = parse_known_dtype(name).map_err(|error| format!("{}; {}", error.message, error.hint))?;
        dtype.ok_or_else(wrong)
    };
    let (from, to) = text.split_once('=').ok_or_else(wrong)?;
    Ok((known(from)?, known(to)?))
}
