//! Options of a sweep that state its collectives, groups, types and message sizes.

use super::super::prelude::*;
use crate::{
    answer::lookup_database::WorkloadMessages,
    base::files::{MAX_DOCUMENT, read_regular_text},
    kernel::{CollectiveKind, PartWeights},
    measure::collective::sweep_session::{SweepPart, WantedGroups},
};

/// Group of the options that name workloads. A requirement of one of them would be waived beside options with which it conflicts.
const WORKLOADS_OR_MODEL: &str = "workloads_or_model";

#[derive(Debug, Args)]
#[command(group(ArgGroup::new(WORKLOADS_OR_MODEL).args(["workloads", "model"]).multiple(true)))]
pub(super) struct MessageOptions {
    /// Collectives, separated by commas: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `all_to_all_v`, `broadcast`,
    /// `send_receive`
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse_kind,
          default_value = "all_reduce,all_gather,reduce_scatter,all_to_all")]
    ops: Vec<CollectiveKind>,
    /// Numbers of ranks, separated by commas; by default (`all`) the powers of two that the devices allow
    #[arg(long, value_name = "LIST|all", default_value = "all", value_parser = parse_ranks)]
    ranks: RankList,
    /// Tiers of the network that the groups span, separated by commas; 0 is the outermost; by default all
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    tiers: Vec<usize>,
    /// Sizes of the parts of `all_to_all_v`: `hot:4` (each rank sends 4 times as much to rank 0 as to each other rank), weights by
    /// sender and receiver such as `1,2/3,4`, or a CSV file with them; equal by default
    #[arg(long, value_name = "WEIGHTS|FILE", value_parser = parse_parts, default_value = "equal")]
    pub(super) parts: PartWeights,
    /// Element types, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse_dtype, default_value = "bf16")]
    dtypes: Vec<String>,
    /// Smallest message
    #[arg(long, value_name = "SIZE", default_value = "1K", value_parser = parse_size)]
    from: u64,
    /// Largest message
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = parse_size)]
    to: u64,
    /// Ratio of successive messages
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = |text: &str| parse_within(text, 2..=1024_u64, "no ratio of sizes; expected a whole number from 2 to 1024"))]
    factor: u64,
    /// Messages, separated by commas, instead of `--from`, `--to` and `--factor`
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size,
          conflicts_with_all = ["from", "to", "factor"])]
    sizes: Vec<u64>,
    /// Measure the messages of these workloads instead, each with its collective, type and ranks
    #[arg(long = "workload", value_name = "FILE", num_args = 1..,
          conflicts_with_all = ["ops", "dtypes", "from", "to", "factor", "sizes"])]
    workloads: Vec<PathBuf>,
    /// Measure the messages of one step of a model, such as Qwen3-32B or the path of a config.json
    #[arg(long, alias = "models", value_name = "MODEL", group = NAMED_MODEL,
          conflicts_with_all = ["ops", "dtypes", "from", "to", "factor", "sizes"])]
    model: Option<String>,
    #[command(flatten)]
    step: ModelStepOptions,
    /// Operators of the workloads with their kernels; by default `op_mapping.yaml` of the database, if it has one
    #[arg(long, value_name = "FILE", requires = WORKLOADS_OR_MODEL)]
    mapping: Option<PathBuf>,
}

impl MessageOptions {
    pub(super) fn combinations(&self) -> Result<SweepPart, CommandError> {
        if self.parts != PartWeights::Equal && !self.ops.contains(&CollectiveKind::AllToAllV) {
            return Err(CommandError::usage(
                "`--parts` is for `all_to_all_v`, which is not among the collectives",
                "add `--ops all_to_all_v`, or remove `--parts`",
            ));
        }
        let mut sizes = match self.sizes.is_empty() {
            true => ladder(self.from, self.to, self.factor)?,
            false => self.sizes.clone(),
        };
        sizes.sort_unstable();
        sizes.dedup();
        Ok(SweepPart { kinds: self.ops.clone(), dtypes: self.dtypes.clone(), sizes, groups: Vec::new() })
    }

    /// Refuses `--ranks` that the messages of a model, whose groups follow from its parallelism, do not have.
    fn check_ranks(&self, parts: &[SweepPart]) -> Result<(), CommandError> {
        let of_model: BTreeSet<usize> =
            parts.iter().flat_map(|part| &part.groups).map(|group| group.ranks).collect();
        let is_measured = |ranks: &usize| of_model.contains(ranks);
        if !self.workloads.is_empty() || of_model.is_empty() || self.ranks.0.iter().all(is_measured) {
            return Ok(());
        }
        let (of_model, given) = (joined(&of_model, ","), joined(&self.ranks.0, ","));
        Err(CommandError::usage(
            format!("the messages of the model are of {of_model} ranks, `--ranks` is {given}"),
            "leave out `--ranks`, or change the parallelism of the model, such as `--tp`",
        ))
    }

    pub(super) fn sweep_parts(&self, context: &RunContext) -> Result<Vec<SweepPart>, CommandError> {
        let wanted = WantedGroups { ranks: self.ranks.0.clone(), tiers: self.tiers.clone() };
        if self.workloads.is_empty() && self.model.is_none() {
            return Ok(vec![SweepPart { groups: context.find_groups(&wanted)?, ..self.combinations()? }]);
        }
        let files: Vec<(PathBuf, f64)> = self.workloads.iter().map(|file| (file.clone(), 1.0)).collect();
        let model = self.model.as_deref().map(|model| (model, self.step.step()));
        let selection = WorkloadSelection { files: &files, model, defaults: QuestionDefaults::default() };
        let messages = WorkloadMessages::of_run(context, &selection, self.mapping.as_deref(), &wanted)?;
        messages.notes.iter().for_each(|note| print_note(note));
        self.check_ranks(&messages.parts)?;
        Ok(messages.parts)
    }
}

#[derive(Clone, Debug)]
struct RankList(Vec<usize>);

fn parse_ranks(text: &str) -> Result<RankList, String> {
    if text == "all" {
        return Ok(RankList(Vec::new()));
    }
    let number = |part: &str| part.trim().parse::<usize>().ok().filter(|ranks| *ranks >= 2);
    let numbers: Option<Vec<usize>> = text.split(',').map(number).collect();
    numbers.map(RankList).ok_or_else(|| {
        format!("`{text}` is neither `all` nor numbers of 2 or more ranks, such as `2,4,8,16`")
    })
}

fn parse_kind(text: &str) -> Result<CollectiveKind, String> {
    let known = || joined(CollectiveKind::ALL, ", ");
    text.trim().parse().map_err(|_| format!("`{text}` is no collective; known are {}", known()))
}

fn parse_parts(text: &str) -> Result<PartWeights, String> {
    const FORMS: &str = "expected `equal`, `hot:4`, weights such as `1,2/3,4`, or a CSV file";
    let problem: String = match text.parse() {
        Ok(weights) => return Ok(weights),
        Err(problem) => problem,
    };
    if !text.ends_with(".csv") && !Path::new(text).exists() {
        return Err(format!("{problem}; {FORMS}"));
    }
    let content = read_regular_text(Path::new(text), MAX_DOCUMENT)
        .map_err(|error| format!("`{text}`: {error}; {FORMS}"))?;
    // Spreadsheets write a byte order mark.
    let lines = content.trim_start_matches('\u{feff}').lines().map(str::trim);
    let rows: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    if rows.is_empty() {
        return Err(format!("`{text}` is empty; expected a row for each sender"));
    }
    rows.join("/").parse().map_err(|problem| format!("`{text}`: {problem}"))
}

/// Parses a type by torch's name or a short one; returns torch's name.
fn parse_dtype(text: &str) -> Result<String, String> {
    const SHORT: [(&str, &str); 3] = [("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")];
    let text = text.trim();
    let name = SHORT.iter().find(|(short, _)| *short == text).map_or(text, |(_, name)| name);
    let known = Dtype::from_torch(name).filter(Dtype::is_of_messages);
    known.map(|_| name.to_owned()).ok_or_else(|| {
        format!("`{text}` is no type of a message; known are bf16, fp16, fp32, int8, uint8, int32, int64")
    })
}

fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => Some(0),
        "K" | "KB" | "KIB" => Some(10),
        "M" | "MB" | "MIB" => Some(20),
        "G" | "GB" | "GIB" => Some(30),
        _ => None,
    };
    let bytes =
        shift.zip(digits.parse::<u64>().ok()).and_then(|(shift, number)| number.checked_mul(1 << shift));
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| format!("`{text}` is no size; write bytes, or a number with K, M or G, such as 512M"))
}

fn ladder(from: u64, to: u64, factor: u64) -> Result<Vec<u64>, CommandError> {
    if from > to {
        return Err(CommandError::usage(
            format!("`--from` is {from} bytes, more than `--to`, {to} bytes"),
            "exchange them",
        ));
    }
    let sizes =
        std::iter::successors(Some(from), |size| size.checked_mul(factor)).take_while(|size| *size <= to);
    Ok(sizes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_suffixes_of_nccl_tests() {
        let sizes = ["128", "1K", "512M", "4G", "3k"].map(|text| parse_size(text).expect(text));
        assert_eq!(sizes, [128, 1024, 512 << 20, 4 << 30, 3 << 10]);
        for wrong in ["0", "", "K", "1T", "-1", "1.5M", "99999999999G"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(ladder(128, 512 << 20, 2).expect("a ladder").len(), 23);
        assert_eq!(ladder(1000, 9000, 3).expect("a ladder"), [1000, 3000, 9000]);
        assert!(ladder(2, 1, 2).is_err());
    }

    #[test]
    fn ranks_are_numbers_or_all() {
        assert!(parse_ranks("all").expect("all").0.is_empty());
        assert_eq!(parse_ranks("2, 16").expect("numbers").0, [2, 16]);
        assert!(parse_ranks("1").is_err() && parse_ranks("two").is_err());
    }
}
