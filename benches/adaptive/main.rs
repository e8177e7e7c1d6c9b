//! Cases that an adaptive grid needs for the interpolation error of the density standard's ladder, on surfaces whose
//! durations are known. Both are answered by the lookups of the product. Errors are those of random questions, for
//! which no case was chosen, and are 90th percentiles.
//!
//! `reached` is the number of cases with which the error was at most that of the ladder for the first time, `stopped` that
//! with which the adaptive grid estimated so itself, with the error at that time and the estimate. Eight seeds; `cargo
//! bench --bench adaptive`; one seed and fewer widths with `NPUBENCH_BENCH_SMALL=1`, at which size the limits are
//! wider and checked as well.

#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes below 2^53"
)]

mod questions;
#[path = "../size/mod.rs"]
mod size;
mod surfaces;

use std::{error::Error, fmt::Write as _, fs, path::Path};

use npubench::{
    answer::{
        adaptive::{AdaptiveDesign, AdaptiveOptions, log_error},
        lookup::LookupEngine,
        op_mapping::OpMapping,
    },
    database::{COMPUTE_COLUMNS, Database, database_file::DatabaseFile},
    kernel::DataKind,
};
use questions::{candidates_of, random_questions};
use surfaces::{Shape, Surface};

const MAPPING: &str = "operator_mappings:\n  add: {kernel_type: Add, query_mode: elementwise}\n";

fn main() {
    let seeds: u64 = size::full_or_small(8, 1);
    // Hold-outs are many of the few cases of the small size.
    let (limit_factor, error_limit) = size::full_or_small((1.0, 1.25), (1.7, 2.0));
    let folder = tempfile::tempdir().expect("a temporary folder");
    println!(
        "{:<26} {:>4} | {:>6} {:>7} | {:>7} {:>5} | {:>7} {:>5} {:>7} {:>8}",
        "surface", "seed", "ladder", "error", "reached", "share", "stopped", "share", "error", "estimate"
    );
    let mut missed = Vec::new();
    for surface in surfaces::all(size::is_small()) {
        let ladder: Vec<Shape> = (surface.widths.iter())
            .flat_map(|widths| surface.tokens.iter().map(move |tokens| (*tokens, *widths)))
            .collect();
        let mut bench = SurfaceBench {
            path: &folder.path().join("db"),
            surface: &surface,
            questions: random_questions(&surface, size::full_or_small(8000, 800)),
            target: 0.0,
            ladder: ladder.len(),
        };
        bench.target = bench.true_error(&bench.engine_of(&ladder));
        let limit = surface.case_limit * limit_factor;
        let mut shares = Vec::new();
        for seed in 0..seeds {
            let run = bench.adapt(seed);
            let [reached, stopped] =
                [run.reached, run.stopped].map(|cases| cases as f64 / ladder.len() as f64);
            println!(
                "{:<26} {seed:>4} | {:>6} {:>6.2}% | {:>7} {reached:>5.2} | {:>7} {stopped:>5.2} {:>6.2}% {:>7.2}%",
                surface.name,
                ladder.len(),
                percent(bench.target),
                run.reached,
                run.stopped,
                percent(run.error),
                percent(run.estimate),
            );
            shares.push((reached, stopped));
            if reached > limit || run.error > error_limit * bench.target {
                missed.push(format!("{}, seed {seed}", surface.name));
            }
        }
        let mean =
            |share: fn(&(f64, f64)) -> f64| shares.iter().map(share).sum::<f64>() / shares.len() as f64;
        println!(
            "{:<26} mean share of the cases: reached {:.2}, stopped {:.2}; limit {limit:.2}",
            surface.name,
            mean(|share| share.0),
            mean(|share| share.1)
        );
    }
    assert!(missed.is_empty(), "beyond the limits: {}", missed.join("; "));
    println!("limits of the cases, and of errors at the own stop ({error_limit:.2} of the target): hold");
}

fn percent(log_ratio: f64) -> f64 {
    100.0 * log_ratio.exp_m1()
}

/// Comparison on one surface.
struct SurfaceBench<'s> {
    /// Folder of the database.
    path: &'s Path,
    surface: &'s Surface,
    questions: Vec<Shape>,
    /// Error of the ladder.
    target: f64,
    /// Cases of the ladder.
    ladder: usize,
}

/// Result of an adaptive grid.
struct AdaptiveRun {
    reached: usize,
    stopped: usize,
    /// Error and estimate when it stopped.
    error: f64,
    estimate: f64,
}

impl SurfaceBench<'_> {
    fn adapt(&self, seed: u64) -> AdaptiveRun {
        let (shapes, candidates) = candidates_of(self.surface);
        let options = AdaptiveOptions { target: self.target, batch: (self.ladder / 40).max(8), seed };
        let mut design = AdaptiveDesign::new(candidates, options);
        let mut rows: Vec<Shape> = Vec::new();
        let (mut reached, mut stopped) = (None, None);
        loop {
            let mut engine = self.engine_of(&rows);
            let error =
                if reached.is_some() && !design.is_met() { f64::NAN } else { self.true_error(&engine) };
            if error <= self.target {
                reached.get_or_insert(rows.len());
            }
            if design.is_met() {
                let estimate = design.estimate().map_or(f64::INFINITY, |estimate| estimate.p90);
                stopped.get_or_insert((rows.len(), error, estimate));
            }
            let is_over = stopped.is_some() && reached.is_some() || rows.len() >= 2 * self.ladder;
            let chosen = if is_over { Vec::new() } else { design.next_batch(&mut engine).expect("readable") };
            if chosen.is_empty() {
                let (stopped, error, estimate) = stopped.unwrap_or((rows.len(), error, f64::INFINITY));
                return AdaptiveRun { reached: reached.unwrap_or(rows.len()), stopped, error, estimate };
            }
            for chosen in chosen {
                let (tokens, widths) = shapes[chosen.candidate];
                design.record(chosen.candidate, Some(self.surface.measured(tokens, widths)));
                rows.push((tokens, widths));
            }
        }
    }

    /// Returns the 90th percentile of the errors of all questions.
    fn true_error(&self, engine: &LookupEngine) -> f64 {
        let error = |&(tokens, widths): &Shape| {
            let answer = engine.lookup(&self.surface.query(tokens, widths)).expect("readable");
            log_error(answer.latency.map(|latency| latency.0), (self.surface.duration)(tokens, widths))
        };
        let mut errors: Vec<f64> = self.questions.iter().map(error).collect();
        errors.sort_by(f64::total_cmp);
        errors[errors.len() * 9 / 10]
    }

    /// Writes the rows of a database and opens it for lookups.
    fn engine_of(&self, rows: &[Shape]) -> LookupEngine {
        let mut text = COMPUTE_COLUMNS.join(",") + "\n";
        let dims = |dims: &[u64]| dims.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        for &(tokens, widths) in rows {
            let (inputs, output) = (self.surface.shapes)(tokens, widths);
            let types = vec!["DT_BF16"; inputs.len()].join(";");
            let formats = vec!["ND"; inputs.len()].join(";");
            let inputs = inputs.iter().map(|input| dims(input)).collect::<Vec<_>>().join(";");
            let _ = write!(
                text,
                "dynamic,AI_CORE,\"\"\"{inputs}\"\"\",{types},{formats},\"\"\"{}\"\"\",DT_BF16,ND,{}",
                dims(&output),
                self.surface.measured(tokens, widths)
            );
            text.push_str(&",".repeat(COMPUTE_COLUMNS.len() - 9));
            text.push('\n');
        }
        let _ = fs::remove_dir_all(self.path);
        Database::create(self.path, &DatabaseFile::new(DataKind::Npu), |draft| {
            fs::write(draft.join(format!("{}.csv", self.surface.kernel)), text).expect("written");
            Ok::<(), Box<dyn Error>>(())
        })
        .expect("made");
        let mapping = OpMapping::parse(Path::new("op_mapping.yaml"), MAPPING).expect("a mapping");
        LookupEngine::new(Database::open(self.path).expect("there"), Some(mapping)).expect("an engine")
    }
}
