//! Files with the options that a user always gives: `npubench.toml` of the current folder, then the one of the user.
//!
//! A value becomes the default of its option, so that the command line and variables of the environment precede it.

use std::{ffi::OsString, io, ops::Range};

use clap::{
    Arg, ArgAction,
    error::{ContextKind, ContextValue, ErrorKind},
};
use toml::de::{DeTable, DeValue};

use super::prelude::*;
use crate::{
    base::files::{MAX_SETTINGS, is_missing, read_regular_text},
    show::table::{Table, rank},
};

/// Name of the file in the current folder, and below `npubench` in the folder of the user's settings.
const FILE: &str = "npubench.toml";

/// Prints the files with options and what they set
///
/// `npubench.toml` in the current folder precedes the one in `$XDG_CONFIG_HOME/npubench` (`~/.config/npubench`). A key is an
/// option without its hyphens, and a table is a command; keys outside of tables are for all commands that have the option.
/// The command line and variables such as NPUBENCH_DB precede both files.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench config
  npubench config --format json")]
pub(super) struct ConfigOptions {
    #[command(flatten)]
    output: TableOptions,
}

#[derive(Clone, Debug, Serialize)]
struct ConfiguredOption {
    /// Words of the command; empty for all commands with the option.
    command: String,
    option: String,
    /// The value; a list has commas.
    value: String,
    file: PathBuf,
    line: usize,
    #[serde(skip)]
    values: Vec<String>,
}

impl ConfiguredOption {
    /// Returns true if a variable of the environment precedes the value, also of commands that read the variable themselves.
    fn is_preceded_by_variable(&self) -> bool {
        self.option == "db" && env::var_os(DATABASE_VARIABLE).is_some_and(|folder| !folder.is_empty())
    }

    fn place(&self) -> String {
        format!("{}:{}", self.file.display(), self.line)
    }

    /// Returns true if the values are among the possible ones of an option that has such a list.
    fn is_possible_for(&self, arg: &Arg) -> bool {
        let possible = arg.get_possible_values();
        let is_possible = |value: &String| possible.iter().any(|one| one.matches(value, false));
        possible.is_empty() || self.values.iter().all(is_possible)
    }

    /// Sets the default of the option in the command to which the words lead, or in all commands below it.
    fn apply(&self, mut command: Command, words: &[&str]) -> Command {
        if let [first, rest @ ..] = words {
            return command.mut_subcommand(first, |inner| self.apply(inner, rest));
        }
        let is_general = self.command.is_empty();
        let found = command.get_arguments().find(|arg| arg.get_long() == Some(&*self.option));
        let found = found.filter(|arg| !is_general || self.is_possible_for(arg)).map(Arg::get_id).cloned();
        if let Some(id) = found {
            command = command.mut_arg(id, |arg| self.set_default(arg));
        }
        if !is_general {
            return command;
        }
        command.mut_subcommands(|inner| if inner.is_hide_set() { inner } else { self.apply(inner, &[]) })
    }

    /// Sets the default of an option. The values of a list are separated by commas where the option splits them itself.
    fn set_default(&self, arg: Arg) -> Arg {
        let is_repeated =
            matches!(arg.get_action(), ArgAction::Append) && arg.get_value_delimiter().is_none();
        let values = if is_repeated { self.values.clone() } else { vec![self.value.clone()] };
        arg.default_values(values).required(false)
    }

    /// Returns true if an option of the command line excludes this one: clap refuses both together, but not a given option
    /// beside the default of another one.
    fn is_excluded(&self, commands: &Command, arguments: &[OsString]) -> bool {
        let given = match self.values.first().map(String::as_str) {
            None | Some("false") => return false,
            Some("true") => format!("--{}", self.option),
            Some(value) => format!("--{}={value}", self.option),
        };
        let mut words = arguments.to_vec();
        words.insert(words.iter().position(|word| word == "--").unwrap_or(words.len()), given.into());
        let parsed = commands.clone().try_get_matches_from(words);
        parsed.is_err_and(|error| error.kind() == ErrorKind::ArgumentConflict)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct ConfigFiles {
    files: Vec<PathBuf>,
    options: Vec<ConfiguredOption>,
}

/// Returns the files that may exist, those that precede last.
fn candidates() -> Vec<PathBuf> {
    let folder = |name| env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let settings = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
    let user = settings.map(|folder| folder.join("npubench").join(FILE));
    user.into_iter().chain([PathBuf::from(FILE)]).collect()
}

impl ConfigFiles {
    pub(super) fn read(commands: &Command) -> Result<Self, CommandError> {
        let mut found = Self::default();
        // A folder that cannot be entered has no file: the home folder of `$HOME` is another's for a user of `su`.
        let is_absent = |error: io::Error| {
            use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
            matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
        };
        for file in candidates().into_iter().filter(|file| !is_missing(file).unwrap_or_else(is_absent)) {
            let text = read_regular_text(&file, MAX_SETTINGS).map_err(|error| {
                CommandError::bad_input(
                    format!("`{}` cannot be read: {error}", file.display()),
                    "it is a text in UTF-8 of at most 1 MiB: correct it or its permissions, or move it away",
                )
            })?;
            let mut reader = TableReader { file: &file, text: &text, commands, options: Vec::new() };
            let table = DeTable::parse(&text).map_err(|error| {
                reader.error(
                    &error.span().unwrap_or_default(),
                    error.message(),
                    "the format is TOML: `option = \"value\"`, with `[command]` above the options of one command",
                )
            })?;
            reader.add_table(table.get_ref(), &mut Vec::new())?;
            // Options of a command take precedence over options of all commands, and options of its subcommands over
            // both.
            reader.options.sort_by_key(|option| option.command.split_whitespace().count());
            found.options.extend(reader.options);
            found.files.push(file);
        }
        Ok(found)
    }

    pub(super) fn apply(&self, commands: Command, arguments: &[OsString]) -> Command {
        let is_applied = |option: &&ConfiguredOption| {
            !option.is_preceded_by_variable() && !option.is_excluded(&commands, arguments)
        };
        let applied: Vec<&ConfiguredOption> = self.options.iter().filter(is_applied).collect();
        applied.into_iter().fold(commands, |commands, option| {
            option.apply(commands, &option.command.split_whitespace().collect::<Vec<_>>())
        })
    }

    /// Returns the places of the option and value that clap refuses; the names of the files if it refuses something else.
    pub(super) fn places_of(&self, error: &clap::Error) -> Vec<String> {
        let context = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => text.as_str(),
            _ => "",
        };
        let (arg, value) = (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue));
        let name = arg.split([' ', '=']).next().and_then(|name| name.strip_prefix("--"));
        let refused = self.options.iter().filter(|option| {
            name == Some(&*option.option)
                && (option.value == value || option.values.iter().any(|one| one == value))
        });
        let places: Vec<String> =
            refused.map(|option| format!("{}: `--{}` is set here", option.place(), option.option)).collect();
        if !places.is_empty() {
            return places;
        }
        self.files.iter().map(|file| format!("`{}` sets defaults of options", file.display())).collect()
    }
}

/// Returns the commands of users below a command: npubench starts the hidden ones itself.
fn visible_commands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|inner| !inner.is_hide_set())
}

/// Returns the options of a command; for the program itself, the options that all commands have.
fn options_below(command: &Command, is_general: bool) -> Vec<&Arg> {
    let mut options: Vec<&Arg> = command.get_arguments().filter(|arg| arg.get_long().is_some()).collect();
    if is_general {
        options.extend(visible_commands(command).flat_map(|inner| options_below(inner, true)));
    }
    options
}

struct TableReader<'a> {
    file: &'a Path,
    text: &'a str,
    commands: &'a Command,
    options: Vec<ConfiguredOption>,
}

impl TableReader<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        self.text[..span.start.min(self.text.len())].matches('\n').count() + 1
    }

    fn error(&self, span: &Range<usize>, problem: &str, hint: impl Into<String>) -> CommandError {
        CommandError::bad_input(format!("{}:{}: {problem}", self.file.display(), self.line(span)), hint)
    }

    fn add_table(&mut self, table: &DeTable<'_>, words: &mut Vec<String>) -> Result<(), CommandError> {
        let command = words.iter().fold(self.commands, |command, word| {
            command.find_subcommand(word).expect("the caller has found the command")
        });
        for (key, value) in table {
            let (name, span) = (key.get_ref().to_string(), key.span());
            if let DeValue::Table(inner) = value.get_ref() {
                let known = || visible_commands(command).map(Command::get_name);
                if !known().any(|known| known == name) {
                    let lists = || "`npubench help` lists the commands".to_owned();
                    let hint = did_you_mean_or(&name, known(), lists);
                    return Err(self.error(&span, &format!("no command `{name}`"), hint));
                }
                words.push(name);
                self.add_table(inner, words)?;
                words.pop();
                continue;
            }
            let values = value_texts(value.get_ref()).ok_or_else(|| {
                self.error(
                    &value.span(),
                    &format!("`{name}` has a value of another kind"),
                    "expected a text, a number, `true`, `false`, or a list of them",
                )
            })?;
            let option = ConfiguredOption {
                command: words.join(" "),
                value: values.join(","),
                values,
                file: self.file.to_owned(),
                line: self.line(&span),
                option: name,
            };
            if let Err((problem, hint)) = self.check_option(&option, command) {
                return Err(self.error(&span, &problem, hint));
            }
            self.options.push(option);
        }
        Ok(())
    }

    /// Refuses an option that no command has, and values that no command has among the possible ones, with problem and hint.
    fn check_option(&self, option: &ConfiguredOption, command: &Command) -> Result<(), (String, String)> {
        let ConfiguredOption { command: words, option: name, value, .. } = option;
        let known = options_below(command, words.is_empty());
        let args: Vec<&Arg> = known.iter().copied().filter(|arg| arg.get_long() == Some(name)).collect();
        if args.is_empty() {
            let lists = || "`npubench help COMMAND` lists its options".to_owned();
            let problem = match words.as_str() {
                "" => format!("no command has the option `--{name}`"),
                words => format!("`npubench {words}` has no option `--{name}`"),
            };
            return Err((
                problem,
                did_you_mean_or(name, known.iter().filter_map(|arg| arg.get_long()), lists),
            ));
        }
        if !args.iter().any(|arg| option.is_possible_for(arg)) {
            let values = args.iter().flat_map(|arg| arg.get_possible_values());
            let possible: BTreeSet<String> = values.map(|value| value.get_name().to_owned()).collect();
            let list = || format!("possible values are {}", joined(&possible, ", "));
            let hint = did_you_mean_or(value, possible.iter().map(String::as_str), list);
            return Err((format!("`{value}` is no value of `{name}`"), hint));
        }
        Ok(())
    }
}

/// Returns a value, or the values of a list, as arguments. `None` for tables, times, and lists of lists.
fn value_texts(value: &DeValue<'_>) -> Option<Vec<String>> {
    let text = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        DeValue::Array(_) | DeValue::Datetime(_) | DeValue::Table(_) => None,
    };
    match value {
        DeValue::Array(values) => values.iter().map(|value| text(value.get_ref())).collect(),
        value => Some(vec![text(value)?]),
    }
}

pub(super) fn run(options: &ConfigOptions, found: &ConfigFiles) -> Result<ExitStatus, CommandError> {
    options.output.emit(&found.options, |width| {
        for file in candidates() {
            let state = if found.files.contains(&file) { "is used" } else { "does not exist" };
            print_note(&format!("{} {state}", file.display()));
        }
        if found.options.is_empty() { String::new() } else { options_table(&found.options, width) }
    });
    Ok(ExitStatus::Done)
}

fn options_table(options: &[ConfiguredOption], width: Option<usize>) -> String {
    let preceding = |(index, option): (usize, &ConfiguredOption)| {
        let is_same =
            |other: &&ConfiguredOption| (&other.command, &other.option) == (&option.command, &option.option);
        match option.is_preceded_by_variable() {
            true => DATABASE_VARIABLE.to_owned(),
            false => {
                options[index + 1..].iter().rfind(is_same).map(ConfiguredOption::place).unwrap_or_default()
            }
        }
    };
    Table::new(options.iter().enumerate())
        .text("command", 0, |(_, option)| if option.command.is_empty() { "all" } else { &option.command })
        .text("option", 0, |(_, option)| format!("--{}", option.option))
        .text("value", rank(0).min(12), |(_, option)| &option.value)
        .text("place", rank(0).min(24), |(_, option)| option.place().replace('`', ""))
        .text("preceded by", 0, preceding)
        .print(width)
}
