//! The density standard, `grids/density.yaml`: the required spacing of the values of an axis, as expressions over the
//! names of the catalogue's shape rule, so that a row counts in whatever rank and orientation it was profiled.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::Deserialize;

use super::{LadderSegment, SegmentSpacing, pattern::HINT};
use crate::{
    base::{
        assets::AssetFiles,
        suggest::{did_you_mean_one_of, did_you_mean_or},
        yaml::{self, Location, Spanned, YamlError, YamlMap},
    },
    kernel::{
        Case, KernelName,
        catalogue::{Catalogue, CatalogueEntry, NotReplayable},
        expression::Expr,
    },
};

pub(crate) const FILE: &str = "density.yaml";

const MAX_POINTS: usize = 1 << 16;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DensityStandard {
    pub(crate) name: String,
    /// Ascending; each starts at the end of the one before it. Empty if only points are required.
    pub(crate) segments: Vec<LadderSegment>,
    pub(crate) required: Vec<i64>,
}

#[derive(Clone, Debug)]
pub(crate) struct AuditedAxis {
    pub(crate) name: String,
    pub(crate) standard: DensityStandard,
    value: Expr,
    in_form: BTreeMap<String, Expr>,
    /// Fixed values of a group, such as the weight of a product; empty if the axis is audited over all cases.
    for_each: Vec<(String, Expr)>,
}

#[derive(Clone, Debug)]
pub struct DensityFile {
    kernels: BTreeMap<KernelName, Vec<AuditedAxis>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AxisPoint {
    pub(crate) value: i64,
    pub(crate) group: Vec<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDensityFile {
    #[serde(rename = "summary")]
    _summary: String,
    standards: YamlMap<RawStandard>,
    kernels: YamlMap<RawKernelGroup>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStandard {
    #[serde(rename = "summary")]
    _summary: Option<String>,
    #[serde(default)]
    segments: Vec<Spanned<String>>,
    #[serde(default)]
    required: Vec<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawKernelGroup {
    kernels: Vec<Spanned<String>>,
    axes: YamlMap<RawAxis>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAxis {
    standard: Spanned<String>,
    value: Spanned<Expr>,
    #[serde(default)]
    in_form: YamlMap<Spanned<Expr>>,
    #[serde(default)]
    for_each: YamlMap<Spanned<Expr>>,
}

impl DensityFile {
    /// Reads the file. Kernels, forms and names that the catalogue lacks are errors.
    pub(crate) fn load(assets: &AssetFiles, catalogue: &Catalogue) -> Result<Self, YamlError> {
        let mut files = assets.grids()?;
        let asset = files.remove(FILE).expect("the file is embedded");
        Self::parse(&asset.path, &asset.text, catalogue)
    }

    pub fn parse(file: &Path, text: &str, catalogue: &Catalogue) -> Result<Self, YamlError> {
        let raw: RawDensityFile = yaml::parse_with_hint(file, text, HINT)?;
        let standards = raw.standards.iter().map(|(name, raw)| parse_standard(file, name, raw));
        let standards: Vec<DensityStandard> = standards.collect::<Result<_, _>>()?;
        let mut kernels = BTreeMap::new();
        for group in raw.kernels.values() {
            for named in &group.kernels {
                let kernel = KernelName::new(&named.value).ok();
                let entry = kernel.and_then(|kernel| Some((catalogue.entry(&kernel)?, kernel)));
                let (entry, kernel) = entry.ok_or_else(|| {
                    let hint = did_you_mean_or(&named.value, catalogue.kernel_names(), || {
                        "`npubench kernels` lists the catalogue".to_owned()
                    });
                    let problem = format!("`{}` is not a kernel of the catalogue", named.value);
                    YamlError::at(file, named.defined, &problem, &hint)
                })?;
                let axes = group
                    .axes
                    .iter()
                    .map(|(name, raw)| parse_axis((file, entry), &name.value, raw, &standards));
                let axes: Vec<AuditedAxis> = axes.collect::<Result<_, _>>()?;
                if kernels.insert(kernel, axes).is_some() {
                    let problem = format!("`{}` is listed twice", named.value);
                    let hint = "list a kernel once below `kernels:`";
                    return Err(YamlError::at(file, named.defined, &problem, hint));
                }
            }
        }
        Ok(Self { kernels })
    }

    /// Returns the axes of a kernel, declared under its own name or its entry's; none if it is not declared.
    pub(crate) fn axes(&self, kernel: &KernelName, entry: &CatalogueEntry) -> &[AuditedAxis] {
        let axes = self.kernels.get(kernel).or_else(|| self.kernels.get(&entry.kernel));
        axes.map_or(&[], Vec::as_slice)
    }
}

impl AuditedAxis {
    pub(crate) fn group_names(&self) -> impl Iterator<Item = &str> {
        self.for_each.iter().map(|(name, _)| name.as_str())
    }
}

impl CatalogueEntry {
    /// Returns the points of a case on the axes; `None` for an axis that its form lacks.
    pub(crate) fn axis_points(
        &self,
        case: &Case,
        axes: &[AuditedAxis],
    ) -> Result<Vec<Option<AxisPoint>>, NotReplayable> {
        let (form, names) = self.bound_names(case)?;
        let points = axes.iter().map(|axis| {
            let value = axis.in_form.get(form).unwrap_or(&axis.value).evaluate_number(&names).ok()?;
            // A name that the form lacks, such as a batch, counts as 1.
            let group = axis.for_each.iter().map(|(_, expr)| expr.evaluate_number(&names).unwrap_or(1));
            Some(AxisPoint { value, group: group.collect() })
        });
        Ok(points.collect())
    }
}

fn parse_standard(
    file: &Path,
    name: &Spanned<String>,
    raw: &RawStandard,
) -> Result<DensityStandard, YamlError> {
    let wrong = |position: Location, why: String, hint: &str| {
        YamlError::at(file, position, &format!("standard `{}`: {why}", name.value), hint)
    };
    let mut segments: Vec<LadderSegment> = Vec::new();
    for Spanned { value: text, defined, .. } in &raw.segments {
        let segment = LadderSegment::parse(text);
        let segment = segment.map_err(|why| wrong(*defined, format!("`{text}` {why}"), HINT))?;
        if segment.from == segment.to || segment.align.is_some() {
            let why = format!("`{text}` cannot be used in a standard");
            return Err(wrong(*defined, why, "write `FROM..TO` with a greater end, and no `align`"));
        }
        if let Some(before) = segments.last().filter(|before| before.to != segment.from) {
            let (from, end) = (segment.from, before.to);
            let why = format!("`{text}` starts at {from}, but the segment before it ends at {end}");
            return Err(wrong(*defined, why, "start each segment at the end of the one before it"));
        }
        if segment.values(MAX_POINTS).len() > MAX_POINTS {
            let why = format!("`{text}` has more than {MAX_POINTS} values");
            return Err(wrong(*defined, why, "widen its gap: a lookup needs no point for each number"));
        }
        segments.push(segment);
    }
    if let Some(point) = raw.required.iter().find(|point| point.value < 1) {
        let why =
            format!("`{}` is not a value of an axis, expected whole numbers of at least 1", point.value);
        return Err(wrong(point.defined, why, HINT));
    }
    if segments.is_empty() && raw.required.is_empty() {
        let why = "requires nothing".to_owned();
        return Err(wrong(name.defined, why, "give it `segments:` or `required:`"));
    }
    let required: BTreeSet<i64> = raw.required.iter().map(|point| point.value).collect();
    let required = required.into_iter().collect();
    Ok(DensityStandard { name: name.value.clone(), segments, required })
}

fn parse_axis(
    (file, entry): (&Path, &CatalogueEntry),
    axis: &str,
    raw: &RawAxis,
    standards: &[DensityStandard],
) -> Result<AuditedAxis, YamlError> {
    let error = |position: Location, problem: &str, hint: &str| {
        YamlError::at(file, position, &format!("axis `{axis}` of {}: {problem}", entry.kernel), hint)
    };
    let known = entry.bindable_names();
    let check_names = |expr: &Spanned<Expr>| {
        let names = expr.value.variable_names();
        let Some(unknown) = names.into_iter().find(|name| !known.contains(*name)) else {
            return Ok(expr.value.clone());
        };
        let hint = did_you_mean_one_of(unknown, known.iter().copied(), "its shape rule has");
        Err(error(expr.defined, &format!("`{unknown}` in `{}` is not defined", expr.value), &hint))
    };
    let wanted = &raw.standard.value;
    let standard = standards.iter().find(|standard| standard.name == *wanted).ok_or_else(|| {
        let known = standards.iter().map(|standard| standard.name.as_str());
        let hint = did_you_mean_or(wanted, known, || "declare it under `standards:`".to_owned());
        error(raw.standard.defined, &format!("the standard `{wanted}` is not declared"), &hint)
    })?;
    let forms = || entry.forms.iter().map(|form| form.rule.name.as_str());
    let in_form = raw.in_form.iter().map(|(form, value)| {
        let name = &form.value;
        if !forms().any(|known| known == name) {
            let hint = did_you_mean_or(name, forms(), || "its file in op_replay lists its forms".to_owned());
            return Err(error(form.defined, &format!("the entry has no form `{name}`"), &hint));
        }
        Ok((name.clone(), check_names(value)?))
    });
    let for_each = raw.for_each.iter().map(|(name, value)| Ok((name.value.clone(), check_names(value)?)));
    Ok(AuditedAxis {
        name: axis.to_owned(),
        standard: standard.clone(),
        value: check_names(&raw.value)?,
        in_form: in_form.collect::<Result<_, _>>()?,
        for_each: for_each.collect::<Result<_, YamlError>>()?,
    })
}

impl DensityStandard {
    pub(crate) fn ends(&self) -> Option<(i64, i64)> {
        Some((self.segments.first()?.from, self.segments.last()?.to))
    }

    /// Returns the spacing that a gap violates, of all segments that overlap it; consecutive numbers are close enough.
    pub(crate) fn forbids(&self, from: i64, to: i64) -> Option<SegmentSpacing> {
        if to <= from.saturating_add(1) {
            return None;
        }
        let touched = self.segments.iter().filter(|segment| from < segment.to && to > segment.from);
        touched.map(|segment| segment.pace).find(|pace| !pace.allows(from, to))
    }
}
