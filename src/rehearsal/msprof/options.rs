//! The command line of msprof.

use std::path::{Path, PathBuf};

use strum::VariantNames as _;

use crate::kernel::AicMetrics;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum MsprofCommand {
    Help,
    /// The usage after a wrong or empty command line.
    Usage(Option<String>),
    Start(MsprofCollection),
    /// A further export of a folder.
    Export(PathBuf),
}

/// A collection to run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MsprofCollection {
    /// The folder that gets the `PROF_*` folder; the working folder by default.
    pub(super) output: Option<PathBuf>,
    pub(super) content: RecordContent,
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
}

/// Content of the records of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordContent {
    /// Counters; `Disabled` with `--ai-core=off` and at `--task-time=l0`.
    pub(super) metrics: AicMetrics,
    /// False at `--task-time=l0`: types, shapes and formats are `N/A`.
    pub(super) has_types: bool,
}

impl Default for RecordContent {
    fn default() -> Self {
        Self { metrics: AicMetrics::default(), has_types: true }
    }
}

pub(super) const USAGE: &str = "\
Usage: msprof [options] <app> [args]
       msprof [options] --application=\"<app> args\"
       msprof --export=on --output=DIR     exports a PROF_* folder, or those in a folder, once more
Rehearsal: the stand-in collects at task-time l0 or l1, and nothing but the tasks and their counters.
   --output=DIR             where the PROF_* folder goes
   --application=\"APP\"      the program, split at blanks
   --type=text  --task-time=l0|l1|on  --ai-core=on|off  --aic-mode=task-based
   --aic-metrics=PipeUtilization|ArithmeticUtilization|Memory|MemoryL0|MemoryUB|L2Cache|ResourceConflictRatio
                 |MemoryAccess
   --ascendcl=on|off  --runtime-api=on|off  --aicpu=on|off  --hccl=on|off  --model-execution=on|off
   --help";

/// Options without an effect here, with the values for which that is true.
const ACCEPTED: [(&str, &[&str]); 9] = [
    ("type", &["text"]),
    ("aic-mode", &["task-based"]),
    ("ascendcl", &["on", "off"]),
    ("runtime-api", &["on", "off"]),
    ("aicpu", &["on", "off"]),
    ("hccl", &["on", "off"]),
    ("model-execution", &["on", "off"]),
    ("summary-format", &["csv"]),
    ("clear", &["on", "off"]),
];
/// Characters that the real one refuses in paths.
const NOT_IN_PATHS: &str = "\"'\\%><|&$;`";

pub(super) fn parse(arguments: &[String]) -> MsprofCommand {
    let mut output = None;
    let mut application = None;
    let mut exports = false;
    let (mut counts, mut content) = (true, RecordContent::default());
    let mut rest = arguments;
    while let [word, after @ ..] = rest {
        let Some(option) = word.strip_prefix("--") else { break };
        rest = after;
        if option == "help" {
            return MsprofCommand::Help;
        }
        let Some((name, value)) = option.split_once('=') else {
            return wrong(format!("`{word}`: options are --name=value"));
        };
        match name {
            "output"
                if value.is_empty()
                    || value.contains(|c: char| NOT_IN_PATHS.contains(c) || c.is_control()) =>
            {
                return wrong(format!("--output: `{value}` is not a path that msprof accepts"));
            }
            "output" => output = Some(PathBuf::from(value)),
            "export" if value == "on" || value == "off" => exports = value == "on",
            "task-time" if ["l0", "l1", "on"].contains(&value) => content.has_types = value != "l0",
            "task-time" => return wrong(format!("--task-time={value}: the stand-in supports l0, l1, on")),
            "ai-core" if value == "on" || value == "off" => counts = value == "on",
            "aic-metrics" => match parse_metrics(value) {
                Some(parsed) => content.metrics = parsed,
                None => return wrong(invalid_metrics(value)),
            },
            "application" => application = Some(value.to_owned()),
            _ => match ACCEPTED.iter().find(|(known, _)| *known == name) {
                Some((_, values)) if values.contains(&value) => {}
                Some((_, values)) => {
                    return wrong(format!("--{name}={value}: the stand-in supports {}", values.join(", ")));
                }
                None => return wrong(format!("`{word}` is not an option of the stand-in")),
            },
        }
    }
    if exports {
        return match (output, application, rest) {
            (Some(folder), None, []) => MsprofCommand::Export(folder),
            (None, ..) => wrong("--export=on needs --output=DIR, the folder to export"),
            _ => wrong("--export=on takes no program"),
        };
    }
    if !counts || !content.has_types {
        content.metrics = AicMetrics::Disabled;
    }
    start_command(output, content, application, rest)
}

/// The groups of an A2 or A3; other chips lack some of them.
fn parse_metrics(value: &str) -> Option<AicMetrics> {
    value.parse().ok().filter(|metrics| *metrics != AicMetrics::Disabled)
}

/// The message of the real one.
fn invalid_metrics(value: &str) -> String {
    let known: Vec<&str> =
        AicMetrics::VARIANTS.iter().copied().filter(|name| parse_metrics(name).is_some()).collect();
    format!(
        "Argument --aic-metrics: invalid value:{value}. Please input in the range of '{}'",
        known.join("|")
    )
}

fn start_command(
    output: Option<PathBuf>,
    content: RecordContent,
    application: Option<String>,
    rest: &[String],
) -> MsprofCommand {
    match (application, rest) {
        (None, []) => MsprofCommand::Usage(None),
        (Some(_), [_, ..]) => wrong("both --application and a program are given"),
        (None, [program, arguments @ ..]) => MsprofCommand::Start(MsprofCollection {
            output,
            content,
            program: program.clone(),
            arguments: arguments.to_vec(),
        }),
        (Some(text), []) => {
            let mut parts = text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned);
            let Some(program) = parts.next() else { return wrong("--application is empty") };
            // By default the result is written beside the program.
            let beside = || Path::new(&program).parent().map(Path::to_owned);
            let output = output.or_else(beside).filter(|folder| !folder.as_os_str().is_empty());
            MsprofCommand::Start(MsprofCollection {
                output,
                content,
                program: program.clone(),
                arguments: parts.collect(),
            })
        }
    }
}

fn wrong(problem: impl Into<String>) -> MsprofCommand {
    MsprofCommand::Usage(Some(problem.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> MsprofCommand {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    fn start(output: Option<&str>, program: &str, arguments: &[&str]) -> MsprofCommand {
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        MsprofCommand::Start(MsprofCollection {
            output: output.map(PathBuf::from),
            content: RecordContent::default(),
            program: program.to_owned(),
            arguments,
        })
    }

    #[test]
    fn both_forms_of_the_command_line_start_a_program() {
        let words =
            ["--output=/x", "--task-time=l1", "--aic-metrics=PipeUtilization", "python3", "a.py", "--b=c"];
        assert_eq!(parsed(&words), start(Some("/x"), "python3", &["a.py", "--b=c"]));
        assert_eq!(
            parsed(&["--application=python3 a.py m.json"]),
            start(None, "python3", &["a.py", "m.json"])
        );
        assert_eq!(parsed(&["--application=/opt/app 1"]), start(Some("/opt"), "/opt/app", &["1"]));
        assert_eq!(parsed(&["app"]), start(None, "app", &[]));
    }

    #[test]
    fn counters_are_those_of_the_options() {
        let metrics = |words: &[&str]| match parsed(words) {
            MsprofCommand::Start(start) => start.content.metrics,
            other => panic!("{other:?}"),
        };
        assert_eq!(metrics(&["app"]), AicMetrics::PipeUtilization);
        assert_eq!(metrics(&["--ai-core=on", "--aic-metrics=MemoryUB", "app"]), AicMetrics::MemoryUb);
        assert_eq!(metrics(&["--ai-core=off", "--aic-metrics=MemoryUB", "app"]), AicMetrics::Disabled);
        assert_eq!(metrics(&["--task-time=l0", "app"]), AicMetrics::Disabled);
    }

    #[test]
    fn unsupported_options_print_the_usage() {
        assert_eq!(parsed(&["--help"]), MsprofCommand::Help);
        assert_eq!(parsed(&[]), MsprofCommand::Usage(None));
        assert_eq!(parsed(&["--export=on", "--output=/x"]), MsprofCommand::Export("/x".into()));
        let wrong = [
            "--aic-metrics=none",
            "--aic-metrics=PipeUtilisation",
            "--ai-core=maybe",
            "--task-time=l2",
            "--outptu=x",
            "--output",
            "--output=a;b",
            "--export=on",
            "--application=",
        ];
        for word in wrong {
            let named = word.trim_start_matches("--").split('=').next().unwrap_or_default();
            let found = parsed(&[word, "app"]);
            assert!(
                matches!(&found, MsprofCommand::Usage(Some(text)) if text.contains(named)),
                "{word}: {found:?}"
            );
        }
    }
}
