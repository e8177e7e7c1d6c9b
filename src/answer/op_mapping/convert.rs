//! From the keys of the file to [`OpMapping`], with the rules about keys that belong together.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use indexmap::IndexMap;

use super::{
    file::{
        ComputeSubcategory, MappingFile, OperatorCategory, OperatorFields, QueryMode, TpLinearProjection,
    },
    model::{
        CompositePart, DecomposedOperator, DecomposedRule, KernelPolicy, MappedKernel, MappedOperator,
        MoeFusedRule, OpMapping, OperatorRoute,
    },
};
use crate::{
    base::{
        files::read_regular_text,
        yaml::{Location, Spanned, YamlError, parse},
    },
    kernel::KernelName,
};

/// Name of the mapping in a database folder.
pub const MAPPING_FILE: &str = "op_mapping.yaml";

/// Hint for entries whose keys contradict each other.
const SEE_KEYS: &str = "docs/lookup.md lists the keys of an operator";

/// Name of an operator, its position, and the operators among its sub-kernels with their positions.
type OperatorReferences = BTreeMap<String, Vec<(String, Location)>>;

/// Operators that a composite may contain, with those of its parts.
const MOST_PARTS: u64 = 10_000;
/// Composites that may be parts of each other.
const MOST_LEVELS: usize = 100;

/// Returns the number of operators that an operator contains, with itself. The error is a circle or too many levels, and its place.
/// `sizes` has the known ones.
fn composite_size<'r>(
    name: &'r str,
    references: &'r OperatorReferences,
    path: &mut Vec<&'r str>,
    sizes: &mut BTreeMap<&'r str, u64>,
) -> Result<u64, (String, Location)> {
    if let Some(size) = sizes.get(name) {
        return Ok(*size);
    }
    path.push(name);
    let mut size = 1_u64;
    for (other, position) in references.get(name).into_iter().flatten() {
        if let Some(start) = path.iter().position(|seen| seen == other) {
            let circle = path[start..].iter().chain([&other.as_str()]).copied().collect::<Vec<_>>();
            return Err((format!("a composite contains itself: {}", circle.join(" -> ")), *position));
        }
        if path.len() == MOST_LEVELS {
            return Err((format!("composites of more than {MOST_LEVELS} levels"), *position));
        }
        size = size.saturating_add(composite_size(other, references, path, sizes)?);
    }
    path.pop();
    sizes.insert(name, size);
    Ok(size)
}

impl OpMapping {
    /// Reads a mapping. Fails with file, line, expected value and hint.
    pub fn load(path: &Path) -> Result<Self, YamlError> {
        let text = read_regular_text(path).map_err(|error| {
            YamlError::of_file(
                path,
                format!("cannot be read: {error}"),
                "give the path of an `op_mapping.yaml` with `--mapping FILE`",
            )
        })?;
        Self::parse(path, &text)
    }

    /// Parses the text of a mapping.
    pub fn parse(path: &Path, text: &str) -> Result<Self, YamlError> {
        parse_mapping(path, text)
    }
}

fn parse_mapping(path: &Path, text: &str) -> Result<OpMapping, YamlError> {
    let file: MappingFile = parse(path, text)?;
    let converter = Converter { path, file: &file };
    let mut operators = IndexMap::with_capacity(file.operator_mappings.len());
    let mut references = OperatorReferences::new();
    for (name, fields) in &file.operator_mappings {
        let mut operator = converter.operator(name, fields)?;
        operator.line = line_of(name.defined);
        if let (OperatorRoute::StaticComposite { parts, .. }, Some(listed)) =
            (&operator.route, &fields.sub_kernels)
        {
            let named = parts.iter().zip(&listed.value).filter_map(|(part, place)| match part {
                CompositePart::Operator(other) => Some((other.clone(), place.defined)),
                CompositePart::Kernel(_) => None,
            });
            references.insert(name.value.clone(), named.collect());
        }
        operators.insert(name.value.clone(), operator);
    }
    converter.refuse_cycles(&references)?;
    Ok(OpMapping {
        file: path.to_owned(),
        communication_data: file.communication_data_ref.as_ref().map(PathBuf::from),
        policies: converter.policies()?,
        operators,
    })
}

fn line_of(position: Location) -> u64 {
    if position == Location::UNKNOWN { 0 } else { position.line() }
}

struct Converter<'a> {
    path: &'a Path,
    file: &'a MappingFile,
}

impl Converter<'_> {
    fn error(&self, position: Location, problem: &str, hint: &str) -> YamlError {
        YamlError::at(self.path, position, problem, hint)
    }

    fn kernel(&self, text: &Spanned<String>) -> Result<MappedKernel, YamlError> {
        let name = KernelName::new(&text.value).map_err(|error| {
            self.error(
                text.defined,
                &format!("`{}`: {error}", text.value),
                "name a kernel, such as `MatMulV2`",
            )
        })?;
        Ok(MappedKernel { name, line: line_of(text.defined) })
    }

    fn optional_kernel(&self, text: Option<&Spanned<String>>) -> Result<Option<MappedKernel>, YamlError> {
        text.map(|text| self.kernel(text)).transpose()
    }

    fn kernels(&self, texts: &[Spanned<String>]) -> Result<Vec<MappedKernel>, YamlError> {
        texts.iter().map(|text| self.kernel(text)).collect()
    }

    fn operator(&self, name: &Spanned<String>, fields: &OperatorFields) -> Result<MappedOperator, YamlError> {
        let mut kernels = Vec::new();
        for text in fields.kernel_type.iter().chain(&fields.alternate_kernel_types) {
            let kernel = self.kernel(text)?;
            if kernels.iter().all(|other: &MappedKernel| other.name != kernel.name) {
                kernels.push(kernel);
            }
        }
        let by_rank = fields.kernel_types_by_input_rank.iter();
        let by_rank = by_rank.map(|(rank, texts)| Ok((*rank, self.kernels(texts)?)));
        let formats = fields.expected_input_formats.as_ref();
        let route = self.route(name, fields)?;
        self.check_counts(fields)?;
        Ok(MappedOperator {
            line: 0,
            route,
            kernels,
            kernels_by_rank: by_rank.collect::<Result<_, YamlError>>()?,
            degenerate_bmm_kernel: self.optional_kernel(fields.degenerate_bmm_kernel_type.as_ref())?,
            input_count: fields.tc_input_count.as_ref().map(|count| count.value),
            formats: formats
                .map(|list| list.value.iter().map(|format| format.value.clone()).collect())
                .unwrap_or_default(),
            subcategory: fields.compute_subcategory.as_ref().map(|kind| kind.value),
            tp_projection: self.tp_projection(fields)?,
        })
    }

    fn tp_projection(&self, fields: &OperatorFields) -> Result<Option<TpLinearProjection>, YamlError> {
        let Some(rule) = &fields.tp_linear_projection else { return Ok(None) };
        let dims = &rule.value.logical_global_dims;
        if dims.is_empty() || dims.contains(&0) {
            let problem = "`logical_global_dims` needs lengths above 0";
            return Err(self.error(rule.defined, problem, "list the lengths that all ranks have together"));
        }
        Ok(Some(rule.value.clone()))
    }

    /// Decides the way of looking up, in the order in which the superseded tool tries them.
    fn route(&self, name: &Spanned<String>, fields: &OperatorFields) -> Result<OperatorRoute, YamlError> {
        if fields.composite.as_ref().is_some_and(|composite| composite.value) {
            return self.composite(name, fields);
        }
        for (key, position) in [
            ("sub_kernels", fields.sub_kernels.as_ref().map(|list| list.defined)),
            ("decomposer", fields.decomposer.as_ref().map(|flag| flag.defined)),
            ("decomposer_options", fields.decomposer_options.as_ref().map(|options| options.defined)),
        ] {
            if let Some(position) = position {
                let problem = format!("`{key}` of `{}` without `composite: true`", name.value);
                return Err(self.error(position, &problem, SEE_KEYS));
            }
        }
        let is_zero_cost = fields.zero_cost.as_ref().is_some_and(|zero| zero.value);
        let is_accepted = fields.accepted_miss.as_ref().is_some_and(|miss| miss.0);
        if fields.kernel_type.is_none() && !is_zero_cost && !is_accepted {
            let problem = format!("`{}` has no `kernel_type`", name.value);
            let hint = "name its kernel, or state `zero_cost: true` or `composite: true`";
            return Err(self.error(name.defined, &problem, hint));
        }
        if fields.category == Some(OperatorCategory::Communication) {
            return Ok(OperatorRoute::Communication);
        }
        Ok(match fields.query_mode.as_ref().map(|mode| mode.value) {
            Some(QueryMode::AttentionSpecial) => OperatorRoute::Attention,
            Some(QueryMode::Elementwise) => OperatorRoute::Elementwise,
            Some(QueryMode::MoeFused) => OperatorRoute::MoeFused(Box::new(MoeFusedRule {
                projects_full_shape: fields.project_full_shape,
                embedded_compute: fields.embedded_compute.clone(),
                embedded_communication: fields.embedded_communication.clone(),
            })),
            Some(QueryMode::MtpProjection) => OperatorRoute::MtpProjection(
                self.optional_kernel(fields.mtp_projection_kernel_type.as_ref())?,
            ),
            Some(QueryMode::AttentionLightningIndexer) => OperatorRoute::KeyScores,
            Some(QueryMode::ScatterNdUpdateMla) => OperatorRoute::CacheUpdate,
            None if is_zero_cost => OperatorRoute::ZeroCost,
            None if is_accepted => OperatorRoute::AcceptedMiss,
            None => OperatorRoute::Compute,
        })
    }

    fn composite(&self, name: &Spanned<String>, fields: &OperatorFields) -> Result<OperatorRoute, YamlError> {
        if fields.decomposer.as_ref().is_some_and(|flag| flag.value) {
            return Ok(OperatorRoute::Decomposed(Box::new(DecomposedRule {
                operator: DecomposedOperator::from_name(&name.value),
                options: fields.decomposer_options.as_ref().map(|o| o.value.clone()).unwrap_or_default(),
                requires_all: fields.require_all_sub_kernels,
                primary_kernel: self.optional_kernel(fields.primary_kernel_type.as_ref())?,
            })));
        }
        let listed = fields.sub_kernels.as_ref().filter(|list| !list.value.is_empty());
        let Some(listed) = listed else {
            let problem =
                format!("the composite `{}` has neither `sub_kernels` nor `decomposer`", name.value);
            let position = fields.composite.as_ref().map_or(name.defined, |composite| composite.defined);
            return Err(self.error(position, &problem, "list its kernels in `sub_kernels`"));
        };
        let is_operator = |text: &str| self.file.operator_mappings.keys().any(|key| key.value == text);
        let mut parts = Vec::new();
        for text in &listed.value {
            parts.push(match is_operator(&text.value) {
                true => CompositePart::Operator(text.value.clone()),
                false => CompositePart::Kernel(self.kernel(text)?),
            });
        }
        let variants = fields.runtime_comm_variants.as_ref();
        Ok(OperatorRoute::StaticComposite {
            parts,
            sequence_parallel: variants.and_then(|variants| variants.sequence_parallel.clone()),
        })
    }

    fn check_counts(&self, fields: &OperatorFields) -> Result<(), YamlError> {
        let count = fields.tc_input_count.as_ref();
        let mode = fields.query_mode.as_ref();
        if let Some(count) = count {
            if mode.is_some_and(|mode| mode.value == QueryMode::Elementwise) {
                let problem = "`tc_input_count` beside `query_mode: elementwise`, which compares outputs";
                return Err(self.error(count.defined, problem, "remove one of the two keys"));
            }
            if count.value == 0 {
                let problem = "`tc_input_count` is 0, so that no input would be compared";
                return Err(self.error(count.defined, problem, "give the number of inputs to compare"));
            }
        }
        let subcategory = fields.compute_subcategory.as_ref();
        if let Some(kind) = subcategory.filter(|kind| kind.value == ComputeSubcategory::QuantizedMatmul) {
            let formats = fields.expected_input_formats.as_ref().map_or(0, |list| list.value.len());
            if count.is_none_or(|count| count.value != formats) {
                let count = count.map_or("no".to_owned(), |count| count.value.to_string());
                let problem = format!(
                    "a `quantized_matmul` needs as many `expected_input_formats` as `tc_input_count`, found {formats} \
                     formats and {count} inputs"
                );
                return Err(self.error(
                    kind.defined,
                    &problem,
                    "such as `tc_input_count: 2` and `[ND, FRACTAL_NZ]`",
                ));
            }
        }
        Ok(())
    }

    /// Refuses composites that contain themselves, or more operators than a framework has in a step: each lookup answers all.
    fn refuse_cycles(&self, references: &OperatorReferences) -> Result<(), YamlError> {
        let mut sizes = BTreeMap::new();
        for name in references.keys() {
            let refused = match composite_size(name, references, &mut Vec::new(), &mut sizes) {
                Ok(size) if size <= MOST_PARTS => continue,
                Ok(size) => {
                    let position =
                        references[name].first().map_or(Location::UNKNOWN, |(_, position)| *position);
                    let problem = format!("`{name}` contains {size} operators, the limit is {MOST_PARTS}");
                    (position, problem)
                }
                Err((problem, position)) => (position, problem),
            };
            let (position, problem) = refused;
            return Err(self.error(
                position,
                &problem,
                "list the kernels that run, in place of the operator",
            ));
        }
        Ok(())
    }

    fn policies(&self) -> Result<IndexMap<String, KernelPolicy>, YamlError> {
        let mut policies: IndexMap<String, KernelPolicy> = IndexMap::new();
        for (kernel, fields) in &self.file.latency_policy.kernel_overrides {
            let policy = policies.entry(kernel.value.clone()).or_default();
            policy.prefers_profiling = fields.prefer_profiling_rows;
            if let Some(envelope) = &fields.profiling_core_envelope_fallback {
                let ratio = &envelope.max_duration_to_core_ratio;
                if !(ratio.value.is_finite() && ratio.value >= 1.0) {
                    let problem = format!("the ratio is {}, expected a number of at least 1", ratio.value);
                    return Err(self.error(
                        ratio.defined,
                        &problem,
                        "a kernel is never shorter than its cores work",
                    ));
                }
                policy.max_core_ratio = Some(ratio.value);
            }
        }
        for (kernel, fields) in &self.file.query_selection_policy.kernel_overrides {
            policies.entry(kernel.value.clone()).or_default().requires_unique =
                fields.require_semantic_unique;
        }
        for (kernel, fields) in &self.file.interpolation_policy.kernel_overrides {
            let policy = policies.entry(kernel.value.clone()).or_default();
            if let Some(limit) = &fields.max_interpolation_dim {
                if limit.value > 3 {
                    let problem =
                        format!("found `{}`, expected a number of dimensions from 0 to 3", limit.value);
                    return Err(self.error(limit.defined, &problem, "0 disables interpolation"));
                }
                policy.max_interpolation_dim = Some(limit.value);
            }
            policy.generic_axis = fields.generic_compute.as_ref().map(|g| g.axis).unwrap_or_default();
            policy.axis_transform = fields.axis_transform.unwrap_or_default();
        }
        Ok(policies)
    }
}
