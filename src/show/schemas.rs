//! JSON schemas of what commands print with `--format json`: each line is one record of a type in the list below.
//!
//! The schemas are published in `docs/json-schemas.json`.

use std::collections::BTreeMap;

use schemars::{Schema, SchemaGenerator, generate::SchemaSettings};

use crate::show;

macro_rules! record_schemas {
    ($($command:literal => $record:ty,)+) => {
        fn schemas() -> BTreeMap<&'static str, Schema> {
            BTreeMap::from([$(($command, generator().into_root_schema_for::<$record>()),)+])
        }
    };
}

record_schemas! {
    "diff" => crate::measure::evidence::CaseDifference,
    "doctor" => crate::measure::device::DoctorCheck,
    "kernels" => show::kernels::KernelRecord<'_>,
    "models" => show::models::ModelRecord<'_>,
    "models MODEL" => show::models::StepKernelRecord<'_>,
    "noise" => show::noise::NoiseRecord<'_>,
    "plan" => show::plan::PlannedCaseRecord<'_>,
    "rules" => crate::measure::verify::VerificationRule,
    "run" => crate::measure::events::RunEvent,
    "runs" => show::runs::RunRecordLine<'_>,
    "show" => show::cases::ShownCase,
    "status" => crate::measure::run_state::RunStatusFile,
    "why" => crate::measure::evidence::CaseEvidence,
}

/// Schemas describe what is written: keys that are always there are required.
fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().for_serialize().into_generator()
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use super::*;

    /// `NPUBENCH_WRITE_SCHEMAS=1` writes the file.
    #[test]
    fn published_schemas_are_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/json-schemas.json");
        let text = serde_json::to_string_pretty(&schemas()).expect("schemas are JSON") + "\n";
        if env::var_os("NPUBENCH_WRITE_SCHEMAS").is_some() {
            fs::write(path, &text).expect("written");
        }
        let published = fs::read_to_string(path).unwrap_or_default();
        assert!(published == text, "run the test with NPUBENCH_WRITE_SCHEMAS=1");
    }
}
