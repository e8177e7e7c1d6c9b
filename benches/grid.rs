//! How long it takes to expand all grids: candidates, filters and dedupe on one core, then all of it with the
//! files on all cores.
//!
//! `cargo bench --bench grid`; three kernels, and 20 rows of each in the files, with `NPUBENCH_BENCH_SMALL=1`.

#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

mod size;

use std::{process::Command, time::Instant};

use npubench::{
    base::assets::AssetFiles,
    cases::grid::{
        CandidateSource, Candidates, ExistingCases, SelectionRequest,
        definition::{GridFiles, GridModels, Mutation, MutationFile},
        mutate::CaseMutator,
        select_rows,
    },
    kernel::{Case, KernelName, catalogue::Catalogue, default_memory_budget, device::DeviceProfile},
};

/// Candidates a second that one core must do.
const LEAST: f64 = 1e6;
/// Cases of each kernel that are mutated.
const SOURCES: usize = 200;
/// Kernels of the small size.
const FEW_KERNELS: usize = 3;
/// Cases of each kernel that are mutated, and rows of each in the files, at the small size.
const FEW_ROWS: usize = 20;
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
    let budget = default_memory_budget(device.hbm_bytes());
    println!("grids and catalogue are read in {:.3} s", begun.elapsed().as_secs_f64());

    let mut kernels = grids.kernels();
    kernels.truncate(size::full_or_small(usize::MAX, FEW_KERNELS));

    let begun = Instant::now();
    let (mut count, mut bytes) = (0_u64, 0_u64);
    for space in kernels.iter().flat_map(|kernel| grids.spaces_of_kernel(kernel)) {
        let mut candidates = Candidates::new(space);
        while candidates.advance().is_some() {
            count += 1;
            if let Ok(footprint) = candidates.check() {
                bytes = bytes.wrapping_add(footprint.bytes());
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
    for kernel in &kernels {
        let request =
            SelectionRequest { entry: catalogue.entry(kernel), budget, rows: None, seed: 0, filter: None };
        let source = CandidateSource::Grid(grids.spaces_of_kernel(kernel).collect());
        let selected = select_rows(kernel, source, &request, &ExistingCases::default());
        candidates += selected.candidates;
        rows += selected.rows();
    }
    let seconds = begun.elapsed().as_secs_f64();
    let rate = candidates as f64 / seconds;
    println!(
        "with the shape rule and dedupe: {candidates} candidates, {rows} valid, in {seconds:.3} s, {:.2} million a \
         second on one core, at least {:.0} wanted: {}",
        rate / 1e6,
        LEAST / 1e6,
        size::judged(rate >= LEAST)
    );

    let declared = MutationFile::load(&assets).expect("the built-in mutations");
    let mutations: Vec<&Mutation> = declared.all().iter().collect();
    let mutator = CaseMutator { mutations: &mutations, catalogue: &catalogue, device: &device };
    let few = Some(size::full_or_small(SOURCES, FEW_ROWS));
    let sources: Vec<_> = (kernels.iter())
        .map(|kernel| {
            let request =
                SelectionRequest { entry: catalogue.entry(kernel), budget, rows: few, seed: 0, filter: None };
            let source = CandidateSource::Grid(grids.spaces_of_kernel(kernel).collect());
            let mut cases: Vec<Case> = Vec::new();
            let selected = select_rows(kernel, source, &request, &ExistingCases::default());
            selected.for_each(|row| cases.push(row.case.clone()));
            (kernel, cases)
        })
        .collect();
    let begun = Instant::now();
    let (mut cases, mut mutants, mut taken) = (0, 0, 0);
    for (kernel, sources) in &sources {
        let request =
            SelectionRequest { entry: catalogue.entry(kernel), budget, rows: None, seed: 0, filter: None };
        let source = CandidateSource::Mutation { mutator, cases: sources.iter().collect() };
        let selected = select_rows(kernel, source, &request, &ExistingCases::default());
        cases += sources.len();
        mutants += selected.candidates;
        taken += selected.rows();
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "mutations of {cases} cases: {mutants} mutants, {taken} valid, in {seconds:.3} s, {:.0} thousand a second on \
         one core",
        mutants as f64 / seconds / 1e3
    );

    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("db");
    let mut command = Command::new(env!("CARGO_BIN_EXE_npubench"));
    command.args(["grid", "--kind", "rehearsal", "--rows"]);
    // The full size is all rows of all kernels, which is how the program takes 0 and no name.
    command.arg(size::full_or_small(0, FEW_ROWS).to_string());
    command.args(kernels.iter().filter(|_| size::is_small()).map(KernelName::as_str));
    let begun = Instant::now();
    let ran = command.arg("--db").arg(&path).output().expect("npubench runs");
    let seconds = begun.elapsed().as_secs_f64();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let rows = if size::is_small() { kernels.len() * FEW_ROWS } else { rows };
    println!(
        "the program, files included: {rows} rows in {seconds:.2} s, limit {LIMIT:.2} s: {}",
        size::judged(seconds <= LIMIT)
    );
}
