//! `rules`: the list of all rules with their limits.

use serde_json::Value;

use crate::context::Context;

#[test]
fn rules_are_listed_with_verdict_and_limit() {
    let context = Context::new();
    let printed = context.run(&["rules"]);
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    insta::assert_snapshot!(printed.stdout);
    let lines = context.run(&["rules", "--format", "json"]);
    let rules: Vec<Value> =
        lines.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    // Each line of the table but its header is a rule.
    assert_eq!(rules.len(), printed.stdout.lines().count() - 1);
    assert!(rules.iter().all(|rule| printed.stdout.contains(rule["condition"].as_str().expect("a text"))));
}
