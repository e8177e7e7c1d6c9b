//! The file of mutations, `grids/mutations.yaml`: changes of existing cases.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;

use super::{
    pattern::{FORMATS, HINT, LadderValues},
    segment::ladder_values,
};
use crate::{
    base::{
        assets::AssetFiles,
        suggest::{did_you_mean_one_of, did_you_mean_or},
        yaml::{self, Location, Spanned, YamlError, YamlMap, YamlNode},
    },
    kernel::{Dtype, KernelName, TensorFormat, catalogue::DimensionRole},
};

pub(crate) const FILE: &str = "mutations.yaml";

#[derive(Clone, Debug)]
pub struct Mutation {
    pub name: String,
    /// The kernels whose cases the mutation changes; all if empty.
    pub(crate) kernels: Vec<KernelName>,
    /// Roles of the dimensions that the mutation changes; if empty, all except fixed ones.
    pub(crate) roles: Vec<DimensionRole>,
    /// Distances of the changed values from a boundary.
    pub(crate) steps: Vec<i64>,
    pub change: MutationChange,
}

const BEFORE_CASE: &str = " of ";

impl Mutation {
    /// Returns the origin of a mutant: the start of its provenance, which does not depend on the case or the seed.
    pub(crate) fn origin(&self, what: &str, change: &str) -> String {
        let change = if change.is_empty() { String::new() } else { format!(" {change}") };
        format!("{}{what}{change}", self.origin_prefix())
    }

    pub(crate) fn provenance(&self, what: &str, change: &str, case: &str, seed: u64) -> String {
        format!("{}{BEFORE_CASE}{case}, seed {seed}", self.origin(what, change))
    }

    pub fn origin_in(provenance: &str) -> &str {
        provenance.rsplit_once(BEFORE_CASE).map_or(provenance, |(origin, _)| origin)
    }

    pub(crate) fn changed_in<'a>(&self, origin: &'a str) -> Option<&'a str> {
        origin.strip_prefix(&self.origin_prefix())
    }

    fn origin_prefix(&self) -> String {
        format!("mutation {}: ", self.name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MutationChange {
    /// A dimension, multiplied by numerator over denominator.
    Factors(Vec<(u64, u64)>),
    /// A dimension, changed to near multiples of these numbers of elements.
    Multiples(Vec<u64>),
    /// A dimension along rows, changed to near multiples of these numbers of bytes.
    Bytes(Vec<u64>),
    /// A dimension, changed to near multiples of the number of the device's cores.
    Cores,
    Values(Vec<u64>),
    BlockSizes(Vec<u64>),
    /// The lengths of paged sequences, changed to whole blocks plus these numbers of tokens.
    LastBlock(Vec<i64>),
    Types(BTreeMap<Dtype, Dtype>),
    Formats(BTreeMap<TensorFormat, TensorFormat>),
    /// Replaces the call by the form or the kernel that computes the same in INT8.
    Quantised,
    /// Replaces the call by the form with transposed weights.
    Transposed,
}

#[derive(Clone, Debug)]
pub struct MutationFile(Vec<Mutation>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMutationFile {
    #[serde(rename = "summary")]
    _summary: String,
    mutations: YamlMap<RawMutation>,
}

type RawNumbers = Spanned<Vec<Spanned<YamlNode>>>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawMutation {
    #[serde(rename = "summary")]
    _summary: Option<String>,
    kernels: Vec<Spanned<String>>,
    roles: Option<Spanned<Vec<DimensionRole>>>,
    steps: Option<Spanned<Vec<i64>>>,
    factors: Option<Vec<Spanned<String>>>,
    multiples: Option<RawNumbers>,
    bytes: Option<RawNumbers>,
    cores: Option<Spanned<bool>>,
    values: Option<Spanned<YamlNode>>,
    block_sizes: Option<RawNumbers>,
    last_block: Option<Vec<i64>>,
    types: Option<YamlMap<Spanned<String>>>,
    formats: Option<YamlMap<Spanned<String>>>,
    quantised: Option<Spanned<bool>>,
    transposed: Option<Spanned<bool>>,
}

impl MutationFile {
    pub fn load(assets: &AssetFiles) -> Result<Self, YamlError> {
        let mut files = assets.grids()?;
        let ladders = super::take_shared_ladders(&mut files)?;
        let file = files.remove(FILE);
        file.map_or(Ok(Self(Vec::new())), |asset| Self::parse_file(&asset.path, &asset.text, &ladders))
    }

    pub fn parse(file: &Path, text: &str) -> Result<Self, YamlError> {
        Self::parse_file(file, text, &LadderValues::new())
    }

    fn parse_file(file: &Path, text: &str, ladders: &LadderValues) -> Result<Self, YamlError> {
        let raw: RawMutationFile = yaml::parse(file, text)?;
        let mutations =
            raw.mutations.iter().map(|(name, raw)| MutationSource { file, name, raw, ladders }.build());
        Ok(Self(mutations.collect::<Result<_, _>>()?))
    }

    pub fn all(&self) -> &[Mutation] {
        &self.0
    }

    pub fn named(&self, name: &str) -> Option<&Mutation> {
        self.0.iter().find(|mutation| mutation.name == name)
    }
}

struct MutationSource<'a> {
    file: &'a Path,
    name: &'a Spanned<String>,
    raw: &'a RawMutation,
    ladders: &'a LadderValues,
}

impl MutationSource<'_> {
    fn error(&self, position: Location, why: &str, hint: &str) -> YamlError {
        YamlError::at(self.file, position, &format!("mutation `{}`: {why}", self.name.value), hint)
    }

    fn build(&self) -> Result<Mutation, YamlError> {
        let kernels = self.raw.kernels.iter().map(|kernel| {
            KernelName::new(&kernel.value)
                .map_err(|error| self.error(kernel.defined, &error.to_string(), HINT))
        });
        let change = self.parse_change()?;
        let has_steps =
            matches!(change, MutationChange::Multiples(_) | MutationChange::Bytes(_) | MutationChange::Cores);
        if let Some(steps) = self.raw.steps.as_ref().filter(|_| !has_steps) {
            let why = "`steps:` is allowed with `multiples:`, `bytes:` and `cores:` only";
            return Err(self.error(steps.defined, why, HINT));
        }
        let has_roles = has_steps || matches!(change, MutationChange::Factors(_) | MutationChange::Values(_));
        let roles = self.raw.roles.as_ref();
        if let Some(roles) = roles.filter(|roles| !roles.value.is_empty() && !has_roles) {
            let why = "`roles:` is allowed only with a change of a dimension";
            return Err(self.error(roles.defined, why, HINT));
        }
        let steps = self.raw.steps.as_ref();
        Ok(Mutation {
            name: self.name.value.clone(),
            kernels: kernels.collect::<Result<_, _>>()?,
            roles: roles.map_or_else(Vec::new, |roles| roles.value.clone()),
            steps: steps.map_or_else(|| vec![-1, 0, 1], |steps| steps.value.clone()),
            change,
        })
    }

    fn parse_change(&self) -> Result<MutationChange, YamlError> {
        let raw = self.raw;
        let mut changes: Vec<MutationChange> = Vec::new();
        if let Some(factors) = &raw.factors {
            let factors = factors.iter().map(|factor| self.parse_factor(factor));
            changes.push(MutationChange::Factors(factors.collect::<Result<_, _>>()?));
        }
        for (key, items, change) in [
            ("multiples", &raw.multiples, MutationChange::Multiples as fn(Vec<u64>) -> MutationChange),
            ("bytes", &raw.bytes, MutationChange::Bytes),
            ("block_sizes", &raw.block_sizes, MutationChange::BlockSizes),
        ] {
            if let Some(items) = items {
                changes.push(change(self.parse_numbers(key, &items.value, items.defined)?));
            }
        }
        if let Some(Spanned { value, defined, .. }) = &raw.values {
            let values = match value {
                YamlNode::List(items) => self.parse_numbers("values", items, *defined)?,
                YamlNode::Scalar(ladder) => {
                    let values = self.ladders.get(ladder).ok_or_else(|| {
                        let names = self.ladders.keys().map(String::as_str);
                        let hint = did_you_mean_or(ladder, names, || HINT.to_owned());
                        self.error(*defined, &format!("the ladder `{ladder}` is not declared"), &hint)
                    })?;
                    values.iter().filter_map(|value| (*value).try_into().ok()).collect()
                }
                YamlNode::Map(_) => {
                    return Err(self.error(*defined, "`values:` is a list or a ladder's name", HINT));
                }
            };
            changes.push(MutationChange::Values(values));
        }
        changes.extend(raw.last_block.clone().map(MutationChange::LastBlock));
        if let Some(types) = &raw.types {
            let parse = |name: &str| Dtype::parse(name).filter(|dtype| dtype.bytes().is_some());
            let names: Vec<&str> = Dtype::known_names().collect();
            changes.push(MutationChange::Types(self.parse_pairs("types", types, parse, &names)?));
        }
        if let Some(formats) = &raw.formats {
            let parse = |name: &str| TensorFormat::parse(name).filter(|_| FORMATS.contains(&name));
            changes.push(MutationChange::Formats(self.parse_pairs("formats", formats, parse, &FORMATS)?));
        }
        for (key, flag, change) in [
            ("cores", &raw.cores, MutationChange::Cores),
            ("quantised", &raw.quantised, MutationChange::Quantised),
            ("transposed", &raw.transposed, MutationChange::Transposed),
        ] {
            let Some(flag) = flag else { continue };
            if !flag.value {
                let why = format!("`{key}:` can only be `true`");
                return Err(self.error(flag.defined, &why, "remove the mutation if it is not wanted"));
            }
            changes.push(change);
        }
        match (changes.pop(), changes.is_empty()) {
            (Some(change), true) => Ok(change),
            (last, _) => {
                let why = if last.is_some() { "has several changes" } else { "has no change" };
                let hint = "give one of `factors:`, `multiples:`, `bytes:`, `cores:`, `values:`, `block_sizes:`, \
                            `last_block:`, `types:`, `formats:`, `quantised:`, `transposed:`";
                Err(self.error(self.name.defined, why, hint))
            }
        }
    }

    fn parse_numbers(
        &self,
        key: &str,
        items: &[Spanned<YamlNode>],
        place: Location,
    ) -> Result<Vec<u64>, YamlError> {
        let values = ladder_values(items, place)
            .map_err(|(position, why)| self.error(position, &format!("`{key}:` {why}"), HINT))?;
        Ok(values.into_iter().filter_map(|value| value.try_into().ok()).collect())
    }

    fn parse_factor(&self, text: &Spanned<String>) -> Result<(u64, u64), YamlError> {
        let (numerator, denominator) = text.value.split_once('/').unwrap_or((&text.value, "1"));
        match (numerator.trim().parse(), denominator.trim().parse()) {
            (Ok(numerator @ 1..=1_000_000), Ok(denominator @ 1..=1_000_000)) if numerator != denominator => {
                Ok((numerator, denominator))
            }
            _ => {
                let why = format!("`{}` is not a factor such as `2`, `1/2` or `3/2`", text.value);
                Err(self.error(text.defined, &why, HINT))
            }
        }
    }

    fn parse_pairs<T: Ord>(
        &self,
        key: &str,
        pairs: &YamlMap<Spanned<String>>,
        parse: impl Fn(&str) -> Option<T>,
        known: &[&str],
    ) -> Result<BTreeMap<T, T>, YamlError> {
        let parse_one = |name: &Spanned<String>| {
            parse(&name.value).ok_or_else(|| {
                let list = format!("the {key} are");
                let hint = did_you_mean_one_of(&name.value, known.iter().copied(), &list);
                self.error(name.defined, &format!("`{}` is not one of the {key}", name.value), &hint)
            })
        };
        pairs.iter().map(|(from, to)| Ok((parse_one(from)?, parse_one(to)?))).collect()
    }
}
