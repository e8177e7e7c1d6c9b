//! Calls of the ranks of a gang, which must be the same.

use super::*;

/// A call of DispatchFFNCombine: so many tokens of so many features, 8 of so many experts of this rank each, named
/// below a bound.
fn dispatched(
    session: &mut ApiSession,
    (tokens, features, experts): (u64, u64, u64),
    bound: u64,
    ranks: &str,
) -> Result<Value, (String, String)> {
    let x = random(session, &[tokens, features], "bfloat16");
    let first = blocked(session, &[experts, features, 64]);
    let second = blocked(session, &[experts, 32, features]);
    let named = indices(session, bound, &[tokens, 8], "int32");
    let scale = made(session, "torch.ones", json!([[1]]), "float32");
    let shares = made(session, "torch.ones", json!([[tokens, 8]]), "float32");
    let out = made(session, "torch.empty", json!([[tokens, features]]), "bfloat16");
    let counts = made(session, "torch.zeros", json!([[1, experts]]), "int32");
    let most = (tokens * 8).max(65536);
    let args = json!([
        x,
        [first],
        [second],
        named,
        [scale.clone()],
        [scale],
        [],
        [],
        shares,
        ranks,
        most,
        out,
        counts
    ]);
    call(session, "torch.ops._C_ascend.dispatch_ffn_combine", args, json!({}))
}

const GANG: [&str; 2] = [
    "DispatchFFNCombine DT_BF16[64,128] INT8[16,128,64]:FRACTAL_NZ INT8[16,32,128]:FRACTAL_NZ INT32[64,8] FLOAT[1] FLOAT[1] \
     FLOAT[64,8] -> DT_BF16[64,128] INT32[1,16]",
    "DispatchFFNCombine DT_BF16[32,128] INT8[16,128,64]:FRACTAL_NZ INT8[16,32,128]:FRACTAL_NZ INT32[32,8] FLOAT[1] FLOAT[1] \
     FLOAT[32,8] -> DT_BF16[32,128] INT32[1,16]",
];

#[test]
fn ranks_of_a_gang_must_launch_the_same_calls() {
    const TWO: &str = "rehearsal group of 2 ranks";
    let mut one = session(&GANG);
    let (mut other, mut same) = (one.clone(), one.clone());
    open(&mut one, 0);
    // 16 experts on each of 2 ranks are named from 0 to 31.
    dispatched(&mut one, (64, 128, 16), 32, TWO).expect("equal to the manifest");
    let refused = |bound, ranks: &str| {
        let mut alone = session(&GANG);
        open(&mut alone, 0);
        dispatched(&mut alone, (64, 128, 16), bound, ranks).expect_err("different from the manifest").1
    };
    let beyond = refused(33, TWO);
    assert!(beyond.contains("`expert_idx`: the manifest has values in [0, 31], the call has"), "{beyond}");
    let no_group = refused(32, "group");
    assert!(no_group.contains("`group` is not the name of a group"), "{no_group}");
    let larger = refused(32, "rehearsal group of 4 ranks");
    assert!(larger.contains("`group`: the manifest has a group of 2 ranks"), "{larger}");
    // Another rank must make the same call.
    open(&mut other, 1);
    let differs = dispatched(&mut other, (32, 128, 16), 32, TWO).expect_err("fewer tokens").1;
    assert!(differs.contains("different kernels: DispatchFFNCombine of DT_BF16[32,128]"), "{differs}");
    open(&mut same, 0);
    dispatched(&mut same, (64, 128, 16), 32, TWO).expect("the same call");
    // A value that one rank stores is read by the others.
    let set = json!(["key", "value"]);
    call(&mut one, "torch.distributed.store_set", set, json!({})).expect("it is kept");
    let heard = call(&mut other, "torch.distributed.store_get", json!(["key"]), json!({}));
    assert_eq!(heard.expect("an answer"), "value");
    let silence = call(&mut other, "torch.distributed.store_get", json!(["other"]), json!({}));
    assert_eq!(silence.expect("an answer"), Value::Null);
}
