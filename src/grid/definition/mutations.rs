//! The file of mutations, `grids/mutations.yaml`: what is changed in cases that are there already.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;
use serde_yaml::Value;

use super::{
    build, ladder,
    pattern::{FORMATS, HINT, LadderValues},
    raw::OrderedMap,
};
use crate::{
    catalogue::DimensionRole,
    config::{AssetFiles, YamlError, device_profile::from_assets, locate::YamlPath, yaml},
    domain::{Dtype, KernelName, TensorFormat, did_you_mean_or},
};

/// The file's name.
pub(crate) const FILE: &str = "mutations.yaml";

/// A named change.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// Its name, as rows say it.
    pub name: String,
    /// What it does, in a line.
    pub summary: Option<String>,
    /// The kernels whose cases it changes; all where empty.
    pub kernels: Vec<KernelName>,
    /// The dimensions that it changes; where empty, all that are not kept as they are.
    pub roles: Vec<DimensionRole>,
    /// How far beside a boundary.
    pub steps: Vec<i64>,
    /// The change.
    pub change: MutationChange,
}

/// What stands between a row's origin and the case that was changed.
const BEFORE_CASE: &str = " of ";

impl Mutation {
    /// Where a mutant is from, in words: all that is the same for every case and seed.
    #[must_use]
    pub fn origin(&self, what: &str, change: &str) -> String {
        let change = if change.is_empty() { String::new() } else { format!(" {change}") };
        format!("{}{what}{change}", self.begin())
    }

    /// The same, with the case and the seed.
    #[must_use]
    pub fn provenance(&self, what: &str, change: &str, case: &str, seed: u64) -> String {
        format!("{}{BEFORE_CASE}{case}, seed {seed}", self.origin(what, change))
    }

    /// The [`Mutation::origin`] in a row's provenance.
    #[must_use]
    pub fn origin_in(provenance: &str) -> &str {
        provenance.rsplit_once(BEFORE_CASE).map_or(provenance, |(origin, _)| origin)
    }

    /// What was changed to what, in an origin of this mutation.
    #[must_use]
    pub fn changed_in<'a>(&self, origin: &'a str) -> Option<&'a str> {
        origin.strip_prefix(&self.begin())
    }

    fn begin(&self) -> String {
        format!("mutation {}: ", self.name)
    }
}

/// What is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MutationChange {
    /// A dimension, times so much over so much.
    Factors(Vec<(u64, u64)>),
    /// A dimension, to multiples of so many elements nearby.
    Multiples(Vec<u64>),
    /// A dimension along rows, to multiples of so many bytes nearby.
    Bytes(Vec<u64>),
    /// A dimension, to multiples of the device's cores nearby.
    Cores,
    /// A dimension, to each of these values.
    Values(Vec<u64>),
    /// The size of the blocks of paged keys and values.
    BlockSizes(Vec<u64>),
    /// The lengths of paged sequences, to whole blocks and so many tokens.
    LastBlock(Vec<i64>),
    /// Types, each in place of one.
    Types(BTreeMap<Dtype, Dtype>),
    /// Formats of weights, each in place of one.
    Formats(BTreeMap<TensorFormat, TensorFormat>),
    /// The form or the kernel that does the same in INT8.
    Quantised,
    /// The form whose weights lie the other way around.
    Transposed,
}

/// All mutations, in the order of the file.
#[derive(Clone, Debug)]
pub struct MutationFile(Vec<Mutation>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMutationFile {
    #[serde(rename = "summary")]
    _summary: String,
    mutations: OrderedMap<RawMutation>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawMutation {
    summary: Option<String>,
    kernels: Vec<String>,
    roles: Vec<DimensionRole>,
    steps: Option<Vec<i64>>,
    factors: Option<Vec<Value>>,
    multiples: Option<Vec<Value>>,
    bytes: Option<Vec<Value>>,
    cores: Option<bool>,
    values: Option<Value>,
    block_sizes: Option<Vec<Value>>,
    last_block: Option<Vec<i64>>,
    types: Option<BTreeMap<String, String>>,
    formats: Option<BTreeMap<String, String>>,
    quantised: Option<bool>,
    transposed: Option<bool>,
}

impl MutationFile {
    /// Reads the file.
    ///
    /// # Errors
    /// [`YamlError`] with file, line and column.
    pub fn load(assets: &AssetFiles) -> Result<Self, YamlError> {
        let mut files = assets.grids().map_err(|error| from_assets(&error))?;
        let ladders = match files.remove(super::SHARED) {
            Some(asset) => build::ladders(&asset.path, &asset.text)?,
            None => LadderValues::new(),
        };
        files
            .remove(FILE)
            .map_or(Ok(Self(Vec::new())), |asset| Self::parse_file(&asset.path, &asset.text, &ladders))
    }

    /// Reads a file's text, without ladders of others.
    ///
    /// # Errors
    /// As [`MutationFile::load`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, YamlError> {
        Self::parse_file(file, text, &LadderValues::new())
    }

    fn parse_file(file: &Path, text: &str, ladders: &LadderValues) -> Result<Self, YamlError> {
        let raw: RawMutationFile = yaml::parse_with_column(file, text)?;
        let source = YamlPath { file, text };
        let read =
            |(name, raw): &(String, RawMutation)| MutationSource { source, name, raw, ladders }.mutation();
        Ok(Self(raw.mutations.0.iter().map(read).collect::<Result<_, _>>()?))
    }

    /// Every mutation, in the order of the file.
    #[must_use]
    pub fn all(&self) -> &[Mutation] {
        &self.0
    }

    /// The mutation of a name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Mutation> {
        self.0.iter().find(|mutation| mutation.name == name)
    }
}

/// One mutation as it is written, and where.
struct MutationSource<'a> {
    source: YamlPath<'a>,
    name: &'a str,
    raw: &'a RawMutation,
    ladders: &'a LadderValues,
}

impl MutationSource<'_> {
    fn error(&self, key: &str, needle: &str, why: &str, hint: &str) -> YamlError {
        let problem = format!("mutation `{}`: {why}", self.name);
        self.source.error(&["mutations", self.name, key], needle, &problem, hint)
    }

    fn mutation(&self) -> Result<Mutation, YamlError> {
        let kernels = self.raw.kernels.iter().map(|kernel| {
            KernelName::new(kernel).map_err(|error| self.error("kernels", kernel, &error.to_string(), HINT))
        });
        let change = self.change()?;
        let is_beside =
            matches!(change, MutationChange::Multiples(_) | MutationChange::Bytes(_) | MutationChange::Cores);
        if self.raw.steps.is_some() && !is_beside {
            let why = "`steps:` go with `multiples:`, `bytes:` and `cores:`";
            return Err(self.error("steps", "", why, HINT));
        }
        let of_dimensions =
            is_beside || matches!(change, MutationChange::Factors(_) | MutationChange::Values(_));
        if !self.raw.roles.is_empty() && !of_dimensions {
            let why = "`roles:` go with what changes a dimension";
            return Err(self.error("roles", "", why, HINT));
        }
        Ok(Mutation {
            name: self.name.to_owned(),
            summary: self.raw.summary.clone(),
            kernels: kernels.collect::<Result<_, _>>()?,
            roles: self.raw.roles.clone(),
            steps: self.raw.steps.clone().unwrap_or_else(|| vec![-1, 0, 1]),
            change,
        })
    }

    /// The one change that it says.
    fn change(&self) -> Result<MutationChange, YamlError> {
        let raw = self.raw;
        let mut found: Vec<MutationChange> = Vec::new();
        if let Some(factors) = &raw.factors {
            let factors = factors.iter().map(|factor| self.factor(factor));
            found.push(MutationChange::Factors(factors.collect::<Result<_, _>>()?));
        }
        for (key, items, change) in [
            ("multiples", &raw.multiples, MutationChange::Multiples as fn(Vec<u64>) -> MutationChange),
            ("bytes", &raw.bytes, MutationChange::Bytes),
            ("block_sizes", &raw.block_sizes, MutationChange::BlockSizes),
        ] {
            if let Some(items) = items {
                found.push(change(self.numbers(key, items)?));
            }
        }
        match &raw.values {
            Some(Value::Sequence(items)) => {
                found.push(MutationChange::Values(self.numbers("values", items)?));
            }
            Some(Value::String(ladder)) => {
                let values = self.ladders.get(ladder).ok_or_else(|| {
                    let names = self.ladders.keys().map(String::as_str);
                    let hint = did_you_mean_or(ladder, names, || HINT.to_owned());
                    self.error("values", ladder, &format!("there is no ladder `{ladder}`"), &hint)
                })?;
                found.push(MutationChange::Values(
                    values.iter().filter_map(|value| (*value).try_into().ok()).collect(),
                ));
            }
            Some(_) => return Err(self.error("values", "", "`values:` is a list or a ladder's name", HINT)),
            None => {}
        }
        found.extend(raw.last_block.clone().map(MutationChange::LastBlock));
        if let Some(types) = &raw.types {
            let known = |name: &str| Dtype::parse(name).filter(|dtype| dtype.bytes().is_some());
            let names: Vec<&str> = Dtype::known_names().collect();
            found.push(MutationChange::Types(self.pairs("types", types, known, &names)?));
        }
        if let Some(formats) = &raw.formats {
            let known = |name: &str| TensorFormat::parse(name).filter(|_| FORMATS.contains(&name));
            found.push(MutationChange::Formats(self.pairs("formats", formats, known, &FORMATS)?));
        }
        for (key, said, change) in [
            ("cores", raw.cores, MutationChange::Cores),
            ("quantised", raw.quantised, MutationChange::Quantised),
            ("transposed", raw.transposed, MutationChange::Transposed),
        ] {
            match said {
                Some(true) => found.push(change),
                Some(false) => {
                    let hint = "leave the mutation out where it is not wanted";
                    return Err(self.error(
                        key,
                        "false",
                        &format!("`{key}:` is `true` or is not there"),
                        hint,
                    ));
                }
                None => {}
            }
        }
        match (found.pop(), found.is_empty()) {
            (Some(change), true) => Ok(change),
            (last, _) => {
                let why = if last.is_some() { "changes several things" } else { "changes nothing" };
                let hint = "it has one of `factors:`, `multiples:`, `bytes:`, `cores:`, `values:`, `block_sizes:`, \
                            `last_block:`, `types:`, `formats:`, `quantised:`, `transposed:`";
                Err(self.error("", "", why, hint))
            }
        }
    }

    fn numbers(&self, key: &str, items: &[Value]) -> Result<Vec<u64>, YamlError> {
        let values = ladder::values(items)
            .map_err(|(needle, why)| self.error(key, &needle, &format!("`{key}:` {why}"), HINT))?;
        Ok(values.into_iter().filter_map(|value| value.try_into().ok()).collect())
    }

    /// `3`, or `3/2`.
    fn factor(&self, value: &Value) -> Result<(u64, u64), YamlError> {
        let text = yaml::scalar(value).unwrap_or_default();
        let (times, over) = text.split_once('/').unwrap_or((&text, "1"));
        match (times.trim().parse(), over.trim().parse()) {
            (Ok(times @ 1..=1_000_000), Ok(over @ 1..=1_000_000)) if times != over => Ok((times, over)),
            _ => {
                let why = format!("`{text}` is no factor such as `2`, `1/2` or `3/2`");
                Err(self.error("factors", &text, &why, HINT))
            }
        }
    }

    fn pairs<T: Ord + Clone>(
        &self,
        key: &str,
        pairs: &BTreeMap<String, String>,
        known: impl Fn(&str) -> Option<T>,
        words: &[&str],
    ) -> Result<BTreeMap<T, T>, YamlError> {
        let one = |name: &String| {
            known(name).ok_or_else(|| {
                let hint = did_you_mean_or(name, words.iter().copied(), || {
                    format!("there are {}", words.join(", "))
                });
                self.error(key, name, &format!("`{name}` is none of the {key}"), &hint)
            })
        };
        pairs.iter().map(|(from, to)| Ok((one(from)?, one(to)?))).collect()
    }
}
