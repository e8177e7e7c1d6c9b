//! `rules`: the list of all rules with their limits.

use serde_json::Value;

use crate::prelude::*;

#[test]
fn rules_are_listed_with_verdict_and_limit() {
    let context = Context::new();
    let printed = context.done("rules");
    insta::assert_snapshot!(printed.stdout);
    let lines = context.run("rules --format json");
    let rules: Vec<Value> = lines.json();
    // Each line of the table but its header is a rule.
    assert_eq!(rules.len(), printed.stdout.lines().count() - 1);
    assert!(rules.iter().all(|rule| printed.stdout.contains(rule["condition"].text())));
}
