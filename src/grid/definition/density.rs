//! The density standard, `grids/density.yaml`: how close together the values of an axis must lie, and how the
//! axes of a kernel are read from its cases.
//!
//! Values are expressions over the names of the catalogue's shape rule, so that a row counts in whatever rank and
//! orientation it was profiled. What is missing is worked out by the module `grid`.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;

use super::{LadderSegment, SegmentSpacing, pattern::HINT, raw::OrderedMap};
use crate::{
    catalogue::{Catalogue, CatalogueEntry, Expr, NotReplayable},
    config::{AssetFiles, YamlError, device_profile::from_assets, locate::YamlPath, yaml},
    domain::{Case, KernelName, did_you_mean_or},
};

/// The file's name among the grids.
pub(crate) const FILE: &str = "density.yaml";

/// A segment that asks for more points than this asks for nothing that anybody would measure.
const MOST: usize = 1 << 16;

/// How dense the values of an axis must be.
#[derive(Clone, Debug, PartialEq)]
pub struct DensityStandard {
    /// Its name, such as `rows`.
    pub name: String,
    /// Ascending; each begins where the one in front of it ends. None where only points are required.
    pub segments: Vec<LadderSegment>,
    /// Points that must be there besides, ascending.
    pub required: Vec<i64>,
}

/// One axis of a kernel, as cases tell it.
#[derive(Clone, Debug)]
pub struct AuditedAxis {
    /// Its name, as grids name it.
    pub name: String,
    /// How dense it must be.
    pub standard: DensityStandard,
    value: Expr,
    in_form: BTreeMap<String, Expr>,
    /// Names and values of what stays the same where the axis is judged for each of them by itself, such as the
    /// weight of a product; none where it is judged over all cases only.
    for_each: Vec<(String, Expr)>,
}

/// The file.
#[derive(Clone, Debug)]
pub struct DensityFile {
    kernels: BTreeMap<KernelName, Vec<AuditedAxis>>,
}

/// What an axis is in one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisPoint {
    /// Its value.
    pub value: i64,
    /// What stays the same, where the axis is judged for each of them.
    pub group: Vec<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(rename = "summary")]
    _summary: String,
    standards: OrderedMap<RawStandard>,
    kernels: OrderedMap<RawReading>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStandard {
    #[serde(rename = "summary")]
    _summary: Option<String>,
    #[serde(default)]
    segments: Vec<String>,
    #[serde(default)]
    required: Vec<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawReading {
    kernels: Vec<String>,
    axes: OrderedMap<RawAxis>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAxis {
    standard: String,
    value: serde_yaml::Value,
    #[serde(default)]
    in_form: BTreeMap<String, serde_yaml::Value>,
    #[serde(default)]
    for_each: OrderedMap<serde_yaml::Value>,
}

impl DensityFile {
    /// Reads the file.
    ///
    /// # Errors
    /// [`YamlError`] where it is wrong, or speaks of kernels, forms or names that the catalogue does not have.
    pub fn load(assets: &AssetFiles, catalogue: &Catalogue) -> Result<Self, YamlError> {
        let mut files = assets.grids().map_err(|error| from_assets(&error))?;
        // It is built in, so that it is always there.
        let (path, text) = files.remove(FILE).map(|asset| (asset.path, asset.text)).unwrap_or_default();
        Self::parse(&path, &text, catalogue)
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// As [`DensityFile::load`].
    pub fn parse(file: &Path, text: &str, catalogue: &Catalogue) -> Result<Self, YamlError> {
        let raw: RawFile = yaml::parse_with_column(file, text)?;
        let reader = DensityReader { source: YamlPath { file, text }, catalogue };
        let standards = raw.standards.0.iter().map(|(name, raw)| reader.standard(name, raw));
        let standards: Vec<DensityStandard> = standards.collect::<Result<_, _>>()?;
        let mut kernels = BTreeMap::new();
        for (name, reading) in &raw.kernels.0 {
            for kernel in &reading.kernels {
                let (kernel, entry) = reader.entry(name, kernel)?;
                let axes = reading.axes.0.iter().map(|(axis, raw)| {
                    let place =
                        AxisPosition { reader: &reader, keys: ["kernels", name, "axes", axis], entry };
                    place.axis(axis, raw, &standards)
                });
                let axes: Vec<AuditedAxis> = axes.collect::<Result<_, _>>()?;
                if kernels.insert(kernel.clone(), axes).is_some() {
                    let (kernel, problem) = (kernel.as_str(), format!("`{kernel}` is read twice"));
                    let hint = "a kernel stands in one place of `kernels:`";
                    return Err(reader.source.error(&["kernels", name, "kernels"], kernel, &problem, hint));
                }
            }
        }
        Ok(Self { kernels })
    }

    /// The axes of a kernel, under its own name or that of its entry; none where the standard does not speak of it.
    #[must_use]
    pub fn axes(&self, kernel: &KernelName, entry: &CatalogueEntry) -> &[AuditedAxis] {
        let axes = self.kernels.get(kernel).or_else(|| self.kernels.get(&entry.kernel));
        axes.map_or(&[], Vec::as_slice)
    }
}

impl AuditedAxis {
    /// What stays the same where the axis is judged for each of them by itself.
    pub fn group_names(&self) -> impl Iterator<Item = &str> {
        self.for_each.iter().map(|(name, _)| name.as_str())
    }
}

impl CatalogueEntry {
    /// The points of the axes that a case has; `None` for an axis that its form does not have.
    ///
    /// # Errors
    /// As [`CatalogueEntry::read`].
    pub fn axis_points<'a>(
        &self,
        case: &Case,
        axes: impl Iterator<Item = &'a AuditedAxis>,
    ) -> Result<Vec<Option<AxisPoint>>, NotReplayable> {
        let (form, names) = self.bound_names(case)?;
        let points = axes.map(|axis| {
            let value = axis.in_form.get(form).unwrap_or(&axis.value).evaluate_number(&names).ok()?;
            // What a form does not have, such as a batch, is 1.
            let group = axis.for_each.iter().map(|(_, expr)| expr.evaluate_number(&names).unwrap_or(1));
            Some(AxisPoint { value, group: group.collect() })
        });
        Ok(points.collect())
    }
}

struct DensityReader<'a> {
    source: YamlPath<'a>,
    catalogue: &'a Catalogue,
}

impl<'a> DensityReader<'a> {
    fn standard(&self, name: &str, raw: &RawStandard) -> Result<DensityStandard, YamlError> {
        let wrong = |needle: &str, why: String, hint: &str| {
            let problem = format!("standard `{name}`: {why}");
            self.source.error(&["standards", name], needle, &problem, hint)
        };
        let mut segments: Vec<LadderSegment> = Vec::new();
        for text in &raw.segments {
            let segment = LadderSegment::parse(text);
            let segment = segment.map_err(|why| wrong(text, format!("`{text}` {why}"), HINT))?;
            if segment.from == segment.to || segment.align.is_some() {
                let why = format!("`{text}` is no part of a standard");
                return Err(wrong(text, why, "write `FROM..TO` with a greater end, and no `align`"));
            }
            if let Some(before) = segments.last().filter(|before| before.to != segment.from) {
                let why =
                    format!("`{text}` begins at {}, the one in front ends at {}", segment.from, before.to);
                return Err(wrong(text, why, "let each segment begin where the one in front of it ends"));
            }
            if segment.values(MOST).len() > MOST {
                let why = format!("`{text}` has more than {MOST} values");
                return Err(wrong(text, why, "widen its gap: a lookup needs no point for each number"));
            }
            segments.push(segment);
        }
        if let Some(point) = raw.required.iter().find(|point| **point < 1) {
            return Err(wrong(&point.to_string(), format!("`{point}` is no value of an axis"), HINT));
        }
        if segments.is_empty() && raw.required.is_empty() {
            return Err(wrong("", "asks for nothing".to_owned(), "give it `segments:` or `required:`"));
        }
        let mut required = raw.required.clone();
        required.sort_unstable();
        required.dedup();
        Ok(DensityStandard { name: name.to_owned(), segments, required })
    }

    fn entry(&self, reading: &str, kernel: &str) -> Result<(KernelName, &'a CatalogueEntry), YamlError> {
        let name = KernelName::new(kernel).ok();
        let entry = name.and_then(|name| Some((name.clone(), self.catalogue.entry(&name)?)));
        entry.ok_or_else(|| {
            let known = self.catalogue.entries().flat_map(CatalogueEntry::names);
            let hint = did_you_mean_or(kernel, known, || "`npubench kernels` lists the catalogue".to_owned());
            let problem = format!("`{kernel}` is no kernel of the catalogue");
            self.source.error(&["kernels", reading, "kernels"], kernel, &problem, &hint)
        })
    }
}

/// Where an axis of a kernel stands.
struct AxisPosition<'a> {
    reader: &'a DensityReader<'a>,
    keys: [&'a str; 4],
    entry: &'a CatalogueEntry,
}

impl AxisPosition<'_> {
    fn error(&self, needle: &str, problem: &str, hint: &str) -> YamlError {
        let problem = format!("axis `{}` of {}: {problem}", self.keys[3], self.entry.kernel);
        self.reader.source.error(&self.keys, needle, &problem, hint)
    }

    fn axis(
        &self,
        name: &str,
        raw: &RawAxis,
        standards: &[DensityStandard],
    ) -> Result<AuditedAxis, YamlError> {
        let standard = standards.iter().find(|standard| standard.name == raw.standard).ok_or_else(|| {
            let known = standards.iter().map(|standard| standard.name.as_str());
            let hint = did_you_mean_or(&raw.standard, known, || "declare it under `standards:`".to_owned());
            self.error(&raw.standard, &format!("there is no standard `{}`", raw.standard), &hint)
        })?;
        let forms = || self.entry.forms.iter().map(|form| form.rule.name.as_str());
        let in_form = raw.in_form.iter().map(|(form, value)| {
            if !forms().any(|known| known == form) {
                let hint =
                    did_you_mean_or(form, forms(), || "its file in op_replay names its forms".to_owned());
                return Err(self.error(form, &format!("there is no form `{form}`"), &hint));
            }
            Ok((form.clone(), self.expr(value)?))
        });
        let for_each = raw.for_each.0.iter().map(|(name, value)| Ok((name.clone(), self.expr(value)?)));
        Ok(AuditedAxis {
            name: name.to_owned(),
            standard: standard.clone(),
            value: self.expr(&raw.value)?,
            in_form: in_form.collect::<Result<_, _>>()?,
            for_each: for_each.collect::<Result<_, YamlError>>()?,
        })
    }

    /// An expression whose names some form of the entry knows.
    fn expr(&self, value: &serde_yaml::Value) -> Result<Expr, YamlError> {
        let text =
            yaml::scalar(value).ok_or_else(|| self.error("", "has a value that is no expression", HINT))?;
        let expr = Expr::parse(&text).map_err(|error| self.error(&text, &error.to_string(), HINT))?;
        let known = self.entry.bindable_names();
        if let Some(unknown) = expr.variable_names().into_iter().find(|name| !known.contains(*name)) {
            let hint = did_you_mean_or(unknown, known.iter().copied(), || {
                format!("its shape rule has {}", known.iter().copied().collect::<Vec<_>>().join(", "))
            });
            return Err(self.error(&text, &format!("`{unknown}` in `{text}` stands for nothing"), &hint));
        }
        Ok(expr)
    }
}

impl DensityStandard {
    /// The least and the greatest value that it speaks of; `None` where it only requires points.
    #[must_use]
    pub fn ends(&self) -> Option<(i64, i64)> {
        Some((self.segments.first()?.from, self.segments.last()?.to))
    }

    /// What forbids two neighbours without a value between them: each segment that the gap reaches into is
    /// asked. Numbers that follow each other are always close enough.
    #[must_use]
    pub fn forbids(&self, from: i64, to: i64) -> Option<SegmentSpacing> {
        if to <= from.saturating_add(1) {
            return None;
        }
        let touched = self.segments.iter().filter(|segment| from < segment.to && to > segment.from);
        touched.map(|segment| segment.pace).find(|pace| !pace.allows(from, to))
    }
}
