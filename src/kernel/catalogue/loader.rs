//! Loads the catalogue: the entries of all kernels that can be replayed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
};

use serde::{Deserialize, de::IgnoredAny};

use super::{
    CatalogueEntry,
    entry::{HINT, kernel_of_file},
};
use crate::{
    base::{
        assets::{AssetFile, AssetFiles},
        suggest::did_you_mean_or,
        yaml::{self, Location, Spanned, YamlError},
    },
    kernel::{Case, KernelName},
};

#[derive(Clone, Debug)]
pub struct Catalogue {
    /// Entries, parsed when they are needed: parsing all takes most of the time of a short command.
    entries: BTreeMap<String, CatalogueFile>,
    aliases: BTreeMap<String, String>,
    not_launchable: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
struct CatalogueFile {
    kernel: KernelName,
    names: Vec<Spanned<String>>,
    /// The kernel whose entry defines this one; `None` for an entry with a definition of its own.
    same_as: Option<Spanned<String>>,
    not_launchable: Option<String>,
    file: AssetFile,
    parsed: OnceLock<CatalogueEntry>,
}

#[derive(Deserialize)]
struct DeclaredNames {
    kernel: Spanned<String>,
    same_as: Option<Spanned<String>>,
    not_launchable: Option<Spanned<String>>,
    #[serde(default)]
    also_named: Vec<Spanned<String>>,
}

/// Returns the start of an embedded file with the keys of [`DeclaredNames`], so that a command does not parse all entries.
fn part_with_names(text: &str) -> &str {
    const KEYS: [&str; 4] = ["kernel:", "also_named:", "same_as:", "not_launchable:"];
    let is_other_key = |line: &str| {
        line.starts_with(|first: char| first.is_ascii_alphabetic())
            && !KEYS.iter().any(|key| line.starts_with(key))
    };
    let lines = text.split_inclusive('\n').take_while(|line| !is_other_key(line));
    &text[..lines.map(str::len).sum()]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the keys are checked, and read as DeclaredNames")]
struct FileWithoutCall {
    kernel: IgnoredAny,
    same_as: Option<IgnoredAny>,
    not_launchable: Option<IgnoredAny>,
    also_named: Option<IgnoredAny>,
}

impl CatalogueFile {
    /// Reads the names in a file. A file of the user is parsed and checked here; an embedded one, which tests have
    /// checked, when it is needed.
    fn read(file: AssetFile) -> Result<Self, YamlError> {
        let text = if file.is_built_in { part_with_names(&file.text) } else { &file.text };
        let DeclaredNames { kernel, same_as, not_launchable, also_named } = yaml::parse(&file.path, text)?;
        let mut parsed = OnceLock::new();
        if same_as.is_some() || not_launchable.is_some() {
            yaml::parse::<FileWithoutCall>(&file.path, &file.text)?;
        } else if !file.is_built_in {
            parsed = OnceLock::from(CatalogueEntry::parse(&file.path, &file.text)?);
        }
        let error = |place, problem: &str, hint| YamlError::at(&file.path, place, problem, hint);
        let name = kernel_of_file(&kernel, &file.path).map_err(|(place, text)| error(place, &text, HINT))?;
        if let Some(reason) = not_launchable.as_ref().filter(|reason| reason.value.trim().is_empty()) {
            let hint = "state why no call launches the kernel alone";
            return Err(error(reason.defined, "the reason is empty", hint));
        }
        let not_launchable = not_launchable.map(|reason| reason.value.trim().to_owned());
        let names = [kernel].into_iter().chain(also_named).collect();
        Ok(Self { kernel: name, names, same_as, not_launchable, file, parsed })
    }

    fn definition(&self) -> &str {
        self.same_as.as_ref().map_or(self.kernel.as_str(), |definition| &definition.value)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| name.value.as_str())
    }

    /// Returns the entry, parsed at the first call. `definition` is the entry of `same_as:`, where there is one.
    fn entry<'a>(&'a self, definition: Option<&'a Self>) -> &'a CatalogueEntry {
        self.parsed.get_or_init(|| match definition.map(|definition| definition.entry(None)) {
            Some(definition) => CatalogueEntry {
                kernel: self.kernel.clone(),
                also_named: self.names().skip(1).map(str::to_owned).collect(),
                defined_by: Some(definition.kernel.clone()),
                example: definition.example.clone().map(|case| Case { kernel: self.kernel.clone(), ..case }),
                file: self.file.path.clone(),
                ..definition.clone()
            },
            None => CatalogueEntry::parse(&self.file.path, &self.file.text)
                .unwrap_or_else(|error| panic!("an embedded entry is invalid: {error}")),
        })
    }

    fn check_definitions(&self, entries: &BTreeMap<String, Self>) -> Result<(), YamlError> {
        let forms = self.parsed.get().into_iter().flat_map(|entry| &entry.forms);
        let of_forms = forms.filter_map(|form| form.runs_as.as_ref());
        let of_forms = of_forms.map(|kernel| (kernel.value.as_str(), kernel.defined));
        let shared = self.same_as.iter().map(|kernel| (kernel.value.as_str(), kernel.defined));
        for (definition, place) in shared.chain(of_forms) {
            let (problem, hint) = match entries.get(definition) {
                Some(other) if other.same_as.is_none() => continue,
                Some(_) => (
                    format!("`{definition}` has `same_as:` itself, so it defines nothing"),
                    "give the kernel whose file has the definition".to_owned(),
                ),
                None => {
                    let own = entries.values().filter(|other| other.same_as.is_none());
                    let hint = did_you_mean_or(definition, own.map(|other| other.kernel.as_str()), || {
                        "`npubench kernels` lists all entries".to_owned()
                    });
                    (format!("the catalogue has no entry `{definition}`"), hint)
                }
            };
            return Err(YamlError::at(&self.file.path, place, &problem, &hint));
        }
        Ok(())
    }

    fn name_error(&self, name: &str, other: &KernelName, hint: &str) -> YamlError {
        let place = self.names.iter().find(|own| own.value == name);
        let place = place.map_or(Location::UNKNOWN, |own| own.defined);
        YamlError::at(&self.file.path, place, &format!("`{name}` is already a name of `{other}`"), hint)
    }
}

impl Catalogue {
    pub fn load(assets: &AssetFiles) -> Result<Self, YamlError> {
        let files = assets.catalogue()?.into_values().map(CatalogueFile::read);
        let (unlaunchable, files): (Vec<CatalogueFile>, Vec<CatalogueFile>) =
            files.collect::<Result<Vec<_>, _>>()?.into_iter().partition(|file| file.not_launchable.is_some());
        let by_kernel = files.into_iter().map(|file| (file.kernel.as_str().to_owned(), file));
        let entries: BTreeMap<String, CatalogueFile> = by_kernel.collect();
        entries.values().try_for_each(|entry| entry.check_definitions(&entries))?;
        let mut aliases: BTreeMap<&str, &CatalogueFile> = BTreeMap::new();
        for entry in entries.values() {
            for name in entry.names() {
                if let Some(other) = aliases.insert(name, entry) {
                    let hint =
                        "a kernel's name belongs to one entry; remove it from the other's `also_named:`";
                    return Err(entry.name_error(name, &other.kernel, hint));
                }
            }
        }
        // Files of the user replace embedded ones with the same name.
        let mut reasons: BTreeMap<&str, &CatalogueFile> = BTreeMap::new();
        for kernel in &unlaunchable {
            for name in kernel.names() {
                let other = reasons.get(name).copied();
                if let Some(other) = other.filter(|other| other.file.is_built_in == kernel.file.is_built_in) {
                    let hint = "give each name in one file with `not_launchable:` only";
                    return Err(kernel.name_error(name, &other.kernel, hint));
                }
                if other.is_none() || !kernel.file.is_built_in {
                    reasons.insert(name, kernel);
                }
            }
        }
        aliases.retain(|name, entry| {
            let is_replaced = reasons.get(name).is_some_and(|reason| !reason.file.is_built_in);
            !(entry.file.is_built_in && is_replaced)
        });
        // A name that an entry keeps, such as one of the user, can be launched.
        reasons.retain(|name, _| !aliases.contains_key(name));
        let aliases = aliases
            .into_iter()
            .map(|(name, entry)| (name.to_owned(), entry.kernel.as_str().to_owned()))
            .collect();
        let reasons = reasons.into_iter();
        let not_launchable = reasons
            .filter_map(|(name, kernel)| Some((name.to_owned(), kernel.not_launchable.clone()?)))
            .collect();
        Ok(Self { entries, aliases, not_launchable })
    }

    /// Returns the reason why no call launches a kernel alone, given by any of its names or as a numbered variant of one.
    pub fn not_launchable_reason(&self, kernel: &str) -> Option<&str> {
        let of_variant = || self.not_launchable.get(KernelName::without_variant(kernel)?);
        self.not_launchable.get(kernel).or_else(of_variant).map(String::as_str)
    }

    pub fn entry(&self, kernel: &KernelName) -> Option<&CatalogueEntry> {
        self.reference(kernel).map(|reference| self.parsed(reference))
    }

    fn reference(&self, kernel: &KernelName) -> Option<&CatalogueFile> {
        let name = kernel.as_str();
        let entry = self.aliases.get(name);
        let of_variant = || self.aliases.get(KernelName::without_variant(name)?);
        self.entries.get(entry.or_else(of_variant)?)
    }

    fn parsed<'a>(&'a self, reference: &'a CatalogueFile) -> &'a CatalogueEntry {
        reference.entry(reference.same_as.as_ref().and_then(|definition| self.entries.get(&definition.value)))
    }

    /// Returns the other entries with a definition: the kernels as which a call may run instead of `kernel`.
    fn other_references<'a>(
        &'a self,
        kernel: &'a str,
        definition: &'a str,
    ) -> impl Iterator<Item = &'a CatalogueFile> {
        let is_other =
            move |other: &&CatalogueFile| other.kernel.as_str() != kernel && other.definition() == definition;
        self.references().filter(is_other)
    }

    /// Returns the entries of the kernels as which a call with this definition may run instead of `kernel`.
    pub(crate) fn equal_entries<'a>(
        &'a self,
        kernel: &'a KernelName,
        definition: &'a KernelName,
    ) -> impl Iterator<Item = &'a CatalogueEntry> {
        self.other_references(kernel.as_str(), definition.as_str()).map(|other| self.parsed(other))
    }

    pub(crate) fn names_with_same_call(&self, kernel: &KernelName) -> Vec<KernelName> {
        let mut names = vec![kernel.clone()];
        if let Some(entry) = self.reference(kernel) {
            let others = self.other_references(entry.kernel.as_str(), entry.definition());
            let others = std::iter::once(entry).chain(others).flat_map(CatalogueFile::names);
            let others = others.filter(|name| *name != kernel.as_str());
            names.extend(others.filter_map(|name| KernelName::new(name).ok()));
        }
        names
    }

    pub(crate) fn kernel_names(&self) -> impl Iterator<Item = &str> + Clone {
        self.aliases.keys().map(String::as_str)
    }

    pub fn entries(&self) -> impl Iterator<Item = &CatalogueEntry> {
        self.references().map(|reference| self.parsed(reference))
    }

    /// Returns the entries of kernels that can be launched; others only give definitions.
    fn references(&self) -> impl Iterator<Item = &CatalogueFile> {
        self.entries.values().filter(|entry| self.aliases.contains_key(entry.kernel.as_str()))
    }

    /// Returns the entries that have a key, and maybe some that have the word elsewhere. Others are not parsed.
    pub(crate) fn entries_with_key(&self, key: &str) -> impl Iterator<Item = &CatalogueEntry> {
        let has_key = move |reference: &&CatalogueFile| {
            self.entries.get(reference.definition()).is_some_and(|entry| entry.file.text.contains(key))
        };
        self.references().filter(has_key).map(|reference| self.parsed(reference))
    }

    pub(crate) fn attribute_columns(&self) -> BTreeSet<String> {
        let forms = self.entries().flat_map(|entry| &entry.forms);
        let columns =
            forms.flat_map(|form| form.with.keys().chain(form.implied.keys()).chain(form.given_attributes()));
        columns.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(files: &[(&str, &str)]) -> Result<Catalogue, String> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("op_replay")).expect("created");
        for (name, text) in files {
            std::fs::write(folder.path().join("op_replay").join(name), text).expect("written");
        }
        let assets = AssetFiles::overlaid(folder.path()).expect("assets");
        Catalogue::load(&assets).map_err(|error| {
            let name = error.file.file_name().unwrap_or_default().to_string_lossy();
            let (line, column) = (error.line.unwrap_or(0), error.column.unwrap_or(0));
            format!("{name}:{line}:{column}: {} {}", error.problem, error.hint)
        })
    }

    #[test]
    fn every_entry_has_an_example() {
        let catalogue =
            Catalogue::load(&AssetFiles::embedded()).expect("each example is a case of its entry");
        for entry in catalogue.entries() {
            let example = entry.example.as_ref().unwrap_or_else(|| panic!("{} has no example", entry.kernel));
            assert_eq!(example.kernel, entry.kernel);
            assert!(example.bytes() < 64 << 20, "{}: {}", entry.kernel, example.shapes());
        }
    }

    #[test]
    fn examples_that_fit_no_form_are_refused() {
        let entry = |example: &str| {
            format!(
                "kernel: Double\nsummary: twice x\napi: torch.neg\nschema: \"aten::neg(Tensor self) -> Tensor\"\n\
                 unit: vector\ninputs:\n  - {{argument: self, values: activation}}\noutputs: [self]\n\
                 forms:\n  - {{name: any, shapes: \"*X -> *X\"}}\nexample: {example}\n"
            )
        };
        let wrong = |example: &str| load(&[("Double.yaml", &entry(example))]).expect_err(example);
        let fitting = "{inputs: [\"4,2 FLOAT\"], outputs: [\"4,2 FLOAT\"]}";
        assert!(load(&[("Double.yaml", &entry(fitting))]).is_ok());
        let other = wrong("{inputs: [\"4,2 FLOAT\"], outputs: [\"4,3 FLOAT\"]}");
        assert!(other.contains("the example is not a case of this entry"), "{other}");
        let unreadable = wrong("{inputs: [\"4;2 FLOAT\"], outputs: [\"4,2 FLOAT\"]}");
        assert!(unreadable.contains("is not a tensor such as"), "{unreadable}");
    }

    #[test]
    fn kernels_without_a_call_have_a_reason_unless_an_entry_replaces_it() {
        let step = "kernel: Step\nnot_launchable: a step of Sort\nalso_named: [StepAiCore]\n";
        let catalogue = load(&[("Step.yaml", step)]).expect("valid");
        let step_kernel = KernelName::new("Step").expect("a name");
        assert!(catalogue.entry(&step_kernel).is_none());
        for name in ["Step", "StepAiCore"] {
            assert_eq!(catalogue.not_launchable_reason(name), Some("a step of Sort"));
        }
        assert_eq!(catalogue.not_launchable_reason("Add"), None);
        let entry = "kernel: StepAiCore\nsame_as: MatMulV2\n";
        let replaced = load(&[("Step.yaml", step), ("StepAiCore.yaml", entry)]).expect("valid");
        assert_eq!(replaced.not_launchable_reason("StepAiCore"), None);
        let empty = load(&[("Step.yaml", "kernel: Step\nnot_launchable: \"\"\n")]).expect_err("refused");
        assert!(empty.contains("Step.yaml:2:17: the reason is empty"), "{empty}");
        let more = load(&[("Step.yaml", &format!("{step}unit: mte\n"))]).expect_err("refused");
        assert!(more.contains("unknown key `unit`"), "{more}");
    }

    #[test]
    fn reasons_of_the_user_replace_embedded_ones_and_have_one_file_per_name() {
        // Before and after the embedded file in the order of file names.
        for kernel in ["AMemory", "ZMemory"] {
            let own =
                format!("kernel: {kernel}\nnot_launchable: filled by the driver\nalso_named: [MemSet]\n");
            let catalogue = load(&[(&format!("{kernel}.yaml"), &own)]).expect("valid");
            for name in [kernel, "MemSet"] {
                assert_eq!(catalogue.not_launchable_reason(name), Some("filled by the driver"), "{name}");
            }
        }
        let file = |kernel: &str, others: &str| {
            format!("kernel: {kernel}\nnot_launchable: a step\nalso_named: [{others}]\n")
        };
        let refused = |one: &str, other: &str| {
            load(&[("StepA.yaml", one), ("StepB.yaml", other)]).expect_err("refused")
        };
        let problem = refused(&file("StepA", "Sum"), &file("StepB", "First, Sum"));
        assert!(problem.starts_with("StepB.yaml:3:21: `Sum` is already a name of `StepA`"), "{problem}");
        let problem = refused(&file("StepA", "StepB"), &file("StepB", ""));
        assert!(problem.starts_with("StepB.yaml:1:9: `StepB` is already a name of `StepA`"), "{problem}");
        let problem = refused(&file("StepA", "Sum, Sum"), &file("StepB", ""));
        assert!(problem.starts_with("StepA.yaml:3:14: `Sum` is already a name of `StepA`"), "{problem}");
    }

    /// If a reason of the user had no effect, a kernel that the user knows to be impossible would be launched again and
    /// again.
    #[test]
    fn reasons_of_the_user_replace_embedded_entries() {
        let own =
            "kernel: Sums\nnot_launchable: this host lacks it\nalso_named: [Add, MatMulCommon, MatMulV3]\n";
        let catalogue = load(&[("Sums.yaml", own)]).expect("valid");
        for name in ["Add", "MatMulCommon", "MatMulV3"] {
            assert!(catalogue.entry(&KernelName::new(name).expect("a name")).is_none(), "{name}");
            assert_eq!(catalogue.not_launchable_reason(name), Some("this host lacks it"), "{name}");
        }
        assert!(catalogue.entries().all(|entry| !["Add", "MatMulV3"].contains(&entry.kernel.as_str())));
        // Other names of the kernels keep their entries, and no call is expected to run as MatMulV3.
        let product = entry_of(&catalogue, "MatMulV2");
        assert_eq!(catalogue.equal_entries(&product.kernel, product.definition()).count(), 0);
        assert_eq!(entry_of(&catalogue, "MatMulV3Common").kernel.as_str(), "MatMulV3");
        // The definition of other kernels stays.
        let own = "kernel: Product\nnot_launchable: this host lacks it\nalso_named: [MatMulV2]\n";
        let catalogue = load(&[("Product.yaml", own)]).expect("valid");
        assert_eq!(entry_of(&catalogue, "MatMulV3").definition().as_str(), "MatMulV2");
    }

    #[test]
    fn forms_that_run_as_another_kernel_name_one_with_a_definition() {
        let entry = |kernel: &str| {
            format!(
                "kernel: Double\nsummary: twice x\napi: torch.neg\nschema: \"aten::neg(Tensor self) -> Tensor\"\n\
                 unit: vector\ninputs:\n  - {{argument: self, values: activation}}\noutputs: [self]\nforms:\n  \
                 - {{name: one, shapes: \"X -> X\"}}\n  - {{name: any, shapes: \"*X -> *X\", runs_as: {kernel}}}\n"
            )
        };
        let catalogue = load(&[("Double.yaml", &entry("Neg"))]).expect("valid");
        let double = entry_of(&catalogue, "Double");
        let kernels = double.forms.iter().map(|form| double.definition_of(form).as_str());
        assert_eq!(kernels.collect::<Vec<_>>(), ["Double", "Neg"]);
        let unknown = load(&[("Double.yaml", &entry("Negg"))]).expect_err("refused");
        assert!(unknown.starts_with("Double.yaml:11:46: the catalogue has no entry `Negg`"), "{unknown}");
        let chained = load(&[("Double.yaml", &entry("MatMulV3"))]).expect_err("refused");
        assert!(chained.contains("`MatMulV3` has `same_as:` itself"), "{chained}");
        let embedded = Catalogue::load(&AssetFiles::embedded()).expect("valid");
        for entry in embedded.entries() {
            for definition in
                entry.forms.iter().filter_map(|form| form.runs_as.as_ref().map(|kernel| &kernel.value))
            {
                assert_eq!(
                    entry_of(&embedded, definition.as_str()).definition(),
                    definition,
                    "{}",
                    entry.kernel
                );
            }
        }
    }

    #[test]
    fn a_shared_definition_is_that_of_the_named_entry() {
        let catalogue = load(&[("MyMatMul.yaml", "kernel: MyMatMul\nsame_as: MatMulV2\n")]).expect("valid");
        let entry = |name| catalogue.entry(&KernelName::new(name).expect("a name")).expect("an entry");
        let (own, shared) = (entry("MyMatMul"), entry("MatMulV2"));
        assert_eq!((own.kernel.as_str(), &own.operators), ("MyMatMul", &shared.operators));
        assert_eq!((own.forms.len(), &own.also_named), (shared.forms.len(), &Vec::new()));
        assert!(own.file.ends_with("MyMatMul.yaml"), "{}", own.file.display());
    }

    #[test]
    fn only_needed_entries_are_parsed() {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("valid");
        let parsed = |catalogue: &Catalogue| {
            let parsed = catalogue.entries.values().filter(|entry| entry.parsed.get().is_some());
            parsed.map(|entry| entry.kernel.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(parsed(&catalogue), Vec::<String>::new());
        assert_eq!(entry_of(&catalogue, "SwiGlu").kernel.as_str(), "SwiGlu");
        assert_eq!(entry_of(&catalogue, "MatMulV3").definition().as_str(), "MatMulV2");
        assert_eq!(parsed(&catalogue), ["MatMulV2", "MatMulV3", "SwiGlu"]);
        let modules = |entry: &&CatalogueEntry| !entry.needs.modules.is_empty();
        let with_modules = catalogue.entries().filter(modules).map(|entry| &entry.kernel);
        let of_key = catalogue.entries_with_key("modules").filter(modules).map(|entry| &entry.kernel);
        assert_eq!(of_key.collect::<Vec<_>>(), with_modules.collect::<Vec<_>>());
    }

    /// Names of the library functions that launch a kernel, from CANN's sources: up to CANN 8.5, profiles of captured
    /// graphs have them in place of the kernel's type.
    const LAUNCHER_NAMES: &[(&str, &[&str])] = &[
        ("AscendQuantV2", &["AscendQuantV2Aicore"]),
        ("BatchMatMulV2", &["BatchMatMulNd", "BatchMatMulNdFp162Fp32", "BatchMatMulNzFp162Fp16"]),
        ("BatchMatMulV3", &["BatchMatMulV3Nd", "BatchMatMulV3NdFp16Bf162Fp32"]),
        ("Cumsum", &["CumsumAiCore"]),
        ("GatherV2", &["GatherV2AiCore", "GatherV2WithImplModeAiCore"]),
        ("MatMulV2", &["MatMulCommon"]),
        ("MatMulV3", &["MatMulV3Common"]),
        ("Muls", &["MulsInplace"]),
        ("ReduceSum", &["ReduceSumOpAiCore"]),
        ("SliceV2", &["SliceV2AiCore"]),
        ("SoftmaxV2", &["SoftmaxAiCore"]),
        ("Sort", &["SortAiCore", "SortAiCoreForDavid"]),
        ("TransposeV2", &["TransposeV2AiCore"]),
    ];
    /// Kernels whose launching function has their name and `AiCore`.
    const LAUNCHED_AS_AI_CORE: [&str; 30] = [
        "Add",
        "AddRmsNormDynamicQuant",
        "ArgMaxV2",
        "AsStrided",
        "BroadcastTo",
        "Cast",
        "Equal",
        "Fill",
        "FloorDiv",
        "FloorMod",
        "Greater",
        "GreaterEqual",
        "Index",
        "Less",
        "Log",
        "LogicalAnd",
        "LogicalNot",
        "MaskedFill",
        "Mul",
        "Neg",
        "NotEqual",
        "Pack",
        "PadV3",
        "RealDiv",
        "ScatterNdUpdate",
        "Slice",
        "Sub",
        "TensorMove",
        "Tile",
        "Transpose",
    ];

    fn entry_of<'a>(catalogue: &'a Catalogue, name: &str) -> &'a CatalogueEntry {
        let kernel = KernelName::new(name).expect("a name");
        catalogue.entry(&kernel).unwrap_or_else(|| panic!("no entry of {name}"))
    }

    #[test]
    fn embedded_files_have_their_names_first() {
        for file in AssetFiles::embedded().catalogue().expect("embedded").into_values() {
            let [first, whole] = [part_with_names(&file.text), &file.text].map(|text| {
                let names: DeclaredNames = yaml::parse(&file.path, text).expect("valid");
                let others = [names.same_as, names.not_launchable].map(|name| name.map(|name| name.value));
                let also: Vec<String> = names.also_named.into_iter().map(|name| name.value).collect();
                (names.kernel.value, others, also)
            });
            assert_eq!(first, whole, "{}", file.path.display());
        }
    }

    #[test]
    fn names_of_launching_functions_and_variants_belong_to_their_kernel() {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("valid");
        for (kernel, names) in LAUNCHER_NAMES {
            for name in names.iter().chain([kernel]) {
                assert_eq!(entry_of(&catalogue, name).kernel.as_str(), *kernel, "{name}");
            }
        }
        for kernel in LAUNCHED_AS_AI_CORE {
            assert_eq!(entry_of(&catalogue, &format!("{kernel}AiCore")).kernel.as_str(), kernel);
        }
        let variant = entry_of(&catalogue, "split_qkv_rmsnorm_rope_kernel_7");
        assert_eq!(variant.kernel.as_str(), "split_qkv_rmsnorm_rope_kernel");
        assert!(catalogue.entry(&KernelName::new("MatMulV2_1").expect("a name")).is_none());
    }

    /// Rows under all names of a kernel, and of the kernels with its call, are equal if they differ in the name only.
    #[test]
    fn all_names_of_a_call_have_one_rule_of_signatures() {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("valid");
        for entry in catalogue.entries() {
            let Some(example) = &entry.example else { continue };
            let signature = |kernel: KernelName| {
                let signature = Case { kernel: kernel.clone(), ..example.clone() }.signature();
                signature.strip_prefix(kernel.as_str()).map(str::to_owned)
            };
            for name in catalogue.names_with_same_call(&entry.kernel) {
                assert_eq!(signature(name.clone()), signature(entry.kernel.clone()), "{name}");
            }
        }
    }

    #[test]
    fn kernels_with_one_definition_have_the_same_call() {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("valid");
        let equal = |kernel: &str| {
            let entry = entry_of(&catalogue, kernel);
            let equal = catalogue.equal_entries(&entry.kernel, entry.definition());
            equal.map(|entry| entry.kernel.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(equal("MatMulCommon"), ["MatMulV3"]);
        assert_eq!(equal("MatMulV3"), ["MatMulV2"]);
        assert_eq!(equal("BatchMatMulNd"), ["BatchMatMulV3"]);
        // One function launches two kernels: a row under its name is of the first, a replay may run as the second.
        assert_eq!(equal("ConcatD"), ["ConcatDV2"]);
        assert_eq!(equal("RmsNorm"), Vec::<&str>::new());
    }

    #[test]
    fn unknown_chained_and_cyclic_definitions_are_refused() {
        let shared = |kernel: &str, other: &str| format!("kernel: {kernel}\nsame_as: {other}\n");
        let (unknown, chained) = (shared("A", "MatMulV9"), shared("A", "MatMulV3"));
        let (one, other, itself) = (shared("A", "B"), shared("B", "A"), shared("A", "A"));
        let misnamed = shared("B", "MatMulV2");
        let more = format!("{}unit: cube\n", shared("A", "MatMulV2"));
        for (files, problem) in [
            (
                vec![("A.yaml", unknown.as_str())],
                "A.yaml:2:10: the catalogue has no entry `MatMulV9` did you mean `MatMulV",
            ),
            (
                vec![("A.yaml", &chained)],
                "A.yaml:2:10: `MatMulV3` has `same_as:` itself, so it defines nothing",
            ),
            (vec![("A.yaml", &one), ("B.yaml", &other)], "A.yaml:2:10: `B` has `same_as:` itself"),
            (vec![("A.yaml", &itself)], "A.yaml:2:10: `A` has `same_as:` itself"),
            (vec![("A.yaml", &misnamed)], "A.yaml:1:9: kernel `B` is declared in a file named `A`"),
            (vec![("A.yaml", &more)], "A.yaml:3:1: unknown key `unit`, expected one of `kernel`, `same_as`"),
        ] {
            let found = load(&files).expect_err(problem);
            assert!(found.contains(problem), "{found}");
        }
    }
}
