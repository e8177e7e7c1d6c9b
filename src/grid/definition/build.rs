//! From what a grid file says to spaces: ladders of files, patterns for each of their kernels.

use std::{collections::BTreeMap, path::Path};

use super::{
    CandidateSpace, GridModels, ModelValues,
    bind::PatternBinding,
    ladder,
    pattern::{HINT, LadderValues, PatternContext},
    raw::{RawGridFile, RawPattern},
};
use crate::{
    config::{AssetFiles, YamlError, locate::YamlPath, yaml},
    domain::{KernelName, did_you_mean_or},
};

/// Candidates of a file that can be gone through in a minute and kept in memory.
const MOST_CANDIDATES: u64 = 1 << 26;

/// What all files share.
#[derive(Clone, Copy)]
pub(crate) struct GridFileContext<'a> {
    pub(crate) ladders: &'a LadderValues,
    pub(crate) models: &'a GridModels,
    /// Where the catalogue is, whose entries may ask for attributes of their own.
    pub(crate) assets: &'a AssetFiles,
}

/// The ladders of a file.
pub(crate) fn ladders(file: &Path, text: &str) -> Result<LadderValues, YamlError> {
    let raw = read(file, text)?;
    own_ladders(&raw, YamlPath { file, text })
}

fn read(file: &Path, text: &str) -> Result<RawGridFile, YamlError> {
    let raw = yaml::parse_with_column(file, text)?;
    // Of two constants of one name the last would count, without a word.
    yaml::check_yaml(file, text)?;
    Ok(raw)
}

fn own_ladders(raw: &RawGridFile, source: YamlPath<'_>) -> Result<LadderValues, YamlError> {
    let ladders = raw.ladders.iter().map(|(name, items)| {
        let values = ladder::values(items).map_err(|(needle, why)| {
            source.error(&["ladders", name], &needle, &format!("ladder `{name}`: {why}"), HINT)
        })?;
        Ok((name.clone(), values))
    });
    ladders.collect()
}

/// What a file declares.
#[derive(Default)]
pub(crate) struct ParsedGridFile {
    pub(crate) spaces: Vec<CandidateSpace>,
    /// Its kernels, each with its place and what is to be said where it has no entry.
    pub(crate) named: Vec<(KernelName, YamlError)>,
}

/// All spaces of a file.
pub(crate) fn spaces(
    name: &str,
    file: &Path,
    text: &str,
    context: &GridFileContext<'_>,
) -> Result<ParsedGridFile, YamlError> {
    let raw = read(file, text)?;
    let source = YamlPath { file, text };
    let mut ladders = own_ladders(&raw, source)?;
    if let Some(twice) = ladders.keys().find(|name| context.ladders.contains_key(*name)) {
        let problem = format!("ladder `{twice}` is among the shared ones already");
        return Err(source.error(&["ladders"], twice, &problem, "give it a name of its own"));
    }
    ladders.extend(context.ladders.clone());
    let (mut found, mut count) = (ParsedGridFile::default(), 0_u64);
    for (pattern_name, pattern) in &raw.patterns.0 {
        if let Some(other) = pattern.overrides.keys().find(|kernel| !pattern.kernels.contains(kernel)) {
            let hint = did_you_mean_or(other, pattern.kernels.iter().map(String::as_str), || HINT.to_owned());
            let problem = format!("`{other}` is none of the pattern's kernels");
            return Err(source.error(&["patterns", pattern_name, "overrides"], other, &problem, &hint));
        }
        let with_models = pattern.with_models.as_ref().map(|other| pattern.clone().with(other));
        let chosen = context.models.chosen.is_some();
        for kernel in &pattern.kernels {
            let own = pattern.overrides.get(kernel);
            let words = |base: &RawPattern, variant: Option<&'static str>| PatternContext {
                source,
                name: pattern_name,
                below: variant.into_iter().collect(),
                pattern: own.map_or_else(|| base.clone(), |own| base.clone().with(own)),
                ladders: &ladders,
                constants: constants(&raw, pattern),
                models: context.models,
                assets: context.assets,
            };
            let plain = words(pattern, None);
            let of_models = with_models.as_ref().map(|base| words(base, Some("with_models")));
            let (used, unused) = match of_models {
                Some(of_models) if chosen => (of_models, Some(plain)),
                other => (plain, other),
            };
            // What is wrong is said whether models are chosen or not.
            unused.map(|unused| check(&unused, kernel, name)).transpose()?;
            let spaces = of_kernel(&used, kernel, name)?;
            count = count.saturating_add(bounded(&used, kernel, &spaces, count)?);
            found.named.push((used.kernel(kernel)?, used.without_entry(kernel)));
            found.spaces.extend(spaces);
        }
    }
    Ok(found)
}

/// How many candidates the spaces of a kernel have: not more than can be gone through, with those of the file before
/// them.
fn bounded(
    words: &PatternContext<'_>,
    kernel: &str,
    spaces: &[CandidateSpace],
    before: u64,
) -> Result<u64, YamlError> {
    let count = spaces.iter().fold(0_u64, |sum, space| sum.saturating_add(space.candidates()));
    if before.saturating_add(count) <= MOST_CANDIDATES {
        return Ok(count);
    }
    let axes = spaces.iter().flat_map(|space| &space.axes);
    let longest = axes.max_by_key(|axis| axis.len());
    let longest = longest.map_or_else(String::new, |axis| {
        format!("; its longest axis is `{}` with {} values", axis.names.join(","), axis.len())
    });
    let with_others = if before > 0 { format!(", behind {before} of the file") } else { String::new() };
    let problem =
        format!("{count} candidates for `{kernel}`{with_others}, at most {MOST_CANDIDATES} can be{longest}");
    Err(words.error("axes", "", &problem, "shorten axes; `where:` comes too late to make them fewer"))
}

/// The constants of the file and of the pattern; the pattern's count.
fn constants<'f>(file: &'f RawGridFile, pattern: &'f RawPattern) -> BTreeMap<&'f str, i64> {
    file.constants.iter().chain(&pattern.constants).map(|(name, value)| (name.as_str(), *value)).collect()
}

/// One space, or one for each model that has what the pattern needs.
fn of_kernel(words: &PatternContext<'_>, kernel: &str, grid: &str) -> Result<Vec<CandidateSpace>, YamlError> {
    bound(words, kernel, grid, words.models.used().iter(), usize::MAX)
}

/// Whether a pattern that is not used could be: bound to the first model that has what it needs.
fn check(words: &PatternContext<'_>, kernel: &str, grid: &str) -> Result<(), YamlError> {
    bound(words, kernel, grid, words.models.all(), 1).map(drop)
}

fn bound<'m>(
    words: &PatternContext<'_>,
    kernel: &str,
    grid: &str,
    models: impl Iterator<Item = &'m ModelValues>,
    most: usize,
) -> Result<Vec<CandidateSpace>, YamlError> {
    let kernel = words.kernel(kernel)?;
    let parts = words.parts()?;
    let needed = words.needed_of_models(&parts)?;
    let space = |model| PatternBinding { words, parts: &parts, model }.space(&kernel, grid);
    if needed.is_empty() && !parts.has_tables() {
        return Ok(vec![space(None)?]);
    }
    let has_all = |model: &&ModelValues| {
        needed.iter().all(|name| model.numbers.contains_key(*name))
            && parts.tables().all(|table| model.tables.contains_key(table))
    };
    models.filter(has_all).take(most).map(|model| space(Some(model))).collect()
}
