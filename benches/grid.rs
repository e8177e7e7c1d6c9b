//! How long it takes to expand all grids: candidates, filters and dedupe on one core, then all of it with the
//! files on all cores.
//!
//! `cargo bench --bench grid`.

#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::{process::Command, time::Instant};

use npubench::{
    catalogue::Catalogue,
    config::{AssetFiles, DeviceProfile},
    domain::Case,
    grid::{
        Candidates, CaseBuilder, ExistingCases, SelectionRequest, default_budget,
        definition::{GridFiles, GridModels, Mutation, MutationFile},
        grow,
        mutate::{CaseMutator, MutationOrder, mutate},
    },
};

/// Candidates a second that one core must do.
const LEAST: f64 = 1e6;
/// Cases of each kernel that are mutated.
const SOURCES: usize = 200;
/// Seconds that the whole may take.
const LIMIT: f64 = 2.0;

#[expect(clippy::cast_precision_loss, reason = "counts of candidates")]
fn main() {
    let assets = AssetFiles::embedded();
    let begun = Instant::now();
    let models = GridModels::load(&assets, &[]).expect("the built-in models");
    let grids = GridFiles::load(&assets, &models).expect("the built-in grids");
    let catalogue = Catalogue::load(&assets).expect("the built-in catalogue");
    let device = DeviceProfile::load(&assets, DeviceProfile::default_name()).expect("a profile");
    let budget = default_budget(device.hbm_bytes());
    println!("grids and catalogue are read in {:.3} s", begun.elapsed().as_secs_f64());

    let begun = Instant::now();
    let (mut count, mut bytes) = (0_u64, 0_u64);
    for space in grids.spaces() {
        let (mut candidates, mut draft) = (Candidates::new(space), CaseBuilder::new(space));
        while candidates.advance().is_some() {
            count += 1;
            if let Ok(footprint) = candidates.check().map(|numbers| draft.fill(numbers)) {
                bytes = bytes.wrapping_add(footprint.map_or(0, |footprint| footprint.bytes()));
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "expanded, constraints and memory: {count} candidates in {seconds:.3} s, {:.1} million a second",
        count as f64 / seconds / 1e6
    );
    std::hint::black_box(bytes);

    let begun = Instant::now();
    let (mut candidates, mut rows) = (0, 0);
    for kernel in grids.kernels() {
        let order = SelectionRequest { entry: catalogue.entry(&kernel), budget, rows: None, seed: 0 };
        let grown = grow(grids.of(&kernel).collect(), &order, &ExistingCases::default());
        candidates += grown.candidates;
        rows += grown.rows();
    }
    let seconds = begun.elapsed().as_secs_f64();
    let rate = candidates as f64 / seconds;
    println!(
        "with the shape rule and dedupe: {candidates} candidates, {rows} valid, in {seconds:.3} s, {:.2} million a \
         second on one core, at least {:.0} wanted: {}",
        rate / 1e6,
        LEAST / 1e6,
        verdict(rate >= LEAST)
    );

    let declared = MutationFile::load(&assets).expect("the built-in mutations");
    let mutations: Vec<&Mutation> = declared.all().iter().collect();
    let mutator = CaseMutator { mutations: &mutations, catalogue: &catalogue, device: &device };
    let sources: Vec<_> = (grids.kernels().into_iter())
        .map(|kernel| {
            let order =
                SelectionRequest { entry: catalogue.entry(&kernel), budget, rows: Some(SOURCES), seed: 0 };
            let mut cases: Vec<Case> = Vec::new();
            let grown = grow(grids.of(&kernel).collect(), &order, &ExistingCases::default());
            let _ = grown.for_each(|_, numbers, draft| {
                cases.extend(draft.case(numbers).ok().cloned());
                Ok::<(), std::convert::Infallible>(())
            });
            (kernel.clone(), cases)
        })
        .collect();
    let begun = Instant::now();
    let (mut cases, mut mutants, mut taken) = (0, 0, 0);
    for (kernel, sources) in &sources {
        let order = MutationOrder { mutator, budget, rows: None, seed: 0 };
        let mutated = mutate(kernel, sources.iter().collect(), order, &ExistingCases::default());
        cases += sources.len();
        mutants += mutated.candidates;
        taken += mutated.rows();
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "mutations of {cases} cases: {mutants} mutants, {taken} valid, in {seconds:.3} s, {:.0} thousand a second on \
         one core",
        mutants as f64 / seconds / 1e3
    );

    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("db");
    let begun = Instant::now();
    let ran = Command::new(env!("CARGO_BIN_EXE_npubench"))
        .args(["grid", "--rows", "0", "--kind", "rehearsal", "--db"])
        .arg(&path)
        .output()
        .expect("npubench runs");
    let seconds = begun.elapsed().as_secs_f64();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    println!(
        "the program, files included: {rows} rows in {seconds:.2} s, limit {LIMIT:.2} s: {}",
        verdict(seconds <= LIMIT)
    );
}

const fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "MISSED" }
}
