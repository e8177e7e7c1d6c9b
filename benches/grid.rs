//! Time to expand all grids: candidates, filters and deduplication on one core, then the program with its files on all
//! cores.
//!
//! `cargo bench --bench grid`.

#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::{process::Command, time::Instant};

use npubench::{
    catalogue::Catalogue,
    config::{AssetFiles, DeviceProfile},
    domain::{Case, KernelName, default_memory_budget},
    grid::{
        CandidateSource, Candidates, CaseBuilder, ExistingCases, SelectedRows, SelectionRequest,
        definition::{GridFiles, GridModels, Mutation, MutationFile},
        mutate::CaseMutator,
        select_rows,
    },
};

/// Candidates per second that one core must process.
const LEAST: f64 = 1e6;
/// Cases of each kernel that are mutated.
const SOURCES: usize = 200;
/// Greatest number of seconds of the program.
const LIMIT: f64 = 2.0;

#[expect(clippy::cast_precision_loss, reason = "counts of candidates")]
fn main() {
    let assets = AssetFiles::embedded();
    let start = Instant::now();
    let models = GridModels::load(&assets, &[]).expect("the built-in models");
    let grids = GridFiles::load(&assets, &models).expect("the built-in grids");
    let catalogue = Catalogue::load(&assets).expect("the built-in catalogue");
    let device = DeviceProfile::load(&assets, DeviceProfile::default_name()).expect("a profile");
    let budget = default_memory_budget(device.hbm_bytes());
    println!("grids and catalogue read in {:.3} s", start.elapsed().as_secs_f64());

    let start = Instant::now();
    let (mut count, mut bytes) = (0_u64, 0_u64);
    for space in grids.spaces() {
        let (mut candidates, mut builder) = (Candidates::new(space), CaseBuilder::new(space));
        while candidates.advance().is_some() {
            count += 1;
            if let Ok(footprint) = candidates.check().map(|numbers| builder.fill(numbers)) {
                bytes = bytes.wrapping_add(footprint.map_or(0, |footprint| footprint.bytes()));
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "expanded, constraints and memory: {count} candidates in {seconds:.3} s, {:.1} million a second",
        count as f64 / seconds / 1e6
    );
    std::hint::black_box(bytes);

    let start = Instant::now();
    let (mut candidates, mut rows) = (0, 0);
    for kernel in grids.kernels() {
        let selected = select(&kernel, &grids, &catalogue, budget, None);
        candidates += selected.candidates;
        rows += selected.rows();
    }
    let seconds = start.elapsed().as_secs_f64();
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
            let mut cases: Vec<Case> = Vec::new();
            let selected = select(&kernel, &grids, &catalogue, budget, Some(SOURCES));
            selected.for_each(|row| cases.push(row.case.clone()));
            drop(selected);
            (kernel, cases)
        })
        .collect();
    let start = Instant::now();
    let (mut cases, mut mutants, mut valid) = (0, 0, 0);
    for (kernel, sources) in &sources {
        let request = SelectionRequest { entry: catalogue.entry(kernel), budget, rows: None, seed: 0 };
        let source = CandidateSource::Mutation { mutator, cases: sources.iter().collect() };
        let selected = select_rows(kernel, source, &request, &ExistingCases::default());
        cases += sources.len();
        mutants += selected.candidates;
        valid += selected.rows();
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "mutations of {cases} cases: {mutants} mutants, {valid} valid, in {seconds:.3} s, {:.0} thousand a second on \
         one core",
        mutants as f64 / seconds / 1e3
    );

    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("db");
    let start = Instant::now();
    let ran = Command::new(env!("CARGO_BIN_EXE_npubench"))
        .args(["grid", "--rows", "0", "--kind", "rehearsal", "--db"])
        .arg(&path)
        .output()
        .expect("npubench runs");
    let seconds = start.elapsed().as_secs_f64();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    println!(
        "the program, files included: {rows} rows in {seconds:.2} s, limit {LIMIT:.2} s: {}",
        verdict(seconds <= LIMIT)
    );
}

fn select<'a>(
    kernel: &'a KernelName,
    grids: &'a GridFiles,
    catalogue: &Catalogue,
    budget: u64,
    rows: Option<usize>,
) -> SelectedRows<'a> {
    let request = SelectionRequest { entry: catalogue.entry(kernel), budget, rows, seed: 0 };
    let source = CandidateSource::Grid(grids.spaces_of_kernel(kernel).collect());
    select_rows(kernel, source, &request, &ExistingCases::default())
}

const fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "MISSED" }
}
