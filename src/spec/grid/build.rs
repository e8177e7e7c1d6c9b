//! From what a grid file says to spaces: ladders of files, patterns for each of their kernels.

use std::{collections::BTreeMap, path::Path};

use super::{
    ModelValues, Models, Space,
    bind::Binding,
    ladder,
    parts::{HINT, Ladders, Words},
    place::Source,
    raw::{File, Pattern},
};
use crate::{
    model::{KernelName, meant},
    spec::{SpecError, yaml},
};

/// What all files share.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) ladders: &'a Ladders,
    pub(super) models: &'a Models,
}

/// The ladders of a file.
pub(super) fn ladders(file: &Path, text: &str) -> Result<Ladders, SpecError> {
    let raw: File = yaml::parse_with_column(file, text)?;
    own_ladders(&raw, Source { file, text })
}

fn own_ladders(raw: &File, source: Source<'_>) -> Result<Ladders, SpecError> {
    let ladders = raw.ladders.iter().map(|(name, items)| {
        let values = ladder::values(items).map_err(|(needle, why)| {
            source.error(&["ladders", name], &needle, format!("ladder `{name}`: {why}"), HINT)
        })?;
        Ok((name.clone(), values))
    });
    ladders.collect()
}

/// All spaces of a file.
pub(super) fn spaces(
    name: &str,
    file: &Path,
    text: &str,
    context: &Context<'_>,
) -> Result<Vec<Space>, SpecError> {
    let raw: File = yaml::parse_with_column(file, text)?;
    let source = Source { file, text };
    let mut ladders = own_ladders(&raw, source)?;
    if let Some(twice) = ladders.keys().find(|name| context.ladders.contains_key(*name)) {
        let problem = format!("ladder `{twice}` is among the shared ones already");
        return Err(source.error(&["ladders"], twice, problem, "give it a name of its own"));
    }
    ladders.extend(context.ladders.clone());
    let mut spaces = Vec::new();
    for (pattern_name, pattern) in &raw.patterns.0 {
        if let Some(other) = pattern.overrides.keys().find(|kernel| !pattern.kernels.contains(kernel)) {
            let hint = meant(other, pattern.kernels.iter().map(String::as_str), || HINT.to_owned());
            let problem = format!("`{other}` is none of the pattern's kernels");
            return Err(source.error(&["patterns", pattern_name, "overrides"], other, problem, &hint));
        }
        let with_models = pattern.with_models.as_ref().map(|other| pattern.clone().with(other));
        let (used, unused) = match with_models {
            Some(with_models) if context.models.chosen.is_some() => (with_models, Some(pattern.clone())),
            with_models => (pattern.clone(), with_models),
        };
        for kernel in &pattern.kernels {
            let own = pattern.overrides.get(kernel);
            let words = |meant: &Pattern| Words {
                source,
                name: pattern_name,
                pattern: own.map_or_else(|| meant.clone(), |own| meant.clone().with(own)),
                ladders: &ladders,
                constants: constants(&raw, pattern),
                models: context.models,
            };
            // What is wrong is said whether models are chosen or not.
            unused.as_ref().map(|unused| words(unused).parts().map(drop)).transpose()?;
            spaces.extend(of_kernel(&words(&used), kernel, name)?);
        }
    }
    Ok(spaces)
}

/// The constants of the file and of the pattern; the pattern's count.
fn constants<'f>(file: &'f File, pattern: &'f Pattern) -> BTreeMap<&'f str, i64> {
    file.constants.iter().chain(&pattern.constants).map(|(name, value)| (name.as_str(), *value)).collect()
}

/// One space, or one for each model that has what the pattern needs.
fn of_kernel(words: &Words<'_>, kernel: &str, grid: &str) -> Result<Vec<Space>, SpecError> {
    let kernel =
        KernelName::new(kernel).map_err(|error| words.error("kernels", kernel, &error.to_string(), HINT))?;
    let parts = words.parts()?;
    let needed = words.needed_of_models(&parts)?;
    let space = |model| Binding { words, parts: &parts, model }.space(&kernel, grid);
    if needed.is_empty() && !parts.has_tables() {
        return Ok(vec![space(None)?]);
    }
    let has_all = |model: &&ModelValues| {
        needed.iter().all(|name| model.numbers.contains_key(*name))
            && parts.tables().all(|table| model.tables.contains_key(table))
    };
    words.models.used().iter().filter(has_all).map(|model| space(Some(model))).collect()
}
