//! Builds candidate spaces from a grid file: ladders of the file, patterns for each of their kernels.

use std::path::Path;

use super::{
    CandidateSpace, GridModels, ModelValues,
    bind::PatternBinding,
    ladder::ladder_values,
    pattern::{HINT, LadderValues, PatternContext},
    raw::{RawGridFile, RawPattern},
};
use crate::{
    base::{assets::AssetFiles, suggest::did_you_mean_or, yaml, yaml::YamlError},
    kernel::KernelName,
};

/// Limit of the candidates of a file: about a minute of expansion, and few enough for memory.
const MAX_CANDIDATES: u64 = 1 << 26;

#[derive(Clone, Copy)]
pub(crate) struct GridFileContext<'a> {
    pub(crate) ladders: &'a LadderValues,
    pub(crate) models: &'a GridModels,
    /// Assets with the catalogue, whose entries may define attribute columns of their own.
    pub(crate) assets: &'a AssetFiles,
}

pub(crate) fn parse_ladders(file: &Path, text: &str) -> Result<LadderValues, YamlError> {
    declared_ladders(&yaml::parse(file, text)?, file)
}

fn declared_ladders(raw: &RawGridFile, file: &Path) -> Result<LadderValues, YamlError> {
    let ladders = raw.ladders.iter().map(|(name, items)| {
        let values = ladder_values(items).map_err(|(position, why)| {
            YamlError::at(file, position, &format!("ladder `{}`: {why}", name.value), HINT)
        })?;
        Ok((name.value.clone(), values))
    });
    ladders.collect()
}

/// The declarations of one grid file.
#[derive(Default)]
pub(crate) struct ParsedGridFile {
    pub(crate) spaces: Vec<CandidateSpace>,
    /// The kernels of the file, each with the error to report if the catalogue has no entry for it.
    pub(crate) named: Vec<(KernelName, YamlError)>,
}

pub(crate) fn parse_spaces(
    name: &str,
    file: &Path,
    text: &str,
    context: &GridFileContext<'_>,
) -> Result<ParsedGridFile, YamlError> {
    let raw: RawGridFile = yaml::parse(file, text)?;
    if let Some(twice) = raw.ladders.keys().find(|name| context.ladders.contains_key(&name.value)) {
        let problem = format!("ladder `{}` is already declared in {}", twice.value, super::SHARED);
        return Err(YamlError::at(file, twice.defined, &problem, "give it another name"));
    }
    let mut ladders = declared_ladders(&raw, file)?;
    ladders.extend(context.ladders.clone());
    let (mut parsed, mut count) = (ParsedGridFile::default(), 0_u64);
    for (pattern_name, pattern) in &raw.patterns {
        let is_declared = |name: &str| pattern.kernels.iter().any(|kernel| kernel.value == name);
        if let Some(other) = pattern.overrides.keys().find(|kernel| !is_declared(&kernel.value)) {
            let kernels = pattern.kernels.iter().map(|kernel| kernel.value.as_str());
            let hint = did_you_mean_or(&other.value, kernels, || HINT.to_owned());
            let problem = format!("`{}` is not among the kernels of the pattern", other.value);
            return Err(YamlError::at(file, other.defined, &problem, &hint));
        }
        let with_models = pattern.with_models.as_ref().map(|other| pattern.clone().with_override(other));
        for kernel in &pattern.kernels {
            let own = pattern.overrides.iter().find(|(name, _)| name.value == kernel.value);
            let bind_context = |base: &RawPattern| PatternContext {
                file,
                name: pattern_name,
                pattern: own.map_or_else(|| base.clone(), |(_, own)| base.clone().with_override(own)),
                ladders: &ladders,
                // Those of the pattern take precedence.
                constants: (raw.constants.iter().chain(&pattern.constants))
                    .map(|(name, value)| (name.as_str(), *value))
                    .collect(),
                models: context.models,
                assets: context.assets,
            };
            let plain = bind_context(pattern);
            let (used, unused) = match with_models.as_ref().map(bind_context) {
                Some(of_models) if context.models.chosen.is_some() => (of_models, Some(plain)),
                other => (plain, other),
            };
            let name_of_kernel = used.kernel_name(kernel)?;
            // Errors of the unused variant are reported as well, whether models are chosen or not.
            if let Some(unused) = unused {
                bind_models(&unused, &name_of_kernel, name, unused.models.all(), 1)?;
            }
            let spaces = bind_models(&used, &name_of_kernel, name, used.models.used().iter(), usize::MAX)?;
            count = count.saturating_add(check_candidates(&used, &name_of_kernel, &spaces, count)?);
            let problem = format!("the catalogue has no entry for `{name_of_kernel}`, so it gets no rows");
            parsed.named.push((name_of_kernel, used.error(kernel.defined, &problem, HINT)));
            parsed.spaces.extend(spaces);
        }
    }
    Ok(parsed)
}

/// Returns the number of candidates of a kernel's spaces, or an error if the file has too many with them.
fn check_candidates(
    context: &PatternContext<'_>,
    kernel: &KernelName,
    spaces: &[CandidateSpace],
    before: u64,
) -> Result<u64, YamlError> {
    let count = spaces.iter().fold(0_u64, |sum, space| sum.saturating_add(space.candidates()));
    if before.saturating_add(count) <= MAX_CANDIDATES {
        return Ok(count);
    }
    let axes = spaces.iter().flat_map(|space| &space.axes);
    let longest = axes.max_by_key(|axis| axis.len());
    let longest = longest.map_or_else(String::new, |axis| {
        format!("; its longest axis is `{}` with {} values", axis.names.join(","), axis.len())
    });
    let others = if before > 0 { format!(" after {before} of the file") } else { String::new() };
    let problem =
        format!("{count} candidates for `{kernel}`{others}, the limit is {MAX_CANDIDATES}{longest}");
    let hint = "shorten axes; `where:` is evaluated later and does not reduce the number of candidates";
    let position = context.pattern.axes.as_ref().map_or(context.name.defined, |axes| axes.defined);
    Err(context.error(position, &problem, hint))
}

/// Returns one space, or one for each of the first `limit` models that have the values needed by the pattern.
fn bind_models<'m>(
    context: &PatternContext<'_>,
    kernel: &KernelName,
    grid: &str,
    models: impl Iterator<Item = &'m ModelValues>,
    limit: usize,
) -> Result<Vec<CandidateSpace>, YamlError> {
    let pattern = context.parse_pattern()?;
    let needed = context.needed_of_models(&pattern)?;
    let bind = |model| PatternBinding { context, pattern: &pattern, model }.bind(kernel, grid);
    if needed.is_empty() && !pattern.has_tables() {
        return Ok(vec![bind(None)?]);
    }
    let has_all = |model: &&ModelValues| {
        needed.iter().all(|name| model.numbers.contains_key(*name))
            && pattern.tables().all(|table| model.tables.contains_key(table))
    };
    models.filter(has_all).take(limit).map(|model| bind(Some(model))).collect()
}
