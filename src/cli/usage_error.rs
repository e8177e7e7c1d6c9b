//! Errors of the command line, in which the standard library describes numbers.

/// Descriptions of values that are not numbers, and what users can understand.
const DESCRIPTIONS: [(&str, &str); 6] = [
    ("invalid digit found in string", "not a whole number"),
    ("cannot parse integer from empty string", "not a whole number"),
    ("number too large to fit in target type", "too large"),
    ("number would be zero for non-zero type", "must not be 0"),
    ("invalid float literal", "not a number"),
    ("cannot parse float from empty string", "not a number"),
];
/// Tip of clap for an unknown option of a command with positional arguments.
const TIP_OF_VALUES: &str = "tip: to pass '";
/// Tip of clap for an option in front of its command, as `tip: 'run --workload' exists`.
const TIP_OF_COMMAND: (&str, &str) = ("tip: '", "' exists");
/// Options of `npubench grid audit` that clap refuses together.
const MODELS_WITH_DATABASE: [&str; 3] = ["'--models <ID,ID>'", "cannot be used with", "'--db <DIR>'"];
const UNEXPECTED: &str = "unexpected argument '";
const UNEXPECTED_DRY_RUN: &str = "unexpected argument '--dry-run'";
/// Usage of the command whose dry run is another command.
const RUN_USAGE: &str = "npubench run ";
/// Usage of a command whose option `--calls` may have a value.
const CALLS_USAGE: &str = "npubench compare ";
/// End of a quoted value and of its option.
const VALUE_END: &str = "': ";
/// Words in front of a range, such as `1..=10`.
const RANGE: &str = " is not in ";

/// Returns the text of an error with understandable descriptions of numbers. The value of the user, which is in front of them, is
/// not changed.
pub(super) fn usage_error_text(text: &str) -> String {
    let lines = text.lines().map(|line| match line.rsplit_once(VALUE_END) {
        Some((value, problem)) => format!("{value}{VALUE_END}{}\n", describe_number(problem)),
        None if line.trim_start().starts_with(TIP_OF_VALUES) => format!("{}\n", tip_of_option(line)),
        None if let Some(option) = option_of_command(line) => {
            format!("  tip: options follow their command: `npubench {option}`\n")
        }
        None if MODELS_WITH_DATABASE.iter().all(|part| line.contains(part)) => {
            format!("{line}\n\n  tip: `--model NAME` audits a step of a model in the database\n")
        }
        None if line.contains(RUN_USAGE) && text.contains(UNEXPECTED_DRY_RUN) => {
            format!("  tip: `npubench plan` prints what a run would measure\n\n{line}\n")
        }
        None if line.contains(CALLS_USAGE) && text.contains(UNEXPECTED) && !text.contains(" tip: ") => {
            format!("  tip: a name of calls needs an equals sign: `--calls=NAME`\n\n{line}\n")
        }
        None => format!("{line}\n"),
    });
    lines.collect()
}

/// Returns the command and its option that a tip of clap names.
fn option_of_command(line: &str) -> Option<&str> {
    let option = line.trim_start().strip_prefix(TIP_OF_COMMAND.0)?.strip_suffix(TIP_OF_COMMAND.1)?;
    option.contains(" --").then_some(option)
}

/// Returns the tip for an unknown option in place of one that makes it a value, which no command of npubench expects.
fn tip_of_option(line: &str) -> &'static str {
    match line.contains("'--json'") {
        true => "  tip: `--format json` prints JSON",
        false => "  tip: `--help` lists the options",
    }
}

fn describe_number(problem: &str) -> String {
    let described = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
    let text = DESCRIPTIONS.iter().fold(problem.to_owned(), described);
    readable_range(&text).unwrap_or(text)
}

/// Returns a text that ends with a range of Rust, with its least and greatest number. The greatest of a type is no limit: clap
/// prints that of a range without an end.
fn readable_range(text: &str) -> Option<String> {
    let (start, range) = text.rsplit_once(RANGE)?;
    let (least, most) = range.split_once("..")?;
    least.parse::<i64>().ok()?;
    let below = format!("{start} is less than {least}");
    let most = match most.strip_prefix('=') {
        Some(most) => most.parse::<u64>().ok()?,
        None if most.is_empty() => return Some(below),
        None => most.parse::<u64>().ok().filter(|most| *most > 0)? - 1,
    };
    let is_limit = most < u64::from(u32::MAX);
    Some(if is_limit { format!("{start} is not between {least} and {most}") } else { below })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_described_without_words_of_the_compiler() {
        for (from, to) in [
            ("error: invalid value '0' for '--max <N>': 0 is not in 1..=100", "0 is not between 1 and 100"),
            ("error: invalid value '0' for '--max <N>': 0 is not in 1..", "0 is less than 1"),
            ("error: invalid value 'x' for '--max <N>': invalid digit found in string", "not a whole number"),
            ("error: invalid value '0' for '--max <N>': 0 is not in 1..10", "0 is not between 1 and 9"),
            (
                "error: invalid value '0 is not in 1..=3' for '--max <N>': invalid digit found in string",
                "'0 is not in 1..=3' for '--max <N>': not a whole number",
            ),
            ("error: a is not in b..=c", "a is not in b..=c"),
        ] {
            let text = usage_error_text(&format!("{from}\n\nFor more information\n"));
            assert!(text.contains(&format!("{to}\n\nFor more information\n")), "{text}");
        }
    }

    #[test]
    fn tips_for_unknown_arguments_can_be_followed() {
        let refused = |arguments: &[&str]| {
            let parsed = <crate::cli::CommandLine as clap::Parser>::try_parse_from(arguments);
            usage_error_text(&parsed.expect_err("refused").to_string())
        };
        let json = refused(&["npubench", "compare", "a", "b", "--json"]);
        assert!(
            json.contains("\n  tip: `--format json` prints JSON\n") && !json.contains("as a value"),
            "{json}"
        );
        let unknown = refused(&["npubench", "db", "check", "a", "--ledger"]);
        assert!(unknown.contains("\n  tip: `--help` lists the options\n"), "{unknown}");
        let run = refused(&["npubench", "run", "--db", "a", "--dry-run"]);
        assert!(run.contains("\n  tip: `npubench plan` prints what a run would measure\n\nUsage: "), "{run}");
        let name = refused(&["npubench", "compare", "a", "b", "--calls", "aten::mm"]);
        assert!(name.contains("needs an equals sign: `--calls=NAME`\n\nUsage: npubench compare"), "{name}");
    }

    #[test]
    fn tips_name_the_place_of_an_option_and_the_option_of_the_database() {
        let refused = |arguments: &str| {
            let parsed = <crate::cli::CommandLine as clap::Parser>::try_parse_from(arguments.split(' '));
            usage_error_text(&parsed.expect_err("refused").to_string())
        };
        let early = refused("npubench --workload a.csv fill");
        assert!(
            early.contains("\n  tip: options follow their command: `npubench fill --workload`\n"),
            "{early}"
        );
        let models = refused("npubench grid audit --db a3 --models Qwen3-32B");
        assert!(
            models.contains("\n  tip: `--model NAME` audits a step of a model in the database\n"),
            "{models}"
        );
    }

    /// The texts of clap itself.
    #[test]
    fn ranges_without_an_end_have_no_greatest_number() {
        let parse = |range: clap::builder::RangedU64ValueParser<usize>| {
            let argument = clap::Arg::new("max").long("max").value_parser(range);
            let error =
                clap::Command::new("npubench").arg(argument).try_get_matches_from(["npubench", "--max", "0"]);
            usage_error_text(&error.expect_err("refused").to_string())
        };
        let parser = clap::builder::RangedU64ValueParser::<usize>::new;
        let open = parse(parser().range(1..));
        assert!(open.contains("'--max <max>': 0 is less than 1\n"), "{open}");
        let closed = parse(parser().range(1..=9));
        assert!(closed.contains("'--max <max>': 0 is not between 1 and 9\n"), "{closed}");
    }
}
