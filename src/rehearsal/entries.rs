//! What the simulated NPU knows of the catalogue's entries: `npubench stand-in entries KERNEL…` prints it as JSON.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::{self, Write},
    path::PathBuf,
};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{HOST_VARIABLE, host::io_error};
use crate::{
    base::{assets::AssetFiles, command_error::CommandError},
    kernel::{
        Dtype, KernelName,
        catalogue::{Catalogue, CatalogueEntry, DeclaredArgument, EntryForm, OutputDtype},
    },
};

#[derive(Deserialize)]
struct HostAssets {
    assets: Option<PathBuf>,
}

pub fn stand_in(arguments: &[OsString]) -> u8 {
    let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let Some((_, kernels)) = words.split_first().filter(|(command, _)| *command == "entries") else {
        print_to(io::stderr(), "stand-in: name the entries, `stand-in entries KERNEL…`");
        return 2;
    };
    match entries_json(kernels) {
        Ok(text) => {
            print_to(io::stdout(), &text);
            0
        }
        Err(error) => {
            print_to(io::stderr(), &format!("rehearsal: {}\nhint: {}", error.message, error.hint));
            1
        }
    }
}

fn print_to(mut stream: impl Write, text: &str) {
    // The reader of a closed stream has ended.
    let _ = writeln!(stream, "{text}");
}

fn entries_json(kernels: &[String]) -> Result<String, CommandError> {
    let file = std::env::var_os(HOST_VARIABLE).map(PathBuf::from).ok_or_else(|| {
        CommandError::bad_input(
            format!("`{HOST_VARIABLE}` is not set, so there is no rehearsal host here"),
            "start it through the `collect.sh` of a run with `--host rehearsal`",
        )
    })?;
    let text = fs::read_to_string(&file).map_err(io_error("read", &file))?;
    let HostAssets { assets } = serde_json::from_str(&text).map_err(|error| {
        CommandError::bad_input(
            format!("`{}` is not a rehearsal host's file: {error}", file.display()),
            "remove the folder, `npubench run --host rehearsal` makes it anew",
        )
    })?;
    let assets = assets.as_deref().map(AssetFiles::overlaid).transpose()?.unwrap_or_default();
    let catalogue = Catalogue::load(&assets)?;
    let entry = |kernel: &String| {
        let name = KernelName::new(kernel).ok()?;
        catalogue.entry(&name).map(shown_entry)
    };
    let entries: BTreeMap<&String, Option<Value>> =
        kernels.iter().map(|kernel| (kernel, entry(kernel))).collect();
    Ok(serde_json::to_string(&entries).expect("entries have texts as keys"))
}

fn shown_entry(entry: &CatalogueEntry) -> Value {
    let operators = entry.operators.iter();
    let operators = operators.map(|operator| json!({"api": operator.api, "schema": operator.schema_text}));
    json!({
        "kernel": entry.kernel.as_str(),
        "unit": entry.unit,
        "also_launches": entry.also_launches,
        "operators": operators.collect::<Value>(),
        "forms": entry.forms.iter().map(shown_form).collect::<Value>(),
    })
}

fn shown_form(form: &EntryForm) -> Value {
    let casts = form.output_dtypes.iter().enumerate();
    let casts = casts.filter(|(_, dtype)| **dtype == OutputDtype::Fixed(Dtype::Int32));
    let destinations = form.arguments.iter().filter_map(|(name, argument)| match argument {
        DeclaredArgument::Destination(output) => Some((name.as_str(), *output)),
        _ => None,
    });
    let is_bits = |dtype: &Dtype| dtype.as_str() == Dtype::UINT64;
    let bits = form.tensors().filter(|(_, slot)| slot.dtypes.iter().any(is_bits));
    json!({
        "name": form.rule.name,
        // The kernel that runs in place of the entry's.
        "runs_as": form.runs_as.as_ref().map(|kernel| kernel.value.as_str()),
        // Outputs of type INT32 beside which a cast may be launched.
        "casts": casts.map(|(output, _)| output).collect::<Vec<_>>(),
        // Outputs that the call writes into arguments, by the arguments' names.
        "destinations": destinations.collect::<BTreeMap<_, _>>(),
        // Inputs whose INT64 are bits, which the profiler shows as UINT64.
        "bits": bits.map(|(index, _)| index).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stand-in of msprof has its own list, so that a record does not follow from the catalogue that it is compared with.
    #[test]
    fn records_have_the_input_slots_of_the_catalogue() {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("valid");
        let entries = catalogue.entries().filter(|entry| entry.recorded_inputs > 0);
        let slots: Vec<String> =
            entries.map(|entry| format!("\"{}\": {}", entry.kernel, entry.recorded_inputs)).collect();
        let listed = format!("RECORDED_INPUTS = {{{}}}", slots.join(", "));
        assert!(include_str!("python/rehearsal/tables.py").contains(&listed), "{listed}");
    }

    #[test]
    fn forms_have_casts_destinations_and_bits() {
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("valid");
        let entry = |kernel: &str| {
            let name = KernelName::new(kernel).expect("a name");
            shown_entry(catalogue.entry(&name).expect("an entry"))
        };
        assert_eq!(entry("Sort")["forms"][0]["casts"], serde_json::json!([1]));
        assert_eq!(entry("TensorMove")["forms"][0]["destinations"], serde_json::json!({ "self": 0 }));
        let forms = entry("QuantBatchMatmulV3")["forms"].as_array().cloned().unwrap_or_default();
        assert!(forms.iter().any(|form| form["bits"] != serde_json::json!([])));
    }
}
