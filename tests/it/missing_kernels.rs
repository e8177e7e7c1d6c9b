//! `npubench kernels --missing`: kernels of profiles that the catalogue cannot replay, and the reasons in runs and checks.

use crate::prelude::*;

/// A kernel without an entry, in two signatures.
const MYSTERY: [&str; 2] = [
    "Mystery,30.000,\"\"\"64,64\"\"\",FLOAT,ND,\"\"\"64\"\"\",FLOAT,ND",
    "Mystery,12.500,\"\"\"64,32\"\"\",FLOAT,ND,\"\"\"64\"\"\",FLOAT,ND",
];
/// A kernel that no call launches alone.
const REDUCE: &str = "ReduceSumD,7.250,\"\"\"64,64\"\"\",FLOAT,ND,\"\"\"64\"\"\",FLOAT,ND";
/// A row that the entry of its kernel refuses.
const REFUSED: &str = "Cast,3.000,\"\"\"64\"\"\",FLOAT,ND,\"\"\"64\"\"\",FLOAT,ND";
/// Kernels without shapes.
const SHAPELESS: [&str; 3] = [
    "MemSet,2.000,N/A,N/A,N/A,N/A,N/A,N/A",
    "hcom_allReduce_,500.000,N/A,N/A,N/A,N/A,N/A,N/A",
    "Mul,1.000,N/A,N/A,N/A,N/A,N/A,N/A",
];

fn write_profile(context: &Context) {
    let mut records = vec![SWIGLU, ADD, MYSTERY[0], MYSTERY[1], REDUCE, REFUSED];
    records.extend(SHAPELESS);
    let on_ai_cpu = "OnHost,9.000,\"\"\"64\"\"\",FLOAT,ND,\"\"\"64\"\"\",FLOAT,ND";
    records.push(on_ai_cpu);
    let text = profile(&records);
    let lines = text.lines().map(|line| match line.contains(",OnHost,") {
        true => line.replace("AI_VECTOR_CORE", "AI_CPU"),
        false => line.to_owned(),
    });
    context.write("kernel_details.csv", &lines.map(|line| line + "\n").collect::<String>());
}

#[test]
fn missing_kernels_are_listed_by_device_time() {
    let context = Context::new();
    write_profile(&context);
    let ran = context.run("kernels --missing kernel_details.csv");
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    insta::assert_snapshot!(ran.stdout, @"
     AI cores    records  time (ms)  share (%)  reason
     Mystery           2      0.043      36.16  no entry
     ReduceSumD        1      0.007       6.17  not launchable: graphs with static shapes compile sums to it; calls of torch run ReduceSum
     Cast              1      0.003       2.55  unsupported: element-wise: output 0 is FLOAT as `input` is: nothing would be launched; 3 other forms differ more
     MemSet            1      0.002       1.70  not launchable: it clears memory that the kernel after it adds to, and the profiler records no shapes of it
     Mul               1      0.001       0.85  without shapes

     AI CPU  records  time (ms)  reason
     OnHost        1      0.009  no entry

     collectives      records  time (ms)
     hcom_allReduce_        1      0.500

    7 kernels on AI cores, 0.118 ms; no entry 36.16 %; not launchable 7.87 %; unsupported 2.55 %; without shapes 0.85 %
    ");
    let json = context.run("kernels --missing kernel_details.csv --format json");
    insta::assert_snapshot!(json.stdout, @r#"
    {"kernel":"hcom_allReduce_","engine":"collective","records":1,"time_us":500.0,"share":null,"gap":null,"reason":null}
    {"kernel":"Mystery","engine":"ai_core","records":2,"time_us":42.5,"share":0.361579,"gap":"no_entry","reason":null}
    {"kernel":"OnHost","engine":"ai_cpu","records":1,"time_us":9.0,"share":null,"gap":"no_entry","reason":null}
    {"kernel":"ReduceSumD","engine":"ai_core","records":1,"time_us":7.25,"share":0.061681,"gap":"not_launchable","reason":"graphs with static shapes compile sums to it; calls of torch run ReduceSum"}
    {"kernel":"Cast","engine":"ai_core","records":1,"time_us":3.0,"share":0.025523,"gap":"unsupported","reason":"element-wise: output 0 is FLOAT as `input` is: nothing would be launched; 3 other forms differ more"}
    {"kernel":"MemSet","engine":"ai_core","records":1,"time_us":2.0,"share":0.017015,"gap":"not_launchable","reason":"it clears memory that the kernel after it adds to, and the profiler records no shapes of it"}
    {"kernel":"Mul","engine":"ai_core","records":1,"time_us":1.0,"share":0.008508,"gap":"without_shapes","reason":null}
    "#);
}

#[test]
fn kernels_without_a_call_have_their_reason_in_runs() {
    let context = Context::new();
    context.write("kernel_details.csv", &profile(&[SWIGLU, REDUCE]));
    context.run("ingest kernel_details.csv --db db --kind rehearsal");
    let reason = "no call launches this kernel alone: graphs with static shapes compile sums to it";
    let ran = context.run("run --db db --host rehearsal --devices 0");
    ran.err_has(reason);
    let rendered = context.run("render ReduceSumD --db db");
    rendered.err_has("no call launches `ReduceSumD` alone: ");
    // A file of the user replaces an embedded entry.
    std::fs::create_dir_all(context.path("assets/op_replay")).expect("created");
    context.write("assets/op_replay/SwiGlu.yaml", "kernel: SwiGlu\nnot_launchable: it hangs on this host\n");
    context
        .write("assets/op_replay/Sums.yaml", "kernel: Sums\nnot_launchable: it hangs\nalso_named: [Add]\n");
    context.write("kernel_details.csv", &profile(&[SWIGLU, ADD]));
    let listed = context.run("kernels --missing kernel_details.csv --assets assets");
    for reason in ["not launchable: it hangs on this host", "not launchable: it hangs\n"] {
        listed.out_has(reason);
    }
}
