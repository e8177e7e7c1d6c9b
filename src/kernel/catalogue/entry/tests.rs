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
    assert_eq!(form.rule.source, "B,D; -; -; -; *R -> B,D");
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
        ("slot: 3", "slot: 0", "`slot: 0` is not between 1 and 100; slots are declared in order"),
        ("slot: 3", "slot: 1000000", "`slot: 1000000` is not between 1 and 100"),
        ("values: index, below: B", "values: index", "`rows` with `values: index`: missing field `below`"),
        (
            "values: causal",
            "values: causal, total: B",
            "`total:` of `mask` cannot be combined with `values: causal`",
        ),
        ("values: causal", "values: empty", "unknown value `empty`"),
        ("values: causal, ", "", "`mask` needs `values:`"),
        (
            "unit: vector",
            "unit: vector\nrecorded_inputs: 4",
            "records have 4 input slots, the form `by name` has 5",
        ),
        // Keys of two kinds of values.
        ("outputs: [x]", "outputs: [{recorded: [FLOAT], like: x}]", "expected an argument, a type"),
        (
            "unit: vector",
            "unit: vector\nimplied:\n  Runtime a: {mean: x, text: y}",
            "expected an expression, a number",
        ),
    ] {
        assert!(ENTRY.contains(before), "{before}");
        let found = parse(&ENTRY.replacen(before, after, 1)).expect_err(after);
        assert!(found.contains(problem), "{after}: {found}");
    }
}

#[test]
fn errors_have_the_position_of_the_faulty_value() {
    for (before, after, faulty) in [
        ("rows: \"*R\"", "row: \"*R\"", "\"*R\""),
        ("rows: \"*R\"", "rows: \"*R; 1\"", "\"*R; 1\""),
        ("rows: \"*R\"", "rows: \"R+1\"", "\"R+1\""),
        ("rows: \"*R\"", "rows: \"1,2...\"", "\"1,2...\""),
        ("argument: mask, values: causal", "argument: x, values: causal", "\"B,D\", rows"),
        (", output_shapes: \"B,D\"", "", "{x: \"B,D\""),
        ("output_shapes: \"B,D\"", "output_shapes: \"B,D +\"", "\"B,D +\""),
        ("output_shapes: \"B,D\"", "output_shapes: \"B,D; B\"", "\"B,D; B\""),
        ("{x: \"B,D\", rows: \"*R\"}", "\"B,D -> B,D\"", "\"B,D\"}"),
        ("slot: 3", "slot: 0", "0, argument: mask"),
        // Behind slots that are not in the file.
        ("dtypes: [BOOL]", "dtypes: [BOOLEAN]", "BOOLEAN"),
        ("dtypes: [INT64]", "dtypes: [INTEGER]", "INTEGER"),
        ("below: B,", "below: B +,", "B +,"),
        ("below: B,", "below: B, same_type_as: none,", "none,"),
        ("argument: rows", "argument: columns", "columns"),
    ] {
        assert!(ENTRY.contains(before), "{before}");
        let text = ENTRY.replacen(before, after, 1);
        let (ahead, behind) = text.split_once(faulty).expect(faulty);
        assert!(!behind.contains(faulty), "{faulty}");
        let line = ahead.matches('\n').count() + 1;
        let column = ahead.len() - ahead.rfind('\n').map_or(0, |end| end + 1) + 1;
        let found = parse(&text).expect_err(after);
        assert!(found.starts_with(&format!("Test.yaml:{line}:{column}: ")), "{after}: {found}");
    }
}

#[test]
fn operators_of_forms_and_versions_are_checked() {
    let operator =
        "api: torch_npu.npu_other, schema: \"npu::npu_other(Tensor x, Tensor? rows=None) -> Tensor\"";
    let of_form = |keys: &str| ENTRY.replacen("{name: by name, ", &format!("{{name: by name, {keys}, "), 1);
    let entry = parse(&of_form(operator)).expect("a form with an operator of its own");
    assert_eq!(entry.operator_of(&entry.forms[0]).api, "torch_npu.npu_other");
    assert_eq!(entry.main_operator().api, "torch_npu.npu_test");
    let versions =
        |schema: &str| ENTRY.replacen("unit:", &format!("other_schemas: [\"{schema}\"]\nunit:"), 1);
    parse(&versions("npu::npu_test(Tensor x, Tensor? more=None) -> Tensor")).expect("another version");
    for (text, problem) in [
        (of_form("api: torch_npu.npu_other"), "a form with `api:` needs a `schema:` as well"),
        (
            of_form(&operator.replace("(Tensor x", "(Tensor y")),
            "the schema has no argument `x`; it has y, rows",
        ),
        (
            of_form("api: torch_npu.npu_test, schema: \"npu::npu_test(Tensor x) -> Tensor\""),
            "`torch_npu.npu_test` has another schema",
        ),
        (
            versions("npu::npu_test(Tensor y) -> Tensor"),
            "the schema has no argument `y`; it has x, mask, rows",
        ),
        (
            versions("npu::npu_other(Tensor x) -> Tensor"),
            "`npu::npu_other` is not a version of `npu::npu_test`",
        ),
    ] {
        let found = parse(&text).expect_err(problem);
        assert!(found.contains(problem), "{problem}: {found}");
    }
}

#[test]
fn forms_that_no_call_launches_need_no_arguments() {
    let form = "  - {name: other, shapes: \"B,D; -; -; -; - -> B\", unsupported: \"it runs as Other\"}\n";
    let entry = parse(&format!("{ENTRY}{form}")).expect("a valid entry");
    let replayed: Vec<bool> = entry.forms.iter().map(super::EntryForm::is_replayed).collect();
    assert_eq!(replayed, [true, false]);
}
