//! Contradictions in the YAML of an entry, and shapes by slot name.

use std::path::Path;

use super::CatalogueEntry;

const ENTRY: &str = r#"kernel: Test
summary: a test
api: torch_npu.npu_test
schema: "npu::npu_test(Tensor x, Tensor? mask=None, Tensor? rows=None) -> Tensor"
unit: vector
inputs:
  - {argument: x, values: activation}
  - {slot: 3, argument: mask, values: causal, dtypes: [BOOL]}
  - {argument: rows, values: index, below: B, dtypes: [INT64]}
outputs: [x]
forms:
  - {name: by name, shapes: {x: "B,D", rows: "*R"}, output_shapes: "B,D"}
"#;

fn parse(text: &str) -> Result<CatalogueEntry, String> {
    CatalogueEntry::parse(Path::new("Test.yaml"), text).map_err(|error| error.to_string())
}

#[test]
fn shapes_by_name_are_a_rule_with_a_term_per_slot() {
    let entry = parse(ENTRY).expect("a valid entry");
    let form = &entry.forms[0];
    assert_eq!(form.rule.source(), "B,D; -; -; -; *R -> B,D");
    let tensors: Vec<(usize, &str)> =
        form.tensors().map(|(index, slot)| (index, slot.argument.as_str())).collect();
    assert_eq!(tensors, [(0, "x"), (4, "rows")]);
}

#[test]
fn contradictions_name_the_key_and_the_expected_value() {
    let by_name = "shapes: {x: \"B,D\", rows: \"*R\"}";
    for (before, after, problem) in [
        ("rows: \"*R\"", "row: \"*R\"", "no input slot is named `row`; slots are x, mask, rows"),
        ("rows: \"*R\"", "rows: \"*R; 1\"", "`*R; 1` is more than the shape of one slot"),
        (", output_shapes: \"B,D\"", "", "form `by name` has shapes by name and no `output_shapes:`"),
        (by_name, "shapes: \"B,D; -; -; -; *R -> B,D\"", "`output_shapes:` goes with shapes by name"),
        ("argument: mask, values: causal", "argument: x, values: causal", "several slots are named `x`"),
        ("slot: 3", "slot: 0", "`slot: 0` follows slot 1"),
        ("slot: 3", "slot: 1000000", "slots are in order, up to 100"),
        ("values: index, below: B", "values: index", "`rows` with `values: index`: missing field `below`"),
        (
            "values: causal",
            "values: causal, total: B",
            "`total:` of `mask` does not go with `values: causal`",
        ),
        ("values: causal", "values: empty", "unknown variant `empty`"),
        ("values: causal, ", "", "`mask` needs `values:`"),
    ] {
        assert!(ENTRY.contains(before), "{before}");
        let found = parse(&ENTRY.replacen(before, after, 1)).expect_err(after);
        assert!(found.contains(problem), "{after}: {found}");
    }
}
