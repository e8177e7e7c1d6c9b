//! Device profile of a database: from the profile, the option or the host, and never silently from a default. Commands that
//! measure refuse a database of another device than the host's.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

use crate::prelude::*;

const A2: &str = "ATLAS_800_A2_313T_64G";

impl Context {
    fn run_without_device(&self, arguments: &(impl Words + ?Sized)) -> Ran {
        let output = self.command(arguments).env_remove("NPUBENCH_DEVICE").output();
        self.ran(&output.expect("npubench runs"))
    }

    /// Runs the program on a host whose `npu-smi info` prints two healthy chips of this name.
    pub(crate) fn run_on_host(&self, chip: &str, arguments: &(impl Words + ?Sized)) -> Ran {
        let output = self.command_on_host(chip, arguments).output();
        self.ran(&output.expect("npubench runs"))
    }

    /// Returns the command of the program on such a host; the folder `host` is the first of the `PATH`.
    pub(crate) fn command_on_host(&self, chip: &str, arguments: &(impl Words + ?Sized)) -> Command {
        let row = |npu: u32| {
            format!(
                "| {npu}     {chip:<20}| OK            | 97.5        41                0    / 0             |\n\
                 | 0                         | 0000:C{npu}:00.0  | 0           0    / 0          3379 / 65536         |\n\
                 +===========================+===============+====================================================+\n"
            )
        };
        let table = format!(
            "+------------------------------------------------------------------------------------------------+\n\
             | npu-smi 24.1.rc3                 Version: 24.1.rc3                                             |\n\
             +---------------------------+---------------+----------------------------------------------------+\n\
             | NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|\n\
             | Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |\n\
             +===========================+===============+====================================================+\n\
             {}{}",
            row(0),
            row(1)
        );
        let program = self.write(
            "host/npu-smi",
            &format!("#!/bin/sh\n[ \"$2\" = -m ] && exit 1\ncat <<'END'\n{table}END\n"),
        );
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
        let path = format!("{}:{}", self.path("host").display(), std::env::var("PATH").expect("a PATH"));
        let mut command = self.command(arguments);
        command.env_remove("NPUBENCH_DEVICE").env("PATH", path);
        command
    }

    fn device_of(&self, database: &str) -> String {
        let text = fs::read_to_string(self.path(database).join("database.yaml")).expect("a database");
        let line = text.lines().find_map(|line| line.strip_prefix("device: ")).expect("a device");
        line.to_owned()
    }
}

/// Fails in the state in which every database got the profile of an A3 die.
#[test]
fn measured_database_has_no_assumed_device() {
    let context = Context::new();
    context.write("k.csv", &profile(&[SWIGLU, ADD]));
    let ran = context.run_without_device("ingest k.csv --db db").ended(3);
    assert!(!context.path("db").exists());
    assert!(
        ran.stderr.starts_with("error: the profile does not contain its device, and this host has none\n")
    );
    ran.err_has("hint: give the device with `--device`; known profiles: ASCEND_310P3, ");

    let ran = context.run_without_device(&["ingest", "k.csv", "--db", "db", "--device", A2]).ended(0);
    ran.err_has(&format!("device {A2} (given with --device)"));
    assert_eq!(context.device_of("db"), A2);
    // The database has its device.
    let ran = context.run_without_device("ingest k.csv --db db");
    let first = ran.stderr.lines().next();
    assert_eq!(
        (ran.code, first),
        (0, Some("device ATLAS_800_A2_313T_64G (of the database)")),
        "{}",
        ran.stderr
    );

    let ran = context.run_without_device("ingest k.csv --db rehearsed --kind rehearsal").ended(0);
    ran.err_has("device ATLAS_800_A3_752T_128G_DIE (assumed");

    let ran = context.run_without_device("grid --db grid --rows 2 RmsNorm").ended(3);
    ran.err_has("give the device with `--device`");
    context.run_without_device("grid --db grid --rows 2 --dry-run RmsNorm").ended(0);
}

#[test]
fn host_gives_the_device_of_a_new_database() {
    let context = Context::new();
    context.write("k.csv", &profile(&[SWIGLU]));
    let ran = context.run_on_host("910B3", "ingest k.csv --db db").ended(0);
    ran.err_has(&format!("device {A2} (of this host: Ascend910B3 by npu-smi)"));
    assert_eq!(context.device_of("db"), A2);
    // npu-smi has one name for several models of A3.
    context.run_on_host("Ascend910", "ingest k.csv --db a3").ended(3);
    let ran = context.run_on_host("310P3", "grid --db small --rows 2 RmsNorm");
    assert_eq!((ran.code, &*context.device_of("small")), (0, "ASCEND_310P3"), "{}", ran.stderr);
}

/// A profile with what msprof states in `info.json`, in the layout of torch_npu.
#[test]
fn profile_gives_the_device_of_a_new_database() {
    let context = Context::new();
    let root = "host_1_20260101000000000_ascend_pt";
    context.write(&format!("{root}/ASCEND_PROFILER_OUTPUT/kernel_details.csv"), &profile(&[SWIGLU]));
    let info = |platform: &str, cores: u32, clock: u32| {
        let vector = 2 * cores;
        let info = format!(
            r#"{{"platform_version":"{platform}","DeviceInfo":[{{"id":0,"ai_core_num":{cores},"aiv_num":{vector},"aic_frequency":"{clock}"}}]}}"#
        );
        context.write(
            &format!("{root}/PROF_000001_20260101000000000_ABCDEFGHABCDEFGH/device_0/info.json.0"),
            &info,
        );
    };
    info("15", 32, 1650);
    // The profiler has one name for the 950PR and the 950DT.
    let ran = context.run_without_device(&["ingest", root, "--db", "db"]).ended(3);
    ran.err_has("these fit: ASCEND_950DT, ASCEND_950PR");
    let pr = "ASCEND_950PR";
    context.run_without_device(&["ingest", root, "--db", "db", "--device", pr]).ended(0);

    // Another device is refused, by a new database and by an existing one.
    let ran = context.run_without_device(&["ingest", root, "--db", "other", "--device", A2]).ended(3);
    ran.err_has(&format!("not of `{A2}`"));
    ran.err_has(pr);
    info("5", 20, 1800);
    let before = context.snapshot("db");
    let ran = context.run_without_device(&["ingest", root, "--db", "db"]).ended(3);
    ran.err_has(
        "not of `ASCEND_950PR` with 32 cube cores, 64 vector cores, 1650 MHz, the device of `ROOT/db`",
    );
    ran.err_has("correct `device` in its database.yaml");
    assert_eq!(context.snapshot("db"), before);
    // Several devices have 20 cores and 1800 MHz; the host decides between them.
    let ran = context.run_without_device(&["ingest", root, "--db", "other"]).ended(3);
    ran.err_has("these fit: ATLAS_800_A2_313T_64G, ");
    ran.err_lacks("752T");
    let ran = context.run_on_host("910B3", &["ingest", root, "--db", "other"]);
    assert_eq!((ran.code, &*context.device_of("other")), (0, A2), "{}", ran.stderr);
}

/// Fails in the state in which a host with 8 chips 910B3 and a database of A3 were `ok` for `doctor`, `plan` and `run`.
#[test]
fn host_with_another_chip_is_refused() {
    let context = Context::new();
    context.write("k.csv", &profile(&[SWIGLU]));
    context.run_without_device("ingest k.csv --db db --device ATLAS_800_A3_752T_128G_DIE").ended(0);
    let before = context.snapshot("db");
    let problem =
        "device 0 of this host is 910B3, the device of the database is `ATLAS_800_A3_752T_128G_DIE`";
    for command in
        [&["run", "--db", "db"][..], &["plan", "--db", "db"], &["plan", "--db", "db", "--devices", "0"]]
    {
        let ran = context.run_on_host("910B3", command).ended(3);
        ran.err_has(problem);
    }
    let ran = context.run_on_host("910B3", "doctor --db db");
    assert!(
        ran.code == 4 && ran.stdout.contains(&format!("missing device profile: {problem}")),
        "{}",
        ran.stdout
    );
    assert_eq!(context.snapshot("db"), before);
    // After the device is corrected, the host is accepted.
    let text = context.read("db/database.yaml");
    fs::write(context.path("db/database.yaml"), text.replace("ATLAS_800_A3_752T_128G_DIE", A2))
        .expect("written");
    let ran = context.run_on_host("910B3", "doctor --db db");
    ran.out_has(&format!("ok      device profile: {A2}"));
    assert_eq!(context.run_on_host("910B3", "plan --db db").code, 0);
}

#[test]
fn real_profiles_show_their_device() {
    let Some(real) = shared("real") else { return };
    let context = Context::new();
    let ingest = |name: &str| {
        context.run_without_device(&["ingest", &real.join(name).to_string_lossy(), "--db", "db"])
    };
    // 24 cores of an A2 or an A3: NPU_INFO has one name for both.
    let ran = ingest("cnn_db_level1_rank0").ended(3);
    ran.err_has("Ascend910B, 24 cube cores, 48 vector cores, 1800 MHz by NPU_INFO");
    assert!(ran.stderr.contains("ATLAS_800_A2_376T_64G") && !ran.stderr.contains("313T"), "{}", ran.stderr);
    let ran = ingest("llm_step_rank0");
    ran.err_has("20 cube cores, 40 vector cores, a clock of at least 1650 MHz by the blocks");
    ran.err_has("ATLAS_800_A2_313T_64G, ATLAS_800_A3_910_9372_DIE");
    context
        .run_without_device(&[
            "ingest",
            &real.join("cnn_db_level1_rank0").to_string_lossy(),
            "--db",
            "db",
            "--device",
            "ASCEND_310P3",
        ])
        .ended(3);
    assert!(!context.path("db").exists());
}
