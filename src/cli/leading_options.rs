//! Options in front of the command to which they belong, as in `npubench --db a3 runs`.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};

/// Returns the arguments with the options of a command behind its words: `--db a3 runs` becomes `runs --db a3`. Arguments without a
/// command are returned unchanged. An unknown option, and one with several values, of which the words behind it may be
/// some, end the search for the command: the parser reports them.
pub(super) fn options_after_command(commands: &Command, arguments: Vec<OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = arguments.first().cloned().into_iter().collect();
    let mut options = Vec::new();
    let mut command = commands;
    let mut rest = arguments.get(1..).unwrap_or_default();
    while let [first, behind @ ..] = rest {
        if let Some(inner) = command.find_subcommand(first) {
            words.push(first.clone());
            (command, rest) = (inner, behind);
        } else if let Some(length) = option_length(commands, first).filter(|length| *length <= rest.len()) {
            let (option, behind) = rest.split_at(length);
            options.extend_from_slice(option);
            rest = behind;
        } else {
            break;
        }
    }
    if words.len() < 2 { arguments } else { [&words, &options, rest].concat() }
}

/// Returns the number of arguments of an option with its value; `None` for another argument, and if the commands with an option
/// of this name have different numbers.
fn option_length(commands: &Command, argument: &OsStr) -> Option<usize> {
    let argument = argument.to_str()?;
    let Some(long) = argument.strip_prefix("--") else {
        let is_flag = |letter| commands.get_arguments().any(|option| option.get_short() == Some(letter));
        let letters = argument.strip_prefix('-')?;
        return (!letters.is_empty() && letters.chars().all(is_flag)).then_some(1);
    };
    let (name, has_value) = long.split_once('=').map_or((long, false), |(name, _)| (name, true));
    let mut options = Vec::new();
    add_options(commands, name, &mut options);
    let mut lengths = options.into_iter().map(|option| length_with_value(option, has_value));
    let first = lengths.next()?;
    lengths.all(|length| length == first).then_some(first)?
}

/// Returns the number of arguments of an option; `None` if it may have several values.
fn length_with_value(option: &Arg, has_value: bool) -> Option<usize> {
    let most_values = option.get_num_args().map_or(1, |number| number.max_values());
    let needs_value = option.get_action().takes_values() && !option.is_require_equals_set();
    (most_values <= 1).then_some(if needs_value && !has_value { 2 } else { 1 })
}

/// Adds the options with this long name of a command, and of those below it.
fn add_options<'c>(command: &'c Command, name: &str, found: &mut Vec<&'c Arg>) {
    found.extend(command.get_arguments().filter(|option| {
        let aliases = option.get_all_aliases().unwrap_or_default();
        option.get_long() == Some(name) || aliases.contains(&name)
    }));
    command.get_subcommands().for_each(|inner| add_options(inner, name, found));
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::CommandLine;

    fn ordered(arguments: &str) -> String {
        let words = arguments.split(' ').map(OsString::from).collect();
        let ordered = options_after_command(&CommandLine::command(), words);
        ordered.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn options_in_front_of_a_command_are_its_own() {
        for (given, expected) in [
            ("npubench --db a3 runs", "npubench runs --db a3"),
            ("npubench --db=a3 -q show R", "npubench show --db=a3 -q R"),
            (
                "npubench --kernels Add --db a3 run --until 07:30",
                "npubench run --kernels Add --db a3 --until 07:30",
            ),
            ("npubench --color never --dry-run grid", "npubench grid --color never --dry-run"),
            ("npubench --db a3 grid audit", "npubench grid audit --db a3"),
            ("npubench comm --db a3 run", "npubench comm run --db a3"),
            ("npubench --db db db check", "npubench db check --db db"),
            ("npubench --calls=mm compare a b", "npubench compare --calls=mm a b"),
        ] {
            assert_eq!(ordered(given), expected);
        }
    }

    #[test]
    fn other_arguments_are_left_to_the_parser() {
        for arguments in [
            "npubench",
            "npubench runs --db a3",
            "npubench kernels Add --wide",
            "npubench --db a3",
            "npubench --db",
            "npubench --unknown runs",
            "npubench -x runs",
            "npubench --missing kernels kernels",
            // A flag of some commands, and an option with a value of others.
            "npubench --warm-up 5 run",
            "npubench -- --db a3 runs",
            "npubench stand-in msprof --db a3 -- run",
            "npubench plan --devices 0 --db plan",
        ] {
            assert_eq!(ordered(arguments), arguments);
        }
    }
}
