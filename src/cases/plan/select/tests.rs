//! Tests of the selection on small databases with the embedded catalogue.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::base::assets::AssetFiles;
use crate::base::command_error::CommandError;
use crate::kernel::DataKind;

const SIGNATURE: &str =
    "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats";

struct Fixture {
    folder: TempDir,
    catalogue: Catalogue,
    measured: BTreeSet<CaseId>,
    refused: BTreeMap<CaseId, RefusedCall>,
    withdrawn: BTreeMap<CaseId, WithdrawnAttempts>,
}

/// The six signature cells of an `Add` of two vectors.
fn add(length: u64) -> String {
    format!("\"{length};{length}\",FLOAT;FLOAT,ND;ND,{length},FLOAT,ND")
}

fn kernel(name: &str) -> KernelName {
    KernelName::new(name).expect("a kernel name")
}

impl Fixture {
    fn new(tables: &[(&str, &str, &[String])]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = crate::database::database_file::DatabaseFile::new(DataKind::Npu);
        fs::write(folder.path().join("database.yaml"), file.print()).expect("the file is written");
        for (name, columns, rows) in tables {
            let text = format!("{SIGNATURE}{columns}\n{}\n", rows.join("\n"));
            fs::write(folder.path().join(format!("{name}.csv")), text).expect("the CSV is written");
        }
        let catalogue = Catalogue::load(&AssetFiles::embedded()).expect("the catalogue");
        let (measured, refused, withdrawn) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        Self { folder, catalogue, measured, refused, withdrawn }
    }

    fn select(
        &self,
        update: UpdateMode,
        kernels: &[KernelName],
        weight_column: Option<&str>,
    ) -> Result<RunPlan, CommandError> {
        let database = Database::open(self.folder.path()).expect("a database");
        let device =
            DeviceProfile::load(&AssetFiles::embedded(), database.device()).expect("a device profile");
        let selection = CaseSelection {
            cache: CacheState::Hot,
            withdrawn: &self.withdrawn,
            update,
            kernels,
            cases: &[],
            filter: None,
            measured: &self.measured,
            imprecise: &BTreeSet::new(),
            refused_calls: Some(&self.refused),
            equal_calls: &EqualCallEvidence::default(),
            weight_column,
            case_weights: &BTreeMap::new(),
        };
        select_cases(&database, &self.catalogue, &device, &selection)
    }

    fn plan(&self) -> RunPlan {
        self.select(UpdateMode::Missing, &[], None).expect("a plan")
    }
}

fn lengths(plan: &RunPlan) -> Vec<u64> {
    let length = |planned: &PlannedCase| planned.case.outputs[0].as_ref().expect("an output").dims[0];
    plan.cases.iter().map(length).collect()
}

/// The row of another run shows other samples.
#[test]
fn row_of_a_run_whose_samples_were_withdrawn_is_measured_again() {
    let columns = ",Average Duration(us),MicroBench Verdict,MicroBench Run";
    let rows = [add(16) + ",1.5,ok,slow", add(32) + ",1.5,ok,other"];
    let mut fixture = Fixture::new(&[("Add", columns, &rows)]);
    assert_eq!(lengths(&fixture.plan()), [0_u64; 0]);
    let all = fixture.select(UpdateMode::All, &[], None).expect("a plan");
    let withdrawn = WithdrawnAttempts {
        runs: BTreeSet::from(["slow".to_owned()]),
        last_run: "slow".to_owned(),
        outcome: CaseOutcome::new(Verdict::Throttled, "its clock was low"),
    };
    let ids = all.cases.iter().map(|planned| planned.case.id().clone());
    fixture.withdrawn = ids.map(|case| (case, withdrawn.clone())).collect();
    assert_eq!(lengths(&fixture.plan()), [16]);
}

#[test]
fn update_mode_missing_skips_accepted_results_and_all_does_not() {
    let columns = ",Average Duration(us),MicroBench Verdict";
    let rows = [
        add(16) + ",1.5,ok",
        add(32) + ",1.5,noisy",
        add(48) + ",,",
        add(64) + ",,",
        // A number without a verdict, as superseded tools write it, counts as accepted.
        add(80) + ",1.5,",
        // A second row of a case.
        add(48) + ",,",
    ];
    let mut fixture = Fixture::new(&[("Add", columns, &rows)]);
    let in_ledger = fixture.plan().cases[2].case.id().clone();
    fixture.measured.insert(in_ledger.clone());
    let missing = fixture.plan();
    assert_eq!((lengths(&missing), missing.already_measured), (vec![32, 48], 3));
    assert_eq!(missing.missing_in_csv, BTreeMap::from([(kernel("Add"), vec![in_ledger.clone()])]));
    let all = fixture.select(UpdateMode::All, &[], None).expect("a plan");
    assert_eq!((lengths(&all), all.already_measured), (vec![16, 32, 48, 64, 80], 0));
    assert_eq!(all.missing_in_csv, BTreeMap::from([(kernel("Add"), vec![in_ledger])]));
}

#[test]
fn call_rejected_by_the_vendor_check_is_not_launched_until_the_call_changes() {
    let mut fixture = Fixture::new(&[("Add", "", &[add(16), add(32)])]);
    let plan = fixture.plan();
    let digest = |planned: &PlannedCase| {
        call_digest(&planned.case, &planned.call, fixture.catalogue.entry(&planned.case.kernel))
    };
    let [first, second] = plan.cases.as_slice() else { panic!("{} cases", plan.cases.len()) };
    let refused = |digest: String, reason: &str| RefusedCall {
        digest,
        outcome: CaseOutcome::new(Verdict::Rejected, reason),
    };
    let refused = BTreeMap::from([
        (first.case.id().clone(), refused(digest(first), "rejected by torch_npu")),
        (second.case.id().clone(), refused("digest of another call".to_owned(), "rejected earlier")),
    ]);
    fixture.refused = refused;
    let plan = fixture.plan();
    assert_eq!(lengths(&plan), [32]);
    let outcomes: Vec<&CaseOutcome> = plan.not_launched.iter().map(|(_, outcome)| outcome).collect();
    assert_eq!(outcomes, [&CaseOutcome::new(Verdict::Rejected, "rejected by torch_npu")]);
}

#[test]
fn gang_larger_than_the_host_is_unsupported() {
    let fixture = Fixture::new(&[("Add", "", &[add(16), add(32), add(48)])]);
    let mut plan = fixture.plan();
    (plan.cases[0].devices, plan.cases[2].devices) = (4, 8);
    plan.refuse_larger_gangs(4);
    assert_eq!(lengths(&plan), [16, 32]);
    let [(_, outcome)] = plan.not_launched.as_slice() else { panic!("{:?}", plan.not_launched) };
    let reason = "it needs 8 devices of one host at once, the run has 4";
    assert_eq!(*outcome, (Verdict::Unsupported, reason));
}

#[test]
fn value_is_the_finite_number_of_the_weight_column_or_0() {
    let weighted = [add(16) + ",7.5", add(32) + ",", add(48) + ",inf", add(64) + ",many", add(80) + ", 2 "];
    let mul = [add(16)];
    let fixture = Fixture::new(&[("Add", ",Weight", &weighted), ("Mul", "", &mul)]);
    let values = |weight_column| -> Vec<f64> {
        let plan = fixture.select(UpdateMode::Missing, &[], weight_column).expect("a plan");
        plan.cases.iter().map(|planned| planned.value).collect()
    };
    assert_eq!(values(Some("Weight")), [7.5, 0.0, 0.0, 0.0, 2.0, 0.0]);
    assert_eq!(values(None), [1.0; 6]);
    let error = fixture.select(UpdateMode::Missing, &[], Some("Weigth")).expect_err("no such column");
    assert_eq!(error.message, "no kernel of the database has a column `Weigth`");
}

#[test]
fn case_that_cannot_be_replayed_has_a_verdict_with_a_reason() {
    let huge = add(1 << 36);
    let other_rank = "\"16;16,16,16,16,16,16,16,16,16\",INT4;FLOAT,ND;ND,16,FLOAT,ND".to_owned();
    let rows = [huge, other_rank, "\"16;x\",FLOAT;FLOAT,ND;ND,16,FLOAT,ND".to_owned()];
    let fixture = Fixture::new(&[("Add", "", &rows), ("KernelWithoutEntry", "", &[add(16)])]);
    let plan = fixture.plan();
    assert!(plan.cases.is_empty(), "{:?}", lengths(&plan));
    let outcome = |index: usize| &plan.not_launched[index].1;
    assert_eq!(plan.not_launched.len(), 3);
    assert_eq!(outcome(0).verdict, Verdict::Oom);
    assert!(outcome(0).reason.starts_with("needs 768 GiB, "), "{}", outcome(0).reason);
    assert!(matches!(outcome(1).verdict, Verdict::Unsupported | Verdict::InvalidArgs), "{:?}", outcome(1));
    assert!(matches!(outcome(1).reason.cause, Cause::NoForm { .. }));
    assert_eq!(outcome(2), &CaseOutcome::new(Verdict::NoEntry, Cause::NoEntry));
    let [unreadable] = plan.unreadable_rows.as_slice() else { panic!("{:?}", plan.unreadable_rows) };
    assert!(unreadable.contains("Add.csv:4: "), "{unreadable}");
}

#[test]
fn unknown_kernel_and_empty_database_are_errors_with_a_hint() {
    let fixture = Fixture::new(&[("Add", "", &[add(16)]), ("Mul", "", &[add(16)])]);
    let only = fixture.select(UpdateMode::Missing, &[kernel("Mul")], None).expect("a plan");
    assert_eq!(only.cases.iter().map(|planned| planned.case.kernel.as_str()).collect::<Vec<_>>(), ["Mul"]);
    let error = fixture.select(UpdateMode::Missing, &[kernel("Addd")], None).expect_err("no such kernel");
    assert_eq!(error.message, "the database has no rows of `Addd`");
    assert_eq!(error.hint, "did you mean `Add`?");
    let graph = Fixture::new(&[("MatMulCommon", "", &[add(16)])]);
    let error = graph.select(UpdateMode::Missing, &[kernel("MatMulV2")], None).expect_err("another name");
    assert_eq!(error.hint, "did you mean `MatMulCommon`?");
    let error = Fixture::new(&[]).select(UpdateMode::Missing, &[], None).expect_err("no kernels");
    assert_eq!(error.message, "the database has no kernels");
    let sweep = Fixture::new(&[("Add", "", &[add(16)]), ("hcom_allReduce_", "", &[add(16)])]);
    let error =
        sweep.select(UpdateMode::Missing, &[kernel("hcom_allReduce_")], None).expect_err("a collective");
    assert_eq!(error.message, "`hcom_allReduce_` is a collective, which is measured by `npubench comm run`");
    assert!(error.hint.contains(" --ops all_reduce` measures"), "{}", error.hint);
}

#[test]
fn shares_of_time_count_all_rows_of_a_case() {
    let [one, other, untimed] = ["a", "b", "c"].map(CaseId::from_stored);
    let mut time = RecordedTime::default();
    assert_eq!(time.share([&one]), None);
    for (case, seconds) in [(&one, 1.0), (&one, 2.0), (&other, 5.0), (&untimed, 0.0)] {
        time.add_row(case, seconds);
    }
    assert_eq!([time.share([&one]), time.share([&untimed])], [Some(0.375), Some(0.0)]);
    assert_eq!(time.share([&one, &other]), Some(1.0));
    assert!(time.share([&untimed]).is_some_and(f64::is_sign_positive), "printed as -0.00 %");
}
