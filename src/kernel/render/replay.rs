//! The replay script: one function per kernel, around a body that is the same for all.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{RenderError, render_template};
use crate::{
    base::assets::AssetFiles,
    kernel::{
        IdentifiedCase, KernelName,
        catalogue::{CatalogueEntry, LaunchOperator, OperatorSchema, ResolvedCall},
        short_hash,
    },
};

pub(super) const REPLAY_TEMPLATE: &str = "replay.py.hbs";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ScriptCommunication {
    #[default]
    Kernels,
    Hccl,
    /// Collectives of gloo, on the host and without msprof.
    Gloo,
}

pub(crate) fn replay_script<'a>(
    assets: &AssetFiles,
    communication: ScriptCommunication,
    entries: impl IntoIterator<Item = (&'a KernelName, &'a CatalogueEntry)>,
) -> Result<String, RenderError> {
    // One function per kernel, in the order of names.
    let entries: BTreeMap<&KernelName, &CatalogueEntry> = entries.into_iter().collect();
    let kernels = entries.into_iter().map(|(kernel, entry)| {
        let modules = &entry.needs.modules;
        let operators = entry.operators.iter().enumerate();
        json!({
            "name": kernel,
            "summary": entry.summary.replace(['\n', '"', '\\'], " "),
            "graph": entry.needs.graph,
            "operators": operators
                .map(|(index, operator)| json!({
                    "api": operator.api,
                    "versions": rendered_versions(kernel, entry, index),
                }))
                .collect::<Vec<_>>(),
            "modules": (!modules.is_empty()).then(|| json!(modules).to_string()),
        })
    });
    let context = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "has_collectives": communication != ScriptCommunication::Kernels,
        "is_gloo": communication == ScriptCommunication::Gloo,
        "kernels": kernels.collect::<Vec<_>>(),
    });
    render_template(assets, REPLAY_TEMPLATE, &context)
}

pub(crate) fn selftest_script(assets: &AssetFiles) -> Result<String, RenderError> {
    render_template(assets, "selftest.py.hbs", &json!({ "version": env!("CARGO_PKG_VERSION") }))
}

/// Digest of a rendered call. A stored check result is valid while it is unchanged.
pub(crate) fn call_digest(
    case: &IdentifiedCase,
    resolved: &ResolvedCall,
    entry: Option<&CatalogueEntry>,
) -> String {
    let calls = entry.map(|entry| {
        let of_api = entry.operators.iter().find(|operator| operator.api == resolved.api);
        let launcher = of_api.unwrap_or_else(|| entry.main_operator());
        let schemas = std::iter::once(&launcher.schema).chain(&launcher.other_schemas);
        schemas.map(|schema| call(entry, launcher, schema)).collect::<Vec<_>>()
    });
    let (call, needs) = (calls, entry.map(|entry| &entry.needs));
    let described = json!([case.id(), resolved.form, resolved.arguments, resolved.returns]);
    let text = format!("{}\n{call:?}\n{needs:?}\n{described}", env!("CARGO_PKG_VERSION"));
    short_hash(text.as_bytes())
}

fn rendered_versions(kernel: &KernelName, entry: &CatalogueEntry, operator: usize) -> Vec<serde_json::Value> {
    let safe = kernel.as_str().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    let safe: String = safe.collect();
    let launcher = &entry.operators[operator];
    let schemas = std::iter::once(&launcher.schema).chain(&launcher.other_schemas).enumerate();
    let versions = schemas.map(|(version, schema)| {
        let numbers = [("operator", operator), ("version", version)].into_iter();
        let suffix =
            numbers.filter(|(_, number)| *number > 0).map(|(word, number)| format!("_{word}_{number}"));
        json!({
            "function": format!("launch_{safe}{}", suffix.collect::<String>()),
            "call": call(entry, launcher, schema),
            "schema": schema_names(schema),
        })
    });
    versions.collect()
}

fn schema_names(schema: &OperatorSchema) -> String {
    let names = |keyword_only: bool| -> Vec<&str> {
        let arguments = schema.arguments.iter();
        arguments.filter(|a| a.keyword_only == keyword_only).map(|a| a.name.as_str()).collect()
    };
    json!([schema.name, names(false), names(true)]).to_string()
}

/// Renders the Python call; arguments that only some forms give are passed where the case has them.
fn call(entry: &CatalogueEntry, operator: &LaunchOperator, schema: &OperatorSchema) -> String {
    let mut positional = true;
    let mut arguments = Vec::new();
    let mut some = Vec::new();
    for argument in &schema.arguments {
        let name = &argument.name;
        let (is_given, is_always) = entry.argument_coverage(operator, name);
        positional &= !argument.keyword_only && is_given && is_always;
        match (is_given, is_always) {
            (false, _) => {}
            (true, false) => some.push(format!("\"{name}\"")),
            _ if positional => arguments.push(format!("a[\"{name}\"]")),
            _ => arguments.push(format!("{name}=a[\"{name}\"]")),
        }
    }
    if !some.is_empty() {
        arguments.push(format!("**given(a, {})", some.join(", ")));
    }
    format!("{}({})", operator.api, arguments.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::catalogue::Catalogue;

    fn main_call(entry: &CatalogueEntry) -> String {
        call(entry, entry.main_operator(), &entry.main_operator().schema)
    }

    #[test]
    fn calls_are_written_as_a_person_would() {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the built-in catalogue");
        let calls: BTreeMap<&str, String> =
            catalogue.entries().map(|entry| (entry.kernel.as_str(), main_call(entry))).collect();
        assert_eq!(calls["MatMulV3"], "torch.mm(a[\"self\"], a[\"mat2\"])");
        assert_eq!(calls["TensorMove"], "torch.Tensor.copy_(a[\"self\"], a[\"src\"])");
        assert_eq!(calls["Slice"], "torch_npu.npu_slice(a[\"input\"], a[\"offsets\"], a[\"size\"])");
    }
}
