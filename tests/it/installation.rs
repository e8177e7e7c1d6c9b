//! Installations of torch_npu and of other packages that differ from the catalogue.

use crate::{
    context::{ADD, Context, SWIGLU, profile},
    rehearsal::{ledger, rehearse},
};

/// Fault plan of an installation in which an operator has another schema.
fn other_schema(context: &Context, schema: &str) -> String {
    context.write("faults.yaml", &format!("schemas:\n- '{schema}'\n")).display().to_string()
}

/// With this schema the call would launch, with `dim` taken for another argument.
#[test]
fn calls_that_do_not_fit_the_installation_are_not_launched() {
    let context = Context::new();
    context.write("p.csv", &profile(&[SWIGLU, ADD]));
    context.run(&["ingest", "p.csv", "--db", "db", "--kind", "rehearsal"]);
    let faults = other_schema(&context, "npu::npu_swiglu(Tensor input, int group=1, int dim=-1) -> Tensor");
    let ran = rehearse(&context, "db", &["--devices", "0-1", "--rehearsal-faults", &faults]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let verdicts = "SELECT kernel || ' ' || verdict FROM verdicts JOIN cases USING (case_id) ORDER BY kernel";
    assert_eq!(ledger(&context, "db", verdicts), "Add ok; SwiGlu unsupported");
    let reason = "the catalogue's call does not fit the installed torch_npu 0+rehearsal: the catalogue has \
        npu::npu_swiglu(input, dim), torch has (input, group, dim)";
    assert!(ran.stderr.contains(reason), "{}", ran.stderr);
    let attempts = "SELECT count(*) || ' ' || sum(launched) FROM attempts JOIN cases USING (case_id) \
        WHERE kernel = 'SwiGlu'";
    assert_eq!(ledger(&context, "db", attempts), "1 0");
    // The row is not changed: a fitting installation measures it.
    assert_eq!(
        context.rows("db", "SwiGlu")[0].get("MicroBench Verdict").map(String::as_str).unwrap_or(""),
        ""
    );
    let ran = rehearse(&context, "db", &["--devices", "0-1"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(context.rows("db", "SwiGlu")[0]["MicroBench Verdict"], "ok");
}

/// Later versions of vllm-ascend have further arguments in the middle.
#[test]
fn newer_signature_of_a_gang_kernel_is_the_fault_of_the_installation() {
    let context = Context::new();
    let record = "DispatchFFNCombine,50,\"\"\"64,1024;16,1024,512;16,256,1024;64,8;1;1;64,8\"\"\",\
        INT8;INT8;INT8;INT32;FLOAT;FLOAT;FLOAT,ND;ND;ND;ND;ND;ND;ND,\"\"\"64,1024;1,16\"\"\",DT_BF16;INT32,ND;ND";
    let record = record.replace("INT8;INT8;INT8", "DT_BF16;DT_BF16;DT_BF16");
    context.write("g.csv", &profile(&[&record]));
    let ran = context.run(&["ingest", "g.csv", "--db", "db", "--kind", "rehearsal", "--ep-size", "2"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let faults = other_schema(
        &context,
        "_C_ascend::dispatch_ffn_combine(Tensor x, Tensor[] weight1, Tensor[] weight2, Tensor expert_idx, \
         Tensor[] scale1, Tensor[] scale2, Tensor[] bias1, Tensor[] bias2, Tensor probs, str group, \
         int max_output_size, Tensor! out, Tensor! expert_token_nums, Tensor? x_active_mask=None, \
         float swiglu_limit=0) -> (Tensor out, Tensor expert_token_nums)",
    );
    let ran = rehearse(&context, "db", &["--devices", "0-1", "--rehearsal-faults", &faults]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let verdicts = "SELECT verdict || ' ' || reason FROM verdicts";
    let found = ledger(&context, "db", verdicts);
    assert!(found.starts_with("unsupported the catalogue's call does not fit"), "{found}");
    assert!(found.contains("bias1, bias2, probs"), "{found}");
}

#[test]
fn schemas_of_a_fault_plan_are_checked() {
    let context = Context::new();
    context.small_database("db");
    let faults = other_schema(&context, "npu_swiglu(Tensor");
    let ran = rehearse(&context, "db", &["--devices", "0", "--rehearsal-faults", &faults]);
    assert_eq!(ran.code, 3);
    assert!(ran.stderr.contains("faults.yaml:2:") && ran.stderr.contains("not a schema"), "{}", ran.stderr);
}
