//! `npubench ingest`: writes profiles into per-kernel CSVs.

use std::{collections::BTreeMap, num::NonZeroU32};

use super::{options::check_device, prelude::*};
use crate::{
    answer::kernel_gaps::{ProfileGaps, gaps_of_groups},
    database::{
        KernelCsv, MergeReport, database_file::DatabaseFile, merge_collectives, merge_groups, save_tables,
    },
    kernel::{CollectiveCase, SoftwareVersions},
    measure::{
        collective::production_collectives::PlacedCollectives,
        device_choice::{DeviceChoice, check_profile_device, chip_of_host, choose_device},
    },
    profile::{
        DeviceEvidence, DiscoveredProfiles, ProfileError, ProfileFile, ProfileRanks, RankCounts, RecordGroup,
        RecordGroups, RecordedCollectives, RecordedDurations, SkippedPath, add_attributes, device_of_profile,
        leave_out_copies,
        profile_records::{BadProfile, divide_readable, left_out_files, read_records},
        profiles_without_records, stack_of_profile,
    },
};

/// Maximum number of paths that the next commands repeat.
const MAX_PATHS: usize = 3;

/// Reads kernel profiles into the per-kernel CSVs of a database
///
/// Records are grouped by kernel, shapes, types and formats; each group becomes a row with average, median and sample
/// standard deviation. Existing rows get new values in their profiling columns and keep all others. Collectives become rows
/// by size, type, ranks and tier, if a database or a trace has their sizes. Nothing is written unless every file could be read.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench ingest profiles/ --db a3
  npubench ingest op_summary_20261120.csv --db a3 --device ATLAS_800_A3_752T_128G_DIE")]
pub(super) struct IngestOptions {
    /// kernel_details.csv, op_summary_*.csv, ascend_pytorch_profiler*.db, msprof_*.db, or folders that contain such files
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Database folder; it is created if it does not exist
    #[arg(long, value_name = "DIR", env = DATABASE_VARIABLE)]
    db: PathBuf,
    /// Kind of a new database, by default `npu`; must be the kind of an existing one
    #[arg(long, value_enum)]
    kind: Option<DataKind>,
    /// Device profile of a new database, such as ATLAS_800_A2_313T_64G; it determines the roofline of its rows. By
    /// default that of NPUBENCH_DEVICE, the one that the profile shows, or that of this host; kind `rehearsal` may assume one
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Also replace the values of rows that have more ranks or records than the profile
    #[arg(long)]
    replace: bool,
    /// Leave out files that cannot be read, and name their bad lines; ends with 1 if there are some
    #[arg(long)]
    skip_bad: bool,
    /// Merge profiles of different CANN or torch_npu versions
    #[arg(long)]
    mix_stacks: bool,
    /// Print the result without writing anything
    #[arg(long)]
    dry_run: bool,
    /// Number of ranks that share the experts, for rows of DispatchFFNCombine and DispatchFFNCombineBF16; the profiler
    /// does not record it
    #[arg(long, value_name = "N")]
    ep_size: Option<NonZeroU32>,
    /// Number of ranks of the run: for its collectives, if the profile does not record groups and all collectives are of one, and for
    /// rows of MatmulAllReduce
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    world_size: Option<u64>,
    #[command(flatten)]
    assets: AssetOptions,
    #[command(flatten)]
    output: OutputOptions,
}

impl IngestOptions {
    pub(super) fn of_profiles(
        paths: Vec<PathBuf>,
        db: PathBuf,
        kind: Option<DataKind>,
        assets: &AssetOptions,
    ) -> Self {
        Self {
            paths,
            db,
            kind,
            device: None,
            replace: false,
            skip_bad: false,
            mix_stacks: false,
            dry_run: false,
            ep_size: None,
            world_size: None,
            assets: AssetOptions { assets: assets.assets.clone() },
            output: OutputOptions { format: OutputFormat::Plain },
        }
    }
}

pub(super) fn run(options: &IngestOptions) -> Result<ExitStatus, CommandError> {
    if options.paths.iter().any(|path| path.as_os_str() == "-") {
        return Err(CommandError::bad_input(
            "standard input is not read: a profile is a file or a folder",
            "write it to a file first, and give that; a file with this name is `./-`",
        ));
    }
    let kind = kind_of_target(options)?;
    check_device(options.device.as_deref(), &options.assets, &options.db)?;
    let ReadProfiles { files, stack, groups, mut collectives, other_exports, copies, bad, without_records } =
        ReadProfiles::read(options, kind)?;
    warn_of_open_ends(&files);
    let device = device_of_target(options, kind, &device_of_profiles(&files)?)?;
    let (records, are_rehearsed) = (groups.records, groups.rehearsed == groups.records);
    if records == 0 {
        let problem = match files.as_slice() {
            [file] => format!("`{}` has no records", file.0.display()),
            files => format!("none of the {} files has records", files.len()),
        };
        return Err(CommandError::bad_input(
            problem,
            "profile at least one step in which kernels run, or give the whole file",
        ));
    }
    if !groups.has_shapes() && collectives.by_signature.is_empty() {
        return Err(CommandError::bad_input(
            match records {
                1 => "the only record has no input shapes".to_owned(),
                records => format!("none of the {records} records has input shapes"),
            },
            "profile again with profiler_level=Level1 or higher and record_shapes=True",
        ));
    }
    if let Some(ranks) = options.world_size {
        collectives.set_world_size(ranks);
    }
    let assets = options.assets.load()?;
    let network = DeviceProfile::load(&assets, &device.name)?.comm;
    let unreadable = collectives.notes_of_unreadable();
    let collectives = PlacedCollectives::new(collectives, network.as_ref().map(|network| &*network.grid));
    let mut skipped = skipped(&groups, &collectives);
    skipped.extend(bad.iter().flat_map(BadProfile::notes));
    skipped.extend(without_records);
    skipped.extend(unreadable);
    skipped.extend(left_out_files(&other_exports, &copies));
    let ranks = ProfileRanks::of_files(&files);
    let rank_counts = RankCounts {
        ep_size: options.ep_size.map(|ranks| u64::from(ranks.get())),
        world_size: options.world_size,
    };
    let mut kernels = groups.into_kernels();
    skipped.extend(add_attributes(&mut kernels, &files, rank_counts)?);
    let gaps = gaps_of_groups(&Catalogue::load(&assets)?, &kernels);
    let news = IngestedRecords { kernels, collectives: collectives.tables, stack, ranks, are_rehearsed };
    let merged = news.write(options, kind, &device.name)?;
    print_result(options, files.len(), records, &skipped, &device, &merged);
    if options.output.format == OutputFormat::Plain && !options.dry_run {
        next_steps(options, kind, &gaps).iter().for_each(|line| print_note(line));
    }
    if bad.is_empty() {
        return Ok(ExitStatus::Done);
    }
    let files = format_count(bad.len(), "file");
    print_note(&format!(
        "left out: {files} that cannot be read; export again, then ingest all with `--replace`"
    ));
    Ok(ExitStatus::SomeNotOk)
}

struct ReadProfiles {
    files: Vec<ProfileFile>,
    /// Software that is common to the files and the database.
    stack: SoftwareVersions,
    groups: RecordGroups,
    collectives: RecordedCollectives,
    /// Files beside which another export of the same profile is read.
    other_exports: Vec<SkippedPath>,
    copies: Vec<SkippedPath>,
    /// Files that are left out by `--skip-bad`.
    bad: Vec<BadProfile>,
    /// Descriptions of profiles without records.
    without_records: Vec<String>,
}

impl ReadProfiles {
    /// Finds and reads the profiles, without those that cannot be read if the options allow it. Else, and if none can be
    /// read, all bad lines are printed, and the first is the error.
    fn read(options: &IngestOptions, kind: DataKind) -> Result<Self, CommandError> {
        let accept_rehearsed = kind == DataKind::Rehearsal;
        let (found, left_out) = match options.skip_bad {
            true => ProfileFile::find_usable(&options.paths)?,
            false => (ProfileFile::find_all(&options.paths)?, Vec::new()),
        };
        let DiscoveredProfiles { files: all, passed_over: other_exports } = found;
        let without_records = profiles_without_records(&options.paths, &all);
        let (mut files, mut copies) = leave_out_copies(all.clone());
        let mut read = read_profiles(&files, accept_rehearsed);
        let (mut readable, mut bad) = (all, Vec::new());
        if let Err(error) = &read {
            (readable, bad) = divide_readable(readable, accept_rehearsed);
            if !options.skip_bad {
                return Err(error_of_profiles(error, &bad, readable.len()));
            }
            (files, copies) = leave_out_copies(readable.clone());
            read = read_profiles(&files, accept_rehearsed);
        }
        bad.extend(left_out.iter().map(|error| BadProfile::of_error(PathBuf::new(), error)));
        if readable.is_empty() {
            bad.iter().flat_map(BadProfile::notes).for_each(|note| print_note(&note));
            return Err(CommandError::bad_input(
                "no profile can be read",
                "export the profiles again, or give others",
            ));
        }
        let (groups, collectives) = read?;
        // Equal tables of different software are not copies.
        let stack = common_stack(options, &readable)?;
        Ok(Self { files, stack, groups, collectives, other_exports, copies, bad, without_records })
    }
}

fn read_profiles(
    files: &[ProfileFile],
    accept_rehearsed: bool,
) -> Result<(RecordGroups, RecordedCollectives), ProfileError> {
    Ok((read_records(files, accept_rehearsed)?, RecordedCollectives::of_files(files)?))
}

/// Returns an error with the other problems of all bad files.
fn error_of_profiles(error: &ProfileError, bad: &[BadProfile], readable: usize) -> CommandError {
    let mut all = CommandError::bad_input(error.to_string(), error.hint());
    let first = BadProfile::of_error(PathBuf::new(), error).notes();
    for note in bad.iter().flat_map(BadProfile::notes).filter(|note| !first.contains(note)) {
        all.message += &format!("\n{note}");
    }
    if readable > 0 && !bad.is_empty() {
        let files = readable + bad.len();
        all.hint += &format!("; `--skip-bad` reads the other {readable} of {files} files");
    }
    all
}

/// Returns the device that all files show. Files of different devices are refused.
fn device_of_profiles(files: &[ProfileFile]) -> Result<DeviceEvidence, CommandError> {
    let mut all = DeviceEvidence::default();
    for file in files {
        all.merge_evidence(device_of_profile(&file.0)).map_err(|(one, another)| {
            CommandError::bad_input(
                format!("`{}` is a profile of {another}, the files before it are of {one}", file.0.display()),
                "keep one database per device",
            )
        })?;
    }
    Ok(all)
}

/// Chooses the device of a new database, or compares the profile with the device of an existing one.
fn device_of_target(
    options: &IngestOptions,
    kind: DataKind,
    evidence: &DeviceEvidence,
) -> Result<DeviceChoice, CommandError> {
    let assets = options.assets.load()?;
    if Database::is_new(&options.db)? {
        return choose_device(&assets, kind, options.device.as_deref(), evidence, chip_of_host);
    }
    let database = Database::open(&options.db)?;
    let device = DeviceProfile::load(&assets, database.device())?;
    check_profile_device(&database, &device, evidence)?;
    Ok(DeviceChoice { name: device.device, source: "of the database".to_owned() })
}

/// Kind of the existing or new database. A contradiction is refused before the profiles are read.
fn kind_of_target(options: &IngestOptions) -> Result<DataKind, CommandError> {
    let wanted = options.kind;
    if Database::is_new(&options.db)? {
        return Ok(wanted.unwrap_or(DataKind::Npu));
    }
    let existing = match wanted {
        Some(kind) => Database::open_as(&options.db, kind)?,
        None => Database::open(&options.db)?,
    };
    Ok(existing.kind())
}

/// Software versions that are common to all profiles and the database. Different versions are refused without
/// `--mix-stacks`.
fn common_stack(options: &IngestOptions, files: &[ProfileFile]) -> Result<SoftwareVersions, CommandError> {
    let mut known = match Database::is_new(&options.db)? {
        true => SoftwareVersions::default(),
        false => Database::open(&options.db)?.profiled_on().clone(),
    };
    let mut source_of_known = options.db.as_path();
    for file in files {
        let stack = stack_of_profile(&file.0);
        if stack.contradicts(&known) && !options.mix_stacks {
            return Err(CommandError::bad_input(
                format!(
                    "`{}` was recorded with {stack}, `{}` with {known}",
                    file.0.display(),
                    source_of_known.display()
                ),
                "keep one database per software stack, or merge them with `--mix-stacks`",
            ));
        }
        if known.is_unknown() && !stack.is_unknown() {
            source_of_known = &file.0;
        }
        known = known.merge_versions(&stack);
    }
    Ok(known)
}

/// Records of the ingested profiles by table, and their origin.
struct IngestedRecords {
    kernels: BTreeMap<KernelName, Vec<RecordGroup>>,
    collectives: BTreeMap<KernelName, Vec<(CollectiveCase, RecordedDurations)>>,
    /// Software that is common to the profiles and the database.
    stack: SoftwareVersions,
    ranks: ProfileRanks,
    /// True if all records are of the rehearsal host.
    are_rehearsed: bool,
}

/// Reports of the merged tables by kernel.
type MergedTables = BTreeMap<String, MergeReport>;

impl IngestedRecords {
    /// Merges the records into the tables of a database in memory, and returns the tables.
    fn merge(
        self,
        database: &Database,
        replace: bool,
    ) -> Result<(Vec<KernelCsv>, MergedTables), CommandError> {
        let (mut tables, mut merged) = (Vec::new(), BTreeMap::new());
        for (kernel, groups) in self.kernels {
            let mut table = database.kernel_csv(&kernel)?;
            merged
                .insert(kernel.to_string(), merge_groups(&kernel, &mut table, groups, &self.ranks, replace)?);
            tables.push(table);
        }
        for (kernel, collectives) in self.collectives {
            let mut table = database.kernel_csv(&kernel)?;
            merged.insert(
                kernel.to_string(),
                merge_collectives(&mut table, collectives, &self.ranks, replace)?,
            );
            tables.push(table);
        }
        Ok((tables, merged))
    }

    /// Writes the records into the new or existing database, and merges all tables before the first is written.
    fn write(
        self,
        options: &IngestOptions,
        kind: DataKind,
        device: &str,
    ) -> Result<MergedTables, CommandError> {
        if Database::is_new(&options.db)? {
            return self.create(options, kind, device);
        }
        let database = Database::open_as(&options.db, kind)?;
        if options.dry_run {
            let _lock = database.lock_for_reading()?;
            return Ok(self.merge(&database, options.replace)?.1);
        }
        let mut lock = database.lock()?;
        database.existing_ledger()?;
        let (stack, are_rehearsed) = (self.stack.clone(), self.are_rehearsed);
        let (mut tables, merged) = self.merge(&database, options.replace)?;
        tables.retain(KernelCsv::is_changed);
        if !tables.is_empty() {
            database.initialise(&mut lock)?;
            database.set_profiles(&stack, are_rehearsed)?;
        }
        save_tables(&tables.iter().collect::<Vec<_>>())?;
        Ok(merged)
    }

    /// Creates the database, in a temporary folder if nothing is to be written.
    fn create(
        self,
        options: &IngestOptions,
        kind: DataKind,
        device: &str,
    ) -> Result<MergedTables, CommandError> {
        let file = DatabaseFile {
            profiled_on: self.stack.clone(),
            has_rehearsed_profiles: self.are_rehearsed,
            device: device.to_owned(),
            ..DatabaseFile::new(kind)
        };
        let scratch = options.dry_run.then(ScratchFolder::create).transpose();
        let scratch = scratch.map_err(CommandError::no_temporary_folder)?;
        let target = scratch.as_ref().map_or_else(|| options.db.clone(), |scratch| scratch.path().join("db"));
        let mut merged = BTreeMap::new();
        Database::create(&target, &file, |draft| {
            let (tables, reports) = self.merge(&Database::open(draft)?, options.replace)?;
            merged = reports;
            tables.iter().try_for_each(|table| table.save().map(drop)).map_err(CommandError::from)
        })?;
        Ok(merged)
    }
}

fn warn_of_open_ends(files: &[ProfileFile]) {
    for file in files.iter().filter(|file| file.has_open_end().unwrap_or_default()) {
        print_warning(&format!(
            "the last line of `{}` has no line break: the file may be cut off inside of its last value; compare its size \
             with that of the original",
            file.0.display()
        ));
    }
}

fn skipped(groups: &RecordGroups, collectives: &PlacedCollectives) -> Vec<String> {
    let shapeless = groups.without_shapes.iter().map(|(kernel, records)| (kernel.as_str(), records.count));
    let (without_size, shapeless): (Vec<_>, Vec<_>) =
        shapeless.partition(|(kernel, _)| KernelName::is_collective_name(kernel));
    // A table may repeat a collective on another stream, so that it has more records of it than the trace.
    let without_size: Vec<_> =
        without_size.into_iter().filter(|(kernel, _)| collectives.records_of(kernel) == 0).collect();
    let untimed = groups.without_duration.iter().map(|(kernel, count)| (kernel.as_str(), *count));
    let reasons: [(&str, Vec<(&str, u64)>); 3] = [
        ("input shapes", shapeless),
        ("a duration", untimed.collect()),
        (
            "a size (a database of the profile, or trace_view.json beside the table, has the sizes)",
            without_size,
        ),
    ];
    let lines = reasons.iter().filter(|(_, kernels)| !kernels.is_empty()).map(|(what, kernels)| {
        let total: u64 = kernels.iter().map(|(_, count)| count).sum();
        let (noun, verb) = if total == 1 { ("record", "is") } else { ("records", "are") };
        format!("{total} {noun} without {what} {verb} left out: {}", with_counts(kernels.iter().copied()))
    });
    lines.chain(collectives.notes()).collect()
}

fn next_steps(options: &IngestOptions, kind: DataKind, gaps: &ProfileGaps) -> Vec<String> {
    let Some(mut replayable) = gaps.replayable_text() else { return Vec::new() };
    let db = quoted_path(&options.db);
    let profiles = match options.paths.len() {
        ..=MAX_PATHS => joined(options.paths.iter().map(|path| quoted_path(path)), " "),
        _ => "PROFILE...".to_owned(),
    };
    let first = or_empty((kind == DataKind::Npu).then(|| format!("`npubench doctor --db {db}`, ")));
    if gaps.has_kernels() {
        replayable += &format!(": `npubench kernels --missing {profiles}` lists the rest");
    }
    let next =
        format!("next: {first}`npubench plan --db {db}`, `npubench run --db {db}{}`", kind.host_option());
    vec![replayable, next]
}

fn print_result(
    options: &IngestOptions,
    files: usize,
    records: u64,
    skipped: &[String],
    device: &DeviceChoice,
    merged: &MergedTables,
) {
    let sum = |of: fn(&MergeReport) -> usize| merged.values().map(of).sum::<usize>();
    let (added, updated) = (sum(|report| report.added), sum(|report| report.updated));
    let (same, kept) = (sum(|report| report.same), sum(|report| report.kept));
    let record = IngestRecord {
        files,
        records,
        kernels: merged,
        left_out: skipped,
        added,
        updated,
        unchanged: same,
        kept,
        device: &device.name,
        device_source: &device.source,
        dry_run: options.dry_run,
    };
    emit(options.output.format, &[record], |_| {
        skipped.iter().for_each(|line| print_note(line));
        print_note(&format!("device {} ({})", device.name, device.source));
        if kept > 0 {
            let keep = if kept == 1 { "row keeps" } else { "rows keep" };
            print_note(&format!(
                "{kept} {keep} more evidence: the profile has fewer ranks or records of them, or no counters; \
                 `--replace` replaces them"
            ));
        }
        let dry_run = if options.dry_run { "dry run, nothing is written: " } else { "" };
        format!(
            "{dry_run}{} of {} in {}: {}, {} added, {updated} updated, {same} unchanged\n",
            format_count(records, "record"),
            format_count(files, "file"),
            options.db.display(),
            format_count(merged.len(), "kernel"),
            format_count(added, "row")
        )
    });
}

#[derive(Serialize, JsonSchema)]
struct IngestRecord<'a> {
    files: usize,
    records: u64,
    /// Rows by kernel.
    kernels: &'a MergedTables,
    /// Descriptions of what adds no row.
    left_out: &'a [String],
    added: usize,
    updated: usize,
    unchanged: usize,
    /// Rows that have more evidence than the profile.
    kept: usize,
    device: &'a str,
    device_source: &'a str,
    dry_run: bool,
}
