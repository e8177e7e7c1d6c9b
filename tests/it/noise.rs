//! `noise`: sources of variance of a lifelike host, whose model is known.

use serde_json::Value;

use crate::prelude::*;

fn deviation(budget: &Value, source: &str) -> f64 {
    let sources = budget["sources"].list();
    let found = sources.iter().find(|one| one["source"] == source).expect("the source");
    found["deviation_percent"].as_f64().unwrap_or_else(|| panic!("{source}: {found}"))
}

/// The model has launches of 1 %, an effect of 0.5 % of each collection on all cases, and no other one.
#[test]
fn sources_are_those_of_the_model() {
    let context = Context::of_layer();
    let once = context.exits(3, "noise --db db");
    once.err_has("no case of `ROOT/db` is measured in two collections");
    for seed in 1..=6 {
        context.done(&format!("run --db db --host rehearsal --devices 0-3 --update all --seed {seed}"));
    }
    let printed = context.done("noise --db db --format json");
    let budget: Value = serde_json::from_str(&printed.stdout).expect("JSON");
    assert_eq!((&budget["cases"], &budget["devices"], &budget["runs"]), (&20.into(), &4.into(), &6.into()));
    assert_eq!(budget["design"]["launches"], 20.0);
    let launch = deviation(&budget, "launch");
    assert!((0.8..1.3).contains(&launch), "{launch}");
    // At least a dozen collections, by the load of the machine: their deviation is known to about 25 %.
    let common = deviation(&budget, "collection, all cases");
    assert!((0.15..0.9).contains(&common), "{common}");
    for absent in ["case in a collection", "collection, by launch noise", "device", "run"] {
        assert!(deviation(&budget, absent) < 0.4, "{absent}: {budget}");
    }
    let text = context.run("noise --db db");
    assert!(text.stdout.starts_with("20 cases in "), "{}", text.stdout);
    assert!(
        text.stdout.contains("(rehearsal: simulated durations)") && budget["kind"] == "rehearsal",
        "{text:?}"
    );
    text.out_has("narrower with twice the collections of each case");
}
