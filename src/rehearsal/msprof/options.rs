//! The command line of msprof.

use std::path::{Path, PathBuf};

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
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
}

pub(super) const USAGE: &str = "\
Usage: msprof [options] <app> [args]
       msprof [options] --application=\"<app> args\"
       msprof --export=on --output=DIR     exports a PROF_* folder, or those in a folder, once more
Rehearsal: the stand-in collects at task-time l1 with metric PipeUtilization, and nothing else.
   --output=DIR             where the PROF_* folder goes
   --application=\"APP\"      the program, split at blanks
   --type=text  --task-time=l1|on  --ai-core=on  --aic-mode=task-based  --aic-metrics=PipeUtilization
   --ascendcl=on|off  --runtime-api=on|off  --aicpu=on|off  --hccl=on|off  --model-execution=on|off
   --help";

/// Options without an effect here, with the values for which that is true.
const ACCEPTED: [(&str, &[&str]); 12] = [
    ("type", &["text"]),
    ("task-time", &["l1", "on"]),
    ("ai-core", &["on"]),
    ("aic-mode", &["task-based"]),
    ("aic-metrics", &["PipeUtilization"]),
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
            "application" => application = Some(value.to_owned()),
            _ => match ACCEPTED.iter().find(|(known, _)| *known == name) {
                Some((_, values)) if values.contains(&value) => {}
                Some((_, values)) => {
                    return wrong(format!("--{name}={value}: the stand-in knows {}", values.join(", ")));
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
    start_command(output, application, rest)
}

fn start_command(output: Option<PathBuf>, application: Option<String>, rest: &[String]) -> MsprofCommand {
    match (application, rest) {
        (None, []) => MsprofCommand::Usage(None),
        (Some(_), [_, ..]) => wrong("both --application and a program are given"),
        (None, [program, arguments @ ..]) => MsprofCommand::Start(MsprofCollection {
            output,
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
    fn unsupported_options_print_the_usage() {
        assert_eq!(parsed(&["--help"]), MsprofCommand::Help);
        assert_eq!(parsed(&[]), MsprofCommand::Usage(None));
        assert_eq!(parsed(&["--export=on", "--output=/x"]), MsprofCommand::Export("/x".into()));
        let wrong =
            ["--task-time=l0", "--outptu=x", "--output", "--output=a;b", "--export=on", "--application="];
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
