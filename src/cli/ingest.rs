//! `npubench ingest`: writes profiles into per-kernel CSVs.

use std::{collections::BTreeMap, num::NonZeroU32};

use super::prelude::*;
use crate::{
    answer::kernel_gaps::{ProfileGaps, gaps_of_groups},
    cases::plan::planned_case,
    database::{DatabaseError, MergeReport, merge_collectives, merge_groups},
    kernel::{IdentifiedCase, SoftwareVersions},
    measure::{
        collective::production_collectives::PlacedCollectives,
        device_choice::{DeviceChoice, check_profile_device, chip_of_host, choose_device},
        verify::PLAUSIBLE,
    },
    profile::{
        DeviceEvidence, DiscoveredProfiles, MissingRows, ProfileError, ProfileFile, ProfileRanks, RankCounts,
        RecordGroup, RecordGroups, RecordedCollectives, UNNAMED, add_attributes, device_of_profile,
        launches_without_row, leave_out_copies, log_of_table,
        profile_records::{BadProfile, divide_readable, left_out_files, read_records},
        profiles_without_records, stack_of_profile,
    },
};

const MAX_PATHS: usize = 3;
const MAX_NAMES: usize = 5;

/// Reads kernel profiles into the per-kernel CSVs of a database
///
/// Records are grouped by kernel, shapes, types and formats; each group becomes a row with average, median and sample
/// standard deviation. Existing rows get new values in their profiling columns and keep all others. Collectives become rows
/// by size, type, ranks and tier, if a database or a trace has their sizes. Nothing is written unless every file could be read.
#[derive(Debug, Default, Args)]
#[command(after_help = "Examples:
  npubench ingest profiles/ --db a3
  npubench ingest op_summary_20261120.csv --db a3 --device ATLAS_800_A3_752T_128G_DIE")]
pub(super) struct IngestOptions {
    /// kernel_details.csv, op_summary_*.csv, ascend_pytorch_profiler*.db, msprof_*.db, or folders that contain such files
    #[arg(required = true, value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// Database folder; it is created if it does not exist
    #[arg(long, value_name = "DIR", env = DATABASE_VARIABLE)]
    pub(super) db: PathBuf,
    /// Kind of a new database, by default `npu`; must be the kind of an existing one
    #[arg(long, value_enum)]
    pub(super) kind: Option<DataKind>,
    /// Device profile of a new database, such as ATLAS_800_A2_313T_64G; it determines the roofline of its rows. By
    /// default that of NPUBENCH_DEVICE, the one that the profile shows, or that of this host; kind `rehearsal` may assume one
    #[arg(long, value_name = "NAME")]
    pub(super) device: Option<String>,
    /// Also replace the values of rows that have more ranks or records than the profile
    #[arg(long)]
    pub(super) replace: bool,
    /// Leave out files that cannot be read, and name their bad lines; ends with 1 if there are some
    #[arg(long)]
    pub(super) skip_bad: bool,
    /// Merge profiles of different CANN or torch_npu versions
    #[arg(long)]
    pub(super) mix_stacks: bool,
    /// Print the result without writing anything
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Number of ranks that share the experts, for rows of DispatchFFNCombine and DispatchFFNCombineBF16; the profiler
    /// does not record it
    #[arg(long, value_name = "N")]
    pub(super) ep_size: Option<NonZeroU32>,
    /// Number of ranks of the run: for its collectives, if the profile does not record groups and all collectives are of one, and for
    /// rows of MatmulAllReduce
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    pub(super) world_size: Option<u64>,
    #[command(flatten)]
    pub(super) common: CommonOptions<OutputOptions>,
}

pub(super) fn run(options: &IngestOptions) -> Result<ExitStatus, CommandError> {
    let mut target = TargetDatabase::open(&options.db, options.kind)?;
    check_device(options.device.as_deref(), &options.common.assets, &options.db)?;
    let ReadProfiles { files, stack, groups, mut collectives, bad, notes } =
        ReadProfiles::read(options, &target)?;
    for file in files.iter().filter(|file| file.has_open_end().unwrap_or_default()) {
        print_warning(&format!(
            "the last line of `{}` has no line break: the file may be cut off inside of its last value; compare its \
            size with that of the original",
            file.0.display()
        ));
    }
    let assets = options.common.assets.load()?;
    let device = device_of_target(options, &target, &assets, &device_of_profiles(&files)?)?;
    let records = groups.records;
    if records == 0 {
        let problem = match files.as_slice() {
            [file] => format!("`{}` has no records", file.0.display()),
            files => format!("none of the {} files has records", files.len()),
        };
        let hint = "profile at least one step in which kernels run, or give the whole file";
        return Err(CommandError::bad_input(problem, hint));
    }
    if !groups.has_shapes() && collectives.by_signature.is_empty() {
        let problem = match records {
            1 => "the only record has no input shapes".to_owned(),
            records => format!("none of the {records} records has input shapes"),
        };
        let unnamed = groups.without_shapes.get(UNNAMED).map_or(0, |unnamed| unnamed.count);
        if unnamed == records {
            let problem =
                format!("none of the {records} records has a kernel's name: their types are hashes");
            return Err(CommandError::bad_input(problem, LOST_NAMES));
        }
        let hint = "profile again with profiler_level=Level1 or higher and record_shapes=True";
        return Err(CommandError::bad_input(problem, hint));
    }
    if let Some(ranks) = options.world_size {
        collectives.set_world_size(ranks);
    }
    let network = DeviceProfile::load(&assets, &device.name)?.comm;
    let collectives = PlacedCollectives::new(collectives, network.as_ref().map(|network| &*network.grid));
    let mut left_out = records_left_out(&groups, &collectives);
    left_out.extend(losses_of_exports(&files));
    left_out.extend(notes);
    let rank_counts = RankCounts {
        ep_size: options.ep_size.map(|ranks| u64::from(ranks.get())),
        world_size: options.world_size,
    };
    if target.existing.is_none() {
        target.file.device.clone_from(&device.name);
        target.file.has_rehearsed_profiles = true;
    }
    target.file.has_rehearsed_profiles &= groups.rehearsed == records;
    target.file.profiled_on = stack;
    let mut kernels = groups.into_kernels();
    left_out.extend(add_attributes(&mut kernels, &files, rank_counts)?);
    let gaps = gaps_of_groups(&Catalogue::load(&assets)?, &kernels, &BTreeMap::new());
    let too_short = too_short_for_shapes(&assets, &device.name, &kernels)?;
    left_out.extend(too_short);
    let ranks = ProfileRanks::of_files(&files);
    let merged = target.write(options.dry_run, |database| {
        let (mut tables, mut merged) = (Vec::new(), BTreeMap::new());
        for (kernel, groups) in kernels {
            let mut table = database.kernel_csv(&kernel)?;
            let report = merge_groups(&kernel, &mut table, groups, &ranks, options.replace)?;
            merged.insert(kernel.to_string(), report);
            tables.push(table);
        }
        for (kernel, recorded) in collectives.tables {
            let mut table = database.kernel_csv(&kernel)?;
            let report = merge_collectives(&mut table, recorded, &ranks, options.replace)?;
            merged.insert(kernel.to_string(), report);
            tables.push(table);
        }
        Ok::<_, DatabaseError>((tables, merged))
    })?;
    let record = IngestRecord::new(files.len(), records, left_out, merged, device, options.dry_run);
    emit(options.common.output.format, [&record], || result_text(&record, &options.db));
    if options.common.output.format == OutputFormat::Plain && !options.dry_run {
        next_steps(options, target.file.kind, &gaps).iter().for_each(|line| print_note(line));
    }
    if bad == 0 {
        return Ok(ExitStatus::Done);
    }
    print_note(&format!(
        "left out: {} that cannot be read; export again, then ingest all with `--replace`",
        format_count(bad, "file")
    ));
    Ok(ExitStatus::SomeNotOk)
}

struct ReadProfiles {
    files: Vec<ProfileFile>,
    stack: SoftwareVersions,
    groups: RecordGroups,
    collectives: RecordedCollectives,
    bad: usize,
    notes: Vec<String>,
}

impl ReadProfiles {
    /// Finds and reads the profiles, without those that cannot be read if the options allow it. Else, and if none can be
    /// read, all bad lines are printed, and the first is the error.
    fn read(options: &IngestOptions, target: &TargetDatabase<'_>) -> Result<Self, CommandError> {
        let accept_rehearsed = target.file.kind == DataKind::Rehearsal;
        let (found, unusable) = match options.skip_bad {
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
        bad.extend(unusable.iter().map(|error| BadProfile::of_error(PathBuf::new(), error)));
        let mut notes: Vec<String> = bad.iter().flat_map(BadProfile::notes).collect();
        if readable.is_empty() {
            notes.iter().for_each(|note| print_note(note));
            let hint = "export the profiles again, or give others";
            return Err(CommandError::bad_input("no profile can be read", hint));
        }
        let (groups, collectives) = read?;
        // Equal tables of different software are not copies.
        let stack = common_stack(options, target, &readable)?;
        notes.extend(without_records);
        notes.extend(collectives.notes_of_unreadable());
        notes.extend(left_out_files(&other_exports, &copies));
        Ok(Self { files, stack, groups, collectives, bad: bad.len(), notes })
    }
}

fn read_profiles(
    files: &[ProfileFile],
    accept_rehearsed: bool,
) -> Result<(RecordGroups, RecordedCollectives), ProfileError> {
    Ok((read_records(files, accept_rehearsed)?, RecordedCollectives::of_files(files)?))
}

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

fn device_of_target(
    options: &IngestOptions,
    target: &TargetDatabase<'_>,
    assets: &AssetFiles,
    evidence: &DeviceEvidence,
) -> Result<DeviceChoice, CommandError> {
    let Some(database) = &target.existing else {
        return choose_device(assets, target.file.kind, options.device.as_deref(), evidence, chip_of_host);
    };
    let device = DeviceProfile::load(assets, database.device())?;
    check_profile_device(assets, database, &device, evidence)?;
    Ok(DeviceChoice { name: device.device, source: "of the database".to_owned() })
}

/// Software versions that are common to all profiles and the database. Different versions are refused without
/// `--mix-stacks`.
fn common_stack(
    options: &IngestOptions,
    target: &TargetDatabase<'_>,
    files: &[ProfileFile],
) -> Result<SoftwareVersions, CommandError> {
    let mut known = target.file.profiled_on.clone();
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

fn records_left_out(groups: &RecordGroups, collectives: &PlacedCollectives) -> Vec<String> {
    let all = || groups.without_shapes.iter().filter(|(kernel, _)| *kernel != UNNAMED);
    let shapeless = all().map(|(kernel, records)| (kernel.as_str(), records.count - records.cut_short));
    let cut_short = all().map(|(kernel, records)| (kernel.as_str(), records.cut_short));
    let is_some = |(_, count): &(&str, u64)| *count > 0;
    let (shapeless, cut_short) = (shapeless.filter(is_some), cut_short.filter(is_some));
    let (mut without_size, shapeless): (Vec<_>, Vec<_>) =
        shapeless.partition(|(kernel, _)| KernelName::is_collective_name(kernel));
    // A table may repeat a collective on another stream, so that it has more records of it than the trace.
    without_size.retain(|(kernel, _)| collectives.records_of(kernel) == 0);
    let untimed = groups.without_duration.iter().map(|(kernel, count)| (kernel.as_str(), *count));
    let of_collectives =
        "a size (a database of the profile, or trace_view.json beside the table, has the sizes)";
    let reasons: [(&str, Vec<(&str, u64)>); 3] =
        [("input shapes", shapeless), ("a duration", untimed.collect()), (of_collectives, without_size)];
    let lines = reasons.iter().filter(|(_, kernels)| !kernels.is_empty()).map(|(what, kernels)| {
        let total: u64 = kernels.iter().map(|(_, count)| count).sum();
        let (noun, verb) = if total == 1 { ("record", "is") } else { ("records", "are") };
        format!("{total} {noun} without {what} {verb} left out: {}", with_counts(kernels.iter().copied()))
    });
    let cut_short: Vec<(&str, u64)> = cut_short.collect();
    let cut_short = (!cut_short.is_empty()).then(|| {
        format!(
            "records are left out, because the profiler lost a part of their tensors, as other records of the kernel show: {}",
            with_counts(cut_short.iter().copied())
        )
    });
    let unnamed = groups.without_shapes.get(UNNAMED).map(|unnamed| {
        let is_left_out = are_left_out(unnamed.count);
        format!("{} whose type is a hash {is_left_out}: {LOST_NAMES}", format_count(unnamed.count, "record"))
    });
    let commas = groups.comma_rows.as_ref().map(|(error, rows)| match rows {
        1 => format!("one row is left out: {error}"),
        rows => format!("{rows} rows are left out; the first one: {error}"),
    });
    let damaged = groups.damaged_counters.iter().map(|(counter, cells)| {
        format!(
            "`{counter}` of {} is no number from 0 and no `N/A`: means are without them",
            format_count(*cells, "record")
        )
    });
    lines.chain(damaged).chain(cut_short).chain(unnamed).chain(commas).chain(collectives.notes()).collect()
}

const LOST_NAMES: &str = "the profile lost its table of names (`unaging.additional.hash_dic*` of its raw data); collect it again, and \
     let the program end by itself";

const fn are_left_out(count: u64) -> &'static str {
    if count == 1 { "is left out" } else { "are left out" }
}

fn truncated_list(names: &[String]) -> String {
    let (shown, rest) = names.split_at(names.len().min(MAX_NAMES));
    let more = if rest.is_empty() { String::new() } else { format!("; {} more", rest.len()) };
    format!("{}{more}", shown.join("; "))
}

/// Names the cases whose records are shorter than the roofline of their shapes allows.
fn too_short_for_shapes(
    assets: &AssetFiles,
    device: &str,
    kernels: &BTreeMap<KernelName, Vec<RecordGroup>>,
) -> Result<Option<String>, CommandError> {
    let (catalogue, device) = (Catalogue::load(assets)?, DeviceProfile::load(assets, device)?);
    let is_too_short = |group: &&RecordGroup| {
        let bound = planned_case(&catalogue, &device, IdentifiedCase::new(group.case.clone()));
        let mean = group.total_duration().seconds() / group.record_count() as f64;
        bound.is_ok_and(|planned| mean < PLAUSIBLE * planned.fastest.seconds())
    };
    let short = kernels.values().flatten().filter(is_too_short);
    let short: Vec<String> = short.map(|group| format!("{} {}", group.case.kernel, group.cells[0])).collect();
    Ok((!short.is_empty()).then(|| {
        let (cases, verb) = (format_count(short.len(), "case"), if short.len() == 1 { "takes" } else { "take" });
        format!(
            "{cases} {verb} less time than the roofline of the shapes allows; the profiler ends the shape of an empty tensor at its \
             first 0, so that the launches may have had empty tensors: {}",
            truncated_list(&short)
        )
    }))
}

/// Describes what the tables and logs of the exporter show beside the records.
fn losses_of_exports(files: &[ProfileFile]) -> Vec<String> {
    let missing = launches_without_row(files).into_iter().map(|found| {
        let MissingRows { folder, missing, rows, launches, tasks } = found;
        let launched = if missing == 1 { "1 launch has".to_owned() } else { format!("{missing} launches have") };
        format!(
            "{launched} no row in the op_summary of `{}`, which has {rows} rows: api_statistic counts {launches} launches, task_time \
             {tasks} kernels; the numbers of records are too low",
            folder.display()
        )
    });
    let logs: BTreeMap<PathBuf, String> =
        files.iter().filter_map(|file| log_of_table(&file.0)).map(|loss| (loss.log, loss.line)).collect();
    let logs = logs
        .into_iter()
        .map(|(log, line)| format!("the exporter reports lost data in `{}`: {line}", log.display()));
    missing.chain(logs).collect()
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

record! {
    IngestRecord(
        files: usize,
        records: u64,
        left_out: Vec<String>,
        merged: BTreeMap<String, MergeReport>,
        device: DeviceChoice,
        dry_run: bool
    ) with {
        let counts: [fn(&MergeReport) -> usize; 4] =
            [|report| report.added, |report| report.updated, |report| report.same, |report| report.kept];
        let [added, updated, same, kept] = counts.map(|of| merged.values().map(of).sum());
    } {
        files: usize = files,
        records: u64 = records,
        kernels: BTreeMap<String, MergeReport> = merged,
        /// Descriptions of what adds no row.
        left_out: Vec<String> = left_out,
        added: usize = added,
        updated: usize = updated,
        unchanged: usize = same,
        /// Rows that have more evidence than the profile.
        kept: usize = kept,
        device: String = device.name,
        device_source: String = device.source,
        dry_run: bool = dry_run,
    }
}

fn result_text(record: &IngestRecord, db: &Path) -> String {
    let IngestRecord { kept, updated, unchanged, device, device_source, .. } = record;
    record.left_out.iter().for_each(|line| print_note(line));
    print_note(&format!("device {device} ({device_source})"));
    if *kept > 0 {
        let keep = if *kept == 1 { "row keeps" } else { "rows keep" };
        print_note(&format!(
            "{kept} {keep} more evidence: the profile has fewer ranks or records of them, or no counters; `--replace` \
            replaces them"
        ));
    }
    format!(
        "{}{} of {} in {}: {}, {} added, {updated} updated, {unchanged} unchanged\n",
        if record.dry_run { "dry run, nothing is written: " } else { "" },
        format_count(record.records, "record"),
        format_count(record.files, "file"),
        db.display(),
        format_count(record.kernels.len(), "kernel"),
        format_count(record.added, "row")
    )
}
