//! `npubench kernels --missing`: kernels of profiles that the catalogue cannot replay, and the reasons in runs and checks.

use crate::context::{ADD, Context, SWIGLU, profile};

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
    let ran = context.run(&["kernels", "--missing", "kernel_details.csv"]);
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
    let json = context.run(&["kernels", "--missing", "kernel_details.csv", "--format", "json"]);
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
fn profiles_without_gaps_and_unreadable_ones_are_reported() {
    let context = Context::new();
    context.write("kernel_details.csv", &profile(&[SWIGLU, ADD]));
    let ran = context.run(&["kernels", "--missing", "kernel_details.csv"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.stdout, "2 kernels on AI cores, 0.062 ms\n");
    let absent = context.run(&["kernels", "--missing", "absent"]);
    assert_eq!(absent.code, 3, "{}", absent.stderr);
    assert!(absent.stderr.starts_with("error: "), "{}", absent.stderr);
}

/// `check` and `run` print the reason why no call launches a kernel.
#[test]
fn kernels_without_a_call_have_their_reason_in_runs() {
    let context = Context::new();
    context.write("kernel_details.csv", &profile(&[SWIGLU, REDUCE]));
    context.run(&["ingest", "kernel_details.csv", "--db", "db", "--kind", "rehearsal"]);
    let reason = "no call launches this kernel alone: graphs with static shapes compile sums to it";
    let ran = context.run(&["run", "--db", "db", "--host", "rehearsal", "--devices", "0"]);
    assert!(ran.stderr.contains(reason), "{}", ran.stderr);
    let rendered = context.run(&["render", "ReduceSumD", "--db", "db"]);
    assert!(rendered.stderr.contains("no call launches `ReduceSumD` alone: "), "{}", rendered.stderr);
    // A file of the user replaces an embedded entry.
    std::fs::create_dir_all(context.path("assets/op_replay")).expect("created");
    context.write("assets/op_replay/SwiGlu.yaml", "kernel: SwiGlu\nnot_launchable: it hangs on this host\n");
    context
        .write("assets/op_replay/Sums.yaml", "kernel: Sums\nnot_launchable: it hangs\nalso_named: [Add]\n");
    context.write("kernel_details.csv", &profile(&[SWIGLU, ADD]));
    let listed = context.run(&["kernels", "--missing", "kernel_details.csv", "--assets", "assets"]);
    for reason in ["not launchable: it hangs on this host", "not launchable: it hangs\n"] {
        assert!(listed.stdout.contains(reason), "{}{}", listed.stdout, listed.stderr);
    }
}

#[test]
fn exports_without_shapes_are_named_and_left_out() {
    let context = Context::new();
    let level_0 = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim\n\
                   5,trans_TransData_0,N/A,N/A,1736405443881410.320\t,50.6,0,0\n";
    context.write("profiles/one/kernel_details.csv", &profile(&[SWIGLU, ADD]));
    context.write("profiles/two/kernel_details.csv", level_0);
    let ran = context.run(&["kernels", "--missing", "profiles"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("two/kernel_details.csv` has no shape columns"), "{}", ran.stderr);
    assert!(ran.stderr.contains("the file is left out"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "2 kernels on AI cores, 0.062 ms\n");
    let alone = context.run(&["kernels", "--missing", "profiles/two"]);
    assert_eq!(alone.code, 3, "nothing is left: {}", alone.stderr);
    assert!(alone.stderr.contains("hint: profile again"), "{}", alone.stderr);
}
