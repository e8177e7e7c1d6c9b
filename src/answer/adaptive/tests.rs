//! Designs on durations that are known.

use std::{collections::BTreeSet, fmt::Write as _, fs};

use tempfile::TempDir;

use super::*;
use crate::{
    answer::lookup::{LookupEngine, OpQuery, QueryTensor},
    database::Database,
    kernel::Dtype,
};

const WIDTHS: [u64; 3] = [512, 1024, 2048];
const MAX_TOKENS: u64 = 4096;

/// Two lines of a kernel whose duration has a step at 1000 tokens.
fn duration(tokens: u64, width: u64) -> f64 {
    let step = if tokens < 1000 { 1.0 } else { 3.0 };
    5.0 + step * (width as f64) / 512.0
}

fn shapes() -> Vec<(u64, u64)> {
    let tokens = || (1..=MAX_TOKENS).filter(|tokens| tokens % 37 == 1 || *tokens == MAX_TOKENS);
    WIDTHS.into_iter().flat_map(|width| tokens().map(move |tokens| (tokens, width))).collect()
}

fn design(target: f64, seed: u64) -> AdaptiveDesign {
    let tensor = |dims: &[u64]| QueryTensor { dims: dims.to_vec(), dtype: Some(Dtype::Bf16), format: None };
    let candidate = |(tokens, width): (u64, u64)| AdaptiveCandidate {
        query: OpQuery {
            op: "RmsNorm".to_owned(),
            inputs: vec![tensor(&[tokens, width]), tensor(&[width])],
            ..OpQuery::default()
        },
        line: width,
        weight: 1.0,
        position: tokens as f64,
    };
    AdaptiveDesign::new(
        shapes().into_iter().map(candidate).collect(),
        AdaptiveOptions { target, batch: 10, seed },
    )
}

/// Opens a database with rows.
fn engine(folder: &TempDir, rows: &[(u64, u64)]) -> LookupEngine {
    let mut text =
        "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,\
                    Average Duration(us)\n"
            .to_owned();
    for &(tokens, width) in rows {
        let _ = writeln!(
            text,
            "\"\"\"{tokens},{width};{width}\"\"\",DT_BF16;DT_BF16,ND;ND,\"\"\"{tokens},{width}\"\"\",DT_BF16,ND,{}",
            duration(tokens, width)
        );
    }
    fs::write(folder.path().join("RmsNorm.csv"), text).expect("written");
    LookupEngine::new(Database::open(folder.path()).expect("a database"), None).expect("tables")
}

/// Measures batches until the design ends; returns the chosen candidates of each batch.
fn run(design: &mut AdaptiveDesign, fails: impl Fn(u64) -> bool) -> Vec<Vec<ChosenCandidate>> {
    let (folder, shapes) = (tempfile::tempdir().expect("a folder"), shapes());
    let (mut rows, mut batches) = (Vec::new(), Vec::new());
    while !design.is_met() {
        let batch = design.next_batch(&mut engine(&folder, &rows)).expect("readable");
        if batch.is_empty() {
            break;
        }
        for chosen in &batch {
            let (tokens, width) = shapes[chosen.candidate];
            let latency = (!fails(tokens)).then(|| duration(tokens, width));
            design.record(chosen.candidate, latency);
            rows.extend(latency.map(|_| (tokens, width)));
        }
        batches.push(batch);
    }
    batches
}

#[test]
fn designs_divide_brackets_with_steps_and_stop_at_the_target() {
    let mut adaptive = design(0.05, 1);
    let batches = run(&mut adaptive, |_| false);
    assert!(adaptive.is_met());
    let estimate = adaptive.estimate().expect("hold-outs");
    assert!(
        estimate.p90 <= 0.05 && estimate.p50 <= estimate.p90 && estimate.p90 <= estimate.max,
        "{estimate:?}"
    );
    let chosen: Vec<&ChosenCandidate> = batches.iter().flatten().collect();
    assert!(chosen.len() < shapes().len() / 2, "{} cases", chosen.len());
    let ends = &batches[0];
    assert_eq!(ends.len(), 2 * WIDTHS.len());
    assert!(ends.iter().all(|chosen| chosen.reason == ChoiceReason::LineEnd && chosen.predicted.is_none()));
    // Most divided brackets are near the step.
    let divided: Vec<u64> = chosen
        .iter()
        .filter(|chosen| matches!(chosen.reason, ChoiceReason::WorstBracket(error) if error > 0.05))
        .map(|chosen| shapes()[chosen.candidate].0)
        .collect();
    let near = divided.iter().filter(|tokens| (500..1500).contains(*tokens)).count();
    assert!(near * 2 >= divided.len(), "{divided:?}");
}

#[test]
fn choices_are_new_candidates_and_depend_on_the_seed_alone() {
    let choices = |seed| {
        let batches = run(&mut design(1e-12, seed), |_| false);
        let chosen: Vec<usize> = batches.iter().flatten().map(|chosen| chosen.candidate).collect();
        let distinct: BTreeSet<usize> = chosen.iter().copied().collect();
        assert_eq!(distinct.len(), chosen.len(), "no candidate twice");
        assert!(batches.iter().all(|batch| batch.len() <= 10));
        chosen
    };
    assert_eq!(choices(3), choices(3));
    assert_ne!(choices(3), choices(4));
    // An error of zero needs all candidates next to the step, at least.
    assert!(choices(3).len() > 20);
}

#[test]
fn ends_that_cannot_be_measured_are_searched_by_halves() {
    let mut adaptive = design(0.05, 1);
    let batches = run(&mut adaptive, |tokens| tokens > 3000);
    let failed = batches.iter().flatten().filter(|chosen| shapes()[chosen.candidate].0 > 3000).count();
    // Each line has 31 candidates from 3000 to 4096.
    assert!((3..=21).contains(&failed) && adaptive.is_met(), "{failed} failed");
    let mut none = design(0.05, 1);
    run(&mut none, |_| true);
    assert!(!none.is_met() && none.estimate().is_none() && none.measured() == 0);
}

#[test]
fn errors_without_an_answer_are_infinite_and_few_hold_outs_estimate_nothing() {
    assert!((log_error(Some(11.0), 10.0) - 1.1_f64.ln()).abs() < 1e-12);
    assert!((log_error(Some(10.0), 11.0) - 1.1_f64.ln()).abs() < 1e-12);
    assert_eq!(log_error(None, 10.0), f64::INFINITY);
    assert_eq!(log_error(Some(0.0), 10.0), f64::INFINITY);
    let errors: Vec<f64> = (1..=9).map(f64::from).collect();
    let estimate = ErrorEstimate::from_errors(&errors).expect("nine are enough");
    assert_eq!((estimate.hold_outs, estimate.p50, estimate.p90, estimate.max), (9, 5.0, 9.0, 9.0));
    assert_eq!(ErrorEstimate::from_errors(&errors[..8]), None);
    let missed: Vec<f64> = (1..=10).map(|error| if error > 8 { f64::INFINITY } else { 0.01 }).collect();
    let estimate = ErrorEstimate::from_errors(&missed).expect("hold-outs");
    assert_eq!((estimate.p50, estimate.p90), (0.01, f64::INFINITY));
}
